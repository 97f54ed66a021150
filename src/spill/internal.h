/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of the engine.  Its mechanism is explained in engine.c. */
#ifndef USM_SPILL_INTERNAL_H
#define USM_SPILL_INTERNAL_H

#include "base/assert.h"
#include "base/inline/list.h"
#include "base/mutex.h"
#include "base/os.h"
#include "base/status.h"
#include "base/trace_spill.h"
#include "device/init.h"
#include "spill/engine.h"
#include "spill/frames.h"
#include "spill/policy.h"
#include "spill/prefetch.h"

#include <pthread.h>

#define USM__MASK_WORDS (USM__SECTORS_MAX / 64)

/* A set of sectors of a block. */
typedef struct usm__mask {
    uint64_t bits[USM__MASK_WORDS];
} usm__mask;

/* Where a block's content is when it is not in memory. */
typedef enum usm__content {
    USM__CONTENT_ZERO = 0, /* nowhere: it was never written, or is all zero                  */
    USM__CONTENT_HOME = 1, /* in the backing store                                           */
    USM__CONTENT_COPY = 2  /* on a tier                                                      */
} usm__content;

/* The rest of a block's state, beside its word.  Guarded by the engine's lock. */
typedef struct usm__block {
    usm__copy *copy;  /* NULL: it was never stored                                          */
    uint32_t   frame; /* USM__NO_FRAME: none                                                */
    uint8_t    content;
    bool       must_store; /* clean, but newer than `content` says: a commit must write it */
    uint16_t   kept;       /* how often USM_BUFFER_PIN was requested                       */
    int16_t    status;     /* the status of its last load that failed; 0: none             */
} usm__block;

#define USM__FRAME_IOS 2 /* transfers of a frame at a time, each a run of sectors          */

/* frame.c draws the transitions. */
typedef enum usm__frame_state {
    USM__FRAME_EMPTY = 0, /* has no memory                                                   */
    USM__FRAME_FREE,
    USM__FRAME_ZERO, /* free, and known to read as zeros                                     */
    USM__FRAME_HELD, /* has a block                                                          */
    /* busy: it belongs to the thread that set the state, or that ends the transfer */
    USM__FRAME_LOADING,  /* is being filled, in the arena: the block was absent              */
    USM__FRAME_SWAPPING, /* the same; then the block's copy is dropped, to make room         */
    USM__FRAME_DROPPING, /* the block's copy is being dropped                                */
    USM__FRAME_FILLING,  /* missing sectors are being read                                   */
    USM__FRAME_STORING,
    USM__FRAME_LEAVING /* its pages are being moved back to the arena                        */
} usm__frame_state;

/* Who waits for a transfer. */
typedef enum usm__urgency {
    USM__WANTED = 0,
    USM__AWAITED, /* a thread that does nothing else                                         */
    USM__AHEAD    /* none: readahead or write-behind                                         */
} usm__urgency;

/* How a frame gets the content that a load asks for. */
typedef enum usm__fill {
    USM__FILL_READ = 0, /* from where the block's content is                                  */
    USM__FILL_ZERO,
    USM__FILL_NONE /* it reads as zeros already, or all of it will be written                  */
} usm__fill;

/* Guarded by the engine's lock; the members of a transfer belong to the thread that makes it. */
typedef struct usm__frame {
    usm__spill *spill;
    usm__space *space; /* NULL: free                                                        */
    uint32_t    block;
    uint32_t    next;  /* next in the free list                                           */
    uint8_t     state; /* a usm__frame_state, changed by usm__frame_become()              */
    /* No states, because they outlive what comes next, be it a fill or a move that fails: storing
     * it failed, and is not tried again until something changes; it was stored because a thread
     * waited for its frame. */
    bool      is_failed, was_wanted;
    bool      is_evicted; /* LEAVING: its block is evicted, not discarded                        */
    uint32_t  last_end;   /* PARTIAL: the sector behind the last that was requested          */
    usm__mask present;    /* PARTIAL: sectors that are in memory                             */
    usm__mask dirty;      /* PARTIAL: of these, those that were written                      */
    usm_list  sleepers;   /* threads that wait until its state changes                       */
    /* the transfer */
    usm__mask work;   /* sectors                                                            */
    uint32_t  cursor; /* the sectors below it are done or under way                         */
    uint8_t   urgency;
    uint8_t   fill; /* a usm__fill                                                           */
    _Atomic(uint32_t) pending;  /* number of ios under way                                  */
    _Atomic(int)      failed;   /* status of the first io that failed                       */
    uint64_t          start_ns; /* while tracing                                            */
    usm__io           ios[USM__FRAME_IOS];
} usm__frame;

