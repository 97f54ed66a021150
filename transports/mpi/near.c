/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory that members on one host share (transports/far/near.h): a memfd of the lender, which the
 * borrower opens through the lender's /proc/PID/fd.
 *
 *     page 0      magic, the lease's number, its size
 *     2 MiB on    the lent memory, without pages until it is written
 *
 * There is no socket over which to pass a descriptor.  /proc requires the same rights (the same
 * user, neither process protected against others of that user), costs one call, and needs no thread
 * and no name that remains.  A process number of another pid namespace, or of a process that came
 * later, leads to another file, which is recognised by its name, its seals and the lease's number.
 *
 * The size is sealed, so that no process can take pages away under a mapping; punched holes read as
 * zeros.  Memory that the borrower writes first counts as the borrower's for the system (control
 * groups, RSS), and as the lender's for libusm. */
#include "internal.h"

#include "base/inline/host.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define MAGIC   UINT64_C(0x3172616e2d6d7375) /* "usm-nar1" */
#define HEAD    ((size_t)2 << 20)
#define PAGE    ((size_t)4096)
#define NAME    "usm-lent"
#define PROT_RW (PROT_READ | PROT_WRITE)
#define PUNCH   3 /* FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE */
#define LARGE   ((size_t)4 << 30)
/* Sizes from which on the caches are bypassed.  Stored bytes are not read again here.  Fetched
 * bytes are, at once, by the check of their sum: from a cache that holds them, if it can. */
#define PAST_IN  ((size_t)32 << 10)
#define PAST_OUT ((size_t)1 << 20)

struct mpi_near {
    far_near            base; /* first */
    const usm_host_api *api;
    uint64_t            host;
};

typedef struct head {
    uint64_t         magic;
    uint64_t         size;
    _Atomic uint64_t word;
} head;

typedef struct area {
    far_area            a; /* first */
    const usm_host_api *api;
    int                 fd;
    bool                is_lent; /* this is the lender */
    void               *base;
    size_t              mapped; /* bytes; the lender maps the head only */
    size_t              size;
} area;

static mpi_near *near_of(far_near *n)
{
    return (mpi_near *)(void *)n;
}

/* ---- which host ------------------------------------------------------------------------- */

static uint64_t host(far_near *n)
{
    return near_of(n)->host;
}

uint64_t mpi_near_host(const mpi_near *n)
{
    return n->host;
}

/* ---- the lender --------------------------------------------------------------------------- */

static far_area *lend(far_near *n, const far_lease *lease, uint32_t where[2])
{
    const usm_os_api *os = near_of(n)->api->os;
    area             *a  = near_of(n)->api->heap_alloc(sizeof(*a));
    head             *h;

    if (!a)
        return NULL;
    a->api     = near_of(n)->api;
    a->is_lent = true;
    a->size    = lease->size;
    a->mapped  = PAGE;
    a->fd      = os->memfd_sealable(NAME, HEAD + lease->size);
    if (a->fd < 0)
        goto err_area;
    if (os->seal(a->fd, false) != 0)
        goto err_fd;
    h = a->base = os->map_fd(NULL, PAGE, PROT_RW, a->fd);
    if (!h)
        goto err_fd;
    h->magic = MAGIC;
    h->size  = lease->size;
    atomic_store(&h->word, lease->number);
    a->a.word = &h->word;
    where[0]  = (uint32_t)getpid();
    where[1]  = (uint32_t)a->fd;
    return &a->a;

err_fd:
    (void)os->close(a->fd);
err_area:
    near_of(n)->api->heap_free(a);
    return NULL;
}

static void dispose(void *a_)
{
    area               *a   = a_;
    const usm_host_api *api = a->api;

    if (a->is_lent) /* at once, although a borrower that is stopped may have it mapped */
        (void)api->os->fallocate(a->fd, PUNCH, HEAD, a->size);
    (void)api->os->unmap(a->base, a->mapped);
    (void)api->os->close(a->fd);
    api->heap_free(a);
}

/* A system takes a second for some 20 GiB, during which no sign of life would be sent: uses a
 * thread. */
static void close_area(far_near *n, far_area *a_)
{
    area *a = (area *)(void *)a_;

    if (a->size < LARGE || near_of(n)->api->os->thread(dispose, a, "usm-near") != 0)
        dispose(a);
}

/* ---- the borrower --------------------------------------------------------------------------- */

int mpi_near_open(const mpi_near *n, const char *name, const uint32_t where[2])
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    char      path[64], begin[64], is[64];
    ssize_t   got;
    int       fd;

    (void)snprintf(path, sizeof(path), "/proc/%u/fd/%u", where[0], where[1]);
    (void)snprintf(begin, sizeof(begin), "/memfd:%s", name);
    got = readlink(path, is, sizeof(is));
    if (got < (ssize_t)strlen(begin) || memcmp(is, begin, strlen(begin)) != 0)
        return -1;
    fd = n->api->os->open(path, O_RDWR, 0);
    if (fd >= 0 && (fcntl(fd, F_GET_SEALS) & seals) == seals)
        return fd;
    if (fd >= 0)
        (void)n->api->os->close(fd);
    return -1;
}

