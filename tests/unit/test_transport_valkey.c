/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport over Valkey and Redis servers, with real servers: what every transport does, and
 * servers that refuse, evict, are silent, die, or come back empty. */
#include "transport_suite.h"
#include "valkey_fixture.h"
#include "valkey_news.h"

static server one, two;

/* Up to four at a time. */
static const char *config(const char *rest)
{
    static char     texts[4][600];
    static unsigned n;
    char           *text = texts[n++ % 4];

    (void)snprintf(text, sizeof(texts[0]), "%s%s%s", one.path, *rest ? "," : "", rest);
    return text;
}

static void *open_one(const char *rest)
{
    void *store = NULL;

    CHECK_INT(open_store(config(rest), NULL, &store), USM_OK);
    return store;
}

/* A case begins with an empty server. */
static void start(void)
{
    CHECK_IN("+OK", server_say(&one, "FLUSHALL"));
    CHECK_IN("+OK", server_say(&one, "CONFIG SET maxmemory 0 maxmemory-policy noeviction"));
    module_start();
}

/* ---- what every transport does ------------------------------------------------------ */

static void *suite_open(size_t c)
{
    char  text[600];
    void *store = NULL;

    if (c == 0)
        return open_one("");
    if (c == 1)
        (void)snprintf(text, sizeof(text), "127.0.0.1:%d", one.port);
    else
        (void)snprintf(text, sizeof(text), "%s,localhost:%d", one.path, two.port);
    CHECK_INT(open_store(text, NULL, &store), USM_OK);
    return store;
}

static void the_suite_holds_over_a_socket(void)
{
    suite_run(0);
    check_keys(&one, ":0");
}

static void the_suite_holds_over_tcp(void)
{
    suite_run(1);
    check_keys(&one, ":0");
}

static void the_suite_holds_over_two_servers(void)
{
    server_start(&two, NULL);
    suite_run(2);
    check_keys(&one, ":0");
    check_keys(&two, ":0");
    server_kill(&two);
}

/* ---- opening ------------------------------------------------------------------------ */

static void configurations_are_checked(void)
{
    static const char *const wrong[] = {
        "quota=",      "quota=12Q", "quota=0",     "ttl=2",   "ttl=1K",    "timeout=0",
        "timeout=1e9", "color=red", "prefix=a*b",  "prefix=", "user=a b",  "host:0",
        "host:70000",  "[::1",      "host:6379:1", ":6379",   "[::1]6379", "ttl=",
    };
    void *store = NULL;

    start();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_INT(open_store(config(wrong[i]), NULL, &store), USM_E_INVALID);
        CHECK_IN(wrong[i], usm_last_error());
        CHECK_IN("ttl=3..2592000", usm_last_error());
        CHECK(store == NULL);
    }
    ops->close(NULL);
    module_clean();
}

static void a_server_that_is_not_there_is_named(void)
{
    char  text[64];
    void *store = NULL;

    start();
    (void)snprintf(text, sizeof(text), "127.0.0.1:%d", server_free_port());
    CHECK_INT(open_store(text, NULL, &store), USM_E_IO);
    CHECK_IN(text, usm_last_error());
    CHECK_IN("Connection refused", usm_last_error());
    CHECK_INT(open_store("/nowhere/at/all", NULL, &store), USM_E_IO);
    CHECK_IN("/nowhere/at/all", usm_last_error());
    CHECK_INT(open_store(config(text), NULL, &store), USM_E_IO); /* the second of two */
    CHECK_IN(text, usm_last_error());
    module_clean();
}

static void a_replica_is_refused(void)
{
    void *store = NULL;

    start();
    CHECK_IN("+OK", server_say(&one, "REPLICAOF 127.0.0.1 1"));
    CHECK_INT(open_store(config(""), NULL, &store), USM_E_IO);
    CHECK_IN("name its master", usm_last_error());
    CHECK_IN("+OK", server_say(&one, "REPLICAOF NO ONE"));
    module_clean();
}