typedef struct usm__segments usm__segments;

/* Access history of buffers of one or two blocks that are used in the order in which they were
 * created: as prefetch.h for the blocks of one space. */
typedef struct usm__line {
    usm__space *last;   /* the last space that was reached; NULL                        */
    uint32_t    run;    /* how often in succession the next one was reached             */
    uint32_t    window; /* spaces to load ahead: grows with use, shrinks with waste     */
} usm__line;

typedef struct usm__announced {
    usm_list link; /* in spill->announced                                                   */
    uint64_t thread;
    size_t   n, next; /* entries of list; the first that has not been requested             */
    size_t   used;    /* entries that were used                                             */
    struct usm__announced_block {
        usm__space *space;
        uint32_t    block;
    } list[];
} usm__announced;

/* A space may be far larger than the part of it that is ever used.  Therefore the records of its
 * blocks are made in chunks, each when one of its blocks is first looked at:
 *
 *     chunk untouched  =>  its blocks have word 0 (ABSENT), no frame, no copy, kept 0, and the
 *                          content that the space began with
 *
 * A walk over all blocks skips those chunks (usm__space_skip), except where it changes that
 * content. */
#define USM__CHUNK_SHIFT 9

typedef struct usm__space_more usm__space_more;
struct usm__space_more {
    usm__space      *space; /* the space that it belongs to */
    usm_list         link;  /* in spill->spaces */
    usm__block      *blocks;
    usm__home       *home;
    const usm__view *view;    /* NULL: none */
    size_t           records; /* bytes of its records: lock held */

    _Atomic(uint64_t) *touched; /* a bit for each chunk of blocks; set under the engine's lock   */

    usm_context   *ctx;
    usm__prefetch *prefetch;
    usm__pattern   pattern;
    uint32_t       busy;     /* transfers under way                                        */
    usm_list       sleepers; /* threads that wait until it is 0                            */
    uint32_t       trace;
    uint32_t       resident;
    usm_status     late;   /* a store that failed while no thread waited for it; reported once */
    struct shared *shared; /* of segment.c, for a space of small buffers                       */
};

struct usm__spill {
    /* fixed after create */
    size_t       block_size, sector_size;
    unsigned     shift, sector_shift;
    uint32_t     sectors; /* of a block                                                      */
    uint64_t     limit;   /* bytes                                                           */
    uint32_t     wait_ms; /* how long to wait for pins, ms                                   */
    usm_context *owner;   /* the context whose limit it has; NULL: the process               */
    usm__frames  frames;
    usm__tiers  *tiers;
    usm_list     link; /* in the list of all engines                                         */
    unsigned     fork_generation;

    usm__mutex lock;
    /* guarded by lock */
    usm_list     for_room, for_ticket; /* threads that sleep: engine.c                        */
    uint64_t     releases;             /* calls of usm__spill_released()                      */
    usm__frame  *frame;                /* [frames.count]                                      */
    usm__policy *policy;
    uint32_t     free_head, nfree;   /* frames that have memory                               */
    uint32_t     grown;              /* frames [0, grown) were ever used                      */
    uint32_t     peak;               /* most frames that had memory                           */
    uint32_t     spare;              /* the spare frame: see frame.c; USM__NO_FRAME: none now */
    uint32_t     no_growth;          /* > 0: a thread frees memory for other parts            */
    _Atomic(uint32_t) record_frames; /* charged without memory: records.c; read without lock */
    uint32_t          empty_head;    /* frames below `grown` whose memory was returned        */
    uint32_t          loads, stores; /* under way                                  */
    bool              is_cleaning;   /* a thread is in usm__clean_ahead()          */
    bool              is_failing;    /* a store failed: some frames have is_failed */
    usm_status        store_status;
    char              store_words[320]; /* message of the newest failure to store                 */
    uint64_t          store_failures;
    uint64_t    notified_late_ns; /* last report of a failure that no thread waited for          */
    const void *ticket; /* the request with the ticket: it alone may take frames             */
    uint64_t    held;   /* how often a thread with the ticket got no memory within wait_ms   */
    usm_list    spaces;
    usm_list    announced;
    usm__line   line;
    uint64_t    next_key;
    uint64_t    resident;  /* frames in use                                                 */
    usm_spill_stats stats; /* counters                                                      */
    bool            has_spilled;
    uint32_t        drops; /* pools that have woken, whose copies are still being dropped    */
    pthread_cond_t  dropped;
    /* why the load of the block with that key failed: the error message of the thread that read
     * it */
    uint64_t message_key;
    char     message[400];

