/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Batches: several short chunks are submitted in a row, with one completion.
 *
 * The problem.  When a chunk ends, the driver's thread hands its completion to a thread of the
 * core, which submits the next chunk.  The two hand-overs cost 20 us of processor time or more,
 * however short the chunk is.
 *
 * The mechanism.  Several short chunks are submitted to one in-order queue.  Each has its own
 * memory, commands and events, but only the completion of the last one calls back.  In the code a
 * batch is a "train", and a slot a "lane":
 *
 *     slot        [chunk 7]    in, kernel, out     owns the queue
 *       behind    [chunk 8]    in, kernel, out
 *         behind  [chunk 9]    in, kernel, out     its completion calls usm__run_step_ended(slot)
 *
 * For the scheduler the member just has more chunks in progress: each is handed out, ends or fails,
 * is merged, reported and traced separately.  When each of them ended was not observed: the time of
 * the batch is divided among them in proportion to their indices.
 *
 * The length of a batch: as many chunks as take TRAIN_NS, of which the hand-overs are 1 % or 2 %;
 * at most twice as many as the previous batch had, so that one wrong measurement does little harm;
 * and only as many as fit in TRAIN_BYTES, because their memory is kept.  Near the end of a launch
 * the scheduler hands out fewer: a member with a long batch would keep the others waiting.
 *
 * There are no batches where a chunk may have to wait for its bytes (buffers, other ranks), since
 * the first chunks of a batch would then wait for the last ones, and none where chunks have several
 * rounds. */
#include "offload/run.h"

#include "base/os.h"

#define TRAIN_NS    2e6
#define TRAIN_BYTES ((double)(64u << 20))

bool usm__batch_is_possible(const usm__run_params *p)
{
    return p->take_more && p->bytes == &usm__bytes_local && !p->plan->may_wait &&
           p->plan->state_arg == USM__NO_ARG;
}

static uint64_t count_indices(const usm__lane *s)
{
    uint64_t n = 0;

    for (const usm__lane *w = s; w != s->last; w = w->behind)
        n += w->chunk.count;
    return n + s->last->chunk.count;
}

void usm__batch_begin(usm__lane *s)
{
    usm__run_member *rm = &s->run->members[s->member->index];

    s->began_ns = usm__os_now_ns();
    usm__mutex_lock(&s->run->lock);
    s->ended_before = rm->ended;
    usm__mutex_unlock(&s->run->lock);
}

/* Returns the batch's share of the time since it began: in that time the member did indices of
 * other slots too.  Measuring from one end to the next would need less state, but the ends of two
 * slots are often noticed at the same moment, and the second would then seem to have taken no
 * time. */
static uint64_t take_time(usm__lane *s, uint64_t n, uint64_t now, uint64_t *from)
{
    usm__run_member *rm     = &s->run->members[s->member->index];
    double           passed = now > s->began_ns ? (double)(now - s->began_ns) : 1, ns;

    usm__mutex_lock(&s->run->lock);
    rm->ended += n;
    ns    = passed * (double)n / (double)(rm->ended - s->ended_before);
    *from = rm->last_end_ns > s->began_ns ? rm->last_end_ns : s->began_ns;
    if (*from >= now)
        *from = now - 1;
    rm->last_end_ns = now;
    usm__mutex_unlock(&s->run->lock);
    return ns > 1 ? (uint64_t)ns : 1;
}

/* Two batches take much less time than the silence after which a device is reported. */
static double longest_ns(const usm__lane *s)
{
    double silence_ns = 1e6 * s->run->params.plan->desc.silence_ms;

    return silence_ns > 0 && silence_ns / 8 < TRAIN_NS ? silence_ns / 8 : TRAIN_NS;
}

/* n chunks took `ns`. */
static unsigned length(const usm__lane *s, unsigned n, uint64_t ns)
{
    double most = longest_ns(s) * n / (double)ns, bytes = (double)(s->mem_size + s->host_size);

    if (most > 2.0 * n)
        most = 2.0 * n;
    if (most > USM__TRAIN_MAX)
        most = USM__TRAIN_MAX;
    if (most * bytes > TRAIN_BYTES)
        most = TRAIN_BYTES / bytes;
    return most > 1 && s->run->has_batches ? (unsigned)most : 1;
}

void usm__batch_time(usm__lane *s)
{
    uint64_t all = count_indices(s), now = usm__os_now_ns(), done = 0, from;
    uint64_t ns   = take_time(s, all, now, &from);
    double   each = (double)ns / (double)all, step = (double)(now - from) / (double)all;
    unsigned n = 0;

    for (usm__lane *w = s;; w = w->behind) {
        n++;
        done += w->chunk.count;
        w->end_ns     = w == s->last ? now : from + (uint64_t)((double)done * step);
        w->compute_ns = 1 + (uint64_t)((double)w->chunk.count * each);
        if (w == s->last)
            break;
    }
    s->length = length(s, n, ns);
}

usm_status usm__batch_status(usm__lane *w)
{
    usm_status st = usm_event_query(w->tail);

    return st == USM_E_NOT_READY ? usm_event_wait(w->tail) : st;
}
