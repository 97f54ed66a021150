/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The calls of base/os_wait.h.  Called by src/ipc. */
#include "base/os_wait.h"

#include "base/fault.h"
#include "base/os.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000u

uint64_t usm__os_deadline(uint32_t timeout_ms)
{
    if (timeout_ms == UINT32_MAX)
        return USM__OS_NO_DEADLINE;
    return usm__os_now_ns() + (uint64_t)timeout_ms * 1000000u;
}

int usm__os_futex_wait(_Atomic(uint32_t) *word, uint32_t value, uint64_t deadline)
{
    struct timespec until = {(time_t)(deadline / NS_PER_S), (long)(deadline % NS_PER_S)};
    long            rc;

    if (usm__fault_hit("os.futex_wait", NULL))
        return 0;
    /* The variant with a bit set takes an absolute time, not a duration, so it may be repeated. */
    rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value,
                 deadline == USM__OS_NO_DEADLINE ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
    return rc != 0 && errno == ETIMEDOUT ? ETIMEDOUT : 0;
}

void usm__os_futex_wake_all(_Atomic(uint32_t) *word)
{
    (void)usm__fault_hit("os.futex_wake", NULL);
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int usm__os_poll(struct pollfd *list, unsigned n, uint64_t deadline)
{
    struct timespec left = {0, 0};
    uint64_t        now  = usm__os_now_ns();
    int             ready;

    if (usm__fault_hit("os.poll", NULL))
        return 0;
    if (deadline != USM__OS_NO_DEADLINE && deadline > now)
        left = (struct timespec){(time_t)((deadline - now) / NS_PER_S),
                                 (long)((deadline - now) % NS_PER_S)};
    ready = ppoll(list, n, deadline == USM__OS_NO_DEADLINE ? NULL : &left, NULL);
    return ready > 0 ? ready : 0;
}
