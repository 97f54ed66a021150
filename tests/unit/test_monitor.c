/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Monitor pages: what a process writes, when its thread runs, what readers make of pages of dead, of
 * other and of no processes.
 *
 * Linked with --wrap for the reader's calls of pread() and usm__monitor_identify(): a page changes at
 * a chosen moment while it is read. */
#include "../plain.h"

#include "base/fault.h"
#include "base/os.h"
#include "base/settings.h"
#include "monitor/reader.h"

#include <errno.h>
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

static const usm__monitor_queue *queue_of(uint64_t serial)
{
    for (uint32_t i = 0; i < page.nqueues; i++)
        if (page.queues[i].serial == serial)
            return &page.queues[i];
    return NULL;
}

static const usm__monitor_device *device_of(const usm__monitor_queue *q)
{
    CHECK(q->device < page.ndevices);
    return &page.devices[q->device];
}

/* The queue that was made last: the test looks at it while it has `depth` commands in flight. */
static uint64_t see_depth(uint64_t depth)
{
    await_samples(2);
    CHECK(page.nqueues >= 1);
    CHECK_INT(page.queues[page.nqueues - 1].depth, depth);
    CHECK_INT(page.queues[page.nqueues - 1].depth_peak, depth);
    CHECK(device_of(&page.queues[page.nqueues - 1])->depth >= depth);
    return page.queues[page.nqueues - 1].serial;
}

/* Nobody waits for the commands or queries them: their end is found all the same. */
static void commands_in_flight_are_counted_without_a_wait(void)
{
    enum { COMMANDS = 5 };
    usm_queue *q     = NULL;
    usm_event *event = NULL;
    uint64_t   serial, busy;
    char      *p;

    CHECK(usm_queue_create(NULL, NULL, NULL, &q) == USM_OK);
    CHECK(usm_event_create(NULL, &event) == USM_OK);
    p = usm_malloc_shared(4096, q);
    for (int i = 0; i < COMMANDS; i++)
        CHECK(usm_memset(q, p, i, 4096, i == 0, &event, NULL) == USM_OK);
    serial = see_depth(COMMANDS);
    busy   = device_of(queue_of(serial))->busy_ns;
    await_samples(1);
    CHECK(device_of(queue_of(serial))->busy_ns > busy);
    CHECK(usm_event_signal(event, USM_OK) == USM_OK);
    for (int i = 0; queue_of(serial)->depth != 0; i++) {
        CHECK(i < 100);
        await_samples(1);
        CHECK(queue_of(serial) != NULL);
    }
    CHECK_INT(queue_of(serial)->ended, COMMANDS);
    CHECK_INT(queue_of(serial)->depth_peak, COMMANDS);
    CHECK_INT(device_of(queue_of(serial))->depth, 0);
    busy = device_of(queue_of(serial))->busy_ns;
    await_samples(2);
    CHECK_INT(device_of(queue_of(serial))->busy_ns, busy);
    usm_event_release(event);
    usm_free(p);
    usm_queue_destroy(q);
}

enum { ITEMS = 1000, CHUNK = 100 };

/* The core submits several short chunks in a row, as many as take 2 ms (TRAIN_NS in
 * src/offload/batch.c), and they are reported together: a chunk that is done would not be seen as done
 * while a later one of its batch is held.  Chunks as long as these get no company. */
#define CHUNK_NS 10000000u

static atomic_bool is_held;
static uint32_t    items[ITEMS];

/* The second half waits as long as it is held. */
static void half(const usm_range *r, void *const *args)
{
    uint32_t *to = *(uint32_t *const *)args[0];

    usm__os_sleep_ns(CHUNK_NS);
    while (r->begin[0] >= ITEMS / 2 && atomic_load(&is_held))
        usm__os_sleep_ns(1000000);
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        to[i - r->offset[0]] = 1;
}

