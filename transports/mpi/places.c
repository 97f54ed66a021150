/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Members of the job as replica targets ("places") of a store: one place for each lender and life
 * of it.  A lender that was lost and has joined again has none of its blocks, so it is a new place;
 * the old one stays lost.  Also here: what is known about members, and reporting a change to
 * stores.
 *
 * Borrowers ask for states and free memory often; the protocol's table is copied at most once per
 * millisecond. */
#include "internal.h"

#include <stdio.h>

#define LIVES    64 /* places beyond one per member */
#define FRESH_NS NS_PER_MS
#define NONE     UINT32_MAX

usm_place_state mpi_place_state(const far_member *m)
{
    /* It will be known soon, or later, whether its blocks still exist.  In the second case copies
     * are made elsewhere.  Nothing is lost before that. */
    if (m->may_return)
        return m->is_silent ? USM_PLACE_LEAVING : USM_PLACE_SLOW;
    return mpi_member_state(m->state);
}

usm_place_state mpi_member_state(far_member_state state)
{
    switch (state) {
    case FAR_UP:
        return USM_PLACE_UP;
    case FAR_SLOW:
        return USM_PLACE_SLOW;
    case FAR_JOINING: /* accepts no blocks yet */
        return USM_PLACE_LEAVING;
    case FAR_LOST:
    case FAR_LEFT:
        break;
    }
    return USM_PLACE_LOST;
}

/* ---- members --------------------------------------------------------------------------- */

/* The lock is held. */
static void refresh(mpi_job *job)
{
    const uint64_t now = mpi_now();
    size_t         n;

    if (now - job->as_of_ns < FRESH_NS)
        return;
    n = far_members(job->node, job->scratch, job->count);
    for (size_t i = 0; i < n && i < job->count; i++)
        if (job->scratch[i].peer < job->count)
            job->members[job->scratch[i].peer] = job->scratch[i];
    job->as_of_ns = now;
}

/* The protocol lists only the others. */
static void describe_self(mpi_job *job, far_member *member)
{
    far_stats s;

    far_get_stats(job->node, &s);
    member->state     = FAR_UP;
    member->available = member->lends > s.kept ? member->lends - s.kept : 0;
}

void mpi_get_member(mpi_job *job, uint32_t index, far_member *member)
{
    (void)pthread_mutex_lock(&job->lock);
    refresh(job);
    *member = job->members[index];
    (void)pthread_mutex_unlock(&job->lock);
    if (index == job->self)
        describe_self(job, member);
}

void mpi_fill_member(const mpi_job *job, const far_member *m, usm_job_member *member)
{
    *member = (usm_job_member){.index     = m->peer,
                               .state     = mpi_member_state(m->state),
                               .is_server = job->records[m->peer].is_server,
                               .lends     = m->lends,
                               .available = m->available,
                               .is_mapped = m->is_near};
    (void)snprintf(member->domain, sizeof(member->domain), "%s", m->domain);
}

/* ---- places ------------------------------------------------------------------------------ */

bool mpi_find_place(const mpi_job *job, uint64_t place, uint32_t *member)
{
    if (place >= usm_load_acquire(&job->nplaces) || usm_load_relaxed(&job->places[place].is_lost))
        return false;
    *member = job->places[place].member;
    return true;
}

/* The lock is held, or there is no other thread yet. */
static uint32_t add_place(mpi_job *job, uint32_t member)
{
    const uint32_t n = usm_load_relaxed(&job->nplaces);

    if (n == job->max_places)
        return NONE;
    job->places[n].member = member;
    job->place_of[member] = n;
    usm_store_release(&job->nplaces, n + 1); /* pairs with mpi_find_place() */
    return n;
}

/* The place that a change of a member concerns; NONE: none.  The lock is held. */
static uint32_t place_of(mpi_job *job, const far_member *m, usm_place_state state)
{
    uint32_t place = job->place_of[m->peer];

    if (m->peer == job->self || (m->lends == 0 && place == NONE))
        return NONE;
    if (place == NONE || usm_load_relaxed(&job->places[place].is_lost))
        return state == USM_PLACE_UP ? add_place(job, m->peer) : NONE;
    if (state == USM_PLACE_LOST)
        usm_store_relaxed(&job->places[place].is_lost, true);
    return place;
}

void mpi_notify_places(mpi_job *job, const far_member *m)
{
    const usm_place_state state = mpi_place_state(m);
    mpi_store            *s;
    uint32_t              place;

    (void)pthread_mutex_lock(&job->lock);
    job->members[m->peer] = *m;
    place                 = place_of(job, m, state);
    s                     = place == NONE ? NULL : job->stores;
    (void)pthread_mutex_unlock(&job->lock);
    while (s) { /* a store that is closed meanwhile waits for this loop: is_notifying */
        if (s->place_changed)
            s->place_changed(s->user, place, state);
        (void)pthread_mutex_lock(&job->lock);
        s = s->next;
        (void)pthread_mutex_unlock(&job->lock);
    }
}

usm_status mpi_places_init(mpi_job *job)
{
    const usm_host_api *api = job->api;
    const size_t        n   = job->count;

    job->max_places = 2 * job->count + LIVES < 65535 ? 2 * job->count + LIVES : 65535;
    job->place_of   = api->heap_alloc(n * sizeof(*job->place_of));
    job->places     = api->heap_alloc(job->max_places * sizeof(*job->places));
    job->members    = api->heap_alloc(n * sizeof(*job->members));
    job->scratch    = api->heap_alloc(n * sizeof(*job->scratch));
    job->is_done    = api->heap_alloc(n * sizeof(*job->is_done));
    if (!job->place_of || !job->places || !job->members || !job->scratch || !job->is_done) {
        mpi_places_fini(job);
        return api->report(USM_E_NO_MEMORY, "no memory for a job of %u members", job->count);
    }
    for (uint32_t i = 0; i < job->count; i++) {
        const mpi_record *r = &job->records[i];

        job->members[i] = (far_member){.peer = i, .state = FAR_JOINING, .lends = r->lend};
        (void)snprintf(job->members[i].domain, sizeof(job->members[i].domain), "%s", r->domain);
        job->place_of[i] = NONE;
        if (r->lend && i != job->self)
            (void)add_place(job, i);
    }
    return USM_OK;
}

void mpi_places_fini(mpi_job *job)
{
    job->api->heap_free(job->place_of);
    job->api->heap_free(job->places);
    job->api->heap_free(job->members);
    job->api->heap_free(job->scratch);
    job->api->heap_free(job->is_done);
}
