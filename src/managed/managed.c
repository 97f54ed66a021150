/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Managed memory: ranges of plain pointers over the residency engine (usm/managed.h).
 *
 * A range is a space of the engine with a view (spill/engine.h): the same frames, policy, tiers,
 * checksums, limits and statistics as buffers have.  The frame of a block that is loaded stays in
 * the arena.  When the program touches the block, the kernel tells a thread of fault.c, which
 * brings the block's pages into the range.  So readahead loads without touching the range, and the
 * first touch of such a block is a hit that the engine's policy and prefetcher see.
 *
 *     AWAY        its pages are not in the range: each access faults
 *     PROTECTED   they are, write-protected: a write faults
 *     WRITABLE    they are
 *     LOST        an access could not be served: each one fails
 *
 *     AWAY -> WRITABLE, PROTECTED -> WRITABLE   within a pin for writing
 *     AWAY -> PROTECTED                         within a pin for reading
 *     WRITABLE -> PROTECTED                     protect(): the engine is about to store the block
 *     WRITABLE, PROTECTED -> AWAY               take(): the block leaves memory
 *     AWAY -> LOST
 *
 * Nothing that is written is lost.  A pin for writing makes the block dirty, and waits while a
 * store of it is under way; protect() comes after the engine has marked the store and before its
 * first read.  Hence a WRITABLE block is dirty, or is about to be protected.  The engine takes
 * clean blocks only, which are AWAY or PROTECTED: the first write to one waits for its handler,
 * which waits for the block to leave, and loads it again.  (A range that is being freed has no
 * accesses.)
 *
 * The content of a block that is AWAY and being stored stays in its frame until the store has
 * ended: an access to it takes a pin for writing, which waits.  The engine marks the store before
 * it calls protect(), and both that and bring() look under the range's lock, so that bring() sees
 * the mark, or protect() sees where the pages have gone.
 *
 * The thread that faulted goes on as soon as its pages are in the range: what is to be loaded and
 * stored ahead of need comes after that, on the handler's time.  Then the pin ends.  The block may
 * leave at once; the thread then faults again.
 *
 * The window.  UFFDIO_MOVE cannot place pages write-protected.  Another thread may write between
 * the move and the protection, and the engine would never know.  So with that mechanism a block
 * comes into the range for writing whatever the access is, and counts as dirty.  Its store compares
 * it, protected by then, with the sums of what is stored, and writes nothing if they are the same.
 * UFFDIO_COPY places protected pages in one step, so there a block that is only read stays clean.
 *
 * Locks.  That of the list of ranges, and that of a range: both of rank MANAGED, never both at
 * once, never held during a call of the engine.  take() and protect() are called without the
 * engine's lock. */
#include "managed/managed.h"

#include "base/assert.h"
#include "base/fork.h"
#include "base/os.h"
#include "base/part.h"
#include "base/status.h"
#include "device/context.h"
#include "device/init.h"
#include "heap/pool.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static struct {
    usm__mutex lock;
    /* guarded by lock */
    usm__managed **all; /* n, by their addresses                                                */
    size_t         n, room;
    bool           is_open;
    usm__mechanism mechanism; /* fixed while is_open */
    pthread_cond_t unused; /* a range has no users                                              */
} managed = {USM__MUTEX_INIT(USM__RANK_MANAGED, "managed ranges"),
             NULL,
             0,
             0,
             false,
             {.fd = -1},
             PTHREAD_COND_INITIALIZER};

/* ---- lookup -------------------------------------------------------------------------- */

