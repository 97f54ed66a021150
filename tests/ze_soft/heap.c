/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks of memory and the map of their addresses.
 *
 * A large block is a file of its own.  A small one (below 64 KiB) is a slot of a chunk: chunks hold
 * slots of one power of two, aligned to their size, in one file with two mappings.  Behind the
 * slots the file of a chunk keeps a generation number for each, raised when a slot is freed: that
 * is how another process knows that a handle it was sent is stale.  A slot that was ever exported
 * is not given out again, so what importers still have open stays as it was.
 *
 * The map is an array sorted by address: found by bisection, neighbours are neighbours.
 *
 * Called by memory.c, ipc.c, vmem.c with soft_memory_lock held. */
#include "memory.h"
#include "ze_soft.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOT_MIN_SHIFT 6u
#define SLOT_CLASSES   11u /* 64 bytes ... 64 KiB */
#define SLOTS          64u /* in a chunk, more of the smallest classes */
#define MAX_SLOTS      1024u

struct soft_chunk {
    struct soft_chunk *prev, *next; /* of the same heap and class: a list */
    soft_pages         pages;
    int                fd;
    uint64_t           file_id;
    unsigned           heap, class;
    uint32_t           nslots, nfree, nretired;
    bool               inherited; /* from before a fork: the parent's affair now */
    uint32_t          *generations;
    uint16_t           free[MAX_SLOTS];
};

enum { HEAP_OPEN, HEAP_GUARDED, HEAPS };

pthread_mutex_t soft_memory_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    soft_block **blocks; /* sorted by a.base */
    size_t       n, capacity;
} map;

static soft_chunk *heaps[HEAPS][SLOT_CLASSES];
static uint64_t    last_id;
static uint64_t    resident_frees;
static soft_block *last_device; /* ZE_SOFT_OVERLAP: the one before, if its address was its own */

/* --- the map ----------------------------------------------------------------------- */

