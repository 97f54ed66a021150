/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which text has this MD5 digest?  The kernel for devices that run C, such as the host.
 *
 * libusm calls the functions at the end from its worker threads with disjoint ranges of the
 * work-items that md5.cl describes: strips of 26 texts.  The loop over the last letter has no
 * branches, so that a compiler makes vectors of it. */
#include "md5.h"
#include "md5_steps.h"

#include <stdatomic.h>
#include <string.h>

#define LANES 32 /* MD5_LETTERS and what fills the last vector */

struct strip {
    uint32_t words[4]; /* of the message: the letters, the last one an `a`, and the bit behind */
    uint32_t unit[4];  /* times a letter's number: what makes the last one that               */
    uint32_t bits;
};

static void strip_init(struct strip *strip, uint64_t number)
{
    uint64_t text[2] = {0x8000u | 'a', 0}, unit[2] = {0, 0};
    unsigned length = 1;

    for (uint64_t left = number; left > 0; left = (left - 1) / MD5_LETTERS) {
        text[1] = text[1] << 8 | text[0] >> 56;
        text[0] = text[0] << 8 | ('a' + (left - 1) % MD5_LETTERS);
        length++;
    }
    unit[(length - 1) / 8] = UINT64_C(1) << 8 * ((length - 1) % 8);
    for (unsigned k = 0; k < 4; k++) {
        strip->words[k] = (uint32_t)(text[k / 2] >> 32 * (k % 2));
        strip->unit[k]  = (uint32_t)(unit[k / 2] >> 32 * (k % 2));
    }
    strip->bits = 8 * length;
}

/* A bit for each letter that gives the digest. */
static uint32_t matches(const struct strip *strip, const uint32_t digest[4])
{
    uint32_t differs[LANES], hits = 0;

    for (uint32_t letter = 0; letter < LANES; letter++) {
        uint32_t a = MD5_A, b = MD5_B, c = MD5_C, d = MD5_D;
        uint32_t words[16] = {
            strip->words[0] + strip->unit[0] * letter, strip->words[1] + strip->unit[1] * letter,
            strip->words[2] + strip->unit[2] * letter, strip->words[3] + strip->unit[3] * letter};

        words[14] = strip->bits;
#define ROTATE(x, n) ((x) << (n) | (x) >> (32 - (n)))
#define STEP(f, a, b, c, d, word, shift, constant)                                                 \
    a += f(b, c, d) + words[word] + constant;                                                      \
    a = b + ROTATE(a, shift);
        MD5_STEPS(STEP)
        differs[letter] = ((a + MD5_A) ^ digest[0]) | ((b + MD5_B) ^ digest[1]) |
                          ((c + MD5_C) ^ digest[2]) | ((d + MD5_D) ^ digest[3]);
    }
    for (uint32_t letter = 0; letter < MD5_LETTERS; letter++)
        hits |= (uint32_t)(differs[letter] == 0) << letter;
    return hits;
}

static bool is_in_range(const struct md5_request *request, uint64_t first, uint32_t hits)
{
    for (uint32_t letter = 0; letter < MD5_LETTERS; letter++) {
        const int64_t text = (int64_t)(first + letter);

        if ((hits >> letter & 1) != 0 && text >= request->from && text < request->to)
            return true;
    }
    return false;
}

static void lower(_Atomic uint32_t *found, uint32_t item)
{
    uint32_t seen = atomic_load_explicit(found, memory_order_relaxed);

    while (item < seen && !atomic_compare_exchange_weak(found, &seen, item))
        ;
}

/* The strip of a work-item has one, and no lower one was found so far. */
static bool is_hit(const struct md5_request *request, const _Atomic uint32_t *found, size_t item)
{
    const uint64_t number = (uint64_t)request->from / MD5_LETTERS + item;
    uint32_t       digest[4], hits;
    struct strip   strip;

    if (atomic_load_explicit(found, memory_order_relaxed) < item)
        return false;
    memcpy(digest, request->digest, sizeof digest); /* hosts have little-endian words, as MD5 */
    strip_init(&strip, number);
    hits = matches(&strip, digest);
    return hits != 0 && is_in_range(request, number * MD5_LETTERS, hits);
}

/* The arguments are those of the kernels in md5.cl, in their order. */
static void search_range(const usm_range *range, void *const *args)
{
    const struct md5_request *request = *(const struct md5_request *const *)args[0];
    _Atomic uint32_t         *found   = *(_Atomic uint32_t *const *)args[1];

    for (size_t item = range->begin[0]; item < range->end[0]; item++)
        if (is_hit(request, found, item)) {
            lower(found, (uint32_t)item);
            return;
        }
}

static void first_range(const usm_range *range, void *const *args)
{
    const struct md5_request *request = *(const struct md5_request *const *)args[0];
    _Atomic uint32_t         *found   = *(_Atomic uint32_t *const *)args[1];

    for (size_t item = range->begin[0]; item < range->end[0]; item++)
        if (is_hit(request, found, item)) {
            lower(&found[0], (uint32_t)item);
            atomic_store_explicit(&found[1], 0, memory_order_relaxed);
            return;
        }
}

static const usm_arg_kind kinds[] = {USM_ARG_POINTER, USM_ARG_POINTER};

const usm_native_kernel md5_native_kernels[2] = {
    {"md5_search", search_range, sizeof kinds / sizeof kinds[0], kinds},
    {"md5_first", first_range, sizeof kinds / sizeof kinds[0], kinds},
};
