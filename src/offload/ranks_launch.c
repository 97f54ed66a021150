/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A launch over ranks, on this rank.  Its thread runs the worker's state machine, on the master
 * also the master's, and answers requests for bytes on the rank that provides the data (ranks.h).
 * It sleeps until something arrives, or until a moment that a state machine has named.
 *
 * Threads of members take chunks and record their ends under the lock.  The launch's thread reports
 * them, several ends in one message.  After END no chunk is taken any more, and threads that wait
 * for bytes are woken.  The launch is over on this rank when the last chunk has left the
 * members. */
#include "offload/ranks.h"

#include "base/inline/bytes.h"
#include "base/inline/clock.h"
#include "base/inline/plural.h"
#include "base/log.h"
#include "base/os.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE_NS UINT64_C(1000000)
#define KEPT_BYTES  ((size_t)256 << 10)
#define LOOK_NS     UINT64_C(1000000000)
#define MOVES_NS    UINT64_C(5000000) /* after a request for bytes, more are expected so long */

/* ---- messages: the lock is held ------------------------------------------------------------ */

static void break_off(usm__ranks_launch *l, usm_status status)
{
    if (l->broken == USM_OK)
        l->broken = status;
    (void)pthread_cond_signal(&l->changed);
    (void)pthread_cond_broadcast(&l->moved);
}

void usm__ranks_launch_came(usm__ranks_launch *l, uint32_t from, const void *data, size_t size)
{
    usm__packet *packet = usm__packet_make(from, data, size);

    if (!packet) {
        break_off(l, USM_E_NO_MEMORY);
        return;
    }
    usm_list_append(&l->in, &packet->link);
    (void)pthread_cond_signal(&l->changed);
}

void usm__ranks_launch_lost(usm__ranks_launch *l, uint32_t rank)
{
    usm__ranks_launch_came(l, rank, NULL, 0);
}

/* Returns NULL if there is no memory. */
static usm__packet *write_packet(const usm__ranks_launch *l, uint32_t to, const usm__wire *msg)
{
    size_t       size   = USM__WIRE_HEADER + msg->size;
    usm__packet *packet = usm__heap_alloc(sizeof *packet + size);
    usm__wire    w      = *msg;

    if (!packet)
        return NULL;
    w.team       = l->ranks->id;
    w.launch     = l->number;
    packet->rank = to;
    packet->size = size;
    usm__wire_encode(&w, packet->bytes);
    if (w.size > 0)
        memcpy(packet->bytes + USM__WIRE_HEADER, w.bytes, w.size);
    return packet;
}

bool usm__ranks_launch_keep(usm__ranks_launch *l, const usm__wire *msg)
{
    usm__packet *packet = write_packet(l, l->plan->desc.home, msg);

    if (!packet)
        return false;
    usm_list_append(&l->kept, &packet->link);
    l->nkept += packet->size;
    return true;
}

void usm__ranks_launch_post(usm__ranks_launch *l, uint32_t to, const usm__wire *msg)
{
    usm__packet *packet = write_packet(l, to, msg);

    if (!packet) {
        break_off(l, USM_E_NO_MEMORY);
        return;
    }
    usm_list_append(to == l->ranks->self ? &l->in : &l->out, &packet->link);
    (void)pthread_cond_signal(&l->changed);
}

static void send_as_worker(void *arg, uint32_t to, const usm__wire *msg)
{
    usm__ranks_launch_post(arg, to, msg);
}

static void send_as_master(void *arg, uint32_t to, const usm__wire *msg)
{
    usm__ranks_launch *l = arg;

    if (to != l->ranks->self)
        l->sent += USM__WIRE_HEADER + msg->size;
    usm__ranks_launch_post(l, to, msg);
}

