/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A few threads that carry out transfers one by one: if there is no io_uring, and for transfers
 * that take more than one call (unaligned parts of backing stores, the system's cache).  They are
 * started, up to CREW_MAX, when there is work that no idle thread takes, and sleep without a timer.
 * Called by submit(). */
#include "internal.h"

#define CREW_MAX 8u

/* The lock is held. */
static usm_transfer *pop(usm_file_crew *c)
{
    usm_transfer *t = c->head;

    if (!t)
        return NULL;
    c->head = t->next;
    if (!c->head)
        c->tail = &c->head;
    c->queued--;
    return t;
}

/* Waits for the next transfer; NULL: the thread must end.  The lock is held. */
static usm_transfer *await(usm_file_crew *c)
{
    while (!c->head && !c->stopping) {
        c->idle++;
        (void)pthread_cond_wait(&c->work, &c->lock);
        c->idle--;
    }
    return pop(c);
}

static void work(void *arg)
{
    usm_file_store *s = arg;
    usm_file_crew  *c = &s->crew;

    (void)pthread_mutex_lock(&c->lock);
    for (usm_transfer *t = await(c); t; t = await(c)) {
        (void)pthread_mutex_unlock(&c->lock);
        usm_file_finish(t, usm_file_run(s, t));
        (void)pthread_mutex_lock(&c->lock);
    }
    c->threads--;
    (void)pthread_cond_broadcast(&c->gone);
    (void)pthread_mutex_unlock(&c->lock);
}

/* Starts `wanted` threads, which are counted already. */
static void start(usm_file_store *s, unsigned wanted)
{
    usm_file_crew *c = &s->crew;
    usm_transfer  *t;

    while (wanted > 0 && s->api->os->thread(work, s, "usm-file") == 0)
        wanted--;
    if (wanted == 0)
        return;
    (void)pthread_mutex_lock(&c->lock);
    c->threads -= wanted;
    (void)pthread_cond_broadcast(&c->gone);
    /* If no thread can be started, this one does the work, slowly. */
    while (c->threads == 0 && (t = pop(c))) {
        (void)pthread_mutex_unlock(&c->lock);
        usm_file_finish(t, usm_file_run(s, t));
        (void)pthread_mutex_lock(&c->lock);
    }
    (void)pthread_mutex_unlock(&c->lock);
}

void usm_file_crew_add(usm_file_store *s, usm_transfer *list)
{
    const unsigned most   = s->config.depth < CREW_MAX ? s->config.depth : CREW_MAX;
    usm_file_crew *c      = &s->crew;
    unsigned       wanted = 0;

    (void)pthread_mutex_lock(&c->lock);
    *c->tail = list;
    for (; *c->tail; c->tail = &(*c->tail)->next) {
        c->queued++;
        (void)pthread_cond_signal(&c->work);
    }
    while (c->queued > c->idle + wanted && c->threads < most) {
        c->threads++;
        wanted++;
    }
    (void)pthread_mutex_unlock(&c->lock);
    start(s, wanted);
}

usm_status usm_file_crew_init(usm_file_store *s)
{
    usm_file_crew *c = &s->crew;
    int            error;

    c->tail = &c->head;
    error   = pthread_mutex_init(&c->lock, NULL);
    if (error)
        goto err;
    error = pthread_cond_init(&c->work, NULL);
    if (error)
        goto err_lock;
    error = pthread_cond_init(&c->gone, NULL);
    if (!error)
        return USM_OK;
    (void)pthread_cond_destroy(&c->work);
err_lock:
    (void)pthread_mutex_destroy(&c->lock);
err:
    return s->api->report(USM_E_SYSTEM, "no lock could be made: error %d", error);
}

void usm_file_crew_fini(usm_file_store *s)
{
    usm_file_crew *c = &s->crew;

    (void)pthread_mutex_lock(&c->lock);
    c->stopping = true;
    (void)pthread_cond_broadcast(&c->work);
    while (c->threads > 0)
        (void)pthread_cond_wait(&c->gone, &c->lock);
    (void)pthread_mutex_unlock(&c->lock);
    (void)pthread_cond_destroy(&c->gone);
    (void)pthread_cond_destroy(&c->work);
    (void)pthread_mutex_destroy(&c->lock);
}
