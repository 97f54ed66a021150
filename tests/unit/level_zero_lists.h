/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the tests of the Level Zero backend's queues share: every case runs with immediate command
 * lists and with regular ones, and the software driver reorders what it may; the driver's functions
 * for the test's own calls; who counts notices. */
#ifndef LEVEL_ZERO_LISTS_H
#define LEVEL_ZERO_LISTS_H

#include "level_zero_fixture.h"

#include "backends/level_zero/queue.h"

lz_functions lz; /* the test's own calls */

static inline void load_functions(void)
{
    void *loader = dlopen("libze_loader.so.1", RTLD_NOW | RTLD_LOCAL);
    void *p;

    CHECK(loader != NULL);
#define GET(name) (p = dlsym(loader, #name), memcpy(&lz.name, &p, sizeof(p)));
    LZ_REQUIRED(GET)
#undef GET
}

static inline lz_device *device(void)
{
    return dev->handle;
}

static inline bool is_regular(void)
{
    return module.lists != NULL;
}

/* Objects of the driver; queues that were given up go a moment later. */
static inline void expect_live(uint64_t n)
{
    for (int i = 0; i < 10000 && soft.live() > n; i++)
        module_sleep_ms(1);
    CHECK_INT(soft.live(), n);
}

/* --- notices --------------------------------------------------------------------------------- */

static struct {
    atomic_int n, wrong;
} heard;

static inline void on_hear(void *arg, usm_status status)
{
    if (status || arg != &heard)
        atomic_fetch_add(&heard.wrong, 1);
    atomic_fetch_add(&heard.n, 1);
}

/* --- the program's own objects ---------------------------------------------------------------- */

static inline ze_context_handle_t native_context(void)
{
    void *native = NULL;

    CHECK_INT(ops->context_native(ctx, &native), USM_OK);
    return native;
}

/* A context without a queue of ours. */
static inline void open_context(void)
{
    module_start();
    ctx = context_of(1, dev);
}

static inline void close_context(void)
{
    ops->context_destroy(ctx);
    module_clean();
}

typedef struct native_event {
    ze_event_pool_handle_t pool;
    ze_event_handle_t      event;
} native_event;

static inline native_event native_event_new(void)
{
    ze_event_pool_desc_t pool  = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                  .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
                                  .count = 1};
    ze_event_desc_t      event = {.stype  = ZE_STRUCTURE_TYPE_EVENT_DESC,
                                  .signal = ZE_EVENT_SCOPE_FLAG_HOST,
                                  .wait   = ZE_EVENT_SCOPE_FLAG_HOST};
    native_event         e     = {NULL, NULL};

    CHECK_INT(lz.zeEventPoolCreate(native_context(), &pool, 1, &device()->native, &e.pool), 0);
    CHECK_INT(lz.zeEventCreate(e.pool, &event, &e.event), 0);
    return e;
}

/* --- running ---------------------------------------------------------------------------------- */

/* The cases twice, then so the last ones. */
static inline int lists_main(int argc, char **argv, const plain_case *cases, const plain_case *last)
{
    static const plain_case first[]  = {CASE(the_software_driver_is_found_where_it_runs),
                                        {NULL, NULL}};
    const plain_case *const all[]    = {cases, cases, last, last};
    const char             *no_skip  = getenv("USM_TEST_NO_SKIP");
    int                     count[3] = {0, 0, 0};
    int                     end;

    lz_host = &module_api;
    (void)setenv("ZE_SOFT_REORDER", "1", 0); /* no order but what was asked for */
    end = module_main("level_zero", argc, argv, first);
    if (!dev || end == 1)
        return end;
    soft_find();
    load_functions();
    for (int i = 0; i < 4; i++) {
        if (!all[i])
            continue;
        module.lists = i % 2 ? "regular" : NULL;
        printf("# %s lists\n", i % 2 ? "regular" : "immediate");
        end = plain_main(argc, argv, all[i]);
        if (end == 1)
            return 1;
        count[end == 0 ? 0 : end == 77 ? 1 : 2]++;
    }
    if (count[1] && (!count[0] || (no_skip && strcmp(no_skip, "1") == 0)))
        return 77;
    return count[0] ? 0 : 2;
}

#endif
