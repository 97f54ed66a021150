/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Contexts: creation and the two reference counts.
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
#include "base/part.h"
#include "base/settings.h"
#include "device/init.h"

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
    usm__parts_context_freed(ctx);
    if (!usm__context_is_inert(ctx))
        usm__be_context_destroy(ctx->be, ctx->native);
    free_struct(ctx);
}

void usm__context_use(usm_context *ctx)
{
    usm_ref_take(&ctx->users);
}

void usm__context_unuse(usm_context *ctx)
{
    if (!usm_ref_drop(&ctx->users))
        return;
    usm__parts_context_unused(ctx);
    usm__context_unref(ctx);
}

/* ---- creation ---------------------------------------------------------------- */

static usm_context *new_context(const usm__backend *be, size_t ndevices, usm_error_fn on_error,
                                void *user)
{
    usm_context *ctx = usm__meta_alloc(&context_type);

    if (!ctx)
        goto err_memory;
    ctx->devices = usm__heap_alloc(ndevices * sizeof *ctx->devices);
    if (!ctx->devices)
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
    usm__meta_free(&context_type, ctx);
err_memory:
    (void)usm__fail(USM_E_NO_MEMORY, "no host memory for a context");
    return NULL;
}

static void set_limits(usm_context *ctx, uint64_t host, uint64_t device)
{
    usm_store_relaxed(&ctx->own_host.limit, host);
    for (size_t i = 0; i < ctx->ndevices; i++)
        usm_store_relaxed(&ctx->devices[i].own.limit, device);
}

/* Ends the context on failure. */
static usm_status publish(usm_context *ctx, usm_context **out)
{
    usm_status st = usm__parts_context_made(ctx);

    if (st != USM_OK) {
        usm__be_context_destroy(ctx->be, ctx->native);
        free_struct(ctx);
        return st;
    }
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
    free_struct(ctx);
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
    free_struct(ctx);
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

void usm__context_let_go(usm_context *ctx)
{
    usm__parts_context_ended(ctx);
    usm__context_unuse(ctx);
}

void usm__context_end(usm_context *ctx)
{
    if (!usm__handle_kill(ctx, USM__MAGIC_CONTEXT))
        return;
    if (usm__context_is_inert(ctx)) /* inherited: its driver state is the parent's */
        usm__parts_context_ended(ctx);
    else if (!ctx->is_default || usm__default_await_left(ctx))
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

void usm__context_error(usm_context *ctx, usm_status status, const char *message)
{
    if (ctx->on_error)
        ctx->on_error(ctx, status, message, ctx->user);
    else
        usm__log(USM_LOG_ERROR, "%s: %s", usm_status_name(status), message);
}

/* ---- over all contexts ---------------------------------------------------------- */

void usm__contexts_each(void (*fn)(usm_context *ctx, void *arg), void *arg)
{
    usm__mutex_lock(&all.lock);
    USM_LIST_FOREACH (it, &all.list)
        fn(usm_container_of(it, usm_context, all), arg);
    usm__mutex_unlock(&all.lock);
}

void usm__contexts_each_in_fork(void (*fn)(usm_context *ctx, usm_fork_phase phase),
                                usm_fork_phase phase)
{
    USM_LIST_FOREACH (it, &all.list)
        fn(usm_container_of(it, usm_context, all), phase);
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

static void fork_context(usm_context *ctx, usm_fork_phase phase)
{
    usm__mutex_fork(&ctx->lock, phase);
}

/* The list is walked while its lock is held: the lock is taken first and released last. */
void usm__contexts_fork(usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE)
        usm__mutex_fork(&all.lock, phase);
    usm__contexts_each_in_fork(fork_context, phase);
    if (phase != USM_FORK_PREPARE)
        usm__mutex_fork(&all.lock, phase);
}
