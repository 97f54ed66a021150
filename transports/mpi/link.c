/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The message system of remote memory over MPI: nonblocking sends and receives on a communicator of
 * the module, polled by MPI_Testsome.  meet.c makes the communicator, service.c polls.
 *
 * Nothing is cancelled while the link is in use, and nothing waits: an operation whose peer is dead
 * stays in the table for good, with its buffer, and costs a few nanoseconds per poll.
 *
 * Errors of a call are returned as codes, by the handler of the module's communicator.  MPICH
 * (4.0.2) passes errors of MPI_Testsome to the handler of MPI_COMM_WORLD, which is the program's
 * and by default ends it.  So remote memory posts only receives that its peers' messages cannot
 * overrun. */
#include "internal.h"

#include "base/inline/clock.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>

#define FIRST_ROOM 64
#define HUSH_NS    UINT64_C(20000000)

/* Error classes of ULFM, as Open MPI numbers them; MPICH's are in its header. */
#ifdef MPIX_ERR_PROC_FAILED
enum { PROC_FAILED = MPIX_ERR_PROC_FAILED };
#else
enum { PROC_FAILED = 75 };
#endif
#ifdef MPIX_ERR_PROC_FAILED_PENDING
enum { PROC_FAILED_PENDING = MPIX_ERR_PROC_FAILED_PENDING };
#else
enum { PROC_FAILED_PENDING = 76 };
#endif
#ifdef MPIX_ERR_REVOKED
enum { REVOKED = MPIX_ERR_REVOKED };
#else
enum { REVOKED = 77 };
#endif

struct mpi_link {
    far_link            base;
    const usm_host_api *api;
    MPI_Comm            comm;
    mpi_bells          *bells;
    uint32_t            self, count;
    /* One entry for each operation that MPI has. */
    MPI_Request     *requests;
    MPI_Status      *statuses;
    int             *indices;
    far_op         **ops;
    int              n, room;
    far_op          *ended; /* operations whose `done` must still be called */
    _Atomic uint64_t moves;
    _Atomic uint32_t received;
    bool             has_notified;
    bool             has_dead;              /* one that mpi_link_next_dead() has not returned yet */
    bool            *is_dead, *is_notified; /* by peer */
};

/* In far_op.opaque. */
typedef struct trace {
    far_op  *next;
    uint64_t result;
    uint64_t is_any; /* 0: a send; 1: a receive from any peer; 2: from one peer */
} trace;

static trace *trace_of(far_op *op)
{
    _Static_assert(sizeof(trace) <= sizeof(op->opaque), "far_op.opaque is too small");
    return (trace *)(void *)op->opaque;
}

/* ---- errors ------------------------------------------------------------------------ */

static void ignore(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
}

usm_status mpi_own_errors(const usm_host_api *api, MPI_Comm comm)
{
    MPI_Errhandler handler;
    usm_status     st =
        mpi_check(api, MPI_Comm_create_errhandler(ignore, &handler), "MPI_Comm_create_errhandler");

    if (st != USM_OK)
        return st;
    st = mpi_check(api, MPI_Comm_set_errhandler(comm, handler), "MPI_Comm_set_errhandler");
    (void)MPI_Errhandler_free(&handler); /* the communicator keeps it */
    return st;
}

usm_status mpi_check(const usm_host_api *api, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int  n                              = 0;

    if (code == MPI_SUCCESS)
        return USM_OK;
    (void)MPI_Error_string(code, text, &n);
    text[strcspn(text, "\n")] = '\0';
    return api->report(USM_E_MPI, "%s failed: %s", what, text);
}

/* A function of the MPI that this module is linked to, which may have been loaded RTLD_LOCAL. */
static void *find_in_mpi(const char *name)
{
    Dl_info info;
    void   *library, *symbol;

    if (!dladdr((void *)(uintptr_t)&MPI_Isend, &info) || !info.dli_fname)
        return NULL;
    library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return NULL;
    symbol = dlsym(library, name);
    (void)dlclose(library);
    return symbol;
}

bool mpi_has_ulfm(void)
{
    return find_in_mpi("MPIX_Comm_failure_ack") != NULL;
}

