/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport over files: scratch space, both engines, faults, limits.  Homes are in
 * test_transport_home.c. */
#include "transport_suite.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *const engines[] = {"uring", "threads"};

#define ENGINES (sizeof(engines) / sizeof(engines[0]))

/* "FOLDER,<rest>"; up to four at a time. */
static const char *config(const char *rest)
{
    static char     texts[4][1200];
    static unsigned n;
    char           *text = texts[n++ % 4];

    (void)snprintf(text, sizeof(texts[0]), "%s,%s", disk_folder(), rest);
    return text;
}

static const char *with_engine(size_t e, const char *rest)
{
    char text[256];

    (void)snprintf(text, sizeof(text), "engine=%s%s%s", engines[e], *rest ? "," : "", rest);
    return config(text);
}

/* A store; the case is skipped where the kernel or the build has no io_uring. */
static void *open_engine(size_t e, const char *rest)
{
    void      *store = NULL;
    usm_status st    = open_store(with_engine(e, rest), NULL, &store);

    if (st == USM_E_NOT_SUPPORTED)
        SKIP("there is no io_uring here");
    CHECK_INT(st, USM_OK);
    return store;
}

/* ---- what every transport does ------------------------------------------------------ */

static void *suite_open(size_t c)
{
    char  two[2000];
    void *store = NULL;

    if (c < ENGINES)
        return open_engine(c, "depth=8");
    if (c == 2)
        (void)snprintf(two, sizeof(two), "%s,direct=off", disk_folder());
    else if (c == 3)
        (void)snprintf(two, sizeof(two), "%s,%s,%s", disk_folder(), disk_folder(), disk_folder());
    else
        (void)snprintf(two, sizeof(two), "%s,%s,engine=threads,depth=1", disk_folder(),
                       disk_folder());
    CHECK_INT(open_store(two, NULL, &store), USM_OK);
    return store;
}

static void the_suite_holds_with_io_uring(void)
{
    suite_run(0);
}

static void the_suite_holds_with_threads(void)
{
    suite_run(1);
}

static void the_suite_holds_through_the_file_cache(void)
{
    suite_run(2);
}

static void the_suite_holds_over_several_folders(void)
{
    suite_run(3);
    suite_run(4);
}

/* ---- opening ------------------------------------------------------------------------ */

static void configurations_are_checked(void)
{
    static const char *const wrong[] = {
        "quota=",     "quota=12Q",   "quota=0",    "quota=-1",    "depth=0",
        "depth=2000", "engine=sync", "direct=yes", "color=green", "quota=99999999999999999999"};
    void *store = NULL;

    module_start();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_INT(open_store(config(wrong[i]), NULL, &store), USM_E_INVALID);
        CHECK_IN(wrong[i], usm_last_error());
        CHECK_IN("engine=auto|uring|threads", usm_last_error());
        CHECK(store == NULL);
    }
    CHECK_INT(open_store("", NULL, &store), USM_OK); /* /var/tmp */
    ops->close(store);
    ops->close(NULL);
    module_clean();
}

static void a_folder_that_is_not_there_is_named(void)
{
    void *store = NULL;

    module_start();
    CHECK_INT(open_store("/nowhere/at/all", NULL, &store), USM_E_IO);
    CHECK_IN("/nowhere/at/all: No such file or directory", usm_last_error());
    CHECK_INT(open_store(config("/nowhere/at/all"), NULL, &store), USM_E_IO); /* the second */
    CHECK(store == NULL);
    module_clean();
}

static void memory_is_no_disk(void)
{
    void *store = NULL;

    module_start();
    if (access("/dev/shm", W_OK) != 0)
        SKIP("there is no /dev/shm");
    CHECK_INT(open_store("/dev/shm", NULL, &store), USM_E_INVALID);
    CHECK_IN("/dev/shm is tmpfs, which is memory itself", usm_last_error());
    CHECK_IN("USM_SPILL=file:", usm_last_error());
    CHECK(store == NULL);
    module_clean();
}

