/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm__job_agree(): the agreement of group/agree.h among the job's ranks.  Here: the job's lock
 * around it, its messages, and how long a call waits.
 *
 * The other ranks wait half as long again as the root, because it may have begun later; then they
 * fail alone. */
#include "cluster/internal.h"

#include "base/os.h"
#include "group/agree.h"

#define SLICE_MS 20u

/* ---- messages ------------------------------------------------------------------------------ */

/* The lock is held. */
static void wake_if_over(void)
{
    if (usm__job.agree.is_busy && !usm__group_agree_is_open(usm__job.agree.machine))
        usm__messages_wake();
}

static size_t next_message(uint32_t *to, unsigned char *text)
{
    size_t n = 0;

    usm__mutex_lock(&usm__job.lock);
    if (usm__job.agree.machine)
        n = usm__group_agree_next(usm__job.agree.machine, to, text);
    if (n == 0) {
        usm__job.agree.is_sending = false;
        usm__messages_wake(); /* see wait_for_sender() */
    }
    usm__mutex_unlock(&usm__job.lock);
    return n;
}

/* One thread sends at a time, what others add meanwhile as well: so messages stay in order. */
void usm__agree_flush(void)
{
    unsigned char text[USM__GROUP_AGREE_MESSAGE];
    uint32_t      to;
    size_t        n;
    bool          is_taken; /* by another thread */

    usm__mutex_lock(&usm__job.lock);
    is_taken                  = usm__job.agree.is_sending;
    usm__job.agree.is_sending = true;
    usm__mutex_unlock(&usm__job.lock);
    while (!is_taken && (n = next_message(&to, text)) > 0)
        (void)usm__job_send(to, USM__JOB_AGREE, text, n); /* the loss of a rank is reported
                                                             separately */
}

/* The lock is held. */
void usm__agree_lost(uint32_t rank)
{
    if (!usm__job.agree.machine)
        return;
    usm__group_agree_lost(usm__job.agree.machine, rank);
    wake_if_over();
}

static void came(void *arg, uint32_t from, const void *data, size_t size)
{
    (void)arg;
    usm__mutex_lock(&usm__job.lock);
    if (usm__job.agree.machine) {
        usm__group_agree_message(usm__job.agree.machine, from, data, size);
        wake_if_over();
    }
    usm__mutex_unlock(&usm__job.lock);
    usm__agree_flush();
}

/* ---- waiting: the lock is not held --------------------------------------------------------- */

static bool is_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Sleeps for a short time; false: the wait is over. */
static bool wait_a_slice(const struct timespec *end, unsigned ms, bool *was_woken)
{
    struct timespec now, slice;
    bool            more;

    usm__mutex_lock(&usm__job.lock);
    now   = usm__job_deadline(0);
    slice = usm__job_deadline(ms < SLICE_MS ? ms : SLICE_MS);
    more  = usm__job.phase == USM__JOB_ATTACHED &&
           usm__group_agree_is_open(usm__job.agree.machine) && is_before(&now, end);
    if (more)
        *was_woken = usm__mutex_wait(&usm__job.lock, &usm__job.changed,
                                     is_before(end, &slice) ? end : &slice) == 0;
    usm__mutex_unlock(&usm__job.lock);
    return more;
}

/* Until the call has ended, or time is over.  A module without a thread makes progress only during
 * calls, so one is called. */
static void wait_for_end(const struct timespec *end)
{
    const usm_transport_ops *ops;
    void                    *job;
    uint32_t                 self, count;
    bool                     was_woken;

    for (unsigned ms = 1; wait_a_slice(end, ms, &was_woken); ms++) {
        if (was_woken)
            continue;
        if (usm__job_enter(&ops, &job) == USM_OK) {
            (void)ops->members(job, &self, &count);
            usm__job_leave();
        }
        usm__agree_flush();
    }
}

/* Another thread may be about to send the decision, and the caller may leave the job once it
 * returns. */
static void wait_for_sender(void)
{
    usm__mutex_lock(&usm__job.lock);
    while (usm__job.agree.is_sending)
        (void)usm__mutex_wait(&usm__job.lock, &usm__job.changed, NULL);
    usm__mutex_unlock(&usm__job.lock);
}

