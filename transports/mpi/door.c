/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The listener ("door") of memory servers that programs join by name: a socket of their rank 0,
 * whose address is published.
 *
 *     program                          listener
 *        <------ HELLO: nonce -----------
 *        ------- KNOCK: nonce, proof --->
 *        <------ ANSWER: verdict, proof, MPI's port
 *        ------- ENTER ----------------->   both sides call MPI now
 *
 * Why not MPI alone: MPI_Comm_accept() spins while it waits, MPI_Comm_connect() waits for ever or
 * for minutes for servers that are gone, and neither asks for a key.  Here strangers are refused
 * before MPI is involved, every wait has a deadline, and accept is called when a client is there.
 *
 * Messages have fixed sizes and byte order.  The proofs are HMAC-SHA-256 under the job's key over
 * both nonces; the key is never sent.  The protocol asks a program again for proof when it joins
 * (transports/far).  Called by names.c (programs) and hall.c (servers), one thread each. */
#include "internal.h"

#include "base/inline/bytes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAGIC       UINT32_C(0x444d5355) /* "USMD" */
#define VERSION     1u
#define ID_SIZE     8
#define HELLO_SIZE  64
#define KNOCK_SIZE  96
#define ANSWER_SIZE (64 + MPI_PORT_SIZE)
#define ENTER_SIZE  8
#define VISITORS    16
#define VISIT_NS    (5000 * NS_PER_MS) /* for everything that a client has to send */
#define REACH_NS    (2000 * NS_PER_MS) /* for one of the addresses of a listener */
#define REST_NS     25000000l          /* pause when no connection can be accepted */

enum { HELLO = 1, KNOCK, ANSWER, ENTER };
enum { WELCOME = 1, WRONG_KEY, FULL, CLOSED };

typedef struct visitor {
    int           fd; /* -1: none */
    uint64_t      until;
    size_t        n; /* bytes of `in` received so far */
    bool          is_let_in;
    unsigned char nonce[MPI_NONCE_SIZE], in[KNOCK_SIZE];
} visitor;

struct mpi_door {
    const usm_host_api *api;
    int                 fd;
    uint16_t            port;
    unsigned char       id[ID_SIZE];
    visitor             visitors[VISITORS];
};

/* ---- messages ------------------------------------------------------------------------- */

static void begin(unsigned char *p, size_t size, unsigned kind)
{
    memset(p, 0, size);
    usm_put_le(p, MAGIC, 4);
    usm_put_le(p + 4, VERSION, 2);
    usm_put_le(p + 6, kind, 2);
}

static bool is_kind(const unsigned char *p, unsigned kind)
{
    return usm_get_le(p, 4) == MAGIC && usm_get_le(p + 4, 2) == VERSION &&
           usm_get_le(p + 6, 2) == kind;
}

/* Proves the key over the nonces: that of the side that asks, then the prover's. */
static bool prove(const mpi_doorkeeper *k, unsigned kind, const unsigned char *asker,
                  const unsigned char *prover, const char *port, unsigned char mac[MPI_MAC_SIZE])
{
    unsigned char text[64 + MPI_PORT_SIZE] = "usm-memd door";

    memset(mac, 0, MPI_MAC_SIZE);
    if (!k->key)
        return true;
    text[16] = (unsigned char)kind;
    memcpy(text + 20, asker, MPI_NONCE_SIZE);
    memcpy(text + 40, prover, MPI_NONCE_SIZE);
    (void)snprintf((char *)text + 64, MPI_PORT_SIZE, "%s", port);
    return mpi_hmac(k->key, k->key_size, text, sizeof(text), mac);
}

/* ---- opening --------------------------------------------------------------------------- */

