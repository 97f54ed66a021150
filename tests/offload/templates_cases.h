/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What templates compute, in plain C: test_templates.c, test_templates_ranks.c. */
#ifndef TEMPLATES_CASES_H
#define TEMPLATES_CASES_H

#include "plain.h"

#include <usm/template.h>
#include <usm/usm.h>

#include "templates_bodies.h"

static inline void must(usm_status st)
{
    if (st != USM_OK)
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    CHECK_INT(st, USM_OK);
}

static inline void *array(size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size);

    CHECK(memory != NULL);
    return memory;
}

static inline uint32_t *make_numbers(size_t n)
{
    uint32_t *in = array(n, sizeof *in);

    for (size_t i = 0; i < n; i++)
        in[i] = (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 3);
    return in;
}

static inline uint64_t follow(uint64_t a, uint64_t b)
{
    uint32_t m = (uint32_t)(b >> 32);

    return (uint64_t)((uint32_t)(a >> 32) * m) << 32 | ((uint32_t)a * m + (uint32_t)b);
}

static inline uint32_t nearest(const uint32_t *in, long x, long y, long width, long height)
{
    x = x < 0 ? 0 : x >= width ? width - 1 : x;
    y = y < 0 ? 0 : y >= height ? height - 1 : y;
    return in[y * width + x];
}

static inline void smear_plain(const uint32_t *in, uint32_t *out, long w, long h, uint32_t p)
{
    for (long y = 0; y < h; y++)
        for (long x = 0; x < w; x++)
            out[y * w + x] = nearest(in, x, y - 2, w, h) + 3u * nearest(in, x - 1, y, w, h) +
                             5u * nearest(in, x, y, w, h) + 7u * nearest(in, x + 1, y + 1, w, h) +
                             11u * nearest(in, x, y + 2, w, h) + p * (uint32_t)(x + 2 * y);
}

/* Returns the number of steps, at most `most`. */
static inline uint64_t flood_plain(uint32_t *grid, uint32_t *next, long w, long h, uint64_t most)
{
    uint64_t steps = 0;
    bool     moves;

    do {
        moves = false;
        for (long y = 0; y < h; y++)
            for (long x = 0; x < w; x++) {
                uint32_t m     = grid[y * w + x];
                uint32_t of[4] = {nearest(grid, x - 1, y, w, h), nearest(grid, x + 1, y, w, h),
                                  nearest(grid, x, y - 1, w, h), nearest(grid, x, y + 1, w, h)};

                for (int i = 0; i < 4 && m; i++)
                    m = of[i] > m ? of[i] : m;
                next[y * w + x] = m;
                moves |= m != grid[y * w + x];
            }
        memcpy(grid, next, (size_t)(w * h) * sizeof *grid);
        steps++;
    } while (moves && steps < most);
    return steps;
}

static inline uint32_t collatz_plain(uint32_t x)
{
    uint32_t n = 0;

    for (; x > 1u; n++)
        x = x % 2u ? 3u * x + 1u : x / 2u;
    return n;
}

#define CHECK_SAME(got, want, bytes) CHECK(memcmp((got), (want), (bytes)) == 0)

#endif
