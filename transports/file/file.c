/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport over files: scratch files on the user's disks, and files of the user as backing
 * stores ("homes" in the code).  This file has the table; internal.h lists the other parts.
 *
 * There are two engines: io_uring, by one thread of the transport (ring.c), and a crew of threads
 * (crew.c), which is needed anyway for transfers that take several calls.  A transfer that the
 * caller waits for is carried out by the calling thread: it would sleep meanwhile, and each change
 * of threads costs a tenth of the time of a block. */
#include "internal.h"

#include "base/inline/module.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

/* ---- open, close ----------------------------------------------------------------- */

/* A store works without the ring: the function records why there is none, and succeeds. */
static usm_status start_ring(usm_file_store *s)
{
    if (s->config.engine == USM_FILE_THREADS) {
        (void)snprintf(s->why_not, sizeof(s->why_not), "engine=threads");
        return USM_OK;
    }
    if (s->places[0].direct < 0) { /* the ring's worker threads would be no better than the
                                      crew's */
        (void)snprintf(s->why_not, sizeof(s->why_not), "no direct I/O");
        return USM_OK;
    }
#ifdef USM_FILE_HAS_URING
    usm_status st = usm_file_ring_create(s, &s->ring);

    if (st == USM_OK || st == USM_E_NO_MEMORY)
        return st;
#else
    (void)snprintf(s->why_not, sizeof(s->why_not), "built without liburing");
#endif
    if (s->config.engine == USM_FILE_URING)
        return s->api->report(USM_E_NOT_SUPPORTED,
                              "engine=uring is not available: %s; engine=auto "
                              "takes threads then",
                              s->why_not);
    s->api->log(USM_LOG_INFO, "spilling without io_uring (%s): by threads", s->why_not);
    return USM_OK;
}

static usm_status init_locks(usm_file_store *s)
{
    usm_status st = usm_file_room_init(s);

    s->bounces = (usm_recycler)USM_RECYCLER_INIT(0, UINT_MAX);
    if (st != USM_OK)
        return st;
    st = usm_file_crew_init(s);
    if (st != USM_OK)
        usm_file_room_fini(s);
    return st;
}

static void fini_locks(usm_file_store *s)
{
    usm_file_crew_fini(s);
    usm_file_room_fini(s);
}

static usm_status file_open(const usm_transport_params *params, void **store)
{
    const usm_host_api *api = params->api;
    usm_file_store     *s;
    usm_status          st;

    if (params->struct_size != sizeof(*params))
        return api->report(USM_E_ABI, "the transport file was built for another libusm");
    if (!usm_is_pow2(params->block_size) || params->block_size < PAGE_SIZE)
        return api->report(USM_E_INVALID, "a block of %zu bytes is not a power of two from 4096 on",
                           params->block_size);
    s = api->heap_alloc(sizeof(*s));
    if (!s)
        return api->report(USM_E_NO_MEMORY, "no memory for a transport");
    s->api        = api;
    s->block_size = params->block_size;
    st            = usm_file_parse(api, params->config ? params->config : "", &s->config);
    if (st != USM_OK)
        goto err_store;
    st = init_locks(s);
    if (st != USM_OK)
        goto err_store;
    st = params->home ? usm_file_open_home(s, params->home) : usm_file_open_places(s);
    if (st != USM_OK)
        goto err_locks;
    st = start_ring(s);
    if (st != USM_OK)
        goto err_places;
    *store = s;
    return USM_OK;

err_places:
    usm_file_close_places(s);
err_locks:
    fini_locks(s);
err_store:
    api->heap_free(s);
    return st;
}

static void file_close(void *store)
{
    usm_file_store *s = store;

    if (!s)
        return;
#ifdef USM_FILE_HAS_URING
    if (s->ring)
        usm_file_ring_destroy(s);
#endif
    fini_locks(s);
    usm_recycler_clear(&s->bounces, s->api->heap_free);
    usm_file_close_places(s);
    s->api->heap_free(s);
}

/* ---- room ------------------------------------------------------------------------- */