/* One socket for both families if there is IPv6. */
static int listen_at(uint16_t *port)
{
    struct sockaddr_in6 six  = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct sockaddr_in  four = {.sin_family = AF_INET};
    struct sockaddr_in6 got  = {0};
    socklen_t           size = sizeof(got);
    const int           off  = 0;
    int                 fd   = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0 ||
                    bind(fd, (struct sockaddr *)&six, sizeof(six)) != 0)) {
        (void)close(fd);
        fd = -1;
    }
    if (fd < 0) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && bind(fd, (struct sockaddr *)&four, sizeof(four)) != 0) {
            (void)close(fd);
            fd = -1;
        }
    }
    if (fd < 0)
        return -1;
    if (listen(fd, VISITORS) != 0 || getsockname(fd, (struct sockaddr *)&got, &size) != 0) {
        (void)close(fd);
        return -1;
    }
    *port = ntohs(got.sin6_port); /* at the same offset in both families */
    return fd;
}

usm_status mpi_door_open(const usm_host_api *api, mpi_door **door)
{
    mpi_door *d = api->heap_alloc(sizeof(*d));

    if (!d)
        return api->report(USM_E_NO_MEMORY, "no memory for a listener");
    d->api = api;
    for (size_t i = 0; i < VISITORS; i++)
        d->visitors[i].fd = -1;
    d->fd = listen_at(&d->port);
    if (d->fd < 0 || !mpi_random(d->id, sizeof(d->id))) {
        const int error = errno;

        if (d->fd >= 0)
            (void)close(d->fd);
        api->heap_free(d);
        return api->report(USM_E_SYSTEM, "programs cannot be listened for: error %d of socket()",
                           error);
    }
    *door = d;
    return USM_OK;
}

static void end_visit(visitor *v)
{
    if (v->fd >= 0)
        (void)close(v->fd);
    memset(v, 0, sizeof(*v));
    v->fd = -1;
}

void mpi_door_close(mpi_door *door)
{
    if (!door)
        return;
    for (size_t i = 0; i < VISITORS; i++)
        end_visit(&door->visitors[i]);
    (void)close(door->fd);
    door->api->heap_free(door);
}

/* Addresses for other machines first, those of this machine last: loopback addresses would lead
 * clients of other machines to themselves, where they find another id, or no listener. */
static void add_addresses(char *text, size_t cap, bool is_loopback)
{
    struct ifaddrs *list = NULL;

    if (getifaddrs(&list) != 0)
        return;
    for (struct ifaddrs *a = list; a; a = a->ifa_next) {
        const size_t used = strlen(text);
        char         one[INET6_ADDRSTRLEN];
        const void  *bytes;

        if (!a->ifa_addr || !(a->ifa_flags & IFF_UP) ||
            ((a->ifa_flags & IFF_LOOPBACK) != 0) != is_loopback)
            continue;
        if (a->ifa_addr->sa_family == AF_INET)
            bytes = &((struct sockaddr_in *)(void *)a->ifa_addr)->sin_addr;
        else if (a->ifa_addr->sa_family == AF_INET6 &&
                 !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)(void *)a->ifa_addr)->sin6_addr))
            bytes = &((struct sockaddr_in6 *)(void *)a->ifa_addr)->sin6_addr;
        else
            continue;
        if (inet_ntop(a->ifa_addr->sa_family, bytes, one, sizeof(one)) &&
            used + strlen(one) + 2 <= cap)
            (void)snprintf(text + used, cap - used, "/%s", one);
    }
    freeifaddrs(list);
}

/* "usm1/ID/PORT/HOST/ADDRESS/ADDRESS...": no blanks and no characters that a name server
 * interprets. */
void mpi_door_describe(const mpi_door *door, char address[MPI_ADDRESS_SIZE])
{
    char host[64] = "?";

    (void)gethostname(host, sizeof(host) - 1);
    host[strcspn(host, "/ ;=")] = '\0';
    (void)snprintf(address, MPI_ADDRESS_SIZE, "usm1/%016llx/%u/%s",
                   (unsigned long long)usm_get_le(door->id, ID_SIZE), door->port, host);
    add_addresses(address, MPI_ADDRESS_SIZE - 16, false);
    add_addresses(address, MPI_ADDRESS_SIZE, true);
}

/* ---- clients ------------------------------------------------------------------------------- */

