/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A launch of one process: what parallel.c, book.c, progress.c and resume.c share. */
#ifndef USM_OFFLOAD_PARALLEL_H
#define USM_OFFLOAD_PARALLEL_H

#include "offload/offload.h"

#include "base/meta.h"

#include <usm/event.h>

/* Private copies of a chunk that ended, until they are merged. */
typedef struct usm__ended {
    struct usm__ended *next;
    usm__chunk         chunk;
    size_t             cap;
    char              *copies;
} usm__ended;

/* Of one member in one launch. */
typedef struct usm__part {
    uint64_t chunks, items, busy_ns;
    uint64_t since_ns; /* it has had a chunk since then; while under_way > 0                      */
    uint64_t last_end_ns;
    unsigned under_way;
    bool is_told; /* that it is silent                                                         */
} usm__part;

/* ---- progress.c: one thread at a time -------------------------------------------------------- */

typedef struct usm__teller {
    usm_progress_fn fn;
    void           *user;
    uint64_t        every_ns, start_ns, last_ns;
    double          last_done, rate, fraction;
    double         *shares;
    uint32_t        nmembers;
} usm__teller;

/* What is told, taken under the launch's lock. */
typedef struct usm__told {
    uint64_t now_ns, total, done, chunks, rescheduled;
    bool     is_end;
} usm__told;

usm_status         usm__teller_init(usm__teller *t, const usm__plan *plan, uint32_t nmembers,
                                    uint64_t now_ns);
void               usm__teller_fini(usm__teller *t);
static inline bool usm__teller_is_due(const usm__teller *t, uint64_t now_ns)
{
    return t->fn && now_ns - t->last_ns >= t->every_ns;
}
/* Sets shares from what each member has done. */
void usm__teller_set_shares(usm__teller *t, const usm__part *parts);
/* What the caller's function says. */
bool usm__teller_tell(usm__teller *t, const usm__told *told);

/* ---- resume.c: one thread at a time ---------------------------------------------------------- */

typedef struct usm__resume usm__resume;
/* A chunk that an earlier launch had ended: its bytes are with the arguments again.  False: it does
 * not fit the launch, or *st is a failure. */
typedef bool (*usm__resume_fn)(void *arg, uint64_t first, uint64_t count, const void *copies,
                               usm_status *st);

/* Reads what the file has, if it is there, and goes on with it.
 *   USM_E_INVALID  a file of another launch;   USM_E_IO */
usm_status usm__resume_open(usm__plan *plan, usm__resume_fn fn, void *arg, usm__resume **resume);
/* The chunk has ended, and counts; written some time later, by the thread that adds another. */
void usm__resume_add(usm__resume *r, const usm__chunk *chunk, const void *copies);
/* is_done: the file goes. */
void usm__resume_close(usm__resume *r, bool is_done);
/* How often states of chunks in the middle are to be kept; 0: never. */
uint64_t usm__resume_keeps_ns(const usm__resume *r);
/* usm__run_params.keep, bring.  Any thread. */
void usm__resume_keep(usm__resume *r, const usm__chunk *chunk, const usm__piece *pieces,
                      const void *copies);
bool usm__resume_bring(usm__resume *r, const usm__chunk *chunk, const usm__piece *pieces,
                       void *copies);
/* They are to be written; any thread. */
bool usm__resume_is_due(const usm__resume *r, uint64_t now_ns);
void usm__resume_write(usm__resume *r);

/* ---- the launch: parallel.c, book.c
 * ---------------------------------------------------------------- */

struct usm_parallel_run {
    usm__magic_word magic;
    /* fixed after start */
    usm_team           *team;
    usm__plan          *plan;
    usm__run           *run;
    struct usm__launch *launch; /* ranks.h: over a job, in place of the run and the book         */
    uint64_t            start_ns, resumed;
    bool keeps; /* ended chunks go to merges or a file                                    */
    /* of the one thread that settles */
    usm__tree  **trees; /* by argument; NULL: nothing to merge                                   */
    usm__resume *resume;
    usm__teller  teller;
    /* guarded by lock */
    usm__mutex     lock;
    pthread_cond_t ends;
    usm__schedule *schedule;
    usm__part     *parts;
    unsigned       under_way;
    uint64_t       continued;
    uint64_t       cut;         /* indices from there on are not wanted                         */
    bool           is_starving; /* a member found nothing while there was something to do       */
    bool           is_stopped, is_settling, is_ending, is_over;
    usm_status     status;
    usm__story     story;
    usm__ended    *first, **last, *spare; /* in the order they came; blocks to be used again    */
    usm_event     *event;
    usm_parallel_stats stats;
};

/* A failure of a chunk that says something of the device: it is set aside. */
bool usm__is_of_device(usm_status status);

/* The source of a usm__run. */
bool usm__book_take(void *source, uint32_t member, usm__chunk *chunk);
bool usm__book_take_more(void *source, uint32_t member, usm__chunk *chunk);
void usm__book_ended(void *source, const usm__chunk_end *end);
bool usm__book_again(void *source, uint32_t member, const usm__chunk *chunk, const void *copies);
void usm__book_keep(void *source, const usm__chunk *chunk, const usm__piece *pieces,
                    const void *copies);
bool usm__book_bring(void *source, const usm__chunk *chunk, const usm__piece *pieces, void *copies);

/* Nothing more is given; `status` with the story of the calling thread is the launch's. */
void usm__book_stop(usm_parallel_run *r, usm_status status);
/* Merges what has ended, tells of it, and when nothing is left, ends the launch.  Any thread, no
 * lock held; one does it, others leave it to that one. */
void usm__book_settle(usm_parallel_run *r);
/* Until it is over; members that fall silent are told of.  USM_E_NOT_READY, where it gives up and
 * the launch has a silence_ms: nothing else is under way than what silent members have. */
usm_status usm__book_wait(usm_parallel_run *r, bool gives_up);
/* It is over: stats, and of a failure the story, are set. */
void usm__book_end(usm_parallel_run *r, usm_status status);

#endif