static void check_password(const char *options, const char *answer)
{
    char  text[512] = "";
    void *store     = NULL;

    CHECK_INT(open_store(config(options), NULL, &store), answer ? USM_E_KEY : USM_OK);
    if (answer)
        CHECK_IN(answer, usm_last_error());
    CHECK(!strstr(usm_last_error(), "horse") && !strstr(module.log, "horse"));
    if (!store)
        return;
    ops->describe(store, text, sizeof(text));
    CHECK(!strstr(text, "horse"));
    ops->close(store);
}

static void passwords_are_sent_and_never_shown(void)
{
    const char *path = plain_path("password");

    start();
    CHECK_IN("+OK", server_say(&one, "ACL SETUSER clerk on >horse2 ~* +@all"));
    CHECK_IN("+OK", server_say(&one, "CONFIG SET requirepass horse1"));
    check_password("", "USM_VALKEY_PASSWORD");
    module.password = "horse";
    check_password("", "WRONGPASS");
    module.password = "horse1";
    check_password("", NULL);
    module.password = "horse2";
    check_password("user=clerk", NULL);
    check_password("user=nobody", "WRONGPASS");
    module.password = NULL;
    plain_write(path, "horse1\n");
    module.password_file = path;
    CHECK(chmod(path, 0644) == 0);
    check_password("", "chmod 600");
    CHECK(chmod(path, 0600) == 0);
    check_password("", NULL);
    module.password_file = "/nowhere/at/all";
    check_password("", "/nowhere/at/all cannot be read");
    module_clean();
    CHECK_INT(module.secret, 0);
    server_kill(&one);
    server_restart(&one, NULL);
}

static void people_are_told_what_it_is(void)
{
    char  text[512];
    void *store;

    start();
    store = open_one("quota=8M,prefix=mine,ttl=60");
    ops->describe(store, text, sizeof(text));
    CHECK_IN("1 server: ", text);
    CHECK_IN(one.path, text);
    CHECK_IN("keys mine:", text);
    CHECK_IN("within 60 s", text);
    CHECK_IN("quota 8 MiB", text);
    for (size_t cap = 0; cap < 100; cap++) {
        memset(text, 'x', sizeof(text));
        ops->describe(store, text, cap);
        CHECK(text[cap] == 'x');
    }
    ops->close(store);
    module_clean();
}

/* ---- room and keys ------------------------------------------------------------------- */

static void a_quota_is_kept(void)
{
    void *store;

    start();
    store = open_one("quota=1M");
    CHECK_INT(ops->reserve(store, 0, 17), USM_E_SPILL_FULL);
    CHECK_IN("quota", usm_last_error());
    CHECK_INT(ops->reserve(store, 4, 16), USM_OK);
    CHECK_INT(ops->reserve(store, 0, 1), USM_E_SPILL_FULL);
    ops->forget(store, 4, 1);
    CHECK_INT(ops->reserve(store, 0, 1), USM_OK);
    CHECK_INT(ops->reserve(store, UINT64_MAX - 1, 1), USM_E_NO_MEMORY);
    ops->close(store);
    module_clean();
}

static void what_is_forgotten_goes(void)
{
    void *store;
    char *data = pages(BLOCK);

    start();
    store = open_one("prefix=mine");
    CHECK_INT(ops->reserve(store, 0, 200), USM_OK);
    for (uint64_t b = 0; b < 200; b++)
        store_block(store, b, data);
    check_keys(&one, ":200");
    CHECK_IN("mine:", server_say(&one, "RANDOMKEY"));
    ops->forget(store, 0, 150);
    check_keys(&one, ":50");
    ops->close(store); /* and what is not */
    check_keys(&one, ":0");
    module_clean();
    munmap(data, BLOCK);
}