/* Returns PLAIN_FAILED if a check in fn fails: the case goes on, and lets the kernel go before it ends. */
static int run_inside(void (*fn)(void))
{
    jmp_buf end_of_case;
    int     end;

    memcpy(&end_of_case, &plain.end_of_case, sizeof end_of_case);
    end = setjmp(plain.end_of_case);
    if (end == 0)
        fn();
    memcpy(&plain.end_of_case, &end_of_case, sizeof end_of_case);
    return end;
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
    int                     end;

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
    end = run_inside(look_at);
    atomic_store(&is_held, false);
    CHECK(usm_parallel_wait(run, NULL) == USM_OK);
    usm_parallel_release(run);
    usm_team_kernel_destroy(kernel);
    usm_team_destroy(team);
    if (end != 0)
        plain_end();
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

static void *pause_forever(void *unused)
{
    (void)unused;
    for (;;)
        (void)pause();
    return NULL;
}

/* How a child goes on when it has a page. */
typedef enum course { STAYS, EXECUTES, LEAVES_THREAD } course;

static pid_t start(course how)
{
    pthread_t thread;
    int       ready[2];
    char      c;
    pid_t     pid;

    CHECK(pipe(ready) == 0);
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        usm_shutdown(); /* the parent's default context */
        if (usm_init() != USM_OK || !usm_alloc_host(64))
            _exit(3);
        (void)!write(ready[1], "x", 1);
        if (how == EXECUTES)
            (void)execlp("sleep", "sleep", "100", (char *)NULL);
        if (how == LEAVES_THREAD && pthread_create(&thread, NULL, pause_forever, NULL) == 0)
            pthread_exit(NULL);
        (void)pause_forever(NULL);
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
    pid_t    pid = start(STAYS);
    uint32_t of  = (uint32_t)pid;

    CHECK(look(of) == USM__MONITOR_LIVES);
    end(pid);
    CHECK(exists(of));
    CHECK(look(of) == USM__MONITOR_GONE);
    CHECK(!exists(of));
}

/* The kernel gives the new program its name first and its stack, by which it is told from the old one, a
 * moment later. */
static void the_page_of_a_program_that_was_replaced_is_removed(void)
{
    pid_t    pid = start(EXECUTES);
    uint32_t of  = (uint32_t)pid;

    for (int i = 0; look(of) != USM__MONITOR_GONE; i++) {
        CHECK(i < 1000);
        usm__os_sleep_ns(10000000);
    }
    CHECK(!exists(of));
    end(pid);
}

static void a_process_that_nobody_has_waited_for_is_dead(void)
{
    pid_t     pid = start(STAYS);
    uint32_t  of  = (uint32_t)pid;
    siginfo_t how;

    CHECK(look(of) == USM__MONITOR_LIVES);
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitid(P_PID, (id_t)pid, &how, WEXITED | WNOWAIT) == 0); /* it is a zombie from here on */
    CHECK(look(of) == USM__MONITOR_GONE && !exists(of));
    CHECK(waitpid(pid, NULL, 0) == pid);
}

/* Its main thread looks as a zombie does. */
static void a_process_without_its_main_thread_lives(void)
{
    pid_t    pid = start(LEAVES_THREAD);
    uint32_t of  = (uint32_t)pid;
    char     path[64], text[512] = "";

    (void)snprintf(path, sizeof path, "/proc/%u/stat", of);
    for (int i = 0; !strstr(text, ") Z "); i++) {
        CHECK(i < 1000);
        usm__os_sleep_ns(10000000);
        (void)plain_read(path, text, sizeof text);
    }
    CHECK(look(of) == USM__MONITOR_LIVES && exists(of));
    end(pid);
    CHECK(look(of) == USM__MONITOR_GONE);
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

/* ---- pages that change while they are read ---------------------------------------------------- */

static void (*amid_bytes)(void);    /* called once, when half of a page has been read         */
static void (*amid_identity)(void); /* called once, before it is asked whether a process lives */

static void call_once(void (**fn)(void))
{
    void (*now)(void) = *fn;

    *fn = NULL;
    if (now)
        now();
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);
bool    __real_usm__monitor_identify(uint32_t pid, usm__monitor_identity *identity);
bool    __wrap_usm__monitor_identify(uint32_t pid, usm__monitor_identity *identity);

ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at)
{
    const size_t half_page = n / 2;
    ssize_t      rest;

    if (n != sizeof page || !amid_bytes)
        return __real_pread(fd, to, n, at);
    if (__real_pread(fd, to, half_page, at) != (ssize_t)half_page)
        return -1;
    call_once(&amid_bytes);
    rest = __real_pread(fd, (char *)to + half_page, n - half_page, at + (off_t)half_page);
    return rest < 0 ? rest : (ssize_t)half_page + rest;
}

bool __wrap_usm__monitor_identify(uint32_t pid, usm__monitor_identity *identity)
{
    call_once(&amid_identity);
    return __real_usm__monitor_identify(pid, identity);
}
/* NOLINTEND(bugprone-reserved-identifier) */

static usm__monitor_page other; /* what comes to be read instead */

/* As the process does it, when it samples. */
static void write_other(void)
{
    char path[USM__MONITOR_PATH];
    int  fd = open(path_of(other.pid, path, sizeof path), O_WRONLY | O_CLOEXEC);

    CHECK(fd >= 0 && pwrite(fd, &other, sizeof other, 0) == (ssize_t)sizeof other);
    (void)close(fd);
}

static void replace_by_other(void)
{
    put(other.pid, &other, sizeof other, 0600);
}

static void cut_off(void)
{
    char path[USM__MONITOR_PATH];

    CHECK(truncate(path_of(other.pid, path, sizeof path), 5000) == 0);
}

static void fill(usm__monitor_page *p, char c)
{
    p->ntags = USM__MONITOR_TAGS;
    for (size_t i = 0; i < USM__MONITOR_TAGS; i++)
        memset(p->tags[i].name, c, sizeof p->tags[i].name - 1);
    memset(p->program, c, 3);
}

/* The page of the child, as it is now, in `other`; in the file one that differs all over. */
static uint32_t start_amid(pid_t pid)
{
    static usm__monitor_page first;

    CHECK(look((uint32_t)pid) == USM__MONITOR_LIVES);
    first = other = page;
    fill(&first, 'a');
    fill(&other, 'b');
    atomic_store(&other.sequence, atomic_load(&first.sequence) + 2);
    put((uint32_t)pid, &first, sizeof first, 0600);
    return (uint32_t)pid;
}

