/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The residency engine of host memory: which blocks of which space are in memory.
 *
 *     space   a contiguous range of addresses for life, cut into blocks of block_size
 *     frame   a block's worth of memory of the arena; a resident block's frame has been moved
 *             (mremap) into its space, so accesses are contiguous and pointers stable
 *     word    a block's state, pins and marks in one atomic word: the hit path is one
 *             compare-and-swap to pin and one addition to unpin, without a lock
 *
 * One engine (usm__spill) has one limit, one arena and one set of tiers; contexts share the
 * process's engine unless they have a limit of their own.  Buffers and commands: src/buffer. */
#ifndef USM_SPILL_ENGINE_H
#define USM_SPILL_ENGINE_H

#include "base/inline/atomic.h"
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
#define USM__WORD_USED    UINT64_C(0x10) /* since the policy last looked                   */
#define USM__WORD_FRESH   UINT64_C(0x20) /* brought in by a guess: its first use is told   */
#define USM__WORD_STORING UINT64_C(0x40) /* a copy of it is being written: writers wait     */
#define USM__WORD_AWAITED UINT64_C(0x80) /* somebody waits for the pins to go              */
#define USM__WORD_PIN     (UINT64_C(1) << 16)
#define USM__WORD_PINS    (UINT64_C(0xffffff) << 16)
#define USM__WORD_WRITER  (UINT64_C(1) << 40)
#define USM__WORD_WRITERS (UINT64_C(0xffffff) << 40)

typedef enum usm__block_state {
    USM__BLOCK_ABSENT   = 0,
    USM__BLOCK_LOADING  = 1, /* a frame is being filled                                     */
    USM__BLOCK_RESIDENT = 2,
    USM__BLOCK_PARTIAL  = 3, /* resident, but sectors are missing: not for the hit path       */
    USM__BLOCK_LEAVING  = 4  /* its frame is being taken away                                */
} usm__block_state;

/* ---- spaces --------------------------------------------------------------------- */

typedef struct usm__space {
    /* fixed */
    char       *base;  /* of block 0                                                          */
    size_t      size;  /* bytes                                                              */
    unsigned    shift; /* log2 of block_size                                                */
    uint32_t    nblocks;
    usm__word  *words;
    usm__spill *spill;
    uint64_t    key; /* of block 0; block i has key + i                                     */
    char        name[48];
    bool        is_foreign; /* the user's memory: always resident, no frames                  */
    struct usm__space_more *more; /* the engine's: spill/internal.h                          */
} usm__space;

/* What messages call it: buffer "grid", or an unnamed buffer.  `text` has USM__SPACE_TITLE bytes;
 * returns it. */
#define USM__SPACE_TITLE 80
const char *usm__space_title(const usm__space *space, char *text);

typedef struct usm__space_params {
    size_t       size;
    const char  *name;    /* or NULL                                                          */
    usm_context *ctx;     /* whose error callback hears of late failures; outlives the space   */
    void        *foreign; /* the user's memory of that size; NULL                             */
    usm__home   *home;    /* taken over, also on failure; NULL                                */
} usm__space_params;

/* The context's engine, made at first use; lives as long as the process, or as the context that has
 * a limit of its own. */
usm_status usm__spill_of(usm_context *ctx, usm__spill **spill);
/* The same, but NULL where none was needed so far. */
usm__spill *usm__spill_there(const usm_context *ctx);
/* The context goes, and all its buffers have gone. */
void usm__spill_end(usm_context *ctx);

/* Bytes of buffers that can be in memory at once; that frames have at this moment. */
size_t usm__spill_capacity(const usm__spill *spill);
size_t usm__spill_in_memory(usm__spill *spill);
void   usm__spill_get_sizes(const usm__spill *spill, size_t *block, size_t *sector);

usm_status usm__space_create(usm__spill *spill, const usm__space_params *params, usm__space **out);
/* Nothing is pinned.  Waits for transfers of its blocks. */
void usm__space_destroy(usm__space *space);

/* Room for a small buffer (size <= usm__segment_max()) in a space shared with others; aligned to
 * 64 bytes, to 4 KiB from that size on.  The content is indeterminate. */
size_t     usm__segment_max(const usm__spill *spill);
usm_status usm__segment_alloc(usm__spill *spill, size_t size, usm__space **space, size_t *offset);
void       usm__segment_free(usm__space *space, size_t offset, size_t size);

/* ---- pins ------------------------------------------------------------------------- */

typedef struct usm__pin {
    usm__space     *space;
    size_t          offset, size; /* of the space, bytes, size > 0                            */
    usm_access_mode mode;
} usm__pin;

static inline uint64_t usm__pin_step(usm_access_mode mode)
{
    return mode & USM_WRITE ? USM__WORD_PIN | USM__WORD_WRITER : USM__WORD_PIN;
}

/* Pins one block if it is wholly resident; false: nothing was done. */
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

/* All of the list, or none.  Blocks until everything is in memory (USM_NO_WAIT in a mode:
 * USM_E_AGAIN instead).  NO_INIT brings nothing in.  Fails as usm_access_begin(). */
usm_status usm__spill_pin(usm__spill *spill, size_t n, const usm__pin *list);
/* The same for one, but memory that others hold is not waited for: USM_E_AGAIN at once.
 * is_past_turn: nor is it left to those who wait for more than there is; for what makes memory. */
usm_status usm__spill_pin_hastily(usm__spill *spill, const usm__pin *pin, bool is_past_turn);
/* Sleeps until frames may be had that were held, or something else changed. */
void usm__spill_await_frames(usm__spill *spill, uint32_t timeout_ms);
void usm__space_unpin(usm__space *space, size_t offset, size_t size, usm_access_mode mode);
/* Waits until no pins of that kind are left on the blocks of the range: those that write, or all
 * (writers_only false). */
void usm__space_await_unpinned(usm__space *space, size_t offset, size_t size, bool writers_only);
bool usm__space_is_pinned(usm__space *space, size_t offset, size_t size, bool writers_only);

/* ---- the rest ----------------------------------------------------------------------- */

usm_status usm__space_advise(usm__space *space, size_t offset, size_t size,
                             usm_buffer_advice advice);
/* The calling thread's list; copied. */
usm_status usm__spill_announce(usm__spill *spill, size_t n, const usm__pin *list);
/* Every dirty block comes home; see usm_buffer_commit(). No writers are open. */
usm_status usm__space_commit(usm__space *space);

/* Memory is wanted for something else (a pool's area): gives up to `bytes` of frames back to the
 * system and the account while there are more than `keep` bytes of them; returns how many. */
size_t usm__spill_give_back(usm__spill *spill, size_t bytes, size_t keep);
/* Hook point of src/buffer; NULL: nobody else has memory.  Others hold what the limit of `owner`
 * (NULL: the process) allows: gives about `bytes` of it back to the account; returns how many.  No
 * lock of the engine is held. */
extern size_t (*usm__spill_starved)(usm_context *owner, size_t bytes);
/* Where device memory that was evicted is counted: see src/buffer/places.h. */
void usm__spill_count_device_eviction(usm__spill *spill);
/* Twice in each phase, as usm__fork_above. */
void usm__spill_fork(usm_fork_phase phase, bool before_contexts);

#endif
