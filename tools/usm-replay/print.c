/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Prints the results of a replay, as a table for people and as JSON. */
#include "base/json.h"
#include "base/text.h"
#include "replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static double reuse_of(const replay_result *r)
{
    uint64_t served = r->allocations - r->failed;

    return served > r->driver_allocs ? 1.0 - (double)r->driver_allocs / (double)served : 0.0;
}

static double ratio_of(const replay_result *r)
{
    return r->live_peak ? (double)r->reserved_peak / (double)r->live_peak : 0.0;
}

/* ---- text ------------------------------------------------------------------------------ */

static void print_log(const replay_log *log)
{
    char     bytes[32];
    uint64_t allocations = 0;

    for (size_t i = 0; i < log->n; i++)
        allocations += log->operations[i].size != REPLAY_FREE;
    printf("%s: %s, %" PRIu64 " allocations and %" PRIu64
           " frees of %u thread%s, at most %s live\n",
           log->path, log->format, allocations, (uint64_t)log->n - allocations, log->threads,
           log->threads == 1 ? "" : "s", usm__format_bytes(log->live_peak, bytes, sizeof bytes));
    if (log->failed)
        printf("%" PRIu64
               " more allocations had failed when it was written; they are not replayed\n",
               log->failed);
    if (log->unmatched)
        printf("%" PRIu64 " frees are of blocks whose allocation is not in it\n", log->unmatched);
}

static void print_row(const replay_result *r, int width)
{
    char reserved[32], live[32];

    if (r->error[0])
        return;
    printf("%-*s %9.1f %9.1f %12s %12s %9.2f %8.2f %% %13" PRIu64 "\n", width, r->pool, r->ns_pair,
           r->ns_pair_median, usm__format_bytes(r->reserved_peak, reserved, sizeof reserved),
           usm__format_bytes(r->live_peak, live, sizeof live), ratio_of(r), 100.0 * reuse_of(r),
           r->driver_allocs + r->driver_frees);
}

static void print_failure(const replay_log *log, const replay_result *r)
{
    char wanted[32], live[32], reserved[32], largest[32];

    if (r->error[0]) {
        printf("%s could not be tried: %s\n", r->pool, r->error);
        return;
    }
    if (!r->oom_size)
        return;
    printf("%s: out of memory at %s %" PRIu64 ": %s wanted, %s live, %s reserved, largest free %s; "
           "%" PRIu64 " allocation%s failed\n",
           r->pool, log->unit, r->oom_event, usm__format_bytes(r->oom_size, wanted, sizeof wanted),
           usm__format_bytes(r->oom_live, live, sizeof live),
           usm__format_bytes(r->oom_reserved, reserved, sizeof reserved),
           usm__format_bytes(r->oom_largest_free, largest, sizeof largest), r->failed,
           r->failed == 1 ? "" : "s");
}

const char *kind_name(usm_kind kind)
{
    return kind == USM_HOST ? "host" : kind == USM_SHARED ? "shared" : "device";
}

void print_text(const replay_log *log, const replay_options *o, const replay_result *results,
                size_t n)
{
    char memory[32];
    int  width = 8;

    print_log(log);
    printf("%s memory of %s", kind_name(o->kind), o->device);
    if (o->device_mem)
        printf(", %s", usm__format_bytes(o->device_mem, memory, sizeof memory));
    printf("%s\n\n", o->threads && log->threads > 1 ? ", one thread for each of the log" : "");
    for (size_t i = 0; i < n; i++)
        if ((int)strlen(results[i].pool) > width)
            width = (int)strlen(results[i].pool);
    printf("%-*s %9s %9s %12s %12s %9s %10s %13s\n", width, "pool", "ns/pair", "median", "reserved",
           "live", "res/live", "reuse", "driver calls");
    for (size_t i = 0; i < n; i++)
        print_row(&results[i], width);
    for (size_t i = 0; i < n; i++)
        print_failure(log, &results[i]);
}

/* ---- JSON ------------------------------------------------------------------------------- */

static void log_json(usm__json *j, const replay_log *log)
{
    usm__json_object_begin(j, "log");
    usm__json_text(j, "path", log->path);
    usm__json_text(j, "format", log->format);
    usm__json_text(j, "unit", log->unit);
    usm__json_number(j, "operations", log->n);
    usm__json_number(j, "blocks", log->blocks);
    usm__json_number(j, "threads", log->threads);
    usm__json_number(j, "live_peak", log->live_peak);
    usm__json_number(j, "failed", log->failed);
    usm__json_number(j, "left_out", log->left_out);
    usm__json_number(j, "unmatched", log->unmatched);
    usm__json_text(j, "damage", log->damage[0] ? log->damage : NULL);
    usm__json_object_end(j);
}

static void result_json(usm__json *j, const replay_result *r)
{
    usm__json_object_begin(j, NULL);
    usm__json_text(j, "pool", r->pool);
    usm__json_text(j, "error", r->error[0] ? r->error : NULL);
    usm__json_number(j, "allocations", r->allocations);
    usm__json_number(j, "failed", r->failed);
    usm__json_real(j, "ns_pair", r->ns_pair, 9);
    usm__json_real(j, "ns_pair_median", r->ns_pair_median, 9);
    usm__json_number(j, "reserved_peak", r->reserved_peak);
    usm__json_number(j, "live_peak", r->live_peak);
    usm__json_real(j, "reserved_live", ratio_of(r), 9);
    usm__json_real(j, "reuse", reuse_of(r), 9);
    usm__json_number(j, "driver_allocs", r->driver_allocs);
    usm__json_number(j, "driver_frees", r->driver_frees);
    if (r->oom_size) {
        usm__json_object_begin(j, "out_of_memory");
        usm__json_number(j, "at", r->oom_event);
        usm__json_number(j, "size", r->oom_size);
        usm__json_number(j, "live", r->oom_live);
        usm__json_number(j, "reserved", r->oom_reserved);
        usm__json_number(j, "largest_free", r->oom_largest_free);
        usm__json_object_end(j);
    } else {
        usm__json_null(j, "out_of_memory");
    }
    usm__json_object_end(j);
}

void print_json(const replay_log *log, const replay_options *o, const replay_result *results,
                size_t n)
{
    usm__json j = {.out = {.file = stdout}, .form = USM__JSON_INDENTED};

    usm__json_object_begin(&j, NULL);
    log_json(&j, log);
    usm__json_text(&j, "device", o->device);
    usm__json_text(&j, "kind", kind_name(o->kind));
    usm__json_number(&j, "device_mem", o->device_mem);
    usm__json_array_begin(&j, "pools");
    for (size_t i = 0; i < n; i++)
        result_json(&j, &results[i]);
    usm__json_array_end(&j);
    usm__json_object_end(&j);
}
