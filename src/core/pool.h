/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pools inside: the module's pool, its areas and the accounts. */
#ifndef USM_CORE_POOL_H
#define USM_CORE_POOL_H

#include "core/area.h"

struct usm_pool {
    usm__magic_word     magic;
    const usm_pool_ops *ops;
    void               *impl;
    usm_context        *ctx;   /* holds no count: the context outlives its pools          */
    size_t              index; /* of the device                                        */
    usm_kind            kind;
    size_t              maximum_size, min_align;
    usm_list            link; /* in ctx->pools                                        */
    bool                is_default;
    usm__mutex          lock;  /* guards areas                                         */
    usm_list            areas; /* usm__area.link                                       */
    _Atomic(uint64_t)   reserved, reserved_peak, driver_allocs, driver_frees;
};

usm_status usm__pool_check(usm_pool *pool);
/* The default pool of (device index, kind); made at first use. NULL and a story. */
usm_pool *usm__pool_of(usm_context *ctx, size_t index, usm_kind kind);
void     *usm__pool_alloc(usm_pool *pool, size_t align, size_t size);
/* p's block in its area; USM_E_INVALID_POINTER when it is free. */
usm_status usm__pool_block(usm__area *area, const void *p, usm_block *block);
usm_status usm__pool_free(usm__area *area, void *p);
/* Gives all back, whatever is out: when its context ends. */
void     usm__pool_finish(usm_pool *pool);
uint64_t usm__pool_live(usm_pool *pool);
bool     usm__pool_setting_check(const char *text, char *why, size_t why_size);
void     usm__pool_fork(usm_pool *pool, usm_fork_phase phase);

/* Frees seen lately: tells a double free from a foreign pointer. */
void usm__freed_note(const void *p);
void usm__freed_forget(const void *p);
bool usm__freed_lately(const void *p);
/* The same for areas that are given back: gone_lately() is also true of blocks
 * that nobody freed and that went with their pool or context. */
void usm__gone_note(const void *base);
bool usm__gone_lately(const void *p);

#endif
