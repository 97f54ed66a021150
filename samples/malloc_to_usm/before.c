/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A board warms up, in plain C.  after.c is this program once it uses libusm. */
#include "board.h"

#include <stdio.h>
#include <stdlib.h>

static void step(const float *now, float *next, const float *input)
{
    for (size_t y = 1; y < 1 + SIDE; y++) {
        for (size_t x = 1; x < 1 + SIDE; x++) {
            size_t i = y * PITCH + x;

            next[i] =
                now[i] + input[i] +
                SHARE * (now[i - 1] + now[i + 1] + now[i - PITCH] + now[i + PITCH] - 4.0f * now[i]);
        }
    }
}

int main(void)
{
    float *now    = malloc(CELLS * sizeof *now);
    float *next   = malloc(CELLS * sizeof *next);
    float *input  = malloc(CELLS * sizeof *input);
    int    status = 1;

    if (!now || !next || !input) {
        fprintf(stderr, "out of memory\n");
        goto out;
    }
    board_begin(now, next, input);

    for (int i = 0; i < STEPS; i++) {
        step(now, next, input);

        float *swap = now;
        now         = next;
        next        = swap;
    }

    board_print(now);
    status = 0;
out:
    free(now);
    free(next);
    free(input);
    return status;
}
