/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A launch in progress on the members of this process: which slot takes a chunk, and when.
 *
 * A slot (usm__lane) that has room asks the source for a chunk, opens the chunk's bytes, and queues
 * its commands.  When they have ended, a thread of the core continues with the slot: it closes the
 * bytes, reports the end to the source, and asks for the next chunk.  Short chunks are submitted in
 * batches (batch.c).  A slot for which the source has no chunk rests until usm__run_feed().  Before
 * the first chunk, the arguments that are read as a whole are brought to the members, once.
 *
 * Bytes of buffers may be held by others (USM_E_AGAIN).  These can be other slots of this launch,
 * since all slots together may need more memory than the limit allows.  Such a slot keeps its
 * chunk, closes what it had opened, and waits until another slot closes its bytes.  It fails only
 * if no other slot holds anything.
 *
 * The lock is not held while anything waits, nor during calls to the source.  `busy` counts the
 * slots at work: when it is 0, nothing calls the source any more. */
#include "offload/run.h"

#include "offload/launch_sim.h"
#include "offload/tune.h"

#include "base/os.h"
#include "base/trace_work.h"

#include <string.h>

static void work(usm__lane *s);

static usm__run_member *member_of(const usm__lane *s)
{
    return &s->run->members[s->member->index];
}

/* ---- rest and work --------------------------------------------------------------------------- */

static unsigned feeds_so_far(usm__run *run)
{
    unsigned n;

    usm__mutex_lock(&run->lock);
    n = run->feeds;
    usm__mutex_unlock(&run->lock);
    return n;
}

static void leave_locked(usm__run *run)
{
    if (--run->busy == 0)
        pthread_cond_broadcast(&run->quiescent);
}

/* False: usm__run_feed() was called after the slot had asked. */
static bool rest(usm__lane *s, unsigned feeds)
{
    usm__run *run = s->run;
    bool      rests;

    usm__mutex_lock(&run->lock);
    rests = run->feeds == feeds;
    if (rests) {
        usm__lane_become(s, USM__LANE_RESTING);
        run->awake--;
        leave_locked(run);
    }
    usm__mutex_unlock(&run->lock);
    return rests;
}

static bool claim(usm__lane *s)
{
    usm__run *run = s->run;
    bool      mine;

    usm__mutex_lock(&run->lock);
    mine = usm__lane_state_of(s) == USM__LANE_RESTING;
    if (mine) {
        usm__lane_become(s, USM__LANE_AWAKE);
        run->awake++;
        run->busy++;
    }
    usm__mutex_unlock(&run->lock);
    return mine;
}

/* ---- bytes that others hold ---------------------------------------------------------------- */

static void work_on(usm__executor_job *job);

static void hold(usm__run *run)
{
    usm__mutex_lock(&run->lock);
    run->holding++;
    usm__mutex_unlock(&run->lock);
}

/* Slots that wait for bytes try again. */
static void let_go(usm__run *run)
{
    usm__lane *list;

    usm__mutex_lock(&run->lock);
    run->holding--;
    list        = run->parked;
    run->parked = NULL;
    for (usm__lane *s = list; s; s = s->next)
        usm__lane_become(s, USM__LANE_AWAKE);
    usm__mutex_unlock(&run->lock);
    while (list) {
        usm__lane *s = list;

        list = s->next;
        usm__executor_post(&s->job);
    }
}

/* True: the slot waits, and belongs to another thread from here on.  False: no other slot holds
 * anything. */
static bool park(usm__lane *s)
{
    usm__run *run = s->run;
    bool      parked;

    usm__mutex_lock(&run->lock);
    run->holding--;
    parked = run->holding > 0;
    if (parked) {
        s->next     = run->parked;
        run->parked = s;
        usm__lane_become(s, USM__LANE_PARKED);
    }
    usm__mutex_unlock(&run->lock);
    return parked;
}

/* ---- one chunk ----------------------------------------------------------------------------- */

