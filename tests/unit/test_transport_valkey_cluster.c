/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport over a cluster of Valkey or Redis servers: slots that move, a master that dies.
 * All else is in test_transport_valkey.c. */
#include "valkey_fixture.h"

enum { NODES = 4 }; /* three masters; the last is the third's replica */
static server nodes[NODES];
static char   ids[NODES][48];

static const char *sayf(const server *s, const char *format, ...) USM_PRINTF(2, 3);

static const char *sayf(const server *s, const char *format, ...)
{
    char    text[400];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return server_say(s, text);
}

/* The answer to a command that has a line as its value. */
static void ask(const server *s, const char *command, char *line, size_t size)
{
    const char *at = strchr(server_say(s, command), '\n');

    CHECK(at != NULL);
    (void)snprintf(line, size, "%.*s", (int)strcspn(at + 1, "\r\n"), at + 1);
}

static void await_answer(const server *s, const char *command, const char *answer)
{
    for (int i = 0; i < 20000 && !strstr(server_say(s, command), answer); i++)
        module_sleep_ms(1);
    CHECK_IN(answer, server_say(s, command));
}

static void cluster_start(void)
{
    for (int i = 0; i < NODES; i++) {
        char options[256];

        nodes[i].cluster_port = server_free_port();
        (void)snprintf(options, sizeof(options),
                       "cluster-enabled yes\ncluster-config-file nodes-%d.conf\ncluster-port %d\n"
                       "cluster-node-timeout 1000\nrepl-diskless-sync-delay 0",
                       nodes[i].cluster_port, nodes[i].cluster_port);
        server_start(&nodes[i], options);
        ask(&nodes[i], "CLUSTER MYID", ids[i], sizeof(ids[0]));
    }
    for (int i = 0; i < 3; i++)
        CHECK_IN("+OK", sayf(&nodes[i], "CLUSTER ADDSLOTSRANGE %d %d", i * 5461,
                             i < 2 ? i * 5461 + 5460 : 16383));
    for (int i = 1; i < NODES; i++)
        CHECK_IN("+OK", sayf(&nodes[0], "CLUSTER MEET 127.0.0.1 %d %d", nodes[i].port,
                             nodes[i].cluster_port));
    for (int i = 0; i < NODES; i++)
        await_answer(&nodes[i], "CLUSTER INFO", "cluster_known_nodes:4");
    for (int i = 0; i < 3; i++)
        await_answer(&nodes[i], "CLUSTER INFO", "cluster_state:ok");
}

static void cluster_end(void)
{
    for (int i = 0; i < NODES; i++)
        if (nodes[i].pid)
            server_kill(&nodes[i]);
}

static void *open_cluster(const char *rest)
{
    char  text[200];
    void *store = NULL;

    (void)snprintf(text, sizeof(text), "127.0.0.1:%d%s", nodes[0].port, rest);
    CHECK_INT(open_store(text, NULL, &store), USM_OK);
    return store;
}

enum { SPREAD = 60 };

static void store_spread(void *store, char *data, uint64_t turn)
{
    for (uint64_t b = 0; b < SPREAD; b++) {
        fill(data, b, turn, 0, BLOCK);
        store_block(store, b, data);
    }
}

static void check_spread(void *store, char *data, uint64_t turn)
{
    for (uint64_t b = 0; b < SPREAD; b++) {
        fetch_block(store, b, data);
        CHECK(is_filled(data, b, turn, 0, BLOCK));
    }
}

static void store_parts(void *store, char *data)
{
    for (uint64_t b = 0; b < SPREAD; b++) {
        job j;

        job_set(&j, USM_TRANSFER_STORE, b, data);
        j.t.offset = j.t.size = PAGE;
        fill(data, b, 0, PAGE, PAGE);
        CHECK_INT(job_run(store, &j), USM_OK);
    }
}

/* Moves the slots of some of the first node's keys to the second, with a look at all blocks when a
 * slot is half moved, and when it is moved. */
