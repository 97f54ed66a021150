/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzzes the reader of traces and what is made of them.
 *
 * The input is a file: as it is, and with every checksum put right, so that what lies behind them
 * is reached too. What is checked beyond "no sanitizer speaks": what is read is in order and refers
 * to what there is, and the analysis counts no more than the trace has. */
#include "profile/analyse.h"
#include "profile/export.h"
#include "profile/peaks.h"
#include "profile/trace.h"

#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fuzz_trace: not so: %s\n", what);
    abort();
}

static void look_at_peaks(const usm__profile *t)
{
    usm__profile_peaks p;

    if (usm__profile_peaks_find(t, 0, &p) != 0)
        return;
    require(p.n <= t->npools, "there are no more memories than pools");
    for (size_t i = 0; i < p.n; i++) {
        usm__profile_holder *holders = NULL;
        size_t               n       = 0;

        require(p.rows[i].live_at < t->nrecords, "a peak has its record");
        require(usm__profile_peaks_holders(&p, i, p.rows[i].live_at, &holders, &n) == 0,
                "who held it is known");
        usm__heap_free(holders);
    }
    usm__profile_peaks_free(&p);
}

static void look_at(const usm__profile *t)
{
    usm__analysis *a = NULL;

    require(t->ntags >= 1 && t->tags[0][0] == '\0', "tag 0 is none");
    for (size_t i = 0; i < t->nrecords; i++) {
        const usm__profile_record *r = &t->records[i];

        require(i == 0 || t->records[i - 1].e.time_ns <= r->e.time_ns, "records are by time");
        require(r->source < t->nsources, "a record's source is there");
        require(r->e.pool <= t->npools && r->e.tag < t->ntags, "its pool and tag are");
        require(r->e.type != USM__EVENT_ALLOC || r->e.extra <= t->nstacks, "its stack is");
    }
    if (usm__analyse(t, &a) != USM_OK)
        return;
    require(a->all.allocations <= t->nrecords && a->all.hits <= a->all.allocations,
            "there are no more allocations than events");
    require(a->all.ended <= a->all.allocations, "no block ends twice");
    usm__analysis_free(a);
    look_at_peaks(t);
    require(usm__export_pytorch(t, "/dev/null") == 0, "a snapshot is written");
}

static void parse(const uint8_t *data, size_t size)
{
    usm__profile *t = NULL;

    if (usm__profile_parse(data, size, "input", &t) == USM_OK)
        look_at(t);
    usm__profile_close(t);
}

static void repair(uint8_t *data, size_t size)
{
    usm__trace_chunk c;

    for (size_t at = sizeof(usm__trace_header); size - at >= sizeof(c) && at <= size;) {
        memcpy(&c, data + at, sizeof(c));
        if (c.size > size - at - sizeof(c))
            return;
        c.check = usm__trace_check(data + at + sizeof(c), c.size);
        memcpy(data + at, &c, sizeof(c));
        at += sizeof(c) + c.size;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = calloc(1, size + 1);

    if (copy == NULL)
        return 0;
    if (size > 0)
        memcpy(copy, data, size);
    parse(copy, size);
    if (size > sizeof(usm__trace_header))
        repair(copy, size);
    parse(copy, size);
    free(copy);
    return 0;
}
