/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The scheduler state of one launch, first half: which indices are free, and which worker has which
 * chunk.  schedule_end.c has the ends of chunks (results, failures, silence), schedule_range.c what
 * is skipped, cut off, left and done.
 *
 *     fresh ranges --cut off--> GIVEN --result--> done
 *                                 |  ^
 *          lost, failed, silent   v  | handed out again, whole or in parts
 *                                BACK
 *
 *  - Fresh indices, which were never handed out, are ranges in order; a chunk is cut off the first.
 *  - A record describes a chunk that is not done.  Done chunks need no record: an index is done if
 *    it is neither fresh nor in a record.
 *  - A holding is a chunk that a worker has in progress.  A worker has at most `depth` batches of
 *    them.  The record of a holding may be gone, because another worker's result came first.  Ids
 *    are never used twice, so comparing them shows this.
 *  - The holders of a record are its holdings that are not overdue.  A given record without holders
 *    becomes free at once, if chunks may be repeated.
 *
 * Bounds.  Fresh indices are handed out only while no record is BACK.  Every record then has a
 * holder or, where nothing may be repeated, had one that is lost.  So there are at most twice as
 * many records as holdings, not counting the parts of BACK records, which are made only while there
 * is room.  All memory is allocated at the beginning.  Handing out and ending a chunk look at the
 * holdings of one worker, and at what the policy looks at.
 *
 * Duplicates.  At the end, when nothing is free, a chunk may be handed to a second worker while the
 * first still has it.  It is the oldest chunk that the second worker should finish sooner than the
 * first by 1/64 of the time that the launch has taken so far.  For less gain the work would be done
 * twice for nothing, and a network would carry its results twice. */
#include "offload/schedule_private.h"

#include "base/assert.h"
#include "base/os.h"

#include <string.h>

#define LEAST_SILENCE_NS 1000000000u /* the default */
#define LEAST_GAIN       64          /* of the time so far: one part in this many */
#define LONGEST_NS       1e15        /* of a prediction: about eleven days */

/* --- records -------------------------------------------------------------------------------- */

static record_list *list_of(usm__schedule *s, const record *r)
{
    return r->state == RECORD_BACK ? &s->back : &s->given;
}

void usm__schedule_record_unlink(usm__schedule *s, uint32_t i)
{
    record      *r = &s->records[i];
    record_list *l = list_of(s, r);

    if (r->prev == USM__NO_RECORD)
        l->head = r->next;
    else
        s->records[r->prev].next = r->next;
    if (r->next == USM__NO_RECORD)
        l->tail = r->prev;
    else
        s->records[r->next].prev = r->prev;
    if (r->state == RECORD_BACK && usm__is_wanted(s, r))
        s->back_left -= r->count;
}

/* Links a record after `after`; USM__NO_RECORD: at the head. */
static void link_behind(usm__schedule *s, record_list *l, uint32_t after, uint32_t i)
{
    record *r = &s->records[i];

    r->prev = after;
    r->next = after == USM__NO_RECORD ? l->head : s->records[after].next;
    if (r->prev == USM__NO_RECORD)
        l->head = i;
    else
        s->records[r->prev].next = i;
    if (r->next == USM__NO_RECORD)
        l->tail = i;
    else
        s->records[r->next].prev = i;
}

void usm__schedule_record_link_given(usm__schedule *s, uint32_t i)
{
    s->records[i].state = RECORD_GIVEN;
    link_behind(s, &s->given, s->given.tail, i);
}

void usm__schedule_record_link_back(usm__schedule *s, uint32_t i)
{
    uint32_t after = s->back.tail;
    record  *r     = &s->records[i];

    while (after != USM__NO_RECORD && s->records[after].first > r->first)
        after = s->records[after].prev;
    r->state     = RECORD_BACK;
    r->came_back = true;
    link_behind(s, &s->back, after, i);
    if (usm__is_wanted(s, r))
        s->back_left += r->count;
}

void usm__schedule_record_release(usm__schedule *s, uint32_t i)
{
    record *r = &s->records[i];

    usm__schedule_record_unlink(s, i);
    if (usm__is_wanted(s, r))
        s->live--;
    r->state  = RECORD_UNUSED;
    r->next   = s->unused;
    s->unused = i;
}