/* ---- the call ------------------------------------------------------------------------------ */

/* The lock is held. */
static usm_status check(const void *mine, size_t size, const void *all)
{
    usm_status st;

    if (!mine || !all || size == 0 || size > USM__GROUP_AGREE_BYTES)
        return usm__fail(USM_E_INVALID, "ranks agree about 1 to %u bytes, not %zu",
                         USM__GROUP_AGREE_BYTES, size);
    st = usm__job_check();
    if (st == USM_OK && usm__job.agree.is_busy)
        return usm__fail(USM_E_BUSY, "two threads are in calls of all ranks at a time");
    return st;
}

static usm_status begin(const void *mine, size_t size, const void *all, bool *is_root)
{
    usm_status st;

    usm__mutex_lock(&usm__job.lock);
    st = check(mine, size, all);
    if (st == USM_OK) {
        for (uint32_t rank = 0; rank < usm__job.table.nranks; rank++)
            if (usm__job.table.state[rank] == USM_PLACE_LOST)
                usm__group_agree_lost(usm__job.agree.machine,
                                      rank); /* else it counts as lost meanwhile */
        usm__job.agree.is_busy = true;
        usm__group_agree_begin(usm__job.agree.machine, mine, size);
        *is_root = usm__group_agree_is_root(usm__job.agree.machine);
    }
    usm__mutex_unlock(&usm__job.lock);
    return st;
}

/* The lock is held. */
static usm_status notify(void *all, uint32_t *which)
{
    const usm_status st = usm__group_agree_result(usm__job.agree.machine, all, which);

    if (st == USM_OK)
        return USM_OK;
    if (st == USM_E_NO_MEMORY)
        return usm__fail(st, "no host memory for what the ranks agree about");
    if (st == USM_E_PEER)
        return usm__fail(st, "rank %u has ended, or did not come to a call of all ranks", *which);
    return usm__fail(st, "rank %u came to a call of all ranks with other sizes", *which);
}

static usm_status finish(void *all, uint32_t *which)
{
    usm_status st;

    usm__mutex_lock(&usm__job.lock);
    st = usm__job_check();
    if (st == USM_OK) {
        usm__group_agree_give_up(usm__job.agree.machine); /* if time is over */
        st = notify(all, which);
    }
    usm__job.agree.is_busy = false;
    usm__mutex_unlock(&usm__job.lock);
    return st;
}

usm_status usm__job_agree(const void *mine, size_t size, void *all, uint32_t timeout_ms,
                          uint32_t *which)
{
    struct timespec end = usm__job_deadline(timeout_ms);
    uint32_t        rank;
    bool            is_root;
    usm_status      st = begin(mine, size, all, &is_root);

    if (st != USM_OK)
        return st;
    if (!is_root)
        end = usm__job_deadline((uint64_t)timeout_ms + timeout_ms / 2);
    usm__agree_flush();
    wait_for_end(&end);
    st = finish(all, which ? which : &rank);
    usm__agree_flush();
    wait_for_sender();
    return st;
}

/* ---- start and end ------------------------------------------------------------------------- */

usm_status usm__agree_start(void)
{
    static const usm__group_heap heap = {usm__heap_alloc, usm__heap_free};
    const usm__job_table        *t    = &usm__job.table;
    usm__group_agree            *a    = usm__group_agree_create(&heap, t->self, t->nranks);

    if (!a)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the job's %u ranks", t->nranks);
    usm__job.agree.machine = a;
    usm__job_listen(USM__JOB_AGREE, came, NULL);
    return USM_OK;
}

/* A thread may still be in a call: usm__job_check() has told it, and it leaves. */
void usm__agree_stop(void)
{
    usm__job_listen(USM__JOB_AGREE, NULL, NULL);
    usm__mutex_lock(&usm__job.lock);
    usm__group_agree_destroy(usm__job.agree.machine);
    usm__job.agree.machine = NULL;
    usm__mutex_unlock(&usm__job.lock);
}

void usm__agree_fork_child(void)
{
    usm__job.agree.is_busy = usm__job.agree.is_sending = false;
}
