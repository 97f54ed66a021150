/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scenarios of the fault sweep: start, objects, memory, pools, programs.  Those of commands are in
 * scenarios_command.c. */
#include "sweep.h"

#include "heap/area.h"
#include "scenarios_kernels.h"

/* --- start: in processes where nothing was used before
 * -------------------------------------------- */

static usm_status init_and_shutdown(state *s)
{
    (void)s;
    for (int i = 0; i < 2; i++) {
        usm_status status = usm_init();
        if (!status && !usm_default_context())
            status = usm_last_status();
        usm_shutdown();
        TRY(status);
    }
    return usm_init();
}

static usm_status select_parts(state *s)
{
    usm_device *list[8] = {NULL};
    size_t      count   = 77;
    usm_status  status  = usm_select_devices("*:*.*", list, 8, &count);

    if (status)
        MUST(count == 77 && !list[0]);
    return status == USM_E_NO_DEVICE ? USM_OK : status; /* there may be none with parts */
}

static usm_status select_devices(state *s)
{
    usm_device *list[8] = {NULL};
    size_t      count   = 77;
    usm_status  status  = usm_select_devices("*:*", list, 8, &count);

    if (status)
        MUST(count == 77 && !list[0]);
    return status;
}

static usm_status select_by_setting(state *s)
{
    usm_device *list[8] = {NULL};
    size_t      count   = 77;
    usm_status  status  = usm_get_devices(list, 8, &count);

    if (status)
        MUST(count == 77 && !list[0]);
    return status;
}

static usm_status first_alloc(state *s)
{
    TRY_PTR(s->p[0], usm_alloc_host(100));
    usm_free(s->p[0]);
    s->p[0] = NULL;
    return USM_OK;
}

static usm_status first_queue(state *s)
{
    (void)s;
    return usm_default_queue() ? usm_queue_wait(usm_default_queue()) : usm_last_status();
}

static usm_status config(state *s)
{
    const char *value = NULL, *origin = NULL;

    TRY(usm_config_set("cache_dir", "/tmp/one"));
    TRY(usm_config_set("cache_dir", "/tmp/two"));
    TRY(usm_config_get("cache_dir", &value, &origin));
    MUST(!strcmp(value, "/tmp/two"));
    TRY(usm_config_set("cache_dir", NULL));
    return usm_config_set("cache_dir", "off");
}

/* --- objects
 * --------------------------------------------------------------------------------------- */

static usm_status context_create(state *s)
{
    usm_status status = usm_context_create(NULL, &s->made_ctx);

    if (status)
        MUST(!s->made_ctx);
    return status;
}

static usm_status context_of_a_device(state *s)
{
    usm_device      *dev  = usm_queue_get_device(s->q);
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;

    desc.ndevices = 1;
    desc.devices  = &dev;
    TRY(usm_context_create(&desc, &s->made_ctx));
    TRY(usm_queue_create(s->made_ctx, dev, NULL, &s->made_q));
    TRY_PTR(s->p[0], usm_malloc_ctx(1000, dev, s->made_ctx, sweep_kind()));
    return USM_OK;
}

static usm_status queue_create(state *s)
{
    usm_queue_desc desc = USM_QUEUE_DESC_INIT;
    usm_status     status;

    desc.flags = sweep_has(USM_ASPECT_OUT_OF_ORDER_QUEUE) ? USM_QUEUE_OUT_OF_ORDER : 0;
    status     = usm_queue_create(s->ctx, NULL, &desc, &s->made_q);
    if (status)
        MUST(!s->made_q);
    return status;
}

/* Takes a context with memory, a queue and a pool down while calls fail. */
static usm_status context_destroy(state *s)
{
    usm_event *ev = NULL;
    usm_status status;

    TRY(usm_context_create(NULL, &s->made_ctx));
    TRY(usm_queue_create(s->made_ctx, NULL, NULL, &s->made_q));
    TRY_PTR(s->p[0], usm_malloc(5000, s->made_q, USM_HOST));
    status = usm_queue_barrier(s->made_q, 0, NULL, &ev);
    usm_event_release(ev);
    usm_free(s->p[0]);
    usm_queue_destroy(s->made_q);
    usm_context_destroy(s->made_ctx);
    s->p[0]     = NULL;
    s->made_q   = NULL;
    s->made_ctx = NULL;
    return status;
}