static void a_sample_amid_the_copy_is_copied_again(void)
{
    pid_t    pid = start(STAYS);
    uint32_t of  = start_amid(pid);

    amid_bytes = write_other;
    CHECK(look(of) == USM__MONITOR_LIVES);
    CHECK_INT(page.program[0], 'b');
    for (size_t i = 0; i < USM__MONITOR_TAGS; i++)
        CHECK_INT(page.tags[i].name[0], 'b');
    end(pid);
    CHECK(look(of) == USM__MONITOR_GONE);
}

static void a_page_that_shrinks_amid_the_copy_is_refused(void)
{
    pid_t    pid = start(STAYS);
    uint32_t of  = start_amid(pid);

    amid_bytes = cut_off;
    CHECK(look(of) == USM__MONITOR_REFUSED);
    CHECK_IN("cut off after", why);
    end(pid);
    CHECK(look(of) == USM__MONITOR_GONE && !exists(of));
}

/* The page of a process that had the number before is read; before it is removed, the process that has
 * the number now puts its own there. */
static void a_page_that_replaces_a_dead_one_stays(void)
{
    static usm__monitor_page dead;
    pid_t                    pid = start(STAYS);
    uint32_t                 of  = start_amid(pid);

    dead = other;
    dead.start_ticks--;
    put(of, &dead, sizeof dead, 0600);
    amid_identity = replace_by_other;
    CHECK(look(of) == USM__MONITOR_GONE);
    CHECK(exists(of));
    CHECK(look(of) == USM__MONITOR_LIVES);
    end(pid);
    CHECK(look(of) == USM__MONITOR_GONE && !exists(of));
}

/* ---- other users --------------------------------------------------------------------------------- */

static char path_of_root[USM__MONITOR_PATH];

static void as_nobody(void)
{
    usm__monitor_reader r;

    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    CHECK(!usm__monitor_open(&r));
    CHECK_INT(errno, EACCES);
    CHECK(open(path_of_root, O_RDONLY | O_CLOEXEC) == -1 && errno == EACCES);
}

static void pages_of_another_user_are_neither_read_nor_shown(void)
{
    static usm__monitor_page good;
    pid_t                    pid = start(STAYS);
    uint32_t                 of  = (uint32_t)pid;
    usm__monitor_reader      r   = reader(), unused;

    if (geteuid() != 0) {
        end(pid);
        SKIP("only root can become somebody else");
    }
    CHECK(look(of) == USM__MONITOR_LIVES);
    good = page;
    (void)path_of(of, path_of_root, sizeof path_of_root);
    CHECK(chmod(plain.folder, 0755) == 0);
    CHECK_INT(plain_child(as_nobody, NULL), 0);
    /* What another user left in the folder when it was open to all. */
    put(of, &good, sizeof good, 0600);
    CHECK(chown(path_of_root, 65534, 65534) == 0);
    CHECK(look(of) == USM__MONITOR_REFUSED);
    CHECK_IN("another user", why);
    /* A folder that another user made first. */
    CHECK(chown(r.folder, 65534, 65534) == 0);
    CHECK(!usm__monitor_open(&unused));
    CHECK_INT(errno, EACCES);
    CHECK(chown(r.folder, 0, 0) == 0);
    end(pid);
    CHECK(look(of) == USM__MONITOR_GONE && !exists(of));
}

static const plain_case cases[] = {
    CASE(what_pools_hold_is_there_without_a_sample),
    CASE(a_reader_makes_the_process_sample),
    CASE(queues_are_sampled),
    CASE(commands_in_flight_are_counted_without_a_wait),
    CASE(a_launch_is_seen_until_it_is_released),
    CASE(a_launch_is_the_parents_alone),
    CASE(a_destroyed_pool_leaves_its_place),
    CASE(pools_without_a_place_work_and_are_counted),
    CASE(the_thread_ends_when_nobody_reads),
    CASE(a_child_has_a_page_of_its_own),
    CASE(the_page_of_a_killed_process_is_removed),
    CASE(the_page_of_a_program_that_was_replaced_is_removed),
    CASE(a_process_that_nobody_has_waited_for_is_dead),
    CASE(a_process_without_its_main_thread_lives),
    CASE(a_process_without_a_page_works),
    CASE(forged_pages_are_refused_with_a_sentence),
    CASE(a_sample_amid_the_copy_is_copied_again),
    CASE(a_page_that_shrinks_amid_the_copy_is_refused),
    CASE(a_page_that_replaces_a_dead_one_stays),
    CASE(pages_of_another_user_are_neither_read_nor_shown),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    CHECK(setenv("USM_DEVICE_SELECTOR", "host:*", 1) == 0);
    CHECK(setenv("XDG_RUNTIME_DIR", plain_path("."), 1) == 0);
    return plain_main(argc, argv, cases);
}