size_t soft_block_index(const void *p)
{
    size_t low = 0, high = map.n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if ((uintptr_t)map.blocks[mid]->a.base < (uintptr_t)p)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

soft_block *soft_block_at(size_t n)
{
    return n < map.n ? map.blocks[n] : NULL;
}

static bool contains(const soft_block *b, const void *p)
{
    return (uintptr_t)p - (uintptr_t)b->a.base < b->a.size;
}

soft_block *soft_block_find(const void *p)
{
    size_t at = soft_block_index(p);

    if (at < map.n && map.blocks[at]->a.base == p)
        return map.blocks[at];
    if (at > 0 && contains(map.blocks[at - 1], p))
        return map.blocks[at - 1];
    return NULL;
}

bool soft_block_insert(soft_block *block)
{
    size_t at = soft_block_index(block->a.base);

    if (map.n == map.capacity) {
        size_t       capacity = map.capacity == 0 ? 256 : map.capacity * 2;
        soft_block **blocks   = realloc(map.blocks, capacity * sizeof(*blocks));

        if (blocks == NULL)
            return false;
        map.blocks   = blocks;
        map.capacity = capacity;
    }
    memmove(&map.blocks[at + 1], &map.blocks[at], (map.n - at) * sizeof(*map.blocks));
    map.blocks[at] = block;
    map.n++;
    block->a.id = ++last_id;
    return true;
}

void soft_block_remove(soft_block *block)
{
    size_t at = soft_block_index(block->a.base);

    map.n--;
    memmove(&map.blocks[at], &map.blocks[at + 1], (map.n - at) * sizeof(*map.blocks));
}

/* --- the device's memory -------------------------------------------------------------- */

ze_result_t soft_charge(soft_device *dev, uint64_t bytes)
{
    soft_device *root = dev->root;
    uint64_t     used = atomic_load(&root->used);

    do {
        if (bytes > root->memory_size || used > root->memory_size - bytes)
            return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    } while (!atomic_compare_exchange_weak(&root->used, &used, used + bytes));
    return ZE_RESULT_SUCCESS;
}

void soft_uncharge(soft_device *dev, uint64_t bytes)
{
    atomic_fetch_sub(&dev->root->used, bytes);
}

/* --- chunks ------------------------------------------------------------------------------ */

static size_t slot_size(unsigned class)
{
    return (size_t)1 << (class + SLOT_MIN_SHIFT);
}

static unsigned slot_class(size_t size)
{
    unsigned class = 0;

    while (slot_size(class) < size)
        class ++;
    return class;
}

static size_t chunk_slots(unsigned class)
{
    size_t n = SOFT_SMALL / slot_size(class);

    return n > SLOTS ? n : SLOTS;
}

static size_t chunk_data(unsigned class)
{
    return chunk_slots(class) * slot_size(class);
}

static void chunk_link(soft_chunk *chunk)
{
    soft_chunk **first = &heaps[chunk->heap][chunk->class];

    chunk->prev = NULL;
    chunk->next = *first;
    if (*first != NULL)
        (*first)->prev = chunk;
    *first = chunk;
}

static void chunk_unlink(soft_chunk *chunk)
{
    if (chunk->prev != NULL)
        chunk->prev->next = chunk->next;
    else
        heaps[chunk->heap][chunk->class] = chunk->next;
    if (chunk->next != NULL)
        chunk->next->prev = chunk->prev;
}

static ze_result_t chunk_new(unsigned heap, unsigned class, soft_chunk **made)
{
    size_t      data  = chunk_data(class);
    soft_extent all   = {.fd = -1, .size = data + SOFT_PAGE};
    soft_chunk *chunk = calloc(1, sizeof(*chunk));
    ze_result_t err;

    if (chunk == NULL)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    err = soft_file_new("ze_soft-chunk", all.size, &all.fd);
    if (err != ZE_RESULT_SUCCESS)
        goto err_chunk;
    err = soft_pages_map(&chunk->pages, &all, SOFT_SMALL, heap == HEAP_GUARDED);
    if (err != ZE_RESULT_SUCCESS)
        goto err_file;
    chunk->fd          = all.fd;
    chunk->file_id     = soft_file_id(all.fd);
    chunk->heap        = heap;
    chunk->class       = class;
    chunk->nslots      = (uint32_t)chunk_slots(class);
    chunk->generations = (uint32_t *)(void *)(chunk->pages.alias + data);
    for (uint32_t i = 0; i < chunk->nslots; i++)
        chunk->free[i] = (uint16_t)(chunk->nslots - 1 - i);
    chunk->nfree = chunk->nslots;
    chunk_link(chunk);
    *made = chunk;
    return ZE_RESULT_SUCCESS;

err_file:
    close(all.fd);
err_chunk:
    free(chunk);
    return err;
}

static void chunk_free(soft_chunk *chunk)
{
    chunk_unlink(chunk);
    soft_pages_unmap(&chunk->pages);
    close(chunk->fd);
    free(chunk);
}

static soft_chunk *chunk_with_room(unsigned heap, unsigned class)
{
    soft_chunk *chunk = heaps[heap][class];

    while (chunk != NULL && (chunk->nfree == 0 || chunk->inherited))
        chunk = chunk->next;
    return chunk;
}

static void slot_free(soft_block *b)
{
    soft_chunk *chunk = b->chunk;

    if (chunk->inherited)
        return;
    chunk->generations[b->slot]++;
    if (b->export_fd >= 0)
        chunk->nretired++;
    else
        chunk->free[chunk->nfree++] = (uint16_t)b->slot;
    /* An empty chunk stays when it is the only one that has room. */
    if (chunk->nfree + chunk->nretired == chunk->nslots && (chunk->prev || chunk->next))
        chunk_free(chunk);
}

bool soft_slot_generation(int fd, uint64_t offset, uint32_t slot, uint32_t *generation)
{
    off_t end = lseek(fd, 0, SEEK_END);

    if (end < (off_t)SOFT_PAGE || offset >= (uint64_t)end - SOFT_PAGE || slot >= MAX_SLOTS)
        return false;
    return pread(fd, generation, sizeof(*generation),
                 end - (off_t)SOFT_PAGE + (off_t)(slot * sizeof(*generation))) ==
           (ssize_t)sizeof(*generation);
}

/* Parent and child would write to the same slots: the child starts with chunks of its own. */
static void in_child(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

    for (unsigned h = 0; h < HEAPS; h++)
        for (unsigned c = 0; c < SLOT_CLASSES; c++)
            for (soft_chunk *chunk = heaps[h][c]; chunk != NULL; chunk = chunk->next)
                chunk->inherited = true;
    memcpy(&soft_memory_lock, &fresh, sizeof(fresh));
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

/* --- blocks ---------------------------------------------------------------------------------- */

static size_t misalignment(void)
{
    static _Atomic uint64_t known = UINT64_MAX;
    uint64_t                value = atomic_load(&known);

    if (value == UINT64_MAX) {
        value = soft_knob("MISALIGN", 0);
        atomic_store(&known, value);
    }
    return (size_t)value;
}

static bool overlapping(void)
{
    static _Atomic int known = -1;
    int                value = atomic_load(&known);

    if (value < 0) {
        value = soft_knob("OVERLAP", 0) != 0;
        atomic_store(&known, value);
    }
    return value != 0;
}

static ze_result_t slot_new(soft_block *b, size_t size, bool guard)
{
    unsigned class    = slot_class(size);
    unsigned    heap  = guard ? HEAP_GUARDED : HEAP_OPEN;
    soft_chunk *chunk = chunk_with_room(heap, class);
    ze_result_t err   = ZE_RESULT_SUCCESS;

    if (chunk == NULL)
        err = chunk_new(heap, class, &chunk);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    b->chunk      = chunk;
    b->slot       = chunk->free[--chunk->nfree];
    b->generation = chunk->generations[b->slot];
    b->fd         = chunk->fd;
    b->file_id    = chunk->file_id;
    b->offset     = b->slot * slot_size(class);
    b->a.base     = chunk->pages.user + b->offset;
    b->a.alias    = chunk->pages.alias + b->offset;
    return ZE_RESULT_SUCCESS;
}

/* At least a page of the device, and the largest power of two in the size: UMF, Intel's pools, asks
 * for size + alignment, rounds what it got up, and frees what it has then.  On Intel's GPUs that
 * goes well since large allocations are aligned to 2 MiB there; here it does because there is
 * nothing to round. */
static size_t natural_alignment(size_t size)
{
    size_t align = SOFT_DEVICE_PAGE;

    while (align <= size / 2)
        align *= 2;
    return align;
}

static ze_result_t file_new(soft_block *b, size_t size, size_t align, bool guard)
{
    soft_extent all = {.fd = -1, .size = soft_round_up(size, SOFT_DEVICE_PAGE)};
    ze_result_t err = soft_file_new("ze_soft", all.size, &all.fd);

    if (err != ZE_RESULT_SUCCESS)
        return err;
    if (align < natural_alignment(size))
        align = natural_alignment(size);
    err = soft_pages_map(&b->pages, &all, align, guard);
    if (err != ZE_RESULT_SUCCESS) {
        close(all.fd);
        return err;
    }
    b->fd      = all.fd;
    b->file_id = soft_file_id(all.fd);
    b->a.base  = b->pages.user;
    b->a.alias = b->pages.alias;
    return ZE_RESULT_SUCCESS;
}

/* Two storages in one file; the driver's threads see the device's. */
static ze_result_t moving_new(soft_block *b, size_t size, size_t align)
{
    soft_extent all = {.fd = -1, .size = soft_round_up(size, SOFT_DEVICE_PAGE)};
    ze_result_t err = soft_file_new("ze_soft", 2 * all.size, &all.fd);

    if (err != ZE_RESULT_SUCCESS)
        return err;
    if (align < natural_alignment(size))
        align = natural_alignment(size);
    err = soft_pages_map(&b->pages, &all, align, false);
    if (err != ZE_RESULT_SUCCESS)
        goto err_file;
    err = soft_moving_add(&b->moving, &all, b->pages.user);
    if (err != ZE_RESULT_SUCCESS)
        goto err_pages;
    b->fd      = all.fd;
    b->file_id = soft_file_id(all.fd);
    b->a.base  = b->pages.user;
    b->a.alias = b->moving.alias + all.size;
    return ZE_RESULT_SUCCESS;

err_pages:
    soft_pages_unmap(&b->pages);
err_file:
    close(all.fd);
    return err;
}

/* A descriptor of a chunk says nothing of the slot, unless one of our blocks lent it. */
static bool is_chunk(int fd)
{
    char    path[64], name[64];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = readlink(path, name, sizeof(name) - 1);
    if (n < 0)
        return true;
    name[n] = '\0';
    return strstr(name, "memfd:ze_soft-chunk") != NULL;
}

/* The program keeps its descriptor; this block has a copy. */
static ze_result_t file_import(soft_block *b, const soft_request *r, bool guard)
{
    soft_block *lender = soft_block_lent(r->import_fd);
    uint64_t    offset = lender != NULL ? lender->offset : 0;
    uint64_t    skip   = offset % SOFT_PAGE;
    size_t      align  = r->align > SOFT_PAGE ? r->align : SOFT_PAGE;
    soft_extent part   = {.offset = offset - skip};
    off_t       end    = lseek(r->import_fd, 0, SEEK_END);
    ze_result_t err;

    if (lender == NULL && (end < 0 || soft_file_id(r->import_fd) == 0 || is_chunk(r->import_fd)))
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (r->size > (lender != NULL ? lender->a.size : (uint64_t)end))
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    if (skip != 0 && align > SOFT_PAGE)
        return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    part.size = soft_round_up(r->size + skip, SOFT_PAGE);
    part.fd   = fcntl(r->import_fd, F_DUPFD_CLOEXEC, 0);
    if (part.fd < 0)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    err = soft_pages_map(&b->pages, &part, align, guard);
    if (err != ZE_RESULT_SUCCESS) {
        close(part.fd);
        return err;
    }
    b->fd      = part.fd;
    b->file_id = soft_file_id(part.fd);
    b->offset  = offset;
    b->a.base  = b->pages.user + skip;
    b->a.alias = b->pages.alias + skip;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t block_place(soft_block *b, const soft_request *r)
{
    bool        guard = r->type == ZE_MEMORY_TYPE_DEVICE;
    size_t      off   = misalignment();
    size_t      want  = r->size + off > r->align ? r->size + off : r->align;
    ze_result_t err;

    if (r->import_fd >= 0)
        return file_import(b, r, guard);
    if (r->type == ZE_MEMORY_TYPE_SHARED && r->dev != NULL && soft_migrates())
        err = moving_new(b, r->size + off, r->align);
    else if (want < SOFT_SMALL && !r->exported)
        err = slot_new(b, want, guard);
    else
        err = file_new(b, r->size + off, r->align, guard);
    if (err == ZE_RESULT_SUCCESS && off != 0) {
        b->a.base  = (char *)b->a.base + off;
        b->a.alias = (char *)b->a.alias + off;
        b->offset += off;
    }
    return err;
}

static void block_displace(soft_block *b)
{
    if (b->chunk != NULL) {
        slot_free(b);
        return;
    }
    if (b->moving.size != 0)
        soft_moving_remove(&b->moving);
    soft_pages_unmap(&b->pages);
    close(b->fd);
}

/* ZE_SOFT_OVERLAP */
static soft_block *block_again(const soft_request *r)
{
    soft_block *b = last_device;

    if (b == NULL || r->type != ZE_MEMORY_TYPE_DEVICE || r->import_fd >= 0)
        return NULL;
    last_device = NULL;
    if (b->a.size < r->size)
        return NULL;
    b->sharers++;
    return b;
}

static ze_result_t block_new(const soft_request *r, soft_block **made)
{
    soft_block *b = calloc(1, sizeof(*b));
    ze_result_t err;

    if (b == NULL)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    b->a         = (soft_alloc){.size = r->size, .type = r->type, .ctx = r->ctx, .dev = r->dev};
    b->slot      = SOFT_NO_SLOT;
    b->export_fd = -1;
    err          = block_place(b, r);
    if (err != ZE_RESULT_SUCCESS)
        goto err_block;
    if (!soft_block_insert(b)) {
        err = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        goto err_place;
    }
    *made = b;
    return ZE_RESULT_SUCCESS;

err_place:
    block_displace(b);
err_block:
    free(b);
    return err;
}

/* What a request takes of its device. */
static uint64_t block_cost(const soft_request *r)
{
    if (r->dev == NULL || r->type == ZE_MEMORY_TYPE_HOST || r->import_fd >= 0)
        return 0;
    if (r->size < SOFT_SMALL && !r->exported)
        return slot_size(slot_class(r->size));
    return soft_round_up(r->size, SOFT_PAGE);
}

ze_result_t soft_block_new(const soft_request *r, soft_block **made)
{
    static pthread_once_t forks = PTHREAD_ONCE_INIT;
    uint64_t              cost  = block_cost(r);
    soft_block           *b     = overlapping() ? block_again(r) : NULL;
    ze_result_t           err   = ZE_RESULT_SUCCESS;

    pthread_once(&forks, watch_forks);
    if (b != NULL) {
        *made = b;
        return ZE_RESULT_SUCCESS;
    }
    if (cost != 0)
        err = soft_charge(r->dev, cost);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    err = block_new(r, &b);
    if (err != ZE_RESULT_SUCCESS) {
        if (cost != 0)
            soft_uncharge(r->dev, cost);
        return err;
    }
    b->charged = cost;
    if (r->type == ZE_MEMORY_TYPE_DEVICE)
        last_device = b;
    *made = b;
    return ZE_RESULT_SUCCESS;
}

void soft_block_free(soft_block *b)
{
    if (b->sharers > 0) {
        b->sharers--;
        return;
    }
    if (last_device == b)
        last_device = NULL;
    soft_block_remove(b);
    for (unsigned i = 0; i < SOFT_ROOTS; i++)
        resident_frees += b->resident[i];
    if (b->charged != 0)
        soft_uncharge(b->a.dev, b->charged);
    block_displace(b);
    /* The program may have closed what it was lent, and got the number again for something else. */
    if (b->export_fd >= 0 && soft_file_id(b->export_fd) == b->file_id)
        close(b->export_fd);
    free(b);
}

int soft_block_export(soft_block *b)
{
    if (b->export_fd < 0 || soft_file_id(b->export_fd) != b->file_id)
        b->export_fd = fcntl(b->fd, F_DUPFD_CLOEXEC, 0);
    return b->export_fd;
}

soft_block *soft_block_lent(int fd)
{
    uint64_t id = soft_file_id(fd);

    for (size_t i = 0; id != 0 && i < map.n; i++)
        if (map.blocks[i]->export_fd == fd && map.blocks[i]->file_id == id)
            return map.blocks[i];
    return NULL;
}

/* As Intel's driver has it: of all of the allocation, whatever range was named. */
void soft_advise(const void *p)
{
    soft_block *block;

    pthread_mutex_lock(&soft_memory_lock);
    block = soft_block_find(p);
    if (block != NULL)
        block->advised = true;
    pthread_mutex_unlock(&soft_memory_lock);
}

/* --- for tests (ze_soft.h) -------------------------------------------------------------------- */

SOFT_EXPORT ze_soft_resident_frees_fn ze_soft_resident_frees;

uint64_t ze_soft_resident_frees(void)
{
    uint64_t n;

    pthread_mutex_lock(&soft_memory_lock);
    n = resident_frees;
    pthread_mutex_unlock(&soft_memory_lock);
    return n;
}

SOFT_EXPORT ze_soft_is_advised_fn ze_soft_is_advised;

int ze_soft_is_advised(const void *p)
{
    const soft_block *block;
    bool              is_advised;

    pthread_mutex_lock(&soft_memory_lock);
    block      = soft_block_find(p);
    is_advised = block != NULL && block->advised;
    pthread_mutex_unlock(&soft_memory_lock);
    return is_advised;
}
