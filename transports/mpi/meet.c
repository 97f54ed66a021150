/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which processes take part in a job, and on which communicator.
 *
 *     app_comm() or attach()   mpi_meet: duplicate, report the purpose (server or program)
 *     attach(), or the end     mpi_exchange: a record each; mpi_gather_present: the link's own
 *
 * The program may attach long after the servers of its launch, or never.  The servers sleep
 * meanwhile, and a process that finalises MPI without having attached says so in the same exchange
 * (attach.c).  Records have fixed widths, little-endian, their version first. */
#include "internal.h"

#include "base/inline/bytes.h"

#include <stdio.h>
#include <time.h>

#define MAGIC       UINT32_C(0x4d4d5355) /* "USMM" */
#define HELLO_SIZE  16
#define RECORD_SIZE 128

/* ---- collectives -------------------------------------------------------------------- */

/* Waits until all processes are there, however long that takes; asleep for the most part. */
static usm_status wait_for(const usm_host_api *api, MPI_Request *request, const char *what)
{
    struct timespec pause = {.tv_nsec = 20000};
    int             flag  = 0;

    for (;;) {
        usm_status st = mpi_check(api, MPI_Test(request, &flag, MPI_STATUS_IGNORE), what);

        if (st != USM_OK || flag)
            return st;
        (void)nanosleep(&pause, NULL);
        if (pause.tv_nsec < 5000000)
            pause.tv_nsec += pause.tv_nsec / 16;
    }
}

static usm_status allgather(const mpi_meeting *m, const void *mine, size_t size, void *all)
{
    MPI_Request request;
    usm_status  st = mpi_check(
         m->api,
         MPI_Iallgather(mine, (int)size, MPI_BYTE, all, (int)size, MPI_BYTE, m->whole, &request),
         "MPI_Iallgather");

    /* By MPI_Test, which the checker does not count. */
    return st == USM_OK ? wait_for(m->api, &request, "MPI_Iallgather") /* NOLINT */ : st;
}

static usm_status look_at_hellos(mpi_meeting *m, const unsigned char *all)
{
    bool attaching = false;

    for (int i = 0; i < m->size; i++) {
        const unsigned char *p = all + (size_t)i * HELLO_SIZE;

        if (usm_get_le(p, 4) != MAGIC || usm_get_le(p + 4, 4) != MPI_WIRE_VERSION)
            return m->api->report(
                USM_E_ABI,
                "rank %d has another libusm, which talks version %llu and not %u; "
                "run one release in all ranks and usm-memd",
                i, (unsigned long long)usm_get_le(p + 4, 4), MPI_WIRE_VERSION);
        m->is_split |= p[8] == MPI_MEET_SPLIT;
        attaching |= p[8] == MPI_MEET_ATTACH;
    }
    if (attaching && m->is_split)
        return m->api->report(USM_E_MPI, "some ranks call usm_mpi_app_comm() and others attach "
                                         "without; it is called by all or by none");
    return USM_OK;
}

usm_status mpi_meet(const usm_host_api *api, MPI_Comm comm, mpi_purpose purpose, mpi_meeting *m)
{
    mpi_meeting    found = {.api = api, .whole = MPI_COMM_NULL, .program = MPI_COMM_NULL};
    unsigned char  mine[HELLO_SIZE] = {0};
    unsigned char *all;
    MPI_Request    request;
    usm_status     st;

    st = mpi_check(api, MPI_Comm_idup(comm, &found.whole, &request), "MPI_Comm_idup");
    if (st == USM_OK)
        st = wait_for(api, &request, "MPI_Comm_idup");
    if (st == USM_OK)
        st = mpi_own_errors(api, found.whole);
    if (st == USM_OK)
        st = mpi_check(api, MPI_Comm_rank(found.whole, &found.rank), "MPI_Comm_rank");
    if (st == USM_OK)
        st = mpi_check(api, MPI_Comm_size(found.whole, &found.size), "MPI_Comm_size");
    if (st != USM_OK)
        return st;
    all = api->heap_alloc((size_t)found.size * HELLO_SIZE);
    if (!all)
        return api->report(USM_E_NO_MEMORY, "no memory for what %d ranks say", found.size);
    usm_put_le(mine, MAGIC, 4);
    usm_put_le(mine + 4, MPI_WIRE_VERSION, 4);
    mine[8] = (unsigned char)purpose;
    st      = allgather(&found, mine, sizeof(mine), all);
    if (st == USM_OK)
        st = look_at_hellos(&found, all);
    api->heap_free(all);
    if (st == USM_OK)
        *m = found;
    return st;
}

