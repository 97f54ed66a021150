/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a process gets that is started with this library preloaded: malloc and its family, which pass
 * large blocks to large.c and all others to the C library.
 *
 * `next` has the functions of the allocator behind this library.  They are looked up by the first
 * call, which comes from the loader or a constructor, before the process has threads.  Older C
 * libraries allocate in a look-up: that memory is cut from `early`, and stays.
 *
 * A program may have come with another allocator, whose own functions take blocks that malloc
 * returned.  Then no block is large. */
#include "large.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

#define NAMES(X)                                                                                   \
    X(malloc)                                                                                      \
    X(calloc)                                                                                      \
    X(realloc)                                                                                     \
    X(free)                                                                                        \
    X(memalign)                                                                                    \
    X(aligned_alloc)                                                                               \
    X(posix_memalign)                                                                              \
    X(valloc)                                                                                      \
    X(malloc_usable_size)
#define MEMBER(name)  __typeof__(name) *name;
#define LOOK_UP(name) *(void **)&next.name = dlsym(RTLD_NEXT, #name);

/* Fixed by the first call: see above. */
static struct {
    NAMES(MEMBER)
} next;

/* Used by the first call alone: see above. */
static struct {
    _Alignas(16) char bytes[4096];
    size_t used;
    bool   is_looking;
} early;

/* glibc's own name for its malloc. */
void *__libc_malloc(size_t size) /* NOLINT(bugprone-reserved-identifier) */
    __attribute__((weak));

/* ---- the allocator behind this library ----------------------------------------------------------- */

/* False: this call comes out of a look-up. */
static bool is_ready(void)
{
    if (__builtin_expect(next.malloc_usable_size != NULL, 1))
        return true;
    if (early.is_looking)
        return false;
    early.is_looking = true;
    NAMES(LOOK_UP)
    return true;
}

static void *early_alloc(size_t size)
{
    char *p = early.bytes + early.used;

    if (size > sizeof early.bytes - early.used)
        return NULL;
    early.used += (size + 15) & ~(size_t)15;
    return p;
}

static bool is_early(const void *p)
{
    return (uintptr_t)p - (uintptr_t)early.bytes < sizeof early.bytes;
}

/* Runs before the program's own code, and after that of libusm.so, which this library needs. */
static __attribute__((constructor)) void begin(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): before the program's own code */
    const char *least = getenv("USM_INSIDE_MALLOC"), *managed = getenv("USM_INSIDE_MANAGED");

    if (is_ready() && next.malloc == __libc_malloc && least && strtoull(least, NULL, 10) > 0)
        large_begin((size_t)strtoull(least, NULL, 10), managed && strcmp(managed, "1") == 0);
}

/* ---- malloc and its family ----------------------------------------------------------------------- */

static void *obtain(size_t size, const void *caller)
{
    bool  is_refused = false;
    void *p          = large_is(size) ? large_alloc(0, size, caller, &is_refused) : NULL;

    if (p || is_refused)
        return p;
    return is_ready() ? next.malloc(size) : early_alloc(size);
}

EXPORT void *malloc(size_t size)
{
    return obtain(size, CALLER);
}

EXPORT void *calloc(size_t n, size_t size)
{
    bool   is_refused = false;
    size_t total;
    void  *p = NULL;

    if (!__builtin_mul_overflow(n, size, &total) && large_is(total)) {
        p = large_alloc(0, total, CALLER, &is_refused);
        if (p)
            large_zero(p, total);
    }
    if (p || is_refused)
        return p;
    return is_ready() ? next.calloc(n, size) : early_alloc(n * size);
}

EXPORT void free(void *p)
{
    size_t size;

    if (large_find(p, &size))
        large_free(p, size);
    else if (p && !is_early(p) && is_ready())
        next.free(p);
}

/* A block of the C library that becomes a large one; NULL: it does not. */
static void *enlarge(void *p, size_t size, const void *caller, bool *is_refused)
{
    void  *fresh = large_alloc(0, size, caller, is_refused);
    size_t had;

    if (!fresh)
        return NULL;
    had = next.malloc_usable_size(p);
    memcpy(fresh, p, had < size ? had : size);
    next.free(p);
    return fresh;
}

/* pre: p is a large block of `had` bytes. */
static void *resize(void *p, size_t had, size_t size, const void *caller)
{
    void *fresh;

    if (size <= had && size > had / 2 && large_is(size))
        return p;
    fresh = obtain(size, caller);
    if (!fresh)
        return size <= had ? p : NULL;
    memcpy(fresh, p, had < size ? had : size);
    large_free(p, had);
    return fresh;
}

EXPORT void *realloc(void *p, size_t size)
{
    bool   is_refused = false;
    size_t had;
    void  *fresh = NULL;

    if (!p)
        return obtain(size, CALLER);
    if (large_find(p, &had)) {
        if (size > 0)
            return resize(p, had, size, CALLER);
        large_free(p, had);
        return NULL;
    }
    if (large_is(size))
        fresh = enlarge(p, size, CALLER, &is_refused);
    return fresh || is_refused ? fresh : next.realloc(p, size);
}

static bool is_alignment(size_t align)
{
    return align != 0 && (align & (align - 1)) == 0;
}

/* NULL: *is_refused, or `next` is to serve the block. */
static void *aligned(size_t align, size_t size, const void *caller, bool *is_refused)
{
    (void)is_ready();
    *is_refused = false;
    return large_is(size) && is_alignment(align) ? large_alloc(align, size, caller, is_refused)
                                                 : NULL;
}

EXPORT void *memalign(size_t align, size_t size)
{
    bool  is_refused;
    void *p = aligned(align, size, CALLER, &is_refused);

    return p || is_refused ? p : next.memalign(align, size);
}

EXPORT void *aligned_alloc(size_t align, size_t size)
{
    bool  is_refused;
    void *p = aligned(align, size, CALLER, &is_refused);

    return p || is_refused ? p : next.aligned_alloc(align, size);
}

EXPORT void *valloc(size_t size)
{
    bool  is_refused;
    void *p = aligned(1, size, CALLER, &is_refused); /* to pages, as all large blocks */

    return p || is_refused ? p : next.valloc(size);
}

EXPORT int posix_memalign(void **out, size_t align, size_t size)
{
    bool  is_refused = false;
    void *p          = NULL;

    (void)is_ready();
    if (align >= sizeof(void *))
        p = aligned(align, size, CALLER, &is_refused);
    if (p)
        *out = p;
    if (p || is_refused)
        return p ? 0 : ENOMEM;
    return next.posix_memalign(out, align, size);
}

EXPORT size_t malloc_usable_size(void *p)
{
    size_t size;

    if (large_find(p, &size))
        return size;
    return is_ready() ? next.malloc_usable_size(p) : 0;
}
