/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A virtual clock for tests of leases and time-outs.  CLOCK_MONOTONIC of all processes of the test
 * program is the machine's plus an offset in a page that they share; only the test moves the
 * offset.
 *
 *     vclock_start();                  // before the first fork()
 *     ...                              // stop or kill a peer, or let all be silent
 *     vclock_pass(60000, 4000);        // 60 s go by, in steps of 4 s
 *
 * vclock.c defines clock_gettime() and poll() for the program, so the dynamic linker gives them to
 * modules too, and wraps ppoll() and waits for conditions of what is linked in (usm_use_vclock()
 * in CMake).  A timed wait looks at the clock again each millisecond of real time.  CLOCK_REALTIME,
 * sleeps, and time-outs that the kernel keeps (SO_RCVTIMEO, futexes) are the machine's.
 *
 * When time may move.  A step is shorter than a quarter of what the shortest lease leaves a peer
 * between two signs of life, and the next step waits until every live thread of the library that
 * makes timed waits has seen this one and waits again: it has done what was due.  So the signs of
 * life of a live peer are sent before time goes on, and are no older than their period and two
 * steps when a lease is checked.  Processes that are stopped or dead are not waited for, nor are
 * main threads, which are the test's own.  Leases themselves are long (a minute and more), so that
 * the real time of a busy machine, which goes by as well, ends none.
 *
 * A thread that must not wait for others to see a step (it is what they wait for) takes
 * vclock_step(). */
#ifndef VCLOCK_H
#define VCLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

void     vclock_start(void); /* more than once is fine */
uint64_t vclock_now_ms(void);
/* One step; nobody is waited for. */
void vclock_step(uint64_t ms);
/* Steps of at most step_ms. */
void vclock_pass(uint64_t ms, uint64_t step_ms);
/* Until the main thread of that process is in a timed wait; false: the process has ended. */
bool vclock_wait_until_waiting(pid_t pid);
/* Until that child, which waits for a time-out in its main thread, has ended; its wait status. */
int vclock_wait_pid(pid_t pid, uint64_t step_ms);

#endif
