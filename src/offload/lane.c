/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One chunk on one device.
 *
 * Where the device can use host pointers, the kernel works in place.  Elsewhere the chunk's bytes
 * are copied to the slot's memory, and what the kernel wrote is copied back: by commands, or where
 * that memory is in the host's reach and the pieces are small, by the threads that begin and end
 * the chunk.  Each command depends on the one queued before it, so that a failure stops those that
 * follow.  The event of the last
 * one reports that the chunk has ended, and possibly those before it in a batch (batch.c).  Nothing
 * here waits for the device unless queuing fails half-way, and once the slot's memory has grown to
 * what chunks need, nothing is allocated.
 *
 *     mem    [chunk argument] [chunk argument] ... [private copies of all arguments]
 *     host   [private copies of all arguments] [snapshot] [snapshot] ...
 *
 * A slot's states.  A slot behind another (batch.c) is AWAKE from the moment it joins the launch.
 *
 *     SPARE <-> RESTING <-> AWAKE <-> PARKED
 *                             |         |
 *                             +----+----+                    USM_E_AGAIN: back
 *                                  v
 *                                OPEN
 *                                  v
 *                              LAID_OUT -------+
 *                                  v           |
 *               STORING <------> ROUND         | one round only
 *                                  v           v
 *                                 LAST <-------+
 *
 *     OPEN and what follows it --> AWAKE: the chunk has ended, or failed */
#include "offload/run.h"
#include "offload/tune.h"

#include "base/os.h"
#include "base/trace_work.h"
#include "device/context.h"
#include "program/program.h"

#include <string.h>

#define ALIGN       ((size_t)256)
#define ALIGNED(n)  (((n) + ALIGN - 1) & ~(ALIGN - 1))
#define PLAN(lane)  ((lane)->run->params.plan)
#define NARGS(lane) (PLAN(lane)->desc.nargs)

#define HOST_COPY_MAX ((size_t)64 << 10)

/* ---- states -------------------------------------------------------------------------------- */

#define TO(state) (1u << USM__LANE_##state)

static const uint16_t allowed[] = {
    [USM__LANE_SPARE]    = TO(RESTING) | TO(AWAKE),
    [USM__LANE_RESTING]  = TO(SPARE) | TO(AWAKE),
    [USM__LANE_AWAKE]    = TO(SPARE) | TO(RESTING) | TO(PARKED) | TO(OPEN),
    [USM__LANE_PARKED]   = TO(AWAKE),
    [USM__LANE_OPEN]     = TO(AWAKE) | TO(LAID_OUT),
    [USM__LANE_LAID_OUT] = TO(AWAKE) | TO(ROUND) | TO(LAST),
    [USM__LANE_ROUND]    = TO(AWAKE) | TO(STORING) | TO(LAST),
    [USM__LANE_STORING]  = TO(AWAKE) | TO(ROUND),
    [USM__LANE_LAST]     = TO(AWAKE),
};

bool usm__lane_is_valid(const usm__lane *s, usm__lane_state from, usm__lane_state to)
{
    bool has_bytes = to >= USM__LANE_OPEN;

    return (allowed[from] >> to & 1) && (s->run == NULL) == (to == USM__LANE_SPARE) &&
           (s->npieces > 0) <= has_bytes && (s->tail != NULL) <= has_bytes &&
           (!(to == USM__LANE_ROUND || to == USM__LANE_STORING) ||
            PLAN(s)->state_arg != USM__NO_ARG) &&
           !(to == USM__LANE_STORING && s->member->uses_host_memory);
}

/* ---- slots of a team ----------------------------------------------------------------------- */

static void destroy(usm__lane *s)
{
    if (s->queue != s->member->queue)
        usm_queue_destroy(s->queue);
    while (s) {
        usm__lane *behind = s->behind;

        if (s->mem)
            usm_pool_free(s->member->pool, s->mem);
        usm__heap_free(s->host);
        usm__heap_free(s->args);
        usm__heap_free(s->pieces);
        usm__heap_free(s->places);
        usm__heap_free(s);
        s = behind;
    }
}

void usm__lanes_destroy(usm__lane *list)
{
    while (list) {
        usm__lane *next = list->next;

        destroy(list);
        list = next;
    }
}

