/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Tags: who allocates.
 *
 * A thread pushes a name, and until it pops it every block the thread
 * allocates, on any pool and kind, belongs to that name (the innermost one).
 * Tags appear in usm_pool_describe(), in the trace, in leak reports and in the
 * report of an allocation that failed.  Blocks allocated under a tag are counted
 * one by one; threads without a tag pay nothing.
 *
 * Names are compared by text, cut after 63 bytes, and kept for ever: use a few
 * fixed ones, not one a request. */
#ifndef USM_TAG_H
#define USM_TAG_H

#include <usm/types.h>

USM_BEGIN_DECLS

/** Bytes and blocks of one tag, over all pools; exact.  Bytes are those asked for. */
typedef struct usm_tag_stats {
    size_t      struct_size;
    const char *name; /**< valid for ever                                                  */
    uint64_t    live, live_peak;
    uint64_t    blocks, allocations;
} usm_tag_stats;
#define USM_TAG_STATS_INIT                                                                         \
    {                                                                                              \
        sizeof(usm_tag_stats), NULL, 0, 0, 0, 0                                                    \
    }

/** The calling thread's allocations belong to `name` from here on.
 *   USM_E_INVALID    name is NULL or empty, or 32 are pushed already
 *   USM_E_NO_MEMORY */
USM_API USM_NODISCARD usm_status usm_tag_push(const char *name);
/** Back to the one before.  USM_E_INVALID: none is pushed. */
USM_API usm_status usm_tag_pop(void);
/** USM_E_INVALID: no allocation was ever made under that name. */
USM_API USM_NODISCARD usm_status usm_tag_get_stats(const char *name, usm_tag_stats *stats);

USM_END_DECLS
#endif