static void store_some(const char *config)
{
    void *store = open_one(config);
    char *data  = pages(BLOCK);

    CHECK_INT(ops->reserve(store, 0, 20), USM_OK);
    for (uint64_t b = 0; b < 20; b++)
        store_block(store, b, data);
}

static void store_and_die(void)
{
    store_some("ttl=3");
    (void)raise(SIGKILL);
}

static void store_and_return(void)
{
    store_some("");
    exit(0); /* without closing it */
}

static void store_and_stop(void)
{
    store_some("ttl=3");
    _exit(0);
}

static void store_and_leave_a_child(void)
{
    pid_t child;

    store_some("");
    child = fork();
    CHECK(child >= 0);
    if (child == 0)
        exit(0); /* the keys are its parent's */
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK_IN(":20", server_say(&one, "DBSIZE"));
    exit(0);
}

static void a_process_that_ends_leaves_nothing(void)
{
    char key[200];
    long left;

    start();
    (void)plain_child(store_and_return, NULL);
    CHECK_IN(":0", server_say(&one, "DBSIZE"));
    (void)plain_child(store_and_leave_a_child, NULL);
    CHECK_IN(":0", server_say(&one, "DBSIZE"));
    (void)plain_child(store_and_stop, NULL);
    CHECK_IN(":20", server_say(&one, "DBSIZE"));
    (void)snprintf(key, sizeof(key), "TTL %s", strchr(server_say(&one, "RANDOMKEY"), '\n') + 1);
    key[strcspn(key, "\r")] = '\0';
    left                    = strtol(server_say(&one, key) + 1, NULL, 10);
    CHECK(left >= 0 && left <= 3); /* seconds; -1 would be for ever */
    module_clean();
}

/* A store that lives goes on having its keys, beyond their life. */
static void a_killed_process_leaves_nothing_for_long(void)
{
    void *store;
    char *data = pages(BLOCK), *back = pages(BLOCK);
    job   part;

    start();
    store = open_one("ttl=3");
    CHECK_INT(ops->reserve(store, 0, 2), USM_OK);
    fill(data, 0, 0, 0, BLOCK);
    store_block(store, 0, data);
    job_set(&part, USM_TRANSFER_STORE, 1, data);
    part.t.offset = PAGE; /* SETRANGE alone would make a key that stays */
    part.t.size   = PAGE;
    CHECK_INT(job_run(store, &part), USM_OK);
    CHECK(WIFSIGNALED(plain_child(store_and_die, NULL)));
    CHECK_IN(":22", server_say(&one, "DBSIZE"));
    module_sleep_ms(4000); /* longer than a key lives */
    check_keys(&one, ":2\r");
    fetch_block(store, 0, back);
    CHECK(is_filled(back, 0, 0, 0, BLOCK));
    ops->close(store);
    module_clean();
    munmap(data, BLOCK);
    munmap(back, BLOCK);
}

/* ---- servers that refuse, and that evict ------------------------------------------------ */

static usm_status store_many(void *store, char *data, uint64_t n)
{
    job        j;
    usm_status st = USM_OK;

    for (uint64_t b = 0; b < n && st == USM_OK; b++) {
        fill(data, b, 0, 0, BLOCK);
        job_set(&j, USM_TRANSFER_STORE, b, data);
        st = job_run(store, &j);
        if (st != USM_OK)
            (void)module_report(st, "%s", j.reason);
    }
    return st;
}