/* The lock is not held.  A rank that cannot be reached is lost; the job reports that. */
static void send_all(usm__ranks_launch *l)
{
    usm_list *it;

    usm__mutex_lock(&usm__ranks_all.lock);
    while ((it = usm_list_pop(&l->out))) {
        usm__packet *packet = usm_container_of(it, usm__packet, link);
        usm_status   st;

        usm__mutex_unlock(&usm__ranks_all.lock);
        st = usm__job_send(packet->rank, USM__JOB_TEAMS, packet->bytes, packet->size);
        usm__heap_free(packet);
        usm__mutex_lock(&usm__ranks_all.lock);
        if (st != USM_OK && st != USM_E_PEER)
            break_off(l, st);
    }
    usm__mutex_unlock(&usm__ranks_all.lock);
}

/* Whether ends need not be reported yet. */
static bool may_keep(const usm__ranks_launch *l)
{
    return l->nkept < KEPT_BYTES && usm__worker_may_keep(&l->worker);
}

/* ---- the source of the run -------------------------------------------------------------- */

static bool take(void *source, uint32_t member, usm__chunk *chunk)
{
    usm__ranks_launch *l = source;
    bool               any;

    usm__mutex_lock(&usm__ranks_all.lock);
    any = usm__worker_take(&l->worker, member, chunk);
    usm__mutex_unlock(&usm__ranks_all.lock);
    if (any)
        usm__meter_begin(l->ranks->team->meter, member);
    return any;
}

/* Index from which on nothing is wanted, because this chunk has found something; UINT64_MAX:
 * none. */
static uint64_t cut_of(const usm__ranks_launch *l, const usm__chunk_end *end)
{
    uint64_t from = UINT64_MAX;
    size_t   arg  = l->plan->found_arg, at;

    if (arg == USM__NO_ARG)
        return from;
    (void)usm__plan_copies(l->plan, end->chunk.count, arg, &at);
    (void)usm__merge_cuts(&l->plan->desc.args[arg], &end->chunk, (const char *)end->copies + at,
                          &from);
    return from;
}

static void ended(void *source, const usm__chunk_end *end)
{
    usm__ranks_launch *l        = source;
    usm_status         st       = end->status;
    bool               is_bytes = end->is_of_bytes;
    unsigned           flags    = 0;

    usm__meter_end(l->ranks->team->meter, &l->metering, 0, end->member,
                   end->end_ns ? end->end_ns : usm__os_now_ns());
    if (st == USM_OK && l->has_copies && end->copies_size > 0) {
        st       = usm__ranks_send_copies(l, end);
        is_bytes = st != USM_OK;
    }
    if (st == USM_OK)
        usm__team_add(l->ranks->team, end->member, 1, end->chunk.count, end->compute_ns,
                      end->compute_ns ? (double)end->chunk.count * 1e9 / (double)end->compute_ns
                                      : 0);
    if (is_bytes && st != USM_E_NO_MEMORY)
        flags = USM__WIRE_FATAL;
    else if (st != USM_OK && !is_bytes && usm__is_of_device(st))
        flags = USM__WIRE_ASIDE;
    if (flags == USM__WIRE_ASIDE)
        usm__team_set_aside(l->ranks->team, end->member, st);
    usm__mutex_lock(&usm__ranks_all.lock);
    if (st == USM_OK)
        usm__worker_done(&l->worker, end->member, end->chunk.id, end->compute_ns, cut_of(l, end));
    else if (st == USM_E_CANCELLED && end->chunk.first >= l->worker.cut) /* again() ended it */
        usm__worker_done(&l->worker, end->member, end->chunk.id, 0, UINT64_MAX);
    else
        usm__worker_failed(&l->worker, end->member, end->chunk.id, st, flags, usm_last_error());
    if (!may_keep(l)) {
        l->has_work = true; /* the member has room */
        (void)pthread_cond_signal(&l->changed);
    }
    usm__mutex_unlock(&usm__ranks_all.lock);
}