typedef union ulfm {
    void *symbol;
    int (*acknowledge)(MPI_Comm comm);
    int (*get_acknowledged)(MPI_Comm comm, MPI_Group *group);
} ulfm;

/* Marks the ranks of the module's communicator that are in a group of dead processes. */
static void note_dead(mpi_link *l, MPI_Group dead)
{
    MPI_Group all;
    int       n = 0;

    if (MPI_Group_size(dead, &n) != MPI_SUCCESS || MPI_Comm_group(l->comm, &all) != MPI_SUCCESS)
        return;
    for (int i = 0; i < n; i++) {
        int rank = -1;

        if (MPI_Group_translate_ranks(dead, 1, &i, all, &rank) != MPI_SUCCESS || rank < 0 ||
            (uint32_t)rank >= l->count || l->is_dead[rank])
            continue;
        l->is_dead[rank] = true;
        l->has_dead      = true;
    }
    (void)MPI_Group_free(&all);
}

/* After a death a receive from any peer continues only once the death was acknowledged; this also
 * tells which process has died. */
static void acknowledge(mpi_link *l)
{
    ulfm      ack = {find_in_mpi("MPIX_Comm_failure_ack")};
    ulfm      get = {find_in_mpi("MPIX_Comm_failure_get_acked")};
    MPI_Group dead;

    if (!ack.symbol || ack.acknowledge(l->comm) != MPI_SUCCESS || !get.symbol ||
        get.get_acknowledged(l->comm, &dead) != MPI_SUCCESS)
        return;
    note_dead(l, dead);
    (void)MPI_Group_free(&dead);
}

bool mpi_link_next_dead(mpi_link *link, uint32_t *peer)
{
    for (uint32_t i = 0; link->has_dead && i < link->count; i++) {
        if (!link->is_dead[i] || link->is_notified[i])
            continue;
        link->is_notified[i] = true;
        *peer                = i;
        return true;
    }
    link->has_dead = false;
    return false;
}

static far_result result_of(mpi_link *l, int code)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int class = MPI_SUCCESS, n = 0;

    if (code == MPI_SUCCESS)
        return FAR_OK;
    (void)MPI_Error_class(code, &class);
    if (class == MPI_ERR_TRUNCATE)
        return FAR_TRUNCATED;
    if ((class == PROC_FAILED || class == PROC_FAILED_PENDING || class == REVOKED) &&
        mpi_has_ulfm())
        return FAR_PEER_LOST;
    if (!l->has_notified) {
        l->has_notified = true;
        (void)MPI_Error_string(code, text, &n);
        text[strcspn(text, "\n")] = '\0';
        l->api->log(USM_LOG_WARN, "MPI reports of a message: %s (reported once)", text);
    }
    return FAR_FAILED;
}

/* ---- starting ----------------------------------------------------------------------- */

static bool grow(mpi_link *l)
{
    const int    room = l->room ? 2 * l->room : FIRST_ROOM;
    const size_t each = sizeof(*l->requests) + sizeof(*l->statuses) + sizeof(*l->ops) +
                        sizeof(*l->indices) + 2 * sizeof(void *);
    char        *p   = l->api->heap_alloc((size_t)room * each + 64);
    MPI_Request *old = l->requests;
    const size_t n   = (size_t)l->n;
    MPI_Request *requests;
    far_op     **ops;

    if (!p)
        return false;
    requests    = (MPI_Request *)(void *)p;
    ops         = (far_op **)usm_align_up_ptr((uintptr_t)(requests + room), 16);
    l->statuses = (MPI_Status *)usm_align_up_ptr((uintptr_t)(ops + room), 16);
    l->indices  = (int *)(void *)(l->statuses + room);
    if (n) {
        memcpy(requests, l->requests, n * sizeof(*requests));
        memcpy(ops, l->ops, n * sizeof(far_op *));
    }
    l->requests = requests;
    l->ops      = ops;
    l->room     = room;
    l->api->heap_free(old);
    return true;
}

static void end(mpi_link *l, far_op *op, far_result result)
{
    trace *t = trace_of(op);

    t->result = (uint64_t)result;
    t->next   = l->ended;
    l->ended  = op;
}

