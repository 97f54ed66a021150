/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Large blocks of malloc from a pool of libusm, or of managed memory (managed.c).
 *
 *     malloc.c --> this file --usm_pool--> slab --usm_area_source--> this file --> mmap()
 *
 * The pool is made by the first large block, so that a process without one is as it was.
 *
 * Why it never recurses.  libusm allocates for itself while it serves a block.  Two rules send what
 * it asks for to the C library: the thread that is in here is marked (`is_inside`), which covers the
 * loader and the C library as well; and blocks that code of libusm asks for are told by the address
 * they return to, which covers its own threads, and programs that call libusm themselves, with its
 * locks held.
 *
 * Telling blocks apart.  Areas consist of whole granules of 2 MiB, and one bit for each granule of the
 * address space says whether it is of an area: most pointers are known by that bit as the C library's,
 * and no message of libusm is written about them.  The others are looked up in libusm's page map.
 * Neither takes a lock.
 *
 * fork().  The child's large blocks come from the C library.  It has the contents of its parent's
 * blocks, whose pool is the parent's: it gives back their pages and keeps the addresses.  Handlers of
 * others may allocate between those of libusm, which hold its locks: meanwhile the thread is marked. */
#include "large.h"

#include "managed.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <usm/context.h>
#include <usm/memory.h>
#include <usm/pool.h>
#include <usm/source.h>
#include <usm/status.h>

#define PAGE          ((size_t)4096) /* what blocks start at: the kernel replaces pages */
#define GRANULE_SHIFT 21
#define GRANULE       ((size_t)1 << GRANULE_SHIFT)
#define GRANULES      ((size_t)1 << (48 - GRANULE_SHIFT)) /* of the addresses that mmap() returns */

_Atomic(size_t) large_least = SIZE_MAX;

static struct {
    /* Blocks come from now on; its store releases pool, ctx, source, and what managed.c has. */
    _Atomic(bool)   is_open;
    _Atomic(bool)   is_opening, is_child;
    bool            is_managed; /* fixed by large_begin(): managed memory, and no pool            */
    usm_pool       *pool;
    usm_context    *ctx;
    usm_area_source source;
    _Atomic(_Atomic(uint64_t) *) granules;             /* one bit for each: it is of an area */
    uintptr_t                    code_start, code_end; /* of libusm; fixed by large_begin() */
} large;

static __thread bool is_inside __attribute__((tls_model("initial-exec")));

/* ---- areas ----------------------------------------------------------------------------------- */

/* The word of a granule, and its bit.  NULL: there is no pool, or nothing is mapped there. */
static _Atomic(uint64_t) *word_of(const void *p, uint64_t *bit)
{
    _Atomic(uint64_t) *granules = atomic_load_explicit(&large.granules, memory_order_acquire);
    size_t             i        = (uintptr_t)p >> GRANULE_SHIFT;

    *bit = (uint64_t)1 << (i & 63);
    return granules && i < GRANULES ? &granules[i >> 6] : NULL;
}

/* Relaxed: who has a pointer into the area has it from a thread that has seen the bits. */
static void mark(const char *start, size_t size, bool is_ours)
{
    for (const char *p = start; p < start + size; p += GRANULE) {
        uint64_t           bit;
        _Atomic(uint64_t) *word = word_of(p, &bit);

        if (is_ours)
            (void)atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
        else
            (void)atomic_fetch_and_explicit(word, ~bit, memory_order_relaxed);
    }
}

static size_t granules_of(size_t size)
{
    return (size + GRANULE - 1) & ~(GRANULE - 1);
}

