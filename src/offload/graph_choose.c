/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which member of a team takes a task of a graph: a pure function of what members have done.
 *
 * "adaptive" gives a task to the member that would finish it first: (its work in progress + the
 * task) / its speed, or later, if the inputs come after the work in progress has ended.  If that member has no room, the task waits for it, even if a slower one is
 * idle.  A member that was not measured yet counts as fast as the fastest, so that it is tried
 * soon.  The other policies choose among fewer members, or by shares; "energy" never lets members
 * draw more than its cap together. */
#include "offload/graph.h"

#include <string.h>

static bool is_name(const usm_policy *policy, const char *name)
{
    return strcmp(policy->name, name) == 0;
}

usm_status usm__graph_policy_find(const usm_policy *policy, usm__graph_policy *found)
{
    if (policy->fn)
        *found = USM__GRAPH_USER;
    else if (!policy->name || is_name(policy, "adaptive"))
        *found = USM__GRAPH_ADAPTIVE;
    else if (is_name(policy, "fastest"))
        *found = USM__GRAPH_FASTEST;
    else if (is_name(policy, "static"))
        *found = USM__GRAPH_STATIC;
    else if (is_name(policy, "energy"))
        *found = USM__GRAPH_ENERGY;
    else
        return usm__fail(
            USM_E_INVALID,
            "'%s' is not a policy for graphs; there are adaptive, fastest, static, energy",
            policy->name);
    return USM_OK;
}

static double best_speed(const usm__graph_member *members, uint32_t n)
{
    double best = 0;

    for (uint32_t i = 0; i < n; i++)
        if (members[i].is_well && members[i].speed > best)
            best = members[i].speed;
    return best > 0 ? best : 1;
}

/* When a member would finish the work. */
static double finish(const usm__graph_member *m, double best, double work)
{
    double speed = m->speed > 0 ? m->speed : best;

    return m->bring > m->flying / speed ? m->bring + work / speed : (m->flying + work) / speed;
}

/* The member that finishes first, of those not in `is_out`. */
static uint32_t earliest(const usm__graph_member *members, uint32_t n, double work,
                         const bool *is_out)
{
    double   best = best_speed(members, n), least = 0;
    uint32_t found = USM__NOBODY;

    for (uint32_t i = 0; i < n; i++) {
        double at;

        if (!members[i].may || (is_out && is_out[i]))
            continue;
        at = finish(&members[i], best, work);
        if (found == USM__NOBODY || at < least) {
            found = i;
            least = at;
        }
    }
    return found;
}

/* The member with the highest speed, once all members that may take the task were measured; until
 * then each in turn. */
static uint32_t fastest(const usm__graph_member *members, uint32_t n, double work)
{
    uint32_t found = USM__NOBODY;

    for (uint32_t i = 0; i < n; i++) {
        if (!members[i].may)
            continue;
        if (members[i].speed <= 0)
            return earliest(members, n, work, NULL);
        if (found == USM__NOBODY || members[i].speed > members[found].speed)
            found = i;
    }
    return found;
}

/* The member that is furthest behind its share. */
static uint32_t by_share(const usm__graph_member *members, uint32_t n)
{
    uint32_t found = USM__NOBODY;

    for (uint32_t i = 0; i < n; i++)
        if (members[i].may && members[i].weight > 0 &&
            (found == USM__NOBODY ||
             members[i].given * members[found].weight < members[found].given * members[i].weight))
            found = i;
    return found;
}

/* The power that the other members at work draw, in watts. */
static double drawn(const usm__graph_member *members, uint32_t n, uint32_t member)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        if (i != member && members[i].flying > 0)
            sum += members[i].watts;
    return sum;
}

/* Of the set of members with the highest speed under the cap, the one that finishes first.  It
 * waits as long as it and the members at work, of an earlier set or with kernels of their own,
 * would together draw too much.  pre: n <= 64, and no member that may take the task draws more than
 * the cap. */
static uint32_t under_cap(const usm_policy *policy, const usm__graph_member *members, uint32_t n,
                          double work)
{
    double   best = best_speed(members, n), value[64] = {0}, watts[64] = {0};
    bool     is_out[64] = {false};
    uint32_t found;
    uint64_t set;

    for (uint32_t i = 0; i < n && i < 64; i++) {
        watts[i] = members[i].watts;
        if (members[i].may)
            value[i] = members[i].speed > 0 ? members[i].speed : best;
    }
    set = usm__knapsack(n, value, watts, policy->numbers[0]);
    for (uint32_t i = 0; i < n && i < 64; i++)
        is_out[i] = !(set >> i & 1);
    found = earliest(members, n, work, is_out);
    if (found == USM__NOBODY) /* the member alone keeps the cap, but for less than a tenth of a
                                 watt */
        found = earliest(members, n, work, NULL);
    if (found == USM__NOBODY ||
        drawn(members, n, found) + members[found].watts > policy->numbers[0])
        return USM__NOBODY;
    return found;
}

/* Asks the user's function as for a launch whose indices are the tasks that are ready.  Of the
 * members that have room, the one that wants the most takes this task. */
static uint32_t by_user(const usm_policy *policy, const usm__graph_member *members, uint32_t n,
                        uint64_t ready)
{
    usm_policy_member seen[64];
    usm_policy_state  state = {.struct_size = sizeof state,
                               .total       = ready,
                               .remaining   = ready,
                               .depth       = 1,
                               .nmembers    = n < 64 ? n : 64,
                               .members     = seen,
                               .numbers     = policy->numbers,
                               .nnumbers    = policy->nnumbers};
    uint32_t          found = USM__NOBODY, idle = USM__NOBODY;
    uint64_t          most  = 0;
    bool              flies = false;

    for (uint32_t i = 0; i < state.nmembers; i++) {
        const usm__graph_member *m = &members[i];

        seen[i] = (usm_policy_member){.speed   = m->speed,
                                      .weight  = m->weight,
                                      .watts   = m->watts,
                                      .chunks  = m->ended,
                                      .flying  = m->flying > 0,
                                      .is_well = m->is_well};
        state.given += m->ended + (m->flying > 0);
        flies |= m->flying > 0;
    }
    for (uint32_t i = 0; i < state.nmembers; i++) {
        uint64_t wants;

        if (!members[i].may || members[i].room == 0)
            continue;
        if (idle == USM__NOBODY)
            idle = i;
        wants = policy->fn(&state, i);
        if (wants > most) {
            most  = wants;
            found = i;
        }
    }
    return found == USM__NOBODY && !flies ? idle : found;
}

uint32_t usm__graph_choose(usm__graph_policy which, const usm_policy *policy,
                           const usm__graph_member *members, uint32_t nmembers, double work,
                           uint64_t ready)
{
    uint32_t found = USM__NOBODY;

    switch (which) {
    case USM__GRAPH_USER:
        return by_user(policy, members, nmembers, ready);
    case USM__GRAPH_FASTEST:
        found = fastest(members, nmembers, work);
        break;
    case USM__GRAPH_STATIC:
        found = by_share(members, nmembers);
        break;
    case USM__GRAPH_ENERGY:
        found = under_cap(policy, members, nmembers, work);
        return found == USM__NOBODY || members[found].room ? found : USM__NOBODY;
    case USM__GRAPH_ADAPTIVE:
        break;
    }
    if (found == USM__NOBODY) /* every member that may take it has a share of 0 */
        found = earliest(members, nmembers, work, NULL);
    return found == USM__NOBODY || members[found].room ? found : USM__NOBODY;
}