static bool is_ours(const mpi_near *n, int fd, const far_lease *lease)
{
    usm_os_file file = {0};
    head       *h;
    bool        ok;

    if (n->api->os->inspect(fd, &file) != 0 || file.size != HEAD + lease->size)
        return false;
    h = n->api->os->map_fd(NULL, PAGE, PROT_RW, fd);
    if (!h)
        return false;
    ok = h->magic == MAGIC && h->size == lease->size && atomic_load(&h->word) == lease->number;
    (void)n->api->os->unmap(h, PAGE);
    return ok;
}

static far_area *map(far_near *n_, const far_lease *lease, const uint32_t where[2])
{
    mpi_near         *n  = near_of(n_);
    const usm_os_api *os = n->api->os;
    area             *a  = n->api->heap_alloc(sizeof(*a));

    if (!a)
        return NULL;
    a->api    = n->api;
    a->size   = lease->size;
    a->mapped = HEAD + lease->size;
    a->fd     = mpi_near_open(n, NAME, where);
    if (a->fd < 0)
        goto err_area;
    if (!is_ours(n, a->fd, lease))
        goto err_fd;
    a->base = os->map_fd(NULL, a->mapped, PROT_RW, a->fd);
    if (!a->base)
        goto err_fd;
    /* Hints: huge pages if the system has them for shared memory; not in dumps, not in forks. */
    (void)madvise(a->base, a->mapped, MADV_HUGEPAGE);
    (void)madvise(a->base, a->mapped, MADV_DONTDUMP);
    (void)madvise(a->base, a->mapped, MADV_DONTFORK);
    a->a.word  = &((head *)a->base)->word;
    a->a.bytes = (unsigned char *)a->base + HEAD;
    n->api->log(USM_LOG_INFO, "memory of process %u on this host is mapped, not sent over MPI",
                where[0]);
    return &a->a;

err_fd:
    (void)os->close(a->fd);
err_area:
    n->api->heap_free(a);
    n->api->log(USM_LOG_INFO,
                "memory of process %u on this host cannot be mapped (/proc/%u/fd/%u): it goes over "
                "MPI",
                where[0], where[0], where[1]);
    return NULL;
}

static void give_back(far_near *n, far_area *a, uint64_t at, uint64_t size)
{
    (void)near_of(n)->api->os->fallocate(((area *)(void *)a)->fd, PUNCH, HEAD + at, size);
}

/* ---- copying ------------------------------------------------------------------------------ */

#if defined(__SSE2__)
/* Bypasses the caches: the lines that it writes need not be read first, and the program's lines
 * stay in the cache.  Both addresses are aligned to pages. */
static void copy_past(void *to, const void *from, size_t size)
{
    __m128i       *t = to;
    const __m128i *f = from;

    for (size_t n = size / 64; n > 0; n--, t += 4, f += 4) {
        const __m128i a = _mm_load_si128(f), b = _mm_load_si128(f + 1), c = _mm_load_si128(f + 2),
                      d = _mm_load_si128(f + 3);

        _mm_stream_si128(t, a);
        _mm_stream_si128(t + 1, b);
        _mm_stream_si128(t + 2, c);
        _mm_stream_si128(t + 3, d);
    }
    _mm_sfence();
}
#else
static void copy_past(void *to, const void *from, size_t size)
{
    memcpy(to, from, size);
}
#endif

/* Makes all pages at once, instead of one fault each: a third faster.  They are in the cache then,
 * where memcpy finds them. */
static void make_pages(void *at, size_t size)
{
#ifdef MADV_POPULATE_WRITE
    (void)madvise(at, size, MADV_POPULATE_WRITE);
#else
    (void)at;
    (void)size;
#endif
}

static void copy(far_near *n, void *to, const void *from, size_t size, far_near_copy kind)
{
    const uintptr_t line = ((uintptr_t)to | (uintptr_t)from | size) & 63;
    const bool      is_past =
        (kind == FAR_COPY_IN && size >= PAST_IN) || (kind == FAR_COPY_OUT && size >= PAST_OUT);

    (void)n;
    if (kind == FAR_COPY_FIRST)
        make_pages(to, size);
    if (is_past && line == 0)
        copy_past(to, from, size);
    else
        memcpy(to, from, size);
}

/* ---- life --------------------------------------------------------------------------------- */

mpi_near *mpi_near_create(const usm_host_api *api)
{
    static const far_near_ops ops = {
        .host      = host,
        .lend      = lend,
        .take_back = close_area,
        .map       = map,
        .unmap     = close_area,
        .give_back = give_back,
        .copy      = copy,
    };
    mpi_near *n;

    if (!api->setting_bool("mpi_near"))
        return NULL;
    n = api->heap_alloc(sizeof(*n));
    if (!n)
        return NULL;
    n->base.ops = &ops;
    n->api      = api;
    n->host     = usm_host_number(api->os);
    if (n->host)
        return n;
    api->heap_free(n);
    return NULL;
}

far_near *mpi_near_base(mpi_near *n)
{
    return n ? &n->base : NULL;
}

void mpi_near_destroy(mpi_near *n)
{
    if (n)
        n->api->heap_free(n);
}
