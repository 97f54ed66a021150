/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Counting launches over teams: the times of each device as sets of spans, which are joined and
 * subtracted.  Called by analyse.c. */
#include "profile/work.h"

#include "base/os.h"
#include "base/trace_work.h"

#include <stdio.h>
#include <stdlib.h>

const char *usm__profile_work_kind_name(uint32_t kind)
{
    static const char *const names[USM__WORK_KINDS] = {
        [USM__WORK_LAUNCH] = "launch",       [USM__WORK_CHUNK] = "chunk",
        [USM__WORK_FAILED] = "failed chunk", [USM__WORK_IN] = "copy in",
        [USM__WORK_KERNEL] = "kernel",       [USM__WORK_OUT] = "copy out",
        [USM__WORK_QUEUE_KERNEL] = "kernel", [USM__WORK_QUEUE_COPY] = "copy",
        [USM__WORK_QUEUE_FILL] = "fill",     [USM__WORK_QUEUE_MAP] = "map",
        [USM__WORK_ENERGY] = "energy",       [USM__WORK_ENERGY_STATED] = "energy",
    };

    return kind < USM__WORK_KINDS ? names[kind] : "";
}

const char *usm__profile_work_kernel_name(const usm__profile *t, uint32_t kernel)
{
    return kernel > 0 && kernel <= t->nkernels ? t->kernels[kernel - 1] : "";
}

const char *usm__profile_work_member_name(const usm__profile *t, uint32_t member)
{
    return member > 0 && member <= t->nmembers ? t->members[member - 1] : "";
}

uint64_t usm__profile_work_from(const usm__profile_work_record *r)
{
    return r->time_ns > r->ns ? r->time_ns - r->ns : 0;
}

/* --- sets of spans ---------------------------------------------------------------------- */

typedef struct spans {
    size_t                  n;
    usm__profile_work_span *list;
} spans;

static int by_begin(const void *a, const void *b)
{
    const usm__profile_work_span *x = a, *y = b;

    return (x->from > y->from) - (x->from < y->from);
}

static void add(spans *s, const usm__profile_work_record *r)
{
    s->list[s->n++] = (usm__profile_work_span){usm__profile_work_from(r), r->time_ns};
}

/* Sorts the spans and joins those that touch. */
static void join(spans *s)
{
    size_t n = 0;

    if (s->n > 1)
        qsort(s->list, s->n, sizeof(*s->list), by_begin);
    for (size_t i = 0; i < s->n; i++) {
        if (s->list[i].to <= s->list[i].from)
            continue;
        if (n > 0 && s->list[i].from <= s->list[n - 1].to) {
            if (s->list[i].to > s->list[n - 1].to)
                s->list[n - 1].to = s->list[i].to;
        } else {
            s->list[n++] = s->list[i];
        }
    }
    s->n = n;
}

static uint64_t length(const spans *s)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < s->n; i++)
        sum += s->list[i].to - s->list[i].from;
    return sum;
}

/* The part of `a` that is not in `b`; pre: both are joined.  out: room for a->n + b->n. */
static void subtract(const spans *a, const spans *b, spans *out)
{
    size_t k = 0;

    out->n = 0;
    for (size_t i = 0; i < a->n; i++) {
        uint64_t from = a->list[i].from, to = a->list[i].to;

        while (k < b->n && b->list[k].to <= from)
            k++;
        for (size_t m = k; m < b->n && b->list[m].from < to; m++) {
            if (b->list[m].from > from)
                out->list[out->n++] = (usm__profile_work_span){from, b->list[m].from};
            from = b->list[m].to;
        }
        if (from < to)
            out->list[out->n++] = (usm__profile_work_span){from, to};
    }
}

/* --- one device ----------------------------------------------------------------------------- */

typedef struct work {
    const usm__profile *t;
    spans               launched, kernels, copies, busy, rest;
} work;

static bool prepare(work *w)
{
    spans *all[] = {&w->launched, &w->kernels, &w->copies, &w->busy, &w->rest};
    bool   fine  = true;

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        all[i]->list = usm__heap_alloc((2 * w->t->nworks + 1) * sizeof(usm__profile_work_span));
        fine         = fine && all[i]->list != NULL;
    }
    return fine;
}

static void tidy(work *w)
{
    usm__heap_free(w->launched.list);
    usm__heap_free(w->kernels.list);
    usm__heap_free(w->copies.list);
    usm__heap_free(w->busy.list);
    usm__heap_free(w->rest.list);
}

