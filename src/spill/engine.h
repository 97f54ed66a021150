/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The residency engine of host memory: it decides which blocks of which space are in memory.
 *
 *     space   a contiguous range of addresses, fixed for its life, cut into blocks of block_size
 *     frame   memory for one block, taken from the arena; the frame of a resident block has been
 *             moved (mremap) into its space, so accesses are contiguous and pointers stable
 *     word    a block's state, pins and marks in one atomic word: on the hit path a pin is one
 *             compare-and-swap and an unpin one addition, without a lock
 *
 * One engine (usm__spill) has one limit, one arena and one set of tiers.  Contexts share the
 * process's engine unless they have a limit of their own.  Buffers and commands are in
 * src/buffer. */
#ifndef USM_SPILL_ENGINE_H
#define USM_SPILL_ENGINE_H

#include "base/inline/atomic.h"
#include "base/part.h"
#include "spill/home.h"
#include "spill/tier.h"

#include <usm/buffer.h>
#include <usm/pool_ops.h>
#include <usm/usm.h>

typedef struct usm__spill usm__spill;

/* ---- a block's word ------------------------------------------------------------ */

typedef _Atomic(uint64_t) usm__word;

#define USM__WORD_STATE   UINT64_C(0x7) /* usm__block_state                               */
#define USM__WORD_DIRTY   UINT64_C(0x8)
#define USM__WORD_USED    UINT64_C(0x10) /* used since the policy last looked              */
#define USM__WORD_FRESH   UINT64_C(0x20) /* loaded by readahead: its first use is reported */
#define USM__WORD_STORING UINT64_C(0x40) /* a store of it is under way: writers wait       */
#define USM__WORD_AWAITED UINT64_C(0x80) /* a thread waits until no pins are left          */
#define USM__WORD_PIN     (UINT64_C(1) << 16)
#define USM__WORD_PINS    (UINT64_C(0xffffff) << 16)
#define USM__WORD_WRITER  (UINT64_C(1) << 40)
#define USM__WORD_WRITERS (UINT64_C(0xffffff) << 40)

typedef enum usm__block_state {
    USM__BLOCK_ABSENT   = 0,
    USM__BLOCK_LOADING  = 1, /* its frame is being filled                                   */
    USM__BLOCK_RESIDENT = 2,
    USM__BLOCK_PARTIAL  = 3, /* resident, but sectors are missing: not for the hit path */
    USM__BLOCK_LEAVING  = 4  /* being evicted: its frame is being taken away            */
} usm__block_state;

/* ---- spaces --------------------------------------------------------------------- */

typedef struct usm__space {
    /* fixed after create */
    char       *base;  /* of block 0         */
    size_t      size;  /* bytes              */
    unsigned    shift; /* log2 of block_size */
    uint32_t    nblocks;
    usm__word  *words;
    usm__spill *spill;
    uint64_t    key; /* of block 0; block i has key + i                                     */
    char        name[48];
    bool        is_foreign; /* the user's memory: always resident, no frames                  */
    struct usm__space_more *more; /* the engine's: spill/internal.h                          */
} usm__space;

/* Writes the space's name in messages, such as: buffer "grid", or: an unnamed buffer.  `text` has
 * USM__SPACE_TITLE bytes; returns it. */
#define USM__SPACE_TITLE 80
const char *usm__space_title(const usm__space *space, char *text);

/* How the blocks of a space are reached when its range of addresses is not the engine's: the frame of
 * a resident block stays in the arena, and who made the space moves its pages into the range when
 * the program needs them there.  Called without the engine's lock; `frame` is the block's in the
 * arena. */
typedef struct usm__view {
    char *base; /* the range; it belongs to who made the space                                    */
    void *user;
    /* The block leaves memory; nobody has it pinned.  Moves its pages back to the frame, or drops
     * them, if they are in the range: its content is stored, or not needed.  Returns 0, or errno
     * when they are still there. */
    int (*take)(void *user, uint32_t block, void *frame);
    /* The block is about to be stored.  Returns the address of its content, at which nobody writes
     * until the next pin for writing; NULL: that is not possible now. */
    void *(*protect)(void *user, uint32_t block, void *frame);
} usm__view;

typedef struct usm__space_params {
    size_t           size;
    const char      *name;    /* or NULL                                                          */
    usm_context     *ctx;     /* its error callback receives late failures; it outlives the space */
    void            *foreign; /* the user's memory, `size` bytes; NULL: none                      */
    usm__home       *home;    /* backing store; owned by the space, even on failure; NULL         */
    const usm__view *view;    /* NULL: the engine moves frames into a range of its own            */
} usm__space_params;

/* The context's engine.  The first call creates it; it lives as long as the process, or as the
 * context if that has a limit of its own. */
usm_status usm__spill_of(usm_context *ctx, usm__spill **spill);
/* The same; an engine that this call creates has blocks of `usual` bytes, if the limit allows, and
 * USM_SPILL_BLOCK is not set. */
usm_status usm__spill_of_blocks(usm_context *ctx, size_t usual, usm__spill **spill);
/* The same, but NULL if no engine has been created yet.  ctx NULL: that of contexts without a limit
 * of their own. */
usm__spill *usm__spill_there(const usm_context *ctx);
/* Called when the context is destroyed, after all its buffers. */
void usm__spill_end(usm_context *ctx);

/* Bytes of buffers that can be in memory at once; bytes that frames have at this moment. */
size_t usm__spill_capacity(const usm__spill *spill);
size_t usm__spill_in_memory(usm__spill *spill);
void   usm__spill_get_figures(usm__spill *spill, usm_spill_stats *stats);
void   usm__spill_get_sizes(const usm__spill *spill, size_t *block, size_t *sector);

