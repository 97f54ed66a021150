/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of the tiers: tier.c (opening, statistics), tier_place.c (slots), tier_io.c
 * (transfers), tier_codec.c (bounce buffers, codecs), tier_stats.c, replica*.c (several copies of a
 * block, tiers of several replica targets).  No other file includes it. */
#ifndef USM_SPILL_TIER_PRIVATE_H
#define USM_SPILL_TIER_PRIVATE_H

#include "base/inline/atomic.h"
#include "base/mutex.h"
#include "base/settings_check.h"
#include "base/status.h"
#include "spill/flow.h"
#include "spill/tier.h"
#include "spill/tier_slots.h"

#include <usm/codec.h>

#include <pthread.h>

#define USM__PAGE 4096u /* transfers are multiples of it */

/* ---- one tier -------------------------------------------------------------------- */

typedef enum usm__tier_state {
    USM__TIER_CLOSED,
    USM__TIER_OPENING, /* a thread opens it, outside the lock                               */
    USM__TIER_OPEN,
    USM__TIER_REFUSED /* for good: `status` and `reason` say why                            */
} usm__tier_state;

enum { USM__TOLD_FULL = 1, USM__TOLD_FAILING = 2, USM__TOLD_CORRUPT = 4 };

typedef struct usm__tier {
    /* fixed after create */
    usm__tiers *tiers;
    unsigned    index;
    char        name[48];  /* "file:/var/tmp"                                              */
    char        title[56]; /* "tier file:/var/tmp"                                         */
    char        transport[32];
    const char *config; /* into the tiers' copy of the spec                                 */
    /* fixed once the state is OPEN or REFUSED */
    const usm_transport_ops *ops;
    void                    *store;
    uint32_t                 depth;
    bool                     is_driven; /* transfers end only in its progress(), on our threads  */
    usm_status               status;
    uint32_t                 trace; /* its number in a trace                                */
    /* guarded by the tiers' lock */
    usm__tier_state state;
    char            reason[400]; /* the last failure in words                               */
    usm__slots      slots;
    unsigned        notified;
    usm__flow       reads, writes;
    uint64_t        errors, corrupt, encoded_in, encoded_out;
    /* With t->replicas.  The array grows; the targets themselves do not move. */
    struct usm__target   **places;
    uint32_t               nplaces;
    struct usm__candidate *candidates; /* [nplaces]                                          */
    /* relaxed: stores in a row that failed after their retries; a hint for the choice of a tier */
    _Atomic(unsigned) failures;
} usm__tier;

/* After so many failures in a row a tier is asked last, and without retries, until a store
 * succeeds. */
#define USM__TIER_FAILURES 3u

static inline bool usm__tier_is_failing(usm__tier *tier)
{
    return usm_load_relaxed(&tier->failures) >= USM__TIER_FAILURES;
}

/* ---- ios that wait for something, in order ------------------------------------------ */

typedef struct usm__io_queue {
    usm_transfer *first, **end; /* end: while there is a first */
} usm__io_queue;

static inline void usm__io_queue_append(usm__io_queue *q, usm__io *io)
{
    io->t.next                       = NULL;
    *(q->first ? q->end : &q->first) = &io->t;
    q->end                           = &io->t.next;
}

/* NULL: none waits. */
static inline usm__io *usm__io_queue_pop(usm__io_queue *q)
{
    usm_transfer *t = q->first;

    if (!t)
        return NULL;
    q->first = t->next;
    return usm_container_of(t, usm__io, t);
}

/* ---- codecs: tier_codec.c --------------------------------------------------------- */

#define USM__CODECS     2
#define USM__TAIL_MAX   64u /* bytes that encoding may add: they stay in memory, behind the sum  */
#define USM__COPY_WORDS (2 + USM__TAIL_MAX / sizeof(uint32_t)) /* of a copy that is encoded     */

typedef struct usm__codec {
    const usm_codec_ops *ops;
    void                *codec;
} usm__codec;

/* Two buffers, each for a block and the bytes that encoding adds. */
typedef struct usm__bounce {
    struct usm__bounce *next;
    char               *a; /* stored bytes; aligned to a page                                 */
    char               *b; /* between two codecs; NULL: there is only one codec               */
} usm__bounce;

/* Measured speed of a codec, and of the tier behind it. */
typedef struct usm__codec_speed {
    uint64_t in, out, ns; /* bytes before and after, time of encoding                         */
    uint64_t tier_bytes, tier_ns;
} usm__codec_speed;
/* Whether storing a block takes less time with the codec than without. */
bool usm__codec_pays(const usm__codec_speed *speed);

typedef struct usm__codecs {
    /* fixed after create */
    unsigned   n;
    bool       is_auto; /* the first codec is used only when it pays                          */
    usm__codec list[USM__CODECS];
    size_t     room; /* bytes of each bounce buffer, a and b                                 */
    unsigned   nmax; /* bounces                                                              */
    /* guarded by the tiers' lock */
    unsigned         made;
    usm__bounce     *idle;
    usm__io_queue    queue;  /* of ios that wait for a bounce buffer */
    uint64_t         blocks; /* offered to an automatic codec                       */
    usm__codec_speed sample;
} usm__codecs;

typedef struct usm__replicas usm__replicas;