static void notify(usm__lane *s, usm_status status, bool is_of_bytes)
{
    usm__run_params *p   = &s->run->params;
    usm__chunk_end   end = {.member      = s->member->index,
                            .chunk       = s->chunk,
                            .status      = status,
                            .is_of_bytes = is_of_bytes,
                            .compute_ns  = status == USM_OK ? s->compute_ns : 0,
                            .end_ns      = s->end_ns,
                            .copies      = s->host,
                            .copies_size = usm__plan_copies_size(p->plan, s->chunk.count)};

    if (s->began_ns > 0 && usm__trace_is_on())
        usm__lane_notify_chunk(s, status);
    s->began_ns = s->compute_ns = s->end_ns = 0;
    p->ended(p->source, &end);
}

/* The commands of the chunk have ended, or were never queued. */
static void end_chunk(usm__lane *s, usm_status status)
{
    usm_status closed = usm__lane_close(s, status);

    let_go(s->run);
    if (status == USM_OK && closed != USM_OK)
        notify(s, closed, true);
    else
        notify(s, status, false);
}

typedef enum beginning {
    ENDED,  /* it failed, and this was reported */
    PARKED, /* it waits for bytes, and belongs to another thread */
    QUEUED
} beginning;

static beginning begin(usm__lane *s)
{
    usm__run        *run   = s->run;
    usm__run_member *rm    = member_of(s);
    usm_status       st    = run->status;
    int              tries = 0;

    if (st != USM_OK) {
        usm__message_restore(&run->message);
        notify(s, st, true);
        return ENDED;
    }
    do {
        hold(run);
        st = usm__lane_open(s);
        if (st == USM_E_AGAIN && park(s))
            return PARKED;
    } while (st == USM_E_AGAIN && tries++ == 0); /* one more try while no other slot holds any */
    if (st != USM_OK) {
        if (st != USM_E_AGAIN)
            let_go(run);
        notify(s, st, true);
        return ENDED;
    }
    st = rm->status;
    if (st == USM_OK)
        st = usm__lane_begin(s, rm);
    else
        usm__message_restore(&rm->message);
    if (st == USM_OK)
        return QUEUED;
    end_chunk(s, st);
    return ENDED;
}

static usm_status name_failure(const usm__lane *s, usm_status status)
{
    return usm__fail(status, "kernel \"%s\" failed on %s: %s",
                     s->run->params.plan->desc.kernel->name, s->member->name,
                     usm_status_name(status));
}

/* status: of the last chunk of the batch. */
static void end_batch(usm__lane *s, usm_status status)
{
    usm__batch_time(s);
    for (usm__lane *w = s; w != s->last; w = w->behind) {
        usm_status own = usm__batch_status(w);

        end_chunk(w, own == USM_OK ? USM_OK : name_failure(w, own));
    }
    end_chunk(s->last, status);
}

/* The slot has a chunk, and takes more while chunks are short.  True: they are in progress, or the
 * first one waits for bytes. */
static bool depart(usm__lane *s)
{
    usm__run_params *p   = &s->run->params;
    beginning        how = begin(s);
    usm__lane       *w;
    usm_status       st;

    if (how != QUEUED)
        return how == PARKED;
    s->last = s;
    if (usm__tune_explores(member_of(s)->tune))
        s->length = 1;
    for (unsigned n = 1; n < s->length && (w = usm__lane_behind(s->last)) != NULL; n++) {
        if (!p->take_more(p->source, s->member->index, &w->chunk) || begin(w) != QUEUED)
            break;
        s->last = w;
    }
    st = usm__lane_watch(s);
    if (st != USM_OK)
        end_batch(s, st);
    return st == USM_OK;
}

/* Whether the slot must wait, because its member's first slot is trying sizes of work-groups,
 * alone. */
static bool is_held(usm__lane *s)
{
    usm__run_member *rm = member_of(s);

    if (s == rm->first || !usm__tune_explores(rm->tune))
        return false;
    usm__mutex_lock(&s->run->lock);
    rm->holds = true;
    usm__mutex_unlock(&s->run->lock);
    return usm__tune_explores(rm->tune);
}

