/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks in the memory of rank 1, for `usm-bench mpi`: once through the transport's own table,
 * which knows nothing of checksums, and once through the tiers of the engine, which check all they
 * read. Both keep as many transfers in flight as the transport says serves it best.  Alone in
 * bench/ this looks into src: a user sees buffers, which cost more than a transfer.  Called by
 * mpi_worker.c. */
#include "../mpi_worker.h"

#include <usm/usm.h>

#include <usm/mpi.h>

#include "device/registry.h"
#include "spill/tier.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS   32
#define FETCHES 400
#define TEXT    64

typedef struct slot {
    usm_transfer t;
    usm__io      io;
    far_blocks  *owner;
    bool         is_busy;
} slot;

struct far_blocks {
    size_t                   size, n;
    const usm_transport_ops *ops;
    void                    *store;
    uint64_t                 base; /* number of the first block: its place in the high bits     */
    uint32_t                 depth;
    usm__tiers              *tiers;
    char                    *copies; /* n of usm__copy                                          */
    size_t                   copy_size;
    slot                     slots[SLOTS];
    pthread_mutex_t          lock;
    usm_status               failed; /* of any transfer; USM_OK: none                           */
    char                     message[300];
};

/* ---- transfers ----------------------------------------------------------------------- */

static void end_slot(slot *s, usm_status status)
{
    far_blocks *f = s->owner;

    (void)pthread_mutex_lock(&f->lock);
    if (status != USM_OK && f->failed == USM_OK) {
        f->failed = status;
        snprintf(f->message, sizeof f->message, "%.299s", usm_last_error());
    }
    s->is_busy = false;
    (void)pthread_mutex_unlock(&f->lock);
}

static void transfer_done(usm_transfer *t, usm_status status)
{
    end_slot((slot *)(void *)t, status); /* t comes first */
}

static void io_done(usm__io *io, usm_status status)
{
    end_slot(io->user, status);
}

/* As the engine waits (src/spill/engine.c): by progress(), which steps.  The lock is held. */
static void wait_for_one(far_blocks *f)
{
    (void)pthread_mutex_unlock(&f->lock);
    (void)f->ops->progress(f->store, 1);
    (void)pthread_mutex_lock(&f->lock);
}

/* Until one of `depth` slots is free; NULL: one has failed. */
static slot *take_slot(far_blocks *f, uint32_t depth)
{
    slot *s = NULL;

    (void)pthread_mutex_lock(&f->lock);
    while (!s && f->failed == USM_OK) {
        for (uint32_t i = 0; i < depth && !s; i++)
            if (!f->slots[i].is_busy)
                s = &f->slots[i];
        if (!s)
            wait_for_one(f);
    }
    if (s && f->failed == USM_OK)
        s->is_busy = true;
    else
        s = NULL;
    (void)pthread_mutex_unlock(&f->lock);
    return s;
}

static bool wait_all(far_blocks *f)
{
    (void)pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < SLOTS; i++)
        while (f->slots[i].is_busy)
            wait_for_one(f);
    (void)pthread_mutex_unlock(&f->lock);
    return f->failed == USM_OK;
}

static char *memory_of(const far_blocks *f, size_t i)
{
    return run.arena + i * f->size % run.bytes;
}

static void submit_plain(far_blocks *f, slot *s, size_t i, bool is_fetch)
{
    s->t = (usm_transfer){.op         = is_fetch ? USM_TRANSFER_FETCH : USM_TRANSFER_STORE,
                          .block      = f->base + i,
                          .size       = f->size,
                          .data       = memory_of(f, i),
                          .registered = SIZE_MAX,
                          .done       = transfer_done};
    f->ops->submit(f->store, &s->t);
}

static void submit_checked(far_blocks *f, slot *s, size_t i, bool is_fetch)
{
    s->io = (usm__io){.key        = i + 1,
                      .copy       = (usm__copy *)(void *)(f->copies + i * f->copy_size),
                      .data       = memory_of(f, i),
                      .registered = SIZE_MAX,
                      .count      = (uint32_t)(f->size / PAGE),
                      .done       = io_done,
                      .user       = s};
    if (is_fetch)
        usm__tiers_read(f->tiers, &s->io);
    else
        usm__tiers_write(f->tiers, &s->io);
}

double far_pass(far_blocks *f, bool is_fetch, bool is_checked)
{
    uint64_t began = bench_now_ns();
    double   seconds;

    for (size_t i = 0; i < f->n; i++) {
        slot *s = take_slot(f, f->depth);

        if (!s)
            break;
        (is_checked ? submit_checked : submit_plain)(f, s, i, is_fetch);
    }
    if (!wait_all(f)) {
        usm__registry_api.report(f->failed, "%s", f->message);
        return 0;
    }
    seconds = (double)(bench_now_ns() - began) * 1e-9;
    return (double)(f->n * f->size) / (double)MIB_BYTES / seconds;
}

