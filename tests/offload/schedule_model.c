/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The book of a launch against workers that die, hang, answer late, twice and nonsense: each index
 * counts exactly once, what the book says of itself is true at each step, and the launch ends.
 *
 *     schedule_model [--seed FIRST] [--seeds COUNT] [--seconds S] */
#include "budget.h"

#include "offload/schedule_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL_MAX   300
#define WORKERS_MAX 6
#define DEPTH_MAX   4
#define LATE_MAX    64
#define STEPS       20000
#define MANY        100 /* seeds of which some must have met each kind of trouble */

typedef struct given {
    usm__chunk chunk;
    uint64_t   at;
    bool       hangs; /* its worker will not answer, or not soon                                 */
} given;

typedef struct actor {
    given    held[DEPTH_MAX];
    uint32_t n;
    bool     gone, aside;
} actor;

static struct {
    uint64_t       seed, random;
    usm__schedule *ledger;
    uint64_t       total, multiple, now, limit;
    uint32_t       n, depth;
    bool           may_repeat;
    actor          actors[WORKERS_MAX]; /* the first one always does as it should                 */
    unsigned       counted[TOTAL_MAX];
    struct {
        uint32_t worker;
        uint64_t id;
    } late[LATE_MAX]; /* answers of the dead, and second ones */
    unsigned nlate;
    uint64_t ndropped;
} m;

/* Of all seeds: a model in which nothing goes wrong shows nothing. */
static usm__schedule_stats seen;
static uint64_t            nsilent;

static void fail(const char *what, uint64_t a, uint64_t b)
{
    printf("seed %llu: %s (%llu, %llu)\n", (unsigned long long)m.seed, what, (unsigned long long)a,
           (unsigned long long)b);
    exit(1);
}

static void check(bool ok, const char *what, uint64_t a, uint64_t b)
{
    if (!ok)
        fail(what, a, b);
}

static uint64_t below(uint64_t n)
{
    m.random ^= m.random << 13;
    m.random ^= m.random >> 7;
    m.random ^= m.random << 17;
    return m.random % n;
}

static bool is_likely(unsigned in_a_hundred)
{
    return below(100) < in_a_hundred;
}

/* As bad as a user's policy can be: any number, 0 at times. */
static uint64_t any_size(const usm_policy_state *s, uint32_t member)
{
    return (s->remaining * 31 + member * 7 + s->given) % 40;
}

/* --- what the book says ---------------------------------------------------------------------- */

static uint64_t count_done(uint64_t to)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < to; i++)
        n += m.counted[i];
    return n;
}

static void check_ranges(void)
{
    uint64_t ranges[TOTAL_MAX][2], last = 0, sum = 0;
    size_t   n = usm__schedule_done_ranges(m.ledger, ranges, TOTAL_MAX);

    for (size_t i = 0; i < n; i++) {
        check(ranges[i][0] < ranges[i][1] && (i == 0 || ranges[i][0] > last),
              "ranges are joined and in order", ranges[i][0], ranges[i][1]);
        last = ranges[i][1];
        for (uint64_t k = ranges[i][0]; k < last && k < m.limit; k++, sum++)
            check(m.counted[k] == 1, "a range has what did not count", k, last);
    }
    check(sum == count_done(m.limit), "ranges lack something", sum, count_done(m.limit));
}

/* The sums that the book keeps are those of what it has. */
static void check_sums(void)
{
    const usm__schedule *s      = m.ledger;
    uint64_t             active = 0, back = 0, live = 0, fresh = 0, holders = 0, flying;

    for (uint32_t w = 0; w < m.n; w++) {
        flying = 0;
        for (uint32_t i = 0; i < s->workers[w].nheld; i++) {
            const holding *h = &s->workers[w].held[i];

            flying += h->count;
            active += !h->is_overdue;
            holders += !h->is_overdue && usm__schedule_record_of(s, h) != NULL;
        }
        check(flying == s->members[w].flying, "flying", flying, s->members[w].flying);
    }
    for (uint32_t i = 0; i < s->nrecords; i++) {
        const record *r = &s->records[i];

        if (r->state == RECORD_UNUSED)
            continue;
        holders -= r->holders;
        live += usm__is_wanted(s, r);
        back += r->state == RECORD_BACK ? r->count : 0;
        check(r->holders > 0 || r->state == RECORD_BACK || !m.may_repeat, "nobody has it", i,
              r->id);
    }
    for (size_t i = s->at; i < s->nfresh && s->fresh[i].first < s->limit; i++)
        fresh += (s->fresh[i].end < s->limit ? s->fresh[i].end : s->limit) - s->fresh[i].first;
    check(active == s->active && holders == 0, "active", active, s->active);
    check(live == s->live, "live", live, s->live);
    check(back == s->back_left && fresh == s->fresh_left, "remaining", back, fresh);
    check(usm__schedule_remaining(s) == back + fresh, "remaining", back, fresh);
}

