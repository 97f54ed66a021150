/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Copies of blocks in several fault domains: shared by the files of replication.
 *
 *     replica.c         the copies of a block as an object: added, dropped, forgotten; creation
 *     replica_place.c   replica targets ("places"): the list of them, the choice for a block, loss
 *     replica_write.c   writes to all copies
 *     replica_read.c    reads from the best copy, or from another (USM_SPILL_READ)
 *     replica_repair.c    re-replication: the background thread that adds missing copies
 *     placement.c       the choice of a target for a key: pure functions
 *
 * All of it exists only if t->replicas is set: if USM_SPILL_REPLICAS is more than 1, or a tier
 * consists of replica targets.  Then each tier has targets (a tier whose transport has none is one
 * target), and the sums of each usm__copy are followed by its usm__spread, which lists the copies:
 * about 250 bytes a block, the only memory that replication needs for a block.  copy->tier and
 * copy->slot then tell the owner only that there is content, and where its first copy was at the
 * end of the owner's last write.
 *
 * The tiers' lock guards everything that does not say otherwise.  Functions with "pre: lock" do not
 * release it.  Slots to be freed at a transport are meanwhile collected in a usm__gives, and freed
 * without the lock. */
#ifndef USM_SPILL_REPLICA_H
#define USM_SPILL_REPLICA_H

#include "base/inline/list.h"
#include "spill/placement.h"
#include "spill/tier_private.h"

#define USM__REPLICAS_MAX      3
#define USM__LOCATIONS         (USM__REPLICAS_MAX + 1) /* one more while a copy moves            */
#define USM__REPLICATED_WRITES 64u                     /* replicated writes at a time; more wait */
#define USM__TRIED_MAX         16u
#define USM__PLACE_SHIFT       48u

/* ---- replica targets --------------------------------------------------------------- */

typedef struct usm__target {
    /* fixed after create */
    usm__tier *tier;
    uint32_t   index;
    uint64_t   domain;
    char       domain_name[64];
    char       title[192]; /* "place 3 (node7) of tier mpi"                                   */
    uint64_t   base; /* added to the numbers of its slots at the transport                   */
    /* guarded by the lock */
    usm_place_state state;
    usm__slots      slots;
    usm_list        locations; /* all locations of copies that are here                      */
    uint64_t        nlocations;
    uint32_t        reading; /* owners' reads under way here                                  */
    unsigned        notified;
    bool            is_full; /* it refused room, and no room was freed since    */
    uint64_t        full_ns; /* when; a second later others may have freed room */
    /* relaxed: transfers in a row that failed; a hint */
    _Atomic(unsigned) failures;
} usm__target;

/* ---- the locations of a block's copies ------------------------------------------------ */

typedef enum usm__location_state {
    USM__LOCATION_NONE = 0, /* the entry is free                                                  */
    USM__LOCATION_GOOD,     /* it has every write that was acknowledged                           */
    USM__LOCATION_CORRUPT,  /* it returned wrong bytes for some sector: read last, to be replaced */
    USM__LOCATION_STALE,    /* it missed a write: never read, dropped after its last transfer     */
    USM__LOCATION_GONE      /* lost with its target; otherwise as STALE                           */
} usm__location_state;

typedef struct usm__location {
    usm_list     link; /* place->locations, unless NONE or GONE                               */
    usm__target *place;
    uint64_t     slot;   /* without the target's base */
    uint8_t      index;  /* in usm__spread.at         */
    uint8_t      flying; /* transfers under way there */
    uint8_t      state;
    uint8_t      order; /* the least is read first: the first target of the rendezvous order that
                          has held the block without interruption */
} usm__location;

typedef enum usm__queued { USM__QUEUED_NOT = 0, USM__QUEUED_MEND, USM__QUEUED_STUCK } usm__queued;

typedef struct usm__repair usm__repair;

/* Zeroed: no copies. */
typedef struct usm__spread {
    usm__copy    *copy; /* the copy that it belongs to                                         */
    uint64_t      key;
    usm_list      queue;  /* in the list of blocks to re-replicate, if queued */
    usm__repair  *repair; /* its repair under way; NULL: none                 */
    usm__target  *gone;   /* the last target that was lost with a copy of it  */
    uint64_t      stored[USM__SECTORS_MAX / 64]; /* sectors whose last write succeeded           */
    uint16_t      writing;                       /* owner's writes that have begun and not ended */
    uint8_t       queued;                        /* usm__queued                                  */
    uint8_t       next_order;
    bool          is_lost;     /* the last copy was lost: only sectors written since can be read */
    bool          must_repair; /* checked again when the writes have ended                       */
    uint32_t      epoch;       /* of the set of targets, when it was last written whole          */
    usm__location at[USM__LOCATIONS];
} usm__spread;

/* ---- a replicated write ----------------------------------------------------------------- */

typedef struct usm__replicated usm__replicated;

typedef struct usm__subwrite {
    usm_transfer     t;
    usm__replicated *replicated;
    usm__target     *place;
    uint64_t         slot;
    uint64_t         start_ns;
    int        at; /* entry of the spread; -1: a slot that does not belong to the copy yet    */
    unsigned   attempts;
    usm_status status;
} usm__subwrite;

struct usm__replicated {
    usm__replicated *next;
    usm__tiers      *t;
    usm__io         *io;
    unsigned         n, pending;
    usm__subwrite    subwrite[USM__REPLICAS_MAX];
    usm__target *tried[USM__TRIED_MAX]; /* targets that failed this write                        */
    unsigned     ntried;
    usm_status   worst;
};

