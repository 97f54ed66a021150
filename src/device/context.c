/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Contexts: creation, the two reference counts, default objects, the data probe.
 *
 * `users` counts the owner and every queue; a destroyed queue counts until its last command has
 * ended.  At 0 the pools and their memory are freed.  `refs` counts the users as one, and events,
 * programs and kernels.  At 0 the driver's context and the struct are freed.  A context may
 * therefore be destroyed at any time, with commands in flight. */
#include "device/context.h"

#include "base/fork.h"
#include "base/inline/bits.h"
#include "base/inline/plural.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "base/settings.h"
#include "command/event.h"
#include "command/queue.h"
#include "device/init.h"
#include "heap/area.h"
#include "heap/pool.h"
#include "program/program.h"

#include <string.h>

static usm__meta_type context_type =
    USM__META_TYPE(struct usm_context, sizeof(usm__magic_word), "contexts");

/* All contexts whose struct exists: for fork and for memory accounting. */
static struct {
    usm__mutex lock;
    usm_list   list;
} all = {USM__MUTEX_INIT(USM__RANK_REGISTRY, "contexts"), {&all.list, &all.list}};

/* ---- checks ------------------------------------------------------------------ */

bool usm__context_is_ended(const usm_context *ctx)
{
    return usm_load_acquire(&((usm_context *)(uintptr_t)ctx)->magic) !=
           (uint32_t)USM__MAGIC_CONTEXT;
}

bool usm__context_is_inert(const usm_context *ctx)
{
    return ctx->fork_generation != usm__fork_generation();
}

usm_status usm__context_check(usm_context *ctx)
{
    usm_status st = usm__handle_check(ctx, USM__MAGIC_CONTEXT);

    if (st == USM_OK && usm__context_is_inert(ctx) &&
        !usm__backend_can(ctx->be, USM_CAP_FORK_MEMORY))
        st = usm__fail(USM_E_FORKED, "the context was made before fork(); make one in the child");
    return st;
}

usm_status usm__context_resolve(usm_context **ctx)
{
    if (!*ctx)
        *ctx = usm_default_context();
    return *ctx ? usm__context_check(*ctx) : usm_last_status();
}

usm_context *usm__context_or_default(usm_context *ctx)
{
    return usm__context_resolve(&ctx) == USM_OK ? ctx : NULL;
}

usm_status usm__context_device_index(usm_context *ctx, const usm_device *dev, size_t *index)
{
    if (!dev) {
        *index = 0;
        return USM_OK;
    }
    if (usm__handle_check(dev, USM__MAGIC_DEVICE) != USM_OK)
        return USM_E_INVALID_HANDLE;
    for (size_t i = 0; i < ctx->ndevices; i++)
        if (ctx->devices[i].dev == dev) {
            *index = i;
            return USM_OK;
        }
    return usm__fail(USM_E_INVALID, "device %s is not in the context (its first is %s)", dev->term,
                     ctx->devices[0].dev->term);
}

/* ---- counts ------------------------------------------------------------------ */

void usm__context_ref(usm_context *ctx)
{
    usm_ref_take(&ctx->refs);
}

static void free_struct(usm_context *ctx)
{
    usm__heap_free(ctx->devices);
    usm__mutex_fini(&ctx->lock);
    usm__meta_free(&context_type, ctx);
}

void usm__context_unref(usm_context *ctx)
{
    if (!usm_ref_drop(&ctx->refs))
        return;
    usm__mutex_lock(&all.lock);
    usm_list_remove(&ctx->all);
    usm__mutex_unlock(&all.lock);
    if (ctx->programs)
        usm__program_cache_destroy(ctx->programs);
    if (!usm__context_is_inert(ctx))
        usm__be_context_destroy(ctx->be, ctx->native);
    free_struct(ctx);
}

void usm__context_use(usm_context *ctx)
{
    usm_ref_take(&ctx->users);
}

/* Outlives a wait that failed, because the copies may then still be in progress. */
typedef struct probe {
    usm_list      link; /* in ctx->probes, after a failed wait */
    usm_queue    *q;    /* a queue of the context's own        */
    usm_kind      kind;
    void         *block;
    unsigned char out[64], back[64];
} probe;

