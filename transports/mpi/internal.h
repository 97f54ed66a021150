/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the parts of the transport over MPI.
 *
 *     module.c    the table; stores, members, messages
 *     transfer.c  room and transfers of stores
 *     attach.c    joining: which MPI there is, who takes part; leaving, also within MPI_Finalize()
 *     meet.c      communicators: of the launch, of the program, the one that the link works on
 *     places.c    members as replica targets of a store; whom a change of theirs is reported to
 *     service.c   which thread steps the protocol (transports/far), and how it waits
 *     state.c     the life of a job, as one state
 *     link.c      far_link over MPI's nonblocking calls
 *     near.c      memory of members on the same host, mapped
 *     bell.c, bells.c  waking a member on the same host that a message was sent to
 *     key.c       the job's key: HMAC-SHA-256
 *     describe.c  describes the MPI, and what its launch survives
 *
 * A process has one job.  The thread that steps calls MPI, under `step`: the service thread, or a
 * thread that waits for a transfer.  Below MPI_THREAD_MULTIPLE only the thread that attached calls
 * it. */
#ifndef USM_MPI_INTERNAL_H
#define USM_MPI_INTERNAL_H

#include "bell.h"

#include "base/inline/atomic.h"
#include "base/inline/bits.h"
#include "base/inline/recycle.h"
#include "far/far.h"

#include <mpi.h>
#include <pthread.h>
#include <string.h>
#include <usm/transport.h>

#define MPI_WIRE_VERSION 1u
#define MPI_NONCE_SIZE   16
#define MPI_MAC_SIZE     32
#define NS_PER_MS        UINT64_C(1000000)

/* ---- link.c ----------------------------------------------------------------------- */

typedef struct mpi_link  mpi_link;
typedef struct mpi_bells mpi_bells;

/* The receivers of its messages are woken by `bells`, which outlive it. */
usm_status mpi_link_create(const usm_host_api *api, MPI_Comm comm, mpi_bells *bells,
                           mpi_link **link);
/* Operations that MPI still has stay, with their buffers: nothing is cancelled. */
void mpi_link_destroy(mpi_link *link);
/* The peers that MPI has reported dead, each once; false: no more. */
bool mpi_link_next_dead(mpi_link *link, uint32_t *peer);
/* At the end: cancels receives to which nothing will be sent; their buffers stay. */
void      mpi_link_hush(mpi_link *link);
far_link *mpi_link_base(mpi_link *link);
/* The number of operations that have ended: shows whether something moves. */
uint64_t mpi_link_moves(const mpi_link *link);
/* Whether MPI has messages of the module that were not sent yet.  Within a step. */
bool mpi_link_is_sending(const mpi_link *link);
/* The number of messages that were received. */
uint32_t mpi_link_received(const mpi_link *link);
uint64_t mpi_now(void);
/* Whether the loaded MPI reports the death of processes (ULFM). */
bool mpi_has_ulfm(void);
/* Lets a communicator return errors as codes: by a handler of the module, because the standard
 * ABI's headers disagree about MPI_ERRORS_RETURN. */
usm_status mpi_own_errors(const usm_host_api *api, MPI_Comm comm);
/* If `code` is an error: USM_E_MPI, with MPI's text in the error message. */
usm_status mpi_check(const usm_host_api *api, int code, const char *what);

/* ---- near.c ----------------------------------------------------------------------- */

/* Memory shared with members on the same host.  NULL: USM_MPI_NEAR=0, or it is not possible. */
typedef struct mpi_near mpi_near;
mpi_near               *mpi_near_create(const usm_host_api *api);
far_near               *mpi_near_base(mpi_near *near); /* NULL for NULL */
void                    mpi_near_destroy(mpi_near *near);
/* Equal for processes that can map each other's memory, as far as can be told; never 0. */
uint64_t mpi_near_host(const mpi_near *near);
/* Opens a sealed memfd of that name in another process: where[0] is its number, where[1] its
 * descriptor there.  -1: it cannot be reached, or is something else. */
int mpi_near_open(const mpi_near *near, const char *name, const uint32_t where[2]);

/* ---- meet.c ------------------------------------------------------------------------ */

