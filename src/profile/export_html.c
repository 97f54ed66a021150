/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A trace as one page of HTML.  report.html is the page, with its script; this file makes its data:
 * one JSON object, with columns rather than rows, and differences rather than growing numbers, so
 * that a trace of 200000 events is a page of few megabytes.  The script in report.html documents
 * the members where it reads them.
 *
 * A moment is the state after `step` records; there are at most MOMENTS_MAX. Of more than
 * BLOCKS_MAX blocks those with the largest bytes x time are drawn; the rest is one sampled level
 * per pool. */
#include "profile/blocks.h"
#include "profile/export.h"
#include "profile/export_tables.h"
#include "profile/export_work.h"
#include "profile/out.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOMENTS_MAX      400000u
#define BLOCKS_MAX       200000u
#define REST_SAMPLES_MAX 4096u

extern const char   usm__report_html[]; /* report.html, embedded by the build */
extern const size_t usm__report_html_size;

typedef struct page {
    FILE                    *out;
    const usm__trace        *t;
    const usm__trace_blocks *found;
    const uint32_t          *list; /* blocks that are drawn individually */
    size_t                   n;
    uint32_t                 step;
    uint64_t                 base; /* lowest address */
} page;

static void text(page *p, const char *s, size_t max)
{
    usm__out_json_text(p->out, s, max);
}

static int64_t moment_of(const page *p, uint32_t record)
{
    return (int64_t)(record / p->step);
}

/* ---- columns ---------------------------------------------------------------------- */

typedef int64_t column(const page *p, size_t i);

static void write_column(page *p, const char *name, size_t n, column *value)
{
    fprintf(p->out, ",\n\"%s\":[", name);
    for (size_t i = 0; i < n; i++)
        fprintf(p->out, "%s%" PRId64, i ? "," : "", value(p, i));
    fputc(']', p->out);
}

static const usm__trace_block *block_at(const page *p, size_t i)
{
    return &p->found->blocks[p->list[i]];
}

static const usm__trace_record *birth_of(const page *p, size_t i)
{
    return &p->t->records[block_at(p, i)->born];
}

static int64_t block_usable(const page *p, size_t i)
{
    return (int64_t)(block_at(p, i)->usable - block_at(p, i)->size);
}

static int64_t block_size(const page *p, size_t i)
{
    return (int64_t)block_at(p, i)->size;
}

static int64_t block_address(const page *p, size_t i)
{
    return (int64_t)(block_at(p, i)->address - p->base);
}

static int64_t block_born(const page *p, size_t i)
{
    return moment_of(p, block_at(p, i)->born) - (i ? moment_of(p, block_at(p, i - 1)->born) : 0);
}

static int64_t block_life(const page *p, size_t i)
{
    const usm__trace_block *b = block_at(p, i);

    return b->died == USM__NEVER ? -1 : moment_of(p, b->died) - moment_of(p, b->born);
}

static int64_t block_pool(const page *p, size_t i)
{
    return birth_of(p, i)->e.pool;
}

static int64_t block_tag(const page *p, size_t i)
{
    return birth_of(p, i)->e.tag < p->t->ntags ? birth_of(p, i)->e.tag : 0;
}

static int64_t block_stack(const page *p, size_t i)
{
    return birth_of(p, i)->e.extra;
}

static int64_t block_thread(const page *p, size_t i)
{
    return birth_of(p, i)->thread;
}

static void write_blocks(page *p)
{
    fputs(",\n\"blocks\":{\"columns\":1", p->out);
    write_column(p, "size", p->n, block_size);
    write_column(p, "slack", p->n, block_usable);
    write_column(p, "at", p->n, block_address);
    write_column(p, "born", p->n, block_born);
    write_column(p, "life", p->n, block_life);
    write_column(p, "pool", p->n, block_pool);
    write_column(p, "tag", p->n, block_tag);
    write_column(p, "stack", p->n, block_stack);
    write_column(p, "thread", p->n, block_thread);
    fputc('}', p->out);
}

