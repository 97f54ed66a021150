/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared memory that moves between host and device (ZE_SOFT_MIGRATE=1), a whole allocation at a
 * time, as Intel's driver has it on GPUs with memory of their own that report no concurrent access.
 *
 * An allocation has two storages, one behind the other in its file.  Commands read and write the
 * device's by its alias.  What the program sees is the one that is in force:
 *
 *     on the host     the host's storage, readable and writable
 *     on the device   nothing: a touch raises SIGSEGV, and the handler here copies the device's
 *                     storage over the host's.  It waits for no command, which goes on to write
 *                     to the device's storage; when the allocation goes to the device the next
 *                     time, that is overwritten
 *
 * An allocation goes to the device when a command that may use it is submitted, as a kernel may
 * every one; what zeContextMakeMemoryResident was called for does with any command.  That list
 * knows nothing of frees: a submission after the free of what was not evicted uses freed memory in
 * Intel's driver, and ends the process here.
 *
 * While a kernel runs, which has the program's addresses, those of allocations on the device are
 * open; a touch of the host goes unnoticed then.
 *
 * Called by heap.c, context.c, engine.c and launch.c. */
#include "memory.h"
#include "ze_soft.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct {
    pthread_once_t   once;
    bool             on; /* fixed once read */
    struct sigaction before;
    pthread_mutex_t  lock; /* a leaf; its holder touches no memory of the program */
    unsigned         kernels;
    bool             is_stale; /* a freed allocation is in the list of resident ones */
    uint64_t         moves;    /* to the device                                       */
    soft_moving      ring;
} moving = {.once = PTHREAD_ONCE_INIT,
            .lock = PTHREAD_MUTEX_INITIALIZER,
            .ring = {.prev = &moving.ring, .next = &moving.ring}};

/* --- where an allocation is, with the lock ------------------------------------------------- */

static void show(const soft_moving *m)
{
    const int both = PROT_READ | PROT_WRITE;
    const int prot = m->is_on_device && moving.kernels == 0 ? PROT_NONE : both;

    if (mmap(m->user, m->size, prot, MAP_SHARED | MAP_FIXED, m->fd,
             m->is_on_device ? (off_t)m->size : 0) == MAP_FAILED)
        perror("ze_soft: mmap");
}

static void move_to_device(soft_moving *m)
{
    if (m->is_on_device)
        return;
    if (mprotect(m->user, m->size, PROT_NONE) != 0)
        perror("ze_soft: mprotect");
    memcpy(m->alias + m->size, m->alias, m->size);
    m->is_on_device = true;
    moving.moves++;
    show(m);
}

static void move_to_host(soft_moving *m)
{
    memcpy(m->alias, m->alias + m->size, m->size);
    m->is_on_device = false;
    show(m);
}

/* --- faults ----------------------------------------------------------------------------------- */

static bool handle(const void *p)
{
    bool is_ours = false;

    pthread_mutex_lock(&moving.lock);
    for (soft_moving *m = moving.ring.next; m != &moving.ring; m = m->next) {
        if ((uintptr_t)p - (uintptr_t)m->user >= m->size)
            continue;
        if (m->is_on_device) /* else another thread was faster */
            move_to_host(m);
        is_ours = true;
        break;
    }
    pthread_mutex_unlock(&moving.lock);
    return is_ours;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    if (handle(info->si_addr))
        return;
    if (moving.before.sa_flags & SA_SIGINFO)
        moving.before.sa_sigaction(number, info, context);
    else if (moving.before.sa_handler != SIG_DFL && moving.before.sa_handler != SIG_IGN)
        moving.before.sa_handler(number);
    else
        (void)sigaction(number, &moving.before, NULL); /* and the touch is made again */
}

static void read_knob(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};

    moving.on = soft_knob("MIGRATE", 0) != 0;
    if (moving.on && sigaction(SIGSEGV, &action, &moving.before) != 0)
        perror("ze_soft: sigaction");
}

bool soft_migrates(void)
{
    pthread_once(&moving.once, read_knob);
    return moving.on;
}

/* --- allocations ----------------------------------------------------------------------------- */

ze_result_t soft_moving_add(soft_moving *m, const soft_extent *part, char *user)
{
    void *alias = mmap(NULL, 2 * part->size, PROT_READ | PROT_WRITE, MAP_SHARED, part->fd, 0);

    if (alias == MAP_FAILED)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    *m = (soft_moving){.user = user, .alias = alias, .size = part->size, .fd = part->fd};
    pthread_mutex_lock(&moving.lock);
    m->next          = &moving.ring;
    m->prev          = moving.ring.prev;
    m->prev->next    = m;
    moving.ring.prev = m;
    pthread_mutex_unlock(&moving.lock);
    return ZE_RESULT_SUCCESS;
}

void soft_moving_remove(soft_moving *m)
{
    pthread_mutex_lock(&moving.lock);
    m->prev->next = m->next;
    m->next->prev = m->prev;
    moving.is_stale |= m->is_resident;
    pthread_mutex_unlock(&moving.lock);
    soft_space_release(m->alias, 2 * m->size);
}

void soft_moving_keep(soft_moving *m, bool is_resident)
{
    pthread_mutex_lock(&moving.lock);
    m->is_resident = is_resident;
    pthread_mutex_unlock(&moving.lock);
}

/* --- commands --------------------------------------------------------------------------------- */

void soft_moving_submit(soft_uses_fn *uses, const void *cmd)
{
    if (!soft_migrates())
        return;
    pthread_mutex_lock(&moving.lock);
    if (moving.is_stale) {
        fprintf(stderr, "ze_soft: shared memory was freed that is resident: Intel's driver would "
                        "use freed memory here; zeContextEvictMemory comes first\n");
        abort();
    }
    for (soft_moving *m = moving.ring.next; m != &moving.ring; m = m->next)
        if (m->is_resident || uses(cmd, m->user, m->size))
            move_to_device(m);
    pthread_mutex_unlock(&moving.lock);
}

static void count_kernels(int delta)
{
    if (!soft_migrates())
        return;
    pthread_mutex_lock(&moving.lock);
    moving.kernels += (unsigned)delta;
    for (soft_moving *m = moving.ring.next; m != &moving.ring; m = m->next)
        if (m->is_on_device)
            show(m);
    pthread_mutex_unlock(&moving.lock);
}

void soft_moving_open(void)
{
    count_kernels(1);
}

void soft_moving_close(void)
{
    count_kernels(-1);
}

/* --- for tests (ze_soft.h) -------------------------------------------------------------------- */

SOFT_EXPORT ze_soft_moves_fn ze_soft_moves;

uint64_t ze_soft_moves(void)
{
    uint64_t moves;

    pthread_mutex_lock(&moving.lock);
    moves = moving.moves;
    pthread_mutex_unlock(&moving.lock);
    return moves;
}
