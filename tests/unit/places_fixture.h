/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Buffers as src/buffer/locations.h sees them, with a model of their content: what the caller of
 * places does (pins, dependencies, counts) in its shortest form.  Commands are fills and copies, so
 * that every runtime can run them. */
#ifndef PLACES_FIXTURE_H
#define PLACES_FIXTURE_H

#include "plain.h"

#include "base/fault.h"
#include "buffer/locations.h"

#include <usm/usm.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

typedef struct data {
    usm__space     *space;
    usm__locations *places;
    size_t          size;
    unsigned char  *model;
    usm_event      *last; /* the last command's                                         */
    usm__extent    *used; /* by it                                                      */
} data;

static usm_context *ctx;
static usm_queue   *q;
static usm__spill  *spill;

/* --- contexts ------------------------------------------------------------------------------ */

/* limit: a setting of memory_limit, or NULL; own: the context's host_limit, or 0. */
static inline void begin_with(const char *limit, size_t own)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;

    usm__fault_disarm_all();
    desc.host_limit = own;
    CHECK_INT(usm_config_set("memory_limit", limit ? limit : "auto"), USM_OK);
    usm__locations_force_copies(true);
    CHECK_INT(usm_context_create(&desc, &ctx), USM_OK);
    CHECK_INT(usm_queue_create(ctx, NULL, NULL, &q), USM_OK);
    CHECK_INT(usm__spill_of(ctx, &spill), USM_OK);
}

static inline void begin(const char *limit)
{
    begin_with(limit, 0);
}

/* Contexts whose queues had work end on another thread, a moment later, and extents that a copy's
 * end makes superfluous are freed by the driver's thread that told of it. */
static inline void await_nothing_held(const usm_device *dev)
{
    usm_memory_info info = USM_MEMORY_INFO_INIT;

    for (int i = 0; i < 5000; i++) {
        CHECK_INT(usm_device_memory(dev, &info), USM_OK);
        if (info.pooled == 0 && usm__locations_device_bytes() == 0)
            return;
        usleep(1000);
    }
    CHECK_INT(usm__locations_device_bytes(), 0);
    CHECK_INT(info.pooled, 0);
}

static inline void end(void)
{
    usm_device *dev = usm_queue_get_device(q);

    usm__fault_disarm_all();
    usm_queue_destroy(q);
    usm_context_destroy(ctx);
    await_nothing_held(dev);
}

/* --- data ---------------------------------------------------------------------------------- */

static inline data make(size_t size, const char *name)
{
    const usm__space_params params = {.size = size, .name = name};
    data                    d      = {.size = size, .model = calloc(1, size)};

    CHECK(d.model != NULL);
    CHECK_INT(usm__space_create(spill, &params, &d.space), USM_OK);
    CHECK_INT(usm__locations_create(d.space, 0, size, false, &d.places), USM_OK);
    return d;
}

/* The last command has ended; its failure. */
static inline usm_status finish(data *d)
{
    usm_status st = d->last ? usm_event_wait(d->last) : USM_OK;

    usm_event_release(d->last);
    if (d->used)
        usm__extent_unuse(d->used);
    d->last = NULL;
    d->used = NULL;
    return st;
}

static inline void unmake(data *d)
{
    (void)finish(d);
    usm__locations_destroy(d->places);
    usm__space_destroy(d->space);
    free(d->model);
}

static inline char *host_of(const data *d)
{
    return d->space->base;
}

/* --- the host's accesses --------------------------------------------------------------------- */

static inline usm_status pin(data *d, size_t at, size_t n, usm_access_mode mode)
{
    const usm__pin one = {d->space, at, n, mode};

    return usm__spill_pin(spill, 1, &one);
}

/* Bytes that are brought come by pins that write. */
static inline usm_access_mode pin_mode(const data *d, size_t at, size_t n, usm_access_mode mode)
{
    return usm__locations_is_on_host(d->places, at, n, mode) ? mode : mode | USM_WRITE;
}

static inline usm_status on_host(data *d, size_t at, size_t n, usm_access_mode mode)
{
    usm_status st = d->last ? usm_event_wait(d->last) : USM_OK;

    if (st != USM_OK || (usm__locations_is_on_host(d->places, at, n, mode) && !d->last))
        return st;
    return usm__locations_to_host(d->places, at, n, mode);
}

