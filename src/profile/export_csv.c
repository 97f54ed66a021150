/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events as comma-separated values, one line each, for spreadsheets and scripts: RFC 4180, with a
 * line of names first. Called by usm-prof. */
#include "profile/export.h"
#include "profile/export_file.h"
#include "profile/spill.h"
#include "profile/work.h"

#include <inttypes.h>
#include <string.h>

/* In quotes if needed. */
static void put_text(FILE *out, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        (void)fputs(text, out);
        return;
    }
    (void)fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            (void)fputc('"', out);
        (void)fputc(*text, out);
    }
    (void)fputc('"', out);
}

static void put_record(FILE *out, const usm__profile *t, const usm__profile_record *r)
{
    static const char *const  names[] = {"",     "alloc", "free", "failed",
                                         "take", "give",  "map",  "unmap"};
    const usm__profile_event *e       = &r->e;

    (void)fprintf(out, "%" PRIu64 ",%u,%u,%s,%u,", e->time_ns, r->source, r->thread, names[e->type],
                  e->pool);
    put_text(out, t->tags[e->tag]);
    (void)fprintf(out, ",0x%" PRIx64 ",%" PRIu64 ",%" PRIu64 ",%u,%u\n", e->address, e->size,
                  e->usable, e->type >= USM__EVENT_TAKE ? e->extra : 0,
                  e->type == USM__EVENT_ALLOC ? e->extra : 0);
}

/* The pool column has the tier's number, the tag column the buffer's name, the address column the
 * block. */
static void put_spill(FILE *out, const usm__profile *t, const usm__profile_spill_record *r)
{
    (void)fprintf(out, "%" PRIu64 ",%u,%u,%s,%u,", r->time_ns, r->source, r->thread,
                  usm__profile_spill_kind_name(r->kind), r->tier);
    put_text(out, usm__profile_spill_space_name(t, r->space));
    (void)fprintf(out, ",0x%" PRIx32 ",%" PRIu64 ",0,%" PRIu64 ",0\n", r->block, r->bytes, r->ns);
}

/* The pool column has the member's number, the tag column the kernel's name, the address column the
 * first index. */
static void put_work(FILE *out, const usm__profile *t, const usm__profile_work_record *r)
{
    (void)fprintf(out, "%" PRIu64 ",%u,%u,%s,%u,", r->time_ns, r->source, r->thread,
                  usm__profile_work_kind_name(r->kind), r->member);
    put_text(out, usm__profile_work_kernel_name(t, r->kernel));
    (void)fprintf(out, ",0x%" PRIx64 ",%" PRIu64 ",0,%" PRIu64 ",0\n", r->first, r->n, r->ns);
}

/* The size column has what caches may hold, the usable column their budget. */
static void put_caches(FILE *out, const usm__profile_cache_record *r)
{
    (void)fprintf(out, "%" PRIu64 ",%u,%u,caches,%u,,0x0,%" PRIu64 ",%" PRIu64 ",0,0\n", r->time_ns,
                  r->source, r->thread, r->pool, r->room, r->limit);
}

/* As put_work(); the size column has microjoules. */
static void put_energy(FILE *out, const usm__profile *t, const usm__profile_energy_record *r)
{
    (void)fprintf(out, "%" PRIu64 ",%u,%u,%s,%u,", r->time_ns, r->source, r->thread,
                  r->is_stated ? "energy stated" : "energy", r->member);
    put_text(out, usm__profile_work_kernel_name(t, r->kernel));
    (void)fprintf(out, ",0x0,%" PRIu64 ",0,0,0\n", r->microjoules);
}

/* Those until then that were not written yet, from *at on. */
static void put_energies(FILE *out, const usm__profile *t, size_t *at, uint64_t until)
{
    for (; *at < t->nenergies && t->energies[*at].time_ns < until; (*at)++)
        put_energy(out, t, &t->energies[*at]);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Writes all kinds in the order of their times. */
static void put_all(FILE *out, const usm__profile *t)
{
    size_t i = 0, k = 0, m = 0, n = 0, p = 0;

    while (i < t->nrecords || k < t->nspills || m < t->nworks || n < t->ncaches) {
        uint64_t record = i < t->nrecords ? t->records[i].e.time_ns : UINT64_MAX;
        uint64_t spill  = k < t->nspills ? t->spills[k].time_ns : UINT64_MAX;
        uint64_t work   = m < t->nworks ? t->works[m].time_ns : UINT64_MAX;
        uint64_t caches = n < t->ncaches ? t->caches[n].time_ns : UINT64_MAX;

        put_energies(out, t, &p, least(least(record, spill), least(work, caches)));
        if (n < t->ncaches && caches <= record && caches <= spill && caches <= work)
            put_caches(out, &t->caches[n++]);
        else if (i < t->nrecords && record <= spill && record <= work)
            put_record(out, t, &t->records[i++]);
        else if (k < t->nspills && spill <= work)
            put_spill(out, t, &t->spills[k++]);
        else if (m < t->nworks)
            put_work(out, t, &t->works[m++]);
    }
    put_energies(out, t, &p, UINT64_MAX);
}

int usm__export_csv(const usm__profile *t, const char *path)
{
    FILE *out    = NULL;
    int   status = usm__export_open(path, &out);

    if (status != 0)
        return status;
    (void)fputs("time_ns,source,thread,event,pool,tag,address,size,usable,duration_ns,stack\n",
                out);
    put_all(out, t);
    return usm__export_close(out, path, 0);
}
