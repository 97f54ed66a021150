/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "context": making contexts, one's own and over native ones, and what their end means. */
#include "common.h"

static usm_context *context_of(usm_device *dev)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_context     *ctx  = NULL;

    desc.ndevices = 1;
    desc.devices  = &dev;
    CHECK_OK(usm_context_create(&desc, &ctx));
    return ctx;
}

Test(context, without_a_descriptor_it_has_the_selectors_first_device)
{
    rig          r     = rig_first();
    usm_context *ctx   = NULL;
    usm_device  *dev   = NULL;
    size_t       count = 0;

    CHECK_OK(usm_context_create(NULL, &ctx));
    CHECK_OK(usm_context_get_devices(ctx, &dev, 1, &count));
    CHECK(count == 1 && dev == r.dev, "%zu devices", count);
    CHECK(ctx != usm_default_context(), "it is the default context");
    usm_context_destroy(ctx);
    rig_end(&r);
}

Test(context, the_default_context_is_one)
{
    usm_context *ctx = usm_default_context();

    CHECK(ctx, "%s", usm_last_error());
    CHECK(ctx == usm_default_context(), "two of them");
}

Test(context, it_lists_its_devices_in_the_order_given)
{
    EACH_DEVICE (r) {
        usm_device *list[2] = {NULL, NULL};
        size_t      count   = 0;
        CHECK_OK(usm_context_get_devices(r.ctx, NULL, 0, &count));
        CHECK(count == 1, "%s: %zu devices", r.name, count);
        CHECK_OK(usm_context_get_devices(r.ctx, list, 2, &count));
        CHECK(list[0] == r.dev && !list[1], "%s: another device", r.name);
    }
}

Test(context, several_contexts_live_side_by_side)
{
    EACH_DEVICE (r) {
        enum { N = 6 };
        usm_context *ctx[N];
        void        *p[N];
        if (!can(&r, NEED_DEVICE))
            continue;
        for (int i = 0; i < N; i++) {
            ctx[i] = context_of(r.dev);
            p[i]   = usm_malloc_ctx(1000, NULL, ctx[i], USM_DEVICE);
            CHECK(p[i], "%s: %s", r.name, usm_last_error());
        }
        for (int i = 0; i < N; i += 2)
            usm_context_destroy(ctx[i]);
        for (int i = 1; i < N; i += 2) {
            CHECK(usm_get_pointer_type(p[i], ctx[i]) == USM_DEVICE, "%s: %d went too", r.name, i);
            CHECK(usm_get_pointer_type(p[i - 1], NULL) == USM_UNKNOWN, "%s: %d stayed", r.name, i);
            usm_context_destroy(ctx[i]);
        }
    }
}

Test(context, the_same_device_twice_is_refused)
{
    EACH_DEVICE (r) {
        usm_device      *twice[2] = {r.dev, r.dev};
        usm_context_desc desc     = USM_CONTEXT_DESC_INIT;
        usm_context     *ctx      = NULL;
        desc.ndevices             = 2;
        desc.devices              = twice;
        CHECK_REFUSED(usm_context_create(&desc, &ctx), USM_E_INVALID, "twice");
        CHECK(!ctx, "%s: the output was touched", r.name);
    }
}

Test(context, devices_of_different_platforms_are_refused)
{
    usm_device *host  = NULL;
    size_t      count = 0;

    CHECK_OK(usm_select_devices("host:*", &host, 1, &count));
    EACH_DEVICE (r) {
        if (r.dev == host) {
            not_offered("the host backend is alone here");
            continue;
        }
        tried();
        usm_device      *both[2] = {host, r.dev};
        usm_context_desc desc    = USM_CONTEXT_DESC_INIT;
        usm_context     *ctx     = NULL;
        desc.ndevices            = 2;
        desc.devices             = both;
        CHECK_REFUSED(usm_context_create(&desc, &ctx), USM_E_INVALID, "platform");
        CHECK(!ctx, "%s: the output was touched", r.name);
    }
}

