/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reports blocks to valgrind and AddressSanitizer: see checker.h. */
#include "observe/checker.h"

#include <pthread.h>

#ifdef USM_HAVE_VALGRIND /* valgrind's header; src/CMakeLists.txt looks for it */
#include <valgrind/memcheck.h>
#endif

/* AddressSanitizer's functions, if the process has them, from whichever object. */
/* NOLINTBEGIN(bugprone-reserved-identifier): these are AddressSanitizer's names. */
extern void __asan_poison_memory_region(const volatile void *p, size_t size) __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *p, size_t size)
    __attribute__((weak));
extern int __asan_address_is_poisoned(const volatile void *p) __attribute__((weak));
/* NOLINTEND(bugprone-reserved-identifier) */

/* Which checkers are present; fixed after the first look. */
static struct {
    bool valgrind, asan;
} notified;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* True if poisoning has an effect: ASAN_OPTIONS can disable it. */
static bool asan_listens(void)
{
    char probe[64] __attribute__((aligned(8))) = {0};
    bool listens;

    if (!__asan_poison_memory_region || !__asan_unpoison_memory_region ||
        !__asan_address_is_poisoned)
        return false;
    __asan_poison_memory_region(probe, sizeof probe);
    listens = __asan_address_is_poisoned(probe) != 0;
    __asan_unpoison_memory_region(probe, sizeof probe);
    return listens;
}

static void look(void)
{
    notified.asan = asan_listens();
#ifdef USM_HAVE_VALGRIND
    notified.valgrind = RUNNING_ON_VALGRIND != 0;
#endif
}

bool usm__checker_present(void)
{
    (void)pthread_once(&once, look);
    return notified.valgrind || notified.asan;
}

#ifdef USM_HAVE_VALGRIND
static void valgrind_open(const usm__record *r)
{
    (void)VALGRIND_MAKE_MEM_DEFINED(r->block.base, r->block.size);
}

static void valgrind_serve(const usm__record *r, bool is_zeroed)
{
    (void)VALGRIND_MAKE_MEM_NOACCESS(r->block.base, r->block.size);
    VALGRIND_MALLOCLIKE_BLOCK(r->user, r->usable, 0, is_zeroed);
}

static void valgrind_close(const usm__record *r)
{
    VALGRIND_FREELIKE_BLOCK(r->user, 0);
    (void)VALGRIND_MAKE_MEM_NOACCESS(r->block.base, r->block.size);
}

static void valgrind_forget(void *base, size_t size)
{
    (void)VALGRIND_MAKE_MEM_DEFINED(base, size);
}
#else
static void valgrind_open(const usm__record *r)
{
    (void)r;
}

static void valgrind_serve(const usm__record *r, bool is_zeroed)
{
    (void)r;
    (void)is_zeroed;
}

static void valgrind_close(const usm__record *r)
{
    (void)r;
}

static void valgrind_forget(void *base, size_t size)
{
    (void)base;
    (void)size;
}
#endif

static bool concerns(const usm__record *r)
{
    return usm__record_on_host(r) && usm__checker_present();
}

void usm__checker_open(const usm__record *r)
{
    if (!concerns(r))
        return;
    if (notified.asan)
        __asan_unpoison_memory_region(r->block.base, r->block.size);
    if (notified.valgrind)
        valgrind_open(r);
}

void usm__checker_serve(const usm__record *r, bool is_zeroed)
{
    char *end = (char *)r->block.base + r->block.size;

    if (!concerns(r))
        return;
    if (notified.asan) {
        __asan_poison_memory_region(r->block.base, (size_t)(r->user - (char *)r->block.base));
        __asan_poison_memory_region(r->user + r->usable, (size_t)(end - r->user) - r->usable);
    }
    if (notified.valgrind)
        valgrind_serve(r, is_zeroed);
}

void usm__checker_close(const usm__record *r)
{
    if (!concerns(r))
        return;
    if (notified.asan)
        __asan_poison_memory_region(r->block.base, r->block.size);
    if (notified.valgrind)
        valgrind_close(r);
}

void usm__checker_forget(void *base, size_t size)
{
    if (notified.asan)
        __asan_unpoison_memory_region(base, size);
    if (notified.valgrind)
        valgrind_forget(base, size);
}
