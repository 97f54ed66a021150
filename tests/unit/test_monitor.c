/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Monitor pages: what a process writes, when its thread runs, what readers make of pages of dead, of
 * other and of no processes. */
#include "../plain.h"

#include "base/fault.h"
#include "base/os.h"
#include "base/settings.h"
#include "monitor/reader.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/stat.h>

#include <usm/parallel.h>
#include <usm/usm.h>

static usm__monitor_page page; /* of the last look() */
static char              why[USM__MONITOR_WHY];

static usm__monitor_reader reader(void)
{
    usm__monitor_reader r;

    CHECK(usm__monitor_open(&r));
    return r;
}

static usm__monitor_found look(uint32_t pid)
{
    usm__monitor_reader r = reader();

    return usm__monitor_read(&r, pid, &page, why);
}

static const char *path_of(uint32_t pid, char *path, size_t size)
{
    usm__monitor_reader r = reader();

    (void)snprintf(path, size, "%s/%u-%llu.page", r.folder, pid, (unsigned long long)r.pid_space);
    return path;
}

/* The place of the pool that a block of `size` bytes came from. */
static const usm__monitor_pool *pool_with(uint64_t reserved)
{
    for (size_t i = 0; i < USM__MONITOR_POOLS; i++)
        if (page.pools[i].serial != 0 && page.pools[i].held.reserved >= reserved)
            return &page.pools[i];
    return NULL;
}

static bool has_thread(void)
{
    return system("grep -qs usm-monitor /proc/$PPID/task/*/comm") == 0;
}

static void await_samples(uint64_t more)
{
    usm__monitor_reader r    = reader();
    uint64_t            from = 0;

    usm_free(usm_alloc_host(1));
    CHECK(look((uint32_t)getpid()) == USM__MONITOR_LIVES);
    from = page.samples;
    for (int i = 0; page.samples < from + more; i++) {
        CHECK(i < 1000);
        usm__monitor_announce(&r);
        usm_free(usm_alloc_host(8u << 20)); /* a call that is no hit */
        usm__os_sleep_ns(20000000);
        CHECK(look((uint32_t)getpid()) == USM__MONITOR_LIVES);
    }
}

/* ---- what a process writes --------------------------------------------------------------- */

static void what_pools_hold_is_there_without_a_sample(void)
{
    void                    *p = usm_alloc_host(40u << 20);
    const usm__monitor_pool *pool;

    CHECK(p != NULL);
    CHECK(look((uint32_t)getpid()) == USM__MONITOR_LIVES);
    CHECK_INT(page.samples, 0);
    CHECK(!has_thread());
    CHECK(strcmp(page.program, "test_monitor") == 0);
    pool = pool_with(40u << 20);
    CHECK(pool != NULL);
    CHECK_INT(pool->kind, USM_HOST);
    CHECK_STR(pool->name, "slab");
    usm_free(p);
}

static void a_reader_makes_the_process_sample(void)
{
    void                    *p = usm_alloc_host(33u << 20);
    const usm__monitor_pool *pool;

    CHECK(usm_tag_push("planted") == USM_OK);
    CHECK(usm_alloc_host(12345) != NULL);
    usm_tag_pop();
    await_samples(2);
    CHECK(has_thread());
    pool = pool_with(33u << 20);
    CHECK(pool != NULL && pool->live >= (33u << 20) && pool->blocks >= 1);
    CHECK_INT(page.ntags, 1);
    CHECK_STR(page.tags[0].name, "planted");
    CHECK_INT(page.tags[0].live, 12345);
    CHECK(page.ndevices >= 1 && page.devices[0].reserved >= (33u << 20));
    usm_free(p);
}

static void queues_are_sampled(void)
{
    usm_queue *q = NULL;
    char      *p;

    CHECK(usm_queue_create(NULL, NULL, NULL, &q) == USM_OK);
    p = usm_malloc_shared(4096, q);
    for (int i = 0; i < 5; i++)
        CHECK(usm_memset(q, p, i, 4096, 0, NULL, NULL) == USM_OK);
    CHECK(usm_queue_wait(q) == USM_OK);
    await_samples(2);
    CHECK(page.nqueues >= 1);
    CHECK(page.queues[page.nqueues - 1].submitted >= 5);
    CHECK_INT(page.queues[page.nqueues - 1].ended, page.queues[page.nqueues - 1].submitted);
    usm_free(p);
    usm_queue_destroy(q);
}

