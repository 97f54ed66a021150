/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tiers below host memory, as one: the places of USM_SPILL in order, and what is done once
 * above any transport: choice of slots, checksums (verified on every read), generations, codecs,
 * retries, the next tier when one is full or fails, statistics.
 *
 * A block is block_size bytes, cut into sectors of sector_size; parts of a block are runs of whole
 * sectors.  What is known of a block's content on the tiers is its usm__copy, which belongs to the
 * block's owner and lives as long as there is content.  The owner never has a write under way
 * together with another transfer of the same sectors.
 *
 * Nobody holds the engine's lock while calling.  Callbacks (`done`) come from any thread, possibly
 * inside the call, no lock of the tiers held; they may call the tiers, but not destroy them.  The
 * story of a failure (usm_last_error()) is that of the thread that calls `done`, during the call.
 *
 * Copies in several fault domains (USM_SPILL_REPLICAS), and tiers that consist of places
 * (usm/transport.h), which come, leave and are lost: a write ends well when every copy is there,
 * or, where a place failed, when one is; then, and when a place is lost or a copy turns out
 * corrupt, the block gets a new copy elsewhere in the background.  A read goes to the first copy
 * that is well, and to the others when that fails.  Sums and codecs serve all copies, for all hold
 * the same bytes. Blocks whose last copy is gone answer USM_E_IO, others go on. See replica.h. */
#ifndef USM_SPILL_TIER_H
#define USM_SPILL_TIER_H

#include <usm/buffer.h>
#include <usm/transport.h>

#define USM__SECTORS_MAX 256

typedef struct usm__tiers usm__tiers;

/* Where a block's content lies.  Zeroed: nowhere.  usm__tiers_copy_size() bytes. */
typedef struct usm__copy {
    uint64_t slot;       /* block number at the transport                                     */
    uint32_t generation; /* rises with each write of any part                                 */
    uint32_t encoded;    /* bytes that codecs made of the block; 0: it is stored as it is      */
    uint8_t  tier;       /* index + 1; 0: nowhere                                             */
    uint8_t  codecs;     /* which were used, bit by index                                     */
    uint8_t  flying;     /* transfers under way; the tiers'                                   */
    bool     is_stored;  /* a write of it has ended well                                      */
    /* Of each sector, over its bytes, the block's key and the sector's index.  They are kept in
     * memory and say what was stored last, so a swapped, a stale and a torn sector all fail them.
     * Encoded: the first alone is used so, over the encoded bytes; what follows it is
     * tier_codec.c's. */
    uint32_t sums[];
} usm__copy;

/* One transfer of a run of sectors; the caller's memory until done. */
typedef struct usm__io {
    uint64_t   key;  /* names the block in the process, never reused                          */
    usm__copy *copy; /* tiers; homes: NULL                                                    */
    void      *data; /* where sector `first` lies now, aligned to 4 KiB                       */
    size_t     registered;   /* as usm_transfer.registered; SIZE_MAX                            */
    uint64_t   block;        /* homes: index of the block in the space                          */
    uint32_t   first, count; /* sectors                                                      */
    void (*done)(struct usm__io *io, usm_status status);
    void *user;
    bool  is_awaited; /* as usm_transfer.is_awaited                                           */
    /* The tier's or home's. */
    usm_transfer t;
    void        *owner;
    void        *scratch;
    uint64_t     start_ns;
    uint64_t     slot;     /* where it is going; the copy's unless the block moves            */
    uint32_t     attempts; /* at this place                                                 */
    uint8_t      tier;     /* index + 1                                                     */
    uint8_t      tried;    /* tiers that failed this write, by bit; with copies: of a read     */
    uint8_t      at;       /* with copies: which of them it reads                            */
    uint8_t      rounds;   /* with copies: how often all of them have failed it               */
    bool         is_write;
    bool         is_fresh; /* its slot is none of the copy's yet                             */
} usm__io;