static usm_status make_room_for_args(usm__lane *s, size_t nargs)
{
    if (nargs <= s->nargs && s->args)
        return USM_OK;
    usm__heap_free(s->args);
    usm__heap_free(s->pieces);
    usm__heap_free(s->places);
    s->nargs  = 0;
    s->args   = usm__heap_alloc(nargs * sizeof *s->args);
    s->pieces = usm__heap_alloc(nargs * sizeof *s->pieces);
    s->places = usm__heap_alloc(nargs * sizeof *s->places);
    if (s->args && s->pieces && s->places) {
        s->nargs = nargs;
        return USM_OK;
    }
    return usm__fail(USM_E_NO_MEMORY, "no host memory for %zu arguments", nargs);
}

static usm__lane *take_spare(usm_team *team, usm__member *member, bool wants_times)
{
    usm__lane **at, *s;

    usm__mutex_lock(&team->lock);
    at = &member->spare;
    while (*at && wants_times && !(*at)->has_times)
        at = &(*at)->next;
    s = *at;
    if (s)
        *at = s->next;
    usm__mutex_unlock(&team->lock);
    return s;
}

static usm__lane *make(usm__member *member, bool wants_times)
{
    usm_queue_desc desc = USM_QUEUE_DESC_INIT;
    usm__lane     *s    = usm__heap_alloc(sizeof *s);

    if (!s) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for a chunk of a team");
        return NULL;
    }
    s->member    = member;
    s->queue     = member->queue;
    s->has_times = (wants_times || member->queue || usm__trace_is_on()) &&
                   usm_device_has(member->device, USM_ASPECT_QUEUE_PROFILING);
    if (s->queue)
        return s;
    if (s->has_times)
        desc.flags |= USM_QUEUE_PROFILING;
    if (usm_queue_create(member->context, member->device, &desc, &s->queue) == USM_OK)
        return s;
    usm__heap_free(s);
    return NULL;
}

usm__lane *usm__lane_get(usm_team *team, usm__member *member, size_t nargs, bool wants_times)
{
    usm__lane *s = take_spare(team, member, wants_times);

    if (!s)
        s = make(member, wants_times);
    if (!s || make_room_for_args(s, nargs) == USM_OK)
        return s;
    destroy(s);
    return NULL;
}

void usm__lane_put(usm_team *team, usm__lane *s)
{
    usm__lane *w = s;

    do {
        if (w->nmarks > 0)
            usm__lane_notify_marks(w, w);
        w->run           = NULL;
        w->launch.kernel = NULL;
        if (usm__lane_state_of(w) != USM__LANE_SPARE) /* a slot behind may be in no launch */
            usm__lane_become(w, USM__LANE_SPARE);
        w = w->behind;
    } while (w);
    usm__mutex_lock(&team->lock);
    s->next          = s->member->spare;
    s->member->spare = s;
    usm__mutex_unlock(&team->lock);
}

/* Grows the slot's memory.  Its old content is not kept. */
static usm_status grow(usm__lane *s, size_t mem, size_t host)
{
    if (host > s->host_size) {
        usm__heap_free(s->host);
        s->host_size = 0;
        s->host      = usm__heap_alloc(host);
        if (!s->host)
            return usm__fail(USM_E_NO_MEMORY, "no host memory for %zu bytes of a chunk", host);
        s->host_size = host;
    }
    if (mem > s->mem_size) {
        if (s->mem)
            usm_pool_free(s->member->pool, s->mem);
        s->mem_size = 0;
        s->mem      = usm_pool_aligned_alloc(s->member->pool, ALIGN, mem);
        if (!s->mem)
            return usm_last_status();
        s->mem_size = mem;
    }
    return USM_OK;
}

usm__lane *usm__lane_behind(usm__lane *s)
{
    usm__lane *w = s->behind;

    if (!w) {
        w = usm__heap_alloc(sizeof *w);
        if (!w)
            return NULL;
        w->member = s->member;
        w->queue  = s->queue;
        s->behind = w;
    }
    if (w->run == s->run)
        return w;
    if (make_room_for_args(w, NARGS(s)) != USM_OK || grow(w, s->mem_size, s->host_size) != USM_OK)
        return NULL;
    w->run = s->run;
    usm__lane_become(w, USM__LANE_AWAKE);
    return w;
}

/* ---- commands, one after the other --------------------------------------------------------- */

static void follow(usm__lane *s, usm_event *ev)
{
    usm_event_release(s->tail);
    s->tail = ev;
}