static usm_status file_reserve(void *store, uint64_t first, uint64_t n)
{
    usm_file_store *s = store;

    if (n == 0)
        return USM_OK;
    return s->is_home ? usm_file_home_reserve(s, first, n) : usm_file_room_reserve(s, first, n);
}

static void file_forget(void *store, uint64_t first, uint64_t n)
{
    usm_file_store *s = store;

    if (!s->is_home) /* a file of the user keeps its content */
        usm_file_room_forget(s, first, n);
}

/* Bytes that all the file systems have left. */
static uint64_t available(const usm_file_store *s)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < s->nplaces; i++) {
        const usm_file_place *p = &s->places[i];
        usm_os_file           file;

        if (s->api->os->inspect(p->direct >= 0 ? p->direct : p->buffered, &file) == 0)
            sum += file.available;
    }
    return sum;
}

static usm_status file_capacity(void *store, usm_transport_capacity *capacity)
{
    const usm_file_store  *s    = store;
    usm_transport_capacity c    = {.depth      = s->config.depth,
                                   .registered = usm_load_relaxed(&s->registered)};
    uint64_t               idle = 0;

    if (s->is_home) {
        c.total = c.used = s->home.size;
    } else {
        c.used      = usm_load_relaxed(&s->room.nused) * s->block_size;
        idle        = usm_load_relaxed(&s->room.nbacked) * s->block_size;
        idle        = idle > c.used ? idle - c.used : 0;
        c.available = available(s) + idle;
        if (s->config.quota != UINT64_MAX && c.available > s->config.quota - c.used)
            c.available = s->config.quota > c.used ? s->config.quota - c.used : 0;
        c.total = s->config.quota != UINT64_MAX ? s->config.quota : c.used + c.available;
    }
    *capacity = c;
    return USM_OK;
}

/* ---- transfers --------------------------------------------------------------------- */

static bool is_plain(const usm_file_store *s, const usm_transfer *t)
{
    const usm_file_piece *piece = (const usm_file_piece *)(const void *)t->opaque;

    return s->is_home ? usm_file_home_is_plain(s, t) : s->places[piece->place].direct >= 0;
}

static bool prepare(usm_file_store *s, usm_transfer *t)
{
    usm_file_piece *piece = usm_file_piece_of(t);
    usm_file_piece  p     = {.store = s};

    if (t->size == 0 || t->offset > s->block_size || t->size > s->block_size - t->offset ||
        ((t->size | t->offset) & (PAGE_SIZE - 1)) != 0 || !usm_is_aligned(t->data, PAGE_SIZE)) {
        usm_file_finish(t, s->api->report(USM_E_INVALID,
                                          "a transfer of %zu bytes at %zu of a block of %zu is not "
                                          "made of whole pages of it",
                                          t->size, t->offset, s->block_size));
        return false;
    }
    usm_file_locate(s, t->block, &p.place, &p.at);
    p.at += t->offset;
    *piece = p;
    return true;
}

typedef struct queue {
    usm_transfer  *head;
    usm_transfer **tail;
} queue;

static void append(queue *q, usm_transfer *t)
{
    t->next  = NULL;
    *q->tail = t;
    q->tail  = &t->next;
}

static void file_submit(void *store, usm_transfer *list)
{
    usm_file_store *s       = store;
    queue           plain   = {NULL, &plain.head};
    queue           others  = {NULL, &others.head};
    usm_transfer   *awaited = NULL;
    usm_transfer   *next;

    for (usm_transfer *t = list; t; t = next) {
        next = t->next;
        if (!prepare(s, t))
            continue;
        if (t->is_awaited && !awaited)
            awaited = t; /* one of them: the others proceed meanwhile */
        else
            append(s->ring && is_plain(s, t) ? &plain : &others, t);
    }
#ifdef USM_FILE_HAS_URING
    if (plain.head)
        usm_file_ring_add(s->ring, plain.head);
#endif
    if (others.head)
        usm_file_crew_add(s, others.head);
    if (awaited)
        usm_file_finish(awaited, usm_file_run(s, awaited));
}