/* The new record is in no list yet. */
static uint32_t make_record(usm__schedule *s, uint64_t first, uint64_t count)
{
    uint32_t i = s->unused;

    usm_assert(i != USM__NO_RECORD);
    s->unused     = s->records[i].next;
    s->records[i] = (record){.id = s->next_id++, .first = first, .count = count};
    s->live++;
    return i;
}

/* --- create --------------------------------------------------------------------------------- */

static uint32_t most_held(const usm__schedule *s)
{
    return s->p.depth * s->p.batch;
}

static void init_members(usm__schedule *s)
{
    const usm__schedule_params *p = &s->p;

    for (uint32_t i = 0; i < p->nworkers; i++) {
        s->members[i]      = (usm_policy_member){.weight  = p->weights != NULL ? p->weights[i] : 1,
                                                 .watts   = p->watts != NULL ? p->watts[i] : 0,
                                                 .is_well = true};
        s->workers[i].held = &s->holdings[(size_t)i * most_held(s)];
    }
    s->state = (usm_policy_state){.struct_size = sizeof(s->state),
                                  .total       = p->total,
                                  .remaining   = p->total,
                                  .depth       = p->depth,
                                  .nmembers    = p->nworkers,
                                  .members     = s->members,
                                  .numbers     = p->numbers,
                                  .nnumbers    = p->nnumbers};
}

static void init_records(usm__schedule *s)
{
    for (uint32_t i = 0; i < s->nrecords; i++)
        s->records[i].next = i + 1 < s->nrecords ? i + 1 : USM__NO_RECORD;
    s->given = s->back = (record_list){USM__NO_RECORD, USM__NO_RECORD};
}

usm__schedule *usm__schedule_create(const usm__schedule_params *params)
{
    usm__schedule *s       = usm__heap_alloc(sizeof(*s));
    double        *numbers = NULL;
    size_t         nheld;

    if (s == NULL)
        return NULL;
    s->p = *params;
    if (s->p.depth == 0)
        s->p.depth = 1;
    if (s->p.batch == 0)
        s->p.batch = 1;
    nheld = (size_t)params->nworkers * most_held(s);
    if (s->p.multiple == 0)
        s->p.multiple = 1;
    if (s->p.least_silence_ns == 0)
        s->p.least_silence_ns = LEAST_SILENCE_NS;
    s->nrecords  = (uint32_t)(2 * nheld + 2);
    s->fresh_cap = 4;
    s->members   = usm__heap_alloc(params->nworkers * sizeof(*s->members));
    s->workers   = usm__heap_alloc(params->nworkers * sizeof(*s->workers));
    s->holdings  = usm__heap_alloc(nheld * sizeof(*s->holdings));
    s->records   = usm__heap_alloc(s->nrecords * sizeof(*s->records));
    s->scratch   = usm__heap_alloc(s->nrecords * sizeof(*s->scratch));
    s->fresh     = usm__heap_alloc(s->fresh_cap * sizeof(*s->fresh));
    numbers      = usm__heap_alloc(params->nnumbers * sizeof(*numbers));
    s->p.numbers = numbers;
    if (s->members == NULL || s->workers == NULL || s->holdings == NULL || s->records == NULL ||
        s->scratch == NULL || s->fresh == NULL || numbers == NULL) {
        usm__schedule_destroy(s);
        return NULL;
    }
    if (params->nnumbers > 0)
        memcpy(numbers, params->numbers, params->nnumbers * sizeof(*numbers));
    init_members(s);
    init_records(s);
    s->p.weights = s->p.watts = NULL; /* copied to the members above */
    s->limit = s->fresh_left = params->total;
    s->fresh[0]              = (range){0, params->total};
    s->nfresh                = params->total > 0 ? 1 : 0;
    s->well                  = params->nworkers;
    s->begin_ns              = UINT64_MAX;
    return s;
}

void usm__schedule_destroy(usm__schedule *s)
{
    if (s == NULL)
        return;
    usm__heap_free(s->members);
    usm__heap_free(s->workers);
    usm__heap_free(s->holdings);
    usm__heap_free(s->records);
    usm__heap_free(s->scratch);
    usm__heap_free(s->fresh);
    usm__heap_free((void *)(uintptr_t)s->p.numbers);
    usm__heap_free(s);
}