static size_t moments(const page *p)
{
    return (p->t->nrecords + p->step - 1) / p->step;
}

/* Time of a moment's last record. */
static uint64_t moment_time(const page *p, size_t m)
{
    size_t last = (m + 1) * p->step - 1;

    return p->t->records[last < p->t->nrecords ? last : p->t->nrecords - 1].e.time_ns;
}

static int64_t time_step(const page *p, size_t m)
{
    return (int64_t)(moment_time(p, m) - (m ? moment_time(p, m - 1) : 0));
}

/* ---- lists ------------------------------------------------------------------------ */

static void write_pools(page *p)
{
    static const char *const kinds[] = {"memory", "host", "device", "shared"};

    fputs(",\n\"pools\":[", p->out);
    for (size_t i = 0; i < p->t->npools; i++) {
        const usm__trace_pool_info *pool = &p->t->pools[i];

        fprintf(p->out, "%s{\"id\":%" PRIu32 ",\"source\":%" PRIu32 ",\"kind\":\"%s\",\"name\":",
                i ? "," : "", pool->id, pool->source, kinds[pool->kind < 4 ? pool->kind : 0]);
        text(p, pool->name, sizeof pool->name);
        fputs(",\"device\":", p->out);
        text(p, pool->device, sizeof pool->device);
        fputc('}', p->out);
    }
    fputs("],\n\"tags\":[\"\"", p->out);
    for (size_t i = 1; i < p->t->ntags; i++) {
        fputc(',', p->out);
        text(p, p->t->tags[i], sizeof *p->t->tags);
    }
    fputc(']', p->out);
}

static void write_areas(page *p)
{
    fputs(",\n\"areas\":[", p->out);
    for (size_t i = 0; i < p->found->nareas; i++) {
        const usm__trace_area *a = &p->found->areas[i];

        fprintf(p->out, "%s[%" PRIu64 ",%" PRIu64 ",%" PRId64 ",%" PRId64 ",%" PRIu32 "]",
                i ? "," : "", a->address - p->base, a->size, moment_of(p, a->took),
                a->gave == USM__NEVER ? -1 : moment_of(p, a->gave), p->t->records[a->took].e.pool);
    }
    fputs("],\n\"failed\":[", p->out);
    for (size_t i = 0, n = 0; i < p->t->nrecords; i++) {
        const usm__trace_event *e = &p->t->records[i].e;

        if (e->type == USM__EVENT_FAILED)
            fprintf(p->out, "%s[%" PRId64 ",%" PRIu64 ",%" PRIu32 ",%" PRIu32 "]", n++ ? "," : "",
                    moment_of(p, (uint32_t)i), e->size, e->pool, e->tag);
    }
    fputc(']', p->out);
}

static bool any_mapped(const page *p)
{
    for (size_t i = 0; i < p->found->nareas; i++)
        if (p->t->records[p->found->areas[i].took].e.type == USM__EVENT_MAP)
            return true;
    return false;
}

/* ---- blocks that are not drawn individually -------------------------------------------------- */

typedef struct rest {
    size_t   samples, every; /* moments for each sample */
    int64_t *levels;         /* by pool and sample: first changes, then sums */
} rest;

static void rest_add(const page *p, rest *r, const usm__trace_block *b)
{
    int64_t *levels = r->levels + p->t->records[b->born].e.pool * r->samples;

    levels[(size_t)moment_of(p, b->born) / r->every] += (int64_t)b->size;
    if (b->died != USM__NEVER)
        levels[(size_t)moment_of(p, b->died) / r->every] -= (int64_t)b->size;
}

static void rest_write(page *p, const rest *r, size_t pool)
{
    int64_t level = 0;

    fprintf(p->out, "%s[%zu,[", pool ? "," : "", pool);
    for (size_t s = 0; s < r->samples; s++) {
        level += r->levels[pool * r->samples + s];
        fprintf(p->out, "%s%" PRId64, s ? "," : "", level);
    }
    fputs("]]", p->out);
}