static void move_slots(void *store, char *data)
{
    for (int i = 0; i < 5; i++) {
        char key[128], slot[16];

        ask(&nodes[0], "RANDOMKEY", key, sizeof(key));
        (void)snprintf(slot, sizeof(slot), "%s", sayf(&nodes[0], "CLUSTER KEYSLOT %s", key) + 1);
        slot[strcspn(slot, "\r")] = '\0';
        CHECK_IN("+OK", sayf(&nodes[1], "CLUSTER SETSLOT %s IMPORTING %s", slot, ids[0]));
        CHECK_IN("+OK", sayf(&nodes[0], "CLUSTER SETSLOT %s MIGRATING %s", slot, ids[1]));
        check_spread(store, data, 0);
        CHECK_IN("+OK", sayf(&nodes[0], "MIGRATE 127.0.0.1 %d %s 0 5000", nodes[1].port, key));
        check_spread(store, data, 0); /* ASK */
        store_parts(store, data);
        store_spread(store, data, 0);
        CHECK_IN("+OK", sayf(&nodes[1], "CLUSTER SETSLOT %s NODE %s", slot, ids[1]));
        CHECK_IN("+OK", sayf(&nodes[0], "CLUSTER SETSLOT %s NODE %s", slot, ids[1]));
        check_spread(store, data, 0); /* MOVED */
    }
    CHECK_IN("errorstat_ASK", server_say(&nodes[0], "INFO errorstats"));
    CHECK_IN("errorstat_MOVED", server_say(&nodes[0], "INFO errorstats"));
}

static long keys_of(const server *s)
{
    return strtol(server_say(s, "DBSIZE") + 1, NULL, 10);
}

static void a_cluster_is_followed(void)
{
    char  text[600];
    char *data = pages(BLOCK);
    void *store;

    module_start();
    cluster_start();
    store = open_cluster(",ttl=60");
    CHECK_INT(ops->reserve(store, 0, SPREAD), USM_OK);
    store_spread(store, data, 0);
    for (int i = 0; i < 3; i++)
        CHECK(keys_of(&nodes[i]) > 0);
    move_slots(store, data);
    store_parts(store, data);
    check_spread(store, data, 0);
    ops->describe(store, text, sizeof(text));
    CHECK_IN("of a cluster", text);
    ops->forget(store, 0, SPREAD);
    for (int i = 0; i < 3; i++)
        check_keys(&nodes[i], ":0");
    ops->close(store);
    module_clean();
    cluster_end();
    munmap(data, BLOCK);
}

static void a_replica_takes_the_place_of_its_master(void)
{
    char *data = pages(BLOCK);
    void *store;
    long  there;

    module_start();
    cluster_start();
    CHECK_IN("+OK", sayf(&nodes[3], "CLUSTER REPLICATE %s", ids[2]));
    await_answer(&nodes[3], "INFO replication", "master_link_status:up");
    store = open_cluster(",timeout=20000");
    CHECK_INT(ops->reserve(store, 0, SPREAD), USM_OK);
    store_spread(store, data, 0);
    there = keys_of(&nodes[2]);
    CHECK(there > 0);
    for (int i = 0; i < 10000 && keys_of(&nodes[3]) != there; i++)
        module_sleep_ms(1);
    server_kill(&nodes[2]);
    check_spread(store, data, 0); /* it takes some seconds */
    store_spread(store, data, 1);
    check_spread(store, data, 1);
    ops->close(store);
    module_clean();
    cluster_end();
    munmap(data, BLOCK);
}

/* Each key goes to the node that has its slot, and its temporary name too. */
static void values_by_name_go_to_their_nodes(void)
{
    char                 text[64], name[32], back[32];
    usm_transport_params params = {
        .struct_size = sizeof(params), .api = &module_api, .config = text};
    void *objects = NULL;

    module_start();
    cluster_start();
    (void)snprintf(text, sizeof(text), "127.0.0.1:%d", nodes[0].port);
    CHECK_INT(ops->objects_open(&params, &objects), USM_OK);
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < 30; i++) {
            size_t n = (size_t)snprintf(name, sizeof(name), i % 2 ? "result:%d" : "job{%d}:out", i);

            if (way == 0) {
                CHECK_INT(ops->object_write(objects, name, name, n), USM_OK);
                continue;
            }
            CHECK_INT(ops->object_read(objects, name, back, n), USM_OK);
            CHECK(memcmp(back, name, n) == 0);
        }
    CHECK_INT(keys_of(&nodes[0]) + keys_of(&nodes[1]) + keys_of(&nodes[2]), 30);
    for (int i = 0; i < 3; i++)
        CHECK(keys_of(&nodes[i]) > 0);
    ops->objects_close(objects);
    module_clean();
    cluster_end();
}

static const plain_case cases[] = {
    CASE(a_cluster_is_followed),
    CASE(a_replica_takes_the_place_of_its_master),
    CASE(values_by_name_go_to_their_nodes),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    const char *why = valkey_missing();

    if (why) {
        printf("skipped: %s\n", why);
        return 77;
    }
    return plain_main(argc, argv, cases);
}
