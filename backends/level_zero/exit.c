/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The end of the process: from then on, threads of libusm stay out of the driver.
 *
 * exit() tears a driver's library down while other threads run.  A thread that sleeps in an event
 * of the driver crashes when the library goes: with Intel's driver 6 of 80 runs of a program that
 * destroyed a queue and returned from main() ended with SIGSEGV.  So code that runs on threads of
 * libusm enters here before it calls the driver, sleeps in the driver only for limited times
 * (lz_slot_sleep), and stays out once the process is ending.  The exit handler calls no driver: it
 * waits until all threads have left, a second at most.  It is registered before the first such
 * thread starts, when the driver is in use, so it runs before the driver's own handler.
 *
 * Objects that were not freed by then are left to the system.  A forked child has none of these
 * threads.
 *
 * Called by watch.c, stream.c and queue.c. */
#include "queue.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS   1000000
#define MAX_NAPS 1000

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Atomic, but for the first. */
static struct {
    pid_t       registered_in; /* fixed after `once` */
    atomic_bool is_ending;
    atomic_int  inside; /* threads in the driver */
} process;

static void on_exit_of_process(void)
{
    const struct timespec nap = {0, NAP_NS};

    if (getpid() != process.registered_in)
        return;
    atomic_store(&process.is_ending,
                 true); /* before `inside` is read: lz_enter() uses the reverse order */
    for (int i = 0; i < MAX_NAPS && atomic_load(&process.inside) > 0; i++)
        (void)nanosleep(&nap, NULL);
}

/* If atexit() has no memory, exit() does not wait. */
static void register_once(void)
{
    process.registered_in = getpid();
    (void)atexit(on_exit_of_process);
}

void lz_exit_prepare(void)
{
    (void)pthread_once(&once, register_once);
}

bool lz_enter(void)
{
    atomic_fetch_add(&process.inside, 1);
    if (!atomic_load(&process.is_ending))
        return true;
    lz_leave();
    return false;
}

void lz_leave(void)
{
    atomic_fetch_sub(&process.inside, 1);
}