Test(context, descriptors_without_size_or_devices_are_refused)
{
    usm_context_desc desc = {0};
    usm_context     *ctx  = NULL;

    CHECK_REFUSED(usm_context_create(&desc, &ctx), USM_E_ABI, "struct_size");
    desc.struct_size = sizeof desc;
    desc.ndevices    = 1;
    CHECK_REFUSED(usm_context_create(&desc, &ctx), USM_E_INVALID, "devices");
    CHECK(!ctx, "the output was touched");
}

Test(context, destroyed_with_live_memory_it_gives_all_of_it_back)
{
    EACH_DEVICE (r) {
        usm_memory_info before = USM_MEMORY_INFO_INIT, after = USM_MEMORY_INFO_INIT;
        CHECK_OK(usm_device_memory(r.dev, &before));
        for (int round = 0; round < 20; round++) {
            usm_context *ctx = context_of(r.dev);
            EACH_KIND (k) {
                if (has(&r, need_kind(k)))
                    for (int i = 0; i < 10; i++)
                        CHECK(usm_malloc_ctx(300000, r.dev, ctx, k), "%s", usm_last_error());
            }
            usm_context_destroy(ctx);
        }
        CHECK_OK(usm_device_memory(r.dev, &after));
        /* Less, where work of an earlier case has ended meanwhile and its memory went with it. */
        CHECK(after.ours <= before.ours && after.pooled <= before.pooled,
              "%s: %llu bytes live, %llu pooled after all contexts went", r.name,
              (unsigned long long)after.ours, (unsigned long long)after.pooled);
    }
}

Test(context, destroyed_with_work_in_flight_it_lets_the_work_end)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_DATA))
            continue;
        enum { SIZE = 4 << 20 };
        for (int round = 0; round < 5; round++) {
            usm_context *ctx = context_of(r.dev);
            usm_queue   *q   = NULL;
            char        *p, *back = malloc(SIZE);
            CHECK(back, "no memory for the test itself");
            CHECK_OK(usm_queue_create(ctx, NULL, NULL, &q));
            p = usm_malloc(SIZE, q, has(&r, NEED_DEVICE) ? USM_DEVICE : USM_HOST);
            CHECK(p, "%s", usm_last_error());
            CHECK_OK(usm_memset(q, p, 1, SIZE, 0, NULL, NULL));
            CHECK_OK(usm_memset(q, p, 2, SIZE, 0, NULL, NULL));
            usm_queue_destroy(q);
            usm_context_destroy(ctx); /* the memory stays until the work is done */
            free(back);
        }
    }
}

Test(context, destroyed_before_its_queues_and_events_it_leaves_them_harmless)
{
    EACH_DEVICE (r) {
        usm_context *ctx = context_of(r.dev);
        usm_queue   *q   = NULL;
        usm_event   *ev = NULL, *gate = NULL;
        CHECK_OK(usm_queue_create(ctx, NULL, NULL, &q));
        CHECK_OK(usm_event_create(ctx, &gate));
        CHECK_OK(usm_queue_barrier(q, 0, NULL, &ev));
        CHECK_OK(usm_event_wait(ev));
        CHECK_OK(usm_event_signal(gate, USM_OK));
        usm_context_destroy(ctx);
        usm_queue_destroy(q); /* both are told and harmless, whatever was left of them */
        usm_event_release(ev);
        usm_event_release(gate);
        CHECK_IS(usm_queue_wait(q), USM_E_INVALID_HANDLE);
    }
}

typedef struct notified {
    usm_context *ctx;
    atomic_int   calls, right;
    char         message[200];
} notified;

static void on_error(usm_context *ctx, usm_status status, const char *message, void *user)
{
    notified *t = user;

    atomic_store(&t->right, ctx == t->ctx && status == USM_E_BUDGET);
    snprintf(t->message, sizeof t->message, "%s", message);
    atomic_fetch_add(&t->calls, 1);
}

static usm_status fail_budget(void *user)
{
    (void)user;
    return USM_E_BUDGET;
}