/* The record that a process of the launch sends when it attaches, or leaves without attaching. */
typedef struct mpi_record {
    uint32_t      version;
    int32_t       refusal; /* usm_status: why it cannot take part; the others do not either then */
    uint32_t      rank;    /* in the communicator that was attached */
    uint64_t      lend;
    bool          is_present, is_server, has_key;
    char          domain[64];
    unsigned char nonce[MPI_NONCE_SIZE];
    uint64_t      host;    /* mpi_near_host(); 0: it has no bell for others */
    uint32_t      bell[2]; /* where the page of its bell is, as for mpi_near_open() */
} mpi_record;

/* The processes of a launch, or of the communicator that was attached. */
typedef struct mpi_meeting {
    const usm_host_api *api;
    MPI_Comm            whole;   /* the module's; MPI_COMM_NULL: no meeting took place */
    MPI_Comm            program; /* the communicator of app_comm(); else MPI_COMM_NULL */
    int                 rank, size;
    bool                is_split; /* the program called app_comm() */
} mpi_meeting;

/* The purpose for which a process has come. */
typedef enum mpi_purpose {
    MPI_MEET_ATTACH = 1, /* attach() without app_comm() */
    MPI_MEET_SPLIT  = 2, /* app_comm(): a split into program and servers comes next */
    MPI_MEET_SERVER = 3
} mpi_purpose;

/* Collective over `comm`. */
usm_status mpi_meet(const usm_host_api *api, MPI_Comm comm, mpi_purpose purpose, mpi_meeting *m);
/* Collective over the meeting: all[m->size], by rank of m->whole. */
usm_status mpi_exchange(mpi_meeting *m, const mpi_record *mine, mpi_record *all);
/* Makes the communicator of the processes that are present: the program's ranks first, in their
 * order.  *peers (api->heap_alloc) gets their ranks in m->whole.  MPI_COMM_NULL for a process that
 * is not present. */
usm_status mpi_gather_present(mpi_meeting *m, const mpi_record *all, MPI_Comm *comm,
                              uint32_t **peers, uint32_t *count);
/* Checks that all have the same key: USM_E_KEY. */
usm_status mpi_compare_keys(mpi_meeting *m, const mpi_record *all, const void *key,
                            size_t key_size);

/* ---- bells.c ------------------------------------------------------------------------ */

/* The own bell, which is this process's alone if `near` is NULL; `mine` gets where others find it.
 * NULL: no memory. */
mpi_bells *mpi_bells_create(const usm_host_api *api, const mpi_near *near, mpi_record *mine);
/* Maps the bells of the members on this host. */
void      mpi_bells_meet(mpi_bells *bells, const mpi_near *near, const mpi_record *records,
                         uint32_t count, uint32_t self);
void      mpi_bells_destroy(mpi_bells *bells);
mpi_bell *mpi_bells_own(mpi_bells *bells);
/* MPI has taken a message for that member. */
void mpi_bells_ring(mpi_bells *bells, uint32_t member);
/* Whether that member can be rung for. */
bool mpi_bells_reach(const mpi_bells *bells, uint32_t member);
/* The number of members that ring for this process. */
uint32_t mpi_bells_ringers(const mpi_bells *bells);

/* ---- the job ----------------------------------------------------------------------- */

/* A report of the protocol within a step; it is passed on later, without a lock. */
typedef struct mpi_news mpi_news;
struct mpi_news {
    mpi_news  *next;
    bool       is_message, is_big;
    far_member member;
    uint32_t   from, tag;
    size_t     size;
    char       data[];
};

typedef struct mpi_store  mpi_store;
typedef struct mpi_shadow mpi_shadow; /* of a transfer, for the protocol */

/* A lender's memory in one of its lives. */
typedef struct mpi_place {
    uint32_t     member;
    _Atomic bool is_lost;
} mpi_place;

/* The life of a job, in its order; state.c draws and checks the changes. */
typedef enum mpi_job_state {
    MPI_JOB_MEETING,
    MPI_JOB_UP,
    MPI_JOB_CLOSING,
    MPI_JOB_PARTING,
    MPI_JOB_PARTED,
    MPI_JOB_STOPPING,
    MPI_JOB_STOPPED
} mpi_job_state;