static usm_status from_native(state *s)
{
    usm_native_desc desc  = USM_NATIVE_DESC_INIT;
    void           *queue = NULL, *event = NULL;

    desc.backend = sweep_backend();
    TRY(usm_context_get_native(s->ctx, desc.backend, &desc.handle));
    TRY(usm_context_from_native(&desc, &s->made_ctx));
    TRY(usm_queue_get_native(s->q, desc.backend, &queue));
    TRY(usm_queue_from_native(s->ctx, queue, USM_KEEP, &s->made_q));
    TRY(usm_queue_barrier(s->made_q, 0, NULL, &s->ev[0]));
    TRY(usm_event_get_native(s->ev[0], desc.backend, &event));
    TRY(usm_event_from_native(s->ctx, event, USM_KEEP, &s->ev[1]));
    return usm_event_wait(s->ev[1]);
}

static usm_status device_info(state *s)
{
    usm_device_info info   = USM_DEVICE_INFO_INIT;
    usm_memory_info memory = USM_MEMORY_INFO_INIT;
    bool            can    = false;
    usm_device     *dev    = usm_queue_get_device(s->q);

    TRY(usm_device_get_info(dev, &info));
    TRY(usm_device_memory(dev, &memory));
    return usm_device_can_access_peer(dev, dev, &can);
}

/* --- memory
 * ---------------------------------------------------------------------------------------- */

static usm_status alloc_kind(state *s, usm_kind kind)
{
    static const size_t sizes[] = {0, 100, 70000, 3000000};

    for (int i = 0; i < 4; i++) {
        TRY_PTR(s->p[i], usm_malloc(sizes[i], s->q, kind));
        MUST(usm_get_pointer_type(s->p[i], s->ctx) == kind);
    }
    for (int i = 0; i < 4; i++) {
        TRY(usm_free_ctx(s->p[i], s->ctx));
        s->p[i] = NULL;
    }
    return USM_OK;
}

static usm_status alloc_host(state *s)
{
    return alloc_kind(s, USM_HOST);
}

static usm_status alloc_device(state *s)
{
    return alloc_kind(s, sweep_kind());
}

static usm_status alloc_shared(state *s)
{
    return alloc_kind(s, sweep_has(USM_ASPECT_USM_SHARED_ALLOCATIONS) ? USM_SHARED : USM_HOST);
}

static usm_status alloc_aligned(state *s)
{
    for (int i = 0; i < 4; i++) {
        size_t align = (size_t)4096 << (3 * i);
        TRY_PTR(s->p[i], usm_aligned_alloc_ctx(align, 100000, NULL, s->ctx, sweep_kind()));
        MUST((uintptr_t)s->p[i] % 4096 == 0);
    }
    return USM_OK;
}

static usm_status alloc_many(state *s)
{
    void      *p[300] = {NULL};
    usm_status status = USM_OK;
    size_t     got    = 0;

    for (; got < 300 && !status; got++) {
        p[got] = usm_malloc(got * 50, s->q, USM_HOST);
        status = p[got] ? USM_OK : usm_last_status();
    }
    for (size_t i = 0; i < got; i++)
        if (p[i])
            MUST(usm_get_pointer_type(p[i], s->ctx) == USM_HOST);
    for (size_t i = 0; i < got; i++)
        usm_free(p[i]);
    return status;
}

static usm_status calloc_zeroes(state *s)
{
    s->used_default = true;
    TRY_PTR(s->p[0], usm_calloc(100, 30, sweep_kind()));
    TRY(usm_copy(s->back, s->p[0], 3000));
    for (int i = 0; i < 3000; i++)
        MUST(s->back[i] == 0);
    return USM_OK;
}

static usm_status realloc_grows(state *s)
{
    void *grown;

    s->used_default = true;
    TRY_PTR(s->p[0], usm_alloc(1000, sweep_kind()));
    TRY(usm_copy(s->p[0], s->host, 1000));
    grown = usm_realloc(s->p[0], 200000, USM_UNKNOWN);
    if (!grown) { /* then the block is as it was */
        usm_status status = usm_last_status();
        MUST(usm_get_pointer_type(s->p[0], NULL) == sweep_kind());
        return status;
    }
    s->p[0] = grown;
    TRY(usm_copy(s->back, s->p[0], 1000));
    MUST(!memcmp(s->back, s->host, 1000));
    return USM_OK;
}

static usm_status free_blocking(state *s)
{
    TRY_PTR(s->p[0], usm_malloc(4096, s->q, USM_HOST));
    TRY(usm_memcpy(s->q, s->back, s->p[0], 4096, 0, NULL, NULL));
    TRY(usm_free_blocking(s->p[0], s->ctx));
    s->p[0] = NULL;
    return USM_OK;
}