static bool can_start(mpi_link *l, far_op *op)
{
    if (op->size > INT_MAX || (l->n == l->room && !grow(l))) {
        end(l, op, FAR_FAILED);
        return false;
    }
    return true;
}

static bool started(mpi_link *l, far_op *op, int code)
{
    if (code == MPI_SUCCESS)
        l->ops[l->n++] = op;
    else
        end(l, op, result_of(l, code));
    return code == MPI_SUCCESS;
}

static void link_send(far_link *base, far_op *op)
{
    mpi_link *l = (mpi_link *)base;

    trace_of(op)->is_any = 0;
    if (can_start(l, op) && started(l, op,
                                    MPI_Isend(op->buffer, (int)op->size, MPI_BYTE, (int)op->peer,
                                              (int)op->tag, l->comm, &l->requests[l->n])))
        mpi_bells_ring(l->bells, op->peer);
}

static void link_receive(far_link *base, far_op *op)
{
    mpi_link  *l   = (mpi_link *)base;
    const bool any = op->peer == FAR_ANY;

    trace_of(op)->is_any = any ? 1 : 2;
    if (!can_start(l, op))
        return;
    (void)started(l, op,
                  MPI_Irecv(op->buffer, (int)op->size, MPI_BYTE,
                            any ? MPI_ANY_SOURCE : (int)op->peer, (int)op->tag, l->comm,
                            &l->requests[l->n]));
}

/* ---- ending ------------------------------------------------------------------------- */

/* The operation at `at` has ended; it stays in the table with a null request until sweep(). */
static void finish(mpi_link *l, int at, const MPI_Status *status, int code)
{
    far_op    *op     = l->ops[at];
    far_result result = result_of(l, code);
    int        n      = 0;

    if (l->requests[at] != MPI_REQUEST_NULL) { /* ULFM: the operation continues once the death is
                                                  acknowledged */
        acknowledge(l);
        return;
    }
    if (trace_of(op)->is_any) { /* a receive */
        if (result == FAR_OK) {
            (void)MPI_Get_count(status, MPI_BYTE, &n);
            op->size = n > 0 ? (size_t)n : 0;
        }
        if (result == FAR_OK || result == FAR_TRUNCATED)
            (void)usm_add_relaxed(&l->received, 1u);
        if (trace_of(op)->is_any == 1 && (result == FAR_OK || result == FAR_TRUNCATED))
            op->peer = (uint32_t)status->MPI_SOURCE;
    }
    l->ops[at] = NULL;
    end(l, op, result);
}

static void sweep(mpi_link *l)
{
    int kept = 0;

    for (int i = 0; i < l->n; i++) {
        if (!l->ops[i])
            continue;
        l->requests[kept] = l->requests[i];
        l->ops[kept++]    = l->ops[i];
    }
    l->n = kept;
}

/* MPI did not say which operation failed: tests one after the other. */
static void test_each(mpi_link *l)
{
    for (int i = 0; i < l->n; i++) {
        MPI_Status status;
        int        flag = 0;
        int        code = MPI_Test(&l->requests[i], &flag, &status);

        if (flag || code != MPI_SUCCESS)
            finish(l, i, &status, code);
    }
    sweep(l);
}

static void test_all(mpi_link *l)
{
    int class = MPI_SUCCESS, n = 0, code;

    code = MPI_Testsome(l->n, l->requests, &n, l->indices, l->statuses);
    if (code != MPI_SUCCESS)
        (void)MPI_Error_class(code, &class);
    if (code != MPI_SUCCESS && class != MPI_ERR_IN_STATUS) {
        test_each(l);
        return;
    }
    if (n == MPI_UNDEFINED || n <= 0)
        return;
    for (int i = 0; i < n; i++)
        finish(l, l->indices[i], &l->statuses[i],
               class == MPI_ERR_IN_STATUS ? l->statuses[i].MPI_ERROR : MPI_SUCCESS);
    sweep(l);
}

