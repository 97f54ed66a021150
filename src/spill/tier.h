/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tiers below host memory, as one: those of USM_SPILL in order, and the work above any
 * transport: choice of slots, checksums (verified on every read), generations, codecs, retries, the
 * next tier when one is full or fails, statistics.
 *
 * A block is block_size bytes, cut into sectors of sector_size; parts of a block are runs of whole
 * sectors.  The tiers' record of a block's content is its usm__copy, which belongs to the block's
 * owner and lives as long as there is content.  The owner never has a write and another transfer of
 * the same sectors under way at once.
 *
 * Callers do not hold the engine's lock.  Callbacks (`done`) run on any thread, possibly inside the
 * call, with no lock of the tiers held; they may call the tiers, but not destroy them.  The error
 * message of a failure (usm_last_error()) belongs to the thread that calls `done`, during the call.
 *
 * Blocks may have copies in several fault domains (USM_SPILL_REPLICAS), and tiers may consist of
 * replica targets (usm/transport.h), which are added, removed and lost.  A write succeeds when
 * every copy is written, or, if a target failed, when one is; in that case, and when a target is
 * lost or a copy turns out to be corrupt, the block gets a new copy elsewhere in the background.  A
 * read goes to the first good copy, and to the others if that fails.  All copies share one set of
 * sums and codecs, because they hold the same bytes.  Blocks whose last copy was lost fail with
 * USM_E_IO; the others remain usable.  See replica.h. */
#ifndef USM_SPILL_TIER_H
#define USM_SPILL_TIER_H

#include <usm/buffer.h>
#include <usm/pool_ops.h>
#include <usm/transport.h>

#define USM__SECTORS_MAX 256

typedef struct usm__tiers usm__tiers;

/* A tier as one byte that is not 0, so that zeroed memory is at no tier. */
static inline uint8_t usm__tier_code(uint32_t index)
{
    return (uint8_t)(index + 1);
}

/* pre: code is not 0 */
static inline uint32_t usm__tier_index(uint32_t code)
{
    return code - 1;
}

/* Where a block's content is stored.  Zeroed: nowhere.  usm__tiers_copy_size() bytes. */
typedef struct usm__copy {
    uint64_t slot;       /* block number at the transport                         */
    uint64_t content;    /* sum of the bytes of the whole block; 0: not known     */
    uint32_t generation; /* incremented by each write of any part                 */
    uint32_t encoded;    /* bytes of the encoded block; 0: it is stored unencoded */
    uint8_t  tier;       /* usm__tier_code(); 0: nowhere                          */
    uint8_t  codecs;     /* the codecs used, bit by index                         */
    uint8_t  flying;     /* transfers under way; the tiers' own                   */
    bool     is_stored;  /* a write of it has succeeded                           */
    /* The checksum of each sector, over its bytes, the block's key and the sector's index.  The
     * sums stay in memory and describe the last store, so a swapped, a stale and a torn sector all
     * fail them.  Of an encoded block only the first is used, over the encoded bytes; the words
     * behind it belong to tier_codec.c. */
    uint32_t sums[];
} usm__copy;

/* One transfer of a run of sectors; the memory is the caller's until `done`. */
typedef struct usm__io {
    uint64_t   key;  /* names the block in the process; never reused                          */
    usm__copy *copy; /* for tiers; backing stores: NULL                                       */
    void      *data; /* address of sector `first`, aligned to 4 KiB                           */
    size_t     registered;   /* as usm_transfer.registered; SIZE_MAX                */
    uint64_t   block;        /* for backing stores: index of the block in the space */
    uint32_t   first, count; /* sectors                                             */
    void (*done)(struct usm__io *io, usm_status status);
    void *user;
    bool  is_awaited; /* as usm_transfer.is_awaited                                           */
    bool  is_tracked; /* usm__tiers_has() will be asked about the block                       */
    /* Used by the tier or backing store. */
    usm_transfer t;
    void        *owner;
    void        *scratch;
    uint64_t     start_ns;
    uint64_t     content;  /* of a write: as usm__copy.content                                   */
    uint64_t     slot;     /* where it goes; the copy's own slot unless the block moves          */
    uint32_t     attempts; /* at this replica target                                             */
    uint8_t      tier;     /* usm__tier_code()                                                   */
    uint8_t      tried;    /* tiers that failed this write, by bit; copies that failed this read */
    uint8_t      at;       /* with copies: the one that it reads                                 */
    uint8_t      rounds;   /* with copies: how often all of them have failed it                  */
    bool         is_write;
    bool         is_fresh; /* its slot does not belong to the copy yet                       */
} usm__io;

