/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A trace as one page of HTML.  report.html is the page, with its script (and draw.js, draw.css,
 * which usm-web serves as well); this file makes its data: one JSON object, with columns rather
 * than rows, and differences rather than growing numbers, so that a trace of 200000 events is a
 * page of few megabytes.  The script in report.html documents the members where it reads them.
 *
 * A moment is the state after `step` records; there are at most MOMENTS_MAX. Of more than
 * BLOCKS_MAX blocks those with the largest bytes x time are drawn; the rest is one sampled level
 * per pool. */
#include "profile/blocks.h"
#include "profile/export.h"
#include "profile/export_file.h"
#include "profile/export_tables.h"
#include "profile/export_work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOMENTS_MAX      400000u
#define BLOCKS_MAX       200000u
#define REST_SAMPLES_MAX 4096u

/* report.html, draw.css and draw.js, embedded by the build */
extern const char usm__report_html[], usm__draw_css[], usm__draw_js[];

typedef struct page {
    usm__json                  j;
    const usm__profile        *t;
    const usm__profile_blocks *found;
    const uint32_t            *list; /* blocks that are drawn individually */
    size_t                     n;
    uint32_t                   step;
    uint64_t                   base; /* lowest address */
} page;

static int64_t moment_of(const page *p, uint32_t record)
{
    return (int64_t)(record / p->step);
}

/* ---- columns ---------------------------------------------------------------------- */

typedef int64_t column(const page *p, size_t i);

static void write_column(page *p, const char *name, size_t n, column *value)
{
    usm__json_line(&p->j);
    usm__json_array_begin(&p->j, name);
    for (size_t i = 0; i < n; i++)
        usm__json_signed(&p->j, NULL, value(p, i));
    usm__json_array_end(&p->j);
}

static const usm__profile_block *block_at(const page *p, size_t i)
{
    return &p->found->blocks[p->list[i]];
}

static const usm__profile_record *birth_of(const page *p, size_t i)
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
    const usm__profile_block *b = block_at(p, i);

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
    usm__json_line(&p->j);
    usm__json_object_begin(&p->j, "blocks");
    usm__json_number(&p->j, "columns", 1);
    write_column(p, "size", p->n, block_size);
    write_column(p, "slack", p->n, block_usable);
    write_column(p, "at", p->n, block_address);
    write_column(p, "born", p->n, block_born);
    write_column(p, "life", p->n, block_life);
    write_column(p, "pool", p->n, block_pool);
    write_column(p, "tag", p->n, block_tag);
    write_column(p, "stack", p->n, block_stack);
    write_column(p, "thread", p->n, block_thread);
    usm__json_object_end(&p->j);
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
    usm__json               *j       = &p->j;

    usm__json_line(j);
    usm__json_array_begin(j, "pools");
    for (size_t i = 0; i < p->t->npools; i++) {
        const usm__profile_pool_info *pool = &p->t->pools[i];

        usm__json_object_begin(j, NULL);
        usm__json_number(j, "id", pool->id);
        usm__json_number(j, "source", pool->source);
        usm__json_text(j, "kind", kinds[pool->kind < 4 ? pool->kind : 0]);
        usm__json_text_max(j, "name", pool->name, sizeof pool->name);
        usm__json_text_max(j, "device", pool->device, sizeof pool->device);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
    usm__json_line(j);
    usm__json_array_begin(j, "tags");
    usm__json_text(j, NULL, "");
    for (size_t i = 1; i < p->t->ntags; i++)
        usm__json_text_max(j, NULL, p->t->tags[i], sizeof *p->t->tags);
    usm__json_array_end(j);
}

static void write_areas(page *p)
{
    usm__json *j = &p->j;

    usm__json_line(j);
    usm__json_array_begin(j, "areas");
    for (size_t i = 0; i < p->found->nareas; i++) {
        const usm__profile_area *a = &p->found->areas[i];

        usm__json_array_begin(j, NULL);
        usm__json_number(j, NULL, a->address - p->base);
        usm__json_number(j, NULL, a->size);
        usm__json_signed(j, NULL, moment_of(p, a->took));
        usm__json_signed(j, NULL, a->gave == USM__NEVER ? -1 : moment_of(p, a->gave));
        usm__json_number(j, NULL, p->t->records[a->took].e.pool);
        usm__json_array_end(j);
    }
    usm__json_array_end(j);
}

/* The first moment whose time is not before `ns`. */
static size_t moment_at(const page *p, size_t from, uint64_t ns)
{
    while (from + 1 < moments(p) && moment_time(p, from) < ns)
        from++;
    return from;
}

/* What caches may hold: moment, bytes, pool; of each pool the last of a moment. */
static void write_caches(page *p)
{
    const usm__profile *t      = p->t;
    size_t              moment = 0;

    usm__json_line(&p->j);
    usm__json_array_begin(&p->j, "caches");
    for (size_t i = 0; i < t->ncaches && t->nrecords > 0; i++) {
        const usm__profile_cache_record *r = &t->caches[i];

        moment = moment_at(p, moment, r->time_ns);
        if (i + 1 < t->ncaches && r[1].pool == r->pool &&
            moment_at(p, moment, r[1].time_ns) == moment)
            continue;
        usm__json_array_begin(&p->j, NULL);
        usm__json_number(&p->j, NULL, moment);
        usm__json_number(&p->j, NULL, r->room);
        usm__json_number(&p->j, NULL, r->pool);
        usm__json_array_end(&p->j);
    }
    usm__json_array_end(&p->j);
}