/* --- fresh indices --------------------------------------------------------------------------- */

/* Cuts a chunk of about `size` indices off the first fresh range.  pre: fresh_left > 0 */
static uint32_t cut_fresh(usm__schedule *s, uint64_t size)
{
    range   *r   = &s->fresh[s->at];
    uint64_t end = r->end < s->limit ? r->end : s->limit;
    uint32_t i;

    if (size < end - r->first)
        end = r->first + size;
    i = make_record(s, r->first, end - r->first);
    s->fresh_left -= end - r->first;
    r->first = end;
    if (r->first == r->end)
        s->at++;
    usm__schedule_record_link_given(s, i);
    return i;
}

/* --- handing out ---------------------------------------------------------------------------- */

/* Whether another idle worker would get a chunk from the policy, which gives `w` none. */
static bool is_for_another(const usm__schedule *s, uint32_t w)
{
    for (uint32_t i = 0; i < s->p.nworkers; i++)
        if (i != w && s->members[i].is_well && s->workers[i].nheld < most_held(s) &&
            s->p.policy(&s->state, i) > 0)
            return true;
    return false;
}

/* How many indices the policy gives `w`, rounded to what the launch allows; 0: none. */
static uint64_t ask_policy(usm__schedule *s, uint32_t w, uint64_t remaining)
{
    const usm__schedule_params *p = &s->p;
    uint64_t                    n;

    s->state.remaining = remaining;
    s->state.given     = s->next_id;
    n                  = p->policy(&s->state, w);
    if (n == 0 && (s->active > 0 || is_for_another(s, w)))
        return 0;
    if (n < p->min_chunk)
        n = p->min_chunk;
    n = usm__round_up(n > 0 ? n : 1, p->multiple);
    if (p->max_chunk > 0 && n > p->max_chunk) {
        n = p->max_chunk - p->max_chunk % p->multiple;
        if (n == 0)
            n = p->multiple;
    }
    return n;
}

/* Splits a free chunk.  The parts get ids of their own, because a silent worker may still report a
 * result for the whole chunk. */
static uint32_t split_back(usm__schedule *s, uint32_t i, uint64_t size)
{
    record  *r = &s->records[i];
    uint32_t part, rest;

    part = make_record(s, r->first, size);
    rest = i;
    s->back_left -= size;
    s->records[part].attempts  = r->attempts;
    s->records[part].came_back = true;
    s->records[rest].id        = s->next_id++;
    s->records[rest].first += size;
    s->records[rest].count -= size;
    if (!usm__is_wanted(s, &s->records[rest])) { /* the cut of the launch is between the parts */
        s->back_left -= s->records[rest].count;
        s->live--;
        usm__schedule_record_release(s, rest);
    }
    return part;
}

/* Hands out a free chunk again: whole, unless it is more than twice as large as the policy gives
 * its new worker. */
static uint32_t give_back(usm__schedule *s, uint32_t i, uint64_t size)
{
    if (s->records[i].count / 2 > size && s->unused != USM__NO_RECORD)
        i = split_back(s, i, size);
    else
        usm__schedule_record_unlink(s, i);
    s->stats.rescheduled++;
    usm__schedule_record_link_given(s, i);
    return i;
}

static void hand_over(usm__schedule *s, uint32_t w, uint32_t i, uint64_t now_ns, usm__chunk *chunk)
{
    worker  *to = &s->workers[w];
    record  *r  = &s->records[i];
    holding *h  = &to->held[to->nheld++];

    if (now_ns < s->begin_ns)
        s->begin_ns = now_ns;
    *chunk = (usm__chunk){r->id, r->first, r->count, r->attempts++};
    *h     = (holding){.id           = r->id,
                       .count        = r->count,
                       .given_ns     = now_ns,
                       .since_ns     = now_ns,
                       .predicted_ns = usm__schedule_predict_ns(s, w, r->count),
                       .record       = i};
    r->holders++;
    r->worker = w;
    s->active++;
    s->members[w].flying += r->count;
}