static void let_others_take(usm__lane *s)
{
    usm__run_member *rm = member_of(s);
    bool             held;

    if (!rm->tune || usm__tune_explores(rm->tune))
        return;
    usm__mutex_lock(&s->run->lock);
    held      = rm->holds;
    rm->holds = false;
    usm__mutex_unlock(&s->run->lock);
    if (held)
        usm__run_feed(s->run);
}

static void work(usm__lane *s)
{
    usm__run_params *p = &s->run->params;

    for (;;) {
        unsigned feeds = feeds_so_far(s->run);

        if (!is_held(s) && p->take(p->source, s->member->index, &s->chunk)) {
            if (depart(s))
                return;
        } else if (rest(s, feeds)) {
            return;
        }
    }
}

/* Continues with a slot that has a chunk whose bytes others held. */
static void work_on(usm__executor_job *job)
{
    usm__lane *s = usm_container_of(job, usm__lane, job);

    s->job.run = work_on;
    if (!depart(s))
        work(s);
}

static void work_first(usm__executor_job *job)
{
    usm__lane *s = usm_container_of(job, usm__lane, job);

    s->job.run = work_on;
    work(s);
}

/* A round has ended, and another follows.  Stores the chunk's state if it is time.  False: what the
 * chunk wrote must be copied to the host first. */
static bool keep(usm__lane *s, bool is_left)
{
    usm__run_params *p          = &s->run->params;
    uint64_t         now        = p->keep ? usm__os_now_ns() : 0;
    bool             is_storing = usm__lane_state_of(s) == USM__LANE_STORING;

    if (!p->keep || !(is_storing || is_left || now - s->kept_ns >= p->keep_ns))
        return true;
    if (!is_storing && !s->member->uses_host_memory) {
        usm__lane_become(s, USM__LANE_STORING);
        return false;
    }
    if (is_storing)
        usm__lane_become(s, USM__LANE_ROUND);
    s->kept_ns = now;
    p->keep(p->source, &s->chunk, s->pieces, s->host);
    return true;
}

/* True: the chunk goes on. */
static bool go_on(usm__lane *s, usm_status *status)
{
    usm__run_params *p = &s->run->params;

    if (usm__lane_state_of(s) == USM__LANE_LAST)
        return false;
    if (usm__lane_wants_more(s)) {
        bool goes_on = p->again(p->source, s->member->index, &s->chunk, s->host);

        if (!keep(s, !goes_on)) {
            *status = usm__lane_bring_back(s);
        } else if (!goes_on) {
            *status = usm__fail(USM_E_CANCELLED, "the launch was cancelled");
            return false;
        } else {
            *status = usm__lane_again(s);
        }
    } else if (s->member->uses_host_memory) {
        return false;
    } else {
        *status = usm__lane_bring_back(s);
    }
    return *status == USM_OK;
}

void usm__run_step_ended(usm__lane *s, usm_status status)
{
    bool has_marks = s->nmarks > 0;

    for (usm__lane *w = s; has_marks; w = w->behind) {
        usm__lane_notify_marks(w, s->last);
        has_marks = w != s->last;
    }
    if (status != USM_OK)
        status = name_failure(s, status);
    else if (go_on(s, &status))
        return;
    end_batch(s, status);
    let_others_take(s);
    work(s);
}

/* ---- before the first chunk ---------------------------------------------------------------- */

static usm_status open_whole(usm__run *run, size_t i)
{
    usm__run_params     *p = &run->params;
    const usm_split_arg *a = &p->plan->desc.args[i];

    if (a->size == 0)
        return USM_OK;
    return p->bytes->open(p->from, i, 0, a->size, USM_READ, &run->wholes[i]);
}

static usm_status read_begin(usm__run *run, size_t i)
{
    usm__run_params     *p     = &run->params;
    const usm_split_arg *a     = &p->plan->desc.args[i];
    usm__piece           piece = {0};
    usm_status           st;

    run->begin[i] = usm__heap_alloc(a->size);
    if (!run->begin[i])
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a private copy of %zu bytes",
                         a->size);
    st = p->bytes->open(p->from, i, 0, a->size, USM_READ, &piece);
    if (st != USM_OK)
        return st;
    usm__merge_begin(a, piece.ptr, run->begin[i]);
    return p->bytes->close(p->from, i, 0, USM_READ, &piece, USM_OK);
}

