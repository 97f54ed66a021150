/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What `usm-bench mpi` compares with: MPI's own streams and round trips between ranks 0 and 1, a
 * socket between them, memcpy().  No libusm here.  Called by mpi_worker.c; see mpi_worker.h. */
#include "mpi_worker.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TAG_DATA   11
#define TAG_READY  12
#define TAG_PORT   13
#define PINGS      400
#define PING_BURST 8

static double mib_per_s(size_t bytes, uint64_t began)
{
    return (double)bytes / (double)MIB_BYTES / ((double)(bench_now_ns() - began) * 1e-9);
}

static char *at(size_t i, size_t size)
{
    return run.arena + i * size % run.bytes;
}

/* ---- streams ------------------------------------------------------------------------- */

/* n messages, DEPTH of them in flight; the last has arrived. */
static void stream(int peer, size_t n, size_t size, bool is_sending)
{
    MPI_Request requests[DEPTH];
    char        byte = 0;

    for (size_t i = 0; i < DEPTH; i++)
        requests[i] = MPI_REQUEST_NULL;
    for (size_t i = 0; i < n; i++) {
        MPI_Request *r = &requests[i % DEPTH];

        MPI_Wait(r, MPI_STATUS_IGNORE);
        if (is_sending)
            MPI_Isend(at(i, size), (int)size, MPI_BYTE, peer, TAG_DATA, run.comm, r);
        else
            MPI_Irecv(at(i, size), (int)size, MPI_BYTE, peer, TAG_DATA, run.comm, r);
    }
    for (size_t i = 0; i < DEPTH; i++)
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    if (is_sending)
        MPI_Recv(&byte, 1, MPI_BYTE, peer, TAG_READY, run.comm, MPI_STATUS_IGNORE);
    else
        MPI_Send(&byte, 1, MPI_BYTE, peer, TAG_READY, run.comm);
}

double peer_stream(size_t size, bool is_fetch)
{
    const size_t n = run.bytes / size;
    uint64_t     began;

    mpi_ask(1, is_fetch ? ASK_SEND : ASK_RECEIVE, (int64_t)n, (int64_t)size);
    began = bench_now_ns();
    stream(1, n, size, !is_fetch);
    return mib_per_s(run.bytes, began);
}

/* ---- round trips --------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* In short bursts, as what else the machine does falls into few of them. */
double peer_ping(void)
{
    static double us[PINGS];
    char          bytes[8] = {0};

    mpi_ask(1, ASK_PONG, (int64_t)PINGS * PING_BURST, 8);
    for (int i = 0; i < PINGS; i++) {
        uint64_t began = bench_now_ns();

        for (int k = 0; k < PING_BURST; k++) {
            MPI_Send(bytes, 8, MPI_BYTE, 1, TAG_DATA, run.comm);
            MPI_Recv(bytes, 8, MPI_BYTE, 1, TAG_DATA, run.comm, MPI_STATUS_IGNORE);
        }
        us[i] = (double)(bench_now_ns() - began) * 1e-3 / PING_BURST;
    }
    qsort(us, PINGS, sizeof *us, compare_doubles);
    return us[PINGS / 2];
}

static void pong(int64_t n)
{
    char bytes[8];

    for (int64_t i = 0; i < n; i++) {
        MPI_Recv(bytes, 8, MPI_BYTE, 0, TAG_DATA, run.comm, MPI_STATUS_IGNORE);
        MPI_Send(bytes, 8, MPI_BYTE, 0, TAG_DATA, run.comm);
    }
}

/* ---- memcpy -------------------------------------------------------------------------- */

double peer_memcpy(size_t size)
{
    static char *other;
    uint64_t     began;

    if (!other && (other = aligned_alloc(PAGE, run.bytes)))
        memset(other, 1, run.bytes);
    if (!other)
        return 0;
    began = bench_now_ns();
    for (size_t i = 0; i < run.bytes / size; i++)
        memcpy(at(i, size), other + i * size, size);
    return mib_per_s(run.bytes, began);
}

/* ---- a socket ------------------------------------------------------------------------ */

static int listen_at(struct sockaddr_in *where)
{
    const char *net = getenv("LAUNCH_NET"); /* NOLINT(concurrency-mt-unsafe): nobody sets it */
    char        text[64];
    socklen_t   size = sizeof *where;
    int         fd   = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(text, sizeof text, net ? "%.40s.2" : "%s127.0.0.1", net ? net : "");
    *where = (struct sockaddr_in){.sin_family = AF_INET};
    if (fd < 0 || inet_pton(AF_INET, text, &where->sin_addr) != 1 ||
        bind(fd, (struct sockaddr *)where, sizeof *where) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)where, &size) != 0) {
        where->sin_port = 0;
        perror("usm-bench mpi: a socket");
    }
    return fd;
}

bool peer_connect(void)
{
    struct sockaddr_in where = {0};
    int                one = 1, fd = -1;

    if (run.rank == 1) {
        fd = listen_at(&where);
        MPI_Send(&where, (int)sizeof where, MPI_BYTE, 0, TAG_PORT, run.comm);
        if (where.sin_port != 0)
            run.sock = accept(fd, NULL, NULL);
        close(fd);
    } else if (run.rank == 0) {
        MPI_Recv(&where, (int)sizeof where, MPI_BYTE, 1, TAG_PORT, run.comm, MPI_STATUS_IGNORE);
        run.sock = where.sin_port != 0 ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
        if (run.sock >= 0 && connect(run.sock, (struct sockaddr *)&where, sizeof where) != 0) {
            close(run.sock);
            run.sock = -1;
        }
    }
    return run.sock >= 0 && setsockopt(run.sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0;
}

static bool move_block(char *data, size_t size, bool is_sending)
{
    while (size > 0) {
        ssize_t n =
            is_sending ? send(run.sock, data, size, MSG_NOSIGNAL) : recv(run.sock, data, size, 0);

        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

static bool stream_socket(size_t n, size_t size, bool is_sending)
{
    char byte = 0;
    bool ok   = true;

    for (size_t i = 0; ok && i < n; i++)
        ok = move_block(at(i, size), size, is_sending);
    return ok && move_block(&byte, 1, !is_sending);
}

double peer_socket(size_t size, bool is_fetch)
{
    const size_t n = run.bytes / size;
    uint64_t     began;

    if (run.sock < 0)
        return 0;
    mpi_ask(1, is_fetch ? ASK_SOCKET_SEND : ASK_SOCKET_RECEIVE, (int64_t)n, (int64_t)size);
    began = bench_now_ns();
    return stream_socket(n, size, !is_fetch) ? mib_per_s(run.bytes, began) : 0;
}

void peer_obey(const mpi_order *o)
{
    if (o->what == ASK_PONG)
        pong(o->n);
    else if (o->what == ASK_SEND || o->what == ASK_RECEIVE)
        stream(0, (size_t)o->n, (size_t)o->size, o->what == ASK_SEND);
    else
        (void)stream_socket((size_t)o->n, (size_t)o->size, o->what == ASK_SOCKET_SEND);
}