typedef struct usm__tiers_params {
    size_t      block_size, sector_size;
    const char *spec;  /* USM_SPILL; NULL: the setting   */
    void       *arena; /* offered for registration; NULL */
    size_t      arena_size;
    /* Limit of memory: reported with the first block; the memory of codecs comes on top of it
     * (usm__tiers_memory()).  0: unknown. */
    uint64_t limit;
    /* Reports, once for each tier and kind, that the first block was stored (USM_OK), that a tier
     * cannot be opened (its status), is full (USM_E_SPILL_FULL), fails (USM_E_IO) or returned wrong
     * bytes (USM_E_CORRUPT).  May be NULL.  No lock is held. */
    void (*event)(void *user, usm_status status, const char *sentence);
    void *user;
} usm__tiers_params;

/* Opens no transport yet: the first write does.
 *
 *     USM_E_SETTING               the spec does not parse
 *     USM_E_KEY, USM_E_NO_BACKEND a codec that the spec names is not available: nothing is ever
 *                                 stored without it */
usm_status usm__tiers_create(const usm__tiers_params *params, usm__tiers **tiers);
/* Waits for transfers under way.  NULL is fine. */
void usm__tiers_destroy(usm__tiers *t);
/* USM_SPILL=off: every write fails. */
bool   usm__tiers_are_off(const usm__tiers *t);
size_t usm__tiers_copy_size(const usm__tiers *t);
/* Codecs work on whole blocks: then every transfer must be a whole block.  The answer may change
 * only before the first write. */
bool usm__tiers_needs_whole(usm__tiers *t);
/* Stores [first, first + count) of the block.  On success the copy holds them.  A failure keeps the
 * content of the other sectors; that of the written ones is unknown: USM_E_SPILL_FULL when no tier
 * has room, USM_E_IO.  A write of a whole block goes to the next tier when one fails. */
void usm__tiers_write(usm__tiers *t, usm__io *io);
/* USM_E_IO after retries; USM_E_CORRUPT: the checksum of a sector does not match; the message names
 * tier and slot. */
void usm__tiers_read(usm__tiers *t, usm__io *io);
/* Whether the copy has these bytes of the block `key`, by a sum of 64 bits.  False as well where that
 * is not known.  pre: no transfer of the block is under way. */
bool usm__tiers_has(const usm__tiers *t, const usm__copy *copy, uint64_t key, const void *data);
/* The content is no longer needed; pre: no transfer of it is under way. *copy is zeroed, except its
 * sums. */
void usm__tiers_forget(usm__tiers *t, usm__copy *copy);
/* For transports without a thread: waits until one of their transfers has ended, timeout_ms at
 * most.  False: every transport has a thread of its own, or nothing is under way: the caller sleeps
 * instead. */
bool usm__tiers_progress(usm__tiers *t, uint32_t timeout_ms);
/* Whether a transport without a thread has, or may get, a transfer that nobody but the caller of
 * usm__tiers_progress() moves on. */
bool usm__tiers_may_need_progress(usm__tiers *t);
/* How many transfers in flight use the tiers best (opens nothing: an estimate before the first
 * write). */
uint32_t usm__tiers_depth(const usm__tiers *t);
/* A tier's number in a trace; tier as in usm__copy. */
uint32_t usm__tiers_trace(const usm__tiers *t, unsigned tier);
/* The most bytes that codecs take, beside the arena: a limit that must hold includes them. */
size_t usm__tiers_memory(const usm__tiers *t);
/* One line for each tier that is open: its engine, folders, limits. */
void usm__tiers_describe(usm__tiers *t, size_t tier, char *text, size_t cap);
/* In the child process every transfer fails with USM_E_FORKED, and usm__tiers_forget() does
 * nothing. */
void   usm__tiers_fork(usm__tiers *t, usm_fork_phase phase);
size_t usm__tiers_get_stats(usm__tiers *t, usm_tier_stats *list, size_t cap);
/* Blocks; all 0 if blocks have one copy and no tier consists of replica targets. */
typedef struct usm__tiers_copies {
    uint32_t wanted;   /* copies of each block                  */
    uint64_t missing;  /* blocks that have fewer now            */
    uint64_t repaired; /* copies that were made again, or moved */
    uint64_t lost;     /* blocks whose last copy was lost       */
} usm__tiers_copies;
void usm__tiers_get_copies(usm__tiers *t, usm__tiers_copies *stats);
/* Statistics of the replica targets of a tier; their number. */
typedef struct usm__target_stats {
    usm_place_state state;
    char            domain[64];
    uint64_t        copies; /* blocks that have a copy there                                  */
} usm__target_stats;
size_t usm__tiers_get_places(usm__tiers *t, size_t tier, usm__target_stats *list, size_t cap);

/* The checksum of a sector: XXH3 over the bytes, seeded with the block's key and the sector's
 * index. */
uint32_t usm__sector_sum(const void *data, size_t size, uint64_t key, uint32_t sector);
/* The same, with all of its bits. */
uint64_t usm__sector_hash(const void *data, size_t size, uint64_t key, uint32_t sector);
static inline uint32_t usm__sum_of_hash(uint64_t hash)
{
    return (uint32_t)(hash ^ hash >> 32);
}

/* A text for the failure at hand: the calling thread's error message if it is of that status, else
 * the status in words. */
const char *usm__words_of(usm_status st);

#endif
