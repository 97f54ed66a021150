/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The board at its beginning and its end (board.h); for before.c and after.c. */
#include "board.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define JOULES_PER_DEGREE 0.00098f /* of a cell: 0.4 mm3 of aluminium */
#define STEP_S            0.00083f

static void place_chip(float *input, int left, int top, int side, float watts)
{
    const float degrees = watts * STEP_S / (JOULES_PER_DEGREE * (float)(side * side));

    for (int y = top; y < top + side; y++) {
        for (int x = left; x < left + side; x++)
            input[y * PITCH + x] = degrees;
    }
}

void board_begin(float *now, float *next, float *input)
{
    for (size_t i = 0; i < CELLS; i++) {
        now[i] = next[i] = 25.0f;
        input[i]         = 0.0f;
    }
    place_chip(input, 130, 180, 60, 50.0f);
    place_chip(input, 330, 300, 40, 20.0f);
}

void board_print(const float *now)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    double   sum  = 0.0;
    size_t   best = 0;

    for (size_t i = 0; i < CELLS; i++) {
        unsigned char bytes[sizeof(float)];

        memcpy(bytes, &now[i], sizeof bytes);
        for (size_t k = 0; k < sizeof bytes; k++)
            hash = (hash ^ bytes[k]) * 1099511628211u;
        sum += (double)now[i];
        best = now[i] > now[best] ? i : best;
    }
    printf("hottest  %.2f degrees at column %zu, row %zu\n", (double)now[best], best % PITCH,
           best / PITCH);
    printf("mean     %.4f degrees\n", sum / (double)CELLS);
    printf("checksum %016" PRIx64 "\n", hash);
}