static bool again(void *source, uint32_t member, const usm__chunk *chunk, const void *copies)
{
    usm__ranks_launch *l = source;
    bool               goes_on;

    (void)member;
    (void)copies;
    usm__mutex_lock(&usm__ranks_all.lock);
    goes_on = !l->worker.is_over && chunk->first < l->worker.cut;
    usm__mutex_unlock(&usm__ranks_all.lock);
    return goes_on;
}

/* ---- received messages --------------------------------------------------------------------- */

/* The lock is not held. */
static void notify_progress(usm__ranks_launch *l, const usm__wire *msg)
{
    const usm__notified notified = {.now_ns      = usm__os_now_ns(),
                                    .total       = l->plan->total,
                                    .done        = msg->a,
                                    .chunks      = msg->b,
                                    .rescheduled = msg->c};
    const usm__wire     stop     = {.op = USM__WIRE_CANCEL};

    usm__mutex_lock(&usm__ranks_all.lock);
    for (uint32_t i = 0; i < l->ranks->total && 8 * (i + 1) <= msg->size; i++)
        l->parts[i].items = usm_get_le(msg->bytes + (size_t)8 * i, 8);
    usm__mutex_unlock(&usm__ranks_all.lock);
    usm__notifier_set_shares(&l->notifier, l->parts);
    if (usm__notifier_notify(&l->notifier, &notified))
        return;
    usm__mutex_lock(&usm__ranks_all.lock);
    usm__ranks_launch_post(l, l->ranks->master, &stop);
    usm__mutex_unlock(&usm__ranks_all.lock);
}

static void rank_is_lost(usm__ranks_launch *l, uint32_t rank, uint64_t now_ns)
{
    if (l->is_master) /* the master reports it to all */
        usm__master_lost(&l->master, rank, now_ns);
    else
        usm__worker_lost(&l->worker, rank);
}

static bool is_for_home(const usm__wire *msg)
{
    return msg->op == USM__WIRE_FETCH || msg->op == USM__WIRE_STORE ||
           msg->op == USM__WIRE_COPIES || msg->op == USM__WIRE_COUNTS ||
           msg->op == USM__WIRE_SETTLE;
}

/* What is to be done with a message without the lock. */
typedef enum errand {
    HANDLED,    /* nothing */
    FOR_HOME,   /* bytes are to be moved */
    FOR_PROGRAM /* its progress function is to be called */
} errand;

/* Handles one message.  The lock is held. */
static errand open_packet(usm__ranks_launch *l, const usm__packet *packet, usm__wire *msg)
{
    uint64_t now = usm__os_now_ns();

    if (packet->size == 0) {
        rank_is_lost(l, packet->rank, now);
        return HANDLED;
    }
    if (!usm__wire_decode(packet->bytes, packet->size, msg))
        return HANDLED;
    if (is_for_home(msg)) {
        if (!l->is_home)
            return HANDLED;
        if (msg->op == USM__WIRE_FETCH ||
            (msg->op == USM__WIRE_STORE && msg->size == USM__WIRE_PIECE))
            l->moved_ns = now;
        return FOR_HOME;
    }
    if (msg->op == USM__WIRE_PROGRESS && packet->rank == l->ranks->master && l->notifier.fn)
        return FOR_PROGRAM;
    if (msg->op == USM__WIRE_END && packet->rank == l->ranks->master && !l->worker.is_over)
        usm__ranks_add(l->ranks, msg);
    if (l->is_master)
        usm__master_receive(&l->master, packet->rank, msg, now);
    if (usm__worker_receive(&l->worker, packet->rank, msg))
        l->has_work = true;
    return HANDLED;
}

/* The lock is not held. */
static void open_packets(usm__ranks_launch *l)
{
    usm_list *it;

    usm__mutex_lock(&usm__ranks_all.lock);
    while ((it = usm_list_pop(&l->in))) {
        usm__packet *packet = usm_container_of(it, usm__packet, link);
        usm__wire    msg;
        errand       what = open_packet(l, packet, &msg);

        usm__mutex_unlock(&usm__ranks_all.lock);
        if (what == FOR_HOME)
            usm__ranks_home_receive(l, packet->rank, &msg);
        else if (what == FOR_PROGRAM)
            notify_progress(l, &msg);
        usm__heap_free(packet);
        usm__mutex_lock(&usm__ranks_all.lock);
    }
    usm__mutex_unlock(&usm__ranks_all.lock);
}