/* How many ranges begin at p or below.  Lock held. */
static size_t count_up_to(const void *p)
{
    size_t low = 0, high = managed.n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((uintptr_t)managed.all[middle]->base <= (uintptr_t)p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Lock held. */
static usm__managed *find(const void *p)
{
    size_t        n = count_up_to(p);
    usm__managed *r = n > 0 ? managed.all[n - 1] : NULL;

    return r && (uintptr_t)p - (uintptr_t)r->base < r->mapped ? r : NULL;
}

/* Lock held. */
static bool make_room(void)
{
    size_t         room = managed.room ? 2 * managed.room : 8;
    usm__managed **all;

    if (managed.n < managed.room)
        return true;
    all = usm__heap_alloc(room * sizeof(usm__managed *));
    if (!all)
        return false;
    if (managed.n > 0)
        memcpy(all, managed.all, managed.n * sizeof(usm__managed *));
    usm__heap_free(managed.all);
    managed.all  = all;
    managed.room = room;
    return true;
}

static usm_status enter(usm__managed *r)
{
    bool is_entered;

    usm__mutex_lock(&managed.lock);
    is_entered = make_room();
    if (is_entered) {
        size_t at = count_up_to(r->base);

        memmove(&managed.all[at + 1], &managed.all[at],
                (managed.n++ - at) * sizeof(usm__managed *));
        managed.all[at] = r;
    }
    usm__mutex_unlock(&managed.lock);
    return is_entered ? USM_OK
                      : usm__fail(USM_E_NO_MEMORY, "no host memory to enter a managed range");
}

/* Lock held. */
static void remove_range(const usm__managed *r)
{
    size_t end = count_up_to(r->base);

    memmove(&managed.all[end - 1], &managed.all[end], (managed.n-- - end) * sizeof(usm__managed *));
    if (managed.n == 0) {
        usm__heap_free(managed.all);
        managed.all  = NULL;
        managed.room = 0;
    }
}

usm__managed *usm__managed_get(const void *p)
{
    usm__managed *r;

    usm__mutex_lock(&managed.lock);
    r = find(p);
    if (r)
        r->users++;
    usm__mutex_unlock(&managed.lock);
    return r;
}

void usm__managed_put(usm__managed *r)
{
    usm__mutex_lock(&managed.lock);
    if (--r->users == 0)
        (void)pthread_cond_broadcast(&managed.unused);
    usm__mutex_unlock(&managed.lock);
}

static bool find_block(const void *p, usm_block *block)
{
    usm__managed *r;

    usm__mutex_lock(&managed.lock);
    r = find(p);
    if (r)
        *block = (usm_block){r->base, r->size};
    usm__mutex_unlock(&managed.lock);
    return r != NULL;
}

/* ---- blocks -------------------------------------------------------------------------- */

static char *address_of(const usm__managed *r, uint32_t block)
{
    return r->base + (size_t)block * r->block_size;
}

static int take(void *user, uint32_t block, void *frame)
{
    usm__managed *r  = user;
    int           rc = 0;

    usm__mutex_lock(&r->lock);
    usm_assert(r->states[block] != USM__MANAGED_WRITABLE || r->is_ending);
    if (r->states[block] == USM__MANAGED_PROTECTED || r->states[block] == USM__MANAGED_WRITABLE) {
        rc = usm__mechanism_take(r->mechanism, address_of(r, block), frame, r->block_size);
        if (rc == 0)
            r->states[block] = USM__MANAGED_AWAY;
    }
    usm__mutex_unlock(&r->lock);
    return rc;
}

static void *protect(void *user, uint32_t block, void *frame)
{
    usm__managed *r    = user;
    char         *at   = address_of(r, block);
    void         *data = at;

    usm__mutex_lock(&r->lock);
    if (r->states[block] == USM__MANAGED_AWAY)
        data = frame;
    else if (r->states[block] == USM__MANAGED_WRITABLE) {
        if (usm__mechanism_protect(r->mechanism, at, r->block_size, true) == 0)
            r->states[block] = USM__MANAGED_PROTECTED;
        else
            data = NULL;
    }
    usm__mutex_unlock(&r->lock);
    return data;
}

/* Lock held; the caller has the block pinned, for writing if `is_write`. */
static int place(usm__managed *r, uint32_t block, void *frame, bool is_write)
{
    const usm__mechanism *m  = r->mechanism;
    char                 *at = address_of(r, block);
    int                   rc;

    if (r->states[block] == USM__MANAGED_AWAY) {
        if (usm_load_relaxed(&r->space->words[block]) & USM__WORD_STORING)
            return EBUSY; /* never in a pin for writing */
        rc = usm__mechanism_place(m, frame, at, r->block_size, !is_write);
    } else if (r->states[block] == USM__MANAGED_PROTECTED && is_write) {
        rc = usm__mechanism_protect(m, at, r->block_size, false);
    } else {
        return 0;
    }
    if (rc == 0)
        r->states[block] = is_write ? USM__MANAGED_WRITABLE : USM__MANAGED_PROTECTED;
    return rc;
}

static bool is_there(usm__managed *r, uint32_t block, bool is_write)
{
    uint8_t state;

    usm__mutex_lock(&r->lock);
    state = r->states[block];
    usm__mutex_unlock(&r->lock);
    return state != USM__MANAGED_AWAY && (state != USM__MANAGED_PROTECTED || !is_write);
}

typedef struct arrival {
    usm__managed   *r;
    uint32_t        block;
    usm_access_mode mode;
    int             rc;
} arrival;

/* The block is pinned. */
static void arrive(void *arg)
{
    arrival      *a     = arg;
    usm__managed *r     = a->r;
    void         *frame = usm__space_frame(r->space, a->block);

    usm__mutex_lock(&r->lock);
    a->rc = place(r, a->block, frame, (a->mode & USM_WRITE) != 0);
    usm__mutex_unlock(&r->lock);
    if (a->rc == 0)
        usm__mechanism_wake(r->mechanism, address_of(r, a->block), r->block_size);
}

/* Within one pin.  EBUSY: the block must be pinned for writing. */
static usm_status bring_as(usm__managed *r, uint32_t block, usm_access_mode mode, int *rc)
{
    usm__pin   pin = {r->space, (size_t)block * r->block_size, r->block_size, mode};
    arrival    a   = {r, block, mode, 0};
    usm_status st  = usm__spill_pin_then(r->space->spill, &pin, arrive, &a);

    if (st == USM_OK)
        usm__space_unpin(r->space, pin.offset, pin.size, mode);
    *rc = a.rc;
    return st;
}

usm_status usm__managed_bring(usm__managed *r, uint32_t block, bool is_write)
{
    bool       writes = is_write || r->mechanism->moves;
    int        rc     = 0;
    usm_status st;

    if (is_there(r, block, is_write))
        return USM_OK;
    st = bring_as(r, block, writes ? USM_READ_WRITE : USM_READ, &rc);
    if (st == USM_OK && rc == EBUSY && !writes)
        st = bring_as(r, block, USM_READ_WRITE, &rc);
    if (st == USM_OK && rc != 0)
        return usm__fail(USM_E_SYSTEM,
                         "the kernel does not place pages of managed memory (errno %d)", rc);
    return st;
}

bool usm__managed_has_hole(usm__managed *r, uint32_t block, void *at, size_t page)
{
    const usm__mechanism *m      = r->mechanism;
    bool                  is_gap = false;

    usm__mutex_lock(&r->lock);
    if (m->can_poison &&
        (r->states[block] == USM__MANAGED_PROTECTED || r->states[block] == USM__MANAGED_WRITABLE))
        is_gap = usm__mechanism_poison(m, at, page) == 0; /* fails where a page is */
    usm__mutex_unlock(&r->lock);
    return is_gap;
}

void usm__managed_lose(usm__managed *r, uint32_t block)
{
    usm__mutex_lock(&r->lock);
    if (r->states[block] == USM__MANAGED_AWAY &&
        usm__mechanism_forbid(r->mechanism, address_of(r, block), r->block_size) == 0)
        r->states[block] = USM__MANAGED_LOST;
    usm__mutex_unlock(&r->lock);
}

/* ---- creation and end ------------------------------------------------------------------ */

/* Addresses that cost no memory and are not charged before they are used. */
static char *map_range(size_t size)
{
    char  *p = usm__os_map_noreserve(size + USM__HUGE_PAGE);
    size_t head;

    if (!p)
        return NULL;
    head = -(uintptr_t)p & (USM__HUGE_PAGE - 1);
    if (head)
        (void)usm__os_unmap(p, head);
    (void)usm__os_unmap(p + head + size, USM__HUGE_PAGE - head);
    return p + head;
}

/* Once; the process's engine and its arena live as long as the process. */
static usm_status open_mechanism(usm__spill *s)
{
    usm_status st = USM_OK;
    char      *arena;
    size_t     size;
    bool       can_move = usm__spill_get_arena(s, &arena, &size);

    usm__mutex_lock(&managed.lock);
    if (!managed.is_open) {
        if (managed.mechanism.fd < 0)
            st = usm__mechanism_open(&managed.mechanism, arena, size, can_move);
        if (st == USM_OK)
            st = usm__managed_serve(&managed.mechanism);
        managed.is_open = st == USM_OK;
    }
    usm__mutex_unlock(&managed.lock);
    return st;
}

/* Its memory is there; makes its space. */
static usm_status make_space(usm__managed *r, usm__spill *s)
{
    usm__space_params params = {
        .size = r->mapped, .name = "managed", .ctx = r->ctx, .view = &r->view};
    int rc;

    r->view = (usm__view){.base = r->base, .user = r, .take = take, .protect = protect};
    /* Without MADV_HUGEPAGE no huge page is zeroed in vain for an access; a frame that is one comes
     * as one all the same. */
    (void)madvise(r->base, r->mapped, r->mechanism->frees_tables ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    if (madvise(r->base, r->mapped, MADV_DONTFORK) != 0)
        return usm__fail(USM_E_SYSTEM, "managed memory cannot be kept from children of fork()");
    rc = usm__mechanism_watch(r->mechanism, r->base, r->mapped);
    if (rc != 0)
        return usm__fail(USM_E_SYSTEM, "userfaultfd does not watch %zu bytes (errno %d)", r->mapped,
                         rc);
    return usm__space_create(s, &params, &r->space);
}

static void free_range(usm__managed *r)
{
    if (r->space)
        usm__space_destroy(r->space);
    if (r->base)
        (void)usm__os_unmap(r->base, r->mapped);
    if (r->ctx)
        usm__context_unuse(r->ctx);
    usm__mutex_fini(&r->lock);
    usm__heap_free(r);
}

static usm_status make(usm_context *ctx, usm__spill *s, size_t size, usm__managed **out)
{
    size_t        block, sector, blocks;
    usm__managed *r;
    usm_status    st;

    usm__spill_get_sizes(s, &block, &sector);
    if (size > PTRDIFF_MAX - USM__HUGE_PAGE - block)
        return usm__fail(USM_E_SIZE, "%zu bytes are more than there are addresses", size);
    blocks = (size + block - 1) / block;
    r      = usm__heap_alloc(sizeof *r + blocks);
    if (!r)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the states of %zu blocks", blocks);
    if (!ctx->is_default) {
        r->ctx = ctx;
        usm__context_use(ctx);
    }
    r->mechanism  = &managed.mechanism;
    r->size       = size;
    r->mapped     = blocks * block;
    r->block_size = block;
    usm__mutex_init(&r->lock, USM__RANK_MANAGED, "a managed range");
    r->base = map_range(r->mapped);
    st      = r->base ? make_space(r, s)
                      : usm__fail(USM_E_NO_MEMORY, "no %zu bytes of addresses for managed memory",
                                  r->mapped);
    if (st != USM_OK)
        free_range(r);
    else
        *out = r;
    return st;
}

/* In the engine that buffers of the context have: the process's, unless it has its own limits. */
static void *alloc_of(usm_context *ctx, size_t size)
{
    usm__managed *r  = NULL;
    usm__spill   *s  = NULL;
    usm_status    st = usm__spill_of_blocks(ctx, USM__HUGE_PAGE, &s);

    if (st == USM_OK)
        st = open_mechanism(s);
    if (st == USM_OK)
        st = make(ctx, s, size ? size : 1, &r);
    if (st == USM_OK) {
        st = enter(r);
        if (st != USM_OK)
            free_range(r);
    }
    return st == USM_OK ? r->base : usm__no_memory();
}

void *usm_alloc_managed(size_t size)
{
    usm_context *ctx;
    void        *p;

    usm__default_enter();
    ctx = usm_default_context();
    p   = ctx ? alloc_of(ctx, size) : usm__no_memory();
    usm__default_leave();
    return p;
}

void *usm_malloc_managed(size_t size, usm_queue *q)
{
    usm_context *ctx = usm_queue_get_context(q);

    return ctx ? alloc_of(ctx, size) : usm__no_memory();
}

/* Removes the range that begins at p from the list when nobody uses it. */
static usm_status take_out(void *p, usm__managed **out)
{
    usm_status    st = USM_OK;
    usm__managed *r;

    usm__mutex_lock(&managed.lock);
    while ((r = find(p)) != NULL && r->users > 0)
        (void)usm__mutex_wait(&managed.lock, &managed.unused, NULL);
    if (!r)
        st = USM_E_INVALID_POINTER;
    else if (p != r->base)
        st = usm__fail(USM_E_INTERIOR_POINTER, "%p lies inside the managed block at %p", p,
                       (void *)r->base);
    else if (usm__space_is_pinned(r->space, 0, r->mapped, false))
        st = usm__fail(USM_E_BUSY, "the managed block at %p is pinned", p);
    else
        remove_range(r);
    usm__mutex_unlock(&managed.lock);
    *out = r;
    return st;
}

static usm_status free_managed(void *p)
{
    usm__managed *r;
    usm_status    st = take_out(p, &r);

    if (st != USM_OK)
        return st;
    usm__mutex_lock(&r->lock);
    r->is_ending = true;
    usm__mutex_unlock(&r->lock);
    free_range(r);
    return USM_OK;
}

/* ---- pins and advice --------------------------------------------------------------------- */

/* The pin of the whole blocks of [p, p + size); the caller gives the range back. */
static usm_status pin_of(const void *p, size_t size, usm_access_mode mode, usm__managed **out,
                         usm__pin *pin)
{
    usm__managed *r;
    size_t        offset, first, end;

    if (!(mode & USM_READ_WRITE))
        return usm__fail(USM_E_INVALID, "the mode %d neither reads nor writes", (int)mode);
    r      = usm__managed_get(p);
    offset = r ? (size_t)((const char *)p - r->base) : 0;
    if (!r || size == 0 || offset >= r->size || size > r->size - offset) {
        if (r)
            usm__managed_put(r);
        return usm__fail(USM_E_INVALID_POINTER,
                         "[%p, +%zu) does not lie in one block of managed memory", p, size);
    }
    first = offset / r->block_size * r->block_size;
    end   = (offset + size + r->block_size - 1) / r->block_size * r->block_size;
    *pin  = (usm__pin){r->space, first, end - first, (usm_access_mode)(mode & USM_READ_WRITE)};
    if (mode & USM_WRITE) /* the bytes that are not written must be there */
        pin->mode = USM_READ_WRITE;
    *out = r;
    return USM_OK;
}

static usm_status bring_all(usm__managed *r, const usm__pin *pin)
{
    usm_status st  = USM_OK;
    size_t     end = (pin->offset + pin->size) / r->block_size;

    for (size_t i = pin->offset / r->block_size; i < end && st == USM_OK; i++)
        st = usm__managed_bring(r, (uint32_t)i, (pin->mode & USM_WRITE) != 0);
    return st;
}

usm_status usm_managed_pin(const void *p, size_t size, usm_access_mode mode)
{
    usm__managed *r;
    usm__pin      pin;
    usm_status    st = pin_of(p, size, mode, &r, &pin);

    if (st != USM_OK)
        return st;
    st = usm__spill_pin(r->space->spill, 1, &pin);
    if (st == USM_OK) {
        st = bring_all(r, &pin);
        if (st != USM_OK)
            usm__space_unpin(pin.space, pin.offset, pin.size, pin.mode);
    }
    usm__managed_put(r);
    return st;
}

usm_status usm_managed_unpin(const void *p, size_t size, usm_access_mode mode)
{
    usm__managed *r;
    usm__pin      pin;
    usm_status    st = pin_of(p, size, mode, &r, &pin);

    if (st != USM_OK)
        return st;
    usm__space_unpin(pin.space, pin.offset, pin.size, pin.mode);
    usm__managed_put(r);
    return USM_OK;
}

usm_status usm_managed_advise(const void *p, size_t size, usm_buffer_advice advice)
{
    usm__managed *r;
    usm__pin      pin;
    usm_status    st;

    if (advice == USM_BUFFER_DISCARD) /* it would take blocks that the program may be writing to */
        return usm__fail(USM_E_NOT_SUPPORTED, "managed memory cannot be discarded; free it");
    st = pin_of(p, size, USM_READ, &r, &pin);
    if (st != USM_OK)
        return st;
    st = usm__space_advise(r->space, pin.offset, pin.size, advice);
    usm__managed_put(r);
    return st;
}

/* A hint of a queue, which is done when it is submitted.  The others are of devices. */
static usm_status advise_command(const void *p, size_t n, usm_advice advice)
{
    static const usm_buffer_advice as[] = {[USM_ADVICE_DEFAULT]    = USM_BUFFER_NORMAL,
                                           [USM_ADVICE_SEQUENTIAL] = USM_BUFFER_SEQUENTIAL,
                                           [USM_ADVICE_RANDOM]     = USM_BUFFER_RANDOM,
                                           [USM_ADVICE_WILL_NEED]  = USM_BUFFER_WILL_NEED};
    usm_block                      block;

    if (!find_block(p, &block))
        return USM_E_INVALID_POINTER;
    if (n > block.size - (size_t)((const char *)p - (const char *)block.base))
        return usm__fail(USM_E_SIZE, "[%p, +%zu) crosses the end of its managed block", p, n);
    if (advice > USM_ADVICE_DEFAULT && advice < USM_ADVICE_SEQUENTIAL)
        return USM_OK;
    return usm_managed_advise(p, n, as[advice]);
}

/* ---- fork ---------------------------------------------------------------------------------- */

/* The child has no ranges, and none of the threads. */
static void fork_managed(usm_fork_phase phase)
{
    usm__mutex_fork(&managed.lock, phase);
    if (phase != USM_FORK_CHILD)
        return;
    managed.n       = 0;
    managed.is_open = false;
    if (managed.mechanism.fd >= 0)
        (void)usm__os_close(managed.mechanism.fd);
    managed.mechanism.fd = -1;
}

const usm_part usm__managed_part = {.name            = "managed",
                                    .fork            = {{USM__RANK_MANAGED, fork_managed}},
                                    .unpooled_free   = free_managed,
                                    .unpooled_find   = find_block,
                                    .unpooled_advise = advise_command};