static probe *probe_new(usm_context *ctx, const usm_device *dev)
{
    probe     *p = usm__heap_alloc(sizeof *p);
    usm_status st;

    if (!p) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for a context's first copy");
        return NULL;
    }
    p->kind = usm_device_has(dev, USM_ASPECT_USM_DEVICE_ALLOCATIONS) ? USM_DEVICE : USM_SHARED;
    st      = usm__be_mem_alloc(ctx->be, ctx->native, dev->desc.handle, p->kind, sizeof p->out, 64,
                                &p->block);
    if (st != USM_OK) {
        usm__heap_free(p);
        return NULL;
    }
    for (size_t i = 0; i < sizeof p->out; i++)
        p->out[i] = (unsigned char)(i * 37 + 11);
    return p;
}

static void probe_free(usm_context *ctx, probe *p)
{
    (void)usm__be_mem_free(ctx->be, ctx->native, p->kind, p->block, sizeof p->out);
    usm__heap_free(p);
}

static void finish_probes(usm_context *ctx)
{
    usm_list *it;

    while ((it = usm_list_pop(&ctx->probes))) {
        probe *p = usm_container_of(it, probe, link);

        (void)usm__be_queue_wait(ctx->be, p->q->native); /* no caller is left that could receive an
                                                            error */
        probe_free(ctx, p);
    }
}

static void finish_pools(usm_context *ctx)
{
    usm_list *it;

    for (;;) {
        usm__mutex_lock(&ctx->lock);
        it = usm_list_pop(&ctx->pools);
        usm__mutex_unlock(&ctx->lock);
        if (!it)
            return;
        usm__pool_finish(usm_container_of(it, usm_pool, link));
    }
}

static void end_own_queues(usm_context *ctx)
{
    for (size_t i = 0; i < ctx->ndevices; i++)
        for (size_t which = 0; which < 2; which++) {
            usm_queue *q = usm_swap_acq_rel(&ctx->devices[i].queues[which], NULL);

            if (q)
                usm__queue_end_own(q);
        }
    for (size_t i = 0; i < ctx->ndevices; i++)
        for (usm_list *it = usm_list_pop(&ctx->devices[i].idle); it;
             it           = usm_list_pop(&ctx->devices[i].idle))
            usm__queue_end_own(usm_container_of(it, usm_queue, link));
}

void usm__context_unuse(usm_context *ctx)
{
    if (!usm_ref_drop(&ctx->users))
        return;
    if (usm__context_above)
        usm__context_above(ctx);
    finish_probes(ctx);
    end_own_queues(ctx);
    finish_pools(ctx);
    if (ctx->programs) /* before the driver's context, which events may keep alive */
        usm__program_cache_clear(ctx->programs);
    usm__context_unref(ctx);
}

/* ---- creation ---------------------------------------------------------------- */

static usm_context *new_context(const usm__backend *be, size_t ndevices, usm_error_fn on_error,
                                void *user)
{
    usm_context *ctx = usm__meta_alloc(&context_type);

    if (!ctx)
        goto err_memory;
    ctx->devices  = usm__heap_alloc(ndevices * sizeof *ctx->devices);
    ctx->programs = usm__program_cache_create();
    if (!ctx->devices || !ctx->programs)
        goto err_free;
    ctx->be              = be;
    ctx->ndevices        = ndevices;
    ctx->on_error        = on_error;
    ctx->user            = user;
    ctx->fork_generation = usm__fork_generation();
    usm_store_relaxed(&ctx->users, 1u);
    usm_store_relaxed(&ctx->refs, 1u);
    usm__mutex_init(&ctx->lock, USM__RANK_CONTEXT, "context");
    usm_list_init(&ctx->pools);
    usm_list_init(&ctx->probes);
    usm_list_init(&ctx->queues);
    usm_list_init(&ctx->all);
    for (size_t i = 0; i < ndevices; i++)
        usm_list_init(&ctx->devices[i].idle);
    return ctx;

err_free:
    if (ctx->programs)
        usm__program_cache_destroy(ctx->programs);
    usm__heap_free(ctx->devices);
    usm__meta_free(&context_type, ctx);
err_memory:
    (void)usm__fail(USM_E_NO_MEMORY, "no host memory for a context");
    return NULL;
}

