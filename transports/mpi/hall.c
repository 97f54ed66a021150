/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The session server: memory servers in a launch of their own (usm-memd --publish), to which
 * programs connect, are served, and leave.
 *
 * The servers are a job among themselves (`front`, attach.c).  Through it rank 0 sends the others
 * orders, and each server learns of the death of others.  Rank 0 runs the listener (door.c).  For
 * each admitted program all servers call MPI_Comm_accept() in a thread, and get a job with that
 * program (a "guest" in the code), with a communicator, a thread and a table of blocks of its own,
 * so that programs neither see each other nor fail together.  Each program may use an equal part of
 * the lent memory: what was promised to one is never given to another.
 *
 * A program's session ends when its processes have left, or are silent for too long
 * (mpi_job_is_over); its memory is freed then.  MPI's accept cannot be stopped: if a program dies
 * between the listener and MPI's port, the thread is left behind, no more programs are admitted,
 * and the servers end with their last session.
 *
 * Programs do not end a launch of servers, nor the other way round: a process of either that is
 * silent for a lease is lost on its own.
 *
 * Called by usm-memd's one thread, through the transport's serve() and detach(). */
#include "internal.h"

#include "base/inline/plural.h"

#include <stdio.h>
#include <stdlib.h>

#define TAG         1u
#define KEEP_MS     25
#define ENTRY_NS    (150000 * NS_PER_MS) /* longer than names.c gives a program */
#define ORDER_NS    (60 * NS_PER_MS)
#define AT_ONCE_MAX 64

enum { ORDER_ACCEPT = 1, ORDER_END = 2 };

typedef struct guest guest;
struct guest {
    guest   *next;
    mpi_job *job;
    uint64_t alone;
    unsigned number;
};

struct mpi_hall {
    const usm_host_api *api;
    usm_host_api        keeping; /* its report() stores the message */
    mpi_job            *front;
    usm_job_params      params; /* of the programs' jobs */
    mpi_door           *door;   /* of rank 0; else NULL */
    char                name[64], port[MPI_PORT_SIZE], address[MPI_ADDRESS_SIZE];
    unsigned            at_once, programs; /* programs 0: any number */
    bool                is_patient;        /* does not end when there are no programs */
    guest              *guests;
    unsigned            count, served;
    uint64_t            empty_since; /* 0: there are programs, or there never were */
    bool                is_broken;
    /* of the program that is connecting */
    bool             is_entering;
    uint64_t         entry_until;
    mpi_job         *came; /* valid once has_come; NULL: it did not come */
    _Atomic bool     has_come;
    _Atomic uint32_t ordered, ended; /* by rank 0 */
};

/* ---- orders ----------------------------------------------------------------------------- */

static void order(mpi_hall *h, unsigned char what)
{
    for (uint32_t i = 0; i < h->front->count; i++)
        if (i != h->front->self)
            (void)far_send(h->front->node, i, TAG, &what, sizeof(what));
}

/* Called by the thread of the front's job. */
static void take_order(void *user, uint32_t from, uint32_t tag, const void *data, size_t size)
{
    mpi_hall           *h    = user;
    const unsigned char what = size == 1 ? *(const unsigned char *)data : 0;

    if (from != 0 || tag != TAG)
        return;
    if (what == ORDER_ACCEPT)
        atomic_fetch_add(&h->ordered, 1u);
    else if (what == ORDER_END)
        atomic_store(&h->ended, 1u);
}

/* All servers must call accept: with one server less no program can connect any more. */
static bool is_somebody_gone(mpi_hall *h)
{
    for (uint32_t i = 0; i < h->front->count; i++) {
        far_member m;

        if (i == h->front->self)
            continue;
        mpi_get_member(h->front, i, &m);
        if (m.state == FAR_LOST || m.state == FAR_LEFT)
            return true;
    }
    return false;
}

/* ---- connecting ---------------------------------------------------------------------------- */

static bool is_never(mpi_job *job)
{
    (void)job;
    return false;
}

static void come_in(void *arg)
{
    mpi_hall  *h   = arg;
    mpi_job   *job = mpi_job_create(h->api, &h->params);
    usm_status st  = USM_E_NO_MEMORY;

    /* The order to the other servers is sent before accept takes the MPI turn. */
    (void)mpi_step_until(h->front, is_never, mpi_now() + ORDER_NS);
    if (job)
        st = mpi_welcome(job, &h->front->meeting, h->port);
    if (st == USM_OK)
        st = mpi_job_start(job);
    if (st != USM_OK) {
        h->api->log(USM_LOG_WARN, "a program that was admitted did not connect: %s",
                    mpi_kept_story());
        if (job)
            mpi_job_free(job);
        job = NULL;
    }
    h->came = job;
    atomic_store(&h->has_come, true);
}

