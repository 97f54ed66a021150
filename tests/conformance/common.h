/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the conformance tests share: checks, the loop over devices, the record of what a device does
 * not offer, memory and kernels to work on.
 *
 * Not here: any test.  Every file of this folder includes it; they are one program (runner.h),
 * which CTest runs once for each runtime.
 *
 * The record (common.c) is a file of lines `status TAB class TAB behaviour TAB reason`, class and
 * behaviour being the suite and the name of the test; table.py makes the final table of them. */
#ifndef USM_TESTS_CONFORMANCE_COMMON_H
#define USM_TESTS_CONFORMANCE_COMMON_H

#include "runner.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <usm/usm.h>

/* AddressSanitizer or ThreadSanitizer; gcc says so by a macro, clang by a feature. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNDER_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UNDER_SANITIZER 1
#endif
#endif
#ifndef UNDER_SANITIZER
#define UNDER_SANITIZER 0
#endif

/* Ends the test as failed unless `cond` holds; the rest is a message as for printf(). */
#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond))                                                                               \
            test_fail(__FILE__, __LINE__, __VA_ARGS__);                                            \
    } while (0)

#define CHECK_OK(call) CHECK_IS(call, USM_OK)

/* The call answers `want`; a failure shows what it answered and its story. */
#define CHECK_IS(call, want)                                                                       \
    do {                                                                                           \
        usm_status check_got = (call);                                                             \
        if (check_got != (want))                                                                   \
            test_fail(__FILE__, __LINE__, "%s: %s, not %s: %s", #call, usm_status_name(check_got), \
                      usm_status_name(want), usm_last_error());                                    \
    } while (0)

/* The call answers `want` and leaves a story that contains `culprit` (case aside). */
#define CHECK_REFUSED(call, want, culprit)                                                         \
    do {                                                                                           \
        CHECK_IS(call, want);                                                                      \
        CHECK(story_names(culprit), "%s: the story does not name '%s': %s", #call, (culprit),      \
              usm_last_error());                                                                   \
    } while (0)

/* The allocation fails with `want`, errno ENOMEM and a story. */
#define CHECK_NO_BLOCK(call, want)                                                                 \
    do {                                                                                           \
        errno             = 0;                                                                     \
        void *check_p     = (call);                                                                \
        int   check_errno = errno;                                                                 \
        CHECK(!check_p, "%s gave a block", #call);                                                 \
        CHECK_IS(usm_last_status(), want);                                                         \
        CHECK(check_errno == ENOMEM, "%s: errno %d", #call, check_errno);                          \
        CHECK(story_names(""), "%s left no message", #call);                                       \
    } while (0)

bool story_names(const char *culprit);

/* A device of the selector with a context and an in-order queue of its own. */
typedef struct rig {
    usm_device  *dev;
    usm_context *ctx;
    usm_queue   *q;
    const char  *name; /* the device's term, "opencl:0"                                           */
    size_t index;      /* of the device, 1 = first                                                */
} rig;

/* Runs its body once for each device the selector leaves: EACH_DEVICE(r) {...}. */
#define EACH_DEVICE(r) for (rig r = {0}; rig_next(&(r));)
bool rig_next(rig *r);
/* The rig of the first device, for tests that one device is enough for. */
rig  rig_first(void);
void rig_end(rig *r);

/* What a behaviour needs of its device, or'ed. */
#define NEED(aspect)  (UINT64_C(1) << USM_ASPECT_##aspect)
#define NEED_DATA     (UINT64_C(1) << 63) /* copies and kernels really move data                   */
#define NEED_COMMANDS (UINT64_C(1) << 62) /* commands can be submitted at all */
#define NEED_HOST     NEED(USM_HOST_ALLOCATIONS)
#define NEED_DEVICE   NEED(USM_DEVICE_ALLOCATIONS)
#define NEED_SHARED   NEED(USM_SHARED_ALLOCATIONS)
#define NEED_KERNELS  (NEED(KERNELS) | NEED_DATA)
#define NEED_NOTHING  UINT64_C(0)
uint64_t need_kind(usm_kind kind);

/* Whether the device offers all of `needs`.  The answer goes into the record, so ask once for all
 * that the body of a loop needs: if (!can(&r, NEED_DATA | NEED_SHARED)) continue; */
bool can(const rig *r, uint64_t needs);
/* The same without a word in the record. */
bool has(const rig *r, uint64_t needs);
/* Intel's Level Zero driver without its GPU crashes at the first command on one product. */
bool commands_crash(void);
/* Records that the current test tried nothing, because of `reason`. */
void not_offered(const char *reason, ...) __attribute__((format(printf, 1, 2)));
/* Records that it tried something after all. */
void tried(void);
/* Skips the current test; with USM_TEST_NO_SKIP=1 fails it unless allowed_skips.txt has it. */
void skip(const char *reason, ...) __attribute__((format(printf, 1, 2)));

/* Kinds for loops: for (usm_kind k = USM_HOST; k <= USM_SHARED; k = next_kind(k)). */
#define EACH_KIND(k) for (usm_kind k = USM_HOST; k <= USM_SHARED; k = next_kind(k))
usm_kind    next_kind(usm_kind kind);
const char *kind_name(usm_kind kind);

/* Memory that the test must get.  Host memory comes from malloc() when kind is USM_UNKNOWN. */
void *mem(const rig *r, usm_kind kind, size_t size);
void  mem_free(usm_kind kind, void *p);
/* Hides from the compiler where a pointer comes from: wrong frees are what is tested. */
void  *opaque(const void *p);
size_t opaque_size(size_t n);

/* Bytes that tell position and seed. */
void pattern_fill(void *p, size_t n, unsigned seed);
/* Blocking copies between any memory and the host's. */
void put(const rig *r, void *dst, const void *src, size_t n);
void get(const rig *r, void *dst, const void *src, size_t n);
/* Fails the test at the first byte of p[0..n) that is not `want`'s; p is any memory. */
void check_bytes(const rig *r, const void *p, const void *want, size_t n, const char *what);

usm_queue *queue_with(const rig *r, uint32_t flags);
/* A user event; `rig` context. */
usm_event *gate_new(const rig *r);
void       gate_open(usm_event *gate);
/* Waits until *value is at least n, or fails the test after some seconds. */
void wait_until(const atomic_int *value, int n, const char *what);
void sleep_ms(unsigned ms);

/* The kernels of kernels.cl, natively and as text (and as SPIR-V, when the build has it). */
usm_program *program_new(const rig *r);
usm_kernel  *kernel_new(usm_program *program, const char *name);
/* All images of one type out of kernels.cl; data NULL when the build has none. */
usm_image image_of(usm_image_type type);

/* Returns when the device has nothing of this process: in a case of its own process.  What can() asked
 * with, and the contexts of cases before, end on other threads. */
void wait_for_nothing_held(const rig *r);

#endif