/* The arena of frames; false: its pages are a memory file's and cannot be moved. */
bool usm__spill_get_arena(const usm__spill *spill, char **base, size_t *size);

usm_status usm__space_create(usm__spill *spill, const usm__space_params *params, usm__space **out);
/* pre: nothing is pinned.  Waits for transfers of the space's blocks. */
void usm__space_destroy(usm__space *space);

/* Allocates room for a small buffer (size <= usm__segment_max()) in a space that small buffers
 * share; aligned to 64 bytes, to 4 KiB from that size on.  The content is indeterminate. */
size_t     usm__segment_max(const usm__spill *spill);
usm_status usm__segment_alloc(usm__spill *spill, size_t size, usm__space **space, size_t *offset);
void       usm__segment_free(usm__space *space, size_t offset, size_t size);

/* ---- pins ------------------------------------------------------------------------- */

typedef struct usm__pin {
    usm__space     *space;
    size_t          offset, size; /* in the space, bytes, size > 0                            */
    usm_access_mode mode;
} usm__pin;

static inline uint64_t usm__pin_step(usm_access_mode mode)
{
    return mode & USM_WRITE ? USM__WORD_PIN | USM__WORD_WRITER : USM__WORD_PIN;
}

/* Pins one block if it is completely resident; false: nothing was changed. */
static inline bool usm__word_pin_hit(usm__word *word, usm_access_mode mode)
{
    uint64_t old = usm_load_relaxed(word);
    uint64_t set = mode & USM_WRITE ? USM__WORD_USED | USM__WORD_DIRTY : USM__WORD_USED;
    uint64_t see = USM__WORD_STATE | USM__WORD_FRESH | (mode & USM_WRITE ? USM__WORD_STORING : 0);

    do {
        if ((old & see) != USM__BLOCK_RESIDENT)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(word, &old, (old + usm__pin_step(mode)) | set,
                                                    memory_order_seq_cst, memory_order_relaxed));
    return true;
}

void usm__space_unpin_awaited(usm__space *space, uint32_t block);

static inline void usm__word_unpin(usm__space *space, uint32_t block, usm_access_mode mode)
{
    uint64_t old =
        atomic_fetch_sub_explicit(&space->words[block], usm__pin_step(mode), memory_order_release);

    if (__builtin_expect((old & USM__WORD_AWAITED) != 0, 0))
        usm__space_unpin_awaited(space, block);
}

/* The hit path for accesses inside one block; size > 0 and in bounds. */
static inline bool usm__space_pin_hit(usm__space *space, size_t offset, size_t size,
                                      usm_access_mode mode)
{
    size_t first = offset >> space->shift, last = (offset + size - 1) >> space->shift;

    return first == last && usm__word_pin_hit(&space->words[first], mode);
}

/* Pins the whole list, or nothing.  Blocks until everything is in memory (with USM_NO_WAIT in a
 * mode it returns USM_E_AGAIN instead).  With NO_INIT nothing is loaded.  Fails as
 * usm_access_begin() does. */
usm_status usm__spill_pin(usm__spill *spill, size_t n, const usm__pin *list);
/* The same for one block.  Calls pinned(user) once, without a lock, as soon as the block is pinned:
 * before the loads and stores ahead of need that the access gives rise to, which the caller makes. */
usm_status usm__spill_pin_then(usm__spill *spill, const usm__pin *pin, void (*pinned)(void *user),
                               void *user);
/* The same for one pin, but returns USM_E_AGAIN at once instead of waiting for memory that others
 * hold.  is_past_turn: it also goes ahead of the threads with a ticket for more memory than there
 * is; for requests whose completion frees memory. */
usm_status usm__spill_pin_hastily(usm__spill *spill, const usm__pin *pin, bool is_past_ticket);
/* Sleeps until frames that others held may be available; returns at once if that happened since the
 * call before, which set *seen, and on the first call. */
#define USM__SEEN_NOTHING UINT64_MAX
void usm__spill_await_frames(usm__spill *spill, uint64_t *seen, uint32_t timeout_ms);
void usm__space_unpin(usm__space *space, size_t offset, size_t size, usm_access_mode mode);
/* Whether blocks of the range have pins of that kind: those of writers, or any (writers_only
 * false). */
bool usm__space_is_pinned(usm__space *space, size_t offset, size_t size, bool writers_only);
/* The block's frame in the arena; pre: the caller has it pinned. */
void *usm__space_frame(const usm__space *space, uint32_t block);

/* ---- the rest ----------------------------------------------------------------------- */

usm_status usm__space_advise(usm__space *space, size_t offset, size_t size,
                             usm_buffer_advice advice);
/* Hints: the calling thread will use the bytes of this list, in this order.  The list is copied. */
usm_status usm__spill_announce(usm__spill *spill, size_t n, const usm__pin *list);
/* Writes every dirty block to the backing store; see usm_buffer_commit().  pre: no access or
 * command that writes is open. */
usm_status usm__space_commit(usm__space *space);

/* Called when memory is needed for something else (a pool's area).  While the engine has more than
 * `keep` bytes of frames, it returns up to `bytes` of them to the system and to the memory
 * accounting; returns how many. */
size_t usm__spill_give_back(usm__spill *spill, size_t bytes, size_t keep);
/* The caller has made a record of that many bytes beside the buffers' own, or frees it: it counts
 * against the limit (records.c).  No lock of the engine is held in the second. */
void usm__spill_add_record(usm__spill *spill, size_t bytes);
void usm__spill_drop_record(usm__spill *spill, size_t bytes);
/* Counts an eviction of device memory: see src/buffer/locations.h. */
void                  usm__spill_count_device_eviction(usm__spill *spill);
extern const usm_part usm__spill_part;

#endif
