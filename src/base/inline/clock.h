/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Clocks in nanoseconds, and what pthread_cond_timedwait() needs of them: a condition that uses
 * CLOCK_MONOTONIC, so that nobody who sets the time makes a wait longer, and deadlines on a clock.
 * */
#ifndef USM_BASE_CLOCK_H
#define USM_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t usm_clock_ns(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline struct timespec usm_timespec_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

/* The time on the clock in `ns`, or `ms`, from now; the end of the clock if that is never. */
static inline struct timespec usm_clock_in(clockid_t clock, uint64_t ns)
{
    uint64_t now = usm_clock_ns(clock);

    return usm_timespec_of(ns < UINT64_MAX - now ? now + ns : UINT64_MAX);
}

static inline struct timespec usm_clock_in_ms(clockid_t clock, uint64_t ms)
{
    return usm_clock_in(clock, ms < UINT64_MAX / 1000000 ? ms * 1000000 : UINT64_MAX);
}

/* Makes a condition for deadlines of CLOCK_MONOTONIC; returns 0 or an errno value. */
static inline int usm_cond_init_monotonic(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    int                error = pthread_condattr_init(&attr);

    if (error)
        return error;
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    error = pthread_cond_init(c, &attr);
    (void)pthread_condattr_destroy(&attr);
    return error;
}

#endif
