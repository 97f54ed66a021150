/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The end of the process: what a program that ends by exit(), or by returning from main(), has
 * stored is removed, as close() would have done it.  Called by valkey.c.
 *
 * The module's destructor runs after all handlers of atexit(), so whoever still needs a block has
 * it by then.  It waits for the servers' threads, for the time limit at most.  A process that ends
 * otherwise, by _exit() or a signal, leaves its keys for ttl=; so does one with TLS, as OpenSSL has
 * been cleaned up by then. */
#include "internal.h"

#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    /* guarded by lock */
    usm_valkey_store *open; /* linked by next_open */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

void usm_valkey_exit_add(usm_valkey_store *s)
{
    s->owner = getpid();
    (void)pthread_mutex_lock(&all.lock);
    s->next_open = all.open;
    all.open     = s;
    (void)pthread_mutex_unlock(&all.lock);
}

void usm_valkey_exit_remove(usm_valkey_store *s)
{
    usm_valkey_store **at = &all.open;

    (void)pthread_mutex_lock(&all.lock);
    while (*at != s)
        at = &(*at)->next_open;
    *at = s->next_open;
    (void)pthread_mutex_unlock(&all.lock);
}

/* A child of fork() has no threads, and its parent's keys are not its own. */
__attribute__((destructor)) static void at_exit(void)
{
    if (pthread_mutex_trylock(&all.lock) != 0)
        return; /* a thread was in the midst of it when the process was forked */
    for (usm_valkey_store *s = all.open; s; s = s->next_open)
        if (s->owner == getpid() && !s->config.tls)
            usm_valkey_stop_servers(s);
    (void)pthread_mutex_unlock(&all.lock);
}