enum { ITEMS = 1000, CHUNK = 100 };

static atomic_bool is_held;
static uint32_t    items[ITEMS];

/* The second half waits as long as it is held. */
static void half(const usm_range *r, void *const *args)
{
    uint32_t *to = *(uint32_t *const *)args[0];

    while (r->begin[0] >= ITEMS / 2 && atomic_load(&is_held))
        usm__os_sleep_ns(1000000);
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        to[i - r->offset[0]] = 1;
}

/* A launch of which one half is done, on the host. */
static void with_half_a_launch(void (*look_at)(void))
{
    const usm_native_kernel native = {"half", half, 1, NULL};
    const double            size   = CHUNK;
    usm_image               image  = {USM_IMAGE_NATIVE, &native, sizeof native};
    usm_program_desc        desc   = USM_PROGRAM_DESC_INIT;
    usm_split_arg           arg    = USM_SPLIT_OUT(items, sizeof *items);
    usm_parallel_desc       launch = USM_PARALLEL_DESC_INIT;
    usm_team               *team   = NULL;
    usm_team_kernel        *kernel = NULL;
    usm_parallel_run       *run    = NULL;

    desc.images = &image, desc.nimages = 1;
    CHECK(usm_team_create(NULL, &team) == USM_OK);
    CHECK(usm_team_kernel_create(team, &desc, "half", &kernel) == USM_OK);
    launch.kernel      = kernel;
    launch.global[0]   = ITEMS;
    launch.nargs       = 1;
    launch.args        = &arg;
    launch.policy.name = "fixed", launch.policy.numbers = &size, launch.policy.nnumbers = 1;
    /* Whether the device moves data is tried once, in the host's queue: not behind what is held. */
    CHECK(usm_parallel_start(team, &launch, &run) == USM_OK);
    CHECK(usm_parallel_wait(run, NULL) == USM_OK);
    usm_parallel_release(run);
    atomic_store(&is_held, true);
    CHECK(usm_parallel_start(team, &launch, &run) == USM_OK);
    look_at();
    atomic_store(&is_held, false);
    CHECK(usm_parallel_wait(run, NULL) == USM_OK);
    usm_parallel_release(run);
    usm_team_kernel_destroy(kernel);
    usm_team_destroy(team);
}

static void see_half(void)
{
    for (int i = 0; page.nlaunches != 1 || page.launches[0].done != ITEMS / 2; i++) {
        CHECK(i < 100);
        await_samples(1);
    }
    CHECK_STR(page.launches[0].kernel, "half");
    CHECK_INT(page.launches[0].total, ITEMS);
    CHECK_INT(page.launches[0].nmembers, 1);
    CHECK_STR(page.launches[0].members[0].name, "host:0");
    CHECK_INT(page.launches[0].members[0].items, ITEMS / 2);
    CHECK(page.launches[0].members[0].under_way > 0 && page.launches[0].members[0].busy_ns > 0);
}

static void a_launch_is_seen_until_it_is_released(void)
{
    with_half_a_launch(see_half);
    await_samples(2);
    CHECK_INT(page.nlaunches, 0);
}

static void child_without_launches(void)
{
    usm_shutdown();
    CHECK(usm_init() == USM_OK);
    await_samples(1);
    CHECK_INT(page.nlaunches, 0);
}

static void fork_amid(void)
{
    CHECK_INT(plain_child(child_without_launches, NULL), 0);
}

static void a_launch_is_the_parents_alone(void)
{
    with_half_a_launch(fork_amid);
}

static void a_destroyed_pool_leaves_its_place(void)
{
    usm_pool *pool = NULL;
    void     *p;
    uint64_t  serial;

    CHECK(usm_pool_create(NULL, NULL, USM_HOST, NULL, &pool) == USM_OK);
    p = usm_pool_malloc(pool, 70u << 20);
    CHECK(p != NULL && look((uint32_t)getpid()) == USM__MONITOR_LIVES);
    CHECK(pool_with(70u << 20) != NULL);
    serial = pool_with(70u << 20)->serial;
    usm_pool_free(pool, p);
    usm_pool_destroy(pool);
    CHECK(look((uint32_t)getpid()) == USM__MONITOR_LIVES);
    for (size_t i = 0; i < USM__MONITOR_POOLS; i++)
        CHECK(page.pools[i].serial != serial);
}

