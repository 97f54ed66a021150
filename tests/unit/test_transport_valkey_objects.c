/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Values by name in Valkey and Redis servers, with a real server: whole values or none, whatever
 * happens between two commands.  Clusters are in test_transport_valkey_cluster.c. */
#include "valkey_fixture.h"

#define PIECE ((size_t)1 << 20) /* what the transport sends at a time */

static server one;

/* ---- interference ------------------------------------------------------------------------ */

/* What happens before the n-th command of an operation: another client's command, or the connection
 * breaks, and all later ones do. */
static struct {
    unsigned    at, seen; /* at 0: nothing */
    const char *command;  /* NULL: the connection */
} strike;

static bool on_fault(const char *name, usm_status *status)
{
    if (strcmp(name, "valkey.object") != 0 || strike.at == 0)
        return usm__fault_hit(name, status);
    strike.seen++;
    if (!strike.command)
        return strike.seen >= strike.at;
    if (strike.seen != strike.at)
        return false;
    CHECK(server_say(&one, strike.command)[0] != '-');
    return false;
}

static void strike_at(unsigned n, const char *command)
{
    strike.at      = n;
    strike.seen    = 0;
    strike.command = command;
}

/* ---- opening ----------------------------------------------------------------------------- */

static usm_host_api api;

static usm_status open_objects(const char *rest, void **objects)
{
    char                 config[300];
    usm_transport_params params = {.struct_size = sizeof(params), .api = &api, .config = config};

    (void)snprintf(config, sizeof(config), "%s%s", one.path, rest);
    return ops->objects_open(&params, objects);
}

static void *start(void)
{
    void *objects = NULL;

    CHECK_IN("+OK", server_say(&one, "FLUSHALL"));
    module_start();
    api       = module_api;
    api.fault = on_fault;
    strike_at(0, NULL);
    CHECK_INT(open_objects("", &objects), USM_OK);
    return objects;
}

static void end(void *objects)
{
    ops->objects_close(objects);
    module_clean();
    CHECK_INT(module.secret, 0);
}

static void check_value(void *objects, const char *name, const char *data, size_t size)
{
    char    *back = malloc(size + 1);
    uint64_t n    = 0;

    CHECK(back != NULL);
    back[size] = 'e';
    CHECK_INT(ops->object_size(objects, name, &n), USM_OK);
    CHECK(n == size);
    CHECK_INT(ops->object_read(objects, name, back, size), USM_OK);
    CHECK(memcmp(back, data, size) == 0);
    CHECK(back[size] == 'e'); /* no more than was asked for */
    free(back);
}

/* ---- values ------------------------------------------------------------------------------ */

static void values_of_any_size_come_back(void)
{
    static const size_t sizes[] = {0, 1, PAGE, PIECE - 1, PIECE, PIECE + 1, 9 * PIECE + 5};
    void               *objects = start();
    char               *data    = pages(10 * PIECE);

    for (uint64_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        fill(data, i, 0, 0, 10 * PIECE);
        CHECK_INT(ops->object_write(objects, "a name: {x} \"y\"", data, sizes[i]), USM_OK);
        check_value(objects, "a name: {x} \"y\"", data, sizes[i]);
        check_keys(&one, ":1\r"); /* no temporary one is left */
    }
    CHECK_INT(ops->object_write(objects, "stays", "x", 1), USM_OK);
    CHECK_IN(":-1", server_say(&one, "TTL stays"));
    end(objects);
    munmap(data, 10 * PIECE);
}