static void without_io_uring_threads_do_it(void)
{
    void *store = NULL;
    char *data  = pages(BLOCK);
    char  text[512];

    module_start();
    CHECK(usm__fault_arm("file.uring", 1, true, USM_OK));
    CHECK_INT(open_store(disk_folder(), NULL, &store), USM_OK);
    ops->describe(store, text, sizeof(text));
    CHECK_IN("threads (", text);
    CHECK_INT(ops->reserve(store, 0, 1), USM_OK);
    fill(data, 0, 0, 0, BLOCK);
    store_block(store, 0, data);
    memset(data, 0, BLOCK);
    fetch_block(store, 0, data);
    CHECK(is_filled(data, 0, 0, 0, BLOCK));
    ops->close(store);
    store = NULL;
    CHECK_INT(open_store(config("engine=uring"), NULL, &store), USM_E_NOT_SUPPORTED);
    CHECK_IN("engine=auto", usm_last_error());
    CHECK(store == NULL);
    munmap(data, BLOCK);
    module_clean();
}

static void people_are_told_what_it_is(void)
{
    void *store;
    char  text[512], cut[20];

    module_start();
    store = open_engine(0, "quota=3G,depth=7");
    ops->describe(store, text, sizeof(text));
    CHECK_IN("io_uring, depth 7, direct, quota 3072 MiB: ", text);
    CHECK_IN(disk_folder(), text);
    memset(cut, 'x', sizeof(cut));
    ops->describe(store, cut, sizeof(cut) - 1);
    CHECK_INT(strlen(cut), sizeof(cut) - 2);
    CHECK(cut[sizeof(cut) - 1] == 'x');
    ops->close(store);
    module_clean();
}

/* ---- nothing is left ------------------------------------------------------------------ */

static size_t files_left(void)
{
    DIR   *folder = opendir(disk_folder());
    size_t n      = 0;

    CHECK(folder != NULL);
    for (struct dirent *e = readdir(folder); e; e = readdir(folder))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    (void)closedir(folder);
    return n;
}

static bool without_tmpfile;

static void spill_and_be_killed(void)
{
    void *store = NULL;
    char *data  = pages(BLOCK);
    char  two[2000];

    if (without_tmpfile)
        CHECK(usm__fault_arm("os.open", 1, false, USM_E_NOT_SUPPORTED));
    (void)snprintf(two, sizeof(two), "%s,%s", disk_folder(), disk_folder());
    CHECK_INT(open_store(without_tmpfile ? disk_folder() : two, NULL, &store), USM_OK);
    CHECK_INT(ops->reserve(store, 0, 100), USM_OK);
    for (uint64_t b = 0; b < 100; b++)
        store_block(store, b, data);
    (void)raise(SIGKILL);
}

static void nothing_is_left_by_a_killed_process(void)
{
    module_start();
    for (int i = 0; i < 2; i++) {
        int status;

        without_tmpfile = i == 1;
        status          = plain_child(spill_and_be_killed, NULL);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK_INT(files_left(), 0);
    }
    module_clean();
}

static void files_without_a_name_have_a_substitute(void)
{
    void *store = NULL;
    char *data  = pages(BLOCK);

    module_start();
    CHECK(usm__fault_arm("os.open", 1, false, USM_E_NOT_SUPPORTED));
    CHECK_INT(open_store(disk_folder(), NULL, &store), USM_OK);
    CHECK_INT(usm__fault_fired(), 1);
    CHECK_INT(files_left(), 0);
    CHECK_INT(ops->reserve(store, 0, 1), USM_OK);
    store_block(store, 0, data);
    ops->close(store);
    CHECK_INT(files_left(), 0);
    munmap(data, BLOCK);
    module_clean();
}

/* ---- room ------------------------------------------------------------------------------- */

static void a_quota_is_kept(void)
{
    void                  *store = NULL;
    usm_transport_capacity now;

    module_start();
    CHECK_INT(open_store(config("quota=1M"), NULL, &store), USM_OK);
    CHECK_INT(ops->reserve(store, 0, 17), USM_E_SPILL_FULL);
    CHECK_IN("quota", usm_last_error());
    CHECK_INT(ops->reserve(store, 0, 16), USM_OK);
    CHECK_INT(ops->capacity(store, &now), USM_OK);
    CHECK_INT(now.total, 1 << 20);
    CHECK_INT(now.available, 0);
    CHECK_INT(ops->reserve(store, 16, 1), USM_E_SPILL_FULL);
    ops->forget(store, 4, 2);
    CHECK_INT(ops->reserve(store, 20, 2), USM_OK); /* room that was idle is taken from there */
    CHECK_INT(ops->reserve(store, 30, 1), USM_E_SPILL_FULL);
    CHECK_INT(ops->reserve(store, UINT64_MAX - 2, 5), USM_E_INVALID);
    ops->close(store);
    module_clean();
}

