/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sleeping until another process does something: words in shared memory, descriptors.
 *
 * Fault points: "os.futex_wait" and "os.poll", which then come back as if a signal had cut them
 * short, and "os.futex_wake", which nothing makes fail: it is counted, for tests that end a process
 * just before. */
#ifndef USM_BASE_OS_WAIT_H
#define USM_BASE_OS_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

struct pollfd;

#define USM__OS_NO_DEADLINE UINT64_MAX

/* usm__os_now_ns() in that many milliseconds; UINT32_MAX: USM__OS_NO_DEADLINE. */
uint64_t usm__os_deadline(uint32_t timeout_ms);

/* Sleeps while *word is `value`, which any process that maps it may change and then wake.  0: look
 * again, whether it was woken or not; ETIMEDOUT: the deadline (of usm__os_now_ns()) has passed. */
int  usm__os_futex_wait(_Atomic(uint32_t) *word, uint32_t value, uint64_t deadline);
void usm__os_futex_wake_all(_Atomic(uint32_t) *word);

/* poll(): how many are ready; 0: the deadline has passed, or a signal came. */
int usm__os_poll(struct pollfd *list, unsigned n, uint64_t deadline);

#endif
