/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The accounts that limits look at: bytes taken from the driver, one account a
 * device (device and shared memory) and one for the host.  USM_MEMORY_LIMIT
 * ("host:256M,device:80%") sets how much may be taken; "auto" and silence mean
 * no limit for allocations.  Called by core/area.c and core/context.c. */
#include "base/os.h"
#include "base/settings.h"
#include "base/text.h"
#include "core/area.h"

#include <stdio.h>

static struct {
    _Atomic(uint64_t) reserved;
    _Atomic(uint64_t) limit; /* 0: none                                                  */
} host;

/* "256M", "80%", "auto": bytes of `total`; 0 for auto. */
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

/* The amount for `which` in the setting; false when the text is no setting. */
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

bool usm__account_check(const char *text, char *why, size_t why_size)
{
    uint64_t n;

    if (find_amount(text, "host", 100, &n))
        return true;
    snprintf(why, why_size,
             "auto, or host:SIZE,device:SIZE where SIZE is bytes (256M) or 1%%..100%%");
    return false;
}

void usm__account_start(usm_device *dev)
{
    const char *text = usm__setting_text("memory_limit");
    uint64_t    n;

    if (find_amount(text, "device", dev->desc.memory_size, &n))
        usm_store_relaxed(&dev->limit, n);
    if (find_amount(text, "host", usm__os_memory_total(), &n))
        usm_store_relaxed(&host.limit, n);
}

uint64_t usm__account_host_reserved(void)
{
    return usm_load_relaxed(&host.reserved);
}

void usm__account_get(usm_device *dev, usm_kind kind, uint64_t *reserved, uint64_t *limit)
{
    *reserved = usm_load_relaxed(kind == USM_HOST ? &host.reserved : &dev->reserved);
    *limit    = usm_load_relaxed(kind == USM_HOST ? &host.limit : &dev->limit);
}

/* Never adds what it takes back: that would refuse another thread's request. */
bool usm__account_count(_Atomic(uint64_t) *count, uint64_t limit, size_t size, uint64_t *before)
{
    *before = usm_load_relaxed(count);
    do {
        if (limit != 0 && (size > limit || *before > limit - size))
            return false;
    } while (!usm_cas_acq_rel(count, before, *before + size));
    return true;
}

static usm_status add(_Atomic(uint64_t) *reserved, uint64_t limit, size_t size, const char *whose)
{
    uint64_t before = 0;

    if (usm__account_count(reserved, limit, size, &before))
        return USM_OK;
    return usm__fail(USM_E_BUDGET,
                     "%zu bytes more would cross the limit of %llu for %s (%llu are taken); free "
                     "some or raise USM_MEMORY_LIMIT",
                     size, (unsigned long long)limit, whose, (unsigned long long)before);
}

usm_status usm__account_add(usm_device *dev, usm_kind kind, size_t size)
{
    if (kind == USM_HOST)
        return add(&host.reserved, usm_load_relaxed(&host.limit), size, "host memory");
    return add(&dev->reserved, usm_load_relaxed(&dev->limit), size, dev->term);
}

void usm__account_pad(usm_device *dev, usm_kind kind, size_t size)
{
    usm_add_relaxed(kind == USM_HOST ? &host.reserved : &dev->reserved, (uint64_t)size);
}

void usm__account_sub(usm_device *dev, usm_kind kind, size_t size)
{
    usm_sub_relaxed(kind == USM_HOST ? &host.reserved : &dev->reserved, (uint64_t)size);
}