static void check_book(void)
{
    usm__schedule_stats stats;

    usm__schedule_get_stats(m.ledger, &stats);
    check(stats.done == count_done(m.total), "stats.done", stats.done, count_done(m.total));
    check(stats.dropped == m.ndropped, "stats.dropped", stats.dropped, m.ndropped);
    check(usm__schedule_is_over(m.ledger) == (count_done(m.limit) == m.limit), "is_over",
          count_done(m.limit), m.limit);
    check_sums();
    if (is_likely(10))
        check_ranges();
}

/* --- what workers do ------------------------------------------------------------------------- */

static void answer(uint32_t w, uint64_t id, const usm__chunk *chunk)
{
    usm__verdict v =
        usm__schedule_done(m.ledger, w, id, m.now, is_likely(50) ? 1 + below(1000) : 0);

    check(v != USM__CHUNK_UNKNOWN, "a chunk that was given is known", w, id);
    m.ndropped += v == USM__CHUNK_DROPPED;
    if (v != USM__CHUNK_COUNTS)
        return;
    check(chunk != NULL, "a late answer counts though its worker was lost", w, id);
    for (uint64_t i = chunk->first; i < chunk->first + chunk->count; i++)
        check(++m.counted[i] == 1, "an index counts twice", i, id);
}

static void keep_late(uint32_t w, uint64_t id)
{
    if (m.nlate == LATE_MAX)
        return;
    m.late[m.nlate].worker = w;
    m.late[m.nlate++].id   = id;
}

static void forget_held(actor *a, uint32_t i)
{
    memmove(&a->held[i], &a->held[i + 1], (--a->n - i) * sizeof a->held[0]);
}

static void take(uint32_t w)
{
    actor     *a = &m.actors[w];
    usm__chunk c;

    if (!usm__schedule_take(m.ledger, w, m.now, &c))
        return;
    check(!a->gone && !a->aside, "who is out takes something", w, c.id);
    check(a->n < m.depth, "more than depth", w, a->n);
    check(c.count > 0 && c.first < m.limit && c.first + c.count <= m.total, "within the range",
          c.first, c.count);
    check(c.first % m.multiple == 0 && (c.count % m.multiple == 0 || c.first + c.count == m.total),
          "a multiple", c.first, c.count);
    for (uint32_t i = 0; i < a->n; i++)
        check(a->held[i].chunk.id != c.id, "it has that chunk already", w, c.id);
    for (uint64_t i = c.first; i < c.first + c.count; i++)
        check(m.counted[i] == 0, "what is done is given again", i, c.id);
    a->held[a->n++] = (given){c, m.now, w > 0 && m.may_repeat && is_likely(10)};
}

static void finish(uint32_t w)
{
    actor   *a = &m.actors[w];
    uint32_t i = a->n > 0 ? (uint32_t)below(a->n) : 0;

    if (a->n == 0 || (a->held[i].hangs && !is_likely(3)))
        return;
    answer(w, a->held[i].chunk.id, &a->held[i].chunk);
    if (is_likely(10))
        keep_late(w, a->held[i].chunk.id);
    forget_held(a, i);
}

static void die(uint32_t w)
{
    actor *a = &m.actors[w];

    while (a->n > 0) {
        keep_late(w, a->held[0].chunk.id);
        forget_held(a, 0);
    }
    a->gone = true;
    check(usm__schedule_lose(m.ledger, w), "the first could go on", w, 0);
}

static void fail_one(uint32_t w)
{
    actor   *a = &m.actors[w];
    uint32_t i = a->n > 0 ? (uint32_t)below(a->n) : 0;

    if (a->n == 0)
        return;
    a->aside = true;
    check(usm__schedule_failed(m.ledger, w, a->held[i].chunk.id), "the first could go on", w, i);
    if (is_likely(50))
        keep_late(w, a->held[i].chunk.id);
    forget_held(a, i);
}

static void check_silence(void)
{
    uint64_t next;

    nsilent += usm__schedule_overdue(m.ledger, m.now, &next) > 0;
    check(next > m.now, "the next time is to come", m.now, next);
}

static void late_answer(void)
{
    unsigned i = m.nlate > 0 ? (unsigned)below(m.nlate) : 0;

    if (m.nlate == 0)
        return;
    answer(m.late[i].worker, m.late[i].id, NULL);
    m.late[i] = m.late[--m.nlate];
}

static void cut(void)
{
    uint64_t first = below(m.total + 1), limit;

    usm__schedule_cut(m.ledger, first);
    limit = (first + m.multiple - 1) / m.multiple * m.multiple;
    if (limit < m.limit)
        m.limit = limit;
}

