/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Messages between ranks: sending them, and passing them from the module's thread to listeners.
 *
 *     module's thread --> listener              if there is one and nothing is queued before
 *                     \-> queue of the tag --> thread of this file --> listener
 *     own process     --/
 *
 * One thread at a time calls listeners and watchers: `calling` is set meanwhile.  Messages that
 * arrive while a queue is not empty are appended to it, so that each sender's order is kept.  The
 * thread of this file calls watchers, after the messages that had come before: a rank's last
 * messages are delivered before its loss is reported.  Attaching is in attach.c. */
#include "cluster/internal.h"

#include "base/assert.h"
#include "base/inline/clock.h"
#include "base/inline/list.h"
#include "base/log.h"
#include "base/os.h"

#include <errno.h>
#include <string.h>

typedef struct message {
    usm_list link;
    uint32_t member, tag;
    size_t   size;
    char     data[];
} message;

/* ---- waiting with the lock ----------------------------------------------------------------- */

struct timespec usm__job_deadline(uint64_t ms)
{
    return usm_clock_in_ms(CLOCK_MONOTONIC, ms);
}

static void wait_for_change(void)
{
    (void)usm__mutex_wait(&usm__job.lock, &usm__job.changed, NULL);
}

/* Waits for the end of the call in progress. */
static void wait_for_end(void)
{
    usm__job.box.waiting++;
    wait_for_change();
    usm__job.box.waiting--;
}

void usm__messages_wake(void)
{
    (void)pthread_cond_broadcast(&usm__job.changed);
}

/* ---- delivering ---------------------------------------------------------------------------- */

/* What is to be delivered without the lock: a message, or the state of a rank to the watchers. */
typedef struct call {
    uint32_t          tag; /* 0: watchers */
    uint32_t          rank;
    usm__job_inbox    to;
    const void       *data;
    size_t            size;
    message          *kept; /* freed afterwards; NULL */
    usm_place_state   state;
    usm__job_watching watchers[USM__JOB_WATCHERS];
} call;

static bool is_mine(void)
{
    return usm__job.box.calling && pthread_equal(usm__job.box.caller, pthread_self());
}

static void begin_call(const call *c)
{
    usm__job.box.calling     = true;
    usm__job.box.calling_tag = c->tag;
    usm__job.box.caller      = pthread_self();
}

static uint32_t rank_of(uint32_t member)
{
    return member < usm__job.table.nmembers ? usm__job.table.rank_of[member] : USM__JOB_NO_RANK;
}

static bool may_deliver(uint32_t tag)
{
    return usm__job.phase == USM__JOB_ATTACHED && usm__job.box.tags[tag].fn;
}

/* pre: no call is in progress. */
static void choose_listener(uint32_t tag, uint32_t member, const void *data, size_t size, call *c)
{
    c->tag  = tag;
    c->rank = rank_of(member);
    c->to   = usm__job.box.tags[tag];
    c->data = data;
    c->size = size;
    begin_call(c);
}

static bool choose_message(call *c)
{
    for (uint32_t tag = 1; tag < USM__JOB_TAGS; tag++) {
        usm_list *it = may_deliver(tag) ? usm_list_pop(&usm__job.box.tags[tag].queue) : NULL;

        if (!it)
            continue;
        c->kept = usm_container_of(it, message, link);
        choose_listener(tag, c->kept->member, c->kept->data, c->kept->size, c);
        return true;
    }
    return false;
}

static bool choose_change(call *c)
{
    usm__job_table *t = &usm__job.table;

    while (c->rank < t->nranks && !t->is_new[c->rank])
        c->rank++;
    if (usm__job.phase != USM__JOB_ATTACHED || c->rank == t->nranks)
        return false;
    t->is_new[c->rank] = false;
    c->state           = (usm_place_state)t->state[c->rank];
    memcpy(c->watchers, usm__job.box.watchers, sizeof c->watchers);
    if (c->state == USM_PLACE_LOST)
        usm__agree_lost(c->rank);
    begin_call(c);
    return true;
}

/* Without the lock. */
static void make_call(const call *c)
{
    if (c->tag == 0)
        usm__agree_flush();
    for (size_t i = 0; i < USM__JOB_WATCHERS; i++)
        if (c->watchers[i].fn)
            c->watchers[i].fn(c->watchers[i].arg, c->rank, c->state);
    if (c->tag != 0 && c->rank != USM__JOB_NO_RANK) /* servers send no messages to ranks */
        c->to.fn(c->to.arg, c->rank, c->data, c->size);
    usm__heap_free(c->kept);
    usm__mutex_lock(&usm__job.lock);
    usm__job.box.calling = false;
    if (usm__job.box.waiting) /* otherwise each message would cost a change of threads */
        usm__messages_wake();
    usm__mutex_unlock(&usm__job.lock);
}