/* Reports that this rank takes no part in a launch, or no longer, with the calling thread's error
 * message.  The master tells all ranks, another rank tells the master.  The lock is not held; the
 * function allocates no memory. */
static void say_no(const usm__ranks *ranks, uint32_t launch, usm_status status)
{
    unsigned char  message[USM__WIRE_HEADER + USM__WIRE_FIGURES + USM__RANKS_STORY + 32];
    bool           is_master = ranks->self == ranks->master;
    unsigned char *bytes     = message + USM__WIRE_HEADER;
    size_t         head      = is_master ? USM__WIRE_FIGURES : USM__WIRE_SHAPE;
    usm__wire      msg       = {.op     = is_master ? USM__WIRE_END : USM__WIRE_READY,
                                .status = status,
                                .team   = ranks->id,
                                .launch = launch};
    usm__message   own;

    usm__message_save(&own);
    memset(message, 0, sizeof message);
    if (is_master)
        (void)snprintf((char *)bytes + head, USM__RANKS_STORY, "rank %u: %s", ranks->self,
                       usm_last_error());
    else
        (void)snprintf((char *)bytes + head, USM__RANKS_STORY, "%s", usm_last_error());
    msg.size = (uint32_t)(head + strlen((const char *)bytes + head));
    usm__wire_encode(&msg, message);
    for (uint32_t r = 0; r < ranks->count; r++)
        if (r != ranks->self && (is_master || r == ranks->master))
            (void)usm__job_send(r, USM__JOB_TEAMS, message, USM__WIRE_HEADER + msg.size);
    usm__message_restore(&own); /* the message of the failure here */
}

static const char *reason_of(usm_status broken)
{
    return broken == USM_E_NO_MEMORY ? "no host memory for messages of the launch"
           : broken == USM_E_MPI     ? "the process has left the job"
                                     : "messages of the launch cannot be sent";
}

/* If its messages cannot be sent any more.  The lock is not held. */
static void give_up_if_broken(usm__ranks_launch *l)
{
    usm_status broken;

    usm__mutex_lock(&usm__ranks_all.lock);
    broken          = l->has_given_up ? USM_OK : l->broken;
    l->has_given_up = l->broken != USM_OK;
    if (broken != USM_OK && l->is_master)
        usm__master_fail(&l->master, broken, reason_of(broken));
    if (broken != USM_OK)
        usm__worker_end(&l->worker, broken, reason_of(broken));
    usm__mutex_unlock(&usm__ranks_all.lock);
    if (broken != USM_OK)
        say_no(l->ranks, l->number, usm__fail(broken, "%s", reason_of(broken)));
}

/* Reports a member that has just fallen silent, here or on another rank.  No other member does the
 * chunks that a member of the data's rank writes in place. */
static void notify_of_silent(usm__ranks_launch *l, uint64_t now)
{
    const usm__schedule *ledger = l->master.ledger;

    for (uint32_t i = 0; ledger && i < l->ranks->total; i++) {
        usm__chunk chunk;
        uint64_t   ns;

        if (!usm__schedule_is_silent(ledger, i, now, &chunk, &ns)) {
            l->parts[i].is_notified = false;
            continue;
        }
        if (!l->parts[i].is_notified)
            usm__warn("team: no message from %s for %.1f s; it has %" PRIu64
                      " indices of kernel \"%s\" from %" PRIu64
                      " on, and gets no more work until they end",
                      l->ranks->names[i], (double)ns / 1e9, chunk.count, l->plan->desc.kernel->name,
                      chunk.first);
        l->parts[i].is_notified = true;
    }
}

