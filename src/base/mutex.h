/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Mutexes with a rank: a thread may only lock a mutex whose rank is higher than those it holds.
 * Debug builds (without NDEBUG, or with USM_DEBUG_LOCKS) check this, and abort with both names.
 * Only fork handlers may nest equal ranks.
 *
 * The comment before each rank is its row of the table in docs/threading.md: tests/check_docs.py
 * --write makes the table. */
#ifndef USM_BASE_MUTEX_H
#define USM_BASE_MUTEX_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

typedef enum usm__rank {
    /* the list of launches, for src/monitor */
    USM__RANK_LAUNCHES = -10,
    /* one usm_shutdown() at a time waits for the calls that use the default context */
    USM__RANK_ENDING = -9,
    /* the last readings of the energy counters; the energy meter of a team */
    USM__RANK_WATTS = -8,
    /* the nodes of a running graph that are ready */
    USM__RANK_GRAPH = -7,
    /* the states and statistics of a team's members */
    USM__RANK_TEAM = -6,
    /* the assignment of a launch's chunks to the members of a team */
    USM__RANK_LAUNCH = -5,
    /* the busy slots of a launch on a device */
    USM__RANK_RUN = -4,
    /* messages of launches over ranks; nothing is sent while it is held */
    USM__RANK_RANKS = -3,
    /* the order in which commands over buffers enter the orders of their buffers and an in-order
       queue: one at a time */
    USM__RANK_SUBMIT = -2,
    /* makes the order in which commands over buffers enter their queues that of the line for
       memory */
    USM__RANK_PLACING = -1,
    /* the blocks of a shared buffer; taken before the lock of the buffer that stores them */
    USM__RANK_SHARED = 0,
    /* the coherence state of one buffer; held while its copies are queued, and while the host waits
       for one */
    USM__RANK_BUFFER = 1,
    /* start and end of the library, the default context */
    USM__RANK_INIT = 2,
    /* backends, devices, modules, the list of all contexts; held while a driver is loaded and
       listed */
    USM__RANK_REGISTRY = 3,
    /* the places where bytes of buffers are valid, and ranges of device memory; never held during a
       copy */
    USM__RANK_LOCATIONS = 4,
    /* the waits between accesses to buffers, over all buffers; held briefly */
    USM__RANK_ORDER = 5,
    /* the pools, queues and programs of a context */
    USM__RANK_CONTEXT = 6,
    /* the cache of built programs */
    USM__RANK_PROGRAM = 7,
    /* keeps the commands of one call together in an in-order queue */
    USM__RANK_QUEUE = 8,
    /* the state and the callbacks of an event */
    USM__RANK_EVENT = 9,
    /* the records of tracked blocks */
    USM__RANK_TRACKED = 10,
    /* the magazines of each thread */
    USM__RANK_MAGAZINE = 11,
    /* the blocks that were freed in a queue */
    USM__RANK_ASYNC_QUEUE = 12,
    /* the queues that have freed blocks of a pool */
    USM__RANK_ASYNC = 13,
    /* the blocks and areas of a pool; no function of the program or of a driver is called with it
       held */
    USM__RANK_POOL = 14,
    /* the parts of blocks that belong to small buffers */
    USM__RANK_SEGMENT = 15,
    /* frames, eviction policy and block states of one engine */
    USM__RANK_SPILL = 16,
    /* the slots and statistics of the tiers */
    USM__RANK_TIER = 17,
    /* the list of managed ranges, and the states of a range's blocks; held while pages are moved */
    USM__RANK_MANAGED = 18,
    /* one exchange with another process */
    USM__RANK_IPC_CALL = 19,
    /* handles, imports and other data shared with other processes */
    USM__RANK_IPC = 20,
    /* the descriptors that other processes may request, and the processes that are tracked */
    USM__RANK_RENDEZVOUS = 21,
    /* the members of the job and waiting messages; never held while the MPI module or a listener is
       called */
    USM__RANK_JOB = 22,
    /* the writers of the page map; readers take no lock */
    USM__RANK_MAP = 23,
    /* the jobs and threads of the executor */
    USM__RANK_EXECUTOR = 24,
    /* the table of live objects */
    USM__RANK_HANDLE = 25,
    /* the values of settings */
    USM__RANK_SETTINGS = 26,
    /* the slots of objects */
    USM__RANK_META = 27,
    /* the clocks and records of the stream order checker */
    USM__RANK_ORDER_CHECK = 28,
    /* keeps the lines of the log whole */
    USM__RANK_LOG = 29,
    /* Leaves: nothing is logged or reported while one of these is held. */
    /* the consumer of the event rings and its file */
    USM__RANK_TRACE_FILE = 30,
    /* the table of call stacks */
    USM__RANK_TRACE_STACK = 31,
    /* the list of event rings, and definitions */
    USM__RANK_TRACE = 32,
    /* the list of threads */
    USM__RANK_THREAD = 33,
    /* the monitor page: its file and the places of pools */
    USM__RANK_MONITOR = 34,
    /* the counters of the fault hooks */
    USM__RANK_FAULT = 35
} usm__rank;

typedef struct usm__mutex {
    pthread_mutex_t native;
    usm__rank       rank;
    const char     *name;
    /* Debug builds: the mutex that the holder took before.  Accessed by the holder only. */
    struct usm__mutex *below;
} usm__mutex;

#define USM__MUTEX_INIT(rank, name)                                                                \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, (rank), (name), 0                                               \
    }

/* For a mutex that is held briefly and often contended by two threads: it spins a little before it
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
/* Waits for the condition, until `deadline` on its clock (NULL: without limit); the mutex is
 * unlocked meanwhile.  Must be used instead of pthread_cond_wait(), because it maintains the chain
 * of held mutexes.  Returns 0 or ETIMEDOUT. */
int usm__mutex_wait(usm__mutex *m, pthread_cond_t *c, const struct timespec *deadline);
/* For fork handlers: no rank check. */
void usm__mutex_lock_for_fork(usm__mutex *m);
void usm__mutex_unlock_after_fork(usm__mutex *m);
/* In the child: re-initialises the mutex as unlocked, whichever thread held it. */
void usm__mutex_reset_in_child(usm__mutex *m);
/* True if the calling thread holds no ranked mutex: asserted before callbacks and backend calls
 * (always true in release builds). */
bool usm__mutex_none_held(void);

#endif