static void step(void)
{
    uint32_t w      = (uint32_t)below(m.n);
    unsigned choice = (unsigned)below(1000);

    m.now += below(50);
    if (choice < 400)
        take(w);
    else if (choice < 850)
        finish(w);
    else if (choice < 900)
        check_silence();
    else if (choice < 930 && m.actors[w].n > 0)
        usm__schedule_touch(m.ledger, w, m.actors[w].held[0].chunk.id, m.now);
    else if (choice < 960)
        late_answer();
    else if (choice < 970 && m.may_repeat && w > 0 && is_likely(30))
        die(w);
    else if (choice < 980 && m.may_repeat && w > 0 && is_likely(30))
        fail_one(w);
    else if (choice < 985 && w > 0 && is_likely(20))
        m.actors[w].aside = usm__schedule_set_aside(m.ledger, w);
    else if (choice < 986 && is_likely(60))
        cut();
    else if (choice < 990)
        check(usm__schedule_done(m.ledger, w, UINT64_MAX, m.now, 0) == USM__CHUNK_UNKNOWN,
              "an id that was never given", w, 0);
    check_book();
}

/* --- a run ----------------------------------------------------------------------------------- */

static void skip_some(void)
{
    for (int i = 0; i < 4; i++) {
        uint64_t first = below(m.total), count = 1 + below(30), k = first;
        bool     fits;

        if (is_likely(70)) {
            first -= first % m.multiple;
            count = (count + m.multiple - 1) / m.multiple * m.multiple;
            if (first + count > m.total)
                count = m.total - first;
        }
        fits = first % m.multiple == 0 && first + count <= m.total &&
               ((first + count) % m.multiple == 0 || first + count == m.total);
        for (k = first; fits && k < first + count; k++)
            fits = m.counted[k] == 0;
        check(usm__schedule_skip(m.ledger, first, count) == fits, "skip", first, count);
        for (k = first; fits && k < first + count; k++)
            m.counted[k] = 1;
    }
}

static void set_up(uint64_t seed)
{
    static const char *const names[] = {"adaptive", "static", "fixed", "guided", "fastest"};
    double                   weights[WORKERS_MAX];
    usm__schedule_params     p;
    uint64_t                 which = 0;

    memset(&m, 0, sizeof m);
    m.seed       = seed;
    m.random     = seed * 0x9e3779b97f4a7c15u + 1;
    m.total      = 1 + below(TOTAL_MAX);
    m.limit      = m.total;
    m.multiple   = is_likely(50) ? 1 : 1 + below(16);
    m.n          = 1 + (uint32_t)below(WORKERS_MAX);
    m.depth      = 1 + (uint32_t)below(DEPTH_MAX);
    m.may_repeat = is_likely(80);
    which        = below(7);
    for (uint32_t i = 0; i < m.n; i++)
        weights[i] = (double)(1 + below(5));
    p = (usm__schedule_params){.total     = m.total,
                               .multiple  = m.multiple,
                               .min_chunk = is_likely(30) ? below(20) : 0,
                               .max_chunk = is_likely(30) ? 1 + below(60) : 0,
                               .nworkers  = m.n,
                               .depth     = m.depth,
                               .policy =
                                   which < 5 ? usm__chunk_policy_find(names[which]) : any_size,
                               .weights          = is_likely(50) ? weights : NULL,
                               .may_repeat       = m.may_repeat,
                               .least_silence_ns = 200 + below(1000)};

    m.ledger = usm__schedule_create(&p);
    check(m.ledger != NULL, "memory", 0, 0);
    if (is_likely(30))
        skip_some();
}

static void run(uint64_t seed)
{
    usm__schedule_stats stats;
    unsigned            steps = 0;

    set_up(seed);
    check_book();
    while (!usm__schedule_is_over(m.ledger)) {
        check(steps++ < STEPS, "it does not end", count_done(m.total), m.total);
        step();
    }
    for (uint32_t w = 0; w < m.n; w++)
        while (m.actors[w].n > 0) {
            answer(w, m.actors[w].held[0].chunk.id, &m.actors[w].held[0].chunk);
            forget_held(&m.actors[w], 0);
        }
    while (m.nlate > 0)
        late_answer();
    check_book();
    for (uint64_t i = 0; i < m.limit; i++)
        check(m.counted[i] == 1, "an index counts not once", i, m.counted[i]);
    usm__schedule_get_stats(m.ledger, &stats);
    seen.rescheduled += stats.rescheduled;
    seen.duplicated += stats.duplicated;
    seen.dropped += stats.dropped;
    usm__schedule_destroy(m.ledger);
}

int main(int argc, char **argv)
{
    budget   seeds = {.first = 1, .most = 2000};
    uint64_t seed;

    for (int i = 1; i < argc; i++)
        if (!budget_option(&seeds, argc, argv, &i))
            return 2;
    while (budget_next(&seeds, &seed))
        run(seed);
    budget_print(&seeds);
    printf(": each index counted once; %llu chunks given again, %llu twice, %llu answers dropped, "
           "%llu silences\n",
           (unsigned long long)seen.rescheduled, (unsigned long long)seen.duplicated,
           (unsigned long long)seen.dropped, (unsigned long long)nsilent);
    if (seeds.ran < MANY) /* a seed that is looked into may have none of these */
        return 0;
    return seen.rescheduled > 0 && seen.duplicated > 0 && seen.dropped > 0 && nsilent > 0 ? 0 : 1;
}
