/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A random DAG of commands as data: what dag_plan.c makes from a seed, dag_run.c runs beside a
 * serial model, and dag_model.c makes smaller when the two differ.
 *
 * An operation knows nothing of the others: which of them it must follow is found out when it is
 * submitted, so that any part of a plan is a plan too. */
#ifndef OFFLOAD_DAG_H
#define OFFLOAD_DAG_H

#include <stdbool.h>
#include <stdint.h>
#include <usm/usm.h>

enum {
    DAG_OPS      = 48, /* most of one plan: masks of them are uint64_t                       */
    DAG_PLACES   = 9,
    DAG_USES     = 3,
    DAG_CONTEXTS = 2,
    DAG_QUEUES   = 6 /* four in order, two not; queue q is of context q % 2                   */
};

/* ---- the plan ------------------------------------------------------------------------ */

typedef enum dag_place_kind {
    DAG_BUFFER = 1 << 0, /* ordered by libusm                                               */
    DAG_USM    = 1 << 1, /* host memory of a context: ordered by explicit events              */
    DAG_HEAP   = 1 << 2  /* of malloc, for host tasks and copies: the same                     */
} dag_place_kind;

typedef struct dag_place {
    dag_place_kind kind;
    unsigned       ctx;
    size_t         size;
    bool           has_user_data;       /* a buffer over the program's memory                 */
    size_t         sub_begin, sub_size; /* a sub-buffer of it; size 0: none                    */
} dag_place;

typedef enum dag_kind {
    DAG_MIX,     /* uses: dst, src    dst[i] = 3 * dst[i] + src[i] + value                    */
    DAG_GATHER,  /* uses: dst, a, b   dst[i] = a[i] + 5 * b[n - 1 - i] + value                 */
    DAG_STRIPE,  /* uses: dst         every step-th byte                                      */
    DAG_SWAP,    /* uses: a, b                                                                */
    DAG_FILL,    /* uses: dst         a pattern of `step` bytes                               */
    DAG_COPY,    /* uses: dst, src                                                            */
    DAG_BARRIER, /* of the queue                                                              */
    DAG_ACCESS,  /* uses: one to three, by the host                                           */
    DAG_ADVISE,  /* use: a hint                                                               */
    DAG_WAIT     /* `step`: for an event, a queue, a context, for all                          */
} dag_kind;

typedef struct dag_use {
    unsigned        place;
    size_t          offset;
    usm_access_mode mode;
    bool            by_sub; /* through the sub-buffer, if it lies inside                      */
} dag_use;

typedef struct dag_op {
    unsigned id;
    dag_kind kind;
    bool     is_task; /* a host task instead of a kernel                                     */
    bool     is_async, no_wait; /* of an access                                              */
    bool     is_gated;          /* waits for an event of the program's besides              */
    unsigned queue;
    unsigned nuses;
    dag_use  uses[DAG_USES];
    size_t   n; /* bytes of each use                                                         */
    uint32_t value, step;
    unsigned open_until; /* an access stays open up to this operation                          */
    uint64_t random;     /* for what is decided when it runs                                  */
} dag_op;

typedef struct dag_plan {
    uint64_t  seed;
    unsigned  nplaces, nops;
    dag_place places[DAG_PLACES];
    dag_op    ops[DAG_OPS];
} dag_plan;

void dag_plan_make(dag_plan *plan, uint64_t seed);
/* Keeps the operations of the mask of ids. */
void dag_plan_keep(dag_plan *plan, uint64_t ids);
void dag_plan_print_places(const dag_plan *plan);
void dag_plan_print_op(const dag_plan *plan, const dag_op *op);
bool dag_uses_conflict(const dag_op *a, const dag_use *u, const dag_op *b, const dag_use *v);

uint64_t dag_random(uint64_t *state);
size_t   dag_pick(uint64_t *state, size_t n);

/* ---- what operations do ---------------------------------------------------------------- */

/* The work of MIX to COPY on memory, as kernels, host tasks and the model do it. */
void dag_compute(const dag_op *op, unsigned char *const *ptrs);
/* The same on masks of what is known: 0xff for a byte that is, else 0. */
void dag_compute_known(const dag_op *op, unsigned char *const *known);

usm_status dag_program_create(usm_context *ctx, usm_program **program, usm_kernel *kernels[4]);

/* ---- running it -------------------------------------------------------------------------- */

typedef struct dag_world {
    usm_context *contexts[DAG_CONTEXTS];
    usm_queue   *queues[DAG_QUEUES];
    usm_program *programs[DAG_CONTEXTS];
    usm_kernel  *kernels[DAG_CONTEXTS][4];
    bool         is_verbose;
    bool         is_planted; /* forgets explicit dependencies: to be found                    */
    /* Something differs from the serial execution: told; does not come back. */
    void (*differs)(void);
    uint64_t commands, bytes;
} dag_world;

void dag_run(dag_world *world, const dag_plan *plan);

#endif