/* ---- all of it ---------------------------------------------------------------------------- */

/* Memory is bounded: one block is repaired at a time, through one buffer of the block's size, which
 * is allocated with the first. */
struct usm__repair {
    usm__tiers   *t;
    usm__spread  *s; /* NULL: it was forgotten meanwhile; the repair owns what it had under way */
    bool          is_fetching; /* the owner's writes wait in `parked`                         */
    usm_transfer *parked, **parked_end;
    uint32_t      generation, encoded;
    uint64_t      key;
    uint64_t      stored[USM__SECTORS_MAX / 64];
    uint64_t      need[USM__SECTORS_MAX / 64];
    uint32_t     *sums;
    char         *data; /* a block and a page                                                 */
    usm__target  *from, *to;
    uint64_t      from_slot, to_slot;
    uint8_t       corrupt; /* entries of the spread that returned wrong bytes                   */
    /* the transfer under way */
    usm_transfer t_now;
    bool         is_done;
    usm_status   status;
};

struct usm__replicas {
    /* fixed after create */
    unsigned        wanted; /* copies of each block                                            */
    bool            reads_any;
    size_t          spread_at;
    usm__replicated writes[USM__REPLICATED_WRITES];
    /* guarded by the lock */
    usm__replicated *idle;
    usm__io_queue    queue; /* of ios that wait for a usm__replicated                      */
    usm_list       repairing, stuck; /* blocks with too few copies; those not repairable now      */
    uint64_t       nqueued;
    uint64_t       retry_ns; /* when some of `stuck` are tried again; 0: there are none       */
    uint64_t       repaired, lost;
    uint32_t       epoch; /* counts targets that were added                                    */
    bool           notified_alone;
    bool           has_thread, must_end, is_repairing, has_progress;
    pthread_cond_t wake;  /* wakes the repair thread                                          */
    pthread_cond_t ended; /* a transfer of the repair has ended; the thread has ended         */
    usm__repair    repair;
};

/* Slots to be freed. */
typedef struct usm__gives {
    unsigned n;
    struct {
        usm__target *place;
        uint64_t     slot;
    } list[2 * USM__LOCATIONS];
} usm__gives;

static inline usm__spread *usm__spread_of(const usm__tiers *t, usm__copy *copy)
{
    return (usm__spread *)(void *)((char *)copy + t->replicas->spread_at);
}

static inline bool usm__target_is_failing(usm__target *p)
{
    return usm_load_relaxed(&p->failures) >= USM__TIER_FAILURES;
}

static inline bool usm__location_is_readable(const usm__location *l)
{
    return (l->state == USM__LOCATION_GOOD || l->state == USM__LOCATION_CORRUPT) &&
           l->place->state != USM_PLACE_LOST;
}

/* replica.c.  pre: lock */
usm__location *usm__spread_add(usm__spread *s, usm__target *place,
                               uint64_t slot); /* NULL: no entry */
/* It is no longer a copy; its slot is freed now or after its last transfer. */
void usm__location_drop(usm__spread *s, usm__location *l, usm__location_state state, usm__gives *g);
/* A transfer there has ended. */
void usm__location_landed(usm__spread *s, usm__location *l, usm__gives *g);
void usm__give_later(usm__gives *g, usm__target *place, uint64_t slot);
bool usm__spread_is_readable(const usm__spread *s);
/* Number of fault domains with copies on targets that stay. */
unsigned usm__spread_firm(const usm__spread *s);
/* Whether another copy stays in its domain: that happens when a target was away, was replaced, and
 * came back. */
bool usm__location_is_doubled(const usm__spread *s, const usm__location *l);
void usm__spread_mark(usm__spread *s, uint32_t first, uint32_t count, bool is_stored);
bool usm__spread_has(const usm__spread *s, uint32_t first, uint32_t count);
/* lock not held */
void usm__give_now(usm__gives *g);

/* replica_place.c */
/* Lock not held: chooses a target for a copy of the block, in none of the given domains, and none
 * of those tried.  healthy: only targets that neither fail nor are full.  NULL: there is none; *st
 * is then the worst status of a tier that cannot be opened. */
typedef struct usm__choice {
    uint64_t            key;
    const uint64_t     *avoid;
    size_t              navoid;
    usm__target *const *tried;
    size_t              ntried;
    bool                healthy;
} usm__choice;
usm__target *usm__target_choose(usm__tiers *t, const usm__choice *c, usm_status *st);
usm_status   usm__target_take(usm__target *p, uint64_t *slot);
void         usm__target_give(usm__target *p, uint64_t slot);
/* The target refused room.  pre: lock */
void usm__target_note_full(usm__target *p);
/* Reports an event, once for each target and bit of `told`.  Lock not held. */
void usm__target_notify(usm__target *p, unsigned notified, usm_status st, const char *format, ...)
    USM_PRINTF(4, 5);

/* replica_read.c.  The best copy, except those whose bit is set in `tried`; NULL.  pre: lock */
usm__location *usm__spread_pick(usm__spread *s, uint8_t tried);

/* replica_repair.c.  pre: lock */
void usm__repair_queue(usm__tiers *t, usm__spread *s);
void usm__repair_unqueue(usm__tiers *t, usm__spread *s);
/* A target was added or has room again: blocks that could not be repaired are tried again. */
void usm__repair_retry(usm__tiers *t);

#endif
