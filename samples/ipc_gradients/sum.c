/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Three ways to sum what n workers have, each reading the others' memory through opened pointers:
 *
 *     star        one adds all, the others copy: least to agree on, one does all the work
 *     all-to-all  each adds its slice of all, and copies the other slices: two steps
 *     ring        each talks to its left neighbour alone, 2 (n - 1) steps: for machines where
 *                 neighbours are near and all at once would meet in one place
 *
 * Who ends in the middle of it is found at the next barrier, which tells all at the same call; the
 * round is done again then, so nobody has to leave a round halfway in order. */
#include "gradients.h"

#include <signal.h>

#define LOOK_MS 50 /* how often to look whether a neighbour is still there */

static const member *living(const group *g, int i)
{
    return &g->of[g->living[i]];
}

/* Where slice i of n begins; on a cache line of its own. */
static size_t slice(size_t count, int n, int i)
{
    size_t each = (count / (size_t)n + 15) / 16 * 16, first = each * (size_t)i;

    return i == n || first > count ? count : first;
}

/* For the demo: in the middle of things. */
static void perhaps_die(const group *g)
{
    for (int i = 0; i < g->o->nkills; i++)
        if (g->o->kill_rank[i] == g->rank && g->o->kill_round[i] == g->round)
            (void)raise(SIGKILL);
}

/* out = the sum of all gradients in [first, end), in the order of ranks. */
static usm_status add_all(group *g, float *out, size_t first, size_t end)
{
    const float *in[MAX_WORKERS];

    for (int i = 0; i < g->n; i++)
        in[i] = living(g, i)->gradients + first;
    return kernel_add(g, out + first, in, g->n, end - first);
}

static usm_status copy(group *g, const float *from, size_t first, size_t end)
{
    return usm_memcpy(g->q, g->of[g->rank].sum + first, from + first, (end - first) * sizeof *from,
                      0, NULL, NULL);
}

/* The device has done it, and so has everybody's. */
static usm_status finish_step(group *g, usm_status status)
{
    usm_status ended = usm_queue_wait(g->q);

    perhaps_die(g);
    if (status == USM_OK)
        status = ended;
    return status == USM_OK ? group_meet(g) : status;
}

usm_status sum_star(group *g, size_t count)
{
    usm_status status = USM_OK;

    if (g->me == 0)
        status = add_all(g, g->of[g->rank].sum, 0, count);
    status = finish_step(g, status);
    if (status == USM_OK && g->me != 0)
        status = copy(g, living(g, 0)->sum, 0, count);
    return status == USM_OK ? usm_queue_wait(g->q) : status;
}

usm_status sum_all_to_all(group *g, size_t count)
{
    size_t     first = slice(count, g->n, g->me), end = slice(count, g->n, g->me + 1);
    usm_status status = finish_step(g, add_all(g, g->of[g->rank].sum, first, end));

    for (int k = 1; k < g->n && status == USM_OK; k++) {
        int i = (g->me + k) % g->n; /* not all at the same one at once */

        status = copy(g, living(g, i)->sum, slice(count, g->n, i), slice(count, g->n, i + 1));
    }
    return status == USM_OK ? usm_queue_wait(g->q) : status;
}

/* Step k of the first half: slice me - 1 - k comes from the left, mine is added and it is the next
 * one's.  Of the second half: slice me - k, which is complete, is copied. */
static usm_status ring_step(group *g, size_t count, int k)
{
    const member *me = &g->of[g->rank], *left = living(g, (g->me + g->n - 1) % g->n);
    int           half = g->n - 1, i = k < half ? g->me - 1 - k : g->me - (k - half);
    int           s     = (i + 2 * g->n) % g->n;
    size_t        first = slice(count, g->n, s), end = slice(count, g->n, s + 1);
    const float  *in[] = {(k == 0 ? left->gradients : left->sum) + first, me->gradients + first};

    if (k < half)
        return kernel_add(g, me->sum + first, in, 2, end - first);
    return copy(g, left->sum, first, end);
}

/* Until worker i of the living has done `steps` steps.  Others have its event too, and could signal
 * it for all that libusm knows, so its death is asked for. */
static usm_status wait_for(group *g, int i, uint64_t steps)
{
    usm_status status;

    do
        status = usm_ipc_event_sync_count(living(g, i)->steps, steps, LOOK_MS);
    while (status == USM_E_NOT_READY && usm_ipc_channel_is_alive(g->ch, (uint32_t)g->living[i]));
    return status == USM_E_NOT_READY ? USM_E_OWNER_GONE : status;
}

/* An event is a counter here: the left neighbour signals after each of its steps.  When it has
 * ended, the wait fails; the steps are gone through all the same, because the right neighbour
 * counts them, and the barrier at the end of the round tells everybody. */
usm_status sum_ring(group *g, size_t count)
{
    usm_ipc_event *mine  = g->of[g->rank].steps;
    usm_status     first = USM_OK;

    if (g->n == 1)
        return sum_star(g, count);
    for (int k = 0; k < 2 * (g->n - 1); k++) {
        usm_status status = USM_OK;

        if (k > 0)
            status = wait_for(g, (g->me + g->n - 1) % g->n, g->steps);
        if (status == USM_OK)
            status = ring_step(g, count, k);
        if (status == USM_OK)
            status = usm_queue_wait(g->q);
        perhaps_die(g);
        if (first == USM_OK)
            first = status;
        g->steps++;
        status = usm_ipc_event_signal(mine);
        if (first == USM_OK)
            first = status;
    }
    return first == USM_E_OWNER_GONE ? USM_OK : first;
}

int sum_first(way how, const group *g, size_t count, size_t i)
{
    int s = 0;

    while (how == RING && slice(count, g->n, s + 1) <= i)
        s++;
    return s;
}

/* Measured on processors that share one memory: there the ring wins only where its steps are few
 * and caches too small for the others. */
way sum_choose(size_t size, int n)
{
    if (size <= (size_t)128 << 10 || n == 1)
        return STAR;
    return size <= (size_t)8 << 20 || n > 3 ? ALL_TO_ALL : RING;
}