/* ---- the thread ---------------------------------------------------------------------------- */

/* Sleeps for at most LOOK_NS, since nothing reports that the process has left the job. */
static void sleep_until(usm__ranks_launch *l, uint64_t at_ns)
{
    const uint64_t  look = usm__os_now_ns() + LOOK_NS, until = at_ns < look ? at_ns : look;
    struct timespec t = usm_timespec_of(until);

    if (usm_list_is_empty(&l->in) && usm_list_is_empty(&l->out) && !l->has_work &&
        l->broken == USM_OK)
        (void)usm__mutex_wait(&usm__ranks_all.lock, &l->changed, &t);
}

/* Whether bytes are being moved, without which a chunk cannot start. */
static bool moves_bytes(const usm__ranks_launch *l)
{
    USM_LIST_FOREACH (it, &l->transfers)
        if (usm_container_of(it, usm__ranks_transfer, link)->to)
            return true;
    return l->moved_ns > 0 && usm__os_now_ns() - l->moved_ns < MOVES_NS;
}

/* While members have chunks in reserve, the thread need not poll for messages all the time.
 * Copies, their acknowledgement, the result and the next grant may each be delayed by an eighth of
 * the time that the reserve lasts. */
static void be_patient(usm__ranks_launch *l)
{
    uint64_t ns = usm__ranks_all.launches == 1 ? usm__worker_slack_ns(&l->worker) / 8 : 0;

    if (ns > 0 && moves_bytes(l))
        ns = 0;
    if (ns > PATIENCE_NS)
        ns = PATIENCE_NS;
    if (ns < PATIENCE_NS / 16)
        ns = 0;
    if (ns == l->patience_ns || (ns / 2 < l->patience_ns && ns >= l->patience_ns / 2 && ns > 0))
        return;
    l->patience_ns = ns;
    usm__job_set_patience(ns);
}

/* The kept messages are sent before the ends of their chunks are reported. */
static void flush(usm__ranks_launch *l, uint64_t now)
{
    usm_list *it;

    while ((it = usm_list_pop(&l->kept)))
        usm_list_append(&l->out, it);
    l->nkept = 0;
    usm__worker_flush(&l->worker, now);
}

/* Posts what is due; returns when to look again.  The lock is held. */
static uint64_t tick(usm__ranks_launch *l)
{
    uint64_t now = usm__os_now_ns(), next = UINT64_MAX, own = UINT64_MAX;

    if (!may_keep(l) || now - l->worker.spoke_ns >= USM__RANKS_ALIVE_NS)
        flush(l, now);
    usm__worker_tick(&l->worker, now, &own);
    if (l->is_master) {
        usm__master_tick(&l->master, now, &next);
        notify_of_silent(l, now);
    }
    return own < next ? own : next;
}

/* The lock is not held.  False: the launch is over. */
static bool step(usm__ranks_launch *l)
{
    uint64_t next;
    bool     feeds, is_over;

    open_packets(l);
    usm__mutex_lock(&usm__ranks_all.lock);
    if (l->broken == USM_OK && !usm__job_is_attached())
        break_off(l, USM_E_MPI);
    usm__mutex_unlock(&usm__ranks_all.lock);
    give_up_if_broken(l);
    usm__mutex_lock(&usm__ranks_all.lock);
    next = tick(l);
    usm__mutex_unlock(&usm__ranks_all.lock);
    send_all(l);
    usm__mutex_lock(&usm__ranks_all.lock);
    feeds       = l->has_work && !l->worker.is_over;
    l->has_work = l->has_work && !feeds;
    usm__mutex_unlock(&usm__ranks_all.lock);
    if (feeds)
        usm__run_feed(l->run);
    usm__mutex_lock(&usm__ranks_all.lock);
    be_patient(l);
    if (!l->worker.is_over)
        sleep_until(l, next);
    is_over = l->worker.is_over;
    usm__mutex_unlock(&usm__ranks_all.lock);
    return !is_over;
}

