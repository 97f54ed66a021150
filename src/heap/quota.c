/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory accounting: the bytes taken from drivers, and the limits that are checked against them.
 *
 * Each device has one quota, for its device and shared memory, and the host has one.  A context
 * with limits of its own has quotas of its own besides.  The memory of a device that is a
 * processor is host memory: it counts in both quotas.
 *
 * USM_MEMORY_LIMIT ("host:256M,device:80%") sets how much may be taken.  With "auto", or without a
 * value, allocations have no limit, and buffers get a part of the host's memory, divided evenly
 * among the ranks of a node (usm__quota_buffer_limit).
 *
 * Called by heap/area.c and device/context.c, and by the parts above the core for frames of
 * buffers. */
#include "base/inline/plural.h"
#include "base/job.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/text.h"
#include "heap/area.h"

#include <stdio.h>

static struct {
    usm__device_quota quota;
    _Atomic(uint64_t) total; /* bytes; 0: not read yet */
} host;                      /* atomic, each member */

/* Parses "256M", "80%" (of `total`) or "auto" (0) into bytes. */
static bool parse_amount(usm__span s, uint64_t total, uint64_t *bytes)
{
    uint64_t n;

    if (usm__span_is(s, "auto")) {
        *bytes = 0;
        return true;
    }
    if (s.len > 1 && s.at[s.len - 1] == '%') {
        s.len--;
        if (!usm__span_number(s, &n) || n == 0 || n > 100)
            return false;
        *bytes = total / 100 * n;
        return true;
    }
    return usm__span_size(s, bytes) && *bytes > 0;
}

/* Finds the amount for `which` in the setting; false when the text is not a valid setting. */
static bool find_amount(const char *text, const char *which, uint64_t total, uint64_t *bytes)
{
    usm__span rest = usm__span_of(text), item, name;
    uint64_t  n;

    *bytes = 0;
    while (usm__span_next(&rest, ',', &item)) {
        bool is_host, is_device;

        if (usm__span_is(item, "auto"))
            continue;
        if (!usm__span_next(&item, ':', &name))
            return false;
        is_host   = usm__span_is(name, "host");
        is_device = usm__span_is(name, "device");
        if ((!is_host && !is_device) || !parse_amount(item, total, &n))
            return false;
        if (usm__span_is(name, which))
            *bytes = n;
    }
    return true;
}

bool usm__quota_check(const char *text, char *why, size_t why_size)
{
    uint64_t n;
    bool     amount = parse_amount(usm__span_of(text), 100, &n);

    if (find_amount(text, "host", 100, &n))
        return true;
    snprintf(why, why_size,
             "auto, or host:SIZE,device:SIZE where SIZE is bytes (256M) or 1%%..100%%%s%.40s%s",
             amount ? "; did you mean host:" : "", amount ? text : "", amount ? "?" : "");
    return false;
}

void usm__quota_start(usm_device *dev)
{
    const char *text = usm__setting_text("memory_limit");
    uint64_t    n;

    if (find_amount(text, "device", dev->desc.memory_size, &n))
        usm_store_relaxed(&dev->quota.limit, n);
    if (find_amount(text, "host", usm__os_memory_total(), &n))
        usm_store_relaxed(&host.quota.limit, n);
}

uint64_t usm__quota_host_reserved(void)
{
    return usm_load_relaxed(&host.quota.reserved);
}

uint64_t usm__quota_host_limit(void)
{
    return usm_load_relaxed(&host.quota.limit);
}

bool usm__quota_is_host_memory(const usm_device *dev)
{
    return dev->desc.type == USM_DEVICE_TYPE_CPU;
}

/* ---- which quotas ------------------------------------------------------------ */

#define ACCOUNTS 4

typedef struct entry {
    usm__device_quota *quota;
    const char        *whose;
    bool               is_own; /* a quota of the context, not of the process */
} entry;

/* Lists the quotas in which memory of this kind counts; returns their number. */
static size_t quotas_of(usm_context *ctx, size_t index, usm_kind kind, entry list[ACCOUNTS])
{
    usm__context_device *d = &ctx->devices[index];
    size_t               n = 0;

    if (kind != USM_HOST) {
        list[n++] = (entry){&d->dev->quota, d->dev->term, false};
        if (usm_load_relaxed(&d->own.limit))
            list[n++] = (entry){&d->own, d->dev->term, true};
    }
    if (kind == USM_HOST || usm__quota_is_host_memory(d->dev)) {
        list[n++] = (entry){&host.quota, "host memory", false};
        if (usm_load_relaxed(&ctx->own_host.limit))
            list[n++] = (entry){&ctx->own_host, "host memory", true};
    }
    return n;
}

/* As above, for memory that belongs to no device; ctx NULL: nor to a context. */
static size_t host_quotas(usm_context *ctx, entry list[ACCOUNTS])
{
    if (ctx)
        return quotas_of(ctx, 0, USM_HOST, list);
    list[0] = (entry){&host.quota, "host memory", false};
    return 1;
}