static void a_full_server_is_an_answer(void)
{
    void *store;
    char *data = pages(BLOCK);
    job   part;

    start();
    store = open_one(""); /* before there is a limit: it cannot be foreseen */
    CHECK_INT(ops->reserve(store, 0, 1000), USM_OK);
    store_block(store, 0, data);
    CHECK_IN("+OK", server_say(&one, "CONFIG SET maxmemory 8mb"));
    CHECK_INT(store_many(store, data, 1000), USM_E_SPILL_FULL);
    CHECK_IN("OOM", usm_last_error());
    CHECK_IN(one.path, usm_last_error());
    CHECK_IN("+OK", server_say(&one, "CONFIG SET maxmemory 1mb"));
    job_set(&part, USM_TRANSFER_STORE, 0, data);
    part.t.offset = part.t.size = PAGE;
    CHECK_INT(job_run(store, &part), USM_E_SPILL_FULL);
    CHECK_IN("OOM", part.reason);
    fetch_block(store, 0, data);
    CHECK(is_filled(data, 0, 0, 0, BLOCK));
    ops->close(store);
    store = open_one(""); /* now it is known */
    CHECK_INT(ops->reserve(store, 0, 1000), USM_E_SPILL_FULL);
    CHECK_IN("maxmemory", usm_last_error());
    ops->close(store);
    module_clean();
    munmap(data, BLOCK);
}

static void a_refusal_has_the_servers_words(void)
{
    void *store;
    char *data = pages(BLOCK);
    job   j;

    start();
    store = open_one("");
    CHECK_INT(ops->reserve(store, 0, 1), USM_OK);
    fill(data, 0, 0, 0, BLOCK);
    store_block(store, 0, data);
    CHECK_IN("+OK", server_say(&one, "CONFIG SET min-replicas-to-write 1"));
    for (int part = 0; part < 2; part++) {
        job_set(&j, USM_TRANSFER_STORE, 0, data);
        if (part)
            j.t.offset = j.t.size = PAGE;
        CHECK_INT(job_run(store, &j), USM_E_IO);
        CHECK_IN("NOREPLICAS", j.reason);
        CHECK_IN(one.path, j.reason);
    }
    CHECK_IN("+OK", server_say(&one, "CONFIG SET min-replicas-to-write 0"));
    fetch_block(store, 0, data);
    CHECK(is_filled(data, 0, 0, 0, BLOCK));
    store_block(store, 0, data);
    ops->close(store);
    module_clean();
    munmap(data, BLOCK);
}

static void evicted_blocks_are_told(void)
{
    void *store;
    char *data = pages(BLOCK), text[512];
    job   j;
    int   lost = 0;

    start();
    CHECK_IN("+OK", server_say(&one, "CONFIG SET maxmemory 8mb maxmemory-policy allkeys-lru"));
    store = open_one("");
    CHECK_IN("allkeys-lru", module.log);
    CHECK_IN("+OK", server_say(&one, "CONFIG SET maxmemory 4mb"));
    CHECK_INT(ops->reserve(store, 0, 100), USM_OK);
    CHECK_INT(store_many(store, data, 100), USM_OK);
    for (uint64_t b = 0; b < 100; b++) {
        job_set(&j, USM_TRANSFER_FETCH, b, data);
        if (job_run(store, &j) == USM_OK) {
            CHECK(is_filled(data, b, 0, 0, BLOCK));
            continue;
        }
        lost++;
        CHECK_INT(j.status, USM_E_IO);
        CHECK_IN("no longer has block", j.reason);
        for (int op = USM_TRANSFER_FETCH; op <= USM_TRANSFER_STORE; op++) {
            job_set(&j, (usm_transfer_op)op, b, data);
            j.t.offset = BLOCK - PAGE;
            j.t.size   = PAGE;
            CHECK_INT(job_run(store, &j), USM_E_IO);
            CHECK_IN("no longer has block", j.reason);
        }
        CHECK_INT(transfer(store, USM_TRANSFER_FETCH, b, data), USM_E_IO); /* no zeros */
    }
    CHECK(lost > 0);
    ops->describe(store, text, sizeof(text));
    CHECK_IN("no longer there", text);
    ops->close(store);
    module_clean();
    munmap(data, BLOCK);
}

/* ---- servers that fail ----------------------------------------------------------------- */

