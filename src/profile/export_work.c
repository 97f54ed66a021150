/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Spans of each device for the page: [kind, begin, length, n, kernel, first], and its idle gaps:
 * [begin, length].  Of more than SPANS_MAX the longest are drawn. */
#include "profile/export_work.h"

#include "profile/out.h"
#include "profile/work.h"

#include "base/os.h"
#include "base/trace_work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define SPANS_MAX 60000u

static int longest_first(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x < *y) - (*x > *y);
}

/* The least length of spans that are drawn; false: no memory. */
static bool find_least(const usm__trace *t, const usm__work_usages *u, uint64_t *least)
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

static void write_spans(FILE *out, const usm__trace *t, uint32_t member, uint64_t least)
{
    bool any = false;

    fputs(",\"spans\":[", out);
    for (size_t i = 0; i < t->nworks; i++) {
        const usm__trace_work_record *r = &t->works[i];

        if (r->member != member || r->kind == USM__WORK_LAUNCH || r->ns < least)
            continue;
        fprintf(out, "%s[%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu32 ",%" PRIu64 "]",
                any ? ",\n" : "", r->kind, usm__work_from(r), r->ns, r->n, r->kernel, r->first);
        any = true;
    }
    fputc(']', out);
}

static void write_device(FILE *out, const usm__trace *t, const usm__work_device *d, uint64_t least)
{
    bool any = false;

    fputs("{\"name\":", out);
    usm__out_json_text(out, d->name, sizeof d->name);
    fprintf(out, ",\"pid\":%" PRIu32, t->sources[d->source].header.pid);
    write_spans(out, t, d->member, least);
    fputs(",\"gaps\":[", out);
    for (size_t i = 0; i < d->ngaps; i++) {
        uint64_t ns = d->gaps[i].to - d->gaps[i].from;

        if (ns < least)
            continue;
        fprintf(out, "%s[%" PRIu64 ",%" PRIu64 "]", any ? "," : "", d->gaps[i].from, ns);
        any = true;
    }
    fputs("]}", out);
}

static void write_all(FILE *out, const usm__trace *t, const usm__work_usages *u, uint64_t least)
{
    fprintf(out, ",\n\"work\":{\"least\":%" PRIu64 ",\"kinds\":[", least);
    for (uint32_t kind = 0; kind < USM__WORK_KINDS; kind++)
        fprintf(out, "%s\"%s\"", kind ? "," : "", usm__work_kind_name(kind));
    fputs("],\"kernels\":[\"\"", out);
    for (size_t i = 0; i < t->nkernels; i++) {
        fputc(',', out);
        usm__out_json_text(out, t->kernels[i], sizeof *t->kernels);
    }
    fputs("],\"devices\":[", out);
    for (size_t i = 0; i < u->ndevices; i++) {
        fputs(i ? ",\n" : "\n", out);
        write_device(out, t, &u->devices[i], least);
    }
    fputs("]}", out);
}

int usm__export_work(FILE *out, const usm__trace *t)
{
    usm__work_usages u;
    uint64_t         least = 0;
    bool             fine  = usm__work_count(t, &u) && find_least(t, &u, &least);

    if (fine && u.ndevices > 0)
        write_all(out, t, &u, least);
    usm__work_usages_free(&u);
    return fine ? 0 : ENOMEM;
}