static void bring(usm__run *run)
{
    const usm_parallel_desc *d = &run->params.plan->desc;

    for (size_t i = 0; run->status == USM_OK && i < d->nargs; i++) {
        if (d->args[i].follow == USM_FOLLOW_WHOLE)
            run->status = open_whole(run, i);
        else if (d->args[i].follow == USM_FOLLOW_PRIVATE)
            run->status = read_begin(run, i);
    }
    if (run->status != USM_OK) {
        usm__message_save(&run->message);
        return;
    }
    for (uint32_t i = 0; i < run->nlanes; i++) {
        usm__lane       *s  = run->lanes[i];
        usm__run_member *rm = member_of(s);

        if (rm->is_brought || s->member->uses_host_memory)
            continue;
        rm->status = usm__lane_bring_whole(s, rm);
        if (rm->status != USM_OK)
            usm__message_save(&rm->message);
        rm->is_brought = true;
    }
}

/* Waits for the copies to members first: nobody may have waited for them yet. */
static void let_wholes_go(usm__run *run)
{
    usm__run_params *p = &run->params;

    for (uint32_t i = 0; run->members && i < p->team->nmembers; i++) {
        if (run->members[i].ready)
            (void)usm_event_wait(run->members[i].ready);
        usm_event_release(run->members[i].ready);
        run->members[i].ready = NULL;
    }
    for (size_t i = 0; run->wholes && i < p->plan->desc.nargs; i++)
        if (run->wholes[i].ptr)
            (void)p->bytes->close(p->from, i, 0, USM_READ, &run->wholes[i], USM_OK);
}

void usm__run_end(usm__run *run)
{
    bool is_ready;

    usm__mutex_lock(&run->lock);
    run->is_over = true;
    is_ready     = run->stage == USM__RUN_READY;
    usm__mutex_unlock(&run->lock);
    if (is_ready)
        let_wholes_go(run);
}

static void prepare(usm__run *run)
{
    bool is_over;

    bring(run);
    usm__mutex_lock(&run->lock);
    run->stage = USM__RUN_READY;
    is_over    = run->is_over;
    usm__mutex_unlock(&run->lock);
    if (is_over)
        let_wholes_go(run);
    usm__run_feed(run);
    usm__mutex_lock(&run->lock);
    leave_locked(run);
    usm__mutex_unlock(&run->lock);
}

static void prepare_job(usm__executor_job *job)
{
    prepare(usm_container_of(job, usm__run, job));
}

void usm__run_feed(usm__run *run)
{
    bool           may_wait = run->params.plan->may_wait || run->params.bytes != &usm__bytes_local;
    usm__run_stage stage;
    bool           is_full;

    usm__mutex_lock(&run->lock);
    run->feeds++;
    stage   = run->stage;
    is_full = run->awake == run->nlanes;
    if (stage == USM__RUN_NEW) {
        run->stage = USM__RUN_PREPARING;
        run->busy++;
    }
    usm__mutex_unlock(&run->lock);
    if (stage == USM__RUN_NEW && may_wait)
        usm__executor_post(&run->job);
    else if (stage == USM__RUN_NEW)
        prepare(run);
    if (stage != USM__RUN_READY || is_full)
        return;
    for (uint32_t i = 0; i < run->nlanes; i++) {
        usm__lane *s = run->lanes[i];

        if (!claim(s))
            continue;
        if (may_wait) {
            s->job.run = work_first;
            usm__executor_post(&s->job);
        } else {
            work(s);
        }
    }
}

/* ---- a run's life -------------------------------------------------------------------------- */

