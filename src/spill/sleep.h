/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the two files of pools that sleep: sleep.c (the moves) and sleep_io.c (the contents). */
#ifndef USM_SPILL_SLEEP_H
#define USM_SPILL_SLEEP_H

#include "command/executor.h"
#include "heap/sleep.h"
#include "spill/internal.h"

/* A piece of a pool that sleeps, in blocks of the engine's size from its start on; the last may be
 * shorter. */
typedef struct usm__slept {
    usm__area_piece_at
             at; /* area NULL: it was freed meanwhile                                    */
    char    *p;
    uint64_t key;    /* of block 0; block i has key + i                                  */
    char    *copies; /* usm__copy of each block, at no tier if it is all zero; NULL: its
                             contents were discarded                                          */
} usm__slept;

/* What a pool that sleeps has instead of memory.  The thread that moves the pool owns it; a piece
 * that is freed while nobody does belongs to the thread that frees it. */
typedef struct usm__sleep {
    usm__sleeper      sleeper; /* first member */
    usm__executor_job job;     /* drops it     */
    usm_pool         *pool;
    usm__spill *spill; /* NULL: contents are not kept                                        */
    size_t      n;
    usm__slept  list[];
} usm__sleep;

/* sleep_io.c */
static inline uint32_t usm__slept_blocks(const usm__sleep *s, const usm__slept *piece)
{
    return (uint32_t)((piece->at.size + s->spill->block_size - 1) >> s->spill->shift);
}
usm__copy *usm__slept_copy(const usm__sleep *s, const usm__slept *piece, uint32_t block);
/* Stores the contents of all pieces, or loads them into memory that was just mapped.  After a failure
 * those of some may be stored, or loaded. */
usm_status usm__sleep_store(usm__sleep *s);
usm_status usm__sleep_load(usm__sleep *s);
/* The contents of the piece are not needed any more. */
void usm__slept_forget(const usm__sleep *s, usm__slept *piece);

/* The engine of the context, which has a limit of its own, ends: its pools that sleep lose their
 * contents. */
void usm__sleep_context_unused(usm_context *ctx, usm__spill *spill);

#endif