static void a_server_that_dies_is_told_and_comes_back_empty(void)
{
    enum { N = 40 };
    static job jobs[N];
    void      *store;
    char      *data = pages(N * BLOCK);

    start();
    store = open_one("timeout=300");
    CHECK_INT(ops->reserve(store, 0, N), USM_OK);
    for (size_t i = 0; i < N; i++)
        job_set(&jobs[i], USM_TRANSFER_STORE, i, data + i * BLOCK);
    CHECK(kill(one.pid, SIGSTOP) == 0); /* in the midst */
    jobs_submit(store, jobs, N);
    module_sleep_ms(50);
    server_kill(&one);
    for (size_t i = 0; i < N; i++) {
        CHECK_INT(job_await(&jobs[i]), USM_E_IO);
        CHECK_IN(one.path, jobs[i].reason);
    }
    CHECK_INT(transfer(store, USM_TRANSFER_FETCH, 0, data), USM_E_IO);
    server_restart(&one, NULL);
    for (int i = 0; i < 10000 && transfer(store, USM_TRANSFER_STORE, 1, data) != USM_OK; i++)
        module_sleep_ms(1);
    fetch_block(store, 1, data);
    CHECK_INT(transfer(store, USM_TRANSFER_FETCH, 0, data), USM_E_IO);
    CHECK_IN("was restarted", module.log);
    ops->close(store);
    module_clean();
    munmap(data, N * BLOCK);
}

static void a_connection_that_is_cut_is_made_again(void)
{
    enum { N = 64 };
    static job jobs[N];
    void      *store;
    char      *data = pages(N * BLOCK);

    start();
    store = open_one("");
    CHECK_INT(ops->reserve(store, 0, N), USM_OK);
    for (uint64_t turn = 0; turn < 20; turn++) {
        for (size_t i = 0; i < N; i++) {
            fill(data + i * BLOCK, i, turn, 0, BLOCK);
            job_set(&jobs[i], USM_TRANSFER_STORE, i, data + i * BLOCK);
        }
        jobs_submit(store, jobs, N);
        (void)server_say(&one, "CLIENT KILL TYPE normal");
        for (size_t i = 0; i < N; i++)
            CHECK_INT(job_await(&jobs[i]), USM_OK);
        for (size_t i = 0; i < N; i++) {
            fetch_block(store, i, data);
            CHECK(is_filled(data, i, turn, 0, BLOCK));
        }
    }
    ops->close(store);
    check_keys(&one, ":0");
    module_clean();
    munmap(data, N * BLOCK);
}

static long ms_since(const struct timespec *began)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - began->tv_sec) * 1000 + (now.tv_nsec - began->tv_nsec) / 1000000;
}

/* What it was sent before it was given up must not come after what it was sent later. */
static void a_silent_server_is_given_up_in_time(void)
{
    enum { N = 40 };
    static job      jobs[N];
    void           *store;
    char           *data = pages(N * BLOCK), *back = pages(BLOCK);
    struct timespec began;

    start();
    store = open_one("timeout=200");
    CHECK_INT(ops->reserve(store, 0, N), USM_OK);
    for (size_t i = 0; i < N; i++) {
        fill(data + i * BLOCK, i, 0, 0, BLOCK);
        job_set(&jobs[i], USM_TRANSFER_STORE, i, data + i * BLOCK);
    }
    CHECK(kill(one.pid, SIGSTOP) == 0);
    (void)clock_gettime(CLOCK_MONOTONIC, &began);
    jobs_submit(store, jobs, N);
    for (size_t i = 0; i < N; i++) {
        CHECK_INT(job_await(&jobs[i]), USM_E_IO);
        CHECK_IN("no answer within 200 ms", jobs[i].reason);
    }
    CHECK_INT(transfer(store, USM_TRANSFER_FETCH, 0, back), USM_E_IO);
    CHECK(ms_since(&began) >= 200);
    CHECK(ms_since(&began) < 20000); /* on any machine */
    CHECK(kill(one.pid, SIGCONT) == 0);
    fill(back, 0, 1, 0, BLOCK);
    for (int i = 0; i < 10000 && transfer(store, USM_TRANSFER_STORE, 0, back) != USM_OK; i++)
        module_sleep_ms(1);
    for (uint64_t b = 1; b < N; b++) {
        fill(back, b, 1, 0, BLOCK);
        store_block(store, b, back);
    }
    for (uint64_t b = 0; b < N; b++) {
        fetch_block(store, b, back);
        CHECK(is_filled(back, b, 1, 0, BLOCK));
    }
    ops->close(store);
    module_clean();
    munmap(data, N * BLOCK);
    munmap(back, BLOCK);
}

