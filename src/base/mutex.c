/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranked mutexes.  Debug builds keep the mutexes that a thread holds in a chain from
 * usm__self.held, newest first.  Ranks decrease along the chain, in whatever order mutexes are
 * released, so a new lock only needs to be compared with the newest. */
#include "base/mutex.h"

#include "base/assert.h"
#include "base/os.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>

#if !defined(NDEBUG) || defined(USM_DEBUG_LOCKS)
#define CHECKED 1
#else
#define CHECKED 0
#endif

static void die(const char *what, const usm__mutex *m, const usm__mutex *other)
{
    /* Not through the log: its lock may be the cause. */
    (void)fprintf(stderr, "usm: bug: %s \"%s\" (rank %d) while holding \"%s\" (rank %d)\n", what,
                  m->name, (int)m->rank, other ? other->name : "nothing",
                  other ? (int)other->rank : 0);
    abort();
}

static void check_order(const usm__mutex *m)
{
    const usm__mutex *held = usm__self.held;

    if (held != NULL && held->rank >= m->rank)
        die("taking lock", m, held);
}

static void chain(usm__mutex *m)
{
    m->below       = usm__self.held;
    usm__self.held = m;
}

static void unchain(usm__mutex *m)
{
    usm__mutex **at = &usm__self.held;

    while (*at != NULL && *at != m)
        at = &(*at)->below;
    if (*at == NULL)
        die("giving back lock", m, usm__self.held);
    *at = m->below;
}

void usm__mutex_init(usm__mutex *m, usm__rank rank, const char *name)
{
    *m = (usm__mutex)USM__MUTEX_INIT(rank, name);
}

void usm__mutex_fini(usm__mutex *m)
{
    int busy = pthread_mutex_destroy(&m->native);

    usm_assert(busy == 0);
    (void)busy;
}

void usm__mutex_lock(usm__mutex *m)
{
    if (CHECKED)
        check_order(m);
    usm__mutex_lock_for_fork(m);
    if (CHECKED)
        chain(m);
}

void usm__mutex_unlock(usm__mutex *m)
{
    if (CHECKED)
        unchain(m);
    usm__mutex_unlock_after_fork(m);
}

int usm__mutex_wait(usm__mutex *m, pthread_cond_t *c, const struct timespec *deadline)
{
    int cancel = usm__os_cancel_off();
    int rc;

    if (CHECKED)
        unchain(m); /* during the wait its link belongs to the next holder */
    rc = deadline ? pthread_cond_timedwait(c, &m->native, deadline)
                  : pthread_cond_wait(c, &m->native);
    if (CHECKED)
        chain(m);
    usm__os_cancel_restore(cancel);
    return rc;
}

void usm__mutex_lock_for_fork(usm__mutex *m)
{
    int error = pthread_mutex_lock(&m->native);

    usm_assert(error == 0);
    (void)error;
}

void usm__mutex_unlock_after_fork(usm__mutex *m)
{
    int error = pthread_mutex_unlock(&m->native);

    usm_assert(error == 0);
    (void)error;
}

void usm__mutex_reset_in_child(usm__mutex *m)
{
    usm__mutex_init(m, m->rank, m->name);
}

bool usm__mutex_none_held(void)
{
    return usm__self.held == NULL;
}
