/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The statistics of an engine and its tiers as text and as JSON.  Called by usm_spill_describe();
 * usm/buffer.h says what each figure means.  Allocates nothing and takes no lock. */
#include "spill/describe.h"

#include "base/inline/plural.h"
#include "base/json.h"

#include <stdio.h>

#define UNKNOWN UINT64_MAX

/* Bytes a second; 0: nothing was transferred. */
static uint64_t rate_of(uint64_t bytes, uint64_t ns)
{
    return ns ? (uint64_t)((double)bytes * 1e9 / (double)ns) : 0;
}

/* ---- JSON -------------------------------------------------------------------------- */

static void json_tier(usm__json *j, const usm_tier_stats *t)
{
    usm__json_object_begin(j, NULL);
    usm__json_text(j, "name", t->name);
    usm__json_number(j, "used", t->used);
    if (t->capacity == UNKNOWN)
        usm__json_null(j, "capacity");
    else
        usm__json_number(j, "capacity", t->capacity);
    usm__json_number(j, "read", t->read);
    usm__json_number(j, "written", t->written);
    usm__json_number(j, "reads", t->reads);
    usm__json_number(j, "writes", t->writes);
    usm__json_number(j, "read_ns", t->read_ns);
    usm__json_number(j, "write_ns", t->write_ns);
    usm__json_number(j, "read_rate", rate_of(t->read, t->read_ns));
    usm__json_number(j, "write_rate", rate_of(t->written, t->write_ns));
    usm__json_number(j, "read_p50_ns", t->read_p50_ns);
    usm__json_number(j, "read_p99_ns", t->read_p99_ns);
    usm__json_number(j, "write_p50_ns", t->write_p50_ns);
    usm__json_number(j, "write_p99_ns", t->write_p99_ns);
    usm__json_number(j, "errors", t->errors);
    usm__json_number(j, "corrupt", t->corrupt);
    usm__json_number(j, "encoded_in", t->encoded_in);
    usm__json_number(j, "encoded_out", t->encoded_out);
    usm__json_object_end(j);
}

static void json_engine(usm__json *j, const usm_spill_stats *s)
{
    usm__json_number(j, "limit", s->limit);
    usm__json_number(j, "resident", s->resident);
    usm__json_number(j, "resident_peak", s->resident_peak);
    usm__json_number(j, "pinned", s->pinned);
    usm__json_number(j, "dirty", s->dirty);
    usm__json_number(j, "block_size", s->block_size);
    usm__json_number(j, "blocks", s->blocks);
    usm__json_number(j, "misses", s->misses);
    usm__json_number(j, "wait_ns", s->wait_ns);
    usm__json_number(j, "prefetched", s->prefetched);
    usm__json_number(j, "prefetch_hits", s->prefetch_hits);
    usm__json_number(j, "prefetch_wasted", s->prefetch_wasted);
    usm__json_number(j, "evicted_clean", s->evicted_clean);
    usm__json_number(j, "evicted_dirty", s->evicted_dirty);
    usm__json_number(j, "zero_blocks", s->zero_blocks);
    usm__json_number(j, "device_evictions", s->device_evictions);
    usm__json_number(j, "copies", s->copies);
    usm__json_number(j, "copies_missing", s->copies_missing);
    usm__json_number(j, "copies_repaired", s->copies_repaired);
    usm__json_number(j, "blocks_lost", s->blocks_lost);
}

