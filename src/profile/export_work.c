/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Spans of each device for the page: [kind, begin, length, n, kernel, first], and its idle gaps:
 * [begin, length].  Of more than SPANS_MAX the longest are drawn. */
#include "profile/export_work.h"

#include "profile/work.h"

#include "base/os.h"
#include "base/trace_work.h"

#include <errno.h>
#include <stdlib.h>

#define SPANS_MAX 60000u

static int longest_first(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x < *y) - (*x > *y);
}

/* The least length of spans that are drawn; false: no memory. */
static bool find_least(const usm__profile *t, const usm__profile_work_usages *u, uint64_t *least)
{
    size_t    n = t->nworks;
    uint64_t *lengths;

    *least = 0;
    for (size_t i = 0; i < u->ndevices; i++)
        n += u->devices[i].ngaps;
    if (n <= SPANS_MAX)
        return true;
    lengths = usm__heap_alloc(n * sizeof(*lengths));
    if (lengths == NULL)
        return false;
    n = 0;
    for (size_t i = 0; i < t->nworks; i++)
        lengths[n++] = t->works[i].ns;
    for (size_t i = 0; i < u->ndevices; i++)
        for (size_t k = 0; k < u->devices[i].ngaps; k++)
            lengths[n++] = u->devices[i].gaps[k].to - u->devices[i].gaps[k].from;
    qsort(lengths, n, sizeof(*lengths), longest_first);
    *least = lengths[SPANS_MAX];
    usm__heap_free(lengths);
    return true;
}

static void write_spans(usm__json *j, const usm__profile *t, uint32_t member, uint64_t least)
{
    bool any = false;

    usm__json_array_begin(j, "spans");
    for (size_t i = 0; i < t->nworks; i++) {
        const usm__profile_work_record *r = &t->works[i];

        if (r->member != member || r->kind == USM__WORK_LAUNCH || r->ns < least)
            continue;
        if (any)
            usm__json_line(j);
        usm__json_array_begin(j, NULL);
        usm__json_number(j, NULL, r->kind);
        usm__json_number(j, NULL, usm__profile_work_from(r));
        usm__json_number(j, NULL, r->ns);
        usm__json_number(j, NULL, r->n);
        usm__json_number(j, NULL, r->kernel);
        usm__json_number(j, NULL, r->first);
        usm__json_array_end(j);
        any = true;
    }
    usm__json_array_end(j);
}

static void write_gaps(usm__json *j, const usm__profile_work_device *d, uint64_t least)
{
    usm__json_array_begin(j, "gaps");
    for (size_t i = 0; i < d->ngaps; i++) {
        uint64_t ns = d->gaps[i].to - d->gaps[i].from;

        if (ns < least)
            continue;
        usm__json_array_begin(j, NULL);
        usm__json_number(j, NULL, d->gaps[i].from);
        usm__json_number(j, NULL, ns);
        usm__json_array_end(j);
    }
    usm__json_array_end(j);
}

static void write_device(usm__json *j, const usm__profile *t, const usm__profile_work_device *d,
                         uint64_t least)
{
    usm__json_line(j);
    usm__json_object_begin(j, NULL);
    usm__json_text_max(j, "name", d->name, sizeof d->name);
    usm__json_number(j, "pid", t->sources[d->source].header.pid);
    write_spans(j, t, d->member, least);
    write_gaps(j, d, least);
    usm__json_object_end(j);
}

static void write_all(usm__json *j, const usm__profile *t, const usm__profile_work_usages *u,
                      uint64_t least)
{
    usm__json_line(j);
    usm__json_object_begin(j, "work");
    usm__json_number(j, "least", least);
    usm__json_array_begin(j, "kinds");
    for (uint32_t kind = 0; kind < USM__WORK_KINDS; kind++)
        usm__json_text(j, NULL, usm__profile_work_kind_name(kind));
    usm__json_array_end(j);
    usm__json_array_begin(j, "kernels");
    usm__json_text(j, NULL, "");
    for (size_t i = 0; i < t->nkernels; i++)
        usm__json_text_max(j, NULL, t->kernels[i], sizeof *t->kernels);
    usm__json_array_end(j);
    usm__json_array_begin(j, "devices");
    for (size_t i = 0; i < u->ndevices; i++)
        write_device(j, t, &u->devices[i], least);
    usm__json_array_end(j);
    usm__json_object_end(j);
}

int usm__export_work(usm__json *j, const usm__profile *t)
{
    usm__profile_work_usages u;
    uint64_t                 least = 0;
    bool                     fine  = usm__profile_work_count(t, &u) && find_least(t, &u, &least);

    if (fine && u.ndevices > 0)
        write_all(j, t, &u, least);
    usm__profile_work_usages_free(&u);
    return fine ? 0 : ENOMEM;
}