static void count_one(work *w, usm__profile_work_device *d, const usm__profile_work_record *r)
{
    switch ((usm__trace_work_kind)r->kind) {
    case USM__WORK_CHUNK:
        d->chunks++;
        d->items += r->n;
        add(&w->launched, r);
        break;
    case USM__WORK_FAILED:
        d->failed++;
        add(&w->launched, r);
        break;
    case USM__WORK_KERNEL:
        add(&w->kernels, r);
        add(&w->busy, r);
        break;
    case USM__WORK_IN:
    case USM__WORK_OUT:
        *(r->kind == USM__WORK_IN ? &d->bytes_in : &d->bytes_out) += r->n;
        add(&w->copies, r);
        add(&w->busy, r);
        break;
    case USM__WORK_QUEUE_KERNEL:
        d->commands++;
        add(&w->kernels, r);
        break;
    case USM__WORK_QUEUE_COPY:
    case USM__WORK_QUEUE_FILL:
    case USM__WORK_QUEUE_MAP:
        d->commands++;
        d->bytes_in += r->n;
        add(&w->copies, r);
        break;
    case USM__WORK_LAUNCH:
    case USM__WORK_ENERGY: /* records of their own: energy.c */
    case USM__WORK_ENERGY_STATED:
    case USM__WORK_KINDS:
    default:
        break;
    }
}

static void collect(work *w, usm__profile_work_device *d)
{
    w->launched.n = w->kernels.n = w->copies.n = w->busy.n = 0;
    for (size_t i = 0; i < w->t->nworks; i++)
        if (w->t->works[i].kind != USM__WORK_LAUNCH && w->t->works[i].member == d->member) {
            d->source = w->t->works[i].source;
            count_one(w, d, &w->t->works[i]);
        }
    for (size_t i = 0; i < w->t->nworks; i++)
        if (w->t->works[i].kind == USM__WORK_LAUNCH && w->t->works[i].source == d->source)
            add(&w->launched, &w->t->works[i]);
    join(&w->launched);
    join(&w->kernels);
    join(&w->copies);
    join(&w->busy);
}

static bool count_device(work *w, usm__profile_work_device *d)
{
    collect(w, d);
    d->launched_ns = length(&w->launched);
    d->kernel_ns   = length(&w->kernels);
    d->copy_ns     = length(&w->copies);
    subtract(&w->copies, &w->kernels, &w->rest);
    d->hidden_ns = d->copy_ns - length(&w->rest);
    subtract(&w->launched, &w->busy, &w->rest);
    d->idle_ns = length(&w->rest);
    d->ngaps   = w->rest.n;
    d->gaps    = usm__heap_alloc((d->ngaps + 1) * sizeof(*d->gaps));
    if (d->gaps == NULL)
        return false;
    for (size_t i = 0; i < d->ngaps; i++) {
        uint64_t ns = w->rest.list[i].to - w->rest.list[i].from;

        d->gaps[i]    = w->rest.list[i];
        d->longest_ns = ns > d->longest_ns ? ns : d->longest_ns;
    }
    return true;
}

/* --- all of it ------------------------------------------------------------------------------- */

bool usm__profile_work_count(const usm__profile *t, usm__profile_work_usages *u)
{
    work w    = {.t = t};
    bool fine = true;

    *u = (usm__profile_work_usages){.nevents = t->nworks};
    if (t->nworks == 0)
        return true;
    for (size_t i = 0; i < t->nworks; i++)
        u->launches += t->works[i].kind == USM__WORK_LAUNCH;
    u->devices = usm__heap_alloc((t->nmembers + 1) * sizeof(*u->devices));
    fine       = prepare(&w) && u->devices != NULL;
    for (uint32_t id = 0; fine && id <= t->nmembers; id++) {
        usm__profile_work_device *d    = &u->devices[u->ndevices];
        const char               *name = usm__profile_work_member_name(t, id);

        *d = (usm__profile_work_device){.member = id};
        (void)snprintf(d->name, sizeof(d->name), "%s", name[0] != '\0' ? name : "(unnamed)");
        fine = count_device(&w, d);
        if (d->chunks + d->failed == 0)
            d->ngaps = 0; /* a queue of another runtime is under no launch */
        u->nqueues += d->commands > 0;
        if (fine && d->chunks + d->failed + d->commands > 0)
            u->ndevices++;
        else
            usm__heap_free(d->gaps);
    }
    tidy(&w);
    return fine;
}

void usm__profile_work_usages_free(usm__profile_work_usages *u)
{
    for (size_t i = 0; i < u->ndevices; i++)
        usm__heap_free(u->devices[i].gaps);
    usm__heap_free(u->devices);
}