    _Atomic(uint64_t) records; /* bytes: records.c */
    /* small buffers: their own lock */
    _Atomic(struct usm__segments *) segments;
};

/* What a function has decided under the lock, for its caller to do after it has released the lock.
 * No function that is entered with the lock releases it: one that cannot go on without what is
 * deferred returns USM__DEFERRED, and is called again afterwards.  It then looks at everything
 * anew.
 *
 *     usm__mutex_lock(&s->lock);
 *     while ((st = decide(s, ..., &d)) == USM__DEFERRED) {
 *         usm__mutex_unlock(&s->lock);
 *         usm__deferred_do(s, &d);
 *         usm__mutex_lock(&s->lock);
 *     }
 *
 * There is at most one frame: what is begun for it may call functions of the program (backing
 * stores), and those must not wait for a frame that this thread has made busy and not begun. */
typedef struct usm__deferred {
    usm__frame *frame;  /* it was made busy: its transfer or move is to be made; NULL: none     */
    bool        cleans; /* stores are to be started ahead of need                              */
    bool        sleeps; /* the thread sleeps until the list that it is in is woken              */
    uint32_t    timeout_ms;
    usm_list    link; /* in no list: woken                                                  */
    pthread_cond_t wake;
} usm__deferred;

/* Not a status of the library: no user of the engine sees it. */
#define USM__DEFERRED ((usm_status)1)

/* engine.c */
/* Lock not held.  Does all of it; afterwards nothing is deferred. */
void usm__deferred_do(usm__spill *s, usm__deferred *d);

/* Lock held, from here on. */
/* Enters the list: usm__deferred_do() sleeps until it is woken, timeout_ms at most (0: without
 * limit), or returns earlier.  pre: what the caller waits for ends with usm__spill_wake() of this
 * list. */
void usm__deferred_sleep(usm__deferred *d, usm_list *list, uint32_t timeout_ms);
void usm__spill_wake(usm_list *list);
/* A transfer or an eviction ended: wakes the threads that wait for frames.  The same, when the last
 * pin of a block, a block's USM_BUFFER_PIN or a ticket ended. */
void usm__spill_changed(usm__spill *s);
void usm__spill_released(usm__spill *s);
/* A transfer of the space has ended.  From here on the space may be destroyed. */
void usm__space_unbusy(usm__space *space);

void usm__space_touch(const usm__space *space, uint32_t chunk); /* lock held; space.c        */
/* The first block from `block` on in a touched chunk; nblocks at the end. */
uint32_t usm__space_skip(const usm__space *space, uint32_t block);

static inline bool usm__space_is_touched(const usm__space *space, uint32_t chunk)
{
    return usm_load_relaxed(&space->more->touched[chunk / 64]) >> chunk % 64 & 1;
}

/* Lock held, unless the block was looked at before. */
static inline usm__block *usm__block_of(const usm__space *space, uint32_t block)
{
    if (!usm__space_is_touched(space, block >> USM__CHUNK_SHIFT))
        usm__space_touch(space, block >> USM__CHUNK_SHIFT);
    return &space->more->blocks[block];
}

static inline char *usm__block_at(const usm__space *space, uint32_t block)
{
    return space->base + ((size_t)block << space->shift);
}

static inline unsigned usm__state_of(uint64_t word)
{
    return (unsigned)(word & USM__WORD_STATE);
}

