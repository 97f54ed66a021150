/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How the members of a channel find each other: usm__channel_meet().  Called by channel.c.
 *
 * The member that can bind the socket of the group's name is the host.  It creates the page and
 * hands it to the members that connect (each sends rank and size first, and a second packet once it
 * has the page; SO_PEERCRED decides whether it may).  The socket has an abstract name with the
 * user's number in it, so nothing is in the file system and nothing is left over.
 *
 * Whether the group exists is decided by one word in the page, `meeting`.  The host sets it to
 * COMPLETE when all are present, and only after that closes the connections; a member that leaves
 * earlier (its time is over) sets it to ABANDONED.  So when a connection ends, the connected
 * members look at the word.  If it is COMPLETE they are members of the group.  Otherwise the host
 * has ended or a member left, and they start again with the rest of their time: one of them is the
 * next host.  If a member ends while the others wait, its rank is free again. */
#include "base/os.h"
#include "base/os_file.h"
#include "base/os_ipc.h"
#include "base/os_wait.h"
#include "ipc/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define PAUSE_NS  1000000u /* between attempts at a name that is just being bound or released */
#define STRANGERS 16       /* connections at most that have not sent their rank               */

typedef struct hello {
    uint32_t         magic, rank, size, has_across;
    usm__ipc_process process;
} hello;

typedef struct welcome {
    uint32_t magic;
    int32_t  status; /* USM_OK: the page is passed with it                                */
    uint32_t size;   /* of the group that meets                                           */
} welcome;

/* A connected process. */
typedef struct guest {
    hello said;
    bool  has_said; /* its rank is reserved                                               */
    bool  is_ready; /* it has the page: it counts as present                              */
} guest;

typedef struct meeting {
    const usm_ipc_channel_desc *desc;
    const usm__ipc_process     *self;
    uint64_t                    deadline;
    char                        name[100];
    usm__channel_page          *page;
    size_t                      page_size;
    int                         page_fd;
    /* Used by the host: list[0] is the socket, list[i] the connection of guests[i]. */
    struct pollfd *list;
    guest         *guests;
    unsigned       n, room, here;
} meeting;

/* The outcome of an attempt. */
typedef enum outcome { MET, FAILED, AGAIN } outcome;

static const char *why(int error)
{
    return strerror(error); /* NOLINT(concurrency-mt-unsafe): glibc's is safe */
}

static bool is_over(const meeting *m)
{
    return m->deadline != USM__OS_NO_DEADLINE && usm__os_now_ns() >= m->deadline;
}

static unsigned left_ms(const meeting *m)
{
    const uint64_t now = usm__os_now_ns();

    if (m->deadline == USM__OS_NO_DEADLINE)
        return 0; /* sockets treat a timeout of 0 as no limit */
    return now >= m->deadline ? 1 : (unsigned)((m->deadline - now) / 1000000u) + 1;
}

static void drop_page(meeting *m)
{
    if (m->page)
        (void)usm__os_unmap(m->page, m->page_size);
    if (m->page_fd >= 0)
        (void)usm__os_close(m->page_fd);
    m->page    = NULL;
    m->page_fd = -1;
}

/* True: this member has ended the meeting; false: it is complete. */
static bool abandon(const meeting *m)
{
    uint32_t open = USM__MEETING_OPEN;

    return usm_cas_acq_rel(&m->page->meeting, &open, (uint32_t)USM__MEETING_ABANDONED) ||
           open == USM__MEETING_ABANDONED;
}

static usm_status not_all(const meeting *m)
{
    usm__channel_ranks missing = {{0}};
    char               text[96];

    if (!m->page)
        return usm__fail(USM_E_PEER,
                         "the group \"%s\" did not meet within %u ms; nobody else can be reached",
                         m->desc->name, m->desc->timeout_ms);
    for (uint32_t r = 0; r < m->desc->size; r++)
        if (usm_load_acquire(&m->page->members[r].presence) != USM__MEMBER_HERE)
            usm__channel_ranks_add(&missing, r);
    return usm__fail(USM_E_PEER,
                     "the group \"%s\" did not meet within %u ms: rank %s of %u did not come, or "
                     "ended",
                     m->desc->name, m->desc->timeout_ms,
                     usm__channel_ranks_text(&missing, text, sizeof text), m->desc->size);
}

static usm_status too_late(const meeting *m)
{
    return m->page && !abandon(m) ? USM_OK : not_all(m);
}

/* ---- the host ------------------------------------------------------------------------- */

static void enter(const meeting *m, const hello *h)
{
    usm__channel_member *who = &m->page->members[h->rank];

    who->process    = h->process;
    who->has_across = h->has_across;
    usm_store_release(&who->presence, (uint32_t)USM__MEMBER_HERE);
}

