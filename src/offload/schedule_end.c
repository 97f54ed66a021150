/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The scheduler state, second half (schedule.c): results, failures, losses and silence, and what
 * they say about the workers' speeds. */
#include "offload/schedule_private.h"

#include "base/assert.h"

#include <string.h>

#define SPEED_NEW 0.5 /* weight of the last chunk in the moving average */
#define OVERDUE   4   /* times the predicted time */

/* --- speed ----------------------------------------------------------------------------------- */

/* Measures the time of the chunk alone: from the end of the one before, if it waited for that.  The
 * fixed cost of a chunk is what the shortest chunk took beyond its indices at the best rate seen.
 * So it is never more than any chunk took, and does not grow when a device slows down. */
static void measure(usm__schedule *s, uint32_t w, const holding *h, uint64_t now_ns,
                    uint64_t compute_ns)
{
    usm_policy_member *m     = &s->members[w];
    pace              *p     = &s->workers[w].pace;
    uint64_t           begin = h->given_ns > p->last_end_ns ? h->given_ns : p->last_end_ns;
    uint64_t           ns    = now_ns > begin ? now_ns - begin : 1;
    double             each  = (double)ns / (double)h->count, own, speed;

    p->last_end_ns = now_ns;
    if (p->samples == 0 || ns < p->least_ns)
        p->least_ns = ns, p->least_count = h->count;
    if (p->samples == 0 || each < p->least_each_ns)
        p->least_each_ns = each;
    m->cost = ((double)p->least_ns - (double)p->least_count * p->least_each_ns) / 1e9;
    if (m->cost < 0)
        m->cost = 0;
    own   = compute_ns > 0 ? (double)compute_ns / 1e9 : (double)ns / 1e9 - m->cost;
    speed = (double)h->count / (own > 0 ? own : (double)ns / 1e9);
    /* The first chunk is a warm-up: the driver prepares kernels, and pages are touched for the
     * first time. */
    m->speed = p->samples < 2 ? speed : SPEED_NEW * speed + (1 - SPEED_NEW) * m->speed;
    p->samples++;
    m->chunks++;
}

/* --- holdings -------------------------------------------------------------------------------- */

static holding *find_holding(usm__schedule *s, uint32_t w, uint64_t id)
{
    for (uint32_t i = 0; w < s->p.nworkers && i < s->workers[w].nheld; i++)
        if (s->workers[w].held[i].id == id)
            return &s->workers[w].held[i];
    return NULL;
}

static void let_go(usm__schedule *s, uint32_t w, holding *h)
{
    worker  *by = &s->workers[w];
    record  *r  = usm__schedule_record_of(s, h);
    uint32_t i  = (uint32_t)(h - by->held);

    s->members[w].flying -= h->count;
    if (!h->is_overdue) {
        s->active--;
        if (r != NULL)
            r->holders--;
    }
    memmove(h, h + 1, (by->nheld - i - 1) * sizeof(*h));
    by->nheld--;
}

static void set_well(usm__schedule *s, uint32_t w)
{
    const worker *it = &s->workers[w];

    s->members[w].is_well = usm__worker_is_well(it) && !it->is_silent;
}

/* The worker has reported something.  The time allowed for its holdings from the i-th on starts
 * again, and chunks that were taken from it are its own again, unless another worker has them by
 * now. */
static void hear(usm__schedule *s, uint32_t w, uint32_t from, uint64_t now_ns)
{
    worker *by = &s->workers[w];

    if (by->is_silent)
        from = 0;
    by->is_silent = false;
    set_well(s, w);
    for (uint32_t i = from; i < by->nheld; i++) {
        holding *h = &by->held[i];
        record  *r = usm__schedule_record_of(s, h);

        h->since_ns = now_ns;
        if (!h->is_overdue)
            continue;
        h->is_overdue = false;
        s->active++;
        if (r == NULL)
            continue;
        r->holders++;
        if (r->state == RECORD_BACK) {
            usm__schedule_record_unlink(s, h->record);
            usm__schedule_record_link_given(s, h->record);
        }
    }
}

/* No worker has the chunk any more: it becomes free.  False: it may not be repeated. */
static bool set_free(usm__schedule *s, uint32_t i)
{
    record *r = &s->records[i];

    if (r->holders > 0 || r->state == RECORD_BACK)
        return true;
    if (!usm__is_wanted(s, r)) {
        usm__schedule_record_release(s, i);
        return true;
    }
    if (!s->p.may_repeat)
        return false;
    usm__schedule_record_unlink(s, i);
    usm__schedule_record_link_back(s, i);
    return true;
}

static bool can_go_on(const usm__schedule *s)
{
    return s->well > 0 || usm__schedule_is_over(s) ||
           (s->active > 0 && s->fresh_left + s->back_left == 0);
}

static void take_out(usm__schedule *s, uint32_t w, bool is_lost)
{
    worker *it = &s->workers[w];

    if (usm__worker_is_well(it))
        s->well--;
    it->is_aside = true;
    it->is_lost |= is_lost;
    set_well(s, w);
}

/* --- the calls ------------------------------------------------------------------------------- */

void usm__schedule_touch(usm__schedule *s, uint32_t w, uint64_t id, uint64_t now_ns)
{
    const holding *h = find_holding(s, w, id);

    if (h != NULL) /* chunks that it was given later wait for this one */
        hear(s, w, (uint32_t)(h - s->workers[w].held), now_ns);
}