/* ---- records ------------------------------------------------------------------------- */

static void pack(const mpi_record *r, unsigned char *p)
{
    memset(p, 0, RECORD_SIZE);
    usm_put_le(p, MAGIC, 4);
    usm_put_le(p + 4, MPI_WIRE_VERSION, 4);
    usm_put_le(p + 8, (uint32_t)r->refusal, 4);
    usm_put_le(p + 12, r->rank, 4);
    usm_put_le(p + 16, r->lend, 8);
    p[24] = r->is_present;
    p[25] = r->is_server;
    p[26] = r->has_key;
    memcpy(p + 32, r->nonce, MPI_NONCE_SIZE);
    (void)snprintf((char *)p + 48, 64, "%s", r->domain);
    usm_put_le(p + 112, r->host, 8);
    usm_put_le(p + 120, r->bell[0], 4);
    usm_put_le(p + 124, r->bell[1], 4);
}

static void unpack(const unsigned char *p, mpi_record *r)
{
    r->version    = (uint32_t)usm_get_le(p + 4, 4);
    r->refusal    = (int32_t)(uint32_t)usm_get_le(p + 8, 4);
    r->rank       = (uint32_t)usm_get_le(p + 12, 4);
    r->lend       = usm_get_le(p + 16, 8);
    r->is_present = p[24] != 0;
    r->is_server  = p[25] != 0;
    r->has_key    = p[26] != 0;
    memcpy(r->nonce, p + 32, MPI_NONCE_SIZE);
    memcpy(r->domain, p + 48, sizeof(r->domain) - 1);
    r->domain[sizeof(r->domain) - 1] = '\0';
    r->host                          = usm_get_le(p + 112, 8);
    r->bell[0]                       = (uint32_t)usm_get_le(p + 120, 4);
    r->bell[1]                       = (uint32_t)usm_get_le(p + 124, 4);
}

usm_status mpi_exchange(mpi_meeting *m, const mpi_record *mine, mpi_record *all)
{
    unsigned char  packed[RECORD_SIZE];
    unsigned char *bytes = m->api->heap_alloc((size_t)m->size * RECORD_SIZE);
    usm_status     st;

    if (!bytes)
        return m->api->report(USM_E_NO_MEMORY, "no memory for the records of %d ranks", m->size);
    pack(mine, packed);
    st = allgather(m, packed, sizeof(packed), bytes);
    for (int i = 0; st == USM_OK && i < m->size; i++)
        unpack(bytes + (size_t)i * RECORD_SIZE, &all[i]);
    m->api->heap_free(bytes);
    return st;
}

/* ---- the link's communicator ------------------------------------------------------------ */

/* The order of members: the program's ranks in its own order, then servers. */
static int key_of(const mpi_meeting *m, const mpi_record *r, int rank)
{
    return r->is_server ? m->size + rank : (int)r->rank;
}

