/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The policies: how many indices a member takes next.  They are pure functions of the state
 * (usm/parallel.h).
 *
 * "adaptive" is explained in terms of time.  Let T be how long all members together need for
 * everything that remains.  A member takes a part of T at its own speed, such that all its chunks
 * in progress together are half of what it would do until the end.  So chunks become smaller as the
 * end nears, and by then speeds are known well.  The fixed costs of chunks bound this from below:
 *
 *  - Where the cost of such a chunk would be more than 1 % of its time, the member takes a larger
 *    one: up to a half of T (a third, with two chunks in progress).
 *  - When T is no longer than a few costs, the rest is shared out at once.
 *
 * A device that becomes slow then has at most two thirds of T in progress.
 * tests/offload/policy_sim.c has the numbers. */
#include "offload/schedule.h"

#include "base/inline/plural.h"
#include "base/status.h"

#include <string.h>

#define FIRST_PROBE  2048.0 /* part of the range, for a member that was never measured */
#define SECOND_PROBE 128.0  /* part of the range, while its first chunk may have been a warm-up */
#define LEAST        2048.0 /* part of its share of the range: no chunk is smaller */
#define COSTS        100.0  /* a chunk should take this many costs, as long as T allows */
#define COSTS_LEFT   12.0   /* number of costs: if T is shorter, the rest is shared out */
#define MEMBERS_MAX  64

static bool is_in(uint64_t set, uint32_t member)
{
    return set == UINT64_MAX || (member < MEMBERS_MAX && (set >> member & 1) != 0);
}

static uint64_t at_least_one(double n)
{
    if (n >= 9e18)
        return UINT64_MAX / 2;
    return n > 1 ? (uint64_t)n : 1;
}

/* --- adaptive -------------------------------------------------------------------------------- */

/* Indices per second of the members in the set; one that was not measured counts as the mean. */
static double speed_of_all(const usm_policy_state *s, uint64_t set)
{
    double   sum    = 0;
    uint32_t nknown = 0, n = 0;

    for (uint32_t i = 0; i < s->nmembers; i++) {
        if (!s->members[i].is_well || !is_in(set, i))
            continue;
        n++;
        if (s->members[i].speed > 0) {
            sum += s->members[i].speed;
            nknown++;
        }
    }
    return nknown > 0 ? sum * n / nknown : 0;
}

static uint64_t probe(const usm_policy_state *s, const usm_policy_member *m, double part)
{
    return m->flying > 0 ? 0 : at_least_one((double)s->total / part);
}

static uint64_t adaptive_among(const usm_policy_state *s, uint32_t member, uint64_t set)
{
    const usm_policy_member *m   = &s->members[member];
    double                   all = speed_of_all(s, set), left, seconds, most, share, least;

    if (!(m->speed > 0))
        return probe(s, m, FIRST_PROBE);
    left    = (double)s->remaining / all; /* T */
    share   = m->speed / all;
    seconds = left / (2.0 * s->depth);
    most    = left / (1.0 + s->depth);
    if (seconds < COSTS * m->cost)
        seconds = COSTS * m->cost < most ? COSTS * m->cost : most;
    if (left < COSTS_LEFT * m->cost)
        seconds = left;
    least = (double)s->total * share / LEAST;
    if (m->chunks == 1 && seconds * m->speed > (double)s->total * share / SECOND_PROBE)
        return probe(s, m, SECOND_PROBE / share);
    return at_least_one(seconds * m->speed > least ? seconds * m->speed : least);
}

static uint64_t adaptive(const usm_policy_state *s, uint32_t member)
{
    return adaptive_among(s, member, UINT64_MAX);
}

/* --- shares ---------------------------------------------------------------------------------- */

static bool is_any(const usm_policy_member *m)
{
    return m->is_well && m->weight > 0;
}

static bool has_yet_to_begin(const usm_policy_member *m)
{
    return is_any(m) && m->chunks == 0 && m->flying == 0;
}

/* The member's share by weight of what remains, among the members for which `counts` is true. */
static uint64_t share_out(const usm_policy_state *s, uint32_t member,
                          bool (*counts)(const usm_policy_member *))
{
    double sum = 0, n;

    for (uint32_t i = 0; i < s->nmembers; i++)
        if (counts(&s->members[i]))
            sum += s->members[i].weight;
    n = sum > 0 ? (double)s->remaining * s->members[member].weight / sum : 0;
    return at_least_one(n + 0.999); /* rounded up, so that nothing is left over */
}

/* "static": each member takes its share of what the members before it left.  What becomes free
 * later is shared once more, among members that have ended their first chunk. */
static uint64_t equal(const usm_policy_state *s, uint32_t member)
{
    const usm_policy_member *m = &s->members[member];

    if (m->flying > 0 || !is_any(m))
        return 0;
    if (m->chunks == 0)
        return share_out(s, member, has_yet_to_begin);
    for (uint32_t i = 0; i < s->nmembers; i++)
        if (has_yet_to_begin(&s->members[i]))
            return 0; /* that member is about to take its own share */
    return share_out(s, member, is_any);
}

static uint64_t fixed(const usm_policy_state *s, uint32_t member)
{
    (void)member;
    return at_least_one(s->nnumbers > 0 ? s->numbers[0] : (double)s->total / 64);
}

static uint64_t guided(const usm_policy_state *s, uint32_t member)
{
    uint64_t share = share_out(s, member, is_any);

    return is_any(&s->members[member]) ? at_least_one((double)share / (2.0 * s->depth)) : 0;
}

