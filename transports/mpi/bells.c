/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The bells of the members on this host (bell.h): each member's is in a page of its own, a memfd
 * that the others map through its /proc/PID/fd, as near.c does it with lent memory.
 *
 *     attach()   mpi_bells_create: the own page; where it is goes into the record for all
 *                mpi_bells_meet: maps the others' pages, and counts as one who rings there
 *
 * A page is known by its name, its seals and the nonce of its owner's record.  Without pages
 * (USM_MPI_NEAR=0, or the system has none) the bell is the process's alone, and its thread looks for
 * messages from time to time (service.c). */
#include "internal.h"

#include "base/inline/plural.h"

#include <sys/mman.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x316c65622d6d7375) /* "usm-bel1" */
#define NAME  "usm-bell"
#define PAGE  ((size_t)4096)

typedef struct page {
    uint64_t      magic;
    unsigned char owner[MPI_NONCE_SIZE];
    mpi_bell      bell;
} page;

struct mpi_bells {
    const usm_host_api *api;
    page                alone; /* used without a page of its own */
    page               *own;
    int                 fd;     /* -1: alone */
    page              **others; /* by member; NULL: not on this host */
    uint32_t            count;
};

static page *map_page(const usm_host_api *api, int fd)
{
    return api->os->map_fd(NULL, PAGE, PROT_READ | PROT_WRITE, fd);
}

/* Makes the page that others may map; false: not possible. */
static bool make_own(mpi_bells *b)
{
    const usm_os_api *os = b->api->os;

    b->fd = os->memfd_sealable(NAME, PAGE);
    if (b->fd < 0)
        return false;
    b->own = os->seal(b->fd, false) == 0 ? map_page(b->api, b->fd) : NULL;
    if (b->own)
        return true;
    (void)os->close(b->fd);
    b->fd = -1;
    return false;
}

mpi_bells *mpi_bells_create(const usm_host_api *api, const mpi_near *near, mpi_record *mine)
{
    mpi_bells *b = api->heap_alloc(sizeof(*b));

    if (!b)
        return NULL;
    b->api = api;
    b->fd  = -1;
    if (near && make_own(b)) {
        b->own->magic = MAGIC;
        memcpy(b->own->owner, mine->nonce, MPI_NONCE_SIZE);
        mine->host    = mpi_near_host(near);
        mine->bell[0] = (uint32_t)getpid();
        mine->bell[1] = (uint32_t)b->fd;
    }
    if (!b->own)
        b->own = &b->alone;
    return b;
}

/* NULL: the page cannot be reached, or is another one. */
static page *open_page(const mpi_bells *b, const mpi_near *near, const mpi_record *r)
{
    const usm_os_api *os   = b->api->os;
    usm_os_file       file = {0};
    int               fd   = mpi_near_open(near, NAME, r->bell);
    page             *p    = NULL;

    if (fd < 0)
        return NULL;
    if (os->inspect(fd, &file) == 0 && file.size == PAGE)
        p = map_page(b->api, fd);
    (void)os->close(fd);
    if (p && p->magic == MAGIC && memcmp(p->owner, r->nonce, MPI_NONCE_SIZE) == 0)
        return p;
    if (p)
        (void)os->unmap(p, PAGE);
    return NULL;
}

void mpi_bells_meet(mpi_bells *b, const mpi_near *near, const mpi_record *records, uint32_t count,
                    uint32_t self)
{
    uint32_t n = 0;

    b->others = b->fd >= 0 ? b->api->heap_alloc(count * sizeof(page *)) : NULL;
    b->count  = count;
    for (uint32_t i = 0; b->others && i < count; i++) {
        if (i == self || records[i].host != records[self].host)
            continue;
        b->others[i] = open_page(b, near, &records[i]);
        if (!b->others[i])
            continue;
        (void)atomic_fetch_add(&b->others[i]->bell.ringers, 1u);
        n++;
    }
    b->api->log(USM_LOG_INFO, "%u %s on this host can be woken for messages", n,
                usm__plural(n, "member", "members"));
}

mpi_bell *mpi_bells_own(mpi_bells *b)
{
    return &b->own->bell;
}

void mpi_bells_ring(mpi_bells *b, uint32_t member)
{
    if (b->others && b->others[member])
        mpi_bell_ring_for_message(&b->others[member]->bell);
}

bool mpi_bells_reach(const mpi_bells *b, uint32_t member)
{
    return b->others && b->others[member];
}

uint32_t mpi_bells_ringers(const mpi_bells *b)
{
    return atomic_load(&b->own->bell.ringers);
}

void mpi_bells_destroy(mpi_bells *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; b->others && i < b->count; i++)
        if (b->others[i])
            (void)b->api->os->unmap(b->others[i], PAGE);
    if (b->fd >= 0) {
        (void)b->api->os->unmap(b->own, PAGE);
        (void)b->api->os->close(b->fd);
    }
    b->api->heap_free(b->others);
    b->api->heap_free(b);
}