Test(context, a_failure_without_a_caller_goes_to_its_error_callback)
{
    EACH_DEVICE (r) {
        usm_context_desc desc = USM_CONTEXT_DESC_INIT;
        notified         t    = {0};
        usm_queue       *q    = NULL;
        usm_event       *ev   = NULL;
        desc.ndevices         = 1;
        desc.devices          = &r.dev;
        desc.on_error         = on_error;
        desc.user             = &t;
        CHECK_OK(usm_context_create(&desc, &t.ctx));
        CHECK_OK(usm_queue_create(t.ctx, NULL, NULL, &q));
        CHECK_OK(usm_host_task(q, fail_budget, NULL, 0, NULL, &ev)); /* this one has its event */
        CHECK_IS(usm_event_wait(ev), USM_E_BUDGET);
        usm_event_release(ev);
        usm_queue_wait(q);
        sleep_ms(10);
        CHECK(atomic_load(&t.calls) == 0, "%s: told though there was an event", r.name);
        usm_queue_destroy(q);
        CHECK_OK(usm_queue_create(t.ctx, NULL, NULL, &q));
        CHECK_OK(usm_host_task(q, fail_budget, NULL, 0, NULL, NULL));
        wait_until(&t.calls, 1, "the error callback");
        CHECK(atomic_load(&t.right), "%s: wrong context or status", r.name);
        CHECK(t.message[0], "%s: no message", r.name);
        usm_queue_destroy(q);
        usm_context_destroy(t.ctx);
    }
}

Test(context, its_native_handle_makes_a_second_context_over_the_same_memory)
{
    EACH_DEVICE (r) {
        usm_device_info info   = USM_DEVICE_INFO_INIT;
        usm_native_desc desc   = USM_NATIVE_DESC_INIT;
        usm_context    *second = NULL;
        usm_device     *dev    = NULL;
        void           *handle = NULL, *native = NULL;
        size_t          count = 0;
        CHECK_OK(usm_device_get_info(r.dev, &info));
        if (!strcmp(info.backend, "host")) {
            CHECK_IS(usm_context_get_native(r.ctx, "host", &handle), USM_E_NOT_SUPPORTED);
            CHECK_IS(usm_device_get_native(r.dev, "host", &native), USM_E_NOT_SUPPORTED);
            not_offered("the host backend has no native objects");
            continue;
        }
        tried();
        CHECK_OK(usm_context_get_native(r.ctx, info.backend, &handle));
        CHECK(handle, "%s: no handle", r.name);
        CHECK_OK(usm_device_get_native(r.dev, info.backend, &native));
        CHECK(native, "%s: no handle of the device", r.name);
        desc.backend  = info.backend;
        desc.handle   = handle;
        desc.devices  = &native;
        desc.ndevices = 1;
        CHECK_OK(usm_context_from_native(&desc, &second));
        CHECK_OK(usm_context_get_devices(second, &dev, 1, &count));
        CHECK(count == 1, "%s: %zu devices", r.name, count);
        EACH_KIND (k) {
            if (!has(&r, need_kind(k)))
                continue;
            void *p = usm_malloc_ctx(5000, NULL, second, k);
            CHECK(p, "%s: %s", r.name, usm_last_error());
            CHECK(usm_get_pointer_type(p, second) == k, "%s: kind", r.name);
            CHECK_OK(usm_free_ctx(p, second));
        }
        usm_context_destroy(second);
        void *p = usm_malloc_ctx(5000, NULL, r.ctx, USM_HOST); /* the first one still works */
        CHECK(p || !has(&r, NEED_HOST), "%s: it was destroyed with the second", r.name);
        usm_free(p);
        CHECK_OK(usm_queue_wait(r.q));
    }
}

