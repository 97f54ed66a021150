/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Copies of blocks in several fault domains: what the files of it share.
 *
 *     replica.c         the copies of a block as an object: coming, going, forgotten; creation
 *     replica_place.c   places: which there are, which takes a block, what is done when one is lost
 *     replica_write.c   writes to all copies
 *     replica_read.c    reads from the best, or another (USM_SPILL_READ)
 *     replica_mend.c    blocks with too few copies get new ones, in the background
 *     placement.c       which place gets a key: pure
 *
 * All of it exists only where t->replicas is there: with USM_SPILL_REPLICAS beyond 1, or a tier
 * that consists of places.  Then each tier has places (a tier whose transport has none is one), and
 * behind the sums of each usm__copy lies its usm__spread, which says where the copies are: about
 * 250 bytes a block, nothing else is allocated for one.  copy->tier and copy->slot then tell the
 * owner only that there is content, and where its first copy was at the end of his last write.
 *
 * Everything is guarded by the tiers' lock unless it says otherwise.  "pre: lock" functions do not
 * let go of it.  What is to be given back to a transport is collected meanwhile in a usm__gives and
 * given without the lock. */
#ifndef USM_SPILL_REPLICA_H
#define USM_SPILL_REPLICA_H

#include "base/inline/list.h"
#include "spill/placement.h"
#include "spill/tier_private.h"

#define USM__REPLICAS_MAX 3
#define USM__LOCATIONS    (USM__REPLICAS_MAX + 1) /* one more while a copy moves               */
#define USM__FANS         64u                     /* writes under way; more wait in a queue   */
#define USM__TRIED_MAX    16u
#define USM__PLACE_SHIFT  48u

/* ---- places ------------------------------------------------------------------------ */

typedef struct usm__place {
    /* fixed after create */
    usm__tier *tier;
    uint32_t   index;
    uint64_t   domain;
    char       domain_name[64];
    char       title[192]; /* "place 3 (node7) of tier mpi"                                   */
    uint64_t   base; /* of its slots' numbers at the transport                               */
    /* guarded by the lock */
    usm_place_state state;
    usm__slots      slots;
    usm_list        locations; /* all of copies that lie here                                */
    uint64_t        nlocations;
    uint32_t        reading; /* owners' reads under way here                                  */
    unsigned        told;
    bool            is_full; /* it has refused room, and none was given back since            */
    uint64_t        full_ns; /* when; others may have given some back a second later           */
    /* relaxed: transfers in a row that failed; a hint */
    _Atomic(unsigned) failures;
} usm__place;

/* ---- where a block's copies are ------------------------------------------------------- */

typedef enum usm__location_state {
    USM__LOCATION_NONE = 0, /* the entry is free                                             */
    USM__LOCATION_GOOD,     /* every write that was acknowledged is there                    */
    USM__LOCATION_CORRUPT,  /* of some sector it gave other bytes: asked last, to be replaced  */
    USM__LOCATION_STALE,    /* it has missed a write: never read, goes with its last transfer */
    USM__LOCATION_GONE      /* with its place; as STALE                                      */
} usm__location_state;

typedef struct usm__location {
    usm_list    link; /* place->locations, unless NONE or GONE                               */
    usm__place *place;
    uint64_t    slot;   /* without the place's base                                            */
    uint8_t     index;  /* in usm__spread.at                                                 */
    uint8_t     flying; /* transfers under way there                                        */
    uint8_t     state;
    uint8_t     order; /* the least is asked first: the first place of the rendezvous that has
                          held the block without a break                                    */
} usm__location;

typedef enum usm__queued { USM__QUEUED_NOT = 0, USM__QUEUED_MEND, USM__QUEUED_STUCK } usm__queued;

typedef struct usm__mend usm__mend;

/* Zeroed: nowhere. */
typedef struct usm__spread {
    usm__copy    *copy; /* whose it is                                                         */
    uint64_t      key;
    usm_list      queue; /* of blocks to be mended, if queued                                  */
    usm__mend    *mend;  /* who is mending it now; NULL                                        */
    usm__place   *gone;  /* the last place that was lost with a copy of it                      */
    uint64_t      stored[USM__SECTORS_MAX / 64]; /* sectors whose last write ended well         */
    uint16_t      writing;                       /* owner's writes that have begun and not ended */
    uint8_t       queued;                        /* usm__queued                                */
    uint8_t       next_order;
    bool          is_lost;   /* the last copy has gone: what is not written anew cannot be read */
    bool          must_mend; /* looked at again when the writes have ended                     */
    uint32_t      epoch;     /* of the places, when it was last written whole                   */
    usm__location at[USM__LOCATIONS];
} usm__spread;

/* ---- a write ---------------------------------------------------------------------------- */

typedef struct usm__fan usm__fan;

typedef struct usm__leg {
    usm_transfer t;
    usm__fan    *fan;
    usm__place  *place;
    uint64_t     slot;
    uint64_t     start_ns;
    int          at; /* entry of the spread; -1: a slot of its own, not the copy's yet          */
    unsigned     attempts;
    usm_status   status;
} usm__leg;

struct usm__fan {
    usm__fan   *next;
    usm__tiers *t;
    usm__io    *io;
    unsigned    n, pending;
    usm__leg    leg[USM__REPLICAS_MAX];
    usm__place *tried[USM__TRIED_MAX]; /* places that failed this write                         */
    unsigned    ntried;
    usm_status  worst;
};

