/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The host backend alone, with one context and one queue, and a kernel that notes in which order
 * its launches ran. */
#ifndef HOST_FIXTURE_H
#define HOST_FIXTURE_H

#include "module_api.h"

#include "backends/host/host.h"
#include "backends/host/internal.h"

#include <signal.h>

static const usm_backend_ops *be;
static void                  *ctx, *queue;

/* --- events ---------------------------------------------------------------------------------- */

static inline void *user_event(void)
{
    void *ev = NULL;

    CHECK_INT(be->event_create_user(ctx, &ev), USM_OK);
    return ev;
}

static inline void signal_event(void *ev, usm_status status)
{
    CHECK_INT(be->event_signal(ev, status), USM_OK);
}

static inline void release(void *ev)
{
    be->event_release(ev);
}

static inline void release2(void *a, void *b)
{
    release(a);
    release(b);
}

/* Not complete, and not because nobody had the time yet. */
static inline void stays_unready(void *ev)
{
    CHECK_INT(be->event_query(ev), USM_E_NOT_READY);
    module_sleep_ms(10);
    CHECK_INT(be->event_query(ev), USM_E_NOT_READY);
}

/* --- notes ----------------------------------------------------------------------------------- */

static struct {
    long        values[4096];
    atomic_long count;
    void       *program, *kernel;
} noted;

static void note_fn(const usm_range *range, void *const *args)
{
    (void)range;
    noted.values[atomic_fetch_add(&noted.count, 1) % 4096] = *(const long *)args[0];
}

static const usm_arg_kind      note_kinds[] = {USM_ARG_VALUE};
static const usm_native_kernel note_table[] = {{"note", note_fn, 1, note_kinds}};

/* A launch that notes `value`, after ndeps events; its event. */
static inline void *note_after(long value, void *const *deps, size_t ndeps)
{
    usm_arg    arg    = {USM_ARG_VALUE, sizeof(value), &value};
    usm_launch launch = USM_LAUNCH_INIT;
    void      *ev     = NULL;

    launch.nargs = 1;
    launch.args  = &arg;
    CHECK_INT(be->launch(queue, noted.kernel, &launch, ndeps, deps, &ev), USM_OK);
    return ev;
}

static inline long notes(void)
{
    return noted.count;
}

static inline long note_at(long i)
{
    return i < noted.count ? noted.values[i] : -1;
}

/* --- begin and end of a case
 * ---------------------------------------------------------------------- */

static inline void begin_with(bool guard, uint32_t flags)
{
    const usm_image image = {USM_IMAGE_NATIVE, note_table, sizeof(note_table)};

    module_start();
    module.guard = guard;
    noted.count  = 0;
    be           = usm_host_backend_entry(&module_api);
    CHECK_INT(be->context_create(0, NULL, &ctx), USM_OK);
    CHECK_INT(be->queue_create(ctx, NULL, flags, &queue), USM_OK);
    CHECK_INT(be->program_build(ctx, NULL, &image, NULL, NULL, &noted.program), USM_OK);
    CHECK_INT(be->kernel_create(noted.program, "note", &noted.kernel), USM_OK);
    be->program_destroy(noted.program);
}

static inline void begin(void)
{
    begin_with(false, 0);
}

static inline void end(void)
{
    usm__fault_disarm_all();
    be->kernel_destroy(noted.kernel);
    be->queue_destroy(queue);
    be->context_destroy(ctx);
    module_clean();
}

#endif