static void deliver_all(void *arg)
{
    (void)arg;
    usm__mutex_lock(&usm__job.lock);
    while (!usm__job.box.stop) {
        call c = {.tag = 0};

        if (usm__job.box.calling) {
            wait_for_end();
        } else if (!choose_message(&c) && !choose_change(&c)) {
            wait_for_change();
        } else {
            usm__mutex_unlock(&usm__job.lock);
            make_call(&c);
            usm__mutex_lock(&usm__job.lock);
        }
    }
    usm__job.box.runs = false;
    usm__messages_wake();
    usm__mutex_unlock(&usm__job.lock);
}

/* ---- received messages --------------------------------------------------------------------- */

static void keep(uint32_t member, uint32_t tag, const void *data, size_t size)
{
    message *m = usm__heap_alloc(sizeof *m + size);

    if (!m) {
        usm__log(USM_LOG_ERROR,
                 "no host memory for a message of %zu bytes between ranks: it is lost", size);
        return;
    }
    m->member = member;
    m->tag    = tag;
    m->size   = size;
    if (size > 0)
        memcpy(m->data, data, size);
    usm_list_append(&usm__job.box.tags[tag].queue, &m->link);
    usm__messages_wake();
}

static bool is_direct(uint32_t tag)
{
    return may_deliver(tag) && usm_list_is_empty(&usm__job.box.tags[tag].queue) && !is_mine();
}

void usm__messages_came(void *user, uint32_t from, uint32_t tag, const void *data, size_t size)
{
    call c = {.tag = 0};

    (void)user;
    if (tag == 0 || tag >= USM__JOB_TAGS || size > USM__JOB_MESSAGE_MAX)
        return; /* of another release, or not a message of libusm */
    usm__mutex_lock(&usm__job.lock);
    while (is_direct(tag) && usm__job.box.calling)
        wait_for_end(); /* a listener itself does not wait */
    if (is_direct(tag))
        choose_listener(tag, from, data, size, &c);
    else if (usm__job.phase == USM__JOB_ATTACHED || usm__job.phase == USM__JOB_ATTACHING)
        keep(from, tag, data, size);
    usm__mutex_unlock(&usm__job.lock);
    if (c.tag != 0)
        make_call(&c);
}

void usm__messages_member(void *user, const usm_job_member *member)
{
    usm__job_table *t = &usm__job.table;
    uint32_t        rank;

    (void)user;
    usm__mutex_lock(&usm__job.lock);
    rank = rank_of(member->index);
    if (member->state == USM_PLACE_LOST && member->index == usm__job.self_member &&
        usm__job.phase == USM__JOB_ATTACHED)
        usm__job.phase = USM__JOB_ENDED; /* MPI_Finalize() was called */
    else if (rank != USM__JOB_NO_RANK && t->state[rank] != USM_PLACE_LOST &&
             t->state[rank] != (uint8_t)member->state) {
        t->state[rank]  = (uint8_t)member->state;
        t->is_new[rank] = true;
    }
    usm__messages_wake();
    usm__mutex_unlock(&usm__job.lock);
}

/* ---- sending ------------------------------------------------------------------------------- */

static usm_status check_send(uint32_t rank, uint32_t tag, size_t size)
{
    usm_status st = usm__job_check();

    if (st != USM_OK)
        return st;
    if (rank >= usm__job.table.nranks || tag == 0 || tag >= USM__JOB_TAGS ||
        size > USM__JOB_MESSAGE_MAX)
        return usm__fail(USM_E_INVALID, "a message of %zu bytes with tag %u to rank %u of %u", size,
                         tag, rank, usm__job.table.nranks);
    if (usm__job.table.state[rank] == USM_PLACE_LOST)
        return usm__fail(USM_E_PEER,
                         "rank %u has ended, or was silent for longer than USM_JOB_LEASE", rank);
    return USM_OK;
}

usm_status usm__job_send(uint32_t rank, uint32_t tag, const void *data, size_t size)
{
    usm_status st;
    uint32_t   member = 0;
    bool       is_own = false;

    usm__mutex_lock(&usm__job.lock);
    st = check_send(rank, tag, size);
    if (st == USM_OK) {
        is_own = rank == usm__job.table.self;
        member = usm__job.table.member_of[rank];
        usm__job.inside++;
        if (is_own)
            keep(member, tag, data, size);
    }
    usm__mutex_unlock(&usm__job.lock);
    if (st != USM_OK)
        return st;
    if (!is_own)
        st = usm__job.ops->send(usm__job.job, member, tag, data, size);
    usm__job_leave();
    if (st != USM_OK && st != USM_E_NO_MEMORY && usm__job_rank_is_lost(rank))
        return usm__fail(USM_E_PEER, "rank %u has ended while a message went to it", rank);
    return st;
}