static usm_status file_sync(void *store)
{
    const usm_file_store *s = store;

    for (size_t i = 0; i < s->nplaces; i++) {
        const usm_file_place *p = &s->places[i];
        char                  room[128];

        if (s->api->os->sync(p->buffered >= 0 ? p->buffered : p->direct) != 0) {
            const int error = errno; /* not repeated: the kernel takes lost pages for clean */

            return s->api->report(USM_E_IO, "%s could not be made durable: %s", p->path,
                                  strerror_r(error, room, sizeof(room)));
        }
    }
    return s->is_home ? usm_file_home_sync(s) : USM_OK;
}

/* ---- descriptions -------------------------------------------------------------------------- */

/* snprintf() at the end of the text. */
#define ADD(...)                                                                                   \
    do {                                                                                           \
        const size_t used_ = strlen(text);                                                         \
        (void)snprintf(text + used_, cap - used_, __VA_ARGS__);                                    \
    } while (0)

static void describe_registered(const usm_file_store *s, char *text, size_t cap)
{
    const size_t   registered = usm_load_relaxed(&s->registered);
    const size_t   offered    = usm_load_relaxed(&s->offered);
    const uint64_t limit      = s->api->os->limit(USM_OS_LIMIT_LOCKED_MEMORY);

    if (offered == 0)
        return;
    ADD(", %zu of %zu MiB registered", registered >> 20, offered >> 20);
    if (registered < offered && limit != UINT64_MAX)
        ADD(" (limit of locked memory: %llu KiB, ulimit -l)", (unsigned long long)(limit >> 10));
}

static void file_describe(void *store, char *text, size_t cap)
{
    const usm_file_store *s = store;

    if (cap == 0)
        return;
    text[0] = '\0';
    if (s->ring)
        ADD("io_uring, depth %u", s->config.depth);
    else
        ADD("threads (%s)", s->why_not);
    ADD(", %s", s->places[0].direct >= 0 ? "direct" : "through the file cache");
    if (!s->is_home && s->config.quota != UINT64_MAX)
        ADD(", quota %llu MiB", (unsigned long long)(s->config.quota >> 20));
    describe_registered(s, text, cap);
    for (size_t i = 0; i < s->nplaces; i++)
        ADD("%s%s (%s)", i ? ", " : ": ", s->places[i].path, s->places[i].filesystem);
}

/* ---- registered memory --------------------------------------------------------------- */

static usm_status file_register(void *store, void *base, size_t size, size_t *registered)
{
    usm_file_store *s = store;
    size_t          n = 0;

    if (!usm_is_aligned(base, PAGE_SIZE))
        return s->api->report(USM_E_INVALID, "memory that is registered begins at a page");
#ifdef USM_FILE_HAS_URING
    if (s->ring)
        n = usm_file_ring_register(s->ring, base, size);
#endif
    usm_store_relaxed(&s->offered, size);
    usm_store_relaxed(&s->registered, n);
    *registered = n;
    return USM_OK;
}

static void file_unregister(void *store)
{
    usm_file_store *s = store;

#ifdef USM_FILE_HAS_URING
    if (s->ring)
        usm_file_ring_unregister(s->ring);
#endif
    usm_store_relaxed(&s->offered, 0u);
    usm_store_relaxed(&s->registered, 0u);
}

static const usm_transport_ops ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(ops),
    .name        = "file",
    .caps        = USM_TRANSPORT_CAP_HOMES | USM_TRANSPORT_CAP_REGISTER,

    .open              = file_open,
    .close             = file_close,
    .capacity          = file_capacity,
    .reserve           = file_reserve,
    .forget            = file_forget,
    .submit            = file_submit,
    .sync              = file_sync,
    .describe          = file_describe,
    .register_memory   = file_register,
    .unregister_memory = file_unregister,
};

USM_API usm_transport_entry_fn usm_transport_entry;

const usm_transport_ops *usm_transport_entry(const usm_host_api *api)
{
    return usm_module_fits(api, "the transport file") ? &ops : NULL;
}