typedef struct mpi_job {
    /* fixed once attached */
    const usm_host_api *api;
    usm_job_params      params; /* its pointers are not kept, except the callbacks and user */
    mpi_meeting         meeting;
    MPI_Comm            comm;
    mpi_link           *link;
    mpi_near           *near;
    mpi_bells          *bells;
    mpi_bell           *bell; /* the own one, on which the service thread sleeps */
    far_node           *node;
    uint32_t            self, count;
    mpi_record         *records; /* by member */
    uint32_t            max_places;
    int                 level; /* MPI's thread level */
    pthread_t           owner; /* the thread that attached */
    uint64_t            lease_ns, deadline_ns;
    bool                has_ulfm; /* mpi_has_ulfm() */
    /* guarded by step */
    pthread_mutex_t step;     /* the thread that holds it calls MPI */
    uint64_t        moves;    /* as of the last step */
    uint64_t        bytes;    /* transferred, and requests handled, as of then */
    bool            has_left; /* far_leave() sets it within a step */
    /* each has a lock of its own: memory of large news; of shadows */
    usm_recycler idle_news, idle_shadows;
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t  changed; /* the state, `is_notifying` */
    mpi_news       *news;
    mpi_news      **news_end;
    mpi_store      *stores;
    mpi_shadow     *ended; /* transfers whose `done` must still be called */
    mpi_shadow    **ended_end;
    bool            is_notifying; /* a thread passes news to the callbacks, in any state */
    uint32_t       *place_of;     /* by member, its last; UINT32_MAX: it lends nothing */
    mpi_place      *places;       /* max_places of them; `member` is fixed once it counts */
    far_member     *members;      /* by member, as of `as_of_ns` */
    far_member     *scratch;
    uint64_t        as_of_ns;
    bool           *is_done; /* by member: it is in MPI_Finalize() and needs nothing more */
    /* atomic */
    _Atomic mpi_job_state state; /* written under lock */
    /* What the last step found: hints for naps, true or false in any state. */
    _Atomic bool     has_worked; /* something other than signs of life has come or gone */
    _Atomic bool     busy;       /* as far_step() reported */
    _Atomic bool     is_sending; /* MPI has messages of the module that were not sent yet */
    _Atomic uint64_t next;       /* when the protocol wants to be stepped at the latest */
    _Atomic uint32_t nplaces;
    _Atomic bool     has_ended;   /* there is something in `ended`; written under lock */
    _Atomic uint32_t copies;      /* number of mpi_copy() */
    _Atomic uint32_t flying;      /* threads and transfers in transfer.c */
    _Atomic uint32_t awaiters;    /* threads that step until their transfer has ended */
    _Atomic uint64_t beside;      /* when one of them stepped last */
    _Atomic uint32_t shadows;     /* transfers in the protocol for which no thread waits */
    _Atomic uint64_t patience;    /* set by module.c's set_patience() */
    _Atomic uint64_t wakes_at;    /* when the service thread wakes at the latest, while it is
                                    asleep */
    _Atomic uint64_t stepper;     /* the thread that holds `step`: pthread_self() as a number; 0:
                                    none */
    _Atomic uint64_t service;     /* the service thread, likewise */
    _Atomic uint64_t rung, timed; /* rounds of the service thread that began by a ring; without */
} mpi_job;

struct mpi_store {
    mpi_job   *job;
    far_store *far;
    size_t     block_size;
    void (*place_changed)(void *user, uint32_t place, usm_place_state state);
    void            *user;
    _Atomic uint64_t reserved; /* in blocks */
    mpi_store       *next;     /* guarded by job->lock */
};

/* ---- state.c ------------------------------------------------------------------------ */

static inline mpi_job_state mpi_job_state_of(const mpi_job *job)
{
    return usm_load_acquire(&job->state);
}

/* From CLOSING on: the process has left, or is about to. */
static inline bool mpi_job_is_closing(const mpi_job *job)
{
    return mpi_job_state_of(job) >= MPI_JOB_CLOSING;
}

/* Whether the module has a thread of its own. */
static inline bool mpi_has_thread(const mpi_job *job)
{
    return job->level >= MPI_THREAD_MULTIPLE;
}

/* The lock is not held.  pre: the change is allowed. */
void mpi_job_change(mpi_job *job, mpi_job_state to);
/* The same if the job is in the state `from`, else nothing. */
void mpi_job_change_from(mpi_job *job, mpi_job_state from, mpi_job_state to);
/* Whether the job may be changed to the state `to` now; with the lock held. */
bool mpi_job_is_valid(const mpi_job *job, mpi_job_state to);

/* The job of this process; NULL: not attached. */
mpi_job *mpi_the_job(void);