static void begin_entry(mpi_hall *h)
{
    atomic_store(&h->has_come, false);
    h->is_entering = true;
    h->entry_until = mpi_now() + ENTRY_NS;
    if (h->api->os->thread(come_in, h, "usm-mpi-accept") != 0)
        h->is_broken = true;
}

/* A new port for each program: Open MPI's name server may keep data of the old one, which must not
 * reach the next program. */
static void change_port(mpi_hall *h)
{
    const bool turn = mpi_turn_begin();

    (void)MPI_Close_port(h->port);
    if (mpi_names_check(&h->keeping, h->port) != USM_OK)
        h->is_broken = true;
    mpi_turn_end(turn);
}

static void take_guest(mpi_hall *h)
{
    guest *g = h->came ? h->api->heap_alloc(sizeof(*g)) : NULL;

    h->is_entering = false;
    if (h->door)
        change_port(h);
    if (!g && h->came) { /* otherwise nothing would ever end its session */
        mpi_job_leave(h->came);
        mpi_job_free(h->came);
        h->served++;
        h->api->log(USM_LOG_WARN, "a program was turned away: no memory for its session");
    }
    if (!g)
        return;
    g->job    = h->came;
    g->next   = h->guests;
    g->number = h->served + ++h->count;
    h->guests = g;
    h->api->log(USM_LOG_INFO, "program %u has come: %u %s%llu MiB for it", g->number,
                g->job->count - h->front->count,
                usm__plural(g->job->count - h->front->count, "process, ", "processes, "),
                (unsigned long long)(h->params.lend >> 20));
}

static void look_after_entry(mpi_hall *h)
{
    if (!h->is_entering)
        return;
    if (atomic_load(&h->has_come)) {
        take_guest(h);
        return;
    }
    if (mpi_now() < h->entry_until || h->is_broken)
        return;
    h->is_broken = true;
    h->api->log(USM_LOG_WARN, "a program that was admitted has not connected to MPI's port: MPI "
                              "waits for it, and no other can connect; start usm-memd again");
}

/* ---- leaving ------------------------------------------------------------------------------- */

static void show_out(mpi_hall *h, guest *g)
{
    mpi_job_leave(g->job);
    mpi_job_free(g->job);
    h->api->log(USM_LOG_INFO, "program %u has ended; its memory is free", g->number);
    h->api->heap_free(g);
    h->count--;
    h->served++;
}

static void look_after_guests(mpi_hall *h)
{
    for (guest **at = &h->guests; *at;) {
        guest *g = *at;

        if (!mpi_job_is_over(g->job, true, &g->alone)) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        show_out(h, g);
    }
    if (h->guests || h->is_entering || h->served == 0)
        h->empty_since = 0;
    else if (h->empty_since == 0)
        h->empty_since = mpi_now();
}

/* ---- serving ------------------------------------------------------------------------------ */

static void keep_door(mpi_hall *h)
{
    const unsigned inside = h->count + (h->is_entering ? 1 : 0);
    mpi_doorkeeper keeper = {.api      = h->api,
                             .key      = h->params.key,
                             .key_size = h->params.key_size,
                             .port     = h->port,
                             .is_closed =
                                 h->is_broken || (h->programs && h->served + inside >= h->programs),
                             .is_full = h->is_entering || inside >= h->at_once};

    if (!mpi_door_keep(h->door, &keeper, KEEP_MS))
        return;
    order(h, ORDER_ACCEPT);
    begin_entry(h);
}

static void follow_orders(mpi_hall *h)
{
    const struct timespec nap = {.tv_nsec = KEEP_MS * 1000000l};

    (void)nanosleep(&nap, NULL);
    if (h->is_entering || atomic_load(&h->ordered) == 0)
        return;
    atomic_fetch_sub(&h->ordered, 1u);
    begin_entry(h);
}

static bool is_over(mpi_hall *h)
{
    if (h->guests || (h->is_entering && !h->is_broken))
        return false;
    if (h->is_broken || atomic_load(&h->ended))
        return true;
    if (!h->door) /* rank 0 decides */
        return false;
    if (h->programs)
        return h->served >= h->programs;
    return !h->is_patient && h->empty_since &&
           mpi_now() - h->empty_since >= h->front->params.orphan_ms * NS_PER_MS;
}

usm_status mpi_hall_serve(mpi_hall *h, const volatile int *stop)
{
    while (!*stop && !is_over(h)) {
        if (h->door)
            keep_door(h);
        else
            follow_orders(h);
        look_after_entry(h);
        look_after_guests(h);
        if (!h->is_broken && !atomic_load(&h->ended) && is_somebody_gone(h)) {
            h->is_broken = true;
            h->api->log(USM_LOG_WARN, "one of the servers has ended: no more programs can come; "
                                      "those that are connected may finish");
        }
    }
    if (!*stop && h->is_broken && !atomic_load(&h->ended))
        return h->api->report(USM_E_PEER, "no more programs could connect, and those that were "
                                          "connected have ended; start usm-memd again");
    return USM_OK;
}