static void free_packets(usm_list *list)
{
    usm_list *it;

    while (list->next && (it = usm_list_pop(list)))
        usm__heap_free(usm_container_of(it, usm__packet, link));
}

static void notify_end(usm__ranks_launch *l, usm_status status, const char *reason)
{
    usm_parallel_stats stats = l->worker.stats;

    stats.struct_size = sizeof stats;
    stats.wall_ns     = usm__os_now_ns() - l->start_ns;
    stats.sent        = l->sent;
    if (stats.wall_ns > 0)
        stats.spread = (double)l->worker.spread_ns / (double)stats.wall_ns;
    usm__run_get_bytes(l->run, &stats.bytes_in, &stats.bytes_out);
    if (status == USM_OK && l->notifier.fn) {
        const usm__notified notified = {.now_ns      = usm__os_now_ns(),
                                        .total       = l->plan->total,
                                        .done        = l->plan->total,
                                        .chunks      = stats.chunks,
                                        .rescheduled = stats.rescheduled,
                                        .is_end      = true};

        (void)usm__notifier_notify(&l->notifier, &notified);
    }
    usm__run_destroy(l->run);
    usm__meter_finish(l->ranks->team->meter, &l->metering, l->plan->desc.kernel->trace);
    l->run = NULL;
    if (status != USM_OK)
        (void)usm__fail(status, "%s", reason);
    l->over(l->over_arg, status, &stats);
}

static void run_launch(void *arg)
{
    usm__ranks_launch *l = arg;
    usm_status         status;
    bool               goes_on;
    char               reason[USM__RANKS_STORY];

    usm__mutex_lock(&usm__ranks_all.lock);
    usm__ranks_all.launches++;
    usm__worker_start(&l->worker, usm__os_now_ns());
    goes_on = !l->worker.is_over;
    usm__mutex_unlock(&usm__ranks_all.lock);
    while (goes_on)
        goes_on = step(l);
    send_all(l);
    give_up_if_broken(l); /* others may not have received the end */
    usm__mutex_lock(&usm__ranks_all.lock);
    usm__ranks_all.launches--;
    be_patient(l);
    (void)pthread_cond_broadcast(&l->moved);
    usm__mutex_unlock(&usm__ranks_all.lock);
    usm__run_quiesce(l->run);
    usm__mutex_lock(&usm__ranks_all.lock);
    usm_list_remove(&l->link);
    status = l->worker.status;
    memcpy(reason, l->worker.reason, sizeof reason);
    usm__mutex_unlock(&usm__ranks_all.lock);
    notify_end(l, status, reason);
    usm__mutex_lock(&usm__ranks_all.lock);
    l->is_gone = true;
    (void)pthread_cond_broadcast(&l->changed);
    usm__mutex_unlock(&usm__ranks_all.lock);
}

/* ---- start ------------------------------------------------------------------------------ */

static usm_status start_master(usm__ranks_launch *l)
{
    const usm__plan   *p      = l->plan;
    usm__master_params params = {.nranks     = l->ranks->count,
                                 .self       = l->ranks->self,
                                 .home       = p->desc.home,
                                 .nmembers   = l->ranks->nmembers,
                                 .shape      = l->shape,
                                 .has_copies = l->has_copies,
                                 .depth      = l->ranks->team->depth,
                                 .send       = send_as_master,
                                 .arg        = l};
    usm_status         st;

    params.progress_ms = p->desc.progress_ms ? p->desc.progress_ms : 200;
    params.silence_ns  = usm__plan_silence_ns(p);
    params.ledger      = (usm__schedule_params){.total      = p->total,
                                                .multiple   = p->multiple,
                                                .min_chunk  = p->desc.min_chunk,
                                                .max_chunk  = p->max_chunk,
                                                .nworkers   = l->ranks->total,
                                                .policy     = p->policy,
                                                .numbers    = p->desc.policy.numbers,
                                                .nnumbers   = p->desc.policy.nnumbers,
                                                .weights    = p->desc.policy.weights,
                                                .may_repeat = p->may_repeat};
    st                 = usm__chunk_policy_check(&params.ledger);
    return st == USM_OK ? usm__master_init(&l->master, &params) : st;
}

