/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A pool of libusm behind UMF's table of functions. */
#ifndef USM_INSIDE_UMF_POOL_H
#define USM_INSIDE_UMF_POOL_H

#include "umf_abi.h"

#include <stdbool.h>
#include <usm/pool.h>

typedef struct umf_pool umf_pool;

/* Returns a function of the libumf that the process has loaded, however it was loaded; NULL: there
 * is none.  The address is that of libumf itself, whoever else defines the name. */
void *umf_function(const char *name);

/* What a pool is made of. */
typedef struct umf_pool_make_desc {
    usm_kind             kind;
    const usm_pool_desc *desc;      /* NULL: the defaults                                        */
    const char          *name;      /* what get_name() answers                                   */
    size_t               most_size; /* larger blocks are areas of their own, freed with the block */
} umf_pool_make_desc;

/* Creates a pool of libusm over the provider.  UMF's code on failure; usm_last_error() has the
 * sentence. */
umf_result_t umf_pool_make(umf_memory_provider_handle_t provider, const umf_pool_make_desc *desc,
                           umf_pool **pool);

/* The functions of the table; `pool` is an umf_pool. */
umf_result_t umf_pool_finalize(void *pool);
void        *umf_pool_malloc(void *pool, size_t size);
void        *umf_pool_calloc(void *pool, size_t n, size_t size);
void        *umf_pool_realloc(void *pool, void *p, size_t size);
void        *umf_pool_aligned_malloc(void *pool, size_t size, size_t align);
umf_result_t umf_pool_usable_size(void *pool, const void *p, size_t *size);
/* The first is the fast one: a pointer that is no block's start is logged, and the result is SUCCESS.
 * The second refuses it, and blocks of other pools. */
umf_result_t umf_pool_free(void *pool, void *p);
umf_result_t umf_pool_free_checked(void *pool, void *p);
umf_result_t umf_pool_last_error(void *pool);
umf_result_t umf_pool_name(void *pool, const char **name);
umf_result_t umf_pool_ctl(void *pool, umf_ctl_query_source_t source, const char *name, void *arg,
                          size_t size, umf_ctl_query_type_t type, va_list args);
umf_result_t umf_pool_trim(void *pool, size_t keep);

#endif
