/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-prof report --json: the same for programs. The schema is in usm-prof(1). */
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
    json_number(&j, "events", t->nrecords);
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
    json_array_begin(&j, "advice");
    for (size_t i = 0; i < a->nadvice; i++)
        json_text(&j, NULL, a->advice[i]);
    json_array_end(&j);
    json_object_end(&j);
    json_end(&j);
}
