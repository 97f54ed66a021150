/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Buffers beside a model of them: random operations through the public functions, and after each
 * read the bytes are those of plain memory in which the same was done, one after the other.  For
 * spill_sim.c (fake tiers), spill_faults.c (the file tier), buffer_model.c (commands, runtimes).
 *
 * One model belongs to one thread; models of several threads share nothing but libusm. */
#ifndef SPILL_MODEL_H
#define SPILL_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <usm/usm.h>

typedef struct model model;

typedef struct model_params {
    uint64_t     seed;
    usm_context *ctx;
    size_t       block_size;
    size_t       frames;     /* the limit, in blocks, of which this model may hold all        */
    size_t       most_bytes; /* of all buffers                                              */
    size_t       widest;     /* part of a buffer that is used at a time, in blocks; 0: any    */
    unsigned     holders;    /* other models that hold memory too                           */
    unsigned     nqueues;    /* commands go there; 0: none                                  */
    usm_queue   *queues[4];
    usm_kernel  *mix; /* dst[i] = 3 * dst[i] + src[i] + value, with bytes             */
    bool         verbose;
    /* Whether a function of a home shall fail now; NULL: they never do. */
    bool (*home_fails)(bool is_write);
    /* Lets threads of the library go on, for a moment. */
    void (*let_go_on)(void);
    /* Whether a failure may be, by the faults that were injected. */
    bool (*may_fail)(usm_status status);
    /* Faults stop, damage is taken back: from then on every access succeeds. */
    void (*heal)(void);
    /* And go on. */
    void (*resume)(void);
} model_params;

model *model_create(const model_params *params);
/* One random operation. */
void model_step(model *m);
/* After heal(): every byte of every buffer is there. */
void model_check_all(model *m);
/* All accesses end, all buffers go. */
void model_destroy(model *m);

typedef struct model_counts {
    uint64_t operations;
    uint64_t bytes_checked;
    uint64_t failures; /* accesses that failed, as they may                                 */
    uint64_t commands;
    uint64_t commits;
} model_counts;
model_counts model_get_counts(const model *m);

/* --planted=model: bytes change behind the model's back, which it must find. */
void model_plant(model *m);

#endif