static usm_status copy(usm__lane *s, usm__trace_work_kind kind, void *dst, const void *src,
                       size_t n)
{
    usm_event *ev;
    usm_status st;

    if (n == 0)
        return USM_OK;
    st = usm_memcpy(s->queue, dst, src, n, s->tail ? 1 : 0, &s->tail, &ev);
    if (st == USM_OK && usm__trace_is_on())
        usm__lane_mark(s, kind, n, ev);
    if (st == USM_OK)
        follow(s, ev);
    return st;
}

/* Whether the thread that begins or ends the chunk copies n bytes itself.  For each command PoCL
 * wakes several threads, which costs as much as some 100 KiB copied.  More than HOST_COPY_MAX is
 * left to the device, because the caller of usm_parallel_start() may be that thread.  A chunk with
 * rounds sees its copies in between. */
static bool is_by_host(const usm__lane *s, size_t n)
{
    return s->member->is_in_reach && n <= HOST_COPY_MAX && PLAN(s)->state_arg == USM__NO_ARG;
}

static void copy_by_host(usm__lane *s, usm__trace_work_kind kind, void *dst, const void *src,
                         size_t n)
{
    bool     is_traced = usm__trace_is_on();
    uint64_t began     = is_traced ? usm__os_now_ns() : 0;

    if (n == 0)
        return;
    memcpy(dst, src, n);
    if (is_traced)
        usm__lane_notify_copy(s, kind, n, usm__os_now_ns() - began);
}

static usm_status copy_in(usm__lane *s, void *dst, const void *src, size_t n)
{
    (void)usm_add_relaxed(&s->run->in, (uint64_t)n);
    if (!is_by_host(s, n))
        return copy(s, USM__WORK_IN, dst, src, n);
    copy_by_host(s, USM__WORK_IN, dst, src, n);
    return USM_OK;
}

/* What the host copies waits for fetch(). */
static usm_status copy_out(usm__lane *s, void *dst, const void *src, size_t n)
{
    (void)usm_add_relaxed(&s->run->out, (uint64_t)n);
    return is_by_host(s, n) ? USM_OK : copy(s, USM__WORK_OUT, dst, src, n);
}

/* Some commands were queued, and the rest could not be.  Waits for the queued ones, so that none
 * uses bytes after they are closed. */
static usm_status give_up(usm__lane *s, usm_status status)
{
    usm__message message;

    usm__message_save(&message);
    if (s->tail)
        (void)usm_event_wait(s->tail);
    follow(s, NULL);
    usm__message_restore(&message);
    return status;
}

static void step_ended(usm__completion *c)
{
    usm__lane *s = usm_container_of(c, usm__lane, done);

    usm__run_step_ended(s, c->status);
}

/* After a success the slot belongs to another thread. */
usm_status usm__lane_watch(usm__lane *s)
{
    usm_event *tail = s->last->tail;
    usm_status st   = usm__completion_arm(&s->done, tail->ctx->be, tail->native, step_ended);

    return st == USM_OK ? USM_OK : give_up(s->last, st);
}

usm_status usm__lane_bring_whole(usm__lane *s, usm__run_member *rm)
{
    const usm__plan *plan = PLAN(s);
    size_t           size = 0, at = 0;
    usm_status       st = USM_OK;

    for (size_t i = 0; i < plan->desc.nargs; i++)
        if (plan->desc.args[i].follow == USM_FOLLOW_WHOLE)
            size += ALIGNED(plan->desc.args[i].size);
    if (size == 0)
        return USM_OK;
    rm->whole = usm_pool_aligned_alloc(rm->member->pool, ALIGN, size);
    if (!rm->whole)
        return usm_last_status();
    for (size_t i = 0; st == USM_OK && i < plan->desc.nargs; i++) {
        if (plan->desc.args[i].follow != USM_FOLLOW_WHOLE)
            continue;
        st = copy_in(s, rm->whole + at, s->run->wholes[i].ptr, plan->desc.args[i].size);
        at += ALIGNED(plan->desc.args[i].size);
    }
    if (st != USM_OK)
        return give_up(s, st);
    rm->ready = s->tail;
    s->tail   = NULL;
    return USM_OK;
}

/* ---- arguments ----------------------------------------------------------------------------- */

