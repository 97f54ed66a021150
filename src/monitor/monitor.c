/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The life of the monitor page: its file, places of pools, the thread that samples, fork() and the
 * end of the process.  page.h has its layout, sample.c fills it.
 *
 * The page is made with the first context.  Nothing is written for readers on any path that a program
 * takes often: pools count what they take from drivers in the page, in place of their own struct, and
 * all else is sampled.  A process that nobody reads has no thread for it.  A reader announces itself
 * by a new value of the word `readers`; the next allocation that misses its cache, submission or wait
 * finds it (base/watched.h) and starts the thread, which ends when no announcement has come for three
 * seconds.
 *
 * fork(): pools of the parent point into the page, so the child puts a copy that is its own in the same
 * place.  It gets a file with its first context: most children have none before exec().  A process
 * that is killed, or executes another program, leaves its file, and the next reader removes it. */
#include "monitor/monitor.h"

#include "base/fault.h"
#include "base/fork.h"
#include "base/job.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/watched.h"
#include "heap/pool.h"
#include "monitor/folder.h"
#include "offload/launches.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ANSWERS_NS 5000000u /* from the question how far queues have got to the sample */

typedef enum thread_state { THREAD_NONE = 0, THREAD_RUNS } thread_state;

static struct {
    usm__mutex         lock; /* a leaf */
    usm__monitor_page *page; /* guarded by lock; NULL: none.  Its address never changes */
    bool               has_file, was_tried; /* guarded by lock */
    bool     taken[USM__MONITOR_POOLS];     /* likewise; in a child also by the parent's pools */
    uint64_t serials;                       /* likewise */
    char     path[USM__MONITOR_PATH];       /* likewise; of the file */
    const _Atomic(uint64_t) *readers;       /* likewise; NULL: not mapped yet */
    _Atomic(int)             thread;        /* thread_state */
    _Atomic(bool)            is_ending;
    usm__monitor_progress    progress; /* of one thread and the executor */
} monitor = {.lock = USM__MUTEX_INIT(USM__RANK_MONITOR, "monitor page")};

/* ---- the page -------------------------------------------------------------------------- */

static void describe(usm__monitor_page *page, const usm__monitor_identity *identity)
{
    usm__launcher_place place = usm__launcher_place_get();

    memcpy(page->magic, USM__MONITOR_MAGIC, sizeof page->magic);
    page->version     = USM__MONITOR_VERSION;
    page->size        = (uint32_t)sizeof *page;
    page->pid         = (uint32_t)getpid();
    page->uid         = (uint32_t)geteuid();
    page->start_ticks = identity->start_ticks;
    page->stack_start = identity->stack_start;
    page->rank        = place.rank;
    page->ranks       = place.is_job ? place.size : 0;
    page->start_ns    = usm__os_now_ns();
    (void)snprintf(page->program, sizeof page->program, "%s", program_invocation_short_name);
    (void)snprintf(page->host, sizeof page->host, "%s", usm__launcher_host());
}

/* A file of that name is of an earlier process with this number, or of an earlier program of this
 * process: it is replaced. */
static int make_file(const char *path)
{
    int fd;

    if (usm__fault_errno("monitor.open", EACCES))
        return -1;
    (void)unlink(path);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    /* Without room for all of it a later store would end the process (SIGBUS). */
    errno = posix_fallocate(fd, 0, (off_t)sizeof(usm__monitor_page));
    if (errno == 0)
        return fd;
    (void)close(fd);
    (void)unlink(path);
    return -1;
}

/* fd -1: memory without a file.  The page's content, if there is one, and its address stay. */
static bool put_page(int fd)
{
    const size_t size = sizeof(usm__monitor_page);
    int          how  = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void        *p    = mmap(NULL, size, PROT_READ | PROT_WRITE, how, fd, 0);

    if (p == MAP_FAILED)
        return false;
    if (!monitor.page) {
        monitor.page = p;
        return true;
    }
    memcpy(p, monitor.page, size);
    if (mremap(p, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, monitor.page) != MAP_FAILED)
        return true;
    (void)munmap(p, size);
    return false;
}

static void at_exit(void)
{
    usm_store_relaxed(&monitor.is_ending, true);
    usm__monitor_end_asking(&monitor.progress);
    usm__mutex_lock(&monitor.lock);
    if (monitor.has_file && monitor.page->pid == (uint32_t)getpid())
        (void)unlink(monitor.path);
    monitor.has_file = false;
    usm__mutex_unlock(&monitor.lock);
}

static void register_exit(void)
{
    (void)atexit(at_exit);
}

/* pre: the lock is held.  Returns 0, or errno. */
static int open_page(void)
{
    char                  folder[USM__MONITOR_PATH - 64];
    usm__monitor_identity identity;
    int                   fd;

    if (!usm__monitor_folder(folder, sizeof folder))
        return errno;
    if (!usm__monitor_identify((uint32_t)getpid(), &identity))
        return ENOENT;
    if (!monitor.readers)
        monitor.readers = usm__monitor_map_readers(folder, false);
    if (!monitor.readers)
        return errno;
    (void)snprintf(monitor.path, sizeof monitor.path, "%s/%u-%llu.page", folder, (unsigned)getpid(),
                   (unsigned long long)usm__monitor_namespace());
    fd = make_file(monitor.path);
    if (fd < 0)
        return errno;
    monitor.has_file = put_page(fd);
    if (monitor.has_file)
        describe(monitor.page, &identity);
    else
        (void)unlink(monitor.path);
    (void)close(fd);
    return monitor.has_file ? 0 : ENOMEM;
}