static void discard_context(usm_context *ctx)
{
    usm__program_cache_destroy(ctx->programs);
    free_struct(ctx);
}

static void set_limits(usm_context *ctx, uint64_t host, uint64_t device)
{
    usm_store_relaxed(&ctx->own_host.limit, host);
    for (size_t i = 0; i < ctx->ndevices; i++)
        usm_store_relaxed(&ctx->devices[i].own.limit, device);
}

static usm_status publish(usm_context *ctx, usm_context **out)
{
    for (size_t i = 0; i < ctx->ndevices; i++)
        usm__account_start(ctx->devices[i].dev);
    usm__mutex_lock(&all.lock);
    usm_list_append(&all.list, &ctx->all);
    usm__mutex_unlock(&all.lock);
    usm_store_release(&ctx->magic, (uint32_t)USM__MAGIC_CONTEXT);
    *out = ctx;
    return USM_OK;
}

static usm_status check_devices(size_t n, usm_device *const *devs)
{
    for (size_t i = 0; i < n; i++) {
        usm_status st = usm__handle_check(devs[i], USM__MAGIC_DEVICE);

        if (st != USM_OK)
            return st;
        if (devs[i]->be != devs[0]->be || devs[i]->desc.platform != devs[0]->desc.platform)
            return usm__fail(USM_E_INVALID,
                             "%s and %s are of different platforms; make a context for each",
                             devs[0]->term, devs[i]->term);
        for (size_t j = 0; j < i; j++)
            if (devs[j] == devs[i])
                return usm__fail(USM_E_INVALID, "device %s is listed twice", devs[i]->term);
    }
    return USM_OK;
}

static usm_status create(size_t n, usm_device *const *devs, const usm_context_desc *desc,
                         usm_context **out)
{
    void       **handles = NULL;
    usm_context *ctx     = NULL;
    usm_status   st      = check_devices(n, devs);

    if (st != USM_OK)
        return st;
    ctx = new_context(devs[0]->be, n, desc->on_error, desc->user);
    if (!ctx)
        return USM_E_NO_MEMORY;
    set_limits(ctx, desc->host_limit, desc->device_limit);
    handles = usm__heap_alloc(n * sizeof *handles);
    if (!handles) {
        st = usm__fail(USM_E_NO_MEMORY, "no host memory for a context");
        goto err_discard;
    }
    for (size_t i = 0; i < n; i++) {
        handles[i]          = devs[i]->desc.handle;
        ctx->devices[i].dev = devs[i];
    }
    st = usm__be_context_create(ctx->be, n, handles, &ctx->native);
    usm__heap_free(handles);
    if (st == USM_OK)
        return publish(ctx, out);
err_discard:
    discard_context(ctx);
    return st;
}

/* The parts of the descriptors that programs built with version 0.1 know. */
#define OLD_CONTEXT_DESC offsetof(usm_context_desc, host_limit)
#define OLD_NATIVE_DESC  offsetof(usm_native_desc, host_limit)

usm_status usm_context_create(const usm_context_desc *given, usm_context **ctx)
{
    usm_context_desc desc  = USM_CONTEXT_DESC_INIT;
    usm_device      *first = NULL;
    size_t           count = 0;
    usm_status       st;

    if (!ctx)
        return usm__fail(USM_E_INVALID, "usm_context_create: ctx is NULL");
    st = given ? usm__struct_check("usm_context_create", "desc", given, OLD_CONTEXT_DESC,
                                   "USM_CONTEXT_DESC_INIT")
               : USM_OK;
    if (st != USM_OK)
        return st;
    if (given)
        memcpy(&desc, given, usm_min_size(given->struct_size, sizeof desc));
    if (desc.ndevices && !desc.devices)
        return usm__fail(USM_E_INVALID, "usm_context_create: %zu %s but devices is NULL",
                         desc.ndevices, usm__plural(desc.ndevices, "device", "devices"));
    (void)usm__start();
    st = usm__settings_refusal();
    if (st != USM_OK)
        return st;
    if (desc.ndevices)
        return create(desc.ndevices, desc.devices, &desc, ctx);
    st = usm_get_devices(&first, 1, &count);
    return st == USM_OK ? create(1, &first, &desc, ctx) : st;
}