static void files_grow_in_steps_and_give_back_in_runs(void)
{
    enum { N = 4096 }; /* 256 MiB */
    void *store = NULL;

    module_start();
    CHECK_INT(open_store(disk_folder(), NULL, &store), USM_OK);
    for (uint64_t b = 0; b < N; b++)
        CHECK_INT(ops->reserve(store, b, 1), USM_OK);
    CHECK(module.allocations > 2 && module.allocations <= 20);
    CHECK_INT(module.punches, 0);
    for (uint64_t b = 0; b < N; b += 16) /* 16 MiB here and there: kept for the next */
        ops->forget(store, b, 1);
    CHECK_INT(module.punches, 0);
    for (uint64_t b = 0; b < N; b += 16)
        CHECK_INT(ops->reserve(store, b, 1), USM_OK);
    CHECK(module.allocations <= 20);
    for (uint64_t b = 0; b < N; b++)
        ops->forget(store, b, 1);
    CHECK(module.punches >= 2 && module.punches <= 8);
    ops->close(store);
    module_clean();
}

static void a_full_disk_is_an_answer(void)
{
    void                  *store = NULL;
    usm_transport_capacity now;

    module_start();
    CHECK_INT(open_store(disk_folder(), NULL, &store), USM_OK);
    CHECK(usm__fault_arm("os.fallocate", 1, false, USM_OK)); /* no room for the step ahead */
    CHECK_INT(ops->reserve(store, 0, 1), USM_OK);
    CHECK_INT(usm__fault_fired(), 1);
    CHECK_INT(module.punches, 1); /* what the failed call may have got hold of */
    usm__fault_disarm_all();
    CHECK(usm__fault_arm("os.fallocate", 1, true, USM_OK));
    CHECK_INT(ops->reserve(store, 10, 10), USM_E_SPILL_FULL);
    CHECK_IN("No space left on device", usm_last_error());
    CHECK_IN(disk_folder(), usm_last_error());
    CHECK_INT(ops->capacity(store, &now), USM_OK);
    CHECK_INT(now.used, BLOCK);
    CHECK_INT(ops->reserve(store, 0, 1), USM_OK); /* that is certain */
    usm__fault_disarm_all();
    CHECK_INT(ops->reserve(store, 10, 10), USM_OK);
    usm__fault_disarm_all();
    CHECK(usm__fault_arm("os.fallocate", 1, true, USM_E_NOT_SUPPORTED)); /* cannot promise */
    CHECK_INT(ops->reserve(store, 1000, 10), USM_OK);
    ops->forget(store, 0, 1000);
    ops->close(store);
    module_clean();
}

static void a_reservation_that_signals_interrupt_is_made(void)
{
    void *store = NULL;

    module_start();
    CHECK_INT(open_store(disk_folder(), NULL, &store), USM_OK);
    for (uint64_t n = 1; n <= 4; n++) /* the step ahead, and what is needed */
        CHECK(usm__fault_arm("os.fallocate", n, false, USM_E_AGAIN));
    CHECK_INT(ops->reserve(store, 0, 1), USM_OK);
    CHECK_INT(usm__fault_fired(), 4);
    CHECK_INT(module.punches, 0);
    usm__fault_disarm_all();
    ops->close(store);
    module_clean();
}

static void reserve_beyond_the_limit_of_files(void)
{
    const struct rlimit limit = {1 << 20, 1 << 20};
    void               *store = NULL;

    module_start();
    CHECK_INT(open_store(disk_folder(), NULL, &store), USM_OK);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_INT(ops->reserve(store, 0, 16), USM_OK);
    CHECK_INT(ops->reserve(store, 16, 1), USM_E_SPILL_FULL); /* and no SIGXFSZ */
    CHECK_IN("ulimit -f", usm_last_error());
    ops->close(store);
}

static void the_limit_of_files_is_no_signal(void)
{
    CHECK_INT(plain_child(reserve_beyond_the_limit_of_files, NULL), 0);
}

/* ---- faults --------------------------------------------------------------------------- */

enum { FAULT_BLOCKS = 12 };

