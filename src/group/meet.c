/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The meeting of meet.h: the host, the clients, what both do.  System calls with fault points are
 * those of usm_os_api. */
#include "group/meet.h"

#include "base/inline/atomic.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAGIC     0x476d7375u /* "usmG" */
#define PAUSE_NS  1000000u    /* between attempts */
#define STRANGERS 64          /* connections at most that have not sent COME */
#define NAMED     8           /* missing ranks that an error message names */

enum { OPEN = 0, COMPLETE = 1, ABANDONED = 2 }; /* the word */
enum { ABSENT = 0, CAME = 1, VOTED = 2 };       /* the state of a rank */

typedef struct member {
    _Atomic(uint32_t) state;
    _Alignas(8) unsigned char hello[USM__GROUP_HELLO_MAX];
} member;

struct usm__group_page {
    _Atomic(uint32_t) word;
    uint32_t          size;
    char              refused[USM__GROUP_HELLO_MAX]; /* why the last one was; for messages */
    member            members[];                     /* by rank; then the shared bytes */
};

typedef enum packet_kind { COME = 1, WELCOME, REFUSED, LINK, ASK, VOTE } packet_kind;

typedef struct packet {
    uint32_t      magic, release; /* stay where they are in all releases */
    uint32_t      kind;
    uint32_t      rank; /* of REFUSED: 1 if the sizes differ */
    uint32_t      size;
    unsigned char hello[USM__GROUP_HELLO_MAX]; /* of REFUSED: why, as text */
} packet;

/* A process that is connected to the host. */
typedef struct client {
    uint32_t rank;
    bool     is_in; /* it has the rank */
    bool     has_voted;
} client;

typedef struct meeting {
    const usm__group_meeting *m;
    const usm_os_api         *os;
    uint64_t                  deadline;
    usm_status                status; /* after FAILED */
    usm__group_page          *page;   /* of the last attempt: error messages need it */
    size_t                    page_size;
    /* Used by the host.  Entry 0 is its own, with the listener; list[i] is the connection of
     * clients[i]. */
    struct pollfd *list;
    client        *clients;
    int            page_fd;
    unsigned       n, room, here, votes;
    bool           is_asking, has_lost;
} meeting;

/* AGAIN: the attempt has ended, and the next one may begin. */
typedef enum outcome { GO_ON, AGAIN, MET, FAILED } outcome;

static uint64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool is_over(const meeting *t)
{
    return now_ns() >= t->deadline;
}

static void rest(const meeting *t)
{
    (void)t->os->poll(NULL, 0, now_ns() + PAUSE_NS);
}

static outcome fail(meeting *t, usm_status st, const char *lacks)
{
    const char *why = strerror(errno); /* NOLINT(concurrency-mt-unsafe): glibc's is safe */

    t->status = t->m->api->report(st, "no %s for %s: %s", lacks, t->m->what, why);
    return FAILED;
}

static uint32_t state_of(const meeting *t, uint32_t rank)
{
    return usm_load_acquire(&t->page->members[rank].state);
}

/* The time is over.  Names the ranks that have not come; if all have, those that did not do what
 * the others did (they may be stopped). */
