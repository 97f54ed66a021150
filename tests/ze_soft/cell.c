/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Words that threads, and processes, sleep on: the state of events and fences.  Called by pool.c,
 * event.c, fence.c and engine.c.
 *
 * A cell's word is a futex: bit 0 says signalled, the other bits count nudges.  A sleeper that has
 * looked around (is the device lost?) sleeps only while the word is still what it was; who changes
 * what it looked at nudges, so that no wake-up is missed.  Who waits for several events waits for
 * one after the other, which is enough because all are needed.
 *
 * Signal: set bit 0, then look for sleepers.  Sleep: count oneself, then compare in the kernel.
 * Both are sequentially consistent, so one of the two sees the other. */
#include "exec.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SIGNALLED 1u
#define NUDGE     2u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static exec_store     *stores; /* guarded by lock                                             */

/* --- the futex ------------------------------------------------------------------ */

/* Not the private kind: a pool may be shared with another process. */
static void futex_sleep(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline)
{
    struct timespec  at    = {(time_t)(deadline / 1000000000u), (long)(deadline % 1000000000u)};
    struct timespec *limit = deadline == UINT64_MAX ? NULL : &at;

    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, limit, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint64_t exec_deadline(uint64_t timeout_ns)
{
    uint64_t now;

    if (timeout_ns == 0)
        return 0;
    now = soft_now_ns();
    /* Hundreds of years: "for ever", as UINT64_MAX - 1 that programs use, too. */
    return timeout_ns > INT64_MAX - now ? UINT64_MAX : now + timeout_ns;
}

/* --- cells ------------------------------------------------------------------------ */

bool exec_cell_is_set(const exec_cell *cell)
{
    return atomic_load(&cell->word) & SIGNALLED;
}

void exec_cell_set(exec_cell *cell)
{
    atomic_fetch_or(&cell->word, SIGNALLED);
    if (atomic_load(&cell->sleepers))
        futex_wake(&cell->word);
}

void exec_cell_reset(exec_cell *cell)
{
    atomic_fetch_and(&cell->word, ~SIGNALLED);
}

void exec_cell_nudge(exec_cell *cell)
{
    atomic_fetch_add(&cell->word, NUDGE);
    futex_wake(&cell->word);
}

void exec_cell_times(const exec_cell *cell, ze_kernel_timestamp_result_t *times)
{
    times->global.kernelStart = atomic_load(&cell->start);
    times->global.kernelEnd   = atomic_load(&cell->end);
    times->context            = times->global;
}

static bool any_lost(uint32_t roots)
{
    for (uint32_t i = 0; i < sizeof(soft_devices) / sizeof(soft_devices[0]); i++)
        if ((roots & 1u << i) && soft_is_lost(&soft_devices[i]))
            return true;
    return false;
}

/* Whether nobody will ever signal it.  An engine whose own device is sound waits on for an event
 * that no command is known to signal: the host may. */
static bool is_hopeless(const exec_point *p, const soft_device *own)
{
    uint32_t signaller = atomic_load(&p->cell->signaller);

    if ((own && soft_is_lost(own)) || signaller == EXEC_NOBODY)
        return true;
    if (signaller)
        return soft_is_lost(&soft_devices[signaller - 1]);
    return !own && any_lost(p->store->roots);
}

uint32_t exec_cell_word(const exec_cell *cell)
{
    return atomic_load(&cell->word);
}

exec_wait exec_point_sleep(const exec_point *p, const soft_device *own, uint32_t word,
                           uint64_t deadline)
{
    exec_cell *cell = p->cell;

    if (word & SIGNALLED)
        return EXEC_DONE;
    if (is_hopeless(p, own))
        return EXEC_LOST;
    atomic_fetch_add(&cell->sleepers, 1);
    futex_sleep(&cell->word, word, deadline);
    atomic_fetch_sub(&cell->sleepers, 1);
    return EXEC_TIMEOUT;
}

exec_wait exec_point_wait(const exec_point *p, const soft_device *own, uint64_t deadline)
{
    for (;;) {
        const uint32_t word    = exec_cell_word(p->cell);
        const bool     is_over = deadline != UINT64_MAX && (!deadline || soft_now_ns() >= deadline);
        exec_wait      wait;

        if (is_over && !(word & SIGNALLED))
            return is_hopeless(p, own) ? EXEC_LOST : EXEC_TIMEOUT;
        wait = exec_point_sleep(p, own, word, deadline);
        if (wait != EXEC_TIMEOUT)
            return wait;
    }
}

ze_result_t exec_wait_result(exec_wait wait)
{
    switch (wait) {
    case EXEC_DONE:
        return ZE_RESULT_SUCCESS;
    case EXEC_LOST:
        return ZE_RESULT_ERROR_DEVICE_LOST;
    case EXEC_TIMEOUT:
        break;
    }
    return ZE_RESULT_NOT_READY;
}

/* --- stores ------------------------------------------------------------------------- */

static void enlist(exec_store *store)
{
    pthread_mutex_lock(&lock);
    store->next = stores;
    store->link = &stores;
    if (stores)
        stores->link = &store->next;
    stores = store;
    pthread_mutex_unlock(&lock);
}

static exec_cell *cells_map(int fd, size_t count)
{
    void *p = mmap(NULL, count * sizeof(exec_cell), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return p == MAP_FAILED ? NULL : p;
}

static int shared_file(size_t bytes)
{
    int fd = memfd_create("ze_soft events", MFD_CLOEXEC);

    if (fd >= 0 && ftruncate(fd, (off_t)bytes)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The struct and, when it is not in a file, its cells. */
static exec_store *store_alloc(size_t count, uint32_t roots, int fd)
{
    exec_store *store = calloc(1, sizeof(*store));

    if (!store)
        return NULL;
    atomic_store(&store->refs, 1);
    store->roots = roots;
    store->count = count;
    store->fd    = fd;
    if (fd >= 0)
        store->cells = cells_map(fd, count);
    else
        store->cells = aligned_alloc(_Alignof(exec_cell), count * sizeof(exec_cell));
    if (!store->cells) {
        free(store);
        return NULL;
    }
    return store;
}

exec_store *exec_store_new(size_t count, uint32_t roots, bool is_shared)
{
    exec_store *store;
    int         fd = -1;

    if (count > PTRDIFF_MAX / sizeof(exec_cell))
        return NULL;
    if (is_shared && (fd = shared_file(count * sizeof(exec_cell))) < 0)
        return NULL;
    store = store_alloc(count, roots, fd);
    if (!store) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        store->cells[i] = (exec_cell){0};
    enlist(store);
    return store;
}

exec_store *exec_store_open(int fd, size_t count, uint32_t roots)
{
    struct stat st;
    exec_store *store;

    if (!count || fstat(fd, &st) || st.st_size < 0 ||
        count > (uint64_t)st.st_size / sizeof(exec_cell))
        return NULL;
    store = store_alloc(count, roots, fd);
    if (store)
        enlist(store);
    return store;
}

exec_store *exec_store_ref(exec_store *store)
{
    atomic_fetch_add(&store->refs, 1);
    return store;
}

void exec_store_unref(exec_store *store)
{
    if (!store || atomic_fetch_sub(&store->refs, 1) != 1)
        return;
    pthread_mutex_lock(&lock);
    *store->link = store->next;
    if (store->next)
        store->next->link = store->link;
    pthread_mutex_unlock(&lock);
    if (store->fd >= 0) {
        munmap(store->cells, store->count * sizeof(exec_cell));
        close(store->fd);
    } else {
        free(store->cells);
    }
    free(store);
}

void exec_stores_nudge(void)
{
    pthread_mutex_lock(&lock);
    for (exec_store *store = stores; store; store = store->next)
        for (size_t i = 0; i < store->count; i++)
            exec_cell_nudge(&store->cells[i]);
    pthread_mutex_unlock(&lock);
}