uint64_t usm__schedule_predict_ns(const usm__schedule *s, uint32_t w, uint64_t count)
{
    const usm_policy_member *m = &s->members[w];
    double                   ns;

    if (!(m->speed > 0))
        return 0;
    ns = ((double)count / m->speed + m->cost) * 1e9;
    return ns < LONGEST_NS ? (uint64_t)ns + 1 : (uint64_t)LONGEST_NS;
}

/* In how many ns the worker that has the chunk should finish it.  A worker that is past the
 * predicted time is expected to take as long again as it has taken. */
static uint64_t expected_ns(const usm__schedule *s, const record *r, uint64_t now_ns)
{
    const worker *by    = &s->workers[r->worker];
    uint64_t      ahead = 0;

    for (uint32_t i = 0; i < by->nheld; i++) {
        const holding *h      = &by->held[i];
        uint64_t       passed = now_ns > h->since_ns ? now_ns - h->since_ns : 0;

        ahead += h->predicted_ns;
        if (h->id == r->id)
            return ahead > passed && h->predicted_ns > 0 ? ahead - passed : passed;
    }
    return UINT64_MAX; /* an earlier worker has it, not the one that got it last */
}

uint32_t usm__schedule_late_record(const usm__schedule *s, uint32_t w, uint64_t now_ns)
{
    const worker *to   = &s->workers[w];
    uint64_t      gain = now_ns > s->begin_ns ? (now_ns - s->begin_ns) / LEAST_GAIN : 0;

    if (!s->p.may_repeat || s->p.never_twice || to->nheld > 0 || to->is_silent ||
        !usm__worker_is_well(to))
        return USM__NO_RECORD;
    for (uint32_t i = s->given.head; i != USM__NO_RECORD; i = s->records[i].next) {
        const record *r  = &s->records[i];
        uint64_t      ns = usm__schedule_predict_ns(s, w, r->count);

        if (ns == 0)
            ns = s->p.least_silence_ns;
        if (!r->is_doubled && usm__is_wanted(s, r) && !usm__is_in_place(s, r) &&
            ns + gain < expected_ns(s, r, now_ns))
            return i;
    }
    return USM__NO_RECORD;
}

bool usm__schedule_take(usm__schedule *s, uint32_t w, uint64_t now_ns, usm__chunk *chunk)
{
    worker  *to = w < s->p.nworkers ? &s->workers[w] : NULL;
    uint32_t i;
    uint64_t size;

    if (to == NULL || !usm__worker_is_well(to) || to->is_silent || to->nheld == most_held(s))
        return false;
    if (s->fresh_left + s->back_left > 0) {
        size = ask_policy(s, w, s->fresh_left + s->back_left);
        if (size == 0)
            return false;
        i = s->back_left > 0 ? give_back(s, s->back.head, size) : cut_fresh(s, size);
    } else {
        i = usm__schedule_late_record(s, w, now_ns);
        if (i == USM__NO_RECORD || ask_policy(s, w, s->records[i].count) == 0)
            return false;
        s->records[i].is_doubled = true;
        s->stats.duplicated++;
    }
    hand_over(s, w, i, now_ns, chunk);
    return true;
}

/* Indices per second of all workers that may get chunks.  One that was not measured counts as fast
 * as `w`. */
static double speed_of_all(const usm__schedule *s, uint32_t w)
{
    double sum = 0;

    for (uint32_t i = 0; i < s->p.nworkers; i++)
        if (s->members[i].is_well)
            sum += s->members[s->members[i].speed > 0 ? i : w].speed;
    return sum;
}

/* Only while what the worker has in progress takes it no longer than half of what is left takes all
 * workers together. */
bool usm__schedule_take_more(usm__schedule *s, uint32_t w, uint64_t now_ns, usm__chunk *chunk)
{
    const usm_policy_member *m = w < s->p.nworkers ? &s->members[w] : NULL;

    if (m == NULL || s->back_left > 0 || !(m->speed > 0) ||
        2 * (double)m->flying * speed_of_all(s, w) > (double)s->fresh_left * m->speed)
        return false;
    return usm__schedule_take(s, w, now_ns, chunk);
}
