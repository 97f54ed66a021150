/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The workloads W1, R and X of spill_load.c over buffers of eight times their limit: rank 0's go to
 * three lenders, rank 1's to the disk, by turns.  Called by mpi_worker.c. */
#include "mpi_worker.h"
#include "spill_load.h"

#include <stdio.h>
#include <stdlib.h>

#define FRACTION 8 /* the limit is so much of the buffer                                        */

static const char *const workloads[] = {"W1", "R", "X"};
static spill_load       *load;
static const char       *why = "";

void load_prepare(const char *tier)
{
    char        text[600];
    const char *folder = getenv("BENCH_DIR"); /* NOLINT(concurrency-mt-unsafe) */

    /* NOLINTBEGIN(concurrency-mt-unsafe): libusm has not begun */
    snprintf(text, sizeof text, "host:%zu", run.bytes / FRACTION);
    setenv("USM_MEMORY_LIMIT", text, 1);
    snprintf(text, sizeof text, "file:%.500s", folder ? folder : "/var/tmp");
    setenv("USM_SPILL", tier[0] == 'm' ? "mpi" : text, 1);
    /* NOLINTEND(concurrency-mt-unsafe) */
}

/* In thousandths of MiB/s; 0: it failed. */
int64_t load_run(int64_t which)
{
    const spill_shape shape = {
        .is_one = true, .chunk = MIB_BYTES, .n = run.bytes / MIB_BYTES, .hint = SPILL_HINT_NONE};
    spill_time time = {0, 0};

    if (which == 0) { /* W1 begins anew */
        spill_load_close(load);
        load = spill_load_new(&shape);
        if (!load || !spill_load_begin(load, NULL, &why))
            return 0;
    }
    if (!load || !spill_load_run(load, workloads[which], 0, &time, &why))
        return 0;
    return (int64_t)((double)time.bytes / (double)MIB_BYTES / time.seconds * 1000);
}

void load_section(void)
{
    char key[64];

    for (unsigned round = 0; round < run.rounds; round++)
        for (int64_t w = 0; w < 3; w++) {
            int64_t ours = load_run(w);

            snprintf(key, sizeof key, "load.%s", workloads[w]);
            if (ours == 0) {
                mpi_why("load", "%s: %.400s", workloads[w], why);
                return;
            }
            mpi_figure(key, (double)ours / 1000);
            mpi_ask(1, ASK_LOAD, w, 0);
            snprintf(key, sizeof key, "disk.%s", workloads[w]);
            mpi_figure(key, (double)mpi_answer(1) / 1000);
        }
    spill_load_close(load);
    load = NULL;
}