static void pools_without_a_place_work_and_are_counted(void)
{
    static usm_pool *pools[USM__MONITOR_POOLS + 4];

    for (size_t i = 0; i < USM__MONITOR_POOLS + 4; i++)
        CHECK(usm_pool_create(NULL, NULL, USM_HOST, NULL, &pools[i]) == USM_OK);
    CHECK(look((uint32_t)getpid()) == USM__MONITOR_LIVES);
    CHECK(page.pools_left_out >= 4);
    usm_pool_free(pools[USM__MONITOR_POOLS + 3],
                  usm_pool_malloc(pools[USM__MONITOR_POOLS + 3], 64));
    for (size_t i = 0; i < USM__MONITOR_POOLS + 4; i++)
        usm_pool_destroy(pools[i]);
    CHECK(look((uint32_t)getpid()) == USM__MONITOR_LIVES);
    CHECK_INT(page.pools_left_out, 0);
}

static void the_thread_ends_when_nobody_reads(void)
{
    await_samples(1);
    CHECK(has_thread());
    usm__os_sleep_ns(USM__MONITOR_STAYS + 5 * (uint64_t)USM__MONITOR_PERIOD);
    CHECK(!has_thread());
    await_samples(1);
    CHECK(has_thread());
}

/* ---- other processes ------------------------------------------------------------------------- */

static void child_that_is_seen(void)
{
    usm_context     *ctx  = NULL;
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_device      *dev  = NULL;
    size_t           n    = 0;

    CHECK(look((uint32_t)getpid()) == USM__MONITOR_GONE); /* it has none yet */
    CHECK(usm_get_devices(&dev, 1, &n) == USM_OK && n > 0);
    desc.ndevices = 1;
    desc.devices  = &dev;
    CHECK(usm_context_create(&desc, &ctx) == USM_OK);
    CHECK(look((uint32_t)getpid()) == USM__MONITOR_LIVES);
    CHECK(pool_with(1) == NULL); /* the parent's pools are not the child's */
    CHECK(usm_malloc_ctx(200u << 20, dev, ctx, USM_HOST) != NULL);
    CHECK(look((uint32_t)getpid()) == USM__MONITOR_LIVES);
    CHECK(pool_with(200u << 20) != NULL);
    CHECK(look((uint32_t)getppid()) == USM__MONITOR_LIVES);
    CHECK(pool_with(200u << 20) == NULL);
    usm_context_destroy(ctx);
}

static void a_child_has_a_page_of_its_own(void)
{
    void *p = usm_alloc_host(1000);

    CHECK_INT(plain_child(child_that_is_seen, NULL), 0);
    usm_free(p);
}