static outcome report_late(meeting *t)
{
    const usm__group_meeting *m          = t->m;
    uint32_t                  least      = VOTED;
    unsigned                  missing    = 0;
    size_t                    used       = 0;
    char                      ranks[100] = "";

    for (uint32_t r = 0; t->page && r < m->size; r++)
        if (r != m->rank && state_of(t, r) < least)
            least = state_of(t, r);
    for (uint32_t r = 0; t->page && r < m->size; r++)
        if (r != m->rank && state_of(t, r) == least && missing++ < NAMED)
            used +=
                (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%u", used ? ", " : "", r);
    if (t->page)
        t->status = m->api->report(
            USM_E_PEER, "%s did not meet within %u ms: rank %s%s of %u did not come, or ended%s%s",
            m->what, m->timeout_ms, ranks, missing > NAMED ? " and others" : "", m->size,
            t->page->refused[0] ? "; " : "", t->page->refused);
    else
        t->status =
            m->api->report(USM_E_PEER, "%s did not meet within %u ms: nobody else can be reached",
                           m->what, m->timeout_ms);
    return FAILED;
}

static void close_fd(const meeting *t, int fd)
{
    if (fd >= 0)
        (void)t->os->close(fd);
}

/* Whether the process at the other end belongs to the same user. */
static bool is_ours(const usm_os_api *os, int fd)
{
    int      pid;
    uint32_t uid;

    return os->socket_peer(fd, &pid, &uid) == 0 && uid == geteuid();
}

static bool send_packet(const usm__group_meeting *m, int fd, packet p, int pass)
{
    p.magic   = MAGIC;
    p.release = m->release;
    p.size    = m->size;
    return m->api->os->socket_send(fd, &p, sizeof p, pass) == 0;
}

/* Receives a packet.  1; 0: the connection has ended; -1: there is none.  The magic of what is not
 * libusm's becomes 0; of another release only magic and release are valid. */
static int receive_packet(const meeting *t, int fd, packet *p, int *passed)
{
    int64_t n = t->os->socket_receive(fd, p, sizeof *p, passed);

    if (n < (int64_t)offsetof(packet, kind) ||
        (p->release == t->m->release && n != (int64_t)sizeof *p))
        p->magic = 0;
    return n > 0 ? 1 : n < 0 && errno == EAGAIN ? -1 : 0;
}

static void drop_page(meeting *t)
{
    if (t->page)
        (void)t->os->unmap(t->page, t->page_size);
    t->page = NULL;
}

static outcome map_page(meeting *t, int fd)
{
    drop_page(t);
    t->page = t->os->map_fd(NULL, t->page_size, PROT_READ | PROT_WRITE, fd);
    return t->page ? GO_ON : fail(t, USM_E_SYSTEM, "room");
}

/* ---- the host -------------------------------------------------------------------------------- */

static void take_rank(meeting *t, unsigned i, uint32_t rank, const void *hello)
{
    member *who = &t->page->members[rank];

    memcpy(who->hello, hello, t->m->hello_size);
    usm_store_release(&who->state, (uint32_t)CAME);
    t->clients[i] = (client){.rank = rank, .is_in = true};
    t->here++;
}

static outcome open_host(meeting *t, int listener)
{
    t->list[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    t->n = t->votes = 1;
    t->here         = 0;
    t->is_asking = t->has_lost = false;

    t->page_fd = t->os->memfd("usm-group", t->page_size);
    if (t->page_fd < 0)
        return fail(t, USM_E_SYSTEM, "page");
    if (map_page(t, t->page_fd) != GO_ON)
        return FAILED;
    t->page->size = t->m->size;
    take_rank(t, 0, t->m->rank, t->m->hello);
    return GO_ON;
}

/* The clients read the word when their connections end: the host has decided. */
static void close_host(meeting *t, int listener)
{
    for (unsigned i = 1; i < t->n; i++) {
        (void)shutdown(t->list[i].fd, SHUT_RDWR); /* a forked child may have it as well */
        close_fd(t, t->list[i].fd);
    }
    if (!t->m->link)
        close_fd(t, listener);
    close_fd(t, t->page_fd);
}

/* The order of the others stays: the first are the oldest. */
static void drop_client(meeting *t, unsigned i)
{
    if (t->clients[i].is_in) {
        usm_store_release(&t->page->members[t->clients[i].rank].state, (uint32_t)ABSENT);
        t->here--;
        t->has_lost = t->is_asking;
    }
    close_fd(t, t->list[i].fd);
    t->n--;
    memmove(&t->list[i], &t->list[i + 1], (t->n - i) * sizeof *t->list);
    memmove(&t->clients[i], &t->clients[i + 1], (t->n - i) * sizeof *t->clients);
}

static outcome take_client(meeting *t)
{
    int      fd     = t->os->socket_accept(t->list[0].fd);
    unsigned silent = 1;

    if (fd < 0)
        return errno == EAGAIN || errno == ECONNABORTED ? GO_ON
                                                        : fail(t, USM_E_SYSTEM, "connection");
    if (!is_ours(t->os, fd)) {
        t->m->api->log(USM_LOG_WARN, "a process of another user came to %s", t->m->what);
        close_fd(t, fd);
        return GO_ON;
    }
    while (silent < t->n && t->clients[silent].is_in)
        silent++;
    if (t->n == t->room) /* members alone never fill it */
        drop_client(t, silent);
    t->list[t->n]      = (struct pollfd){.fd = fd, .events = POLLIN};
    t->clients[t->n++] = (client){.is_in = false};
    return GO_ON;
}

/* False: it may not come in, and `why` says it. */
static bool check_client(const meeting *t, const packet *p, char why[USM__GROUP_HELLO_MAX])
{
    const usm__group_meeting *m = t->m;

    if (p->release != m->release)
        (void)snprintf(why, USM__GROUP_HELLO_MAX,
                       "a process of another release of libusm came (version %u, not %u)",
                       p->release, m->release);
    else if (p->size != m->size)
        (void)snprintf(why, USM__GROUP_HELLO_MAX, "rank %u came with size %u, not %u", p->rank,
                       p->size, m->size);
    else if (p->rank >= m->size || state_of(t, p->rank) != ABSENT)
        (void)snprintf(why, USM__GROUP_HELLO_MAX, "rank %u has come before, and comes once",
                       p->rank);
    else
        return true;
    return false;
}

static bool admit(meeting *t, unsigned i, const packet *p)
{
    packet no = {.kind = REFUSED, .rank = p->size != t->m->size};

    if (check_client(t, p, (char *)no.hello)) {
        take_rank(t, i, p->rank, p->hello);
        return send_packet(t->m, t->list[i].fd, (packet){.kind = WELCOME}, t->page_fd);
    }
    memcpy(t->page->refused, no.hello, sizeof no.hello);
    (void)send_packet(t->m, t->list[i].fd, no, -1);
    return false;
}

/* False: the connection must be closed. */
static bool handle_client(meeting *t, unsigned i)
{
    client *c      = &t->clients[i];
    packet  p      = {.magic = 0};
    int     passed = -1, came = receive_packet(t, t->list[i].fd, &p, &passed);

    close_fd(t, passed);
    if (came <= 0 || p.magic != MAGIC)
        return came < 0;
    if (!c->is_in)
        return (p.kind == COME || p.release != t->m->release) && admit(t, i, &p);
    if (p.kind != VOTE || p.release != t->m->release || !t->is_asking || c->has_voted)
        return false;
    usm_store_release(&t->page->members[c->rank].state, (uint32_t)VOTED);
    c->has_voted = true;
    t->votes++;
    return true;
}

/* Waits for room: in the socket, or for descriptors that nobody has received yet. */
static outcome send_surely(meeting *t, unsigned i, packet p, int pass)
{
    while (!send_packet(t->m, t->list[i].fd, p, pass)) {
        if (errno != EAGAIN && errno != ETOOMANYREFS && errno != ENOBUFS && errno != ENOMEM)
            return AGAIN;
        if (is_over(t))
            return report_late(t);
        rest(t);
    }
    return GO_ON;
}

/* Gives process i its connection to process j. */
static outcome give_link(meeting *t, unsigned i, unsigned j, int fd)
{
    outcome o = GO_ON;

    if (i == 0) {
        t->m->link(t->m->user, t->clients[j].rank, fd);
    } else {
        o = send_surely(t, i, (packet){.kind = LINK, .rank = t->clients[j].rank}, fd);
        close_fd(t, fd);
    }
    return o;
}

static outcome connect_two(meeting *t, unsigned i, unsigned j)
{
    int     ends[2];
    outcome o;

    if (t->os->socket_pair(ends) != 0)
        return fail(t, USM_E_SYSTEM, "connections");
    o = give_link(t, i, j, ends[0]);
    if (o == GO_ON)
        return give_link(t, j, i, ends[1]);
    close_fd(t, ends[1]);
    return o;
}

static outcome ask_all(meeting *t)
{
    outcome o = GO_ON;

    t->is_asking = true;
    for (unsigned i = 0; t->m->link && i < t->n; i++)
        for (unsigned j = i + 1; j < t->n && o == GO_ON; j++)
            if (t->clients[i].is_in && t->clients[j].is_in)
                o = connect_two(t, i, j);
    for (unsigned i = 1; i < t->n && o == GO_ON; i++)
        if (t->clients[i].is_in)
            o = send_surely(t, i, (packet){.kind = ASK, .rank = t->clients[i].rank},
                            t->m->link ? t->list[0].fd : -1);
    return o;
}

/* The oldest first: the process that comes in the place of a dead one is heard after its end. */
static outcome listen_once(meeting *t)
{
    if (t->os->poll(t->list, t->n, t->deadline) == 0)
        return GO_ON;
    for (unsigned i = 1; i < t->n;)
        if (t->list[i].revents == 0 || handle_client(t, i))
            i++;
        else
            drop_client(t, i);
    return t->list[0].revents & POLLIN ? take_client(t) : GO_ON;
}

static outcome host_once(meeting *t)
{
    uint32_t open = OPEN;

    if (t->has_lost)
        return AGAIN;
    if (t->here == t->m->size && !t->is_asking)
        return ask_all(t);
    if (t->votes == t->m->size) /* release: members read the page after the word */
        return usm_cas_acq_rel(&t->page->word, &open, (uint32_t)COMPLETE) ? MET : AGAIN;
    return is_over(t) ? report_late(t) : listen_once(t);
}

static outcome run_host(meeting *t, int listener)
{
    outcome o;

    if (t->m->link)
        t->m->link(t->m->user, t->m->rank, listener);
    o = open_host(t, listener);
    while (o == GO_ON)
        o = host_once(t);
    close_host(t, listener);
    return o;
}

/* ---- the clients ----------------------------------------------------------------------------- */

/* Waits for a packet, or the end of the connection; false: the time is over. */
static bool wait_for_host(const meeting *t, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    while (t->os->poll(&p, 1, t->deadline) == 0)
        if (is_over(t))
            return false;
    return true;
}

static outcome report_refusal(meeting *t, packet *p)
{
    const usm__group_meeting *m   = t->m;
    const usm_host_api       *api = m->api;

    p->hello[USM__GROUP_HELLO_MAX - 1] = 0;
    if (p->magic != MAGIC || (p->release == m->release && p->kind != REFUSED))
        t->status = api->report(USM_E_PEER, "what listens for %s is not libusm: take another %s",
                                m->what, m->place);
    else if (p->release != m->release)
        t->status = api->report(USM_E_ABI,
                                "%s meets with another release of libusm (version %u, not %u): "
                                "build all processes with one",
                                m->what, p->release, m->release);
    else
        t->status = api->report(p->rank ? m->other_size : USM_E_BUSY,
                                "%s refuses this process: %s; another group takes another %s",
                                m->what, (const char *)p->hello, m->place);
    return FAILED;
}

static outcome join(meeting *t, int fd)
{
    packet  p = {.kind = COME, .rank = t->m->rank};
    int     passed, came;
    outcome o = AGAIN;

    memcpy(p.hello, t->m->hello, t->m->hello_size);
    if (!is_ours(t->os, fd)) {
        t->status =
            t->m->api->report(USM_E_PERMISSION, "%s is held by another user: take another %s",
                              t->m->what, t->m->place);
        return FAILED;
    }
    /* EPIPE: it may have answered already, that the group is complete. */
    if (!send_packet(t->m, fd, p, -1) && errno != EPIPE)
        return AGAIN;
    if (!wait_for_host(t, fd))
        return report_late(t);
    came  = receive_packet(t, fd, &p, &passed);
    errno = EMFILE; /* if the kernel has dropped the descriptor */
    if (came > 0 && p.magic == MAGIC && p.release == t->m->release && p.kind == WELCOME)
        o = passed >= 0 ? map_page(t, passed) : fail(t, USM_E_SYSTEM, "descriptor");
    else if (came > 0)
        o = report_refusal(t, &p);
    close_fd(t, passed);
    return o;
}

/* Takes what the host gives, until it asks. */
static outcome take_links(meeting *t, int fd)
{
    const usm__group_meeting *m = t->m;
    packet                    p = {.magic = 0};
    int                       passed;

    do {
        if (!wait_for_host(t, fd))
            return report_late(t);
        if (receive_packet(t, fd, &p, &passed) <= 0 || p.magic != MAGIC ||
            p.release != m->release || p.rank >= m->size || (p.kind != LINK && p.kind != ASK)) {
            close_fd(t, passed);
            return AGAIN;
        }
        errno = EMFILE;
        if (m->link && passed < 0)
            return fail(t, USM_E_SYSTEM, "descriptor");
        if (m->link)
            m->link(m->user, p.rank, passed);
        else
            close_fd(t, passed);
    } while (p.kind != ASK);
    return GO_ON;
}

static outcome vote(meeting *t, int fd)
{
    uint32_t open = OPEN;
    bool     is_in_time;

    if (!send_packet(t->m, fd, (packet){.kind = VOTE}, -1))
        return AGAIN;
    is_in_time = wait_for_host(t, fd);
    if (!is_in_time)
        (void)usm_cas_acq_rel(&t->page->word, &open, (uint32_t)ABANDONED);
    /* acquire: what the host wrote before the word */
    if (usm_load_acquire(&t->page->word) == COMPLETE)
        return MET;
    return is_in_time ? AGAIN : report_late(t);
}

static outcome run_client(meeting *t, int fd)
{
    outcome o = join(t, fd);

    if (o == GO_ON)
        o = take_links(t, fd);
    if (o == GO_ON)
        o = vote(t, fd);
    close_fd(t, fd);
    return o;
}

/* ---- both ------------------------------------------------------------------------------------ */

static outcome try_once(meeting *t)
{
    int fd = t->os->socket_connect(t->m->name, 1);

    if (fd >= 0)
        return run_client(t, fd);
    if (errno == ECONNREFUSED) {
        fd = t->os->socket_listen(t->m->name);
        if (fd >= 0)
            return run_host(t, fd);
    }
    /* The host's queue is full; or the name is bound, and its socket does not listen yet. */
    return errno == EAGAIN || errno == EADDRINUSE ? AGAIN : fail(t, USM_E_SYSTEM, "socket");
}

static void drop_links(const usm__group_meeting *m)
{
    for (uint32_t r = 0; m->link && r < m->size; r++)
        m->link(m->user, r, -1);
}

/* Where the shared bytes begin in the page. */
static size_t shared_at(uint32_t size)
{
    return (sizeof(usm__group_page) + size * sizeof(member) + 63) & ~(size_t)63;
}

usm_status usm__group_meet(const usm__group_meeting *m, usm__group *g)
{
    meeting t = {.m = m, .os = m->api->os, .deadline = UINT64_MAX, .page_fd = -1};
    outcome o = AGAIN;

    if (m->timeout_ms != UINT32_MAX)
        t.deadline = now_ns() + (uint64_t)m->timeout_ms * 1000000u;
    t.page_size = shared_at(m->size) + m->shared_size;
    t.room      = m->size + STRANGERS;
    t.list      = m->api->heap_alloc(t.room * sizeof *t.list);
    t.clients   = m->api->heap_alloc(t.room * sizeof *t.clients);
    errno       = ENOMEM;
    if (!t.list || !t.clients)
        o = fail(&t, USM_E_NO_MEMORY, "host memory");
    while (o == AGAIN && (o = try_once(&t)) == AGAIN) {
        drop_links(m);
        if (is_over(&t))
            o = report_late(&t);
        else
            rest(&t);
    }
    m->api->heap_free(t.list);
    m->api->heap_free(t.clients);
    if (o == MET) {
        *g = (usm__group){t.page, t.page_size};
        return USM_OK;
    }
    drop_links(m);
    drop_page(&t);
    return t.status;
}

const void *usm__group_hello(const usm__group *g, uint32_t rank)
{
    return g->page->members[rank].hello;
}

void *usm__group_shared(const usm__group *g)
{
    return (char *)g->page + shared_at(g->page->size);
}

bool usm__group_turn_away(const usm__group_meeting *m, int listener)
{
    int fd = m->api->os->socket_accept(listener);

    if (fd < 0)
        return errno == EAGAIN || errno == ECONNABORTED;
    if (is_ours(m->api->os, fd))
        (void)send_packet(m, fd, (packet){.kind = REFUSED, .hello = "it is complete"}, -1);
    (void)m->api->os->close(fd);
    return true;
}