static void what_is_not_there_is_named(void)
{
    void    *objects = start();
    char     data[4] = "abc", name[600];
    uint64_t size    = 77;

    CHECK_INT(ops->object_size(objects, "nothing", &size), USM_E_IO);
    CHECK_IN("has no key 'nothing'", usm_last_error());
    CHECK(size == 77);
    CHECK_INT(ops->object_read(objects, "nothing", data, 3), USM_E_IO);
    CHECK_IN(one.path, usm_last_error());
    CHECK_IN("+OK", server_say(&one, "SET short ab"));
    CHECK_INT(ops->object_read(objects, "short", data, 3), USM_E_IO);
    CHECK_IN("has 2 bytes, not 3", usm_last_error());
    CHECK_IN(":1", server_say(&one, "RPUSH list a"));
    CHECK_INT(ops->object_size(objects, "list", &size), USM_E_IO);
    CHECK_IN("WRONGTYPE", usm_last_error());
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    CHECK_INT(ops->object_write(objects, name, data, 3), USM_E_INVALID);
    CHECK_INT(ops->object_size(objects, "", &size), USM_E_INVALID);
    CHECK_IN("no key of 1 to", usm_last_error());
    check_value(objects, "short", "ab", 2); /* it can be used after that */
    end(objects);
}

/* Another client changes the value, at its beginning and at its end, between two commands. */
static void a_value_is_never_put_together_from_two(void)
{
    enum { PIECES = 9, FIRST = 100, LAST = 9000000 };
    void *objects = start();
    char *data = pages(PIECES * PIECE), *back = pages(PIECES * PIECE);
    bool  is_over = false;
    int   refused = 0;

    for (unsigned n = 1; !is_over && n < 50; n++) {
        strike_at(0, NULL);
        memset(data, 'a', PIECES * PIECE);
        CHECK_INT(ops->object_write(objects, "v", data, PIECES * PIECE), USM_OK);
        strike_at(n, "SETRANGE v 100 b\r\nSETRANGE v 9000000 b");
        if (ops->object_read(objects, "v", back, PIECES * PIECE) != USM_OK) {
            CHECK_IN("was changed while it was read", usm_last_error());
            refused++;
            continue;
        }
        is_over = strike.seen < n; /* it was read before */
        if (back[FIRST] == 'b')
            data[FIRST] = data[LAST] = 'b';
        CHECK(memcmp(data, back, PIECES * PIECE) == 0);
    }
    CHECK(is_over && refused > PIECES);
    end(objects);
    munmap(data, PIECES * PIECE);
    munmap(back, PIECES * PIECE);
}

/* The connection breaks before each command in turn: the old value or the new one is there. */
static void a_value_is_replaced_wholly_or_not(void)
{
    void *objects = start();
    char *data = pages(2 * PIECE), old[] = "old";
    bool  ok = false;

    fill(data, 7, 0, 0, 2 * PIECE);
    for (unsigned n = 1; !ok && n < 50; n++) {
        strike_at(0, NULL);
        CHECK_INT(ops->object_write(objects, "v", old, 3), USM_OK);
        strike_at(n, NULL);
        ok = ops->object_write(objects, "v", data, 2 * PIECE) == USM_OK;
        strike_at(0, NULL);
        if (ok)
            check_value(objects, "v", data, 2 * PIECE);
        else
            check_value(objects, "v", old, 3);
    }
    CHECK(ok);
    end(objects);
    munmap(data, 2 * PIECE);
}

/* What is left of a value that was not written wholly goes by itself. */
static void check_temporary(void)
{
    const char *key = strchr(server_say(&one, "RANDOMKEY"), '\n');
    char        line[300];

    if (!key) /* "$-1": there is none */
        return;
    (void)snprintf(line, sizeof(line), "TTL %.*s", (int)strcspn(key + 1, "\r"), key + 1);
    if (strlen(line) > strlen("TTL "))
        CHECK(strtol(server_say(&one, line) + 1, NULL, 10) > 0);
}

/* What was written so far has gone: the rest would make a value without its beginning. */
static void a_part_that_is_dropped_is_noticed(void)
{
    void *objects = start();
    char *data    = pages(8 * PIECE);
    int   failed  = 0;

    fill(data, 3, 0, 0, 8 * PIECE);
    for (unsigned n = 2; n <= 21; n++) {
        strike_at(n, "FLUSHALL");
        if (ops->object_write(objects, "v", data, 8 * PIECE) == USM_OK) {
            check_value(objects, "v", data, 8 * PIECE); /* nothing of it had come to the server */
            continue;
        }
        CHECK_IN("has dropped a part of 'v'", usm_last_error());
        CHECK_IN(":0", server_say(&one, "EXISTS v"));
        check_temporary();
        failed++;
    }
    CHECK(failed >= 8);
    end(objects);
    munmap(data, 8 * PIECE);
}