/* ---- latency ------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double far_latency(far_blocks *f)
{
    static double us[FETCHES];

    if (far_pass(f, false, false) == 0)
        return 0;
    for (size_t i = 0; i < FETCHES; i++) {
        slot    *s     = take_slot(f, 1);
        uint64_t began = bench_now_ns();

        if (!s)
            return 0;
        s->t = (usm_transfer){.op         = USM_TRANSFER_FETCH,
                              .block      = f->base + i * 7919 % f->n,
                              .size       = PAGE,
                              .data       = memory_of(f, i),
                              .registered = SIZE_MAX,
                              .is_awaited = true,
                              .done       = transfer_done};
        f->ops->submit(f->store, &s->t);
        if (!wait_all(f))
            return 0;
        us[i] = (double)(bench_now_ns() - began) * 1e-3;
    }
    qsort(us, FETCHES, sizeof *us, compare_doubles);
    return us[FETCHES / 2];
}

/* ---- opening ------------------------------------------------------------------------- */

bool far_attach(const char *key, uint64_t lend)
{
    char text[TEXT];

    /* NOLINTBEGIN(concurrency-mt-unsafe): libusm has not begun */
    snprintf(text, sizeof text, "%llu", (unsigned long long)lend);
    if (lend > 0)
        setenv("USM_SPILL_LEND", text, 1);
    setenv("USM_SPILL", "mpi", 0);
    setenv("USM_SPILL_REPLICAS", "1", 0);
    snprintf(text, sizeof text, "rank-%d", run.rank);
    setenv("USM_SPILL_DOMAIN", text, 0);
    /* NOLINTEND(concurrency-mt-unsafe) */
    if (USM_MPI_ATTACH(run.comm) == USM_OK)
        return true;
    mpi_why(key, "%.400s", usm_last_error());
    return false;
}

/* The first place that is up. */
static bool find_place(far_blocks *f)
{
    for (uint32_t i = 0; i < f->ops->places(f->store); i++) {
        usm_transport_place place;

        if (f->ops->place(f->store, i, &place) == USM_OK && place.state == USM_PLACE_UP &&
            place.available >= f->n * f->size) {
            f->base = (uint64_t)i << 48;
            return true;
        }
    }
    usm__registry_api.report(USM_E_SPILL_FULL, "no lender has room");
    return false;
}

static bool open_store(far_blocks *f)
{
    usm_transport_params   params   = {.struct_size = sizeof params,
                                       .api         = &usm__registry_api,
                                       .config      = "",
                                       .block_size  = f->size};
    usm_transport_capacity capacity = {0};

    f->ops = usm__registry_transport("mpi");
    if (!f->ops || f->ops->open(&params, &f->store) != USM_OK)
        return false;
    f->depth = f->ops->capacity(f->store, &capacity) == USM_OK ? capacity.depth : DEPTH;
    f->depth = f->depth > SLOTS ? SLOTS : f->depth == 0 ? DEPTH : f->depth;
    return find_place(f) && f->ops->reserve(f->store, f->base, f->n) == USM_OK;
}

static bool open_tiers(far_blocks *f)
{
    const usm__tiers_params params = {.block_size = f->size, .sector_size = PAGE, .spec = "mpi"};

    if (usm__tiers_create(&params, &f->tiers) != USM_OK)
        return false;
    f->copy_size = (usm__tiers_copy_size(f->tiers) + 7) / 8 * 8;
    f->copies    = calloc(f->n, f->copy_size);
    return f->copies != NULL;
}

far_blocks *far_open(size_t size, const char *key)
{
    far_blocks *f = calloc(1, sizeof *f);

    if (!f)
        return NULL;
    f->size = size;
    f->n    = size == PAGE ? FETCHES : run.bytes / size;
    (void)pthread_mutex_init(&f->lock, NULL);
    for (size_t i = 0; i < SLOTS; i++)
        f->slots[i].owner = f;
    if (open_store(f) && open_tiers(f))
        return f;
    mpi_why(key, "%.400s", usm_last_error());
    far_close(f);
    return NULL;
}

void far_close(far_blocks *f)
{
    if (!f)
        return;
    (void)wait_all(f);
    for (size_t i = 0; f->copies && i < f->n; i++)
        usm__tiers_forget(f->tiers, (usm__copy *)(void *)(f->copies + i * f->copy_size));
    usm__tiers_destroy(f->tiers);
    if (f->store) {
        f->ops->forget(f->store, f->base, f->n);
        f->ops->close(f->store);
    }
    (void)pthread_mutex_destroy(&f->lock);
    free(f->copies);
    free(f);
}
