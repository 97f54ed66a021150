/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the sample share: options, what owner and workers share, the two of them. */
#ifndef IPC_PIPELINE_H
#define IPC_PIPELINE_H

#include <usm/usm.h>

#include <stdint.h>

#define MAX_WORKERS 16
#define SLOTS       2 /* one is filled while the other is worked on */

typedef struct options {
    int    workers, batches, steps, rounds;
    size_t count; /* floats of a part: what one worker gets of a batch        */
    int    kill;  /* worker that dies in the middle, for the demo; 0: none    */
    int    parent;
} options;

/* What owner and one worker have in common.  The owner made it, the worker opened it. */
typedef struct shared {
    void          *memory; /* one block: SLOTS parts in, SLOTS parts out */
    float         *in[SLOTS], *out[SLOTS];
    usm_ipc_event *filled[SLOTS];  /* in is ready           (recorded by the owner)      */
    usm_ipc_event *done[SLOTS];    /* out is ready, in free (recorded by the worker)     */
    usm_ipc_event *drained[SLOTS]; /* out is free           (recorded by the owner)      */
} shared;

/* The same as bytes: what the owner sends to each worker. */
typedef struct terms {
    usm_ipc_handle memory, filled[SLOTS], done[SLOTS], drained[SLOTS];
    bool           is_staged; /* it is the host's memory, not the device's */
} terms;

/* Where shared memory lives. */
typedef struct place {
    usm_context *ctx; /* NULL: the default one, whose device computes */
    usm_pool    *pool;
    bool         is_staged;
} place;

/* The owner's: memory of the device if others can open that, else the host's, and says so. */
usm_status place_create(place *p);
/* The worker's: the context that the owner means. */
usm_status place_join(place *p, bool is_staged);
void       place_destroy(place *p);

usm_status shared_create(shared *s, const place *p, size_t count, terms *t);
usm_status shared_open(shared *s, const place *p, size_t count, const terms *t);
void       shared_destroy(shared *s);               /* the owner's */
void       shared_close(shared *s, const place *p); /* the worker's */

/* out[i] = in[i] after `steps` of a population that grows and starves, x = 3.75 x (1 - x). */
usm_status kernel_create(usm_kernel **kernel);
usm_status kernel_launch(usm_kernel *kernel, usm_queue *q, const float *in, float *out,
                         const options *o);
void       kernel_in_plain_c(const float *in, float *out, size_t count, int steps);

/* What the processes do; exit statuses. */
int owner_run(const options *o);
int worker_run(const options *o, int rank);

/* The group of all processes of this run. */
usm_status meet(const options *o, int rank, usm_ipc_channel **ch);

uint64_t now_ns(void);

#endif