static usm_status start_worker(usm__ranks_launch *l)
{
    const usm_team          *team   = l->ranks->team;
    const usm__worker_params params = {.nmembers       = team->nmembers,
                                       .master         = l->ranks->master,
                                       .home           = l->plan->desc.home,
                                       .shape          = l->shape,
                                       .takes_part     = l->takes_part,
                                       .total          = l->plan->total,
                                       .max_chunk      = l->plan->max_chunk,
                                       .wants_progress = l->plan->desc.progress != NULL,
                                       .send           = send_as_worker,
                                       .arg            = l};

    memcpy(l->shape, l->plan->shape, USM__WIRE_SHAPE);
    for (uint32_t i = 0; i < team->nmembers && i < sizeof l->takes_part; i++)
        l->takes_part[i] = usm__run_has(l->run, i);
    return usm__worker_init(&l->worker, &params);
}

static usm_status check(const usm__ranks *ranks, const usm__plan *plan)
{
    const usm_parallel_desc *d = &plan->desc;

    if (d->home >= ranks->count || ranks->nmembers[d->home] == 0)
        return usm__fail(
            USM_E_INVALID,
            "usm_parallel: the rank of the data (home) is %u, and the team has %u ranks%s", d->home,
            ranks->count, d->home < ranks->count ? "; that one was lost before it was made" : "");
    if (d->policy.nweights && d->policy.nweights != ranks->total)
        return usm__fail(USM_E_INVALID,
                         "usm_parallel: %zu %s for a team that has %u %s on all ranks",
                         d->policy.nweights, usm__plural(d->policy.nweights, "weight", "weights"),
                         ranks->total, usm__plural(ranks->total, "member", "members"));
    if (d->resume)
        return usm__fail(USM_E_NOT_SUPPORTED,
                         "usm_parallel: resume is for teams of one process; over ranks a launch "
                         "survives the loss of ranks without a file");
    return USM_OK;
}

static usm_status fill(usm__ranks_launch *l)
{
    const usm_parallel_desc *d      = &l->plan->desc;
    const usm__run_params    params = {.team   = l->ranks->team,
                                       .plan   = l->plan,
                                       .bytes  = &usm__bytes_ranks,
                                       .from   = l,
                                       .take   = take,
                                       .ended  = ended,
                                       .again  = again,
                                       .source = l};
    usm_status               st     = check(l->ranks, l->plan);

    l->is_master = l->ranks->self == l->ranks->master;
    l->is_home   = l->ranks->self == d->home;
    l->plan->may_wait |= !l->is_home;
    for (size_t i = 0; i < d->nargs; i++) {
        l->has_copies |=
            d->args[i].follow == USM_FOLLOW_PRIVATE && d->args[i].merge != USM_MERGE_NONE;
        l->plan->may_wait |= d->args[i].mode == USM_READ_WRITE;
    }
    if (st == USM_OK)
        st = usm__meter_open(l->ranks->team->meter, 1, &l->metering);
    if (st == USM_OK)
        st = usm__run_create(&params, &l->run);
    if (st == USM_OK)
        st = start_worker(l);
    if (st == USM_OK && l->is_master)
        st = start_master(l);
    if (st == USM_OK && l->is_home)
        st = usm__ranks_home_init(l);
    l->parts = usm__heap_alloc(l->ranks->total * sizeof *l->parts);
    if (st == USM_OK && !l->parts)
        st = usm__fail(USM_E_NO_MEMORY, "no host memory for a launch over ranks");
    if (st == USM_OK)
        st = usm__notifier_init(&l->notifier, l->plan, l->ranks->total, l->start_ns);
    return st;
}