static uint64_t room_in(const usm__device_quota *a)
{
    uint64_t reserved = usm_load_relaxed(&((usm__device_quota *)(uintptr_t)a)->reserved);
    uint64_t limit    = usm_load_relaxed(&((usm__device_quota *)(uintptr_t)a)->limit);

    return limit == 0 ? UINT64_MAX : reserved < limit ? limit - reserved : 0;
}

void usm__quota_get(usm_context *ctx, size_t index, usm_kind kind, usm__quota_view *view)
{
    entry        list[ACCOUNTS];
    size_t       n     = quotas_of(ctx, index, kind, list);
    const entry *least = &list[0];

    for (size_t i = 1; i < n; i++)
        if (room_in(list[i].quota) < room_in(least->quota))
            least = &list[i];
    view->reserved = usm_load_relaxed(&least->quota->reserved);
    view->limit    = usm_load_relaxed(&least->quota->limit);
    view->is_host  = least->quota == &host.quota || least->quota == &ctx->own_host;
    view->whose    = view->is_host ? "host" : least->whose;
    view->is_own   = least->is_own;
}

bool usm__quota_lacks_host(usm_context *ctx, size_t index, usm_kind kind)
{
    usm__quota_view view;

    if (kind != USM_HOST && !usm__quota_is_host_memory(ctx->devices[index].dev))
        return false;
    usm__quota_get(ctx, index, kind, &view);
    return view.is_host || view.limit == 0; /* without a limit, the machine itself is out of
                                               memory */
}

/* ---- counting -------------------------------------------------------------------- */

/* Compares before it adds.  Adding first and subtracting after a failure could make another
 * thread's request fail meanwhile. */
bool usm__quota_count(_Atomic(uint64_t) *count, uint64_t limit, size_t size, uint64_t *before)
{
    *before = usm_load_relaxed(count);
    do {
        if (limit != 0 && (size > limit || *before > limit - size))
            return false;
    } while (!usm_cas_acq_rel(count, before, *before + size));
    return true;
}

static usm_status add(const entry *e, size_t size)
{
    uint64_t limit = usm_load_relaxed(&e->quota->limit), before = 0;

    if (usm__quota_count(&e->quota->reserved, limit, size, &before))
        return USM_OK;
    return usm__fail(USM_E_BUDGET,
                     "%zu %s more would cross the %slimit of %llu for %s (%llu are taken); free "
                     "some or raise %s",
                     size, usm__plural(size, "byte", "bytes"), e->is_own ? "context's " : "",
                     (unsigned long long)limit, e->whose, (unsigned long long)before,
                     e->is_own ? "host_limit or device_limit of its usm_context_desc"
                               : "USM_MEMORY_LIMIT");
}

static void sub_all(const entry *list, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++)
        usm_sub_relaxed(&list[i].quota->reserved, (uint64_t)size);
}

/* Adds to all of the quotas, or to none. */
static usm_status add_all(const entry *list, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++) {
        usm_status st = add(&list[i], size);

        if (st != USM_OK) {
            sub_all(list, i, size);
            return st;
        }
    }
    return USM_OK;
}

usm_status usm__quota_add(usm_context *ctx, size_t index, usm_kind kind, size_t size)
{
    entry list[ACCOUNTS];

    return add_all(list, quotas_of(ctx, index, kind, list), size);
}

void usm__quota_sub(usm_context *ctx, size_t index, usm_kind kind, size_t size)
{
    entry list[ACCOUNTS];

    sub_all(list, quotas_of(ctx, index, kind, list), size);
}

/* ---- buffers ------------------------------------------------------------------------ */

static uint64_t smaller_limit(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

uint64_t usm__quota_memory_total(void)
{
    uint64_t bytes = usm_load_relaxed(&host.total);

    if (bytes == 0) {
        bytes = usm__os_memory_total();
        usm_store_relaxed(&host.total, bytes);
    }
    return bytes;
}

uint64_t usm__quota_buffer_limit(const usm_context *ctx)
{
    uint64_t own   = usm_load_relaxed(&((usm_context *)(uintptr_t)ctx)->own_host.limit);
    uint64_t limit = smaller_limit(own, usm_load_relaxed(&host.quota.limit));

    return limit ? limit
                 : usm__quota_memory_total() / 10 * 8 / usm__launcher_place_get().local_size;
}

bool usm__quota_is_own(const usm_context *ctx)
{
    return usm_load_relaxed(&((usm_context *)(uintptr_t)ctx)->own_host.limit) != 0;
}

usm_status usm__quota_add_host(usm_context *own, size_t size)
{
    entry list[ACCOUNTS];

    return add_all(list, host_quotas(own, list), size);
}

void usm__quota_sub_host(usm_context *own, size_t size)
{
    entry list[ACCOUNTS];

    sub_all(list, host_quotas(own, list), size);
}
