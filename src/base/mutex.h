/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Mutexes with a rank: a thread may take one only of a higher rank than those
 * it holds.  Debug builds (without NDEBUG, or USM_DEBUG_LOCKS) check that and
 * abort with both names.  Equal ranks may be nested only by fork handlers. */
#ifndef USM_BASE_MUTEX_H
#define USM_BASE_MUTEX_H

#include <pthread.h>
#include <stdbool.h>

typedef enum usm__rank {
    USM__RANK_INIT     = 1, /* start, default context                                 */
    USM__RANK_REGISTRY = 2, /* modules, devices                                       */
    USM__RANK_CONTEXT  = 3, /* pools, queues, programs of a context                   */
    USM__RANK_PROGRAM  = 4, /* program cache                                          */
    USM__RANK_QUEUE    = 5,
    USM__RANK_EVENT    = 6,
    USM__RANK_WATCH    = 7, /* records of watched blocks                              */
    USM__RANK_MAGAZINE = 8, /* who has which thread cache                             */
    USM__RANK_POOL     = 9,
    USM__RANK_MAP      = 10, /* writers of the address map                             */
    USM__RANK_EXECUTOR = 11,
    USM__RANK_HANDLE   = 12,
    USM__RANK_SETTINGS = 13,
    USM__RANK_META     = 14,
    USM__RANK_LOG      = 15,
    /* Leaves: nothing is logged or reported while one of these is held. */
    USM__RANK_TRACE_FILE  = 16, /* the consumer of the event rings                    */
    USM__RANK_TRACE_STACK = 17,
    USM__RANK_TRACE       = 18, /* rings' list, definitions                           */
    USM__RANK_THREAD      = 19,
    USM__RANK_FAULT       = 20
} usm__rank;

typedef struct usm__mutex {
    pthread_mutex_t native;
    usm__rank       rank;
    const char     *name;
    /* Debug builds: the one its holder had taken before. Touched by the holder only. */
    struct usm__mutex *below;
} usm__mutex;

#define USM__MUTEX_INIT(rank, name)                                                                \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, (rank), (name), 0                                               \
    }

void usm__mutex_init(usm__mutex *m, usm__rank rank, const char *name);
void usm__mutex_fini(usm__mutex *m);
void usm__mutex_lock(usm__mutex *m);
void usm__mutex_unlock(usm__mutex *m);
/* For fork handlers: no rank check. */
void usm__mutex_lock_for_fork(usm__mutex *m);
void usm__mutex_unlock_after_fork(usm__mutex *m);
/* In the child: a fresh, unlocked mutex, whoever held it. */
void usm__mutex_reset_in_child(usm__mutex *m);
/* Whether the calling thread holds no ranked mutex: asserted before callbacks
 * and backend calls (always true in release builds). */
bool usm__mutex_none_held(void);

#endif
