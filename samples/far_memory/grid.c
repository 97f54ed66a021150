/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The computation: heat spreads in a plate whose edge keeps its temperature.  It knows nothing of
 * buffers: compute.c gives it rows of one, reference.c rows of plain memory. */
#include "far_memory.h"

#include <string.h>

/* Something that is nowhere even: each row and column has its own phase. */
void grid_fill(float *rows, uint64_t first, uint64_t n)
{
    for (uint64_t r = 0; r < n; r++) {
        const uint32_t row = (uint32_t)((first + r) * 2654435761u);

        for (uint32_t c = 0; c < ROW; c++)
            rows[r * ROW + c] = (float)((row ^ (c * 40503u)) >> 8 & 0xffff) / 65536.0f;
    }
}

/* `out` is the row itself, of which `here` has the old content. */
static void step_row(float *restrict out, const float *restrict above, const float *restrict here,
                     const float *restrict below)
{
    for (uint32_t c = 1; c < ROW - 1; c++)
        out[c] = 0.5f * here[c] + 0.125f * ((above[c] + below[c]) + (here[c - 1] + here[c + 1]));
}

void grid_step(float *rows, uint64_t first, uint64_t n, uint64_t total, window *w)
{
    for (uint64_t r = 0; r < n; r++) {
        float *row = rows + r * ROW;

        memcpy(w->here, row, ROW_BYTES);
        if (first + r > 0 && first + r + 1 < total)
            step_row(row, w->above, w->here, row + ROW);
        memcpy(w->above, w->here, ROW_BYTES);
    }
}

uint64_t grid_checksum(const float *row)
{
    uint64_t sum = 14695981039346656037u;

    for (uint32_t c = 0; c < ROW; c++) {
        uint32_t bits;

        memcpy(&bits, row + c, sizeof bits);
        sum = (sum ^ bits) * 1099511628211u;
    }
    return sum;
}