struct usm__tiers {
    /* fixed after create */
    size_t     block_size, sector_size;
    uint32_t   sectors; /* of a block                                                         */
    unsigned   n;
    usm__tier *list;
    char      *spec;
    void      *arena;
    size_t     arena_size;
    uint64_t   limit;
    void (*event)(void *user, usm_status status, const char *sentence);
    void       *user;
    usm__codecs codecs;
    /* NULL: blocks have one copy, and no tier consists of replica targets. replica.h */
    usm__replicas *replicas;

    usm__mutex     lock;
    pthread_cond_t changed; /* a tier was opened, a reservation ended, or all transfers have   */
    /* guarded by lock */
    uint64_t flying; /* ios that were submitted and have not ended                            */
    bool     has_spilled, is_forked, is_open;
    /* relaxed: the greatest of the open ones */
    _Atomic(uint32_t) depth;
};

static inline usm__tier *usm__tier_of(usm__tiers *t, uint8_t tier)
{
    return &t->list[usm__tier_index(tier)];
}

static inline bool usm__io_is_whole(const usm__tiers *t, const usm__io *io)
{
    return io->first == 0 && io->count == t->sectors;
}

/* tier.c.  No lock is held in all of these. */
usm_status usm__tier_open(usm__tier *tier);
/* Calls the owner's event with the sentence, once for each bit of `told` and tier. */
void usm__tier_notify(usm__tier *tier, unsigned notified, usm_status status, const char *format,
                      ...) USM_PRINTF(4, 5);
void usm__tiers_notify(usm__tiers *t, usm_status status, const char *format, ...) USM_PRINTF(3, 4);

/* tier_place.c.  Takes a slot for the block in a tier that is open. */
usm_status usm__tier_take(usm__tier *tier, uint64_t key, uint64_t *slot);
void       usm__tier_give(usm__tier *tier, uint64_t slot);
/* The part of a tier that has slots of its own. */
typedef struct usm__room {
    usm__tier  *tier;
    usm__slots *slots;
    uint64_t    base; /* added to their numbers at the transport                             */
} usm__room;
usm_status usm__room_take(usm__room room, uint64_t key, uint64_t *slot);
void       usm__room_give(usm__room room, uint64_t slot);

/* tier_codec.c */
usm_status usm__codecs_create(usm__tiers *t, const char *spec);
void       usm__codecs_destroy(usm__tiers *t);
/* Takes a bounce buffer for the io, in io->scratch.  USM_E_AGAIN: the io waits, and usm__io_start()
 * is called for it when a buffer is free;  USM_E_NO_MEMORY. */
usm_status usm__codecs_enter(usm__tiers *t, usm__io *io);
/* Frees the bounce buffer; returns the io that received it and must be started, or NULL. */
usm__io *usm__codecs_leave(usm__tiers *t, usm__io *io);
/* Whether this block is to be encoded, so that the io needs a bounce buffer. */
bool usm__codecs_wants(usm__tiers *t, const usm__io *io);
/* Encodes into the bounce buffer; sets the copy's codecs, encoded and sums.  Codecs 0: the block is
 * to be stored unencoded. */
usm_status usm__codecs_encode(usm__tiers *t, usm__io *io);
/* USM_E_CORRUPT: the checksum or the codec found wrong bytes. */
usm_status usm__codecs_decode(usm__tiers *t, usm__io *io, const char *place);

/* tier_io.c */
void usm__io_start(usm__tiers *t, usm__io *io);
/* Calls the owner's `done`, with the error message of `st` in place. */
void usm__io_finish(usm__tiers *t, usm__io *io, usm_status st);
/* Describes the transfer between memory and the slot. */
void usm__io_fill(const usm__tiers *t, const usm__io *io, uint64_t slot, usm_transfer *x);
/* Verifies the bytes that were read against the sums, through codecs; `place` names their
 * source. */
usm_status usm__io_verify(usm__tiers *t, usm__io *io, const char *place);
void       usm__tiers_notify_first(usm__tiers *t, const usm__tier *tier);

/* replica*.c: called only if t->replicas is set. */
/* USM_OK also if no copies are needed. */
usm_status usm__replicas_create(usm__tiers *t);
size_t     usm__replicas_copy_size(const usm__tiers *t);
/* Starts no more repairs; those under way end.  pre: lock */
void usm__replicas_quit(usm__tiers *t);
/* Waits for the repairs under way.  pre: nothing else is. */
void usm__replicas_stop(usm__tiers *t);
void usm__replicas_destroy(usm__tiers *t);
/* False: the io waits for a repair, and usm__io_start() is called for it later.  pre: lock */
bool usm__replicas_begin(usm__tiers *t, usm__io *io);
void usm__replicas_write(usm__tiers *t, usm__io *io);
void usm__replicas_read(usm__tiers *t, usm__io *io);
/* An io ends; lock not held. */
void usm__replicas_end(usm__tiers *t, usm__io *io);
void usm__replicas_forget(usm__tiers *t, usm__copy *copy);
/* Lists the replica targets of a tier whose store has been opened. */
usm_status usm__targets_open(usm__tier *tier);
void       usm__targets_close(usm__tier *tier);
void       usm__target_changed(void *tier, uint32_t place, usm_place_state state);
uint64_t   usm__targets_used(const usm__tier *tier); /* slots; pre: lock                      */
/* For transports without a thread: repairs one block, if there is one.  Lock not held. */
bool usm__replicas_progress(usm__tiers *t);
void usm__replicas_fork_child(usm__tiers *t);

#endif