Test(context, queues_and_events_have_native_handles_that_come_back)
{
    EACH_DEVICE (r) {
        usm_device_info info  = USM_DEVICE_INFO_INIT;
        void           *queue = NULL, *event = NULL;
        usm_queue      *q  = NULL;
        usm_event      *ev = NULL, *back = NULL;
        CHECK_OK(usm_device_get_info(r.dev, &info));
        if (!strcmp(info.backend, "host")) {
            CHECK_IS(usm_queue_get_native(r.q, "host", &queue), USM_E_NOT_SUPPORTED);
            not_offered("the host backend has no native objects");
            continue;
        }
        if (!can(&r, NEED_COMMANDS))
            continue;
        CHECK_OK(usm_queue_get_native(r.q, info.backend, &queue));
        CHECK_OK(usm_queue_from_native(r.ctx, queue, USM_KEEP, &q));
        CHECK(usm_queue_get_device(q) == r.dev, "%s: another device", r.name);
        CHECK_OK(usm_queue_barrier(q, 0, NULL, &ev));
        CHECK_OK(usm_event_get_native(ev, info.backend, &event));
        CHECK_OK(usm_event_from_native(r.ctx, event, USM_KEEP, &back));
        CHECK_OK(usm_event_wait(back));
        /* Where no data moves an event does not tell of itself either, until it is waited for. */
        CHECK_OK(has(&r, NEED_DATA) ? usm_event_query(ev) : usm_event_wait(ev));
        usm_event_release(back);
        CHECK_OK(usm_event_query(ev)); /* kept: releasing ours did not take theirs */
        usm_event_release(ev);
        usm_queue_destroy(q);
        CHECK_OK(usm_queue_wait(r.q));
    }
}

Test(context, a_native_of_the_wrong_backend_is_refused)
{
    EACH_DEVICE (r) {
        usm_device_info info   = USM_DEVICE_INFO_INIT;
        void           *handle = NULL;
        CHECK_OK(usm_device_get_info(r.dev, &info));
        const char *wrong = strcmp(info.backend, "host") ? "host" : "opencl";
        CHECK_REFUSED(usm_context_get_native(r.ctx, wrong, &handle), USM_E_INVALID, wrong);
        CHECK_REFUSED(usm_queue_get_native(r.q, wrong, &handle), USM_E_INVALID, wrong);
        CHECK(!handle, "%s: the output was touched", r.name);
    }
}

Test(context, from_native_refuses_what_it_cannot_take)
{
    usm_native_desc desc      = USM_NATIVE_DESC_INIT;
    usm_context    *ctx       = NULL;
    int             something = 0;

    desc.handle  = &something;
    desc.backend = "metal";
    CHECK_REFUSED(usm_context_from_native(&desc, &ctx), USM_E_NO_BACKEND, "metal");
    desc.backend = "host";
    CHECK_REFUSED(usm_context_from_native(&desc, &ctx), USM_E_NOT_SUPPORTED, "host");
    desc.backend = NULL;
    CHECK_REFUSED(usm_context_from_native(&desc, &ctx), USM_E_INVALID, "backend");
    EACH_DEVICE (r) {
        usm_device_info info = USM_DEVICE_INFO_INIT;
        CHECK_OK(usm_device_get_info(r.dev, &info));
        if (!strcmp(info.backend, "host"))
            continue;
        desc.backend = info.backend;
        desc.handle  = NULL;
        CHECK_REFUSED(usm_context_from_native(&desc, &ctx), USM_E_INVALID, "NULL");
    }
    CHECK(!ctx, "the output was touched");
}

Test(context, memory_can_be_had_by_context_and_device)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            void *p = usm_malloc_ctx(100, r.dev, r.ctx, k),
                 *q = usm_malloc_ctx(100, NULL, r.ctx, k);
            CHECK(p && q, "%s: %s", r.name, usm_last_error());
            CHECK(usm_get_pointer_type(p, r.ctx) == k && usm_get_pointer_type(q, r.ctx) == k,
                  "kind");
            usm_free(p);
            usm_free(q);
        }
    }
}

Test(context, memory_for_a_device_outside_it_is_refused)
{
    usm_device *list[32];
    size_t      count = 0;

    CHECK_OK(usm_select_devices("*:*", list, 32, &count));
    EACH_DEVICE (r) {
        usm_device *other = NULL;
        for (size_t i = 0; i < count && i < 32; i++)
            if (list[i] != r.dev)
                other = list[i];
        if (!other) {
            not_offered("there is one device only");
            continue;
        }
        tried();
        CHECK_NO_BLOCK(usm_malloc_ctx(64, other, r.ctx, USM_DEVICE), USM_E_INVALID);
    }
}
