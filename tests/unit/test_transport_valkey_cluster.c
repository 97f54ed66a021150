/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport over a cluster of Valkey or Redis servers: slots that move, a master that dies.
 * All else is in test_transport_valkey.c. */
#include "valkey_fixture.h"
#include "valkey_news.h"

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

/* Lines of a node's configuration; `more`: further ones. */
static const char *options_of(int i, const char *more)
{
    static char options[400];

    (void)snprintf(options, sizeof(options),
                   "cluster-enabled yes\ncluster-config-file nodes-%d.conf\ncluster-port %d\n"
                   "cluster-node-timeout 1000\nrepl-diskless-sync-delay 0\n%s",
                   nodes[i].cluster_port, nodes[i].cluster_port, more);
    return options;
}

static void cluster_start(const char *more)
{
    for (int i = 0; i < NODES; i++) {
        nodes[i].cluster_port = server_free_port();
        server_start(&nodes[i], options_of(i, more));
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
    cluster_start("");
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

/* The replica target that the node is; it has a name for its address. */
static uint32_t place_of(void *store, const server *s)
{
    char                name[64];
    usm_transport_place info;

    (void)snprintf(name, sizeof(name), "valkey 127.0.0.1:%d", s->port);
    for (uint32_t i = 0; i < ops->places(store); i++) {
        CHECK_INT(ops->place(store, i, &info), USM_OK);
        if (strcmp(info.domain, name) == 0)
            return i;
    }
    plain_fail(__FILE__, __LINE__, name);
    return 0;
}

static void *open_places_of_cluster(const char *rest)
{
    char text[200];

    (void)snprintf(text, sizeof(text), "127.0.0.1:%d%s", nodes[0].port, rest);
    return open_places(text);
}

enum { EACH = 20 };

static void store_in(void *store, uint32_t place, char *data)
{
    CHECK_INT(ops->reserve(store, in_place(place, 0), EACH), USM_OK);
    for (uint64_t b = 0; b < EACH; b++) {
        fill(data, b, place, 0, BLOCK);
        store_block(store, in_place(place, b), data);
    }
}

static void check_in(void *store, uint32_t place, char *data)
{
    for (uint64_t b = 0; b < EACH; b++) {
        fetch_block(store, in_place(place, b), data);
        CHECK(is_filled(data, b, place, 0, BLOCK));
    }
}

static const char reads_on[] = "cluster-require-full-coverage no";

/* Each master has what the engine wants there, and nothing else.  One that dies takes that along, and
 * the others go on; when it is back, empty, it is another place. */
static void each_master_is_a_place(void)
{
    char    *data = pages(BLOCK), text[600];
    void    *store;
    uint32_t at[3], lost;

    module_start();
    cluster_start(reads_on);
    store = open_places_of_cluster(",timeout=300");
    CHECK_INT(ops->places(store), 3);
    CHECK(!strstr(module.log, "cluster-require-full-coverage"));
    for (int i = 0; i < 3; i++) {
        at[i] = place_of(store, &nodes[i]);
        store_in(store, at[i], data);
        check_keys(&nodes[i], ":20");
    }
    ops->describe(store, text, sizeof(text));
    CHECK_IN("of a cluster, several replica targets", text);
    ops->forget(store, in_place(at[1], 0), EACH / 2);
    check_keys(&nodes[1], ":10");
    store_in(store, at[1], data);
    lost = at[2];
    server_kill(&nodes[2]);
    await_news(0, lost, USM_PLACE_SLOW);
    await_news(1, lost, USM_PLACE_LEAVING);
    await_answer(&nodes[0], "CLUSTER INFO", "cluster_slots_fail:5462");
    check_in(store, at[0], data);
    check_in(store, at[1], data);
    CHECK_INT(transfer(store, USM_TRANSFER_FETCH, in_place(lost, 0), data), USM_E_IO);
    server_restart(&nodes[2], options_of(2, reads_on));
    await_news(2, lost, USM_PLACE_LOST);
    await_news(3, 3, USM_PLACE_UP);
    CHECK_INT(state_of(store, lost), USM_PLACE_LOST);
    CHECK_INT(ops->reserve(store, in_place(3, 0), 1), USM_OK);
    for (int i = 0; i < 10000 && transfer(store, USM_TRANSFER_STORE, in_place(3, 0), data); i++)
        module_sleep_ms(1); /* the node must hear of the others first */
    check_keys(&nodes[2], ":1\r");
    ops->close(store);
    for (int i = 0; i < 3; i++)
        check_keys(&nodes[i], ":0");
    module_clean();
    cluster_end();
    munmap(data, BLOCK);
}

static void await_copies(const server *master, const server *replica)
{
    const long there = keys_of(master);

    CHECK(there > 0);
    for (int i = 0; i < 10000 && keys_of(replica) != there; i++)
        module_sleep_ms(1);
}

/* Also where masters are places: the master's is the replica's then. */
static void a_replica_takes_the_place_of_its_master(void)
{
    char    *data = pages(BLOCK);
    void    *store, *places;
    uint32_t place;

    module_start();
    cluster_start("");
    CHECK_IN("+OK", sayf(&nodes[3], "CLUSTER REPLICATE %s", ids[2]));
    await_answer(&nodes[3], "INFO replication", "master_link_status:up");
    store = open_cluster(",timeout=20000");
    CHECK_INT(ops->reserve(store, 0, SPREAD), USM_OK);
    store_spread(store, data, 0);
    places = open_places_of_cluster(",timeout=20000");
    CHECK_IN("set cluster-require-full-coverage to no", module.log);
    place = place_of(places, &nodes[2]);
    store_in(places, place, data);
    await_copies(&nodes[2], &nodes[3]);
    server_kill(&nodes[2]);
    await_news(0, place, USM_PLACE_SLOW);
    check_spread(store, data, 0); /* it takes some seconds */
    await_news(1, place, USM_PLACE_UP);
    CHECK_INT(ops->places(places), 3);
    check_in(places, place, data);
    store_spread(store, data, 1);
    check_spread(store, data, 1);
    ops->close(places);
    ops->close(store);
    module_clean();
    cluster_end();
    munmap(data, BLOCK);
}

static void a_server_that_becomes_a_node_is_refused(void)
{
    char *data = pages(BLOCK);
    void *store;
    job   j;

    module_start();
    server_start(&nodes[0], NULL);
    store = open_cluster(",timeout=100");
    CHECK_INT(ops->reserve(store, 0, 1), USM_OK);
    store_block(store, 0, data);
    server_kill(&nodes[0]);
    nodes[0].cluster_port = server_free_port();
    server_restart(&nodes[0], options_of(0, ""));
    job_set(&j, USM_TRANSFER_FETCH, 0, data);
    CHECK_INT(job_run(store, &j), USM_E_IO);
    for (int i = 0; i < 10000 && !strstr(j.reason, "node of a cluster, which it was not"); i++) {
        module_sleep_ms(1); /* its first tries may have found no server */
        CHECK_INT(job_run(store, &j), USM_E_IO);
    }
    CHECK_IN("node of a cluster, which it was not", j.reason);
    ops->close(store);
    module_clean();
    server_kill(&nodes[0]);
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
    cluster_start("");
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
    CASE(each_master_is_a_place),
    CASE(a_replica_takes_the_place_of_its_master),
    CASE(a_server_that_becomes_a_node_is_refused),
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
