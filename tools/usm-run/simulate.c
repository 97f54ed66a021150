/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs an app on a machine that is only described, with several numbers of parts and policies, and
 * prints what comes out. */
#include "simulate.h"

#include "offload/graph.h"

#include <stdlib.h>
#include <string.h>

enum { PER_DEVICE_MAX = 128, OUTCOMES_MAX = 64 };

typedef struct state {
    app              *a;
    const simulation *s;
    machine           m;
    costs             c;
    outcome          *outcomes;
    size_t            n;
} state;

/* ---- runs ------------------------------------------------------------------------------------ */

/* Parts for each device, of the first partitioner that leaves them open; 0: there is none.  Where an
 * app says how many parts there are, its kernels may rely on it. */
static uint32_t own_parts(const usm_graph *g)
{
    for (uint32_t i = 0; i < g->nnodes; i++) {
        const usm_node_desc *d = &g->nodes[i].desc;

        if (d->kind == USM_NODE_PARTITION && d->parts == 0)
            return d->per_device ? d->per_device : USM__PER_DEVICE;
    }
    return 0;
}

static bool run_one(state *st, uint32_t per_device, const char *policy, bool is_own)
{
    usm__sim_device devices[USM__SIM_DEVICES_MAX];
    usm__sim_desc   d = {
          .policy      = {.name = policy, .numbers = st->s->numbers, .nnumbers = st->s->nnumbers},
          .no_prefetch = st->s->no_prefetch,
          .per_device  = is_own ? 0 : per_device,
          .devices     = devices,
          .ndevices    = (uint32_t)st->m.n,
          .units       = st->m.units,
          .nunits      = st->m.nunits,
          .seconds     = costs_seconds,
          .parallel    = calls_parallel,
          .user        = &st->c};
    outcome *o = &st->outcomes[st->n];

    for (size_t i = 0; i < st->m.n; i++)
        devices[i] = st->m.devices[i].sim;
    *o = (outcome){.per_device = per_device, .policy = policy, .is_own = is_own};
    if (usm__graph_simulate(st->a->graph, &d, &o->result) != USM_OK)
        return app_failed(st->a);
    st->n++;
    return true;
}

static bool run_policy(state *st, const char *policy)
{
    uint32_t own   = own_parts(st->a->graph);
    bool     is_ok = run_one(st, own, policy, true);

    for (uint32_t n = 1; is_ok && own && n <= PER_DEVICE_MAX; n *= 2)
        is_ok = n == own || run_one(st, n, policy, false);
    return is_ok;
}

static int compare(const void *a, const void *b)
{
    const outcome *x = a, *y = b;
    int            by_policy = strcmp(x->policy, y->policy);

    return by_policy ? by_policy
                     : (x->per_device > y->per_device) - (x->per_device < y->per_device);
}

/* Less parts, if it makes no difference. */
static const outcome *best_of(const state *st)
{
    const outcome *best = &st->outcomes[0];

    for (size_t i = 1; i < st->n; i++) {
        const outcome *o = &st->outcomes[i];

        if (o->result.seconds < best->result.seconds * 0.995 ||
            (o->result.seconds < best->result.seconds * 1.005 && o->per_device < best->per_device))
            best = o;
    }
    return best;
}

/* ---- the table ------------------------------------------------------------------------------- */

static bool has_watts(const machine *m)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->devices[i].sim.watts > 0 || m->devices[i].sim.idle_watts > 0)
            return true;
    return false;
}

static void print_shares(const state *st, const outcome *o)
{
    for (size_t i = 0; i < st->m.n; i++)
        printf("%s%s %.0f %%", i ? ", " : "  ", st->m.devices[i].sim.name,
               o->result.seconds > 0 ? 100 * o->result.busy_s[i] / o->result.seconds : 0);
}

static void print_head(bool is_open, bool watts)
{
    if (is_open)
        printf("%8s %6s  ", "a device", "parts");
    printf("%-9s %10s %9s %10s%s  at work\n", "policy", "seconds", "launches", "MiB moved",
           watts ? "     joules" : "");
}

static void print_outcome(const state *st, const outcome *o, bool watts)
{
    const usm__sim_result *r = &o->result;

    if (o->per_device)
        printf("%7u%c %6zu  ", o->per_device, o->is_own ? '*' : ' ', o->per_device * st->m.nlocal);
    printf("%-9s %10.4f %9llu %10.1f", o->policy, r->seconds, (unsigned long long)r->launches,
           (double)(r->bytes_in + r->bytes_out + r->bytes_over_links) / (1 << 20));
    if (watts)
        printf(" %10.1f", r->joules);
    print_shares(st, o);
}

static void print_outcomes(const state *st, const outcome *best)
{
    bool watts = has_watts(&st->m), is_open = st->outcomes[0].per_device;

    print_head(is_open, watts);
    for (size_t i = 0; i < st->n; i++) {
        print_outcome(st, &st->outcomes[i], watts);
        printf("%s\n", &st->outcomes[i] == best ? "  <- best" : "");
    }
    if (is_open)
        printf("* as %s has it now\n", st->a->path);
    else
        printf("No partitioner of %s leaves its parts open: they stay as they are.\n", st->a->path);
    if (!watts)
        puts("No device has 'watts': nothing is said of energy.");
}

/* ---- all ------------------------------------------------------------------------------------- */

static bool run_all(state *st)
{
    static const char *const policies[] = {"adaptive", "fastest", "static"};
    bool                     is_ok      = true;

    if (st->s->policy)
        return run_policy(st, st->s->policy);
    if (st->m.n == 1) /* which gets everything */
        return run_policy(st, policies[0]);
    for (size_t i = 0; i < sizeof policies / sizeof *policies && is_ok; i++)
        is_ok = run_policy(st, policies[i]);
    return is_ok;
}

static bool show(state *st)
{
    const outcome *best;

    qsort(st->outcomes, st->n, sizeof *st->outcomes, compare);
    best = best_of(st);
    print_outcomes(st, best);
    if (st->s->plot && !plot_write(st->s->plot, st->outcomes, st->n))
        return false;
    return !st->s->suggests || suggest_write(st->a, best);
}

bool simulate(app *a, const simulation *s)
{
    state st    = {.a = a, .s = s};
    bool  is_ok = machine_read(&st.m, s->machine) && costs_find(&st.c, a, &st.m);

    st.outcomes = need(calloc(OUTCOMES_MAX, sizeof *st.outcomes));
    is_ok       = is_ok && run_all(&st) && show(&st);
    free(st.outcomes);
    costs_free(&st.c);
    machine_free(&st.m);
    return is_ok;
}
