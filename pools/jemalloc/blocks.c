/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Records which blocks of an area are live.  jemalloc trusts every pointer it gets: a pointer that
 * it never returned, a second free, or an interior pointer corrupts it.  So each pointer is looked
 * up here first.
 *
 * Here: the bits.  Not here: the size of a block, which jemalloc knows for a valid block.  Called
 * by jemalloc.c.  No function takes a lock; if two threads free one block, only the first
 * compare-and-swap succeeds.
 *
 *     granule   |A.......|........|B.......|C.......|        the minimum alignment, usually 64
 *     state       live             live     freed            32 of them in a word
 *
 * The block that contains an interior pointer is the nearest live start before it, if that block is
 * long enough.  `touched` lets the search skip words that were never used, 64 at a time, so that it
 * is short even in an area of gigabytes.  It is never cleared. */
#include "internal.h"

#define LIVE       UINT64_C(1)
#define FREED      UINT64_C(2)
#define ALL_LIVE   UINT64_C(0x5555555555555555)
#define IN_A_WORD  32
#define WORD_COUNT 64 /* words in a word of `touched` */

static size_t granules(size_t size, unsigned shift)
{
    return (size >> shift) + 1;
}

static size_t state_words(size_t size, unsigned shift)
{
    return granules(size, shift) / IN_A_WORD + 1;
}

size_t usm_je_blocks_words(size_t size, unsigned shift)
{
    size_t words = state_words(size, shift);

    return words + words / WORD_COUNT + 1;
}

void usm_je_blocks_init(struct usm_je_blocks *b, _Atomic(uint64_t) *words)
{
    b->states  = words;
    b->touched = words + state_words(b->size, b->shift);
}

static size_t granule_of(const struct usm_je_blocks *b, const void *p)
{
    return ((uintptr_t)p - b->base) >> b->shift;
}

void usm_je_blocks_add(struct usm_je_blocks *b, const void *p)
{
    size_t             i = granule_of(b, p), word = i / IN_A_WORD;
    unsigned           at      = (unsigned)(i % IN_A_WORD) * 2;
    _Atomic(uint64_t) *touched = &b->touched[word / WORD_COUNT];
    uint64_t           bit     = UINT64_C(1) << word % WORD_COUNT;
    uint64_t           old     = usm_load_relaxed(&b->states[word]);

    if (!(usm_load_relaxed(touched) & bit))
        (void)atomic_fetch_or_explicit(touched, bit, memory_order_relaxed);
    while (!usm_cas_acq_rel(&b->states[word], &old, (old & ~(FREED << at)) | LIVE << at))
        ;
}

/* Why p is not the start of a live block, given the state of its granule. */
static usm_status explain(const struct usm_je_blocks *b, const void *p, uint64_t state,
                          bool aligned)
{
    usm_block block;

    if (usm_je_blocks_find(b, p, &block))
        return USM_E_INTERIOR_POINTER;
    return aligned && state & FREED ? USM_E_DOUBLE_FREE : USM_E_INVALID_POINTER;
}

usm_status usm_je_blocks_remove(struct usm_je_blocks *b, const void *p)
{
    size_t             i       = granule_of(b, p);
    unsigned           at      = (unsigned)(i % IN_A_WORD) * 2;
    _Atomic(uint64_t) *word    = &b->states[i / IN_A_WORD];
    uint64_t           old     = usm_load_relaxed(word);
    bool               aligned = usm_is_aligned(p, (size_t)1 << b->shift);

    do {
        if (!aligned || !(old >> at & LIVE))
            return explain(b, p, old >> at, aligned);
    } while (!usm_cas_acq_rel(word, &old, (old & ~(LIVE << at)) | FREED << at));
    return USM_OK;
}

static bool is_live(const struct usm_je_blocks *b, size_t i)
{
    return usm_load_acquire(&b->states[i / IN_A_WORD]) >> i % IN_A_WORD * 2 & LIVE;
}

/* The nearest live start at or before granule i. */
static bool start_before(const struct usm_je_blocks *b, size_t i, size_t *start)
{
    size_t   word = i / IN_A_WORD;
    uint64_t mask = UINT64_MAX >> (62 - i % IN_A_WORD * 2);

    for (;; word--, mask = UINT64_MAX) {
        uint64_t live    = usm_load_acquire(&b->states[word]) & ALL_LIVE & mask;
        uint64_t touched = usm_load_relaxed(&b->touched[word / WORD_COUNT]);

        if (live) {
            *start = word * IN_A_WORD + (size_t)(63 - __builtin_clzll(live)) / 2;
            return true;
        }
        if (!touched)
            word -= word % WORD_COUNT;
        if (word == 0)
            return false;
    }
}

/* Meanwhile the owner of a block may free it.  Then jemalloc's answer to sallocx() is useless, but
 * harmless.  Therefore the state of the block is read again afterwards. */
bool usm_je_blocks_find(const struct usm_je_blocks *b, const void *p, usm_block *block)
{
    size_t i = granule_of(b, p), start, size;

    do {
        if (!start_before(b, i, &start))
            return false;
        block->base = (void *)(b->base + (start << b->shift));
        size        = usm_je.sallocx(block->base, 0);
    } while (!is_live(b, start));
    block->size = size;
    return (uintptr_t)p - (uintptr_t)block->base < size;
}
