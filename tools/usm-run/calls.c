/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the launches cost that calls make, which are those of templates.
 *
 * Two trials execute each launch on one device, in few chunks and in many: chunks * cost + items *
 * each seconds.  The rest of the launch's time, and that of the call, is the host's. */
#include "simulate.h"

#include <stdlib.h>
#include <string.h>

bool calls_keep(usm__tried_call *best, usm__tried_call *now, bool is_first)
{
    if (is_first) {
        usm__tried_call old = *best;

        *best = *now;
        *now  = old;
        return best->n > 0;
    }
    if (now->n < best->n)
        best->n = now->n;
    for (uint32_t i = 0; i < best->n; i++) {
        usm__tried_launch *b = &best->launches[i], *n = &now->launches[i];

        b->wall_s = n->wall_s < b->wall_s ? n->wall_s : b->wall_s;
        if (n->busy_s < b->busy_s) {
            b->busy_s = n->busy_s;
            b->chunks = n->chunks;
            b->items  = n->items;
        }
    }
    return best->n > 0;
}

double calls_seconds(const usm__tried_call *c)
{
    double sum = 0;

    for (uint32_t i = 0; i < c->n; i++)
        sum += c->launches[i].wall_s;
    return sum;
}

/* Of a device that is as fast as the one that was tried. */
static usm__sim_pace fit(const usm__tried_launch *few, const usm__tried_launch *many)
{
    double        busy  = few->busy_s < many->busy_s ? few->busy_s : many->busy_s;
    double        items = many->items ? (double)many->items : 1;
    usm__sim_pace p     = {.has_image = many->is_on_member};

    if (many->chunks > few->chunks && many->busy_s > few->busy_s)
        p.cost = (many->busy_s - few->busy_s) / (double)(many->chunks - few->chunks);
    if (p.cost * (double)few->chunks > busy) /* noise, or nothing but costs */
        p.cost = few->chunks ? busy / (double)few->chunks : 0;
    p.each = (busy - p.cost * (double)few->chunks) / items;
    return p;
}

/* Of the first device that is tried; the others add their paces. */
static void begin(call_costs *c, uint32_t ndevices, const usm__tried_call *few,
                  const usm__tried_call *many)
{
    c->n        = few->n < many->n ? few->n : many->n;
    c->launches = need(calloc(c->n + 1ul, sizeof *c->launches));
    c->paces    = need(calloc((c->n + 1ul) * ndevices, sizeof *c->paces));
    for (uint32_t i = 0; i < c->n; i++) {
        const usm__tried_launch *l = &few->launches[i];

        c->launches[i].shape = l->shape;
        c->launches[i].fixed = l->wall_s > l->busy_s ? l->wall_s - l->busy_s : 0;
        if (l->items) /* fewer, if something was found before the end */
            c->launches[i].shape.params.total = l->items;
    }
}

void calls_set(call_costs *c, const machine *m, const char *like, const usm__tried_call *few,
               const usm__tried_call *many)
{
    if (!c->launches)
        begin(c, (uint32_t)m->n, few, many);
    for (uint32_t i = 0; i < c->n && i < few->n && i < many->n; i++) {
        usm__sim_pace pace = fit(&few->launches[i], &many->launches[i]);

        for (size_t d = 0; d < m->n; d++)
            if (strcmp(m->devices[d].like, like) == 0)
                c->paces[i * m->n + d] = (usm__sim_pace){.cost = pace.cost / m->devices[d].speed,
                                                         .each = pace.each / m->devices[d].speed,
                                                         .has_image = pace.has_image};
    }
}

bool calls_parallel(void *user, uint32_t node, uint32_t i, usm__sim_parallel *launch)
{
    const costs      *all = user;
    const call_costs *c   = &all->made[node];

    if (i >= c->n)
        return false;
    *launch = (usm__sim_parallel){.shape   = &c->launches[i].shape,
                                  .fixed_s = c->launches[i].fixed,
                                  .paces   = &c->paces[(size_t)i * all->ndevices]};
    return true;
}

void calls_free(call_costs *c)
{
    free(c->launches);
    free(c->paces);
}