/* Sets the arguments that are the same for all chunks. */
static void set_once(usm__lane *s, const usm__run_member *rm)
{
    const usm_parallel_desc *d  = &PLAN(s)->desc;
    size_t                   at = 0;

    s->launch        = (usm_launch)USM_LAUNCH_INIT;
    s->launch.kernel = rm->kernel;
    s->launch.dims   = d->dims;
    s->launch.nargs  = d->nargs;
    s->launch.args   = s->args;
    memcpy(s->launch.offset, d->offset, sizeof d->offset);
    memcpy(s->launch.global, d->global, sizeof d->global);
    memcpy(s->launch.local, d->local, sizeof d->local);
    for (size_t i = 0; i < d->nargs; i++) {
        const usm_split_arg *a = &d->args[i];

        if (a->follow == USM_FOLLOW_VALUE) {
            s->args[i] = (usm_arg){USM_ARG_VALUE, a->size, a->host};
        } else if (a->follow == USM_FOLLOW_SCRATCH) {
            s->args[i] = (usm_arg){USM_ARG_LOCAL, a->size, NULL};
        } else if (a->follow == USM_FOLLOW_WHOLE && a->size) {
            s->args[i] = USM_ARG_PTR(rm->whole ? rm->whole + at : s->run->wholes[i].ptr);
            at += ALIGNED(a->size);
        } else {
            s->args[i] = USM_ARG_PTR(NULL);
        }
    }
    if (rm->ready && usm_event_retain(rm->ready) == USM_OK)
        follow(s, rm->ready); /* the slot's first command runs after these copies */
}

static bool is_chunk(const usm__lane *s, size_t i)
{
    return PLAN(s)->desc.args[i].follow == USM_FOLLOW_CHUNK;
}

static usm_access_mode mode_of(const usm__lane *s, size_t i)
{
    return PLAN(s)->desc.args[i].mode;
}

static bool is_snapshotted(const usm__lane *s, size_t i)
{
    return is_chunk(s, i) && mode_of(s, i) == USM_READ_WRITE &&
           (PLAN(s)->desc.flags & USM_PARALLEL_SNAPSHOT);
}

/* Computes where the chunk's bytes go, and grows the memory accordingly. */
static usm_status lay_out(usm__lane *s)
{
    size_t copies = usm__plan_copies_size(PLAN(s), s->chunk.count);
    size_t mem = 0, host = ALIGNED(copies);

    for (size_t i = 0; i < NARGS(s); i++) {
        if (!is_chunk(s, i))
            continue;
        s->places[i] = mem;
        mem += ALIGNED(s->pieces[i].size);
        if (is_snapshotted(s, i))
            host += ALIGNED(s->pieces[i].size);
    }
    for (size_t i = 0; i < NARGS(s); i++)
        if (PLAN(s)->desc.args[i].follow == USM_FOLLOW_PRIVATE) {
            size_t at;

            (void)usm__plan_copies(PLAN(s), s->chunk.count, i, &at);
            s->places[i] = mem + at;
        }
    return grow(s, s->member->uses_host_memory ? 0 : mem + copies, host);
}

/* Initializes private copies, and makes snapshots of what is read and written. */
static void begin_host(usm__lane *s)
{
    size_t aside = ALIGNED(usm__plan_copies_size(PLAN(s), s->chunk.count));

    for (size_t i = 0; i < NARGS(s); i++) {
        const usm_split_arg *a = &PLAN(s)->desc.args[i];
        size_t               at, n;

        if (is_snapshotted(s, i)) {
            memcpy(s->host + aside, s->pieces[i].ptr, s->pieces[i].size);
            aside += ALIGNED(s->pieces[i].size);
        }
        if (a->follow != USM_FOLLOW_PRIVATE)
            continue;
        n = usm__plan_copies(PLAN(s), s->chunk.count, i, &at);
        for (size_t k = 0; k < n; k += a->size)
            memcpy(s->host + at + k, s->run->begin[i], a->size);
    }
}

static void put_back(usm__lane *s)
{
    size_t aside = ALIGNED(usm__plan_copies_size(PLAN(s), s->chunk.count));

    for (size_t i = 0; i < s->npieces; i++)
        if (is_snapshotted(s, i)) {
            memcpy(s->pieces[i].ptr, s->host + aside, s->pieces[i].size);
            aside += ALIGNED(s->pieces[i].size);
        }
}

/* ---- bytes --------------------------------------------------------------------------------- */

static usm_status close_all(usm__lane *s, usm_status status)
{
    const usm__run_params *p  = &s->run->params;
    usm_status             st = USM_OK;

    while (s->npieces > 0) {
        size_t     i = --s->npieces, offset, size, skip;
        usm_status one;

        if (!is_chunk(s, i))
            continue;
        usm__plan_window(p->plan, i, &s->chunk, &offset, &size, &skip);
        one = p->bytes->close(p->from, i, offset, mode_of(s, i), &s->pieces[i], status);
        if (st == USM_OK)
            st = one;
    }
    return st;
}