static usm_status make_page(meeting *m)
{
    const hello own = {USM__CHANNEL_MAGIC, m->desc->rank, m->desc->size, m->desc->across != NULL,
                       *m->self};

    m->page_fd = usm__os_memfd("usm-channel", m->page_size);
    m->page    = m->page_fd >= 0 ? usm__os_map_fd(NULL, m->page_size, 3, m->page_fd) : NULL;
    if (!m->page)
        return usm__fail(USM_E_SYSTEM, "no page for the group \"%s\": %s", m->desc->name,
                         why(errno));
    m->page->magic = USM__CHANNEL_MAGIC;
    m->page->size  = m->desc->size;
    usm_store_relaxed(&m->page->decided, (uint64_t)2 << 8); /* call 0 has ended: barrier.c */
    enter(m, &own);
    m->here = 1;
    return USM_OK;
}

static usm_status make_lists(meeting *m, int listener)
{
    m->room   = m->desc->size + STRANGERS;
    m->list   = usm__heap_alloc(m->room * sizeof *m->list);
    m->guests = usm__heap_alloc(m->room * sizeof *m->guests);
    if (!m->list || !m->guests)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a group of %u to meet",
                         m->desc->size);
    m->list[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    m->n       = 1;
    return USM_OK;
}

static void close_lists(meeting *m)
{
    for (unsigned i = 0; i < m->n; i++)
        (void)usm__os_close(m->list[i].fd);
    usm__heap_free(m->list);
    usm__heap_free(m->guests);
    m->list   = NULL;
    m->guests = NULL;
    m->n      = 0;
}

static void drop_guest(meeting *m, unsigned i)
{
    const guest *g = &m->guests[i];

    if (g->is_ready) {
        usm_store_release(&m->page->members[g->said.rank].presence, (uint32_t)USM__MEMBER_ABSENT);
        m->here--;
    }
    (void)usm__os_close(m->list[i].fd);
    m->list[i]   = m->list[--m->n];
    m->guests[i] = m->guests[m->n];
}

static void take_guest(meeting *m)
{
    int      fd = usm__os_accept(m->list[0].fd);
    int      pid;
    uint32_t uid;

    if (fd < 0)
        return;
    if (m->n == m->room || usm__os_peer(fd, &pid, &uid) != 0 || uid != m->self->uid) {
        (void)usm__os_close(fd);
        return;
    }
    m->list[m->n]   = (struct pollfd){.fd = fd, .events = POLLIN};
    m->guests[m->n] = (guest){.has_said = false};
    m->n++;
}

static bool is_taken(const meeting *m, uint32_t rank)
{
    bool taken = rank == m->desc->rank;

    for (unsigned i = 1; i < m->n; i++)
        taken |= m->guests[i].has_said && m->guests[i].said.rank == rank;
    return taken;
}

/* The first packet of a member has its rank, the second says that it has mapped the page: the
 * others would wait for a member that could not.  False: the connection must be closed. */
static bool hear_guest(meeting *m, unsigned i)
{
    guest  *g = &m->guests[i];
    hello   h;
    welcome w      = {USM__CHANNEL_MAGIC, USM_OK, m->desc->size};
    int     passed = -1;
    ssize_t n      = usm__os_receive(m->list[i].fd, &h, sizeof h, &passed);

    if (passed >= 0)
        (void)usm__os_close(passed);
    if (n != (ssize_t)sizeof h || h.magic != USM__CHANNEL_MAGIC || g->is_ready)
        return n < 0 && errno == EAGAIN;
    if (g->has_said) {
        g->is_ready = true;
        m->here++;
        enter(m, &g->said);
        return true;
    }
    if (h.size != m->desc->size || h.rank >= m->desc->size || is_taken(m, h.rank))
        w.status = USM_E_BUSY;
    g->said     = h;
    g->has_said = w.status == USM_OK;
    return usm__os_send(m->list[i].fd, &w, sizeof w, g->has_said ? m->page_fd : -1) == 0 &&
           g->has_said;
}

static void host_once(meeting *m)
{
    m->list[0].events = m->n < m->room ? POLLIN : 0;
    if (usm__os_poll(m->list, m->n, m->deadline) == 0)
        return;
    for (unsigned i = m->n - 1; i > 0; i--)
        if (m->list[i].revents != 0 && !hear_guest(m, i))
            drop_guest(m, i);
    if (m->list[0].revents & POLLIN)
        take_guest(m);
}

static outcome host(meeting *m, int listener, usm_status *st)
{
    uint32_t open = USM__MEETING_OPEN;

    *st = make_lists(m, listener);
    if (*st != USM_OK) {
        usm__heap_free(m->list);
        usm__heap_free(m->guests);
        (void)usm__os_close(listener);
        return FAILED;
    }
    *st = make_page(m);
    while (*st == USM_OK && m->here < m->desc->size &&
           usm_load_acquire(&m->page->meeting) == USM__MEETING_OPEN && !is_over(m))
        host_once(m);
    if (*st == USM_OK && m->here == m->desc->size)
        (void)usm_cas_acq_rel(&m->page->meeting, &open, (uint32_t)USM__MEETING_COMPLETE);
    else if (*st == USM_OK && is_over(m))
        *st = too_late(m);
    close_lists(m); /* after the word is set: the members read it then        */
    if (*st != USM_OK)
        return FAILED;
    return usm_load_acquire(&m->page->meeting) == USM__MEETING_COMPLETE ? MET : AGAIN;
}

