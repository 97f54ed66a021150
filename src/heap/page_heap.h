/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The heap of large blocks below the pool `slab`: runs of 4 KiB pages from areas taken from the
 * driver, or from ranges of addresses into which memory is mapped piece by piece.
 *
 * Here: blocks of any number of pages, found in constant time and merged with their neighbours as
 * soon as they are free; growth; what memory is returned, and when.  Not here: size classes, slabs,
 * magazines (slab.c).  The memory itself is never accessed: all information about it is in
 * descriptors.  Called by slab.c.
 *
 * A heap owns the pool_data of the areas it takes.  It is thread-safe with one lock, which is never
 * held while the source is asked for memory or gets some back: functions that do so are entered
 * without it.  It is held around pages_set, which does not wait.
 *
 * The memory held, in bytes, at any moment (slab_heap_is_valid() checks this):
 *
 *     held = used + free + in transit         in transit: a thread is mapping or unmapping it
 *     idle <= free                            idle: areas, mapped pieces without any used block
 *     allocations - frees = used_blocks */
#ifndef USM_HEAP_PAGE_HEAP_H
#define USM_HEAP_PAGE_HEAP_H

#include <base/inline/list.h>

#include "heap/span.h"

#include <pthread.h>
#include <usm/pool_ops.h>

#define SLAB_PAGE_SHIFT 12
#define SLAB_PAGE       ((size_t)1 << SLAB_PAGE_SHIFT)
#define SLAB_MAX_ALIGN  ((size_t)2 << 20)

/* Memory that is returned without a request: only while the heap is used, after retain_ms at the
 * earliest and twice that at the latest, the bytes beyond `retain` that were idle all that time.
 * The number of idle bytes kept without a time limit, unless it is set: a 64th of the memory, at
 * least 64 MiB, at most 1 GiB. */
#define SLAB_LEAST_RETAIN ((size_t)64 << 20)
#define SLAB_MOST_RETAIN  ((size_t)1 << 30)

struct slab_area;
struct slab_chunk;

/* One block of the heap.  Memory for descriptors is used for nothing else while the process lives:
 * a free that loses a race may read the span of a block that does not exist any more, and then
 * finds it FREE, or finds another block. */
typedef struct slab_block {
    usm_span         span;     /* one block: reciprocal 0, one state            */
    _Atomic(uint8_t) state;    /* the span's: usm_block_state, set by the caller */
    uint8_t          use;      /* private: enum slab_use                        */
    bool             is_large; /* allocated by slab_heap_alloc_large(); fixed while used */
    uint16_t         bin;      /* private: of a free block */

    /* private, guarded by the heap's lock */
    size_t             idle; /* of a free block: slab_idle_in() when it became free     */
    struct slab_area  *home;
    struct slab_block *lower, *upper; /* neighbours by address                          */
    usm_list           link;          /* in a bin, among holes, among spare descriptors */
    struct slab_chunk *chunk;         /* the one with the descriptor; fixed             */
} slab_block;
_Static_assert(offsetof(slab_block, state) == sizeof(usm_span), "the state follows the span");

/* Where the memory comes from: heap/area.c, or a source of a test's.  `source` is passed to each
 * function. */
typedef struct slab_source {
    void  *source;
    size_t granularity; /* unit of map and unmap; 0: reserve, map, unmap are not available */
    /* As those of usm_area_source. */
    usm_status (*take)(void *source, size_t size, size_t align, usm_area **area);
    void (*give)(void *source, usm_area *area);
    /* Reserves an address range without memory, aligned to 2 MiB; size is a multiple of
     * granularity.  It uses no memory and counts towards no limit.  give() releases the range
     * together with everything that is mapped in it. */
    usm_status (*reserve)(void *source, size_t size, usm_area **area);
    /* Maps memory to [offset, offset + size) of a reserved area, where nothing is mapped yet; both
     * are multiples of granularity.  Fails as take() does. */
    usm_status (*map)(void *source, usm_area *area, size_t offset, size_t size);
    /* offset and size are those of a call of map(). */
    void (*unmap)(void *source, usm_area *area, size_t offset, size_t size);
    /* As usm__pages_set(). */
    usm_status (*pages_set)(usm_area *area, uintptr_t at, size_t n, usm_span *span);
} slab_source;

typedef struct slab_heap_params {
    const usm_host_api *api;
    slab_source         areas;
    usm_kind            kind;
    size_t              area_size, memory_size, maximum_size; /* see usm_pool_params       */
    size_t              retain;      /* idle bytes to keep; 0: see above; SIZE_MAX: all */
    uint32_t            retain_ms;   /* how long more than that is kept; 0: 10 s        */
    _Atomic(uint64_t)  *large_bytes; /* where bytes of large blocks are counted; NULL: here */
} slab_heap_params;

typedef struct slab_heap_stats {
    uint64_t held, used, free; /* bytes                                                 */
    uint64_t idle;             /* bytes of areas and mapped pieces without a used block */
    uint64_t used_blocks;
    uint64_t largest_free; /* bytes of the largest block that needs no driver call */
    uint64_t allocations, frees;
    uint64_t large_bytes, large_blocks, large_allocations; /* of slab_heap_alloc_large()    */
} slab_heap_stats;

