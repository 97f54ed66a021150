/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The threads that serve accesses to managed memory which the kernel cannot.  They live until the
 * process ends: an access may be waiting for one at any time.  They never touch managed memory
 * themselves.  Started by managed.c. */
#include "base/log.h"
#include "base/os.h"
#include "base/status.h"
#include "device/context.h"
#include "managed/managed.h"

#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <unistd.h>

#define THREADS 2
#define PAGE    4096

/* The access fails; the error callback of the range's context, or a line of the log, says why. */
static void fail(const usm__managed *r, const void *at, usm_status st, const char *why)
{
    char text[512];

    (void)snprintf(text, sizeof text, "managed memory: the access to %p fails: %s", at, why);
    if (r->ctx)
        usm__context_error(r->ctx, st, text);
    else
        usm__log(USM_LOG_ERROR, "%s", text);
}

static void serve(usm__managed *r, uintptr_t at, uint64_t flags)
{
    uint32_t block      = (uint32_t)((at - (uintptr_t)r->base) / r->block_size);
    bool     is_protect = (flags & UFFD_PAGEFAULT_FLAG_WP) != 0;
    bool     is_write   = is_protect || (flags & UFFD_PAGEFAULT_FLAG_WRITE);
    char    *start      = r->base + (size_t)block * r->block_size;

    if (!is_protect &&
        usm__managed_has_hole(r, block, (void *)(at & ~(uintptr_t)(PAGE - 1)), PAGE)) {
        fail(r, (void *)at, USM_E_INVALID_POINTER, "the program has taken the page away");
    } else {
        usm_status st = usm__managed_bring(r, block, is_write);

        if (st != USM_OK) {
            fail(r, (void *)at, st, usm_last_error());
            usm__managed_lose(r, block);
        }
    }
    usm__mechanism_wake(r->mechanism, start, r->block_size);
}

static void serve_all(void *arg)
{
    const usm__mechanism *m  = arg;
    int                   fd = m->fd;
    struct uffd_msg       msg;

    for (;;) {
        ssize_t       n = read(fd, &msg, sizeof msg);
        usm__managed *r;

        if (n != (ssize_t)sizeof msg && errno != EINTR && errno != EAGAIN)
            return;
        if (n != (ssize_t)sizeof msg || msg.event != UFFD_EVENT_PAGEFAULT)
            continue;
        r = usm__managed_get((void *)(uintptr_t)msg.arg.pagefault.address);
        if (!r) { /* it was freed meanwhile: the kernel says what follows */
            usm__mechanism_wake(
                m, (char *)(uintptr_t)(msg.arg.pagefault.address & ~(uint64_t)(PAGE - 1)), PAGE);
            continue;
        }
        serve(r, (uintptr_t)msg.arg.pagefault.address, msg.arg.pagefault.flags);
        usm__managed_put(r);
    }
}

usm_status usm__managed_serve(const usm__mechanism *m)
{
    int error = 0;

    for (int i = 0; i < THREADS && error == 0; i++)
        error = usm__os_thread(serve_all, (void *)(uintptr_t)m, "usm-managed");
    return error == 0 ? USM_OK
                      : usm__fail(USM_E_SYSTEM, "no thread for managed memory (error %d)", error);
}