/* --- sets of members ------------------------------------------------------------------------- */

static uint64_t fastest(const usm_policy_state *s, uint32_t member)
{
    uint32_t best = member;

    if (!(s->members[member].speed > 0))
        return probe(s, &s->members[member], FIRST_PROBE);
    for (uint32_t i = 0; i < s->nmembers; i++)
        if (s->members[i].is_well && s->members[i].speed > s->members[best].speed)
            best = i;
    return best == member && best < MEMBERS_MAX ? adaptive_among(s, member, 1ull << best) : 0;
}

/* The power that the other members at work draw, in watts. */
static double drawn(const usm_policy_state *s, uint32_t member)
{
    double sum = 0;

    for (uint32_t i = 0; i < s->nmembers; i++)
        if (i != member && s->members[i].flying > 0)
            sum += s->members[i].watts;
    return sum;
}

/* Whether a member that may be in the set has not been measured yet. */
static bool is_waited_for(const usm_policy_state *s, uint32_t member, double cap)
{
    for (uint32_t i = 0; i < s->nmembers; i++) {
        const usm_policy_member *it = &s->members[i];

        if (i != member && it->is_well && it->watts > 0 && it->watts <= cap && it->flying == 0 &&
            !(it->speed > 0))
            return true;
    }
    return false;
}

/* Members are measured first, as many at a time as the cap allows; the others wait for that. */
static uint64_t energy(const usm_policy_state *s, uint32_t member)
{
    const usm_policy_member *m                   = &s->members[member];
    double                   cap                 = s->nnumbers > 0 ? s->numbers[0] : 0;
    double                   speeds[MEMBERS_MAX] = {0}, watts[MEMBERS_MAX] = {0};
    uint32_t                 n = s->nmembers < MEMBERS_MAX ? s->nmembers : MEMBERS_MAX;
    uint64_t                 set;

    if (!(m->watts > 0) || drawn(s, member) + m->watts > cap)
        return 0;
    if (!(m->speed > 0))
        return probe(s, m, FIRST_PROBE);
    if (is_waited_for(s, member, cap))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        const usm_policy_member *it = &s->members[i];

        speeds[i] = it->is_well && it->watts > 0 ? it->speed : 0;
        watts[i]  = it->watts;
    }
    set = usm__knapsack(n, speeds, watts, cap);
    return member < n && is_in(set, member) ? adaptive_among(s, member, set) : 0;
}

/* --- names ----------------------------------------------------------------------------------- */

static const struct {
    const char   *name;
    usm_policy_fn fn;
} policies[] = {{"adaptive", adaptive}, {"static", equal},    {"fixed", fixed},
                {"guided", guided},     {"fastest", fastest}, {"energy", energy}};

usm_policy_fn usm__chunk_policy_find(const char *name)
{
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
        if (strcmp(name, policies[i].name) == 0)
            return policies[i].fn;
    return NULL;
}

const char *usm__chunk_policy_names(void)
{
    return "adaptive, static, fixed, guided, fastest, energy";
}

static usm_status check_energy(const usm__schedule_params *p)
{
    double cap = p->nnumbers > 0 ? p->numbers[0] : 0, least = 0;

    if (!(cap > 0))
        return usm__fail(USM_E_INVALID, "the policy energy needs a cap: numbers[0], in watts");
    if (p->nworkers > MEMBERS_MAX)
        return usm__fail(USM_E_INVALID,
                         "the policy energy chooses among %d %s at most, and the team has %u",
                         MEMBERS_MAX, usm__plural(MEMBERS_MAX, "member", "members"), p->nworkers);
    if (p->watts == NULL)
        return usm__fail(USM_E_INVALID, "the policy energy is for the devices of one process: what "
                                        "those of other ranks draw is not known");
    for (uint32_t i = 0; i < p->nworkers; i++)
        if (p->watts[i] > 0 && (least == 0 || p->watts[i] < least))
            least = p->watts[i];
    if (least == 0)
        return usm__fail(USM_E_INVALID, "the policy energy knows no member's watts: set USM_WATTS "
                                        "to \"name=watts,...\" or to a file of such lines");
    if (least > cap)
        return usm__fail(USM_E_INVALID,
                         "no member keeps under the cap of %g W: the least draws %g W", cap, least);
    return USM_OK;
}

usm_status usm__chunk_policy_check(const usm__schedule_params *p)
{
    double sum = 0;

    for (uint32_t i = 0; i < p->nworkers && p->weights != NULL; i++) {
        if (!(p->weights[i] >= 0) || p->weights[i] > 1e12)
            return usm__fail(USM_E_INVALID, "weight %u is %g: weights are 0 or more", i,
                             p->weights[i]);
        sum += p->weights[i];
    }
    if (p->weights != NULL && !(sum > 0))
        return usm__fail(USM_E_INVALID, "all weights are 0: one member must take something");
    if (p->policy == fixed && p->nnumbers > 0 && !(p->numbers[0] >= 1))
        return usm__fail(USM_E_INVALID, "the policy fixed needs chunks of 1 index or more, not %g",
                         p->numbers[0]);
    return p->policy == energy ? check_energy(p) : USM_OK;
}

bool usm__chunk_policy_takes(const usm__schedule_params *p, uint32_t worker)
{
    return p->policy != energy || (p->watts[worker] > 0 && p->watts[worker] <= p->numbers[0]);
}