static void write_failed(page *p)
{
    usm__json *j = &p->j;

    usm__json_line(j);
    usm__json_array_begin(j, "failed");
    for (size_t i = 0; i < p->t->nrecords; i++) {
        const usm__profile_event *e = &p->t->records[i].e;

        if (e->type != USM__EVENT_FAILED)
            continue;
        usm__json_array_begin(j, NULL);
        usm__json_signed(j, NULL, moment_of(p, (uint32_t)i));
        usm__json_number(j, NULL, e->size);
        usm__json_number(j, NULL, e->pool);
        usm__json_number(j, NULL, e->tag);
        usm__json_array_end(j);
    }
    usm__json_array_end(j);
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

static void rest_add(const page *p, rest *r, const usm__profile_block *b)
{
    int64_t *levels = r->levels + p->t->records[b->born].e.pool * r->samples;

    levels[(size_t)moment_of(p, b->born) / r->every] += (int64_t)b->size;
    if (b->died != USM__NEVER)
        levels[(size_t)moment_of(p, b->died) / r->every] -= (int64_t)b->size;
}

static void rest_write(page *p, const rest *r, size_t pool)
{
    int64_t level = 0;

    usm__json_array_begin(&p->j, NULL);
    usm__json_number(&p->j, NULL, pool);
    usm__json_array_begin(&p->j, NULL);
    for (size_t s = 0; s < r->samples; s++) {
        level += r->levels[pool * r->samples + s];
        usm__json_signed(&p->j, NULL, level);
    }
    usm__json_array_end(&p->j);
    usm__json_array_end(&p->j);
}

static int write_rest(page *p)
{
    size_t count = p->found->nblocks - p->n, next = 0;
    rest   r = {.every = moments(p) / REST_SAMPLES_MAX + 1};

    usm__json_line(&p->j);
    usm__json_object_begin(&p->j, "rest");
    usm__json_number(&p->j, "count", count);
    usm__json_number(&p->j, "every", r.every);
    usm__json_array_begin(&p->j, "levels");
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
    usm__json_array_end(&p->j);
    usm__json_object_end(&p->j);
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

    usm__json_text_max(&p->j, "command", h->command, sizeof h->command);
    usm__json_text_max(&p->j, "host", h->host, sizeof h->host);
    usm__json_number(&p->j, "pid", h->pid);
    usm__json_signed(&p->j, "rank", h->rank);
    usm__json_number(&p->j, "processes", p->t->nsources);
    usm__json_number(&p->j, "started", h->start_real_ns / 1000000000u);
    usm__json_number(&p->j, "step", p->step);
    usm__json_bool(&p->j, "mapped", any_mapped(p));
    usm__json_address(&p->j, "base", p->base);
}

static int write_data(page *p)
{
    int status;

    usm__json_object_begin(&p->j, NULL);
    write_head(p);
    write_pools(p);
    write_areas(p);
    write_caches(p);
    write_failed(p);
    write_column(p, "times", moments(p), time_step);
    write_blocks(p);
    status = write_rest(p);
    if (!status)
        status = usm__export_work(&p->j, p->t);
    if (!status)
        status = usm__export_tables(&p->j, p->t, p->found);
    usm__json_object_end(&p->j);
    return status;
}

/* Writes the page up to `mark`, which is left out; returns what follows it, or NULL. */
static const char *write_until(FILE *file, const char *from, const char *mark)
{
    const char *at = from ? strstr(from, mark) : NULL;

    if (!at)
        return NULL;
    fwrite(from, 1, (size_t)(at - from), file);
    return at + strlen(mark);
}

static int write_page(page *p, const char *path)
{
    FILE       *file   = NULL;
    int         status = usm__export_open(path, &file);
    const char *after;

    if (status)
        return status;
    p->j  = (usm__json){.out = {.file = file}, .form = USM__JSON_PAGE};
    after = write_until(file, usm__report_html, "@STYLE@");
    fputs(usm__draw_css, file);
    after  = write_until(file, after, "@DATA@");
    status = write_data(p);
    after  = write_until(file, after, "@DRAW@");
    fputs(usm__draw_js, file);
    fputs(after ? after : "", file);
    return usm__export_close(file, path, after ? status : EINVAL);
}

int usm__export_html(const usm__profile *t, const char *path)
{
    page                 p      = {.t = t, .step = (uint32_t)(t->nrecords / MOMENTS_MAX + 1)};
    usm__profile_blocks *found  = NULL;
    uint32_t            *list   = NULL;
    int                  status = usm__profile_blocks_find(t, &found);

    if (status)
        return status;
    p.found = found;
    status  = usm__profile_blocks_choose(t, found, BLOCKS_MAX, &list, &p.n);
    if (status)
        goto out;
    p.list = list;
    find_base(&p);
    status = write_page(&p, path);
    free(list);
out:
    usm__profile_blocks_free(found);
    return status;
}
