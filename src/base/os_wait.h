/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Waiting for another process: for words in shared memory, and for descriptors.
 *
 * Fault points: "os.futex_wait" and "os.poll", which return as if a signal had interrupted them,
 * and "os.futex_wake", which never fails: it is only counted, for tests that end a process just
 * before it. */
#ifndef USM_BASE_OS_WAIT_H
#define USM_BASE_OS_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

struct pollfd;

#define USM__OS_NO_DEADLINE UINT64_MAX

/* The value of usm__os_now_ns() in so many milliseconds; UINT32_MAX: USM__OS_NO_DEADLINE. */
uint64_t usm__os_deadline(uint32_t timeout_ms);

/* Sleeps while *word is `value`; any process that maps the word may change it and then wake the
 * sleepers.  0: read the word again, woken or not; ETIMEDOUT: the deadline (of usm__os_now_ns())
 * has passed. */
int  usm__os_futex_wait(_Atomic(uint32_t) *word, uint32_t value, uint64_t deadline);
void usm__os_futex_wake_all(_Atomic(uint32_t) *word);

/* As poll(): the number of ready descriptors; 0: the deadline has passed, or a signal came. */
int usm__os_poll(struct pollfd *list, unsigned n, uint64_t deadline);

#endif