/* Tags of the module's own messages; the users' are below. */
#define MPI_TAG_DONE UINT32_C(0xffffff01)

/* ---- transfer.c: functions of the table ----------------------------------------------------- */

usm_status mpi_store_reserve(void *store, uint64_t first, uint64_t n);
void       mpi_store_forget(void *store, uint64_t first, uint64_t n);
void       mpi_store_submit(void *store, usm_transfer *list);
usm_status mpi_store_progress(void *store, uint32_t timeout_ms);
/* Calls `done` of transfers that have ended; no lock is held. */
void mpi_deliver(mpi_job *job);

/* ---- service.c ---------------------------------------------------------------------- */

usm_status mpi_service_init(mpi_job *job);
usm_status mpi_service_start(mpi_job *job);
/* Returns once the thread has ended. */
void mpi_service_stop(mpi_job *job);
/* Any thread: there is work for a step. */
void mpi_service_wake(mpi_job *job);
/* There is something to be passed on, which the service thread does unasked if it found it. */
void mpi_service_notify(mpi_job *job);
/* For so long it may sleep without looking for messages; 0: it chooses. */
void mpi_service_set_patience(mpi_job *job, uint64_t ns);
/* After far_send(): lets the message go. */
void mpi_service_send(mpi_job *job, uint32_t to);
/* Whether this thread may call MPI. */
bool mpi_may_step(const mpi_job *job);
/* Whether this thread holds `step` already: within `done`. */
bool mpi_is_stepper(const mpi_job *job);
/* Copies bytes that go through shared memory, a piece or so, by any thread; false: there are
 * none. */
bool mpi_copy(mpi_job *job);
/* Makes one step, unless another thread is stepping; returns whether something moved. */
bool mpi_step(mpi_job *job);
/* Steps, or lets other threads step, and waits a little when nothing moves; *since is 0 at first.
 * `is_long`: the thread waits for bytes, and others may use the processor meanwhile. */
void mpi_linger(mpi_job *job, uint64_t *since, bool is_long);
/* Around a wait that calls mpi_linger(): the service thread does not step meanwhile. */
void mpi_await_begin(mpi_job *job);
void mpi_await_end(mpi_job *job);
/* Steps until `is_over` or the time has come. */
bool mpi_step_until(mpi_job *job, bool (*is_over)(mpi_job *job), uint64_t until);
/* Passes on what the protocol has reported; no lock is held. */
void mpi_notify(mpi_job *job);
/* Within mpi_notify(): reports a changed member to the stores, and fills the callback's form of
 * it. */
void mpi_notify_places(mpi_job *job, const far_member *m);
void mpi_fill_member(const mpi_job *job, const far_member *m, usm_job_member *member);
/* Callbacks for far_params. */
void mpi_on_member(void *job, const far_member *m);
void mpi_on_message(void *job, uint32_t from, uint32_t tag, const void *data, size_t size);
void mpi_on_wake(void *job);

/* ---- the other files ----------------------------------------------------------------------- */

bool mpi_hmac(const void *key, size_t key_size, const void *data, size_t size,
              unsigned char mac[MPI_MAC_SIZE]);
/* Compares in constant time, which does not reveal how much was right. */
bool mpi_is_same_mac(const unsigned char *a, const unsigned char *b);
bool mpi_random(void *data, size_t size);

usm_status mpi_attach(const usm_host_api *api, const usm_job_params *params, void **job);
void       mpi_detach(void *job, bool is_final);
usm_status mpi_app_comm(const usm_host_api *api, void *comm, size_t comm_size);
usm_status mpi_serve(void *job, const volatile int *stop);
void       mpi_job_describe(void *job, char *text, size_t cap);

usm_place_state mpi_member_state(far_member_state state); /* as a process of the job */
usm_place_state mpi_place_state(const far_member *m);     /* as a replica target */
/* The state of a member, at most a millisecond old. */
void mpi_get_member(mpi_job *job, uint32_t index, far_member *member);
/* Allocates the tables of members and places, and fills in what is known before the first step. */
usm_status mpi_places_init(mpi_job *job);
void       mpi_places_fini(mpi_job *job);
/* For a store: the member that a place stands for; false: there is no such place, or it is lost. */
bool mpi_find_place(const mpi_job *job, uint64_t place, uint32_t *member);

#endif