/* Sends without waiting: the socket has room, or its client is not worth waiting for. */
static bool say(const visitor *v, const unsigned char *p, size_t size)
{
    return send(v->fd, p, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
}

static void let_knock(mpi_door *d, const mpi_doorkeeper *k)
{
    unsigned char hello[HELLO_SIZE];
    visitor      *v = NULL;
    int           fd;

    for (size_t i = 0; i < VISITORS && !v; i++)
        if (d->visitors[i].fd < 0)
            v = &d->visitors[i];
    fd = v ? accept4(d->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
    /* Without descriptors or memory the client stays in the queue, and poll() would return at
     * once. */
    if (v && fd < 0 && errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
        (void)nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
    if (fd < 0)
        return;
    v->fd    = fd;
    v->until = mpi_now() + VISIT_NS;
    begin(hello, sizeof(hello), HELLO);
    hello[8] = k->key != NULL;
    memcpy(hello + 16, d->id, ID_SIZE);
    if (!mpi_random(v->nonce, sizeof(v->nonce))) {
        end_visit(v);
        return;
    }
    memcpy(hello + 24, v->nonce, sizeof(v->nonce));
    if (!say(v, hello, sizeof(hello)))
        end_visit(v);
}

/* A client was admitted and is connecting; others wait for it. */
static bool is_passage_taken(const mpi_door *d)
{
    for (size_t i = 0; i < VISITORS; i++)
        if (d->visitors[i].fd >= 0 && d->visitors[i].is_let_in)
            return true;
    return false;
}

static unsigned judge(mpi_door *d, const mpi_doorkeeper *k, visitor *v)
{
    unsigned char mac[MPI_MAC_SIZE];

    if ((v->in[8] != 0) != (k->key != NULL) || !prove(k, KNOCK, v->nonce, v->in + 16, "", mac) ||
        !mpi_is_same_mac(mac, v->in + 32)) {
        k->api->log(USM_LOG_WARN,
                    "a program was turned away: it has %s key of the job (USM_JOB_KEY)",
                    v->in[8] ? "another" : "no");
        return WRONG_KEY;
    }
    if (k->is_closed)
        return CLOSED;
    return k->is_full || is_passage_taken(d) ? FULL : WELCOME;
}

static void answer(mpi_door *d, const mpi_doorkeeper *k, visitor *v)
{
    const unsigned verdict = judge(d, k, v);
    unsigned char  text[ANSWER_SIZE];
    bool           is_proven;

    begin(text, sizeof(text), ANSWER);
    usm_put_le(text + 8, verdict, 4);
    if (verdict == WELCOME)
        (void)snprintf((char *)text + 64, MPI_PORT_SIZE, "%s", k->port);
    is_proven = prove(k, ANSWER + verdict, v->in + 16, v->nonce, (char *)text + 64, text + 16);
    if (is_proven && say(v, text, sizeof(text)) && verdict == WELCOME) {
        v->is_let_in = true;
        v->n         = 0;
        return;
    }
    (void)shutdown(v->fd, SHUT_WR);
    end_visit(v);
}

/* True: the client connects to MPI's port now. */
static bool listen_to(mpi_door *d, const mpi_doorkeeper *k, visitor *v)
{
    const size_t want = v->is_let_in ? ENTER_SIZE : KNOCK_SIZE;
    ssize_t      n    = recv(v->fd, v->in + v->n, want - v->n, MSG_DONTWAIT);

    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            end_visit(v);
        return false;
    }
    v->n += (size_t)n;
    if (v->n < want)
        return false;
    if (!is_kind(v->in, v->is_let_in ? ENTER : KNOCK)) {
        end_visit(v);
        return false;
    }
    if (!v->is_let_in) {
        answer(d, k, v);
        return false;
    }
    end_visit(v);
    return true;
}

bool mpi_door_keep(mpi_door *door, const mpi_doorkeeper *keeper, int timeout_ms)
{
    struct pollfd  polled[1 + VISITORS];
    const visitor *none = NULL;

    polled[0] = (struct pollfd){.fd = door->fd, .events = POLLIN};
    for (size_t i = 0; i < VISITORS; i++) {
        if (door->visitors[i].fd >= 0 && mpi_now() > door->visitors[i].until)
            end_visit(&door->visitors[i]);
        polled[1 + i] = (struct pollfd){.fd = door->visitors[i].fd, .events = POLLIN};
        none          = door->visitors[i].fd < 0 ? &door->visitors[i] : none;
    }
    if (!none) /* the others wait in the queue of the socket */
        polled[0].fd = -1;
    if (poll(polled, 1 + VISITORS, timeout_ms) <= 0)
        return false;
    for (size_t i = 0; i < VISITORS; i++)
        if (door->visitors[i].fd >= 0 && polled[1 + i].revents &&
            listen_to(door, keeper, &door->visitors[i]))
            return true; /* `keeper` does not include this client: the next call judges the
                            others */
    if (polled[0].revents & POLLIN)
        let_knock(door, keeper);
    return false;
}

/* ---- the program's side -------------------------------------------------------------------- */

/* The parts of an address. */
typedef struct place {
    unsigned char id[ID_SIZE];
    uint16_t      port;
    char          host[64];
    char          list[MPI_ADDRESS_SIZE]; /* ADDRESS/ADDRESS... */
} place;

static bool parse(const char *address, place *p)
{
    unsigned long long id;
    char              *at;
    size_t             n;

    if (strncmp(address, "usm1/", 5) != 0)
        return false;
    id = strtoull(address + 5, &at, 16);
    if (*at != '/')
        return false;
    usm_put_le(p->id, id, ID_SIZE);
    p->port = (uint16_t)strtoul(at + 1, &at, 10);
    if (*at != '/' || p->port == 0)
        return false;
    n = strcspn(++at, "/");
    if (n >= sizeof(p->host) || at[n] != '/')
        return false;
    (void)snprintf(p->host, sizeof(p->host), "%.*s", (int)n, at);
    (void)snprintf(p->list, sizeof(p->list), "%s", at + n + 1);
    return true;
}

/* Waits for `events`; false: not in time. */
static bool wait_fd(int fd, short events, uint64_t until)
{
    for (;;) {
        struct pollfd  p   = {.fd = fd, .events = events};
        const uint64_t now = mpi_now();
        const int      ms  = now < until ? (int)((until - now) / NS_PER_MS) + 1 : 0;
        const int      n   = poll(&p, 1, ms);

        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR)
            return false;
    }
}

static int connect_to(const char *text, uint16_t port, uint64_t until)
{
    struct sockaddr_in6 six  = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in  four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr    *to   = (struct sockaddr *)&four;
    socklen_t           size = sizeof(four), n = sizeof(int);
    int                 fd, error              = 0;

    if (inet_pton(AF_INET, text, &four.sin_addr) != 1) {
        if (inet_pton(AF_INET6, text, &six.sin6_addr) != 1)
            return -1;
        to   = (struct sockaddr *)&six;
        size = sizeof(six);
    }
    fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, to, size) != 0 &&
        (errno != EINPROGRESS || !wait_fd(fd, POLLOUT, until) ||
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0 || error != 0)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static bool hear(int fd, unsigned char *p, size_t size, uint64_t until)
{
    for (size_t got = 0; got < size;) {
        ssize_t n;

        if (!wait_fd(fd, POLLIN, until))
            return false;
        n = recv(fd, p + got, size - got, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        got += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns a socket at which the right server has sent HELLO; -1: none has; *is_other: one of
 * another release. */
static int reach(const place *p, uint64_t until, unsigned char hello[HELLO_SIZE], bool *is_other)
{
    char  list[MPI_ADDRESS_SIZE], *rest = NULL;
    char *one;
    int   fd;

    memcpy(list, p->list, sizeof(list));
    for (one = strtok_r(list, "/", &rest); one; one = strtok_r(NULL, "/", &rest)) {
        const uint64_t soon = sooner(until, mpi_now() + REACH_NS);

        fd = connect_to(one, p->port, soon);
        if (fd < 0)
            continue;
        /* The server may be stopped for a moment: HELLO may take the whole time. */
        if (hear(fd, hello, HELLO_SIZE, until) && usm_get_le(hello, 4) == MAGIC &&
            memcmp(hello + 16, p->id, ID_SIZE) == 0) {
            *is_other = !is_kind(hello, HELLO);
            if (!*is_other)
                return fd;
        }
        (void)close(fd);
    }
    return -1;
}

static usm_status refused(const mpi_doorkeeper *who, const place *p, unsigned verdict,
                          bool they_have_key)
{
    switch (verdict) {
    case WRONG_KEY:
        return who->api->report(
            USM_E_KEY, "usm-memd on %s %s; give both the same USM_JOB_KEY or USM_JOB_KEY_FILE",
            p->host,
            who->key && they_have_key ? "has another key of the job than this program"
            : they_have_key           ? "asks for the job's key, and this program has none"
                                      : "has no key of the job, and this program has one");
    case FULL:
        return who->api->report(
            USM_E_BUSY,
            "usm-memd on %s already has as many programs as --at-once allows; start it with a "
            "larger --at-once N, or give USM_MPI_JOIN_TIMEOUT more time",
            p->host);
    case CLOSED:
        return who->api->report(USM_E_PEER,
                                "usm-memd on %s takes no programs any more: it ends, or one of its "
                                "processes has ended; start it again",
                                p->host);
    default:
        return who->api->report(USM_E_PEER,
                                "the program that listens at usm-memd's port on %s is not usm-memd",
                                p->host);
    }
}

static usm_status talk(const mpi_doorkeeper *who, const place *p, int fd,
                       const unsigned char *hello, uint64_t until, char *port)
{
    unsigned char knock[KNOCK_SIZE], text[ANSWER_SIZE], mac[MPI_MAC_SIZE];
    unsigned      verdict;

    begin(knock, sizeof(knock), KNOCK);
    knock[8] = who->key != NULL;
    if (!mpi_random(knock + 16, MPI_NONCE_SIZE) ||
        !prove(who, KNOCK, hello + 24, knock + 16, "", knock + 32))
        return who->api->report(USM_E_SYSTEM, "no proof of the job's key could be made");
    if (send(fd, knock, sizeof(knock), MSG_NOSIGNAL) != (ssize_t)sizeof(knock) ||
        !hear(fd, text, sizeof(text), until) || !is_kind(text, ANSWER))
        return who->api->report(USM_E_PEER,
                                "usm-memd on %s does not answer: it hangs, has ended, or is not "
                                "the one that published the name",
                                p->host);
    verdict               = (unsigned)usm_get_le(text + 8, 4);
    text[ANSWER_SIZE - 1] = '\0';
    if (verdict != WELCOME)
        return refused(who, p, verdict, hello[8] != 0);
    if ((who->key != NULL) != (hello[8] != 0) ||
        !prove(who, ANSWER + verdict, knock + 16, hello + 24, (char *)text + 64, mac) ||
        !mpi_is_same_mac(mac, text + 16))
        return refused(who, p, WRONG_KEY, hello[8] != 0);
    (void)snprintf(port, MPI_PORT_SIZE, "%s", (char *)text + 64);
    return USM_OK;
}

usm_status mpi_door_knock(const mpi_doorkeeper *who, const char *address, uint64_t until,
                          char port[MPI_PORT_SIZE], int *fd)
{
    unsigned char hello[HELLO_SIZE];
    bool          is_other = false;
    place         p;
    usm_status    st;

    if (!parse(address, &p))
        return who->api->report(USM_E_PEER,
                                "the name was published by something else than usm-memd, or by "
                                "another release of it");
    *fd = reach(&p, until, hello, &is_other);
    if (*fd < 0 && is_other)
        return who->api->report(USM_E_ABI,
                                "usm-memd on %s is of another release; run one release in the "
                                "program and in usm-memd",
                                p.host);
    if (*fd < 0)
        return who->api->report(
            USM_E_PEER,
            "the name was published by a usm-memd on %s that does not answer at "
            "port %u: it has ended, hangs, or a firewall is between; start it "
            "again",
            p.host, p.port);
    st = talk(who, &p, *fd, hello, until, port);
    if (st != USM_OK)
        (void)close(*fd);
    return st;
}

void mpi_door_enter(int fd)
{
    unsigned char enter[ENTER_SIZE];

    begin(enter, sizeof(enter), ENTER);
    (void)send(fd, enter, sizeof(enter), MSG_NOSIGNAL);
    (void)close(fd);
}