#define NATIVE_DEVICES_MAX 64

static usm_status adopt_devices(usm_context *ctx, const usm_backend_device *list)
{
    for (size_t i = 0; i < ctx->ndevices; i++) {
        ctx->devices[i].dev = usm__registry_device_of((usm__backend *)(uintptr_t)ctx->be, &list[i]);
        if (!ctx->devices[i].dev)
            return USM_E_NO_MEMORY;
    }
    return USM_OK;
}

static usm_status create_from_native(const usm__backend *be, const usm_native_desc *desc,
                                     usm_backend_device *list, usm_context **out)
{
    void        *native = NULL;
    size_t       count  = 0;
    usm_context *ctx;
    usm_status   st =
        usm__be_context_from_native(be, desc->handle, desc->ndevices, desc->devices,
                                    desc->ownership, &native, list, NATIVE_DEVICES_MAX, &count);

    if (st != USM_OK)
        return st;
    count = usm_min_size(count, NATIVE_DEVICES_MAX);
    ctx   = new_context(be, count, desc->on_error, desc->user);
    if (!ctx) {
        usm__be_context_destroy(be, native);
        return USM_E_NO_MEMORY;
    }
    ctx->native = native;
    set_limits(ctx, desc->host_limit, desc->device_limit);
    st = adopt_devices(ctx, list);
    if (st == USM_OK)
        return publish(ctx, out);
    usm__be_context_destroy(be, native);
    discard_context(ctx);
    return st;
}

static usm_status check_native(const usm_native_desc *desc, usm_context *const *ctx)
{
    if (!desc || !ctx || !desc->backend || !desc->handle || (desc->ndevices && !desc->devices))
        return usm__fail(USM_E_INVALID, "usm_context_from_native: %s is NULL",
                         !desc            ? "desc"
                         : !ctx           ? "ctx"
                         : !desc->backend ? "desc->backend"
                         : !desc->handle  ? "desc->handle"
                                          : "desc->devices");
    return usm__struct_check("usm_context_from_native", "desc", desc, OLD_NATIVE_DESC,
                             "USM_NATIVE_DESC_INIT");
}

usm_status usm_context_from_native(const usm_native_desc *given, usm_context **ctx)
{
    usm_native_desc     desc = USM_NATIVE_DESC_INIT;
    usm__backend_slot  *slot;
    usm_backend_device *list;
    usm_status          st = check_native(given, ctx);

    if (st != USM_OK)
        return st;
    memcpy(&desc, given, usm_min_size(given->struct_size, sizeof desc));
    (void)usm__start();
    st = usm__settings_refusal();
    if (st != USM_OK)
        return st;
    slot = usm__registry_backend(desc.backend);
    if (!slot)
        return usm_last_status();
    if (!usm__backend_can(&slot->be, USM_CAP_NATIVE))
        return usm__fail(USM_E_NOT_SUPPORTED, "backend %s has no native contexts", desc.backend);
    list = usm__heap_alloc(NATIVE_DEVICES_MAX * sizeof *list);
    if (!list)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a context");
    st = create_from_native(&slot->be, &desc, list, ctx);
    usm__heap_free(list);
    return st;
}

/* The caller no longer owns the queues of a context that ends. */
static void retire_queues(usm_context *ctx)
{
    for (usm_queue *q = usm__queue_next(ctx, NULL); q; q = usm__queue_next(ctx, q))
        usm__queue_retire(q);
}

void usm__context_let_go(usm_context *ctx)
{
    retire_queues(ctx);
    usm__context_unuse(ctx);
}