/* Consecutive sectors of a block. */
typedef struct usm__sectors {
    uint32_t first, count;
} usm__sectors;

/* mask.c */
void     usm__mask_set(usm__mask *m, uint32_t first, uint32_t count);
void     usm__mask_clear(usm__mask *m, uint32_t first, uint32_t count);
bool     usm__mask_has(const usm__mask *m, uint32_t first, uint32_t count);
uint32_t usm__mask_count(const usm__mask *m);
/* The next run of set (want) or clear bits from *at on, below end; false: there is none. */
bool usm__mask_next(const usm__mask *m, bool want, uint32_t *at, uint32_t end, usm__sectors *run);

/* store.c: n > 0, a multiple of 8 */
bool usm__is_all_zero(const char *p, size_t n);

/* word.c */
/* Sets and clears marks, and the state unless `state` is negative; pins are kept. */
void usm__word_change(usm__word *word, int state, uint64_t set, uint64_t clear);

static inline bool usm__frame_is_busy(const usm__frame *f)
{
    return f->state > USM__FRAME_HELD;
}

/* The state of the block of a frame that is in memory. */
static inline usm__block_state usm__frame_content(const usm__frame *f)
{
    return usm__mask_count(&f->present) == f->spill->sectors ? USM__BLOCK_RESIDENT
                                                             : USM__BLOCK_PARTIAL;
}

/* Lock held: whether the change is allowed, and the frame and its block may be so. */
bool usm__frame_is_valid(const usm__frame *f, usm__frame_state to);

/* Lock held; the block's word and record have changed before. */
static inline void usm__frame_become(usm__frame *f, usm__frame_state to)
{
    usm_assert(usm__frame_is_valid(f, to));
    f->state = (uint8_t)to;
    usm__spill_wake(&f->sleepers);
}

/* frame.c: frames and eviction.  The lock is held. */
/* A request for a frame, from the first call of usm__frame_get() until it gets one or fails.
 * Zeroed: a new one. */
typedef struct usm__frame_want {
    bool     may_wait; /* false: only free frames, or after the eviction of one clean block      */
    bool     is_for_others; /* its memory is given back: records go on being paid for             */
    bool     has_begun, has_evicted;
    uint64_t failures; /* the engine's store_failures when it began                            */
} usm__frame_want;

/* Takes a free frame, or returns USM__NO_FRAME with *status: USM__DEFERRED; USM_E_AGAIN: all are in
 * use; USM_E_SPILL_FULL, USM_E_IO: the victim could not be stored. */
uint32_t usm__frame_get(usm__spill *s, usm__frame_want *w, usm_status *status, usm__deferred *d);
/* For a block whose copy will be dropped (SWAPPING); USM__NO_FRAME: there is no spare frame. */
uint32_t usm__frame_take_spare(usm__spill *s);
/* Returns a frame that is free or loses its block; one that was not used keeps its state. */
void usm__frame_put_free(usm__spill *s, uint32_t frame);
/* Begins to evict or discard the frame's block; false: the block is in use. */
bool usm__frame_leave(usm__spill *s, uint32_t frame, bool is_evicted, usm__deferred *d);
/* What usm__frame_leave() has deferred: moves the pages back.  Lock not held. */
void usm__frame_take_back(usm__spill *s, usm__frame *f);
/* Where the content of a block that is being stored is; NULL: it may change there.  Lock not held. */
char *usm__frame_data(const usm__spill *s, const usm__frame *f);
/* Moves the frame to the address of its block; lock not held; returns 0 or errno. */
int usm__frame_place(usm__spill *s, uint32_t frame);
/* Failed stores may be tried again. */
void             usm__frame_forgive(usm__spill *s);
usm__policy_look usm__frame_look(void *spill, uint32_t frame);

/* store.c */
/* Starts stores until enough frames can be evicted without waiting.  Lock not held. */
void usm__clean_ahead(usm__spill *s);
/* Begins to store the dirty block, or to load what it lacks for that; false: it is not possible
 * now.  Lock held. */