static void write_all(void *store, char *data, uint64_t turn, size_t *failed)
{
    static job jobs[FAULT_BLOCKS];

    for (uint64_t b = 0; b < FAULT_BLOCKS; b++) {
        fill(data + b * BLOCK, b, turn, 0, BLOCK);
        job_set(&jobs[b], USM_TRANSFER_STORE, b, data + b * BLOCK);
    }
    jobs_submit(store, jobs, FAULT_BLOCKS);
    for (size_t b = 0; b < FAULT_BLOCKS; b++)
        *failed += job_await(&jobs[b]) != USM_OK;
}

static void read_all(void *store, char *data, uint64_t turn)
{
    for (uint64_t b = 0; b < FAULT_BLOCKS; b++) {
        memset(data, 0, BLOCK);
        fetch_block(store, b, data);
        CHECK(is_filled(data, b, turn, 0, BLOCK));
    }
}

static void short_transfers_are_gone_on_with(void)
{
    static const char *const points[] = {"file.short", "os.pread.short", "os.pwrite.short"};
    char                    *data     = pages(FAULT_BLOCKS * BLOCK);

    for (size_t e = 0; e < ENGINES; e++)
        for (size_t p = 0; p < 3; p++) {
            void  *store;
            size_t failed = 0;

            module_start();
            store = open_engine(e, "");
            CHECK_INT(ops->reserve(store, 0, FAULT_BLOCKS), USM_OK);
            CHECK(usm__fault_arm(points[p], 1, true, USM_OK));
            write_all(store, data, p, &failed);
            CHECK_INT(failed, 0);
            read_all(store, data, p);
            CHECK(usm__fault_fired() >= (e == 1 || p == 0 ? FAULT_BLOCKS : 0));
            ops->close(store);
            module_clean();
        }
    munmap(data, FAULT_BLOCKS * BLOCK);
}

/* Interrupted many times, but not for ever. */
static void interruptions_are_sat_out(void)
{
    char *data = pages(FAULT_BLOCKS * BLOCK);

    for (size_t e = 0; e < ENGINES; e++)
        for (int busy = 0; busy < 2; busy++) {
            void  *store;
            size_t failed = 0;

            module_start();
            store = open_engine(e, "");
            CHECK_INT(ops->reserve(store, 0, FAULT_BLOCKS), USM_OK);
            for (uint64_t n = 1; n <= 7; n++) {
                CHECK(usm__fault_arm("file.store", n, false, busy ? USM_E_BUSY : USM_E_AGAIN));
                CHECK(usm__fault_arm("file.fetch", n, false, busy ? USM_E_BUSY : USM_E_AGAIN));
            }
            write_all(store, data, 1, &failed);
            read_all(store, data, 1);
            CHECK_INT(failed, 0);
            CHECK_INT(usm__fault_fired(), 14);
            usm__fault_disarm_all();
            CHECK(usm__fault_arm("file.fetch", 1, true, busy ? USM_E_BUSY : USM_E_AGAIN));
            CHECK_INT(transfer(store, USM_TRANSFER_FETCH, 0, data), USM_E_IO); /* bounded */
            usm__fault_disarm_all();
            ops->close(store);
            module_clean();
        }
    munmap(data, FAULT_BLOCKS * BLOCK);
}

static void a_medium_that_fails_is_told_once(void)
{
    char *data = pages(FAULT_BLOCKS * BLOCK);

    for (size_t e = 0; e < ENGINES; e++) {
        void  *store;
        size_t failed = 0;
        job    j;

        module_start();
        store = open_engine(e, "");
        CHECK_INT(ops->reserve(store, 0, FAULT_BLOCKS), USM_OK);
        CHECK(usm__fault_arm("file.store", 5, false, USM_OK));
        write_all(store, data, 1, &failed);
        CHECK_INT(failed, 1);
        usm__fault_disarm_all();
        failed = 0;
        write_all(store, data, 2, &failed);
        CHECK_INT(failed, 0);
        read_all(store, data, 2);
        for (int awaited = 0; awaited < 2; awaited++) {
            CHECK(usm__fault_arm("file.fetch", 1, false, USM_OK));
            job_set(&j, USM_TRANSFER_FETCH, 3, data);
            j.t.is_awaited = awaited;
            CHECK_INT(job_run(store, &j), USM_E_IO);
            CHECK_IN("fetching ", j.reason);
            CHECK_IN(disk_folder(), j.reason);
            CHECK_IN("Input/output error", j.reason);
            usm__fault_disarm_all();
        }
        CHECK(usm__fault_arm("file.store", 1, false, USM_E_SPILL_FULL));
        job_set(&j, USM_TRANSFER_STORE, 3, data);
        CHECK_INT(job_run(store, &j), USM_E_SPILL_FULL);
        CHECK_IN("No space left on device", j.reason);
        usm__fault_disarm_all();
        CHECK(usm__fault_arm("os.fsync", 1, false, USM_OK));
        CHECK_INT(ops->sync(store), USM_E_IO);
        CHECK_IN("could not be made durable: Input/output error", usm_last_error());
        CHECK_INT(ops->sync(store), USM_OK);
        ops->close(store);
        module_clean();
    }
    munmap(data, FAULT_BLOCKS * BLOCK);
}