/* Starts a child that has a page and then ends as `how` says: 0 by SIGKILL, 1 by exec(). */
static pid_t start(int how)
{
    int   ready[2];
    char  c;
    pid_t pid;

    CHECK(pipe(ready) == 0);
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        usm_shutdown(); /* the parent's default context */
        if (usm_init() != USM_OK || !usm_alloc_host(64))
            _exit(3);
        (void)!write(ready[1], "x", 1);
        if (how == 1)
            (void)execlp("sleep", "sleep", "100", (char *)NULL);
        for (;;)
            (void)pause();
    }
    CHECK(pid > 0 && read(ready[0], &c, 1) == 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

static bool exists(uint32_t pid)
{
    char path[USM__MONITOR_PATH];

    return access(path_of(pid, path, sizeof path), F_OK) == 0;
}

static void end(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

static void the_page_of_a_killed_process_is_removed(void)
{
    pid_t    pid = start(0);
    uint32_t of  = (uint32_t)pid;

    CHECK(look(of) == USM__MONITOR_LIVES);
    end(pid);
    CHECK(exists(of));
    CHECK(look(of) == USM__MONITOR_GONE);
    CHECK(!exists(of));
}

static void the_page_of_a_program_that_was_replaced_is_removed(void)
{
    pid_t    pid = start(1);
    uint32_t of  = (uint32_t)pid;
    char     path[64], text[64] = "";

    (void)snprintf(path, sizeof path, "/proc/%u/comm", of);
    for (int i = 0; strncmp(text, "sleep", 5) != 0; i++) {
        CHECK(i < 1000);
        usm__os_sleep_ns(10000000);
        (void)plain_read(path, text, sizeof text);
    }
    CHECK(look(of) == USM__MONITOR_GONE);
    CHECK(!exists(of));
    end(pid);
}

static void off(void)
{
    usm_shutdown();
    CHECK(usm_config_set("monitor", "0") == USM_OK);
    CHECK(usm_init() == USM_OK);
    CHECK(usm_alloc_host(64) != NULL);
    CHECK(look((uint32_t)getpid()) == USM__MONITOR_GONE);
}

static void without_files(void)
{
    usm_shutdown();
    CHECK(usm__fault_arm("monitor.open", 1, false, USM_OK));
    CHECK(usm_init() == USM_OK);
    CHECK(usm_alloc_host(64) != NULL);
    usm__fault_disarm_all();
    CHECK(look((uint32_t)getpid()) == USM__MONITOR_GONE);
}

static void a_process_without_a_page_works(void)
{
    CHECK_INT(plain_child(off, NULL), 0);
    CHECK_INT(plain_child(without_files, NULL), 0);
}

/* ---- pages of nobody ----------------------------------------------------------------------- */

static void put(uint32_t pid, const void *data, size_t size, mode_t mode)
{
    char path[USM__MONITOR_PATH];
    int  fd;

    (void)unlink(path_of(pid, path, sizeof path));
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && fchmod(fd, mode) == 0);
    (void)close(fd);
}

static void forged_pages_are_refused_with_a_sentence(void)
{
    static usm__monitor_page good;
    uint32_t                 pid = (uint32_t)getppid(); /* lives, and has no page */

    CHECK(usm_alloc_host(64) != NULL);
    CHECK(look((uint32_t)getpid()) == USM__MONITOR_LIVES);
    good = page;
    put(pid, "", 0, 0600);
    CHECK(look(pid) == USM__MONITOR_REFUSED);
    CHECK_STR(why, "it is no monitor page");
    put(pid, &good, 1000, 0600);
    CHECK(look(pid) == USM__MONITOR_REFUSED);
    CHECK_IN("cut off after 1000", why);
    put(pid, &good, sizeof good, 0600);
    CHECK(look(pid) == USM__MONITOR_REFUSED);
    CHECK_IN("names another process", why);
    put(pid, &good, sizeof good, 0640);
    CHECK(look(pid) == USM__MONITOR_REFUSED);
    CHECK_IN("another user", why);
    good.pid = pid;
    put(pid, &good, sizeof good, 0600); /* of a process that had the number before */
    CHECK(look(pid) == USM__MONITOR_GONE && !exists(pid));
    good.version = 77;
    put(pid, &good, sizeof good, 0600);
    CHECK(look(pid) == USM__MONITOR_REFUSED);
    CHECK_IN("version 77", why);
    good.version = USM__MONITOR_VERSION;
    good.ntags = good.nqueues = good.ntiers = good.ndevices = UINT32_MAX;
    memset(good.tags, 0xff, sizeof good.tags);
    memset(good.pools, 0x1b, sizeof good.pools);
    CHECK(usm__monitor_check(&good, sizeof good, why));
    CHECK_INT(good.ntags, USM__MONITOR_TAGS);
    CHECK_INT(strlen(good.tags[0].name), USM__MONITOR_TEXT - 1);
    CHECK_STR(good.pools[3].name, "???????????????");
    put(pid, "", 0, 0600);
    CHECK(unlink(path_of(pid, (char[USM__MONITOR_PATH]){0}, USM__MONITOR_PATH)) == 0);
}

static const plain_case cases[] = {
    CASE(what_pools_hold_is_there_without_a_sample),
    CASE(a_reader_makes_the_process_sample),
    CASE(queues_are_sampled),
    CASE(a_launch_is_seen_until_it_is_released),
    CASE(a_launch_is_the_parents_alone),
    CASE(a_destroyed_pool_leaves_its_place),
    CASE(pools_without_a_place_work_and_are_counted),
    CASE(the_thread_ends_when_nobody_reads),
    CASE(a_child_has_a_page_of_its_own),
    CASE(the_page_of_a_killed_process_is_removed),
    CASE(the_page_of_a_program_that_was_replaced_is_removed),
    CASE(a_process_without_a_page_works),
    CASE(forged_pages_are_refused_with_a_sentence),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    CHECK(setenv("USM_DEVICE_SELECTOR", "host:*", 1) == 0);
    CHECK(setenv("XDG_RUNTIME_DIR", plain_path("."), 1) == 0);
    return plain_main(argc, argv, cases);
}