static void json_all(usm__json *j, const usm_spill_stats *s, const usm__spill_holder *holders,
                     size_t nholders)
{
    usm__json_object_begin(j, NULL);
    json_engine(j, s);
    usm__json_array_begin(j, "tiers");
    for (size_t i = 0; i < s->ntiers && i < USM_TIERS; i++)
        json_tier(j, &s->tiers[i]);
    usm__json_array_end(j);
    usm__json_array_begin(j, "holders");
    for (size_t i = 0; i < nholders; i++) {
        usm__json_object_begin(j, NULL);
        usm__json_text(j, "name", holders[i].name ? holders[i].name : "");
        usm__json_number(j, "pinned", holders[i].bytes);
        usm__json_number(j, "pins", holders[i].pins);
        usm__json_bool(j, "kept", holders[i].is_kept);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
    usm__json_object_end(j);
}

/* ---- text -------------------------------------------------------------------------- */

/* "1.2 ms" */
static const char *time_text(uint64_t ns, char *text, size_t size)
{
    static const char *const names[] = {"ns", "us", "ms", "s"};
    uint64_t                 unit    = 1;
    size_t                   i       = 0;

    for (; i < 3 && ns / unit >= 1000; i++)
        unit *= 1000;
    if (i == 0)
        (void)snprintf(text, size, "%llu ns", (unsigned long long)ns);
    else
        (void)snprintf(text, size, "%llu.%llu %s", (unsigned long long)(ns / unit),
                       (unsigned long long)(ns % unit * 10 / unit), names[i]);
    return text;
}

#define TIME_TEXT(ns) time_text((ns), (char[32]){0}, 32)

static void text_engine(usm__out *o, const usm_spill_stats *s)
{
    usm__out_put(o, "buffers in memory\n  limit          %-11s blocks of %s, %llu in all\n",
                 s->limit ? USM__SIZE_TEXT(s->limit) : "none", USM__SIZE_TEXT(s->block_size),
                 (unsigned long long)s->blocks);
    usm__out_put(o, "  resident       %-11s peak %s; not yet stored elsewhere %s; pinned %s\n",
                 USM__SIZE_TEXT(s->resident), USM__SIZE_TEXT(s->resident_peak),
                 USM__SIZE_TEXT(s->dirty), USM__SIZE_TEXT(s->pinned));
    usm__out_put(o, "  misses         %-11llu accesses waited %s\n", (unsigned long long)s->misses,
                 TIME_TEXT(s->wait_ns));
    usm__out_put(o, "  prefetched     %-11llu used %llu, wasted %llu\n",
                 (unsigned long long)s->prefetched, (unsigned long long)s->prefetch_hits,
                 (unsigned long long)s->prefetch_wasted);
    usm__out_put(o, "  evicted        %-11llu clean, %llu stored; all zero, kept nowhere: %llu\n",
                 (unsigned long long)s->evicted_clean, (unsigned long long)s->evicted_dirty,
                 (unsigned long long)s->zero_blocks);
    if (s->device_evictions)
        usm__out_put(o, "  device memory  %-11llu parts of buffers evicted\n",
                     (unsigned long long)s->device_evictions);
    if (s->copies)
        usm__out_put(o,
                     "  copies         %-11llu blocks with fewer %llu; repaired %llu; lost %llu\n",
                     (unsigned long long)s->copies, (unsigned long long)s->copies_missing,
                     (unsigned long long)s->copies_repaired, (unsigned long long)s->blocks_lost);
}

static void text_flow(usm__out *o, const char *what, uint64_t bytes, uint64_t transfers,
                      uint64_t ns)
{
    usm__out_put(o, "  %-14s %-11s in %llu transfers", what, USM__SIZE_TEXT(bytes),
                 (unsigned long long)transfers);
    if (transfers)
        usm__out_put(o, ", %s/s", USM__SIZE_TEXT(rate_of(bytes, ns)));
}

static void text_times(usm__out *o, uint64_t transfers, uint64_t p50, uint64_t p99)
{
    if (transfers)
        usm__out_put(o, "; half within %s, 99 %% within %s", TIME_TEXT(p50), TIME_TEXT(p99));
    usm__out_put(o, "\n");
}

static void text_tier(usm__out *o, const usm_tier_stats *t)
{
    usm__out_put(o, "tier %s\n  used           %-11s of %s\n", t->name, USM__SIZE_TEXT(t->used),
                 t->capacity == UNKNOWN ? "what there is" : USM__SIZE_TEXT(t->capacity));
    text_flow(o, "read", t->read, t->reads, t->read_ns);
    text_times(o, t->reads, t->read_p50_ns, t->read_p99_ns);
    text_flow(o, "written", t->written, t->writes, t->write_ns);
    text_times(o, t->writes, t->write_p50_ns, t->write_p99_ns);
    if (t->encoded_in)
        usm__out_put(o, "  codecs         %-11s became %s\n", USM__SIZE_TEXT(t->encoded_in),
                     USM__SIZE_TEXT(t->encoded_out));
    if (t->errors || t->corrupt)
        usm__out_put(o, "  failed         %-11llu %s; wrong bytes came back %llu %s\n",
                     (unsigned long long)t->errors, usm__plural(t->errors, "transfer", "transfers"),
                     (unsigned long long)t->corrupt, usm__plural(t->corrupt, "time", "times"));
}

static void text_all(usm__out *o, const usm_spill_stats *s, const usm__spill_holder *holders,
                     size_t nholders)
{
    text_engine(o, s);
    for (size_t i = 0; i < s->ntiers && i < USM_TIERS; i++)
        text_tier(o, &s->tiers[i]);
    if (nholders)
        usm__out_put(o, "pinned by\n");
    for (size_t i = 0; i < nholders; i++) {
        const usm__spill_holder *h = &holders[i];

        usm__out_put(o, "  %-11s %8llu pins  %s%s\n", USM__SIZE_TEXT(h->bytes),
                     (unsigned long long)h->pins, h->name && *h->name ? h->name : "(no name)",
                     h->is_kept ? ", kept by USM_BUFFER_PIN" : "");
    }
}

void usm__spill_text(const usm_spill_stats *s, const usm__spill_holder *holders, size_t nholders,
                     usm_text_format format, usm__out *out)
{
    usm__json j = {.out = *out};

    if (format == USM_JSON)
        json_all(&j, s, holders, nholders);
    else
        text_all(&j.out, s, holders, nholders);
    *out = j.out;
}