/* What was not reserved was never written: its end is an error, not zeros. */
static void fetching_behind_the_end_fails(void)
{
    char *data = pages(BLOCK);

    for (size_t e = 0; e < ENGINES; e++) {
        void *store;
        job   j;

        module_start();
        store = open_engine(e, "");
        job_set(&j, USM_TRANSFER_FETCH, 1000000, data);
        CHECK_INT(job_run(store, &j), USM_E_IO);
        CHECK_IN("ends before byte", j.reason);
        ops->close(store);
        module_clean();
    }
    munmap(data, BLOCK);
}

/* The module's pauses between attempts, of which there are a thousand, take no time meanwhile. */
static atomic_bool is_hasty;

__attribute__((visibility("default"))) int nanosleep(const struct timespec *t,
                                                     struct timespec       *left)
{
    return atomic_load(&is_hasty) ? sched_yield() : (int)syscall(SYS_nanosleep, t, left);
}

static void a_ring_that_breaks_is_replaced_by_threads(void)
{
    char  *data = pages(FAULT_BLOCKS * BLOCK);
    void  *store;
    size_t failed = 0;

    module_start();
    store = open_engine(0, "");
    CHECK_INT(ops->reserve(store, 0, FAULT_BLOCKS), USM_OK);
    CHECK(usm__fault_arm("file.enter", 1, true, USM_OK));
    atomic_store(&is_hasty, true);
    write_all(store, data, 1, &failed);
    atomic_store(&is_hasty, false);
    CHECK_INT(failed, 0);
    CHECK_IN("going on by threads", module.log);
    read_all(store, data, 1);
    usm__fault_disarm_all();
    read_all(store, data, 1);
    ops->close(store);
    munmap(data, FAULT_BLOCKS * BLOCK);
    module_clean();
}

static void without_threads_it_is_done_here(void)
{
    char  *data = pages(FAULT_BLOCKS * BLOCK);
    void  *store;
    size_t failed = 0;

    module_start();
    CHECK(usm__fault_arm("os.thread", 1, true, USM_OK));
    CHECK_INT(open_store(disk_folder(), NULL, &store), USM_OK); /* no thread for the ring either */
    CHECK_INT(ops->reserve(store, 0, FAULT_BLOCKS), USM_OK);
    write_all(store, data, 1, &failed);
    CHECK_INT(failed, 0);
    read_all(store, data, 1);
    ops->close(store);
    munmap(data, FAULT_BLOCKS * BLOCK);
    module_clean();
}

/* Every call of the system and the heap fails once: what was acknowledged is there. */
static bool survive(size_t e, char *data)
{
    void *store = NULL;
    bool  is_ok;

    if (open_store(with_engine(e, ""), NULL, &store) != USM_OK)
        return false;
    is_ok = ops->reserve(store, 0, 2) == USM_OK;
    for (uint64_t b = 0; is_ok && b < 2; b++) {
        fill(data, b, 0, 0, BLOCK);
        is_ok = transfer(store, USM_TRANSFER_STORE, b, data) == USM_OK;
        memset(data, 0, BLOCK);
        if (is_ok && transfer(store, USM_TRANSFER_FETCH, b, data) == USM_OK)
            CHECK(is_filled(data, b, 0, 0, BLOCK));
    }
    is_ok = is_ok && ops->sync(store) == USM_OK;
    ops->forget(store, 0, 2);
    ops->close(store);
    return is_ok;
}