void usm__context_end(usm_context *ctx)
{
    if (!usm__handle_kill(ctx, USM__MAGIC_CONTEXT))
        return;
    if (usm__context_is_inert(ctx))
        return; /* inherited: its driver state is the parent's */
    if (!ctx->is_default || usm__default_await_left(ctx))
        usm__context_let_go(ctx);
}

void usm_context_destroy(usm_context *ctx)
{
    if (!ctx || usm__handle_check(ctx, USM__MAGIC_CONTEXT) != USM_OK)
        return;
    if (ctx->is_default)
        usm__warn("usm_context_destroy: the default context is the library's; usm_shutdown() "
                  "ends it");
    else
        usm__context_end(ctx);
}

/* ---- queries of a context ---------------------------------------------------- */

usm_status usm_context_get_devices(usm_context *ctx, usm_device **list, size_t cap, size_t *count)
{
    usm_status st = usm__context_resolve(&ctx);

    if (st != USM_OK)
        return st;
    if (!count || (!list && cap))
        return usm__fail(USM_E_INVALID, "usm_context_get_devices: %s is NULL",
                         count ? "list" : "count");
    for (size_t i = 0; i < ctx->ndevices && i < cap; i++)
        list[i] = ctx->devices[i].dev;
    *count = ctx->ndevices;
    return USM_OK;
}

usm_status usm_context_wait(usm_context *ctx)
{
    usm_status st = usm__context_resolve(&ctx), first = USM_OK;

    if (st == USM_OK && usm__context_is_inert(ctx))
        st = usm__fail(USM_E_FORKED, "the context was made before fork(); make one in the child");
    if (st != USM_OK)
        return st;
    for (usm_queue *q = usm__queue_next(ctx, NULL); q; q = usm__queue_next(ctx, q)) {
        st = usm__queue_finish(q);
        if (st != USM_OK && first == USM_OK)
            first = st;
    }
    return first;
}

usm_queue *usm__context_queue(usm_context *ctx, size_t index, usm__own_queue which)
{
    _Atomic(usm_queue *) *slot = &ctx->devices[index].queues[which];
    usm_queue            *q = usm_load_acquire(slot), *expected = NULL;

    if (q || usm__queue_make_own(ctx, index, &q) != USM_OK)
        return q;
    if (!usm_cas_acq_rel(slot, &expected, q)) {
        usm__queue_end_own(q); /* another thread was faster */
        q = expected;
    }
    return q;
}

usm_queue *usm__context_borrow_queue(usm_context *ctx, size_t index)
{
    usm_queue *q = NULL;
    usm_list  *it;

    usm__mutex_lock(&ctx->lock);
    it = usm_list_pop(&ctx->devices[index].idle);
    usm__mutex_unlock(&ctx->lock);
    if (it)
        return usm_container_of(it, usm_queue, link);
    return usm__queue_make_own(ctx, index, &q) == USM_OK ? q : NULL;
}

void usm__context_return_queue(usm_queue *q)
{
    usm__mutex_lock(&q->ctx->lock);
    usm_list_append(&q->ctx->devices[q->index].idle, &q->link);
    usm__mutex_unlock(&q->ctx->lock);
}

void usm__context_error(usm_context *ctx, usm_status status, const char *story)
{
    if (ctx->on_error)
        ctx->on_error(ctx, status, story, ctx->user);
    else
        usm__log(USM_LOG_ERROR, "%s: %s", usm_status_name(status), story);
}

/* ---- the probe ---------------------------------------------------------------- */

static usm_status copy_and_wait(usm_queue *q, void *dst, const void *src, bool *is_in_flight)
{
    usm_status st =
        usm__be_copy(q->be, q->native, dst, src, sizeof((probe *)0)->out, 0, NULL, NULL);

    if (st != USM_OK)
        return st;
    st            = usm__be_queue_wait(q->be, q->native);
    *is_in_flight = st != USM_OK;
    return st;
}

static usm_status there_and_back(usm_queue *q, probe *p, bool *is_in_flight)
{
    usm_status st = copy_and_wait(q, p->block, p->out, is_in_flight);

    if (st == USM_OK)
        st = copy_and_wait(q, p->back, p->block, is_in_flight);
    if (st == USM_OK && memcmp(p->out, p->back, sizeof p->out) != 0)
        st = USM_E_NO_DATA_MOVED;
    return st;
}