/* ---- opening ------------------------------------------------------------------------------- */

static bool take_number(const char *text, unsigned long max, unsigned *number)
{
    char               *end;
    const unsigned long v = strtoul(text, &end, 10);

    if (end == text || (*end && *end != ',') || v > max)
        return false;
    *number = (unsigned)v;
    return true;
}

/* "NAME[,clients=N][,at_once=N]"; 0 clients: for ever. */
static usm_status take_name(mpi_hall *h, const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t n        = strspn(text, letters);
    const char  *programs = strstr(text, ",clients=");
    const char  *at_once  = strstr(text, ",at_once=");

    h->at_once = 1;
    if (n == 0 || n >= sizeof(h->name) || (text[n] && text[n] != ','))
        return h->api->report(USM_E_INVALID,
                              "%.80s is not a name to publish: up to %zu letters, digits, '.', '_' "
                              "and '-'",
                              text, sizeof(h->name) - 1);
    if ((programs && !take_number(programs + strlen(",clients="), 1000000, &h->programs)) ||
        (at_once && (!take_number(at_once + strlen(",at_once="), AT_ONCE_MAX, &h->at_once) ||
                     h->at_once == 0)))
        return h->api->report(USM_E_INVALID,
                              "%.80s: clients are up to 1000000, those at once 1 to %d", text,
                              AT_ONCE_MAX);
    h->is_patient = programs && h->programs == 0;
    memcpy(h->name, text, n);
    return USM_OK;
}

/* The listener exists before its address is published. */
static usm_status open_door(mpi_hall *h, const usm_host_api *api)
{
    usm_status st = mpi_names_check(api, h->port);

    if (st == USM_OK)
        st = mpi_door_open(api, &h->door);
    if (st != USM_OK)
        return st;
    mpi_door_describe(h->door, h->address);
    st = mpi_name_publish(api, h->name, h->address);
    if (st == USM_OK)
        return USM_OK;
    mpi_door_close(h->door);
    h->door = NULL;
    return st;
}

/* All processes report the result of rank 0: the launcher may end that process before it has. */
typedef struct outcome {
    int32_t status;
    char    story[900];
} outcome;

static usm_status open_for_all(mpi_hall *h)
{
    outcome    o = {USM_OK, ""};
    usm_status st;

    h->keeping        = *h->api;
    h->keeping.report = mpi_keep_story;
    if (h->front->self == 0) {
        o.status = (int32_t)open_door(h, &h->keeping);
        (void)snprintf(o.story, sizeof(o.story), "%s", o.status ? mpi_kept_story() : "");
    }
    st = mpi_broadcast(&h->front->meeting, &o, sizeof(o));
    if (st != USM_OK || o.status == USM_OK)
        return st;
    return h->api->report((usm_status)o.status, "%.*s", (int)sizeof(o.story) - 1, o.story);
}

usm_status mpi_hall_create(mpi_job *front)
{
    mpi_hall  *h = front->api->heap_alloc(sizeof(*h));
    usm_status st;

    if (!h)
        return front->api->report(USM_E_NO_MEMORY, "no memory for the servers' sessions");
    h->api         = front->api;
    h->front       = front;
    h->params      = front->params;
    h->params.join = NULL;
    st             = take_name(h, front->params.join);
    if (st != USM_OK) {
        h->api->heap_free(h);
        return st;
    }
    mpi_turns_needed();
    h->params.lend /= h->at_once;
    front->params.lend    = 0; /* they lend nothing to each other */
    front->params.message = take_order;
    front->params.user    = h;
    front->hall           = h;
    return USM_OK;
}

usm_status mpi_hall_open(mpi_hall *h)
{
    usm_status st = mpi_own_errors(h->api, MPI_COMM_WORLD);

    if (st == USM_OK)
        st = mpi_own_errors(h->api, MPI_COMM_SELF);
    return st == USM_OK ? open_for_all(h) : st;
}

void mpi_hall_close(mpi_hall *h)
{
    order(h, ORDER_END);
    while (h->guests) {
        guest *g = h->guests;

        h->guests = g->next;
        show_out(h, g);
    }
    if (!h->door)
        return;
    mpi_door_close(h->door);
    h->door = NULL;
    mpi_name_unpublish(h->name, h->address);
    (void)MPI_Close_port(h->port);
}

bool mpi_hall_is_entering(const mpi_hall *h)
{
    return h->is_entering;
}

void mpi_hall_free(mpi_hall *h)
{
    if (h)
        h->api->heap_free(h);
}