static usm_status wrong_frees(state *s)
{
    char *p;

    TRY_PTR(s->p[0], usm_malloc(1000, s->q, USM_HOST));
    p = s->p[0];
    MUST(usm_free_ctx(p + 5, NULL) == USM_E_INTERIOR_POINTER);
    MUST(usm_free_ctx(s->host, NULL) == USM_E_INVALID_POINTER);
    MUST(usm_get_pointer_type(p, NULL) == USM_HOST);
    return USM_OK;
}

/* --- pools
 * ----------------------------------------------------------------------------------------- */

static usm_status pool_of(state *s, const char *name)
{
    usm_pool_desc  desc  = USM_POOL_DESC_INIT;
    usm_pool_stats stats = USM_POOL_STATS_INIT;
    usm_status     status;
    size_t         live = 0;

    desc.name      = name;
    desc.area_size = 1 << 20;
    status         = usm_pool_create(s->ctx, NULL, sweep_kind(), &desc, &s->pool);
    if (status) {
        MUST(!s->pool);
        return status;
    }
    for (int i = 0; i < 30 && !status; i++) {
        void *p = usm_pool_malloc(s->pool, (size_t)(i + 1) * 10000);
        status  = p ? USM_OK : usm_last_status();
        live += p != NULL;
        if (p && i % 3 == 0) {
            usm_pool_free(s->pool, p);
            live -= usm_get_pointer_type(p, NULL) == USM_UNKNOWN; /* else the free was refused */
        }
    }
    TRY(usm_pool_get_stats(s->pool, &stats));
    MUST(stats.blocks == live);
    TRY(status);
    return usm_pool_trim_to(s->pool, 0);
}

static usm_status pool_direct(state *s)
{
    return pool_of(s, "direct");
}

static usm_status pool_arena(state *s)
{
    return pool_of(s, "arena");
}

static usm_status pool_reset(state *s)
{
    TRY(pool_of(s, "arena"));
    TRY(usm_pool_reset(s->pool));
    TRY_PTR(s->p[0], usm_pool_malloc(s->pool, 100));
    usm_pool_destroy(s->pool);
    s->pool = NULL;
    s->p[0] = NULL;
    return USM_OK;
}

static usm_status map_piece(state *s, size_t offset, size_t size)
{
    usm_pool_stats before = USM_POOL_STATS_INIT, after = USM_POOL_STATS_INIT;
    usm_status     status;

    TRY(usm_pool_get_stats(s->pool, &before));
    status = usm__area_map(s->pool, s->area, offset, size);
    TRY(usm_pool_get_stats(s->pool, &after));
    MUST(after.reserved == before.reserved + (status ? 0 : size));
    return status;
}

static usm_status reserved_area(state *s)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    size_t        g;

    desc.name = "direct";
    TRY(usm_pool_create(s->ctx, NULL, sweep_kind(), &desc, &s->pool));
    g = usm__area_granularity(s->pool);
    if (g == 0 || usm__area_reserve(s->pool, 64 * g, &s->area) == USM_E_NOT_SUPPORTED)
        return USM_OK; /* the pool takes areas then */
    TRY(s->area ? USM_OK : usm_last_status());
    TRY(map_piece(s, 0, 2 * g));
    TRY(map_piece(s, 4 * g, g));
    usm__area_unmap(s->pool, s->area, 0, 2 * g);
    TRY(usm__area_map(s->pool, s->area, 0, g)); /* also what could not be unmapped is gone */
    return map_piece(s, g, g);
}

/* --- programs
 * -------------------------------------------------------------------------------------- */

static void twice_range(const usm_range *r, void *const *args)
{
    int *out = *(int **)args[0], add = *(const int *)args[1];

    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        out[i] = 2 * (int)i + add;
}

static const usm_arg_kind      kinds[]   = {USM_ARG_POINTER, USM_ARG_VALUE};
static const usm_native_kernel natives[] = {{"twice", twice_range, 2, kinds}};