/* ---- servers as places -------------------------------------------------------------------- */

static void each_server_is_a_place(void)
{
    enum { N = 30 };
    char                text[300], domain[64], *data = pages(BLOCK);
    usm_transport_place info;
    void               *store;

    start();
    server_start(&two, NULL);
    CHECK_IN("+OK", server_say(&two, "CONFIG SET maxmemory 1gb"));
    (void)snprintf(text, sizeof(text), "%s,%s", one.path, two.path);
    store = open_places(text);
    CHECK_INT(ops->places(store), 2);
    CHECK_INT(ops->place(store, 1, &info), USM_OK);
    (void)snprintf(domain, sizeof(domain), "%s", info.domain);
    CHECK(strncmp(domain, "valkey /", 8) == 0);
    CHECK_INT(ops->place(store, 0, &info), USM_OK);
    CHECK(strcmp(domain, info.domain) != 0); /* however long the names are */
    CHECK(info.capacity == UINT64_MAX);
    CHECK_INT(ops->place(store, 1, &info), USM_OK);
    CHECK(info.capacity == (uint64_t)1 << 30);
    CHECK_INT(ops->place(store, 2, &info), USM_E_INVALID);
    CHECK_INT(ops->reserve(store, in_place(1, 0), N), USM_OK);
    CHECK_INT(ops->reserve(store, in_place(0, 0), 1), USM_OK);
    CHECK_INT(ops->reserve(store, in_place(2, 0), 1), USM_E_INVALID);
    for (uint64_t b = 0; b < N; b++) {
        fill(data, b, 1, 0, BLOCK);
        store_block(store, in_place(1, b), data);
    }
    fill(data, 0, 0, 0, BLOCK);
    store_block(store, in_place(0, 0), data);
    check_keys(&one, ":1\r");
    check_keys(&two, ":30");
    for (uint64_t b = 0; b < N; b++) {
        fetch_block(store, in_place(1, b), data);
        CHECK(is_filled(data, b, 1, 0, BLOCK));
    }
    ops->forget(store, in_place(1, 10), 20);
    check_keys(&two, ":10");
    CHECK_INT(transfer(store, USM_TRANSFER_FETCH, in_place(2, 0), data), USM_E_INVALID);
    ops->close(store);
    check_keys(&one, ":0");
    check_keys(&two, ":0");
    CHECK_INT(news.n, 0);
    server_kill(&two);
    module_clean();
    munmap(data, BLOCK);
}