usm_status usm__lane_open(usm__lane *s)
{
    const usm__run_params *p  = &s->run->params;
    usm_status             st = USM_OK;

    for (s->npieces = 0; s->npieces < NARGS(s); s->npieces++) {
        size_t i = s->npieces, offset, size, skip;

        if (!is_chunk(s, i))
            continue;
        usm__plan_window(p->plan, i, &s->chunk, &offset, &size, &skip);
        s->pieces[i].attempt = s->chunk.attempt;
        st = p->bytes->open(p->from, i, offset, size, mode_of(s, i), &s->pieces[i]);
        if (st != USM_OK)
            break;
    }
    if (st == USM_OK) {
        usm__lane_become(s, USM__LANE_OPEN);
        return USM_OK;
    }
    (void)close_all(s, st); /* ending accesses writes no error message */
    return st;
}

/* The chunk has ended well: copies what the device wrote and no command has copied. */
static void fetch(usm__lane *s)
{
    for (size_t i = 0; i < NARGS(s); i++) {
        const usm_split_arg *a  = &PLAN(s)->desc.args[i];
        char                *to = NULL;
        size_t               n  = 0, at;

        if (a->follow == USM_FOLLOW_PRIVATE) {
            n  = usm__plan_copies(PLAN(s), s->chunk.count, i, &at);
            to = s->host + at;
        } else if (is_chunk(s, i) && (a->mode & USM_WRITE)) {
            n  = s->pieces[i].size;
            to = s->pieces[i].ptr;
        }
        if (to && is_by_host(s, n))
            copy_by_host(s, USM__WORK_OUT, to, s->mem + s->places[i], n);
    }
}

usm_status usm__lane_close(usm__lane *s, usm_status status)
{
    usm__tune_lane_over(s, status);
    follow(s, NULL);
    if (status == USM_OK && s->member->is_in_reach)
        fetch(s);
    if (status != USM_OK && usm__lane_state_of(s) >= USM__LANE_LAID_OUT)
        put_back(s);
    status = close_all(s, status);
    usm__lane_become(s, USM__LANE_AWAKE);
    return status;
}

/* ---- the chunk ----------------------------------------------------------------------------- */

static void point(usm__lane *s)
{
    uint32_t dim = PLAN(s)->dim;
    char    *mem = s->member->uses_host_memory ? NULL : s->mem;

    s->launch.offset[dim] = PLAN(s)->desc.offset[dim] + s->chunk.first;
    s->launch.global[dim] = s->chunk.count;
    if (!s->member->is_native)
        usm__plan_local(PLAN(s), s->chunk.count, s->launch.local);
    usm__tune_lane_begin(s);
    for (size_t i = 0; i < NARGS(s); i++) {
        const usm_split_arg *a = &PLAN(s)->desc.args[i];
        size_t               offset, size, skip;

        if (a->follow == USM_FOLLOW_CHUNK) {
            usm__plan_window(PLAN(s), i, &s->chunk, &offset, &size, &skip);
            s->args[i].value = (mem ? mem + s->places[i] : (char *)s->pieces[i].ptr) + skip;
        } else if (a->follow == USM_FOLLOW_PRIVATE) {
            (void)usm__plan_copies(PLAN(s), s->chunk.count, i, &offset);
            s->args[i].value = mem ? mem + s->places[i] : s->host + offset;
        }
    }
}

/* is_brought: the chunk continues from a stored state. */
static usm_status queue_ins(usm__lane *s, bool is_brought)
{
    usm_status st = USM_OK;

    for (size_t i = 0; st == USM_OK && i < NARGS(s); i++) {
        if (is_chunk(s, i) && ((mode_of(s, i) & USM_READ) || is_brought))
            st = copy_in(s, s->mem + s->places[i], s->pieces[i].ptr, s->pieces[i].size);
        else if (PLAN(s)->desc.args[i].follow == USM_FOLLOW_PRIVATE) {
            size_t at, n = usm__plan_copies(PLAN(s), s->chunk.count, i, &at);

            st = copy_in(s, s->mem + s->places[i], s->host + at, n);
        }
    }
    return st;
}

/* Queues the kernel.  Pointers that are the same for all chunks of a launch are checked for the
 * first chunk only, since the check calls the driver or the system. */