usm__verdict usm__schedule_done(usm__schedule *s, uint32_t w, uint64_t id, uint64_t now_ns,
                                uint64_t compute_ns)
{
    holding *h = find_holding(s, w, id);
    record  *r = h != NULL ? usm__schedule_record_of(s, h) : NULL;
    uint32_t i = h != NULL ? h->record : 0;
    uint64_t count;
    bool     counts;

    if (w >= s->p.nworkers || id >= s->next_id)
        return USM__CHUNK_UNKNOWN;
    counts = r != NULL && usm__is_wanted(s, r);
    count  = r != NULL ? r->count : 0;
    if (h != NULL) {
        measure(s, w, h, now_ns, compute_ns);
        let_go(s, w, h);
        hear(s, w, 0, now_ns);
    }
    if (r != NULL)
        usm__schedule_record_release(s, i);
    if (!counts) {
        s->stats.dropped++;
        return USM__CHUNK_DROPPED;
    }
    s->stats.done += count;
    s->stats.chunks++;
    return USM__CHUNK_COUNTS;
}

bool usm__schedule_failed(usm__schedule *s, uint32_t w, uint64_t id)
{
    holding *h = find_holding(s, w, id);
    record  *r = h != NULL ? usm__schedule_record_of(s, h) : NULL;
    uint32_t i = h != NULL ? h->record : 0;

    if (w >= s->p.nworkers)
        return can_go_on(s);
    take_out(s, w, false);
    if (h != NULL)
        let_go(s, w, h);
    return (r == NULL || set_free(s, i)) && can_go_on(s);
}

bool usm__schedule_lose(usm__schedule *s, uint32_t w)
{
    bool ok = true;

    if (w >= s->p.nworkers)
        return can_go_on(s);
    take_out(s, w, true);
    while (s->workers[w].nheld > 0) {
        holding      *h = &s->workers[w].held[s->workers[w].nheld - 1];
        const record *r = usm__schedule_record_of(s, h);
        uint32_t      i = h->record;

        let_go(s, w, h);
        if (r != NULL && !set_free(s, i))
            ok = false;
    }
    return ok && can_go_on(s);
}

bool usm__schedule_set_aside(usm__schedule *s, uint32_t w)
{
    if (w < s->p.nworkers)
        take_out(s, w, false);
    return can_go_on(s);
}

/* --- silence --------------------------------------------------------------------------------- */

static uint64_t allowed_ns(const usm__schedule *s, const holding *h)
{
    uint64_t most =
        h->predicted_ns > 0 ? OVERDUE * h->predicted_ns : OVERDUE * s->p.least_silence_ns;

    return most > s->p.least_silence_ns ? most : s->p.least_silence_ns;
}

/* Whether the worker is silent from now on.  It works on the first of its holdings; the others
 * wait. */
static bool is_overdue(usm__schedule *s, uint32_t w, uint64_t now_ns, uint64_t *next_ns)
{
    const worker  *it = &s->workers[w];
    const holding *h  = it->held;
    uint64_t       at;

    if (it->nheld == 0 || it->is_silent)
        return false;
    at = h->since_ns + allowed_ns(s, h);
    if (at > now_ns && at < *next_ns)
        *next_ns = at;
    return at <= now_ns;
}

static unsigned give_up(usm__schedule *s, uint32_t w)
{
    worker  *it = &s->workers[w];
    unsigned n  = 0;

    it->is_silent = true;
    set_well(s, w);
    for (uint32_t i = 0; i < it->nheld; i++) {
        holding *h = &it->held[i];
        record  *r = usm__schedule_record_of(s, h);

        if (h->is_overdue)
            continue;
        h->is_overdue = true;
        s->active--;
        if (r == NULL || --r->holders > 0 || !s->p.may_repeat || usm__is_in_place(s, r))
            continue;
        n += usm__is_wanted(s, r);
        (void)set_free(s, h->record);
    }
    return n;
}

/* Counts late chunks that idle workers should do a second time, and finds when to ask again. */
static unsigned count_late(const usm__schedule *s, uint64_t now_ns, uint64_t *next_ns)
{
    uint64_t soon = now_ns + (s->p.least_silence_ns + OVERDUE - 1) / OVERDUE;
    unsigned n    = 0;

    if (!s->p.may_repeat || s->fresh_left + s->back_left > 0 || s->active == 0)
        return 0;
    for (uint32_t w = 0; w < s->p.nworkers; w++) {
        const worker *it = &s->workers[w];

        if (it->nheld > 0 || it->is_silent || !usm__worker_is_well(it))
            continue;
        n += usm__schedule_late_record(s, w, now_ns) != USM__NO_RECORD;
        if (soon < *next_ns)
            *next_ns = soon;
    }
    return n;
}

bool usm__schedule_is_silent(const usm__schedule *s, uint32_t w, uint64_t now_ns, usm__chunk *chunk,
                             uint64_t *since_ns)
{
    const worker *it = &s->workers[w];
    const record *r;

    if (!it->is_silent || it->nheld == 0)
        return false;
    r         = usm__schedule_record_of(s, it->held);
    *since_ns = now_ns - it->held->since_ns;
    *chunk    = (usm__chunk){.id = it->held->id, .count = it->held->count};
    if (r != NULL)
        chunk->first = r->first;
    return true;
}

unsigned usm__schedule_overdue(usm__schedule *s, uint64_t now_ns, uint64_t *next_ns)
{
    unsigned n = 0;

    *next_ns = UINT64_MAX;
    for (uint32_t w = 0; w < s->p.nworkers; w++)
        if (is_overdue(s, w, now_ns, next_ns))
            n += give_up(s, w);
    return n + count_late(s, now_ns, next_ns);
}
