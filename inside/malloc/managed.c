/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Large blocks of malloc in managed memory: each is a range of its own, whose parts leave memory when
 * the limit is reached.  Not here: which blocks are large (large.c).
 *
 * A block begins at a multiple of 2 MiB, so that a table with an entry for each such granule of the
 * address space tells blocks apart without a lock.
 *
 * System calls are given blocks by programs that know nothing of it: where the kernel's own accesses
 * cannot be served the library refuses.
 *
 * fork().  Managed memory is not inherited, but memory of malloc must be.  The parent writes what the
 * blocks contain to a file without a name, and the child maps that, privately, where they were: it
 * has all of it, and still needs little memory.  The file has holes where blocks are zero.  Programs
 * that are started by vfork() or posix_spawn() need none of this. */
#include "managed.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <usm/context.h>
#include <usm/device.h>
#include <usm/managed.h>
#include <usm/queue.h>
#include <usm/status.h>

#define PAGE          ((size_t)4096)
#define GRANULE_SHIFT 21
#define GRANULES      ((size_t)1 << (48 - GRANULE_SHIFT)) /* of the addresses that mmap() returns */
#define PART          ((size_t)64 << 10)                  /* of the file: written, or a hole      */

/* A block as a fork() finds it. */
typedef struct inherited {
    char  *block;
    size_t size;
    off_t  at; /* in the file */
} inherited;

static struct {
    usm_queue *q; /* of the host's device: the memory is of its context; fixed by managed_open() */
    /* For each granule the pages of the block that begins there, or 0.  Relaxed: who has a pointer to
     * a block has it from a thread that has seen the entry. */
    _Atomic(_Atomic(uint32_t) *) blocks;
    _Atomic(size_t)              first, end; /* granules; all blocks begin between them         */
    pthread_mutex_t              lock;       /* no block is freed while the file is written     */
    bool                         is_child;   /* the blocks are mappings of the file             */
    /* Of one fork(), between its handlers. */
    inherited *list; /* n, in a mapping of `bytes` */
    size_t     n, bytes;
    int        file, error; /* -1: none; of what failed, or 0 */
} managed = {.first = GRANULES, .lock = PTHREAD_MUTEX_INITIALIZER, .file = -1};

/* ---- blocks ---------------------------------------------------------------------------------- */

/* NULL: no block can begin at p. */
static _Atomic(uint32_t) *entry_of(const void *p)
{
    uintptr_t          at     = (uintptr_t)p;
    _Atomic(uint32_t) *blocks = atomic_load_explicit(&managed.blocks, memory_order_acquire);

    if ((at & (((uintptr_t)1 << GRANULE_SHIFT) - 1)) || at >> GRANULE_SHIFT >= GRANULES || !blocks)
        return NULL;
    return &blocks[at >> GRANULE_SHIFT];
}

static void widen(size_t i)
{
    size_t first = atomic_load(&managed.first), end = atomic_load(&managed.end);

    while (i < first && !atomic_compare_exchange_weak(&managed.first, &first, i))
        ;
    while (i >= end && !atomic_compare_exchange_weak(&managed.end, &end, i + 1))
        ;
}

void *managed_alloc(size_t size)
{
    size_t pages = (size + PAGE - 1) / PAGE;
    char  *p     = pages <= UINT32_MAX ? usm_malloc_managed(pages * PAGE, managed.q) : NULL;

    if (!p)
        return NULL;
    widen((uintptr_t)p >> GRANULE_SHIFT);
    atomic_store_explicit(entry_of(p), (uint32_t)pages, memory_order_relaxed);
    return p;
}

bool managed_find(const void *p, size_t *size)
{
    const _Atomic(uint32_t) *entry = entry_of(p);

    *size = entry ? PAGE * atomic_load_explicit(entry, memory_order_relaxed) : 0;
    return *size > 0;
}

void managed_free(void *p, size_t size)
{
    atomic_store_explicit(entry_of(p), 0, memory_order_relaxed);
    if (managed.is_child) {
        (void)munmap(p, size);
        return;
    }
    (void)pthread_mutex_lock(&managed.lock);
    usm_free(p);
    (void)pthread_mutex_unlock(&managed.lock);
}

/* ---- the start ------------------------------------------------------------------------------- */

static bool make_queue(void)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_context     *ctx  = NULL;
    usm_device      *dev;

    desc.devices = &dev;
    return usm_select_devices("host:*", &dev, 1, &desc.ndevices) == USM_OK &&
           usm_context_create(&desc, &ctx) == USM_OK &&
           usm_queue_create(ctx, NULL, NULL, &managed.q) == USM_OK;
}