static usm_status build(state *s)
{
    usm_image        images[] = {{USM_IMAGE_NATIVE, natives, sizeof natives},
                                 {USM_IMAGE_BUNDLE, scenarios_kernels, scenarios_kernels_size}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;
    usm_status       status;

    desc.nimages = 2;
    desc.images  = images;
    status       = usm_program_create(s->ctx, &desc, &s->program);
    if (status)
        MUST(!s->program);
    return status;
}

static usm_status program(state *s)
{
    usm_status status;

    TRY(build(s));
    TRY(s->wrong ? USM_OK : usm_kernel_create(s->program, "twice", &s->kernel));
    status = usm_kernel_create(s->program, "thrice", &(usm_kernel *){NULL});
    MUST(status == USM_E_NO_KERNEL || status == USM_E_NO_MEMORY || status == USM_E_DEVICE);
    return USM_OK;
}

static usm_status launch(state *s)
{
    usm_launch l   = USM_LAUNCH_INIT;
    int        add = 5, *out, back[100];

    TRY(build(s));
    TRY(usm_kernel_create(s->program, "twice", &s->kernel));
    TRY_PTR(out, usm_malloc(sizeof back, s->q, sweep_kind()));
    s->p[0]        = out;
    usm_arg args[] = {USM_ARG_PTR(out), USM_ARG_VAL(add)};
    l.kernel       = s->kernel;
    l.global[0]    = 100;
    l.nargs        = 2;
    l.args         = args;
    TRY(usm_queue_submit(s->q, &l, 0, NULL, &s->ev[0]));
    TRY(usm_event_wait(s->ev[0]));
    TRY(usm_memcpy(s->q, s->back, out, sizeof back, 0, NULL, &s->ev[1]));
    TRY(usm_event_wait(s->ev[1]));
    memcpy(back, s->back, sizeof back);
    for (int i = 0; i < 100; i++)
        MUST(back[i] == 2 * i + 5);
    return USM_OK;
}

static usm_status launch_indirect(state *s)
{
    const void *list[2];
    usm_launch  l   = USM_LAUNCH_INIT;
    int         add = 5;

    TRY(build(s));
    TRY(usm_kernel_create(s->program, "twice", &s->kernel));
    for (int i = 0; i < 3; i++)
        TRY_PTR(s->p[i], usm_malloc(400, s->q, sweep_kind()));
    list[0]        = s->p[1];
    list[1]        = s->p[2];
    usm_arg args[] = {USM_ARG_PTR(s->p[0]), USM_ARG_VAL(add)};
    l.kernel       = s->kernel;
    l.nargs        = 2;
    l.args         = args;
    l.nindirect    = 2;
    l.indirect     = list;
    TRY(usm_queue_submit(s->q, &l, 0, NULL, NULL));
    l.nindirect      = 0;
    l.indirect_kinds = USM_INDIRECT_DEVICE;
    TRY(usm_queue_submit(s->q, &l, 0, NULL, NULL));
    return usm_queue_wait(s->q);
}

static usm_status program_cached(state *s)
{
    const char *folder = getenv("USM_SWEEP_CACHE"); /* sweep.c's */
    usm_status  status = usm_config_set("cache_dir", folder ? folder : "off");

    if (!status)
        status = build(s);
    usm_program_destroy(s->program);
    s->program = NULL;
    return status ? status : build(s);
}

const scenario scenarios[] = {
    {"init_and_shutdown", init_and_shutdown, COLD},
    {"select_parts", select_parts, COLD},
    {"select_devices", select_devices, COLD},
    {"select_by_setting", select_by_setting, COLD},
    {"first_alloc", first_alloc, COLD},
    {"first_queue", first_queue, COLD},
    {"config", config, COLD},
    {"context_create", context_create, 0},
    {"context_of_a_device", context_of_a_device, 0},
    {"queue_create", queue_create, 0},
    {"context_destroy", context_destroy, 0},
    {"from_native", from_native, NEEDS_NATIVE},
    {"device_info", device_info, 0},
    {"alloc_host", alloc_host, 0},
    {"alloc_device", alloc_device, 0},
    {"alloc_shared", alloc_shared, 0},
    {"alloc_aligned", alloc_aligned, 0},
    {"alloc_many", alloc_many, 0},
    {"calloc_zeroes", calloc_zeroes, NEEDS_DATA},
    {"realloc_grows", realloc_grows, NEEDS_DATA},
    {"free_blocking", free_blocking, NEEDS_DATA},
    {"wrong_frees", wrong_frees, 0},
    {"pool_direct", pool_direct, 0},
    {"pool_arena", pool_arena, 0},
    {"pool_reset", pool_reset, 0},
    {"reserved_area", reserved_area, 0},
    {"program", program, 0},
    {"program_cached", program_cached, 0},
    {"launch", launch, NEEDS_RUN},
    {"launch_indirect", launch_indirect, NEEDS_RUN},
    {NULL, NULL, 0},
};
