/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the sample share. */
#ifndef IPC_GRADIENTS_H
#define IPC_GRADIENTS_H

#include <usm/usm.h>

#include <stdint.h>

#define MAX_WORKERS 32
#define MAX_SIZES   8
#define MAX_KILLS   4

/* Ways to sum.  OTHER is not ours: MPI_Allreduce, where it is there. */
typedef enum way { STAR, ALL_TO_ALL, RING, OTHER, WAYS } way;

/* recv = the sum of all workers' send. */
typedef usm_status other_fn(const float *send, float *recv, size_t count);

typedef struct options {
    int       workers, rounds, nsizes, nkills;
    size_t    sizes[MAX_SIZES]; /* bytes of a worker's gradients                     */
    int       only;             /* a way, or -1: all by turns                        */
    bool      is_auto;          /* only the one that the size chooses                */
    int       kill_rank[MAX_KILLS], kill_round[MAX_KILLS]; /* who dies when, for the demo */
    bool      no_mpi;
    int       run;   /* a number of this run's own, for the channel's name        */
    other_fn *other; /* NULL: there is none                                       */
} options;

bool options_parse(int argc, char **argv, options *o);

/* What the others have of one worker. */
typedef struct member {
    float         *gradients, *sum; /* in this process; mine, or opened               */
    usm_ipc_event *steps;           /* signalled after each step of a ring            */
} member;

/* The workers as one of them sees it. */
typedef struct group {
    const options   *o;
    usm_ipc_channel *ch;
    usm_context     *ctx; /* NULL: the default one                                  */
    usm_pool        *pool;
    usm_queue       *q;
    usm_kernel      *add;
    member           of[MAX_WORKERS];
    int              rank;
    int              living[MAX_WORKERS], n, me; /* ranks; how many; which of them I am */
    uint64_t         steps;                      /* of rings so far, the same for all   */
    int              round;
} group;

/* share.c: meets the others, makes and opens what is shared. */
usm_status group_open(group *g, const options *o, int rank);
void       group_close(group *g);
/* A barrier.  USM_E_PEER: some have ended; g->living is what is left, all know of it. */
usm_status group_meet(group *g);
usm_status group_gather(group *g, const void *mine, size_t size, void *all);

/* sum.c: the sum of `count` floats of each living worker, in every `sum`.  The same bits for all:
 * each float is summed once, in a known order, and then copied. */
usm_status sum_star(group *g, size_t count);
usm_status sum_all_to_all(group *g, size_t count);
usm_status sum_ring(group *g, size_t count);
way        sum_choose(size_t size, int n);
/* The living worker, counted from 0, whose gradient i is the first in the order of addition. */
int sum_first(way how, const group *g, size_t count, size_t i);

/* kernel.c */
usm_status kernel_create(usm_context *ctx, usm_kernel **kernel);
/* Queues out = in[0] + in[1] + ... + in[n - 1], added in that order. */
usm_status kernel_add(const group *g, float *out, const float *const *in, int n, size_t count);

/* report.c */
typedef struct times {
    uint64_t ns[WAYS][64];
    int      n[WAYS];
} times;
#define MAX_ROUNDS 64
uint64_t now_ns(void);
void     report_head(const options *o, int n);
void     report_size(const options *o, size_t size, int n, times *t);

/* worker.c: exit status. */
int worker_run(const options *o, int rank);

#endif
