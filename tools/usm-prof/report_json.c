/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-prof report --json: the same for programs.  The schema is in usm-prof(1). */
#include "prof.h"

#include "base/json.h"

#include <usm/version.h>

#include <stdio.h>

static void usage(usm__json *j, const usm__usage *u)
{
    usm__json_text(j, "name", u->name);
    usm__json_number(j, "allocations", u->allocations);
    usm__json_number(j, "bytes", u->bytes);
    usm__json_number(j, "hits", u->hits);
    usm__json_number(j, "failed", u->failed);
    usm__json_number(j, "ended", u->ended);
    usm__json_number(j, "brief", u->brief);
    usm__json_real(j, "mean_life_ns", u->ended ? u->life_ns / (double)u->ended : 0, 9);
    usm__json_number(j, "live_peak", u->live_peak);
    usm__json_number(j, "blocks_peak", u->blocks_peak);
    usm__json_number(j, "live_at_end", u->live);
    usm__json_number(j, "blocks_at_end", u->blocks);
}

static void usages(usm__json *j, const char *key, const usm__usages *rows, bool sizes)
{
    usm__json_array_begin(j, key);
    for (size_t i = 0; i < rows->n; i++) {
        usm__json_object_begin(j, NULL);
        usage(j, &rows->rows[i]);
        if (sizes) {
            usm__json_number(j, "above", rows->rows[i].low);
            usm__json_number(j, "up_to", rows->rows[i].high);
        }
        if (rows->rows[i].samples > 0)
            usm__json_number(j, "samples", rows->rows[i].samples);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
}

static void pool(usm__json *j, const usm__profile_pool *p)
{
    static const char *const kinds[] = {"unknown", "host", "device", "shared"};

    usm__json_object_begin(j, NULL);
    usage(j, &p->u);
    usm__json_number(j, "id", p->id);
    usm__json_text(j, "pool", p->pool);
    usm__json_text(j, "kind", kinds[p->kind]);
    usm__json_text(j, "device", p->device);
    usm__json_number(j, "source", p->source);
    usm__json_number(j, "takes", p->takes);
    usm__json_number(j, "gives", p->gives);
    usm__json_number(j, "refused", p->refused);
    usm__json_number(j, "driver_ns", p->driver_ns);
    usm__json_number(j, "avoided", p->avoided);
    usm__json_number(j, "avoided_ns", p->avoided_ns);
    usm__json_number(j, "reserved_peak", p->reserved_peak);
    usm__json_number(j, "live_at_reserved_peak", p->live_then);
    usm__json_number(j, "reserved_at_end", p->reserved);
    usm__json_number(j, "caches_peak", p->caches_peak);
    usm__json_number(j, "caches_limit", p->caches_limit);
    usm__json_object_end(j);
}

static void sources(usm__json *j, const usm__profile *t)
{
    usm__json_array_begin(j, "processes");
    for (size_t i = 0; i < t->nsources; i++) {
        const usm__profile_source *s = &t->sources[i];

        usm__json_object_begin(j, NULL);
        usm__json_text(j, "host", s->header.host);
        usm__json_number(j, "pid", s->header.pid);
        if (s->header.rank >= 0)
            usm__json_number(j, "rank", (uint64_t)s->header.rank);
        else
            usm__json_null(j, "rank");
        usm__json_text(j, "command", s->header.command);
        usm__json_bool(j, "ended", s->ended);
        usm__json_number(j, "lost", s->lost);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
}

static void times(usm__json *j, const char *key, const usm__profile_spill_times *t)
{
    usm__json_object_begin(j, key);
    usm__json_number(j, "n", t->n);
    usm__json_number(j, "ns", t->sum_ns);
    usm__json_number(j, "p50_ns", t->p50_ns);
    usm__json_number(j, "p99_ns", t->p99_ns);
    usm__json_object_end(j);
}

static void spill_buffer(usm__json *j, const char *key, const usm__profile_spill_buffer *b)
{
    usm__json_object_begin(j, key);
    usm__json_text(j, "name", b->name);
    times(j, "waits", &b->waits);
    usm__json_number(j, "bytes_in", b->in);
    usm__json_number(j, "bytes_in_ahead", b->in_ahead);
    usm__json_number(j, "bytes_out", b->out);
    usm__json_number(j, "bytes_out_ahead", b->out_ahead);
    usm__json_number(j, "guesses_used", b->used);
    usm__json_number(j, "guesses_wasted", b->wasted);
    usm__json_number(j, "evicted_clean", b->evicted_clean);
    usm__json_number(j, "evicted_dirty", b->evicted_dirty);
    usm__json_number(j, "pinned_ns", b->pinned_ns);
    usm__json_number(j, "pinned_bytes", b->pinned);
    usm__json_object_end(j);
}

/* null: nothing was spilled, and no buffer missed. */
static void spill(usm__json *j, const usm__profile_spill_usages *u)
{
    if (u->nevents == 0) {
        usm__json_null(j, "spill");
        return;
    }
    usm__json_object_begin(j, "spill");
    usm__json_number(j, "events", u->nevents);
    usm__json_number(j, "first_ns", u->first_ns);
    usm__json_number(j, "limit", u->first_limit);
    spill_buffer(j, "all", &u->all);
    usm__json_array_begin(j, "buffers");
    for (size_t i = 0; i < u->nbuffers; i++)
        spill_buffer(j, NULL, &u->buffers[i]);
    usm__json_array_end(j);
    usm__json_array_begin(j, "tiers");
    for (size_t i = 0; i < u->ntiers; i++) {
        usm__json_object_begin(j, NULL);
        usm__json_text(j, "name", u->tiers[i].name);
        times(j, "reads", &u->tiers[i].reads);
        usm__json_number(j, "bytes_in", u->tiers[i].in);
        times(j, "writes", &u->tiers[i].writes);
        usm__json_number(j, "bytes_out", u->tiers[i].out);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
    usm__json_object_end(j);
}

static void queues(usm__json *j, const usm__profile_work_usages *u)
{
    usm__json_array_begin(j, "queues");
    for (size_t i = 0; i < u->ndevices; i++) {
        const usm__profile_work_device *d = &u->devices[i];

        if (d->commands == 0)
            continue;
        usm__json_object_begin(j, NULL);
        usm__json_text(j, "name", d->name);
        usm__json_number(j, "source", d->source);
        usm__json_number(j, "commands", d->commands);
        usm__json_number(j, "kernel_ns", d->kernel_ns);
        usm__json_number(j, "copy_ns", d->copy_ns);
        usm__json_number(j, "bytes", d->bytes_in);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
}

/* null: no launch over a team, and no command of another runtime. */
static void work(usm__json *j, const usm__profile_work_usages *u)
{
    if (u->nevents == 0) {
        usm__json_null(j, "work");
        return;
    }
    usm__json_object_begin(j, "work");
    usm__json_number(j, "events", u->nevents);
    usm__json_number(j, "launches", u->launches);
    usm__json_array_begin(j, "devices");
    for (size_t i = 0; i < u->ndevices; i++) {
        const usm__profile_work_device *d = &u->devices[i];

        if (d->commands > 0)
            continue;
        usm__json_object_begin(j, NULL);
        usm__json_text(j, "name", d->name);
        usm__json_number(j, "source", d->source);
        usm__json_number(j, "chunks", d->chunks);
        usm__json_number(j, "failed", d->failed);
        usm__json_number(j, "indices", d->items);
        usm__json_number(j, "launched_ns", d->launched_ns);
        usm__json_number(j, "kernel_ns", d->kernel_ns);
        usm__json_number(j, "copy_ns", d->copy_ns);
        usm__json_number(j, "hidden_ns", d->hidden_ns);
        usm__json_number(j, "bytes_in", d->bytes_in);
        usm__json_number(j, "bytes_out", d->bytes_out);
        usm__json_number(j, "idle_ns", d->idle_ns);
        usm__json_number(j, "gaps", d->ngaps);
        usm__json_number(j, "longest_gap_ns", d->longest_ns);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
    queues(j, u);
    usm__json_object_end(j);
}

/* null: the trace has no energy. */
static void energy(usm__json *j, const usm__profile *t, const usm__profile_energy *e)
{
    if (e->n == 0 && e->idle == 0) {
        usm__json_null(j, "energy");
        return;
    }
    usm__json_object_begin(j, "energy");
    usm__json_number(j, "microjoules", e->all);
    usm__json_number(j, "idle_microjoules", e->idle);
    usm__json_array_begin(j, "rows");
    for (size_t i = 0; i < e->n; i++) {
        const usm__profile_energy_row *r = &e->rows[i];

        usm__json_object_begin(j, NULL);
        usm__json_text(j, "device", usm__profile_work_member_name(t, r->member));
        usm__json_number(j, "source", r->source);
        usm__json_text(j, "kernel", usm__profile_work_kernel_name(t, r->kernel));
        usm__json_number(j, "microjoules", r->microjoules);
        usm__json_bool(j, "is_measured", !r->is_stated);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
    usm__json_object_end(j);
}

void report_json(const char *path, const usm__profile *t, const usm__analysis *a)
{
    usm__json j = {.out = {.file = stdout}, .form = USM__JSON_INDENTED};

    usm__json_object_begin(&j, NULL);
    usm__json_number(&j, "schema", 1);
    usm__json_text(&j, "version", USM_VERSION_STRING);
    usm__json_text(&j, "trace", path);
    usm__json_text(&j, "damage", t->damage[0] != '\0' ? t->damage : NULL);
    usm__json_bool(&j, "ended", t->ended);
    usm__json_number(&j, "events", t->nrecords + t->nspills + t->nworks + t->nenergies);
    usm__json_number(&j, "lost", t->lost);
    usm__json_number(&j, "duration_ns", a->duration_ns);
    sources(&j, t);
    usm__json_object_begin(&j, "driver");
    usm__json_number(&j, "takes", a->takes);
    usm__json_number(&j, "gives", a->gives);
    usm__json_number(&j, "ns", a->driver_ns);
    usm__json_number(&j, "median_take_ns", a->take_ns);
    usm__json_number(&j, "median_give_ns", a->give_ns);
    usm__json_number(&j, "avoided", a->avoided);
    usm__json_number(&j, "avoided_ns", a->avoided_ns);
    usm__json_object_end(&j);
    usm__json_object_begin(&j, "all");
    usage(&j, &a->all);
    usm__json_object_end(&j);
    usm__json_array_begin(&j, "pools");
    for (size_t i = 0; i < a->npools; i++)
        pool(&j, &a->pools[i]);
    usm__json_array_end(&j);
    usages(&j, "sizes", &a->classes, true);
    usages(&j, "call_sites", &a->sites, false);
    usages(&j, "tags", &a->tags, false);
    spill(&j, &a->spill);
    work(&j, &a->work);
    energy(&j, t, &a->energy);
    usm__json_array_begin(&j, "advice");
    for (size_t i = 0; i < a->nadvice; i++)
        usm__json_text(&j, NULL, a->advice[i]);
    usm__json_array_end(&j);
    usm__json_object_end(&j);
}
