/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The fault sweep: what a scenario is.  sweep.c runs them, scenarios_*.c hold them.
 *
 * A scenario is run again and again, another call of a heap, system or backend function (or of the
 * software Level Zero driver) failing each time, until it comes through without having met a
 * failure.  `act` runs with faults armed and says with what status it ended; everything it made
 * goes into the state, which sweep.c takes down with faults off: memory may not be freed while
 * commands use it, and a wait that was made to fail has not waited. */
#ifndef USM_TESTS_FAULTS_SWEEP_H
#define USM_TESTS_FAULTS_SWEEP_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <usm/graph.h>
#include <usm/parallel.h>
#include <usm/pool_ops.h>
#include <usm/template.h>
#include <usm/usm.h>

#define SLOTS 8

/* Two contexts with a queue each, made before faults are armed, and room for what `act` makes. */
typedef struct state {
    usm_context      *ctx, *other;
    usm_queue        *q, *other_q;
    usm_context      *made_ctx;
    usm_queue        *made_q;
    usm_pool         *pool;
    usm_area         *area; /* of the pool, reserved                                       */
    usm_program      *program;
    usm_kernel       *kernel;
    usm_buffer       *buffer;
    usm_team         *team;
    usm_team_kernel  *team_kernel, *second_kernel;
    usm_parallel_run *run;
    usm_graph        *graph;
    usm_template *template[3];
    usm_event  *gate;      /* a user event: signalled when the state is taken down      */
    usm_event  *ev[SLOTS]; /* events to be released                                     */
    void       *p[SLOTS];  /* blocks to be freed                                        */
    char        host[4096], back[4096];
    bool        used_default; /* the default queue has work to be waited for             */
    atomic_int  calls;
    const char *wrong; /* set by act when something is wrong that is not a status       */
} state;

typedef struct scenario {
    const char *name;
    usm_status (*act)(state *s);
    unsigned flags;
} scenario;

enum {
    COLD         = 1, /* each run is a fresh process in which nothing was used before       */
    NEEDS_DATA   = 2, /* not where commands move no data                                     */
    NEEDS_RUN    = 4 | NEEDS_DATA, /* not where no kernels run                               */
    NEEDS_NATIVE = 8,  /* only over a driver with native objects                             */
    MAY_REFUSE   = 16, /* act's own end may be a failure without any fault                   */
    MAY_LACK     = 32, /* what a driver fails to tell may be USM_E_NOT_SUPPORTED              */
    SLOW         = 64, /* minutes over the software driver: there only in ./run soak          */
    NEEDS_HOST   = 128 /* only over the host backend                                          */
};

extern const scenario scenarios[]; /* the last has no name */
extern const scenario command_scenarios[];
extern const scenario offload_scenarios[];

/* In `act`: passes a failure on, after looking at what must hold about it. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        usm_status try_status = (call);                                                            \
        if (try_status)                                                                            \
            return try_status;                                                                     \
    } while (0)
/* The same for functions that give a pointer. */
#define TRY_PTR(out, call)                                                                         \
    do {                                                                                           \
        (out) = (call);                                                                            \
        if (!(out))                                                                                \
            return usm_last_status();                                                              \
    } while (0)
/* Something is wrong whatever failed. */
#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            s->wrong = #cond;                                                                      \
            return USM_OK;                                                                         \
        }                                                                                          \
    } while (0)

/* The software driver (driver.c): false where the runtime has another. */
bool driver_open(void);
/* Calls of the driver that paths.h chooses answer `code`. */
void driver_arm(uint32_t code);
/* To be asked before it is disarmed. */
bool        driver_has_failed(void);
void        driver_disarm(void);
const char *driver_failed_call(void); /* "zeMemAllocDevice" */
uint64_t    driver_live(void);        /* objects and allocations of the driver */

/* The memory kind for tests that need any device-visible memory. */
usm_kind sweep_kind(void);
/* Its name, "opencl". */
const char *sweep_backend(void);
bool        sweep_has(usm_aspect aspect);

#endif
