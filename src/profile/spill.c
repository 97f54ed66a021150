/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Counting spilling: one pass for sums; then times are sorted row by row for percentiles.  Called
 * by analyse.c. */
#include "profile/spill.h"

#include "base/os.h"
#include "base/trace_spill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *usm__profile_spill_kind_name(uint32_t kind)
{
    static const char *const names[USM__SPILL_KINDS] = {
        [USM__SPILL_MISS]         = "miss",
        [USM__SPILL_FETCH]        = "fetch",
        [USM__SPILL_FETCH_AHEAD]  = "fetch ahead",
        [USM__SPILL_STORE]        = "store",
        [USM__SPILL_STORE_AHEAD]  = "store ahead",
        [USM__SPILL_GUESS_USED]   = "guess used",
        [USM__SPILL_GUESS_WASTED] = "guess wasted",
        [USM__SPILL_EVICT_CLEAN]  = "evict clean",
        [USM__SPILL_EVICT_DIRTY]  = "evict dirty",
        [USM__SPILL_PINNED]       = "pinned",
        [USM__SPILL_FIRST]        = "first spill",
        [USM__SPILL_USED]         = "used",
    };

    return kind < USM__SPILL_KINDS ? names[kind] : "";
}

const char *usm__profile_spill_space_name(const usm__profile *t, uint32_t space)
{
    return space > 0 && space <= t->nspaces ? t->spaces[space - 1].name : "";
}

const char *usm__profile_spill_tier_name(const usm__profile *t, uint32_t tier)
{
    return tier > 0 && tier <= t->ntiers ? t->tiers[tier - 1] : "";
}

/* --- rows: one for each name ------------------------------------------------------------ */

typedef struct work {
    const usm__profile        *t;
    usm__profile_spill_usages *u;
    uint32_t      *buffer_of, *tier_of; /* by id: the index of its row                  */
    struct sample *samples;
    size_t         nsamples;
} work;

typedef struct named {
    const char *name;
    uint32_t    id;
} named;

static int by_name(const void *a, const void *b)
{
    const named *x = a, *y = b;
    int          order = strcmp(x->name, y->name);

    return order != 0 ? order : (x->id > y->id) - (x->id < y->id);
}

/* Numbers names from 0 on; id 0 is "(unnamed)".  Returns the list, sorted; row_of[id]. */
static named *number_names(size_t n, const char *(*name)(const usm__profile *, uint32_t),
                           const usm__profile *t, uint32_t *row_of)
{
    named   *list = usm__heap_alloc((n + 1) * sizeof(*list));
    uint32_t row  = 0;

    if (list == NULL)
        return NULL;
    for (uint32_t i = 0; i <= n; i++)
        list[i] = (named){name(t, i), i};
    qsort(list, n + 1, sizeof(*list), by_name);
    for (size_t i = 0; i <= n; i++) {
        row += i > 0 && strcmp(list[i].name, list[i - 1].name) != 0;
        row_of[list[i].id] = row;
    }
    return list;
}

static bool make_buffers(work *w)
{
    usm__profile_spill_usages *u = w->u;
    named                     *list;

    w->buffer_of = usm__heap_alloc((w->t->nspaces + 1) * sizeof(*w->buffer_of));
    u->buffers   = usm__heap_alloc((w->t->nspaces + 1) * sizeof(*u->buffers));
    if (w->buffer_of == NULL || u->buffers == NULL)
        return false;
    list = number_names(w->t->nspaces, usm__profile_spill_space_name, w->t, w->buffer_of);
    for (size_t i = 0; list != NULL && i <= w->t->nspaces; i++) {
        uint32_t    row  = w->buffer_of[list[i].id];
        const char *name = list[i].name[0] != '\0' ? list[i].name : "(unnamed)";

        (void)snprintf(u->buffers[row].name, sizeof(u->buffers->name), "%s", name);
        u->nbuffers = row + 1;
    }
    usm__heap_free(list);
    return list != NULL;
}