static usm__ranks_launch *make(usm__ranks *ranks, usm__plan *plan)
{
    usm__ranks_launch *l = usm__heap_alloc(sizeof *l);

    if (!l) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for a launch over ranks");
        return NULL;
    }
    l->ranks    = ranks;
    l->plan     = plan;
    l->start_ns = usm__os_now_ns();
    usm_list_init(&l->link);
    usm_list_init(&l->in);
    usm_list_init(&l->out);
    usm_list_init(&l->kept);
    usm_list_init(&l->transfers);
    (void)usm_cond_init_monotonic(&l->changed);
    (void)usm_cond_init_monotonic(&l->moved);
    return l;
}

static void discard(usm__ranks_launch *l)
{
    usm__meter_close(l->ranks->team->meter, &l->metering);
    usm__run_destroy(l->run);
    free_packets(&l->in);
    free_packets(&l->out);
    free_packets(&l->kept);
    usm__master_fini(&l->master);
    usm__worker_fini(&l->worker);
    usm__ranks_home_fini(l);
    usm__notifier_fini(&l->notifier);
    usm__ranks_bytes_end(l);
    usm__heap_free(l->parts);
    (void)pthread_cond_destroy(&l->changed);
    (void)pthread_cond_destroy(&l->moved);
    usm__heap_free(l);
}

usm_status usm__ranks_start(usm__ranks *ranks, usm__plan *plan, usm__ranks_over_fn *over, void *arg,
                            usm__ranks_launch **out)
{
    usm__ranks_launch *l  = make(ranks, plan);
    usm_status         st = l ? fill(l) : USM_E_NO_MEMORY;
    usm__message       reason;
    int                error = 0;

    if (st == USM_OK) {
        l->over     = over;
        l->over_arg = arg;
        *out        = l; /* `over` may be called before this function returns */
        usm__mutex_lock(&usm__ranks_all.lock);
        error = usm__os_thread(run_launch, l, "usm-team");
        if (error == 0)
            usm__ranks_register(ranks, l);
        usm__mutex_unlock(&usm__ranks_all.lock);
        if (error == 0)
            return USM_OK;
        *out = NULL;
        st   = usm__fail(error == ENOMEM ? USM_E_NO_MEMORY : USM_E_SYSTEM,
                       "no thread for a launch over ranks: error %d", error);
    }
    usm__ranks_refuse(ranks, st);
    usm__message_save(&reason);
    if (l)
        discard(l);
    usm__message_restore(&reason);
    return st;
}

/* ---- the rest --------------------------------------------------------------------------- */

void usm__ranks_refuse(usm__ranks *ranks, usm_status status)
{
    uint32_t launch;

    usm__mutex_lock(&usm__ranks_all.lock);
    launch = usm__ranks_skip(ranks);
    usm__mutex_unlock(&usm__ranks_all.lock);
    say_no(ranks, launch, status);
}

void usm__ranks_cancel(usm__ranks_launch *l)
{
    const usm__wire msg = {.op = USM__WIRE_CANCEL};

    usm__mutex_lock(&usm__ranks_all.lock);
    if (!l->worker.is_over)
        usm__ranks_launch_post(l, l->ranks->master, &msg);
    usm__mutex_unlock(&usm__ranks_all.lock);
}

uint64_t usm__ranks_merged(const usm__ranks_launch *l)
{
    uint64_t merged;

    usm__mutex_lock(&usm__ranks_all.lock);
    merged = l->worker.merged;
    usm__mutex_unlock(&usm__ranks_all.lock);
    return merged;
}

void usm__ranks_release(usm__ranks_launch *l)
{
    if (!l)
        return;
    usm__mutex_lock(&usm__ranks_all.lock);
    while (!l->is_gone)
        (void)usm__mutex_wait(&usm__ranks_all.lock, &l->changed, NULL);
    usm__mutex_unlock(&usm__ranks_all.lock);
    discard(l);
}