/* The bytes behind `size` are not touched: they take addresses, and no memory. */
static usm_status take_area(void *user, usm_kind kind, size_t size, size_t align, void **p)
{
    size_t whole = granules_of(size), before;
    char  *start;

    (void)user;
    (void)kind;
    (void)align; /* at most a granule */
    start = mmap(NULL, whole + GRANULE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return USM_E_NO_MEMORY;
    before = -(uintptr_t)start & (GRANULE - 1);
    if (before)
        (void)munmap(start, before);
    (void)munmap(start + before + whole, GRANULE - before);
    *p = start + before;
    mark(*p, whole, true);
    return USM_OK;
}

static usm_status give_area(void *user, usm_kind kind, void *p, size_t size)
{
    (void)user;
    (void)kind;
    mark(p, granules_of(size), false);
    return munmap(p, granules_of(size)) == 0 ? USM_OK : USM_E_SYSTEM;
}

static bool make_granules(void)
{
    void *p = mmap(NULL, GRANULES / 8, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return false;
    atomic_store_explicit(&large.granules, p, memory_order_release);
    return true;
}

/* ---- the pool -------------------------------------------------------------------------------- */

static void fork_prepare(void)
{
    is_inside = true;
    if (large.is_managed)
        managed_fork_prepare();
}

static void fork_parent(void)
{
    if (large.is_managed)
        managed_fork_parent();
    is_inside = false;
}

static void fork_child(void)
{
    if (large.is_managed)
        managed_fork_child();
    is_inside = false;
    atomic_store(&large.is_child, true);
    atomic_store(&large_least, SIZE_MAX);
}

static bool make_pool(void)
{
    usm_native_desc native = USM_NATIVE_DESC_INIT;

    large.source           = (usm_area_source)USM_AREA_SOURCE_INIT;
    large.source.kinds     = USM_SOURCE_HOST;
    large.source.max_align = GRANULE;
    large.source.alloc     = take_area;
    large.source.free      = give_area;
    native.backend         = "source";
    native.handle          = &large.source;
    return make_granules() && usm_context_from_native(&native, &large.ctx) == USM_OK &&
           usm_pool_create(large.ctx, NULL, USM_HOST, NULL, &large.pool) == USM_OK;
}

/* Threads do not wait for the one that opens, because it may wait for them in the loader.  A thread
 * that were cancelled in here would take its program's malloc with it. */
static bool open_once(void)
{
    const char *why = NULL;
    bool        is_open;
    int         cancel;

    if (atomic_exchange(&large.is_opening, true))
        return false;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    is_open = (large.is_managed ? managed_open(&why) : make_pool()) &&
              pthread_atfork(fork_prepare, fork_parent, fork_child) == 0;
    if (is_open) {
        atomic_store_explicit(&large.is_open, true, memory_order_release);
    } else {
        atomic_store(&large_least, SIZE_MAX);
        (void)fprintf(stderr, "usm: the C library serves large blocks itself: %s\n",
                      why ? why : usm_last_error());
        usm_pool_destroy(large.pool);
    }
    (void)pthread_setcancelstate(cancel, NULL);
    return is_open;
}

static int find_code(struct dl_phdr_info *object, size_t size, void *given)
{
    uintptr_t address = (uintptr_t)given;

    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        uintptr_t start        = object->dlpi_addr + part->p_vaddr;

        if (part->p_type != PT_LOAD || address < start || address - start >= part->p_memsz)
            continue;
        large.code_start = start;
        large.code_end   = start + part->p_memsz;
        return 1;
    }
    return 0;
}

void large_begin(size_t least, bool is_managed)
{
    large.is_managed = is_managed;
    (void)dl_iterate_phdr(find_code, (void *)(uintptr_t)usm_pool_aligned_alloc);
    atomic_store(&large_least, least);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool is_libusm(const void *caller)
{
    return (uintptr_t)caller >= large.code_start && (uintptr_t)caller < large.code_end;
}

void *large_alloc(size_t align, size_t size, const void *caller, bool *is_refused)
{
    int        saved = errno;
    usm_status st    = USM_OK;
    void      *p     = NULL;

    *is_refused = false;
    if (is_inside || is_libusm(caller) || (large.is_managed && align > GRANULE))
        return NULL;
    is_inside = true;
    if (atomic_load_explicit(&large.is_open, memory_order_acquire) || open_once()) {
        p  = large.is_managed
                 ? managed_alloc(size)
                 : usm_pool_aligned_alloc(large.pool, align > PAGE ? align : PAGE, size);
        st = p ? USM_OK : usm_last_status();
    }
    is_inside   = false;
    *is_refused = st == USM_E_BUDGET || st == USM_E_NO_MEMORY;
    errno       = *is_refused ? ENOMEM : saved;
    return p;
}

bool large_find(const void *p, size_t *size)
{
    void                    *base = NULL;
    uint64_t                 bit;
    const _Atomic(uint64_t) *word;

    if (large.is_managed)
        return managed_find(p, size);
    word = word_of(p, &bit);
    return word && (atomic_load_explicit(word, memory_order_relaxed) & bit) != 0 &&
           usm_get_address_range(p, large.ctx, &base, size) == USM_OK && base == p;
}

/* The pool keeps what is freed for the next block, as it may, because the kernel can have the pages
 * back when memory is short.  A child has no use for its copy of them. */
void large_free(void *p, size_t size)
{
    bool is_child = atomic_load_explicit(&large.is_child, memory_order_relaxed);

    if (large.is_managed) {
        managed_free(p, size);
        return;
    }
    (void)madvise(p, size & ~(PAGE - 1), is_child ? MADV_DONTNEED : MADV_FREE);
    if (!is_child)
        usm_free(p);
}

/* The kernel replaces pages, so that memory which the program does not touch takes none. */
void large_zero(void *p, size_t size)
{
    size_t whole = size & ~(PAGE - 1);

    if (large.is_managed)
        return;                                /* fresh, and zero */
    if (madvise(p, whole, MADV_DONTNEED) != 0) /* locked in memory */
        whole = 0;
    memset((char *)p + whole, 0, size - whole);
}