static uint32_t list_peers(const mpi_meeting *m, const mpi_record *all, uint32_t *peers)
{
    uint32_t n = 0;

    for (int i = 0; i < m->size; i++)
        peers[i] = UINT32_MAX;
    for (int i = 0; i < m->size; i++)
        if (all[i].is_present && !all[i].is_server && all[i].rank < (uint32_t)m->size)
            peers[all[i].rank] = (uint32_t)i;
    for (int i = 0; i < m->size; i++)
        if (peers[i] != UINT32_MAX)
            peers[n++] = peers[i];
    for (int i = 0; i < m->size; i++)
        if (all[i].is_present && all[i].is_server)
            peers[n++] = (uint32_t)i;
    return n;
}

usm_status mpi_gather_present(mpi_meeting *m, const mpi_record *all, MPI_Comm *comm,
                              uint32_t **peers, uint32_t *count)
{
    const mpi_record *mine  = &all[m->rank];
    MPI_Comm          found = MPI_COMM_NULL;
    uint32_t         *list  = m->api->heap_alloc((size_t)m->size * sizeof(*list));
    usm_status        st;

    if (!list)
        return m->api->report(USM_E_NO_MEMORY, "no memory for the list of %d ranks", m->size);
    st = mpi_check(m->api,
                   MPI_Comm_split(m->whole, mine->is_present ? 0 : MPI_UNDEFINED,
                                  key_of(m, mine, m->rank), &found),
                   "MPI_Comm_split");
    if (st == USM_OK && mine->is_present)
        st = mpi_own_errors(m->api, found);
    if (st != USM_OK) {
        m->api->heap_free(list);
        return st;
    }
    *count = list_peers(m, all, list);
    *peers = list;
    *comm  = found;
    return USM_OK;
}

/* ---- the key ------------------------------------------------------------------------------- */

/* Each process proves that it has the key, over the first process's nonce and its own rank. */
static bool prove(const mpi_record *all, int rank, const void *key, size_t key_size,
                  unsigned char mac[MPI_MAC_SIZE])
{
    unsigned char text[MPI_NONCE_SIZE + 8];

    memcpy(text, all[0].nonce, MPI_NONCE_SIZE);
    usm_put_le(text + MPI_NONCE_SIZE, (uint64_t)rank, 8);
    return mpi_hmac(key, key_size, text, sizeof(text), mac);
}

static usm_status look_at_proofs(const mpi_meeting *m, const mpi_record *all,
                                 const unsigned char *macs, const void *key, size_t key_size)
{
    unsigned char want[MPI_MAC_SIZE];

    for (int i = 0; i < m->size; i++) {
        if (!all[i].is_present)
            continue;
        if (!prove(all, i, key, key_size, want) ||
            !mpi_is_same_mac(want, macs + (size_t)i * MPI_MAC_SIZE))
            return m->api->report(USM_E_KEY,
                                  "rank %d of the launch has another key of the job than rank %d; "
                                  "give all the same USM_JOB_KEY",
                                  i, m->rank);
    }
    return USM_OK;
}

usm_status mpi_compare_keys(mpi_meeting *m, const mpi_record *all, const void *key, size_t key_size)
{
    unsigned char  mine[MPI_MAC_SIZE] = {0};
    unsigned char *macs;
    int            with = 0, without = 0;
    usm_status     st;

    for (int i = 0; i < m->size; i++)
        if (all[i].is_present)
            *(all[i].has_key ? &with : &without) += 1;
    if (with == 0)
        return USM_OK;
    if (without)
        return m->api->report(USM_E_KEY,
                              "%d processes of the job have a key and %d have none; give all the "
                              "same USM_JOB_KEY, or none",
                              with, without);
    macs = m->api->heap_alloc((size_t)m->size * MPI_MAC_SIZE);
    if (!macs)
        return m->api->report(USM_E_NO_MEMORY, "no memory for the proofs of %d ranks", m->size);
    if (key)
        (void)prove(all, m->rank, key, key_size, mine);
    st = allgather(m, mine, sizeof(mine), macs);
    if (st == USM_OK && key)
        st = look_at_proofs(m, all, macs, key, key_size);
    m->api->heap_free(macs);
    return st;
}
