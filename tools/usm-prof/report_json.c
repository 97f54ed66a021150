/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-prof report --json: the same for programs.  The schema is in usm-prof(1). */
#include "prof.h"

#include "tools/usm-info/json.h"

#include <usm/version.h>

#include <stdio.h>

static void usage(json *j, const usm__usage *u)
{
    json_text(j, "name", u->name);
    json_number(j, "allocations", u->allocations);
    json_number(j, "bytes", u->bytes);
    json_number(j, "hits", u->hits);
    json_number(j, "failed", u->failed);
    json_number(j, "ended", u->ended);
    json_number(j, "brief", u->brief);
    json_real(j, "mean_life_ns", u->ended ? u->life_ns / (double)u->ended : 0);
    json_number(j, "live_peak", u->live_peak);
    json_number(j, "blocks_peak", u->blocks_peak);
    json_number(j, "live_at_end", u->live);
    json_number(j, "blocks_at_end", u->blocks);
}

static void usages(json *j, const char *key, const usm__usages *rows, bool sizes)
{
    json_array_begin(j, key);
    for (size_t i = 0; i < rows->n; i++) {
        json_object_begin(j, NULL);
        usage(j, &rows->rows[i]);
        if (sizes) {
            json_number(j, "above", rows->rows[i].low);
            json_number(j, "up_to", rows->rows[i].high);
        }
        if (rows->rows[i].samples > 0)
            json_number(j, "samples", rows->rows[i].samples);
        json_object_end(j);
    }
    json_array_end(j);
}

static void pool(json *j, const usm__pool_usage *p)
{
    static const char *const kinds[] = {"unknown", "host", "device", "shared"};

    json_object_begin(j, NULL);
    usage(j, &p->u);
    json_number(j, "id", p->id);
    json_text(j, "pool", p->pool);
    json_text(j, "kind", kinds[p->kind]);
    json_text(j, "device", p->device);
    json_number(j, "source", p->source);
    json_number(j, "takes", p->takes);
    json_number(j, "gives", p->gives);
    json_number(j, "refused", p->refused);
    json_number(j, "driver_ns", p->driver_ns);
    json_number(j, "avoided", p->avoided);
    json_number(j, "avoided_ns", p->avoided_ns);
    json_number(j, "reserved_peak", p->reserved_peak);
    json_number(j, "live_at_reserved_peak", p->live_then);
    json_number(j, "reserved_at_end", p->reserved);
    json_object_end(j);
}

static void sources(json *j, const usm__trace *t)
{
    json_array_begin(j, "processes");
    for (size_t i = 0; i < t->nsources; i++) {
        const usm__trace_source *s = &t->sources[i];

        json_object_begin(j, NULL);
        json_text(j, "host", s->header.host);
        json_number(j, "pid", s->header.pid);
        if (s->header.rank >= 0)
            json_number(j, "rank", (uint64_t)s->header.rank);
        else
            json_null(j, "rank");
        json_text(j, "command", s->header.command);
        json_bool(j, "ended", s->ended);
        json_number(j, "lost", s->lost);
        json_object_end(j);
    }
    json_array_end(j);
}

static void times(json *j, const char *key, const usm__spill_times *t)
{
    json_object_begin(j, key);
    json_number(j, "n", t->n);
    json_number(j, "ns", t->sum_ns);
    json_number(j, "p50_ns", t->p50_ns);
    json_number(j, "p99_ns", t->p99_ns);
    json_object_end(j);
}

static void spill_buffer(json *j, const char *key, const usm__spill_buffer *b)
{
    json_object_begin(j, key);
    json_text(j, "name", b->name);
    times(j, "waits", &b->waits);
    json_number(j, "bytes_in", b->in);
    json_number(j, "bytes_in_ahead", b->in_ahead);
    json_number(j, "bytes_out", b->out);
    json_number(j, "bytes_out_ahead", b->out_ahead);
    json_number(j, "guesses_used", b->used);
    json_number(j, "guesses_wasted", b->wasted);
    json_number(j, "evicted_clean", b->evicted_clean);
    json_number(j, "evicted_dirty", b->evicted_dirty);
    json_number(j, "pinned_ns", b->pinned_ns);
    json_number(j, "pinned_bytes", b->pinned);
    json_object_end(j);
}