/* Whether a system call may be given a block that is not in memory. */
static bool reaches_kernel(void)
{
    char *p    = usm_malloc_managed(PAGE, managed.q);
    int   file = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    bool  does = p && file >= 0 && read(file, p, 1) == 1;

    if (file >= 0)
        (void)close(file);
    usm_free(p);
    return does;
}

bool managed_open(const char **why)
{
    void *p = mmap(NULL, GRANULES * sizeof(_Atomic(uint32_t)), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *block;

    if (p == MAP_FAILED || !make_queue())
        return false;
    block = usm_malloc_managed(PAGE, managed.q);
    if (!block)
        return false;
    usm_free(block);
    if (!reaches_kernel()) {
        *why =
            "system calls cannot reach managed memory (docs/managed.md says what the machine must "
            "allow)";
        return false;
    }
    atomic_store_explicit(&managed.blocks, p, memory_order_release);
    return true;
}

/* ---- fork ------------------------------------------------------------------------------------ */

static int open_file(void)
{
    const char *folder = getenv("TMPDIR"); /* NOLINT(concurrency-mt-unsafe): only read */
    int         file   = open(folder ? folder : "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    return file >= 0 || !folder ? file : open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

/* Lists the blocks; returns 0 or errno. */
static int list_blocks(void)
{
    size_t end = atomic_load(&managed.end), most = 0, size;
    off_t  at = 0;
    void  *p;

    for (size_t i = atomic_load(&managed.first); i < end; i++)
        most += managed_find((void *)(i << GRANULE_SHIFT), &size);
    p = mmap(NULL, (most + 1) * sizeof(inherited), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return errno;
    managed.list  = p;
    managed.bytes = (most + 1) * sizeof(inherited);
    for (size_t i = atomic_load(&managed.first); i < end && managed.n < most; i++)
        if (managed_find((void *)(i << GRANULE_SHIFT), &size)) {
            managed.list[managed.n++] = (inherited){(char *)(i << GRANULE_SHIFT), size, at};
            at += (off_t)size;
        }
    return ftruncate(managed.file, at) == 0 ? 0 : errno;
}

static bool is_zero(const char *p, size_t size)
{
    return p[0] == 0 && memcmp(p, p + 1, size - 1) == 0;
}

static int write_part(const char *p, size_t size, off_t at)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = pwrite(managed.file, p + done, size - done, at + (off_t)done);

        if (n < 0 && errno != EINTR)
            return errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Zeros stay a hole. */
static int write_block(const inherited *b)
{
    int rc = 0;

    for (size_t done = 0; done < b->size && rc == 0; done += PART) {
        size_t n = b->size - done < PART ? b->size - done : PART;

        if (!is_zero(b->block + done, n))
            rc = write_part(b->block + done, n, b->at + (off_t)done);
    }
    return rc;
}

static int map_block(const inherited *b)
{
    const void *p = mmap(b->block, b->size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_FIXED_NOREPLACE | MAP_NORESERVE, managed.file, b->at);

    if (p != b->block)
        return EEXIST;
    atomic_store_explicit(entry_of(b->block), (uint32_t)(b->size / PAGE), memory_order_relaxed);
    return 0;
}

/* Before libusm's own handler: its locks are free, and accesses are served. */
void managed_fork_prepare(void)
{
    if (managed.is_child)
        return;
    (void)pthread_mutex_lock(&managed.lock);
    managed.file  = open_file();
    managed.error = managed.file < 0 ? errno : list_blocks();
    for (size_t i = 0; i < managed.n && managed.error == 0; i++)
        managed.error = write_block(&managed.list[i]);
    (void)pthread_mutex_unlock(&managed.lock);
}

static void forget_fork(void)
{
    if (managed.file >= 0)
        (void)close(managed.file);
    if (managed.list)
        (void)munmap(managed.list, managed.bytes);
    managed.file = -1;
    managed.list = NULL;
    managed.n    = 0;
}

void managed_fork_parent(void)
{
    if (!managed.is_child)
        forget_fork();
}

/* Blocks that other threads of the parent have made or freed meanwhile are nobody's here. */
void managed_fork_child(void)
{
    size_t end = atomic_load(&managed.end);
    int    rc  = managed.error;

    if (managed.is_child)
        return;
    managed.is_child = true;
    for (size_t i = atomic_load(&managed.first); i < end; i++)
        atomic_store_explicit(entry_of((void *)(i << GRANULE_SHIFT)), 0, memory_order_relaxed);
    for (size_t i = 0; i < managed.n && rc == 0; i++)
        rc = map_block(&managed.list[i]);
    if (rc != 0)
        (void)fprintf(stderr,
                      "usm: a child of fork() lacks large blocks of malloc, which are in managed "
                      "memory (errno %d): it ends where it touches them\n",
                      rc);
    forget_fork();
}
