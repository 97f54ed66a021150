/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A board warms up, on the device USM_DEVICE_SELECTOR names.  before.c is this program without. */
#include "board.h"
#include "heat.h"

#include <stdio.h>
#include <stdlib.h>

static usm_status step(usm_kernel *kernel, const float *now, float *next, const float *input)
{
    const usm_arg args[] = {USM_ARG_PTR(now), USM_ARG_PTR(next), USM_ARG_PTR(input)};
    usm_launch    launch = USM_LAUNCH_INIT;

    launch.kernel    = kernel;
    launch.dims      = 2;
    launch.offset[0] = launch.offset[1] = 1; /* the rim stays as it is */
    launch.global[0] = launch.global[1] = SIDE;
    launch.nargs                        = 3;
    launch.args                         = args;
    return usm_queue_submit(usm_default_queue(), &launch, 0, NULL, NULL);
}

int main(void)
{
    float      *now    = usm_alloc_shared(CELLS * sizeof *now);
    float      *next   = usm_alloc_shared(CELLS * sizeof *next);
    float      *input  = usm_alloc_shared(CELLS * sizeof *input);
    usm_kernel *kernel = heat_kernel_create();
    int         done = 0, status = 1;

    if (!now || !next || !input || !kernel) {
        fprintf(stderr, "%s\n", usm_last_error());
        goto out;
    }
    board_begin(now, next, input);

    for (; done < STEPS && step(kernel, now, next, input) == USM_OK; done++) {
        float *swap = now;
        now         = next;
        next        = swap;
    }
    if (usm_queue_wait(usm_default_queue()) != USM_OK || done < STEPS) {
        fprintf(stderr, "%s\n", usm_last_error());
        goto out;
    }

    board_print(now);
    status = 0;
out:
    usm_kernel_destroy(kernel);
    usm_free(now);
    usm_free(next);
    usm_free(input);
    return status;
}