/* null: nothing was spilled, and no buffer missed. */
static void spill(json *j, const usm__spill_usages *u)
{
    if (u->nevents == 0) {
        json_null(j, "spill");
        return;
    }
    json_object_begin(j, "spill");
    json_number(j, "events", u->nevents);
    json_number(j, "first_ns", u->first_ns);
    json_number(j, "limit", u->first_limit);
    spill_buffer(j, "all", &u->all);
    json_array_begin(j, "buffers");
    for (size_t i = 0; i < u->nbuffers; i++)
        spill_buffer(j, NULL, &u->buffers[i]);
    json_array_end(j);
    json_array_begin(j, "tiers");
    for (size_t i = 0; i < u->ntiers; i++) {
        json_object_begin(j, NULL);
        json_text(j, "name", u->tiers[i].name);
        times(j, "reads", &u->tiers[i].reads);
        json_number(j, "bytes_in", u->tiers[i].in);
        times(j, "writes", &u->tiers[i].writes);
        json_number(j, "bytes_out", u->tiers[i].out);
        json_object_end(j);
    }
    json_array_end(j);
    json_object_end(j);
}

/* null: no launch over a team. */
static void work(json *j, const usm__work_usages *u)
{
    if (u->nevents == 0) {
        json_null(j, "work");
        return;
    }
    json_object_begin(j, "work");
    json_number(j, "events", u->nevents);
    json_number(j, "launches", u->launches);
    json_array_begin(j, "devices");
    for (size_t i = 0; i < u->ndevices; i++) {
        const usm__work_device *d = &u->devices[i];

        json_object_begin(j, NULL);
        json_text(j, "name", d->name);
        json_number(j, "source", d->source);
        json_number(j, "chunks", d->chunks);
        json_number(j, "failed", d->failed);
        json_number(j, "indices", d->items);
        json_number(j, "launched_ns", d->launched_ns);
        json_number(j, "kernel_ns", d->kernel_ns);
        json_number(j, "copy_ns", d->copy_ns);
        json_number(j, "hidden_ns", d->hidden_ns);
        json_number(j, "bytes_in", d->bytes_in);
        json_number(j, "bytes_out", d->bytes_out);
        json_number(j, "idle_ns", d->idle_ns);
        json_number(j, "gaps", d->ngaps);
        json_number(j, "longest_gap_ns", d->longest_ns);
        json_object_end(j);
    }
    json_array_end(j);
    json_object_end(j);
}

void report_json(const char *path, const usm__trace *t, const usm__analysis *a)
{
    json j;

    json_begin(&j, stdout);
    json_object_begin(&j, NULL);
    json_number(&j, "schema", 1);
    json_text(&j, "version", USM_VERSION_STRING);
    json_text(&j, "trace", path);
    json_text(&j, "damage", t->damage[0] != '\0' ? t->damage : NULL);
    json_bool(&j, "ended", t->ended);
    json_number(&j, "events", t->nrecords + t->nspills + t->nworks);
    json_number(&j, "lost", t->lost);
    json_number(&j, "duration_ns", a->duration_ns);
    sources(&j, t);
    json_object_begin(&j, "driver");
    json_number(&j, "takes", a->takes);
    json_number(&j, "gives", a->gives);
    json_number(&j, "ns", a->driver_ns);
    json_number(&j, "median_take_ns", a->take_ns);
    json_number(&j, "median_give_ns", a->give_ns);
    json_number(&j, "avoided", a->avoided);
    json_number(&j, "avoided_ns", a->avoided_ns);
    json_object_end(&j);
    json_object_begin(&j, "all");
    usage(&j, &a->all);
    json_object_end(&j);
    json_array_begin(&j, "pools");
    for (size_t i = 0; i < a->npools; i++)
        pool(&j, &a->pools[i]);
    json_array_end(&j);
    usages(&j, "sizes", &a->classes, true);
    usages(&j, "call_sites", &a->sites, false);
    usages(&j, "tags", &a->tags, false);
    spill(&j, &a->spill);
    work(&j, &a->work);
    json_array_begin(&j, "advice");
    for (size_t i = 0; i < a->nadvice; i++)
        json_text(&j, NULL, a->advice[i]);
    json_array_end(&j);
    json_object_end(&j);
    json_end(&j);
}