void usm__job_set_patience(uint64_t ns)
{
    usm__mutex_lock(&usm__job.lock);
    if (usm__job_check() != USM_OK || !usm__job.ops->set_patience) {
        usm__mutex_unlock(&usm__job.lock);
        return;
    }
    usm__job.inside++;
    usm__mutex_unlock(&usm__job.lock);
    usm__job.ops->set_patience(usm__job.job, ns);
    usm__job_leave();
}

/* ---- listeners and watchers ---------------------------------------------------------------- */

void usm__job_listen(usm__job_tag tag, usm__job_listener *fn, void *arg)
{
    usm__mutex_lock(&usm__job.lock);
    usm__job.box.tags[tag].fn  = fn;
    usm__job.box.tags[tag].arg = arg;
    while (!fn && usm__job.box.calling && usm__job.box.calling_tag == (uint32_t)tag && !is_mine())
        wait_for_end();
    usm__messages_wake();
    usm__mutex_unlock(&usm__job.lock);
}

void usm__job_watch(usm__job_watcher *fn, void *arg)
{
    size_t i = 0;

    usm__mutex_lock(&usm__job.lock);
    while (i < USM__JOB_WATCHERS && usm__job.box.watchers[i].fn)
        i++;
    usm_assert(i < USM__JOB_WATCHERS);
    if (i < USM__JOB_WATCHERS)
        usm__job.box.watchers[i] = (usm__job_watching){fn, arg};
    usm__mutex_unlock(&usm__job.lock);
}

void usm__job_unwatch(usm__job_watcher *fn, void *arg)
{
    usm__mutex_lock(&usm__job.lock);
    for (size_t i = 0; i < USM__JOB_WATCHERS; i++)
        if (usm__job.box.watchers[i].fn == fn && usm__job.box.watchers[i].arg == arg)
            usm__job.box.watchers[i] = (usm__job_watching){NULL, NULL};
    while (usm__job.box.calling && usm__job.box.calling_tag == 0 && !is_mine())
        wait_for_end();
    usm__mutex_unlock(&usm__job.lock);
}

bool usm__job_rank_is_lost(uint32_t rank)
{
    bool is_lost;

    usm__mutex_lock(&usm__job.lock);
    is_lost = rank < usm__job.table.nranks && usm__job.table.state[rank] == USM_PLACE_LOST;
    usm__mutex_unlock(&usm__job.lock);
    return is_lost;
}

/* ---- start and end --------------------------------------------------------------------------- */

static void forget_all(void)
{
    for (size_t tag = 0; tag < USM__JOB_TAGS; tag++) {
        usm_list *it;

        while ((it = usm_list_pop(&usm__job.box.tags[tag].queue)))
            usm__heap_free(usm_container_of(it, message, link));
    }
}

usm_status usm__messages_start(void)
{
    char words[128];
    int  error;

    usm__mutex_lock(&usm__job.lock);
    for (size_t tag = 0; !usm__job.box.is_ready && tag < USM__JOB_TAGS; tag++)
        usm_list_init(&usm__job.box.tags[tag].queue);
    usm__job.box.is_ready = usm__job.box.runs = true;
    usm__job.box.stop                         = false;
    usm__mutex_unlock(&usm__job.lock);
    error = usm__os_thread(deliver_all, NULL, "usm-job");
    if (error == 0)
        return USM_OK;
    usm__mutex_lock(&usm__job.lock);
    usm__job.box.runs = false;
    usm__mutex_unlock(&usm__job.lock);
    return usm__fail(error == ENOMEM ? USM_E_NO_MEMORY : USM_E_SYSTEM,
                     "no thread for messages of the job: %s",
                     strerror_r(error, words, sizeof words));
}

void usm__messages_stop(void)
{
    usm__mutex_lock(&usm__job.lock);
    usm__job.box.stop = true;
    usm__messages_wake();
    while (usm__job.box.runs && !is_mine())
        wait_for_change();
    forget_all();
    usm__mutex_unlock(&usm__job.lock);
}

void usm__messages_fork_child(void)
{
    usm__job.box.calling = usm__job.box.runs = false;
    usm__job.box.waiting                     = 0;
    if (usm__job.box.is_ready)
        forget_all();
    memset(usm__job.box.watchers, 0, sizeof usm__job.box.watchers);
    for (size_t tag = 0; tag < USM__JOB_TAGS; tag++)
        usm__job.box.tags[tag].fn = NULL;
}