static void probe_put_aside(usm_context *ctx, usm_queue *q, probe *p)
{
    p->q = q;
    usm__mutex_lock(&ctx->lock);
    usm_list_append(&ctx->probes, &p->link);
    usm__mutex_unlock(&ctx->lock);
}

static usm_status no_data(const usm_device *dev)
{
    return usm__fail(USM_E_NO_DATA_MOVED,
                     "%s (%s) completes copies without moving data: a driver without its device? "
                     "see usm-info --doctor",
                     dev->term, dev->desc.name);
}

usm_status usm__context_probe(usm_context *ctx, size_t index)
{
    usm__context_device *d            = &ctx->devices[index];
    int                  known        = usm_load_acquire(&d->moves_data);
    bool                 is_in_flight = false;
    probe               *p;
    usm_queue           *q;
    usm_status           st;

    if (known)
        return known > 0 ? USM_OK : no_data(d->dev);
    q = usm__context_queue(ctx, index, USM__QUEUE_STAGING);
    if (!q)
        return usm_last_status();
    p = probe_new(ctx, d->dev);
    if (!p) /* a full device may still be able to copy: probe again at the next command */
        return usm_last_status() == USM_E_NO_MEMORY ? USM_OK : usm_last_status();
    st = there_and_back(q, p, &is_in_flight);
    if (is_in_flight)
        probe_put_aside(ctx, q, p);
    else
        probe_free(ctx, p);
    if (st == USM_OK || st == USM_E_NO_DATA_MOVED)
        usm_store_release(&d->moves_data, st == USM_OK ? 1 : -1);
    return st == USM_E_NO_DATA_MOVED ? no_data(d->dev) : st;
}

/* ---- over all contexts ---------------------------------------------------------- */

void usm__contexts_each_pool(usm__pool_visit *fn, void *arg)
{
    usm__mutex_lock(&all.lock);
    USM_LIST_FOREACH (it, &all.list) {
        usm_context *ctx = usm_container_of(it, usm_context, all);

        usm__mutex_lock(&ctx->lock);
        USM_LIST_FOREACH (jt, &ctx->pools)
            fn(usm_container_of(jt, usm_pool, link), arg);
        usm__mutex_unlock(&ctx->lock);
    }
    usm__mutex_unlock(&all.lock);
}

typedef struct live_sum {
    const usm_device *dev;
    uint64_t          bytes;
} live_sum;

static void add_live(usm_pool *pool, void *arg)
{
    live_sum *sum = arg;

    if (pool->ctx->devices[pool->index].dev == sum->dev && pool->kind != USM_HOST)
        sum->bytes += usm__pool_live(pool);
}

uint64_t usm__contexts_live_bytes(const usm_device *dev)
{
    live_sum sum = {dev, 0};

    usm__contexts_each_pool(add_live, &sum);
    return sum.bytes;
}

size_t usm__contexts_alive(void)
{
    size_t n = 0;

    usm__mutex_lock(&all.lock);
    USM_LIST_FOREACH (it, &all.list)
        n++;
    usm__mutex_unlock(&all.lock);
    return n;
}

/* The list is walked while its lock is held: the lock is taken first and released last. */
static void fork_context(usm_context *ctx, usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE)
        usm__mutex_fork(&ctx->lock, (int)phase);
    USM_LIST_FOREACH (it, &ctx->pools)
        usm__pool_fork(usm_container_of(it, usm_pool, link), phase);
    if (phase != USM_FORK_PREPARE)
        usm__mutex_fork(&ctx->lock, (int)phase);
}

void usm__contexts_fork(usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE)
        usm__mutex_fork(&all.lock, (int)phase);
    USM_LIST_FOREACH (it, &all.list)
        fork_context(usm_container_of(it, usm_context, all), phase);
    if (phase != USM_FORK_PREPARE)
        usm__mutex_fork(&all.lock, (int)phase);
}
