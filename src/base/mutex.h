/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Mutexes with a rank: a thread may take one only of a higher rank than those
 * it holds.  Debug builds (without NDEBUG, or USM_DEBUG_LOCKS) check that and
 * abort with both names.  Equal ranks may be nested only by fork handlers. */
#ifndef USM_BASE_MUTEX_H
#define USM_BASE_MUTEX_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

typedef enum usm__rank {
    USM__RANK_ENDING      = -9, /* waits for those at work on a default context that ended   */
    USM__RANK_WATTS       = -8, /* the energy counters of the last look                      */
    USM__RANK_GRAPH       = -7, /* a graph's run: what is ready                              */
    USM__RANK_TEAM        = -6, /* members' states and figures                               */
    USM__RANK_LAUNCH      = -5, /* the book of a launch over a team                          */
    USM__RANK_RUN         = -4, /* which of a launch's slots are busy                        */
    USM__RANK_RANKS       = -3, /* launches over ranks: what came, what goes out              */
    USM__RANK_SUBMIT      = -2, /* commands over buffers enter an in-order queue             */
    USM__RANK_PLACING     = -1, /* commands over buffers get held places                    */
    USM__RANK_SHARED      = 0,  /* shared buffers, above the buffers that keep their blocks */
    USM__RANK_BUFFER      = 1,  /* what the places of a buffer say                         */
    USM__RANK_INIT        = 2,  /* start, default context                                 */
    USM__RANK_REGISTRY    = 3,  /* modules, devices                                       */
    USM__RANK_PLACES      = 4,  /* extents of a device, over all buffers                   */
    USM__RANK_ORDER       = 5,  /* which accesses to buffers wait for which                */
    USM__RANK_CONTEXT     = 6,  /* pools, queues, programs of a context                   */
    USM__RANK_PROGRAM     = 7,  /* program cache                                          */
    USM__RANK_QUEUE       = 8,
    USM__RANK_EVENT       = 9,
    USM__RANK_WATCH       = 10, /* records of watched blocks                             */
    USM__RANK_MAGAZINE    = 11, /* who has which thread cache                            */
    USM__RANK_ASYNC_QUEUE = 12, /* what a queue has freed                              */
    USM__RANK_ASYNC       = 13, /* which queues have freed blocks of a pool                */
    USM__RANK_POOL        = 14,
    USM__RANK_SEGMENT     = 15, /* small buffers: who has which part of a block          */
    USM__RANK_SPILL       = 16, /* an engine: frames, policy, blocks' states              */
    USM__RANK_TIER        = 17, /* tiers: slots, statistics                              */
    USM__RANK_IPC_CALL    = 18, /* one exchange with another process                     */
    USM__RANK_IPC         = 19, /* what is shared with other processes: handles, imports  */
    USM__RANK_RENDEZVOUS  = 20, /* descriptors to be had, watched processes              */
    USM__RANK_JOB         = 21, /* members of a job, messages that wait for somebody       */
    USM__RANK_MAP         = 22, /* writers of the address map                            */
    USM__RANK_EXECUTOR    = 23,
    USM__RANK_HANDLE      = 24,
    USM__RANK_SETTINGS    = 25,
    USM__RANK_META        = 26,
    USM__RANK_ORDER_CHECK = 27, /* the checker of stream order                   */
    USM__RANK_LOG         = 28,
    /* Leaves: nothing is logged or reported while one of these is held. */
    USM__RANK_TRACE_FILE  = 29, /* the consumer of the event rings                    */
    USM__RANK_TRACE_STACK = 30,
    USM__RANK_TRACE       = 31, /* rings' list, definitions                           */
    USM__RANK_THREAD      = 32,
    USM__RANK_FAULT       = 33
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

/* Of one that is held for moments only and often wanted by two threads: a look or two before it
 * sleeps. */
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
#define USM__MUTEX_INIT_BRIEF(rank, name)                                                          \
    {                                                                                              \
        PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, (rank), (name), 0                                   \
    }
#else
#define USM__MUTEX_INIT_BRIEF(rank, name) USM__MUTEX_INIT(rank, name)
#endif

void usm__mutex_init(usm__mutex *m, usm__rank rank, const char *name);
void usm__mutex_fini(usm__mutex *m);
void usm__mutex_lock(usm__mutex *m);
void usm__mutex_unlock(usm__mutex *m);
/* Waits for the condition, until `deadline` on its clock (NULL: for ever); the mutex is given back
 * meanwhile.  Not pthread_cond_wait(): the chain of what the thread holds is whole again
 * afterwards. 0 or ETIMEDOUT. */
int usm__mutex_wait(usm__mutex *m, pthread_cond_t *c, const struct timespec *deadline);
/* For fork handlers: no rank check. */
void usm__mutex_lock_for_fork(usm__mutex *m);
void usm__mutex_unlock_after_fork(usm__mutex *m);
/* In the child: a fresh, unlocked mutex, whoever held it. */
void usm__mutex_reset_in_child(usm__mutex *m);
/* Whether the calling thread holds no ranked mutex: asserted before callbacks
 * and backend calls (always true in release builds). */
bool usm__mutex_none_held(void);

#endif