/* Operations are reported in the order of their ends: `ended` has the last one first. */
static far_op *take_ended(mpi_link *l)
{
    far_op *list = NULL, *next;

    for (far_op *op = l->ended; op; op = next) {
        next               = trace_of(op)->next;
        trace_of(op)->next = list;
        list               = op;
    }
    l->ended = NULL;
    return list;
}

static unsigned link_poll(far_link *base)
{
    mpi_link *l = (mpi_link *)base;
    unsigned  n = 0;
    far_op   *next;

    if (l->n > 0)
        test_all(l);
    for (far_op *op = take_ended(l); op; op = next, n++) {
        next = trace_of(op)->next; /* `done` may start it again */
        op->done(op, (far_result)trace_of(op)->result);
    }
    if (n)
        (void)usm_add_relaxed(&l->moves, n);
    return n;
}

/* ---- the rest ------------------------------------------------------------------------ */

static uint32_t link_self(far_link *base)
{
    return ((mpi_link *)base)->self;
}

static uint32_t link_count(far_link *base)
{
    return ((mpi_link *)base)->count;
}

uint64_t mpi_now(void)
{
    return usm_clock_ns(CLOCK_MONOTONIC);
}

static uint64_t link_now(far_link *base)
{
    (void)base;
    return mpi_now();
}

static const far_link_ops ops = {
    .self    = link_self,
    .count   = link_count,
    .send    = link_send,
    .receive = link_receive,
    .poll    = link_poll,
    .now     = link_now,
};

usm_status mpi_link_create(const usm_host_api *api, MPI_Comm comm, mpi_bells *bells,
                           mpi_link **link)
{
    mpi_link  *l    = api->heap_alloc(sizeof(*l));
    int        rank = 0, size = 0;
    usm_status st;

    if (!l)
        return api->report(USM_E_NO_MEMORY, "no memory for a link over MPI");
    l->base.ops = &ops;
    l->api      = api;
    l->comm     = comm;
    l->bells    = bells;
    st          = mpi_check(api, MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    if (st == USM_OK)
        st = mpi_check(api, MPI_Comm_size(comm, &size), "MPI_Comm_size");
    if (st == USM_OK)
        l->is_dead = api->heap_alloc(2 * (size_t)size * sizeof(*l->is_dead));
    if (st == USM_OK && (!l->is_dead || !grow(l)))
        st = api->report(USM_E_NO_MEMORY, "no memory for a link over MPI");
    if (st != USM_OK) {
        api->heap_free(l->is_dead);
        api->heap_free(l);
        return st;
    }
    l->self        = (uint32_t)rank;
    l->count       = (uint32_t)size;
    l->is_notified = l->is_dead + size;
    *link          = l;
    return USM_OK;
}

/* UCX, below MPICH, warns about each receive that is still posted in MPI_Finalize(). */
void mpi_link_hush(mpi_link *link)
{
    const uint64_t end  = mpi_now() + HUSH_NS;
    int            left = link->n;

    for (int i = 0; i < link->n; i++)
        if (trace_of(link->ops[i])->is_any)
            (void)MPI_Cancel(&link->requests[i]);
    while (left > 0 && mpi_now() < end) {
        left = 0;
        for (int i = 0; i < link->n; i++) {
            int flag = 1;

            if (link->requests[i] != MPI_REQUEST_NULL && trace_of(link->ops[i])->is_any)
                (void)MPI_Test(&link->requests[i], &flag, MPI_STATUS_IGNORE);
            left += !flag;
        }
    }
}

void mpi_link_destroy(mpi_link *link)
{
    if (!link)
        return;
    link->api->heap_free(link->requests);
    link->api->heap_free(link->is_dead);
    link->api->heap_free(link);
}

far_link *mpi_link_base(mpi_link *link)
{
    return &link->base;
}

bool mpi_link_is_sending(const mpi_link *link)
{
    for (int i = 0; i < link->n; i++)
        if (link->ops[i] && trace_of(link->ops[i])->is_any == 0)
            return true;
    return false;
}

uint32_t mpi_link_received(const mpi_link *link)
{
    return usm_load_relaxed(&link->received);
}

uint64_t mpi_link_moves(const mpi_link *link)
{
    return usm_load_relaxed(&link->moves);
}
