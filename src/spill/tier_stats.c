/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Statistics of a tier's transfers: bytes, the time in which at least one was under way, and how
 * long each took, in buckets that grow with the time.  Called under the tiers' lock. */
#include "spill/tier_private.h"

#define SUB      8u /* buckets to a doubling                                                */
#define SUB_BITS 3u

static unsigned bucket_of(uint64_t ns)
{
    unsigned log, at;

    if (ns < SUB)
        return (unsigned)ns;
    log = 63 - (unsigned)__builtin_clzll(ns);
    at  = (log - SUB_BITS + 1) * SUB + (unsigned)(ns >> (log - SUB_BITS) & (SUB - 1));
    return at < USM__TIMES_BUCKETS ? at : USM__TIMES_BUCKETS - 1;
}

/* The middle of a bucket. */
static uint64_t time_of(unsigned bucket)
{
    unsigned shift = bucket / SUB;

    if (bucket < 2 * SUB)
        return bucket;
    return ((uint64_t)(SUB + bucket % SUB) << (shift - 1)) + (UINT64_C(1) << (shift - 1)) / 2;
}

void usm__times_add(usm__times *h, uint64_t ns)
{
    h->buckets[bucket_of(ns)]++;
    h->count++;
}

uint64_t usm__times_quantile(const usm__times *h, double q)
{
    uint64_t seen = 0, want = (uint64_t)(q * (double)h->count);

    for (unsigned i = 0; i < USM__TIMES_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen > want)
            return time_of(i);
    }
    return 0; /* there were no transfers */
}

void usm__flow_begin(usm__flow *f, uint64_t now)
{
    if (f->flying++ == 0)
        f->since_ns = now;
}

void usm__flow_end(usm__flow *f, uint64_t now, uint64_t start, size_t bytes, bool ok)
{
    if (--f->flying == 0)
        f->busy_ns += now - f->since_ns;
    if (!ok)
        return;
    f->bytes += bytes;
    f->transfers++;
    usm__times_add(&f->times, now - start);
}

uint64_t usm__flow_busy(const usm__flow *f, uint64_t now)
{
    return f->busy_ns + (f->flying > 0 ? now - f->since_ns : 0);
}