/* A server that is silent keeps its place; one that comes back empty is another one. */
static void places_go_and_come(void)
{
    char  text[300], *data = pages(BLOCK);
    void *store;

    start();
    server_start(&two, NULL);
    (void)snprintf(text, sizeof(text), "%s,%s,timeout=100,quota=1M", one.path, two.path);
    store = open_places(text);
    CHECK_INT(ops->reserve(store, in_place(1, 0), 16), USM_OK);
    store_block(store, in_place(1, 0), data);
    CHECK(kill(two.pid, SIGSTOP) == 0);
    CHECK_INT(transfer(store, USM_TRANSFER_FETCH, in_place(1, 0), data), USM_E_IO);
    await_news(0, 1, USM_PLACE_SLOW);
    await_news(1, 1, USM_PLACE_LEAVING);
    CHECK_INT(state_of(store, 1), USM_PLACE_LEAVING);
    CHECK(kill(two.pid, SIGCONT) == 0);
    await_news(2, 1, USM_PLACE_UP);
    fetch_block(store, in_place(1, 0), data);
    server_kill(&two);
    await_news(3, 1, USM_PLACE_SLOW);
    await_news(4, 1, USM_PLACE_LEAVING);
    CHECK_INT(state_of(store, 0), USM_PLACE_UP);
    CHECK_IN("cannot be reached", module.log);
    server_restart(&two, NULL);
    await_news(5, 1, USM_PLACE_LOST);
    await_news(6, 2, USM_PLACE_UP);
    CHECK_INT(ops->places(store), 3);
    CHECK_INT(state_of(store, 1), USM_PLACE_LOST);
    CHECK_INT(state_of(store, 2), USM_PLACE_UP);
    CHECK_INT(ops->reserve(store, in_place(2, 0), 16), USM_OK); /* what was lost counts no more */
    store_block(store, in_place(2, 0), data);
    check_keys(&two, ":1\r");
    ops->close(store);
    check_keys(&two, ":0");
    server_kill(&two);
    module_clean();
    munmap(data, BLOCK);
}

/* ---- faults ------------------------------------------------------------------------------ */

static void each_step_may_fail(void)
{
    static const char *const repeated[] = {"valkey.send", "valkey.receive"};
    void                    *store      = NULL;
    char                    *data       = pages(BLOCK);

    start();
    CHECK(usm__fault_arm("valkey.connect", 1, false, USM_E_IO));
    CHECK_INT(open_store(config(""), NULL, &store), USM_E_IO);
    CHECK_IN("Connection refused", usm_last_error());
    store = open_one("");
    CHECK_INT(ops->reserve(store, 0, 4), USM_OK);
    for (size_t i = 0; i < 2; i++) {
        CHECK(usm__fault_arm(repeated[i], 1, false, USM_E_IO));
        store_block(store, i, data);
        CHECK(usm__fault_arm(repeated[i], 1, false, USM_E_IO));
        fetch_block(store, i, data);
    }
    CHECK(usm__fault_arm("valkey.store", 1, false, USM_E_SPILL_FULL));
    CHECK_INT(transfer(store, USM_TRANSFER_STORE, 2, data), USM_E_SPILL_FULL);
    CHECK(usm__fault_arm("valkey.fetch", 1, false, USM_E_IO));
    CHECK_INT(transfer(store, USM_TRANSFER_FETCH, 0, data), USM_E_IO);
    ops->close(store);
    module_clean();
    munmap(data, BLOCK);
}

static const plain_case cases[] = {
    CASE(the_suite_holds_over_a_socket),
    CASE(the_suite_holds_over_tcp),
    CASE(the_suite_holds_over_two_servers),
    CASE(configurations_are_checked),
    CASE(a_server_that_is_not_there_is_named),
    CASE(a_replica_is_refused),
    CASE(passwords_are_sent_and_never_shown),
    CASE(people_are_told_what_it_is),
    CASE(a_quota_is_kept),
    CASE(what_is_forgotten_goes),
    CASE(a_process_that_ends_leaves_nothing),
    CASE(a_killed_process_leaves_nothing_for_long),
    CASE(a_full_server_is_an_answer),
    CASE(a_refusal_has_the_servers_words),
    CASE(evicted_blocks_are_told),
    CASE(a_server_that_dies_is_told_and_comes_back_empty),
    CASE(a_connection_that_is_cut_is_made_again),
    CASE(a_silent_server_is_given_up_in_time),
    CASE(each_server_is_a_place),
    CASE(places_go_and_come),
    CASE(each_step_may_fail),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    const char *why = valkey_missing();
    int         end;

    if (why) {
        printf("skipped: %s\n", why);
        return 77;
    }
    server_start(&one, NULL);
    end = plain_main(argc, argv, cases);
    server_kill(&one);
    return end;
}