/* ---- connections ------------------------------------------------------------------------- */

static void an_idle_connection_is_made_again(void)
{
    void *objects = start();
    char *data    = pages(3 * PIECE);

    for (int i = 0; i < 5; i++) {
        fill(data, (uint64_t)i, 0, 0, 3 * PIECE);
        CHECK_IN(":", server_say(&one, "CLIENT KILL TYPE normal"));
        CHECK_INT(ops->object_write(objects, "v", data, 3 * PIECE), USM_OK);
        CHECK_IN(":", server_say(&one, "CLIENT KILL TYPE normal"));
        check_value(objects, "v", data, 3 * PIECE);
    }
    end(objects);
    munmap(data, 3 * PIECE);
}

/* A SIGPIPE would end the test. */
static void a_server_that_dies_is_told(void)
{
    void *objects = start();
    char *data    = pages(9 * PIECE);

    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    server_kill(&one);
    CHECK_INT(ops->object_write(objects, "v", data, 9 * PIECE), USM_E_IO);
    CHECK_IN(one.path, usm_last_error());
    CHECK_IN("cannot be used", usm_last_error());
    server_restart(&one, NULL);
    CHECK_INT(ops->object_write(objects, "v", data, 9 * PIECE), USM_OK);
    end(objects);
    munmap(data, 9 * PIECE);
}

static void a_silent_server_is_given_up(void)
{
    void    *objects = start();
    uint64_t size;

    ops->objects_close(objects);
    CHECK_INT(open_objects(",timeout=100", &objects), USM_OK);
    CHECK(kill(one.pid, SIGSTOP) == 0);
    CHECK_INT(ops->object_size(objects, "v", &size), USM_E_IO);
    CHECK_IN("gives no answer within 100 ms", usm_last_error());
    CHECK(kill(one.pid, SIGCONT) == 0);
    CHECK_INT(ops->object_write(objects, "v", "x", 1), USM_OK);
    end(objects);
}

static void passwords_are_sent_and_never_shown(void)
{
    void *objects = start();

    CHECK_IN("+OK", server_say(&one, "CONFIG SET requirepass horse1"));
    ops->objects_close(objects);
    objects = NULL;
    CHECK_INT(open_objects("", &objects), USM_E_KEY);
    CHECK_IN("USM_VALKEY_PASSWORD", usm_last_error());
    module.password = "horse";
    CHECK_INT(open_objects("", &objects), USM_E_KEY);
    CHECK_IN("WRONGPASS", usm_last_error());
    CHECK(!strstr(usm_last_error(), "horse"));
    module.password = "horse1";
    CHECK_INT(open_objects("", &objects), USM_OK);
    check_keys(&one, "NOAUTH");
    CHECK_INT(ops->object_write(objects, "v", "x", 1), USM_OK);
    end(objects);
    CHECK_INT(open_objects(",color=red", &objects), USM_E_INVALID);
    ops->objects_close(NULL);
    server_kill(&one);
    server_restart(&one, NULL);
}

static const plain_case cases[] = {
    CASE(values_of_any_size_come_back),
    CASE(what_is_not_there_is_named),
    CASE(a_value_is_never_put_together_from_two),
    CASE(a_value_is_replaced_wholly_or_not),
    CASE(a_part_that_is_dropped_is_noticed),
    CASE(an_idle_connection_is_made_again),
    CASE(a_server_that_dies_is_told),
    CASE(a_silent_server_is_given_up),
    CASE(passwords_are_sent_and_never_shown),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    const char *why = valkey_missing();
    int         rc;

    if (why) {
        printf("skipped: %s\n", why);
        return 77;
    }
    server_start(&one, NULL);
    rc = plain_main(argc, argv, cases);
    server_kill(&one);
    return rc;
}
