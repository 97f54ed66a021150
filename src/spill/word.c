/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Bit operations: changes of a block's word, sets of sectors.  Called by the engine's files; the
 * pins of the hit path are in engine.h. */
#include "spill/internal.h"

void usm__word_change(usm__word *word, int state, uint64_t set, uint64_t clear)
{
    uint64_t old = usm_load_relaxed(word), now;

    if (state >= 0) {
        clear |= USM__WORD_STATE;
        set |= (uint64_t)state;
    }
    do
        now = (old & ~clear) | set;
    while (!atomic_compare_exchange_weak_explicit(word, &old, now, memory_order_seq_cst,
                                                  memory_order_relaxed));
}

/* --- sets of sectors ------------------------------------------------------------ */

/* The bits of word i that are in [first, end). */
static uint64_t part_of(uint32_t first, uint32_t end, uint32_t i)
{
    uint64_t low  = first > i * 64 ? ~UINT64_C(0) << (first - i * 64) : ~UINT64_C(0);
    uint64_t high = end < (i + 1) * 64 ? ~(~UINT64_C(0) << (end - i * 64)) : ~UINT64_C(0);

    return low & high;
}

void usm__mask_set(usm__mask *m, uint32_t first, uint32_t count)
{
    for (uint32_t i = first / 64; i * 64 < first + count; i++)
        m->bits[i] |= part_of(first, first + count, i);
}

void usm__mask_clear(usm__mask *m, uint32_t first, uint32_t count)
{
    for (uint32_t i = first / 64; i * 64 < first + count; i++)
        m->bits[i] &= ~part_of(first, first + count, i);
}

bool usm__mask_has(const usm__mask *m, uint32_t first, uint32_t count)
{
    for (uint32_t i = first / 64; i * 64 < first + count; i++) {
        uint64_t part = part_of(first, first + count, i);

        if ((m->bits[i] & part) != part)
            return false;
    }
    return true;
}

uint32_t usm__mask_count(const usm__mask *m)
{
    uint32_t n = 0;

    for (size_t i = 0; i < USM__MASK_WORDS; i++)
        n += (uint32_t)__builtin_popcountll(m->bits[i]);
    return n;
}

static bool has_bit(const usm__mask *m, uint32_t i)
{
    return m->bits[i / 64] >> (i % 64) & 1;
}

bool usm__mask_next(const usm__mask *m, bool want, uint32_t *at, uint32_t end, usm__sectors *run)
{
    uint32_t i = *at;

    while (i < end && has_bit(m, i) != want)
        i++;
    if (i >= end)
        return false;
    run->first = i;
    while (i < end && has_bit(m, i) == want)
        i++;
    run->count = i - run->first;
    *at        = i;
    return true;
}