static bool make_tiers(work *w)
{
    usm__profile_spill_usages *u = w->u;
    named                     *list;

    w->tier_of = usm__heap_alloc((w->t->ntiers + 1) * sizeof(*w->tier_of));
    u->tiers   = usm__heap_alloc((w->t->ntiers + 1) * sizeof(*u->tiers));
    if (w->tier_of == NULL || u->tiers == NULL)
        return false;
    list = number_names(w->t->ntiers, usm__profile_spill_tier_name, w->t, w->tier_of);
    for (size_t i = 0; list != NULL && i <= w->t->ntiers; i++) {
        uint32_t    row  = w->tier_of[list[i].id];
        const char *name = list[i].name[0] != '\0' ? list[i].name : "(unknown)";

        (void)snprintf(u->tiers[row].name, sizeof(u->tiers->name), "%s", name);
        u->ntiers = row + 1;
    }
    usm__heap_free(list);
    return list != NULL;
}

/* --- sums ---------------------------------------------------------------------------------- */

static void move_bytes(const usm__profile_spill_record *r, usm__profile_spill_buffer *b,
                       usm__profile_spill_tier *t)
{
    bool is_out   = r->kind == USM__SPILL_STORE || r->kind == USM__SPILL_STORE_AHEAD;
    bool is_ahead = r->kind == USM__SPILL_FETCH_AHEAD || r->kind == USM__SPILL_STORE_AHEAD;

    *(is_out ? &b->out : &b->in) += r->bytes;
    *(is_out ? &b->out_ahead : &b->in_ahead) += is_ahead ? r->bytes : 0;
    if (t != NULL)
        *(is_out ? &t->out : &t->in) += r->bytes;
}

static void count_one(const usm__profile_spill_record *r, usm__profile_spill_buffer *b,
                      usm__profile_spill_tier *t)
{
    switch ((usm__trace_spill_kind)r->kind) {
    case USM__SPILL_FETCH:
    case USM__SPILL_FETCH_AHEAD:
    case USM__SPILL_STORE:
    case USM__SPILL_STORE_AHEAD:
        move_bytes(r, b, t);
        break;
    case USM__SPILL_GUESS_USED:
        b->used++;
        break;
    case USM__SPILL_GUESS_WASTED:
        b->wasted++;
        b->evicted_clean++;
        break;
    case USM__SPILL_EVICT_CLEAN:
        b->evicted_clean++;
        break;
    case USM__SPILL_EVICT_DIRTY:
        b->evicted_dirty++;
        break;
    case USM__SPILL_PINNED:
        b->pinned_ns += r->ns;
        b->pinned = r->bytes > b->pinned ? r->bytes : b->pinned;
        break;
    case USM__SPILL_MISS: /* counted in add_samples() */
    case USM__SPILL_FIRST:
    case USM__SPILL_USED:
    case USM__SPILL_KINDS:
    default:
        break;
    }
}

static void sum_up(work *w)
{
    usm__profile_spill_usages *u = w->u;

    (void)snprintf(u->all.name, sizeof(u->all.name), "all");
    for (size_t i = 0; i < w->t->nspills; i++) {
        const usm__profile_spill_record *r = &w->t->spills[i];

        count_one(r, &u->buffers[w->buffer_of[r->space]], &u->tiers[w->tier_of[r->tier]]);
        count_one(r, &u->all, NULL);
        if (r->kind != USM__SPILL_FIRST || u->has_first)
            continue;
        u->has_first   = true;
        u->first_ns    = r->time_ns;
        u->first_limit = r->bytes;
    }
}

/* --- times ------------------------------------------------------------------------------------ */

typedef struct sample {
    usm__profile_spill_times *of;
    uint64_t                  ns;
} sample;

