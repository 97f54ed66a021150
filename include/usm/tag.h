/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Tags: attribution of allocations.
 *
 * A thread pushes a name.  Until it pops the name, every block that the thread
 * allocates, in any pool and of any kind, belongs to that name (the innermost
 * one).  Tags appear in usm_pool_describe(), in the trace, in leak reports, and
 * in the report of an allocation that failed.  Blocks allocated under a tag are
 * counted individually; threads without a tag have no overhead.
 *
 * Names are compared as text, cut off after 63 bytes, and never freed: use a
 * few fixed names, not one per request. */
#ifndef USM_TAG_H
#define USM_TAG_H

#include <usm/pool.h>
#include <usm/types.h>

USM_BEGIN_DECLS

/** Bytes and blocks of one tag, over all pools; exact.  Bytes are those that
 * were requested. */
typedef struct usm_tag_stats {
    size_t      struct_size;
    const char *name; /**< valid until the process ends */
    uint64_t    live, live_peak;
    uint64_t    blocks, allocations;
} usm_tag_stats;
#define USM_TAG_STATS_INIT                                                                         \
    {                                                                                              \
        sizeof(usm_tag_stats), NULL, 0, 0, 0, 0                                                    \
    }

/** Pushes `name`: the calling thread's allocations belong to it from now on.
 *   USM_E_INVALID    name is NULL or empty, or 32 names are pushed already
 *   USM_E_NO_MEMORY  the heap is exhausted */
USM_API USM_NODISCARD usm_status usm_tag_push(const char *name);
/** Pops the innermost name of the calling thread.
 *   USM_E_INVALID  no name is pushed */
USM_API usm_status usm_tag_pop(void);
/** Returns the statistics of a name.
 *   USM_E_INVALID  nothing was ever allocated under that name */
USM_API USM_NODISCARD usm_status usm_tag_get_stats(const char *name, usm_tag_stats *stats);

/** Puts all pools that were created under a name to sleep, or wakes them, as
 * usm_pool_sleep() and usm_pool_wake() do (usm/pool.h).  A pool belongs to the
 * name that was innermost when usm_pool_create() was called; blocks that the
 * name has in other pools stay.  If one pool fails, a sleep wakes those that it
 * has put to sleep; a wake-up tries the others, and may be repeated.
 *   USM_E_INVALID  no pool was created under that name
 *   and those of usm_pool_sleep() and usm_pool_wake() */
USM_API USM_NODISCARD usm_status usm_tag_sleep(const char *name, usm_sleep_contents contents);
USM_API USM_NODISCARD usm_status usm_tag_wake(const char *name);

USM_END_DECLS
#endif