static usm_status launch(usm__lane *s, usm_event **ev)
{
    const usm_launch *l  = &s->launch;
    usm__run_member  *rm = &s->run->members[s->member->index];
    usm_status        st;

    if (usm_load_relaxed(&rm->is_checked))
        return usm__launch_checked(s->queue, l, s->tail ? 1 : 0, &s->tail, ev);
    st = usm_queue_submit(s->queue, l, s->tail ? 1 : 0, &s->tail, ev);
    if (st == USM_OK && l->global[0] && l->global[1] && l->global[2])
        usm_store_relaxed(&rm->is_checked, true);
    return st;
}

static usm_status queue_kernel(usm__lane *s)
{
    usm_event *ev;
    usm_status st = launch(s, &ev);

    if (st != USM_OK && usm__tune_lane_refused(s))
        st = launch(s, &ev);
    if (st == USM_OK)
        usm__tune_lane_queued(s, ev);
    if (st == USM_OK && usm__trace_is_on())
        usm__lane_mark(s, USM__WORK_KERNEL, s->chunk.count, ev);
    if (st == USM_OK)
        follow(s, ev);
    return st;
}

static usm_status queue_copies_out(usm__lane *s)
{
    usm_status st = USM_OK;

    for (size_t i = 0; st == USM_OK && i < NARGS(s); i++)
        if (PLAN(s)->desc.args[i].follow == USM_FOLLOW_PRIVATE) {
            size_t at, n = usm__plan_copies(PLAN(s), s->chunk.count, i, &at);

            st = copy_out(s, s->host + at, s->mem + s->places[i], n);
        }
    return st;
}

static usm_status queue_outs(usm__lane *s)
{
    usm_status st = USM_OK;

    for (size_t i = 0; st == USM_OK && i < NARGS(s); i++)
        if (is_chunk(s, i) && (mode_of(s, i) & USM_WRITE))
            st = copy_out(s, s->pieces[i].ptr, s->mem + s->places[i], s->pieces[i].size);
    return st;
}

/* Queues the kernel and the copies of its results to the host. */
static usm_status queue_round(usm__lane *s)
{
    usm_status st = queue_kernel(s);

    if (st != USM_OK || s->member->uses_host_memory)
        return st;
    st = queue_copies_out(s);
    if (st == USM_OK && usm__lane_state_of(s) == USM__LANE_LAST)
        st = queue_outs(s);
    return st;
}

usm_status usm__lane_begin(usm__lane *s, usm__run_member *rm)
{
    const usm__run_params *p = &s->run->params;
    usm_status             st;
    bool                   is_brought;

    if (!s->launch.kernel)
        set_once(s, rm);
    st = lay_out(s);
    if (st != USM_OK)
        return give_up(s, st);
    begin_host(s);
    usm__lane_become(s, USM__LANE_LAID_OUT);
    is_brought = p->bring && p->bring(p->source, &s->chunk, s->pieces, s->host);
    point(s);
    usm__batch_begin(s);
    s->kept_ns = s->began_ns;
    if (!s->member->uses_host_memory)
        st = queue_ins(s, is_brought);
    usm__lane_become(s, PLAN(s)->state_arg != USM__NO_ARG ? USM__LANE_ROUND : USM__LANE_LAST);
    if (st == USM_OK)
        st = queue_round(s);
    return st == USM_OK ? USM_OK : give_up(s, st);
}

usm_status usm__lane_again(usm__lane *s)
{
    usm_status st = queue_round(s);

    return st == USM_OK ? usm__lane_watch(s) : give_up(s, st);
}

usm_status usm__lane_bring_back(usm__lane *s)
{
    usm_status st = queue_outs(s);

    if (usm__lane_state_of(s) == USM__LANE_ROUND)
        usm__lane_become(s, USM__LANE_LAST);
    return st == USM_OK ? usm__lane_watch(s) : give_up(s, st);
}

bool usm__lane_wants_more(const usm__lane *s)
{
    size_t               i = PLAN(s)->state_arg, at, n;
    const usm_split_arg *a = &PLAN(s)->desc.args[i];

    n = usm__plan_copies(PLAN(s), s->chunk.count, i, &at);
    for (size_t k = 0; k < n; k += a->size) {
        int32_t state;

        memcpy(&state, s->host + at + k, sizeof state);
        if (state == USM_RUN_AGAIN)
            return true;
    }
    return false;
}