/* Free blocks by size: 32 bins for each power of two, and bitmaps of the bins that are not
 * empty. */
#define SLAB_BIN_ROWS 32
typedef struct slab_bins {
    uint32_t rows; /* bit r: row r has a bin that is not empty */
    uint32_t columns[SLAB_BIN_ROWS];
    usm_list blocks[SLAB_BIN_ROWS * 32];
} slab_bins;

typedef struct slab_heap {
    slab_heap_params params; /* fixed */
    size_t           retain;
    uint64_t         retain_ns;
    unsigned
           piece_shift[3]; /* log2 of the sizes of pieces, see page_heap_growth.c; 0: no mapping */
    size_t piece_zone[2];  /* offsets at which the second and the third size begin     */

    pthread_mutex_t lock;    /* guards everything below */
    pthread_cond_t  settled; /* signalled when the growing thread is done, or no memory is being
                                returned */
    bool            growing, no_range; /* no_range: reserve() has failed */
    pthread_t       grower;
    unsigned        gives; /* threads that are returning memory to the source */
    usm_list        areas; /* of slab_area                                    */
    usm_list        spare; /* descriptors without a block                     */
    size_t          spare_count;
    usm_list        chunks;
    size_t          ranges; /* bytes of addresses reserved                                 */
    uint64_t        held, used, free, idle;
    uint64_t        used_blocks, allocations, frees;
    /* Where params.large_bytes says, or own_large_bytes; slab.c and others read it without the lock. */
    _Atomic(uint64_t) *large_bytes, own_large_bytes;
    uint64_t           large_blocks, large_allocations;
    uint64_t           low;       /* minimum of idle bytes since window_ns */
    uint64_t           window_ns; /* 0: idle bytes are not tracked         */
    slab_bins          bins;
} slab_heap;

usm_status slab_heap_init(slab_heap *h, const slab_heap_params *params);
/* Returns every area, including those with live blocks. */
void slab_heap_fini(slab_heap *h);

/* Allocates a block of at least `size` bytes (> 0), aligned to `align` (a power of two up to 2 MiB)
 * and to at least 4 KiB.  Its span is filled (base, size = usable bytes, reciprocal 0, source, slot
 * 0, bin 0, kind), its state is FREE, and the page map leads from its FIRST page to the span.  The
 * caller may change slot, bin and state, and the page map of the block's pages.
 *   USM_E_NO_MEMORY, USM_E_BUDGET and others: the status of the source, with its error message */
usm_status slab_heap_alloc(slab_heap *h, size_t size, size_t align, slab_block **block);
/* The same, with state LIVE, counted as a block of the program: this is done here, under the lock
 * that is held anyway. */
usm_status slab_heap_alloc_large(slab_heap *h, size_t size, size_t align, slab_block **block);
/* The same as one of the two, but only from free memory; NULL, without an error message: the heap
 * would have to grow, or to ask for host memory. */
slab_block *slab_heap_take_held(slab_heap *h, size_t size, size_t align, bool is_large);
/* Clears the entry of the first page; the caller clears those of the other pages.  Sets FREE. */
void slab_heap_free(slab_heap *h, slab_block *block);
/* The same for a block of slab_heap_alloc_large(), if it is still the one at `base` and not FREE;
 * false, if another thread has freed it meanwhile. */
bool slab_heap_free_large(slab_heap *h, slab_block *block, uintptr_t base);
/* Finds the used block around p, which is in `area`; NULL: none.  The caller may read the block as
 * long as it knows that no thread frees it. */
slab_block *slab_heap_find(slab_heap *h, const usm_area *area, const void *p);
/* Returns idle memory until at most `keep` bytes are held, ranges without any memory, and, to the
 * other heaps of the process, descriptors that are not needed.  Returns the number of bytes of
 * memory. */
size_t slab_heap_trim(slab_heap *h, size_t keep);
/* The memory at `from` and behind it, in the order of addresses: fills at most `cap` entries and
 * returns how many; fewer than `cap`: there are no more.  The lock is held for these alone. */
typedef struct slab_extent {
    uintptr_t base;
    size_t    size;
    bool      is_used; /* handed out, as a large block, a slab or a run for magazines */
} slab_extent;
size_t slab_heap_extents(slab_heap *h, uintptr_t from, slab_extent *list, size_t cap);
void   slab_heap_get_stats(slab_heap *h, slab_heap_stats *stats);
/* PREPARE waits until no call to the source is in progress. */
void slab_heap_fork(slab_heap *h, usm_fork_phase phase);

/* For tests: checks all invariants; slow.  span_of: what the page of an address leads to, by the
 * source. */
typedef usm_span *slab_span_of(const void *p);
bool              slab_heap_is_valid(slab_heap *h, slab_span_of *span_of);
/* For tests: unmaps all descriptors of the process.  No heap may exist, no free may be in
 * progress. */
void slab_heap_release_descriptors(void);

#endif