typedef struct usm__tiers_params {
    size_t      block_size, sector_size;
    const char *spec;  /* USM_SPILL; NULL: the setting                                    */
    void       *arena; /* offered for registration; NULL                                 */
    size_t      arena_size;
    /* Of memory: told with the first block; what codecs take follows it (usm__tiers_memory()).  0:
     * not known. */
    uint64_t limit;
    /* The first block was stored (USM_OK), a tier cannot be opened (its status), is full
     * (USM_E_SPILL_FULL), fails (USM_E_IO), has given back other bytes (USM_E_CORRUPT): once each
     * and tier; may be NULL.  No lock is held. */
    void (*event)(void *user, usm_status status, const char *sentence);
    void *user;
} usm__tiers_params;

/* Opens no transport yet: the first write does.
 *   USM_E_SETTING  the spec does not parse;   USM_E_KEY, USM_E_NO_BACKEND  a codec that was asked
 *   for cannot be had: nothing is ever stored without it */
usm_status usm__tiers_create(const usm__tiers_params *params, usm__tiers **tiers);
/* Waits for transfers under way.  NULL is fine. */
void usm__tiers_destroy(usm__tiers *t);
/* USM_SPILL=off: every write fails. */
bool   usm__tiers_are_off(const usm__tiers *t);
size_t usm__tiers_copy_size(const usm__tiers *t);
/* Codecs work on whole blocks: every transfer must be one. May change only before the first write.
 */
bool usm__tiers_needs_whole(usm__tiers *t);
/* Stores [first, first + count) of the block.  On success the copy holds them.  A failure leaves
 * the other sectors' content as it was, those of this write are unknown: USM_E_SPILL_FULL when no
 * tier has room, USM_E_IO.  A write of a whole block goes to the next tier when one fails. */
void usm__tiers_write(usm__tiers *t, usm__io *io);
/* USM_E_IO after retries; USM_E_CORRUPT: the checksum of a sector does not fit, told with tier and
 * slot. */
void usm__tiers_read(usm__tiers *t, usm__io *io);
/* The content is dead; nothing of it is under way. *copy is zeroed, but for its sums. */
void usm__tiers_forget(usm__tiers *t, usm__copy *copy);
/* For transports without a thread: waits until one of their transfers has ended, timeout_ms at
 * most.  False: every transport has a thread of its own, or nothing is under way: sleep instead. */
bool usm__tiers_progress(usm__tiers *t, uint32_t timeout_ms);
/* How many transfers in flight serve the tiers best (opens nothing: a guess before). */
uint32_t usm__tiers_depth(const usm__tiers *t);
/* A tier's number in a trace; tier as in usm__copy. */
uint32_t usm__tiers_trace(const usm__tiers *t, unsigned tier);
/* Bytes that codecs take at most, beside the arena: a limit that is kept counts them. */
size_t usm__tiers_memory(const usm__tiers *t);
/* One line for each tier that is open: its engine, folders, limits. */
void usm__tiers_describe(usm__tiers *t, size_t tier, char *text, size_t cap);
/* In the child every transfer fails with USM_E_FORKED, and forgetting does nothing. */
void   usm__tiers_fork(usm__tiers *t, int phase);
size_t usm__tiers_get_stats(usm__tiers *t, usm_tier_stats *list, size_t cap);
/* Blocks; all 0 where a block has one copy and no tier consists of places. */
typedef struct usm__copies_stats {
    uint32_t wanted;   /* copies of each                                                      */
    uint64_t missing;  /* that have fewer now                                                 */
    uint64_t repaired; /* copies that were made anew, or moved                               */
    uint64_t lost;     /* whose last copy went                                                */
} usm__copies_stats;
void usm__tiers_get_copies(usm__tiers *t, usm__copies_stats *stats);
/* Of a tier; how many there are. */
typedef struct usm__place_stats {
    usm_place_state state;
    char            domain[64];
    uint64_t        copies; /* blocks that have one there                                     */
} usm__place_stats;
size_t usm__tiers_get_places(usm__tiers *t, size_t tier, usm__place_stats *list, size_t cap);

/* The checksum of a sector: XXH3 over the bytes, seeded with whose they are. */
uint32_t usm__sector_sum(const void *data, size_t size, uint64_t key, uint32_t sector);

/* What was said of the failure at hand: the calling thread's message where it is of that status,
 * else the status in words. */
const char *usm__words_of(usm_status st);

#endif