static usm_status get_slots(usm__run *run)
{
    usm_team *team = run->params.team;
    size_t    most = (size_t)team->nmembers * team->depth;

    run->lanes = usm__heap_alloc(most * sizeof(usm__lane *));
    if (!run->lanes)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a launch");
    for (uint32_t depth = 0; depth < team->depth; depth++)
        for (uint32_t i = 0; i < team->nmembers; i++) {
            usm__lane *s;

            if (!run->members[i].kernel)
                continue;
            s = usm__lane_get(team, &team->members[i], run->params.plan->desc.nargs,
                              depth == 0 && usm__tune_explores(run->members[i].tune));
            if (!s)
                return usm_last_status();
            if (depth == 0)
                run->members[i].first = s;
            s->run     = run;
            s->length  = 1;
            s->job.run = work_first;
            usm__lane_become(s, USM__LANE_RESTING);
            usm_list_init(&s->job.link);
            run->lanes[run->nlanes++] = s;
        }
    return USM_OK;
}

static usm_status fill(usm__run *run)
{
    usm_team        *team = run->params.team;
    usm_team_kernel *k    = run->params.plan->desc.kernel;
    size_t           n    = run->params.plan->desc.nargs ? run->params.plan->desc.nargs : 1;

    run->members = usm__heap_alloc(team->nmembers * sizeof *run->members);
    run->wholes  = usm__heap_alloc(n * sizeof *run->wholes);
    run->begin   = usm__heap_alloc(n * sizeof *run->begin);
    if (!run->members || !run->wholes || !run->begin)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a launch");
    for (uint32_t i = 0; i < team->nmembers; i++) {
        run->members[i].member = &team->members[i];
        if (usm__team_is_well(team, i) && usm__trial_has(team, k, i))
            run->members[i].kernel = k->kernels[i];
        if (run->members[i].kernel)
            run->members[i].tune = usm__tune_find(k, i, run->params.plan);
    }
    return get_slots(run);
}

usm_status usm__run_create(const usm__run_params *params, usm__run **out)
{
    usm__run  *run;
    usm_status st = usm__executor_reserve();

    if (st != USM_OK)
        return st;
    run = usm__heap_alloc(sizeof *run);
    if (!run)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a launch");
    run->params      = *params;
    run->has_batches = usm__batch_is_possible(params);
    usm__mutex_init(&run->lock, USM__RANK_RUN, "run");
    (void)pthread_cond_init(&run->quiescent, NULL);
    usm_list_init(&run->job.link);
    run->job.run = prepare_job;
    st           = fill(run);
    if (st != USM_OK) {
        usm__run_destroy(run);
        return st;
    }
    *out = run;
    return USM_OK;
}

bool usm__run_has(const usm__run *run, uint32_t member)
{
    return run->members[member].kernel != NULL;
}

void usm__run_quiesce(usm__run *run)
{
    usm__mutex_lock(&run->lock);
    while (run->busy > 0)
        (void)usm__mutex_wait(&run->lock, &run->quiescent, NULL);
    usm__mutex_unlock(&run->lock);
}

static void let_bytes_go(usm__run *run)
{
    usm__run_params *p = &run->params;

    let_wholes_go(run);
    for (size_t i = 0; run->begin && i < p->plan->desc.nargs; i++)
        usm__heap_free(run->begin[i]);
    for (uint32_t i = 0; run->members && i < p->team->nmembers; i++)
        if (run->members[i].whole)
            usm_pool_free(run->members[i].member->pool, run->members[i].whole);
}

void usm__run_destroy(usm__run *run)
{
    if (!run)
        return;
    let_bytes_go(run);
    for (uint32_t i = 0; i < run->nlanes; i++)
        usm__lane_put(run->params.team, run->lanes[i]);
    usm__heap_free(run->lanes);
    usm__heap_free(run->members);
    usm__heap_free(run->wholes);
    usm__heap_free(run->begin);
    usm__mutex_fini(&run->lock);
    (void)pthread_cond_destroy(&run->quiescent);
    usm__heap_free(run);
}

void usm__run_get_bytes(usm__run *run, uint64_t *in, uint64_t *out)
{
    *in  = usm_load_relaxed(&run->in);
    *out = usm_load_relaxed(&run->out);
}