static int write_rest(page *p)
{
    size_t count = p->found->nblocks - p->n, next = 0;
    rest   r = {.every = moments(p) / REST_SAMPLES_MAX + 1};

    fprintf(p->out, ",\n\"rest\":{\"count\":%zu,\"every\":%zu,\"levels\":[", count, r.every);
    if (count > 0) {
        r.samples = moments(p) / r.every + 1;
        r.levels  = calloc(r.samples * (p->t->npools + 1), sizeof *r.levels);
        if (!r.levels)
            return ENOMEM;
        for (uint32_t k = 0; k < p->found->nblocks; k++) {
            if (next < p->n && p->list[next] == k)
                next++;
            else
                rest_add(p, &r, &p->found->blocks[k]);
        }
        for (size_t pool = 0; pool <= p->t->npools; pool++)
            rest_write(p, &r, pool);
        free(r.levels);
    }
    fputs("]}", p->out);
    return 0;
}

/* ---- the page ---------------------------------------------------------------------- */

static void find_base(page *p)
{
    uint64_t base = UINT64_MAX;

    for (size_t i = 0; i < p->found->nblocks; i++)
        if (p->found->blocks[i].address < base)
            base = p->found->blocks[i].address;
    for (size_t i = 0; i < p->found->nareas; i++)
        if (p->found->areas[i].address < base)
            base = p->found->areas[i].address;
    p->base = base == UINT64_MAX ? 0 : base;
}

static void write_head(page *p)
{
    const usm__trace_header *h = &p->t->header;

    fputs("{\"command\":", p->out);
    text(p, h->command, sizeof h->command);
    fputs(",\"host\":", p->out);
    text(p, h->host, sizeof h->host);
    fprintf(p->out,
            ",\"pid\":%" PRIu32 ",\"rank\":%" PRId32 ",\"processes\":%zu,\"started\":%" PRIu64
            ",\"step\":%" PRIu32 ",\"mapped\":%s,\"base\":\"0x%" PRIx64 "\"",
            h->pid, h->rank, p->t->nsources, h->start_real_ns / 1000000000u, p->step,
            any_mapped(p) ? "true" : "false", p->base);
}

static int write_data(page *p)
{
    int status;

    write_head(p);
    write_pools(p);
    write_areas(p);
    write_column(p, "times", moments(p), time_step);
    write_blocks(p);
    status = write_rest(p);
    if (!status)
        status = usm__export_work(p->out, p->t);
    if (!status)
        status = usm__export_tables(p->out, p->t, p->found);
    fputs("}\n", p->out);
    return status;
}

static int write_page(page *p, const char *path)
{
    static const char place[] = "@DATA@";
    const char       *at      = strstr(usm__report_html, place);
    int               status  = at ? usm__out_open(path, &p->out) : EINVAL;

    if (status)
        return status;
    fwrite(usm__report_html, 1, (size_t)(at - usm__report_html), p->out);
    status = write_data(p);
    fputs(at + sizeof place - 1, p->out);
    return usm__out_close(p->out, path, status);
}

int usm__export_html(const usm__trace *t, const char *path)
{
    page               p      = {.t = t, .step = (uint32_t)(t->nrecords / MOMENTS_MAX + 1)};
    usm__trace_blocks *found  = NULL;
    uint32_t          *list   = NULL;
    int                status = usm__trace_blocks_find(t, &found);

    if (status)
        return status;
    p.found = found;
    status  = usm__trace_blocks_choose(t, found, BLOCKS_MAX, &list, &p.n);
    if (status)
        goto out;
    p.list = list;
    find_base(&p);
    status = write_page(&p, path);
    free(list);
out:
    usm__trace_blocks_free(found);
    return status;
}
