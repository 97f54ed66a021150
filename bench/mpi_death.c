/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A lender dies while a buffer with two copies of each block is read: how long until libusm says
 * so, how long an access took at most, how many failed.  Killed where the launch survives that,
 * else stopped, which is the same to everybody else.  Called by mpi_worker.c. */
#include "mpi_worker.h"

#include <usm/usm.h>

#include <usm/job.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECONDS 10 /* of reading at most, after it died */

static struct {
    _Atomic(uint64_t) died, noticed; /* ns; 0: not yet                                        */
    _Atomic(bool)     stop;
} death;

/* The table of the job says "lost" of somebody. */
static bool has_lost(void)
{
    static char text[65536];
    size_t      size = 0;

    return usm_job_describe(USM_JSON, text, sizeof text, &size) == USM_OK &&
           strstr(text, "\"lost\"") != NULL;
}

static void *watch(void *unused)
{
    const struct timespec pause = {0, 2000000};

    (void)unused;
    while (!atomic_load(&death.stop) && atomic_load(&death.noticed) == 0) {
        nanosleep(&pause, NULL);
        if (atomic_load(&death.died) != 0 && has_lost())
            atomic_store(&death.noticed, bench_now_ns());
    }
    return NULL;
}

/* One pass; the longest access in ms, and how many failed. */
static void read_all(usm_buffer *b, double *longest, unsigned *failed)
{
    for (size_t at = 0; at < usm_buffer_size(b); at += MIB_BYTES) {
        uint64_t   began = bench_now_ns();
        usm_access a;
        double     ms;

        if (usm_access_begin(b, at, MIB_BYTES, USM_READ, &a) != USM_OK) {
            ++*failed;
            continue;
        }
        *failed += ((const uint64_t *)a.ptr)[5] != at + 5;
        usm_access_end(&a);
        ms       = (double)(bench_now_ns() - began) * 1e-6;
        *longest = ms > *longest ? ms : *longest;
    }
}

static bool write_all(usm_buffer *b)
{
    for (size_t at = 0; at < usm_buffer_size(b); at += MIB_BYTES) {
        usm_access a;

        if (usm_access_begin(b, at, MIB_BYTES, USM_WRITE_NO_INIT, &a) != USM_OK)
            return false;
        for (size_t i = 0; i < MIB_BYTES / sizeof(uint64_t); i++)
            ((uint64_t *)a.ptr)[i] = at + i;
        usm_access_end(&a);
    }
    return true;
}

static void lose_one(usm_buffer *b)
{
    const char *mpi     = getenv("LAUNCH_MPI"); /* NOLINT(concurrency-mt-unsafe) */
    bool        is_kill = mpi && strncmp(mpi, "openmpi", 7) == 0;
    double      longest = 0;
    unsigned    failed  = 0;
    uint64_t    died    = bench_now_ns();

    (void)kill((pid_t)run.pid[1], is_kill ? SIGKILL : SIGSTOP);
    atomic_store(&death.died, died);
    while (bench_now_ns() - died < SECONDS * UINT64_C(1000000000) &&
           (atomic_load(&death.noticed) == 0 || longest == 0))
        read_all(b, &longest, &failed);
    if (atomic_load(&death.noticed) == 0)
        mpi_why("noticed", "nobody noticed within %d s", SECONDS);
    else
        mpi_figure("noticed", (double)(atomic_load(&death.noticed) - died) * 1e-6);
    mpi_figure("longest", longest);
    mpi_figure("failed", failed + 1e-6);
}

void death_section(void)
{
    usm_buffer *b = usm_buffer_new(NULL, run.bytes);
    pthread_t   watcher;

    if (!b || !write_all(b)) {
        mpi_why("noticed", "%.400s", usm_last_error());
        return;
    }
    if (pthread_create(&watcher, NULL, watch, NULL) != 0)
        return;
    lose_one(b);
    atomic_store(&death.stop, true);
    (void)pthread_join(watcher, NULL);
}