static inline usm_status write_host(data *d, size_t at, size_t n, int value)
{
    usm_access_mode mode = pin_mode(d, at, n, USM_WRITE);
    usm_status      st   = pin(d, at, n, mode);

    if (st != USM_OK)
        return st;
    st = on_host(d, at, n, USM_WRITE);
    if (st == USM_OK) {
        memset(host_of(d) + at, value, n);
        memset(d->model + at, value, n);
    }
    usm__space_unpin(d->space, at, n, mode);
    return st;
}

/* The bytes are the model's; or they cannot be had. */
static inline usm_status check_host(data *d, size_t at, size_t n)
{
    usm_access_mode mode = pin_mode(d, at, n, USM_READ);
    usm_status      st   = pin(d, at, n, mode);

    if (st != USM_OK)
        return st;
    st = on_host(d, at, n, USM_READ);
    if (st == USM_OK)
        CHECK(memcmp(host_of(d) + at, d->model + at, n) == 0);
    usm__space_unpin(d->space, at, n, mode);
    return st;
}

/* --- commands -------------------------------------------------------------------------------- */

typedef struct on_device {
    usm__extent          *extent;
    char                 *at;
    usm__locations_events after;
} on_device;

static inline usm_status to_device(data *d, usm_queue *on, size_t at, size_t n,
                                   usm_access_mode mode, on_device *where)
{
    usm_event          *deps[1] = {d->last};
    usm__locations_want want    = {on, at, n, mode, true, d->last ? 1 : 0, deps, 0, NULL};
    void               *p       = NULL;
    usm_status          st;

    memset(where, 0, sizeof *where);
    if (d->last) {
        st = usm_event_retain(d->last);
        CHECK_INT(st, USM_OK);
        CHECK_INT(usm__locations_events_add(&where->after, d->last), USM_OK);
    }
    st        = usm__locations_to_device(d->places, &want, &where->extent, &p, &where->after);
    where->at = p;
    if (st != USM_OK)
        usm__locations_events_fini(&where->after);
    return st;
}

static inline void submitted(data *d, on_device *where, usm_event *ev)
{
    usm__locations_events_fini(&where->after);
    usm_event_release(d->last);
    if (d->used)
        usm__extent_unuse(d->used); /* the next command comes after it, and holds its own */
    d->last = ev;
    d->used = where->extent;
}

static inline void give_up(on_device *where)
{
    usm__locations_events_fini(&where->after);
    usm__extent_unuse(where->extent);
}

/* Queued, not waited for. */
static inline usm_status write_device(data *d, usm_queue *on, size_t at, size_t n, int value)
{
    on_device  where;
    usm_event *ev = NULL;
    usm_status st = to_device(d, on, at, n, USM_WRITE_NO_INIT, &where);

    if (st != USM_OK)
        return st;
    st = usm_memset(on, where.at, value, n, where.after.n, where.after.list, &ev);
    if (st != USM_OK) {
        give_up(&where);
        return st;
    }
    (void)finish(d);
    submitted(d, &where, ev);
    memset(d->model + at, value, n);
    return USM_OK;
}

/* Every byte plus nothing: the command keeps what it does not write, the last n / 2 bytes. */
static inline usm_status write_half(data *d, usm_queue *on, size_t at, size_t n, int value)
{
    on_device  where;
    usm_event *ev = NULL;
    usm_status st = to_device(d, on, at, n, USM_WRITE, &where);

    if (st != USM_OK)
        return st;
    st = usm_memset(on, where.at, value, (n + 1) / 2, where.after.n, where.after.list, &ev);
    if (st != USM_OK) {
        give_up(&where);
        return st;
    }
    (void)finish(d);
    submitted(d, &where, ev);
    memset(d->model + at, value, (n + 1) / 2);
    return USM_OK;
}

static inline usm_status check_device(data *d, usm_queue *on, size_t at, size_t n)
{
    on_device  where;
    char      *seen = malloc(n);
    usm_event *ev   = NULL;
    usm_status st   = to_device(d, on, at, n, USM_READ, &where);

    CHECK(seen != NULL);
    if (st == USM_OK) {
        st = usm_memcpy(on, seen, where.at, n, where.after.n, where.after.list, &ev);
        if (st == USM_OK)
            st = usm_event_wait(ev);
        usm_event_release(ev);
        give_up(&where);
        if (st == USM_OK)
            CHECK(memcmp(seen, d->model + at, n) == 0);
    }
    free(seen);
    return st;
}

#endif
