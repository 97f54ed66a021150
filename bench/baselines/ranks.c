/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranks that take chunks from a counter (ranks.h). */
#include "ranks.h"

#include <time.h>

#define NAP_NS 1000000

void ranks_open(struct ranks *r)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &r->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r->size);
    MPI_Win_allocate(r->rank == 0 ? sizeof *r->counter : 0, sizeof *r->counter, MPI_INFO_NULL,
                     MPI_COMM_WORLD, &r->counter, &r->window);
    MPI_Win_lock_all(0, r->window);
}

void ranks_init(struct ranks *r, int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    ranks_open(r);
}

/* MPIs poll while they wait: between repetitions that would take the processor from whoever is
 * measured then. */
static void sleep_until(MPI_Request request)
{
    const struct timespec nap     = {0, NAP_NS};
    int                   is_done = 0;

    while (!is_done) {
        MPI_Request_get_status(request, &is_done, MPI_STATUS_IGNORE);
        if (!is_done)
            nanosleep(&nap, NULL);
    }
}

bool ranks_next(struct ranks *r, struct baseline *b)
{
    int64_t     notified[2] = {0, 0}; /* whether to go on, chunks */
    MPI_Request request;

    if (r->rank == 0) {
        notified[0] = baseline_next(b);
        notified[1] = b->chunks;
    }
    MPI_Ibcast(notified, 2, MPI_INT64_T, 0, MPI_COMM_WORLD, &request);
    sleep_until(request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (r->rank == 0) {
        *r->counter = 0;
        MPI_Win_sync(r->window);
    } else {
        b->repetitions++;
        b->chunks = notified[1];
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return notified[0] != 0;
}

int64_t ranks_take(struct ranks *r)
{
    const int64_t one = 1;
    int64_t       k;

    MPI_Fetch_and_op(&one, &k, MPI_INT64_T, 0, 0, MPI_SUM, r->window);
    MPI_Win_flush(0, r->window);
    return k;
}

void ranks_cancel(struct ranks *r, int64_t chunks)
{
    int64_t before;

    MPI_Fetch_and_op(&chunks, &before, MPI_INT64_T, 0, 0, MPI_REPLACE, r->window);
    MPI_Win_flush(0, r->window);
}

double ranks_stop(struct ranks *r, struct baseline *b)
{
    double sum = 0.0;

    MPI_Barrier(MPI_COMM_WORLD);
    baseline_stop(b);
    MPI_Reduce(&b->cpu_ms, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    (void)r;
    return sum;
}

void ranks_fini(struct ranks *r)
{
    MPI_Win_unlock_all(r->window);
    MPI_Win_free(&r->window);
    MPI_Finalize();
}