bool usm__store_start(usm__spill *s, uint32_t frame, usm__urgency urgency, usm__deferred *d);
/* What it has deferred of a store.  Lock not held. */
void usm__store_make(usm__spill *s, usm__frame *f);
void usm__store_ended(usm__spill *s, uint32_t frame, usm_status status); /* lock not held      */
/* Takes the block's copy from it, to be forgotten: lock held; NULL: it has none.  pre: no transfer
 * of the copy is under way. */
usm__copy *usm__copy_take(usm__block *b);
void       usm__copy_forget(usm__spill *s, usm__copy *copy); /* lock not held */

/* transfer.c: lock not held; the frame is busy */
void usm__transfer(usm__spill *s, uint32_t frame);

/* load.c */
typedef struct usm__load {
    usm__space      *space;
    uint32_t         block;
    usm__sectors     need;          /* sectors                                              */
    bool             needs_content; /* false: all of `need` will be written without fetch   */
    usm__urgency     urgency;
    bool             is_swap; /* SWAPPING                                                    */
    usm__policy_hint hint;
} usm__load;
/* Begins to load a block; pre: `frame` is free and the caller's, the block is absent.  Lock
 * held. */
void usm__load_absent(usm__spill *s, const usm__load *load, uint32_t frame, usm__deferred *d);
/* The same for missing sectors of a partial block that is not busy. */
void usm__load_missing(usm__spill *s, const usm__load *load, usm__deferred *d);
/* What these two have deferred.  Lock not held. */
void usm__load_make(usm__spill *s, usm__frame *f);
/* Records the end of a transfer between the frame and where its block's content is stored. */
void usm__frame_trace(const usm__spill *s, const usm__frame *f, usm__trace_spill_kind kind);
void usm__load_ended(usm__spill *s, uint32_t frame, usm_status status); /* lock not held       */

/* readahead.c: lock held */
#define USM__AHEAD_BLOCKS_MAX 64 /* of one request for readahead                            */
#define USM__AHEAD_SPACES_MAX 16

typedef enum usm__ahead_kind {
    USM__AHEAD_NONE = 0,
    USM__AHEAD_HINTS,  /* of the list of a thread                                          */
    USM__AHEAD_BLOCKS, /* of one space                                                     */
    USM__AHEAD_SPACES
} usm__ahead_kind;

/* Blocks that are to be loaded ahead of their use.  Zeroed: none. */
typedef struct usm__ahead {
    usm__ahead_kind  kind;
    bool             cleans; /* then stores are to be started ahead of need                    */
    usm__policy_hint hint;
    usm__frame_want  want;
    uint64_t         thread;  /* HINTS                                                       */
    size_t           n, next; /* BLOCKS, SPACES                                              */
    uint32_t         blocks[USM__AHEAD_BLOCKS_MAX]; /* BLOCKS: of spaces[0]                    */
    usm__space      *spaces[USM__AHEAD_SPACES_MAX]; /* SPACES: they are busy until it is done    */
    uint32_t         block, end; /* SPACES: blocks of the next one that remain                 */
} usm__ahead;

/* An access reached the block by a miss, or by the first use of a block of readahead. */
void usm__readahead(usm__spill *s, usm__ahead *a, usm__space *space, uint32_t block,
                    bool was_predicted);
/* An access without fetch reached the block: only the access history is updated. */
void usm__readahead_passed(usm__spill *s, usm__space *space, uint32_t block);
/* Begins to load the next of the blocks; nothing waits.  True: something is deferred, and it must
 * be called again afterwards. */
bool usm__readahead_go(usm__spill *s, usm__ahead *a, usm__deferred *d);
/* Lock not held: loads the blocks [first, end) as far as there is room for them. */
void usm__readahead_bring(usm__space *space, uint32_t first, uint32_t end);
void usm__announced_forget(usm__spill *s, const usm__space *space);
/* A block of readahead was evicted unused. */
void usm__readahead_wasted(usm__spill *s, usm__space *space, uint32_t block);

/* records.c: how many frames should pay for the records. */
uint32_t usm__records_frames(usm__spill *s);

/* report.c: lock held */
struct usm__spill_holder;
size_t usm__spill_holders(usm__spill *s, struct usm__spill_holder *list, size_t cap);

/* segment.c */
void usm__segments_fini(usm__spill *s);
void usm__segments_fork(usm__spill *s, usm_fork_phase phase);

#endif
