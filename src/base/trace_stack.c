/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sampled stacks: the call sites that allocate.
 *
 * Samples are a Poisson process over the bytes that a thread allocates.  The distance to the next
 * sample is exponential with the mean of USM_TRACE_STACKS.  An allocation of s bytes is therefore
 * sampled with probability 1 - exp(-s / mean), independent of what came before, and a reader can
 * scale the samples up.  Each stack is stored once, in a hash table of fixed size under a lock: a
 * sample costs microseconds anyway, and there is one for each half mebibyte.  Called by trace.c for
 * each allocation that it records. */
#include "base/fork.h"
#include "base/mutex.h"
#include "base/os.h"
#include "base/trace.h"
#include "base/trace_ring.h"

#include <math.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#define HAVE_BACKTRACE 1
#endif
#endif

#define SLOTS 32768u /* of the hash table: a power of two, twice the number of stacks it may hold */
#define HOLDS (SLOTS / 2)
#define OWN   1 /* frames on top of each stack that belong to this file: take_stack() */

/* A stack is identified by its hash alone (64 bits): two with the same hash, one in 10^11, count as
 * one. */
typedef struct usm__trace_seen {
    uint64_t hash; /* 0: empty */
    uint32_t id;
} seen;

void usm__stack_start(void)
{
#ifdef HAVE_BACKTRACE
    void *frames[4];

    /* glibc loads libgcc_s at the first call, which must not happen inside a malloc of the
     * program. */
    (void)backtrace(frames, 4);
    usm__traced.stacks.table =
        usm__os_map(SLOTS * sizeof(*usm__traced.stacks.table), 3 /* PROT_READ | PROT_WRITE */);
#endif
}

/* splitmix64; then the exponential distribution. */
static int64_t next_distance(usm__ring *ring)
{
    uint64_t z = ring->random += 0x9e3779b97f4a7c15ull;
    double   u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    u = ((double)(z >> 11) + 0.5) * 0x1p-53; /* 0 < u < 1 */
    return (int64_t)(-log(u) * (double)usm__traced.config.stack_bytes) + 1;
}

#ifdef HAVE_BACKTRACE
static uint64_t hash_of(void *const *frames, uint32_t n)
{
    uint64_t h = n;

    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ (uint64_t)(uintptr_t)frames[i]) * 0x9fb21c651e98df25ull;
        h ^= h >> 32;
    }
    return h ? h : 1;
}

/* pre: lock is held. */
static uint32_t enter(seen *slot, uint64_t hash, void *const *frames, uint32_t n)
{
    struct {
        uint32_t id, n;
        uint64_t frames[USM__TRACE_DEPTH_MAX];
    } s;

    if (usm__traced.stacks.last_id == HOLDS)
        return 0;
    s.id = usm__traced.stacks.last_id + 1;
    s.n  = n;
    for (uint32_t i = 0; i < n; i++)
        s.frames[i] = (uint64_t)(uintptr_t)frames[i];
    if (!usm__trace_define(USM__CHUNK_STACK, &s, (uint32_t)(8 + n * sizeof(uint64_t))))
        return 0;
    *slot = (seen){hash, ++usm__traced.stacks.last_id};
    return usm__traced.stacks.last_id;
}

static uint32_t intern(void *const *frames, uint32_t n)
{
    uint64_t hash = hash_of(frames, n);
    uint32_t id   = 0;
    seen    *slot;

    usm__mutex_lock(&usm__traced.stacks.lock);
    slot = &usm__traced.stacks.table[hash & (SLOTS - 1)];
    while (slot->hash != 0 && slot->hash != hash) /* ends, because half of the slots are empty */
        slot = slot + 1 < usm__traced.stacks.table + SLOTS ? slot + 1 : usm__traced.stacks.table;
    id = slot->hash != 0 ? slot->id : enter(slot, hash, frames, n);
    usm__mutex_unlock(&usm__traced.stacks.lock);
    return id;
}

static __attribute__((noinline)) uint32_t take_stack(void)
{
    void *frames[USM__TRACE_DEPTH_MAX + OWN];
    int   n = backtrace(frames, USM__TRACE_DEPTH_MAX + OWN);

    return usm__traced.stacks.table != NULL && n > OWN ? intern(frames + OWN, (uint32_t)(n - OWN))
                                                       : 0;
}
#else
static uint32_t take_stack(void)
{
    return 0;
}
#endif

uint32_t usm__stack_sample(usm__ring *ring, uint64_t size)
{
    bool due;

    if (usm__traced.config.stack_bytes == 0) {
        ring->until_sample = INT64_MAX; /* observe/traced.c asks no more */
        return 0;
    }
    if (usm__traced.config.stack_bytes == 1)
        return take_stack();
    if (ring->until_sample == 0)
        ring->until_sample = next_distance(ring);
    due = size >= (uint64_t)ring->until_sample;
    if (!due)
        ring->until_sample -= (int64_t)size;
    else
        ring->until_sample =
            next_distance(ring); /* memoryless: the position in the block does not matter */
    return due ? take_stack() : 0;
}

void usm__stack_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&usm__traced.stacks.lock, phase);
}