static int by_owner(const void *a, const void *b)
{
    const sample *x = a, *y = b;

    if (x->of != y->of)
        return x->of < y->of ? -1 : 1;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

static void add_sample(work *w, usm__profile_spill_times *of, uint64_t ns)
{
    of->n++;
    of->sum_ns += ns;
    w->samples[w->nsamples++] = (sample){of, ns};
}

static void add_samples(work *w, const usm__profile_spill_record *r)
{
    usm__profile_spill_buffer *b = &w->u->buffers[w->buffer_of[r->space]];
    usm__profile_spill_tier   *t = &w->u->tiers[w->tier_of[r->tier]];
    bool is_wait = r->kind == USM__SPILL_MISS || (r->kind == USM__SPILL_GUESS_USED && r->ns > 0);

    if (is_wait) {
        add_sample(w, &b->waits, r->ns);
        add_sample(w, &w->u->all.waits, r->ns);
    } else if (r->kind == USM__SPILL_FETCH || r->kind == USM__SPILL_FETCH_AHEAD) {
        add_sample(w, &t->reads, r->ns);
    } else if (r->kind == USM__SPILL_STORE || r->kind == USM__SPILL_STORE_AHEAD) {
        add_sample(w, &t->writes, r->ns);
    }
}

/* The smallest sample that is not less than `percent` percent of all. */
static uint64_t rank(const sample *s, size_t n, size_t percent)
{
    return s[(n * percent + 99) / 100 - 1].ns;
}

static bool find_percentiles(work *w)
{
    w->samples = usm__heap_alloc((2 * w->t->nspills + 1) * sizeof(*w->samples));
    if (w->samples == NULL)
        return false;
    for (size_t i = 0; i < w->t->nspills; i++)
        add_samples(w, &w->t->spills[i]);
    qsort(w->samples, w->nsamples, sizeof(*w->samples), by_owner);
    for (size_t i = 0; i < w->nsamples; i += w->samples[i].of->n) {
        w->samples[i].of->p50_ns = rank(&w->samples[i], w->samples[i].of->n, 50);
        w->samples[i].of->p99_ns = rank(&w->samples[i], w->samples[i].of->n, 99);
    }
    return true;
}

/* --- all of it -------------------------------------------------------------------------------- */

static bool is_idle(const usm__profile_spill_buffer *b)
{
    return b->waits.n + b->in + b->out + b->used + b->wasted + b->evicted_clean + b->evicted_dirty +
               b->pinned_ns ==
           0;
}

static int by_waits(const void *a, const void *b)
{
    const usm__profile_spill_buffer *x = a, *y = b;

    if (x->waits.sum_ns != y->waits.sum_ns)
        return x->waits.sum_ns > y->waits.sum_ns ? -1 : 1;
    if (x->in + x->out != y->in + y->out)
        return x->in + x->out > y->in + y->out ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void sort_and_drop(usm__profile_spill_usages *u)
{
    size_t n = 0;

    for (size_t i = 0; i < u->nbuffers; i++)
        if (!is_idle(&u->buffers[i]))
            u->buffers[n++] = u->buffers[i];
    u->nbuffers = n;
    qsort(u->buffers, n, sizeof(*u->buffers), by_waits);
    n = 0;
    for (size_t i = 0; i < u->ntiers; i++)
        if (u->tiers[i].reads.n + u->tiers[i].writes.n > 0)
            u->tiers[n++] = u->tiers[i];
    u->ntiers = n;
}

bool usm__profile_spill_count(const usm__profile *t, usm__profile_spill_usages *u)
{
    work w    = {.t = t, .u = u};
    bool fine = true;

    *u = (usm__profile_spill_usages){.nevents = t->nspills};
    if (t->nspills == 0)
        return true;
    fine = make_buffers(&w) && make_tiers(&w);
    if (fine) {
        sum_up(&w);
        fine = find_percentiles(&w);
    }
    if (fine)
        sort_and_drop(u);
    usm__heap_free(w.buffer_of);
    usm__heap_free(w.tier_of);
    usm__heap_free(w.samples);
    return fine;
}

void usm__profile_spill_usages_free(usm__profile_spill_usages *u)
{
    usm__heap_free(u->buffers);
    usm__heap_free(u->tiers);
}