static void each_call_may_fail(void)
{
    char *data = pages(BLOCK);

    for (size_t e = 0; e < ENGINES; e++) {
        uint64_t n = 0;

        module_start();
        ops->close(open_engine(e, ""));
        module_clean();
        for (uint64_t fired = 1; fired; fired = usm__fault_fired()) {
            module_start();
            CHECK(usm__fault_arm("*", ++n, false, USM_OK));
            (void)survive(e, data);
            module_clean();
            CHECK(n < 200);
        }
        CHECK(n > 8);
        usm__fault_disarm_all();
        CHECK(survive(e, data));
        module_clean();
    }
    munmap(data, BLOCK);
}

static atomic_bool storm_ends;
static pthread_t   storm_target;

static void on_signal(int number)
{
    (void)number;
}

static void *storm(void *arg)
{
    (void)arg;
    while (!storm_ends) {
        (void)pthread_kill(storm_target, SIGUSR1);
        (void)sched_yield();
    }
    return NULL;
}

/* Real signals, to the thread that carries transfers out. */
static void signals_do_no_harm(void)
{
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART */
    struct sigaction before;
    pthread_t        thread;
    char            *data = pages(BLOCK);
    void            *store;

    module_start();
    CHECK_INT(open_store(disk_folder(), NULL, &store), USM_OK);
    CHECK_INT(ops->reserve(store, 0, 64), USM_OK);
    CHECK(sigaction(SIGUSR1, &action, &before) == 0);
    storm_ends   = false;
    storm_target = pthread_self();
    CHECK(pthread_create(&thread, NULL, storm, NULL) == 0);
    for (uint64_t i = 0; i < 128; i++) {
        job j;

        job_set(&j, i < 64 ? USM_TRANSFER_STORE : USM_TRANSFER_FETCH, i % 64, data);
        j.t.is_awaited = true;
        if (i < 64)
            fill(data, i % 64, 0, 0, BLOCK);
        CHECK_INT(job_run(store, &j), USM_OK);
        CHECK(is_filled(data, i % 64, 0, 0, BLOCK));
    }
    storm_ends = true;
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(sigaction(SIGUSR1, &before, NULL) == 0);
    ops->close(store);
    munmap(data, BLOCK);
    module_clean();
}

/* ---- registered memory ------------------------------------------------------------------ */

/* Pages that were moved after they were registered are reached by the old address. */
static void moved_pages_are_reached(void)
{
    enum { FRAMES = 8 };

    for (size_t e = 0; e < ENGINES; e++) {
        char  *arena = pages(FRAMES * BLOCK), *away = pages(BLOCK), *back = pages(BLOCK);
        void  *store;
        size_t registered = 99;
        job    j;

        module_start();
        store = open_engine(e, "");
        CHECK_INT(ops->reserve(store, 0, 2), USM_OK);
        CHECK_INT(ops->register_memory(store, arena, FRAMES * BLOCK, &registered), USM_OK);
        CHECK(registered <= FRAMES * BLOCK);
        CHECK(e == 0 || registered == 0);
        fill(arena + 5 * BLOCK, 1, 7, 0, BLOCK);
        if (mremap(arena + 5 * BLOCK, BLOCK, BLOCK,
                   MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, away) != away) {
            ops->close(store);
            SKIP("the kernel cannot move pages");
        }
        job_set(&j, USM_TRANSFER_STORE, 1, away);
        j.t.registered = 5 * BLOCK;
        CHECK_INT(job_run(store, &j), USM_OK);
        fetch_block(store, 1, back);
        CHECK(is_filled(back, 1, 7, 0, BLOCK));
        fill(back, 0, 8, 0, BLOCK);
        store_block(store, 0, back);
        job_set(&j, USM_TRANSFER_FETCH, 0, away);
        j.t.registered = 5 * BLOCK;
        CHECK_INT(job_run(store, &j), USM_OK);
        CHECK(is_filled(away, 0, 8, 0, BLOCK));
        job_set(&j, USM_TRANSFER_FETCH, 1, arena); /* the last page lies behind the end */
        j.t.registered = FRAMES * BLOCK - PAGE;
        CHECK_INT(job_run(store, &j), USM_OK);
        CHECK(is_filled(arena, 1, 7, 0, BLOCK));
        ops->unregister_memory(store);
        job_set(&j, USM_TRANSFER_FETCH, 1, away);
        j.t.registered = 5 * BLOCK; /* no longer */
        CHECK_INT(job_run(store, &j), USM_OK);
        CHECK(is_filled(away, 1, 7, 0, BLOCK));
        ops->close(store);
        munmap(arena, FRAMES * BLOCK);
        munmap(away, BLOCK);
        munmap(back, BLOCK);
        module_clean();
    }
}