/* ---- the other members ----------------------------------------------------------------------- */

static usm_status map_page(meeting *m)
{
    usm__os_stat file;

    if (usm__os_stat_fd(m->page_fd, &file) != 0 || file.size < m->page_size)
        return usm__fail(USM_E_SYSTEM, "the page of the group \"%s\" is not one of libusm",
                         m->desc->name);
    m->page = usm__os_map_fd(NULL, m->page_size, 3, m->page_fd);
    if (!m->page)
        return usm__fail(USM_E_SYSTEM, "no room for the page of the group \"%s\": %s",
                         m->desc->name, why(errno));
    return USM_OK;
}

static usm_status refused(const meeting *m, const welcome *w)
{
    if (w->size != m->desc->size)
        return usm__fail(USM_E_BUSY,
                         "a group of %u is meeting under the name \"%s\", not one of %u; take "
                         "another name",
                         w->size, m->desc->name, m->desc->size);
    return usm__fail(USM_E_BUSY, "rank %u of the group \"%s\" is taken by another member",
                     m->desc->rank, m->desc->name);
}

static bool wait_readable(const meeting *m, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    while (usm__os_poll(&p, 1, m->deadline) == 0)
        if (is_over(m))
            return false;
    return true;
}

/* After the welcome only the end of the connection follows. */
static outcome wait_for_all(meeting *m, int fd, usm_status *st)
{
    if (!wait_readable(m, fd)) {
        *st = too_late(m);
        return *st == USM_OK ? MET : FAILED;
    }
    return usm_load_acquire(&m->page->meeting) == USM__MEETING_COMPLETE ? MET : AGAIN;
}

static outcome join(meeting *m, int fd, usm_status *st)
{
    const hello h = {USM__CHANNEL_MAGIC, m->desc->rank, m->desc->size, m->desc->across != NULL,
                     *m->self};
    welcome     w;
    int         pid;
    uint32_t    uid;

    if (usm__os_peer(fd, &pid, &uid) != 0 || uid != m->self->uid) {
        *st = usm__fail(USM_E_PERMISSION, "the name \"%s\" is held by another user", m->desc->name);
        return FAILED;
    }
    if (usm__os_send(fd, &h, sizeof h, -1) != 0)
        return AGAIN;
    if (!wait_readable(m, fd)) {
        *st = not_all(m);
        return FAILED;
    }
    if (usm__os_receive(fd, &w, sizeof w, &m->page_fd) != (ssize_t)sizeof w)
        return AGAIN;
    if (w.magic != USM__CHANNEL_MAGIC || w.status != USM_OK || m->page_fd < 0) {
        *st = refused(m, &w);
        return FAILED;
    }
    *st = map_page(m);
    if (*st != USM_OK)
        return FAILED;
    return usm__os_send(fd, &h, sizeof h, -1) == 0 ? wait_for_all(m, fd, st) : AGAIN;
}

/* ---- both ------------------------------------------------------------------------------------ */

static outcome try_once(meeting *m, usm_status *st)
{
    int     fd = usm__os_connect(m->name, left_ms(m));
    outcome o;

    if (fd >= 0) {
        o = join(m, fd, st);
        (void)usm__os_close(fd);
        return o;
    }
    if (errno == EAGAIN)
        return AGAIN; /* the host's queue is full, or the time is over */
    if (errno == ECONNREFUSED) {
        fd = usm__os_listen(m->name);
        if (fd >= 0)
            return host(m, fd, st);
        if (errno == EADDRINUSE) /* bound, but not yet listening, or about to close */
            return AGAIN;
    }
    *st = usm__fail(USM_E_SYSTEM, "no socket for the group \"%s\": %s", m->desc->name, why(errno));
    return FAILED;
}

usm_status usm__channel_meet(const usm_ipc_channel_desc *desc, const usm__ipc_process *self,
                             usm__channel_page **page)
{
    meeting    m  = {.desc = desc, .self = self, .page_fd = -1};
    usm_status st = USM_OK;
    outcome    o;

    m.deadline  = usm__os_deadline(desc->timeout_ms);
    m.page_size = usm__channel_page_size(desc->size);
    (void)snprintf(m.name, sizeof m.name, "usm-channel-%u-%s", self->uid, desc->name);
    while ((o = try_once(&m, &st)) == AGAIN) {
        if (is_over(&m)) {
            st = not_all(&m);
            break;
        }
        drop_page(&m);
        usm__os_sleep_ns(PAUSE_NS);
    }
    if (o == MET) {
        *page  = m.page;
        m.page = NULL;
    }
    drop_page(&m);
    return o == MET ? USM_OK : st;
}