/* The first time in a process, and in each child. */
static usm_status context_made(usm_context *ctx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char                  why[160];
    int                   error = 0;

    (void)ctx;
    if (!usm__setting_bool("monitor"))
        return USM_OK;
    usm__mutex_lock(&monitor.lock);
    if (!monitor.was_tried)
        error = open_page();
    monitor.was_tried = true;
    if (monitor.has_file)
        usm_store_release(&usm__watched.word, monitor.readers);
    usm__mutex_unlock(&monitor.lock);
    if (error != 0)
        usm__info("usm-top does not see this process: %s", strerror_r(error, why, sizeof why));
    else
        (void)pthread_once(&once, register_exit);
    return USM_OK;
}

/* ---- places of pools ------------------------------------------------------------------- */

static usm__monitor_pool *place_of(const usm_pool *pool)
{
    return (usm__monitor_pool *)((char *)pool->held - offsetof(usm__monitor_pool, held));
}

/* pre: the lock is held. */
static void take_place(usm_pool *pool, size_t i)
{
    usm__monitor_pool *p = &monitor.page->pools[i];

    monitor.taken[i] = true;
    *p               = (usm__monitor_pool){.kind = (uint32_t)pool->kind};
    (void)snprintf(p->name, sizeof p->name, "%s", pool->ops->name);
    (void)snprintf(p->device, sizeof p->device, "%s", pool->ctx->devices[pool->index].dev->term);
    pool->held = &p->held;
    usm_store_release(&p->serial, ++monitor.serials); /* from here on readers look at it */
}

static void pool_made(usm_pool *pool)
{
    size_t i = 0;

    usm__mutex_lock(&monitor.lock);
    if (monitor.has_file) {
        while (i < USM__MONITOR_POOLS && monitor.taken[i])
            i++;
        if (i < USM__MONITOR_POOLS)
            take_place(pool, i);
        else
            usm_add_relaxed(&monitor.page->pools_left_out, 1u);
    }
    usm__mutex_unlock(&monitor.lock);
}

static void pool_freed(usm_pool *pool)
{
    usm__mutex_lock(&monitor.lock);
    if (pool->held != &pool->own_held) {
        usm__monitor_pool *p = place_of(pool);

        usm_store_relaxed(&p->serial, (uint64_t)0);
        monitor.taken[p - monitor.page->pools] = false;
    } else if (pool->ops && monitor.has_file &&
               usm_load_relaxed(&monitor.page->pools_left_out) > 0) {
        usm_sub_relaxed(&monitor.page->pools_left_out, 1u);
    }
    usm__mutex_unlock(&monitor.lock);
}

/* ---- the thread ------------------------------------------------------------------------ */

/* The word is the moment until which the announcement is good.  A value far ahead is none. */
static bool is_watched(void)
{
    uint64_t now   = usm__os_now_ns();
    uint64_t until = usm_load_relaxed(usm_load_relaxed(&usm__watched.word));

    return until > now && until - now <= 2 * (uint64_t)USM__MONITOR_STAYS &&
           !usm_load_relaxed(&monitor.is_ending);
}

static void sample_while_watched(void *page)
{
    /* It sleeps first: the call that started it may be the first of the program, with more to follow
     * that need the same locks. */
    do {
        usm__os_sleep_ns(USM__MONITOR_PERIOD - ANSWERS_NS);
        usm__monitor_ask_queues(&monitor.progress);
        usm__os_sleep_ns(ANSWERS_NS);
        usm__monitor_sample(page);
    } while (is_watched());
    usm_store_release(&monitor.thread, (int)THREAD_NONE);
}

/* A reader repeats its announcement each second: one that this misses, because the thread is about to
 * end or cannot be started, is followed by another. */
static void watched(void)
{
    usm__monitor_page *page = NULL;
    int                none = THREAD_NONE;

    usm__mutex_lock(&monitor.lock);
    if (monitor.has_file)
        page = monitor.page;
    usm__mutex_unlock(&monitor.lock);
    if (!page || !is_watched() || !usm_cas_acq_rel(&monitor.thread, &none, (int)THREAD_RUNS))
        return;
    if (usm__os_thread(sample_while_watched, page, "usm-monitor") != 0)
        usm_store_release(&monitor.thread, (int)THREAD_NONE);
}

/* ---- fork() ---------------------------------------------------------------------------- */

/* Pools of the parent keep their places, which nobody else gets, and readers of the child do not see
 * them.  Without memory for a copy the child would count in the parent's page. */
static void in_child(void)
{
    usm_store_relaxed(&monitor.thread, (int)THREAD_NONE);
    usm__monitor_progress_in_child(&monitor.progress);
    usm_store_release(&usm__watched.word, &usm__watched.nobody);
    if (monitor.page && !put_page(-1))
        abort();
    if (monitor.page) {
        for (size_t i = 0; i < USM__MONITOR_POOLS; i++)
            usm_store_relaxed(&monitor.page->pools[i].serial, (uint64_t)0);
        usm_store_relaxed(&monitor.page->sequence, (uint64_t)0);
        monitor.page->samples = monitor.page->sampled_ns = 0;
        monitor.page->ntags = monitor.page->ndevices = monitor.page->nqueues = 0;
        monitor.page->ntiers = monitor.page->has_spill = monitor.page->nlaunches = 0;
        monitor.page->map.taken_ns = monitor.page->map.nsegments = 0;
    }
    monitor.has_file = monitor.was_tried = false;
}

static void fork_page(usm_fork_phase phase)
{
    if (phase == USM_FORK_CHILD)
        in_child();
    usm__mutex_fork(&monitor.lock, phase);
}

const usm_part usm__monitor_part = {
    .name         = "monitor",
    .fork         = {{USM__RANK_LAUNCHES, usm__launches_fork}, {USM__RANK_MONITOR, fork_page}},
    .watched      = watched,
    .context_made = context_made,
    .pool_made    = pool_made,
    .pool_freed   = pool_freed};