static void *keep_storing(void *store)
{
    char *data = pages(BLOCK);

    for (int i = 0; i < 200; i++)
        store_block(store, 1, data);
    munmap(data, BLOCK);
    return NULL;
}

/* One request after the other, while transfers come and go. */
static void registering_is_never_missed(void)
{
    char     *arena = pages(4 * BLOCK);
    void     *store;
    pthread_t thread;

    module_start();
    store = open_engine(0, "");
    CHECK_INT(ops->reserve(store, 0, 2), USM_OK);
    CHECK(pthread_create(&thread, NULL, keep_storing, store) == 0);
    for (int i = 0; i < 300; i++) {
        size_t registered = 0;
        job    j;

        CHECK_INT(ops->register_memory(store, arena, 4 * BLOCK, &registered), USM_OK);
        CHECK(registered <= 4 * BLOCK);
        job_set(&j, USM_TRANSFER_STORE, 0, arena + BLOCK);
        j.t.registered = BLOCK;
        CHECK_INT(job_run(store, &j), USM_OK);
        ops->unregister_memory(store);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    ops->close(store);
    munmap(arena, 4 * BLOCK);
    module_clean();
}

static void register_as_an_ordinary_user(void)
{
    const struct rlimit limit = {1 << 20, 1 << 20};
    const size_t        size  = 32 << 20;
    char               *arena = pages(size), *back = pages(BLOCK);
    void               *store      = NULL;
    size_t              registered = 0;
    char                text[512];
    job                 j;

    CHECK(chmod(disk_folder(), 0777) == 0);
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    CHECK(geteuid() != 0 ||
          (setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0));
    CHECK_INT(open_store(disk_folder(), NULL, &store), USM_OK);
    CHECK_INT(ops->register_memory(store, arena, size, &registered), USM_OK);
    CHECK(registered <= (1 << 20));
    ops->describe(store, text, sizeof(text));
    if (strstr(text, "io_uring,")) {
        CHECK(registered >= (1 << 18));
        CHECK_IN("(limit of locked memory: 1024 KiB, ulimit -l)", text);
    }
    CHECK_INT(ops->reserve(store, 0, size / BLOCK), USM_OK);
    for (uint64_t b = 0; b < size / BLOCK; b++) {
        fill(arena + b * BLOCK, b, 1, 0, BLOCK);
        job_set(&j, USM_TRANSFER_STORE, b, arena + b * BLOCK);
        j.t.registered = b * BLOCK;
        CHECK_INT(job_run(store, &j), USM_OK);
        fetch_block(store, b, back);
        CHECK(is_filled(back, b, 1, 0, BLOCK));
    }
    ops->close(store);
}

static void a_limit_of_locked_memory_is_no_failure(void)
{
    CHECK_INT(plain_child(register_as_an_ordinary_user, NULL), 0);
}

static const plain_case cases[] = {
    CASE(the_suite_holds_with_io_uring),
    CASE(the_suite_holds_with_threads),
    CASE(the_suite_holds_through_the_file_cache),
    CASE(the_suite_holds_over_several_folders),
    CASE(configurations_are_checked),
    CASE(a_folder_that_is_not_there_is_named),
    CASE(memory_is_no_disk),
    CASE(without_io_uring_threads_do_it),
    CASE(people_are_told_what_it_is),
    CASE(nothing_is_left_by_a_killed_process),
    CASE(files_without_a_name_have_a_substitute),
    CASE(a_quota_is_kept),
    CASE(files_grow_in_steps_and_give_back_in_runs),
    CASE(a_full_disk_is_an_answer),
    CASE(a_reservation_that_signals_interrupt_is_made),
    CASE(the_limit_of_files_is_no_signal),
    CASE(short_transfers_are_gone_on_with),
    CASE(interruptions_are_sat_out),
    CASE(a_medium_that_fails_is_told_once),
    CASE(fetching_behind_the_end_fails),
    CASE(a_ring_that_breaks_is_replaced_by_threads),
    CASE(without_threads_it_is_done_here),
    CASE(each_call_may_fail),
    CASE(signals_do_no_harm),
    CASE(moved_pages_are_reached),
    CASE(registering_is_never_missed),
    CASE(a_limit_of_locked_memory_is_no_failure),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return transport_main("file", argc, argv, cases);
}
