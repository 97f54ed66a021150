/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A launch of one process: what parallel.c, ledger.c, progress.c and resume.c share. */
#ifndef USM_OFFLOAD_PARALLEL_H
#define USM_OFFLOAD_PARALLEL_H

#include "offload/meter.h"
#include "offload/offload.h"

#include "base/inline/list.h"
#include "base/meta.h"

#include <usm/event.h>

/* The private copies of a chunk that ended, kept until they are merged. */
typedef struct usm__ended {
    struct usm__ended *next;
    usm__chunk         chunk;
    size_t             cap;
    char              *copies;
} usm__ended;

/* The statistics of one member in one launch. */
typedef struct usm__ledger_part {
    uint64_t chunks, items, busy_ns;
    uint64_t since_ns; /* when it began to have chunks in progress; valid while under_way > 0 */
    uint64_t last_end_ns;
    unsigned under_way;
    bool     is_notified; /* its silence was reported */
} usm__ledger_part;

/* ---- progress.c: one thread at a time -------------------------------------------------------- */

typedef struct usm__notifier {
    usm_progress_fn fn;
    void           *user;
    uint64_t        every_ns, start_ns, last_ns;
    double          last_done, rate, fraction;
    double         *shares;
    uint32_t        nmembers;
} usm__notifier;

/* The numbers of one report, taken under the launch's lock. */
typedef struct usm__notified {
    uint64_t now_ns, total, done, chunks, rescheduled;
    bool     is_end;
} usm__notified;

usm_status         usm__notifier_init(usm__notifier *t, const usm__plan *plan, uint32_t nmembers,
                                      uint64_t now_ns);
void               usm__notifier_fini(usm__notifier *t);
static inline bool usm__notifier_is_due(const usm__notifier *t, uint64_t now_ns)
{
    return t->fn && now_ns - t->last_ns >= t->every_ns;
}
/* Computes shares from what each member has done. */
void usm__notifier_set_shares(usm__notifier *t, const usm__ledger_part *parts);
/* Calls the caller's progress function, and returns its result. */
bool usm__notifier_notify(usm__notifier *t, const usm__notified *notified);

/* ---- resume.c: one thread at a time ---------------------------------------------------------- */

typedef struct usm__resume usm__resume;
/* Receives a chunk that ended in an earlier launch, whose bytes have been written to the arguments
 * again.  False: the chunk does not fit the launch, or *st is a failure. */
typedef bool (*usm__resume_fn)(void *arg, uint64_t first, uint64_t count, const void *copies,
                               usm_status *st);

/* Reads the file, if it exists, and continues it.
 *   USM_E_INVALID  a file of another launch;   USM_E_IO */
usm_status usm__resume_open(usm__plan *plan, usm__resume_fn fn, void *arg, usm__resume **resume);
/* Records that a chunk has ended and counts.  It is written to the file some time later, by a
 * thread that adds another. */
void usm__resume_add(usm__resume *r, const usm__chunk *chunk, const void *copies);
/* is_done: the file is deleted. */
void usm__resume_close(usm__resume *r, bool is_done);
/* How often the states of iterative chunks are to be stored; 0: never. */
uint64_t usm__resume_keeps_ns(const usm__resume *r);
/* usm__run_params.keep and bring.  Any thread. */
void usm__resume_keep(usm__resume *r, const usm__chunk *chunk, const usm__piece *pieces,
                      const void *copies);
bool usm__resume_bring(usm__resume *r, const usm__chunk *chunk, const usm__piece *pieces,
                       void *copies);
/* Whether it is time to write the stored states, and the function that writes them.  Any thread. */
bool usm__resume_is_due(const usm__resume *r, uint64_t now_ns);
void usm__resume_write(usm__resume *r);

/* ---- the launch: parallel.c, ledger.c -------------------------------------------------------- */

struct usm_parallel_run {
    usm__magic_word magic;
    /* fixed after start */
    usm_team                 *team;
    usm__plan                *plan;
    usm__run                 *run;
    struct usm__ranks_launch *launch; /* ranks.h: a launch over a job, in place of the run and the
                                   schedule */
    uint64_t                  start_ns, resumed;
    usm__meter_run            metering;
    bool                      keeps; /* ended chunks are kept, for merges or a file */
    /* used only by the thread in usm__ledger_finalize() */
    usm__tree   **trees; /* by argument; NULL: nothing to merge */
    usm__resume  *resume;
    usm__notifier notifier;
    /* guarded by lock */
    usm__mutex        lock;
    pthread_cond_t    ends;
    usm__schedule    *schedule;
    usm__ledger_part *parts;
    unsigned          under_way;
    uint64_t          continued;
    uint64_t          cut;         /* indices from there on are no longer wanted */
    bool              is_starving; /* a member got no chunk while indices were left */
    bool              is_stopped, is_settling, is_ending, is_over;
    usm_status        status;
    usm__message      message;
    usm__ended *first, **last, *spare; /* ended chunks in the order of their ends; blocks to be
                                             reused */
    usm_event  *event;
    usm_parallel_stats stats;
    usm_list           link; /* launches.c */
};

/* Whether a chunk's failure is the device's, which is then quarantined. */
bool usm__is_of_device(usm_status status);

/* The functions of a usm__run's source. */
bool usm__ledger_take(void *source, uint32_t member, usm__chunk *chunk);
bool usm__ledger_take_more(void *source, uint32_t member, usm__chunk *chunk);
void usm__ledger_ended(void *source, const usm__chunk_end *end);
bool usm__ledger_again(void *source, uint32_t member, const usm__chunk *chunk, const void *copies);
void usm__ledger_keep(void *source, const usm__chunk *chunk, const usm__piece *pieces,
                      const void *copies);
bool usm__ledger_bring(void *source, const usm__chunk *chunk, const usm__piece *pieces,
                       void *copies);

/* No more chunks are handed out; `status`, with the calling thread's error message, is the result
 * of the launch. */
void usm__ledger_stop(usm_parallel_run *r, usm_status status);
/* Merges the chunks that have ended, reports progress and, when nothing is left, ends the launch.
 * Any thread, no lock held.  If a thread is doing it already, the call returns and that thread does
 * the work. */
void usm__ledger_finalize(usm_parallel_run *r);
/* Waits until the launch is over, and reports members that fall silent.  USM_E_NOT_READY, if
 * gives_up is set and the launch has a silence_ms: only silent members still have chunks. */
usm_status usm__ledger_wait(usm_parallel_run *r, bool gives_up);
/* The launch is over: sets the statistics and, after a failure, the error message. */
void usm__ledger_end(usm_parallel_run *r, usm_status status);

#endif