/* ---- all of it ---------------------------------------------------------------------------- */

/* Bounded: one block is mended at a time, through one buffer of its size, which is made with the
 * first. */
struct usm__mend {
    usm__tiers   *t;
    usm__spread  *s; /* NULL: it was forgotten meanwhile, what it had under way is the mender's */
    bool          is_fetching; /* writes of the owner wait in parked                          */
    usm_transfer *parked, **parked_end;
    uint32_t      generation, encoded;
    uint64_t      key;
    uint64_t      stored[USM__SECTORS_MAX / 64];
    uint64_t      need[USM__SECTORS_MAX / 64];
    uint32_t     *sums;
    char         *data; /* a block and a page                                                 */
    usm__place   *from, *to;
    uint64_t      from_slot, to_slot;
    uint8_t       corrupt; /* entries of the spread that gave other bytes                       */
    /* the transfer under way */
    usm_transfer t_now;
    bool         is_done;
    usm_status   status;
};

struct usm__replicas {
    /* fixed after create */
    unsigned wanted; /* copies of each block                                            */
    bool     reads_any;
    size_t   spread_at;
    usm__fan fans[USM__FANS];
    /* guarded by the lock */
    usm__fan      *idle;
    usm_transfer  *queue, **queue_end; /* of ios that wait for a fan                           */
    usm_list       mending, stuck; /* blocks with too few copies; those nothing can be done for */
    uint64_t       nqueued;
    uint64_t       retry_ns; /* when some of the stuck are looked at again; 0: there are none */
    uint64_t       repaired, lost;
    uint32_t       epoch; /* counts places that came                                           */
    bool           told_alone;
    bool           has_thread, must_end, is_mending, has_progress;
    pthread_cond_t wake;  /* of the thread                                                    */
    pthread_cond_t ended; /* a transfer of the mender's; the thread                           */
    usm__mend      mend;
};

/* Slots that are to be given back. */
typedef struct usm__gives {
    unsigned n;
    struct {
        usm__place *place;
        uint64_t    slot;
    } list[2 * USM__LOCATIONS];
} usm__gives;

static inline usm__spread *usm__spread_of(const usm__tiers *t, usm__copy *copy)
{
    return (usm__spread *)(void *)((char *)copy + t->replicas->spread_at);
}

static inline bool usm__place_is_failing(usm__place *p)
{
    return usm_load_relaxed(&p->failures) >= USM__TIER_FAILURES;
}

static inline bool usm__location_is_readable(const usm__location *l)
{
    return (l->state == USM__LOCATION_GOOD || l->state == USM__LOCATION_CORRUPT) &&
           l->place->state != USM_PLACE_LOST;
}

/* replica.c.  pre: lock */
usm__location *usm__spread_add(usm__spread *s, usm__place *place,
                               uint64_t slot); /* NULL: no entry */
/* It is no copy any more; its slot is given back now or with its last transfer. */
void usm__location_drop(usm__spread *s, usm__location *l, usm__location_state state, usm__gives *g);
/* A transfer there has ended. */
void usm__location_landed(usm__spread *s, usm__location *l, usm__gives *g);
void usm__give_later(usm__gives *g, usm__place *place, uint64_t slot);
bool usm__spread_is_readable(const usm__spread *s);
/* Domains with copies in places that stay. */
unsigned usm__spread_firm(const usm__spread *s);
/* Another one stays in its domain: where a place was away, got a stand-in and came back. */
bool usm__location_is_doubled(const usm__spread *s, const usm__location *l);
void usm__spread_mark(usm__spread *s, uint32_t first, uint32_t count, bool is_stored);
bool usm__spread_has(const usm__spread *s, uint32_t first, uint32_t count);
/* lock not held */
void usm__give_now(usm__gives *g);

/* replica_place.c */
/* Lock not held: a place for a copy of the block, in none of the domains, none of those tried.
 * healthy: only such as neither fail nor are full.  NULL: there is none; *st is then the worst that
 * a tier said that cannot be opened. */
typedef struct usm__choice {
    uint64_t           key;
    const uint64_t    *avoid;
    size_t             navoid;
    usm__place *const *tried;
    size_t             ntried;
    bool               healthy;
} usm__choice;
usm__place *usm__place_choose(usm__tiers *t, const usm__choice *c, usm_status *st);
usm_status  usm__place_take(usm__place *p, uint64_t *slot);
void        usm__place_give(usm__place *p, uint64_t slot);
/* It has refused room.  pre: lock */
void usm__place_note_full(usm__place *p);
/* Once a place and bit.  Lock not held. */
void usm__place_tell(usm__place *p, unsigned told, usm_status st, const char *format, ...)
    USM_PRINTF(4, 5);

/* replica_read.c.  The best copy but for those whose bit is set; NULL.  pre: lock */
usm__location *usm__spread_pick(usm__spread *s, uint8_t tried);

/* replica_mend.c.  pre: lock */
void usm__mend_queue(usm__tiers *t, usm__spread *s);
void usm__mend_unqueue(usm__tiers *t, usm__spread *s);
/* A place came or has room again: those nothing could be done for are looked at again. */
void usm__mend_retry(usm__tiers *t);

#endif
