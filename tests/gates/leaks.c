/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* leaks [--planted=block|context|heap|overrun]: what libusm is used for, after which nothing may be
 * live: by its own accounts in every build, by LeakSanitizer or valgrind where they watch.
 *
 * Each planted defect must be caught (run_gate.sh, valgrind.sh): a block that is not freed, a
 * context that is not destroyed, heap memory that nobody points to, and a read behind the end of a
 * block of the heap. */
#include "base/os.h"
#include "device/context.h"
#include "leaks_kernels.h" /* made of leaks.cl by usm_add_kernels() */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <usm/usm.h>

static int failures;

static void failed(const char *what)
{
    fprintf(stderr, "leaks: %s: %s\n", what, usm_last_error());
    failures++;
}

#define CHECK(cond) ((cond) ? (void)0 : failed(#cond))
#define OK(call)    CHECK((call) == USM_OK)

static bool moves_data;

static void memory(usm_context *ctx, usm_queue *q)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;
    void         *p[3];

    for (int i = 0; i < 3; i++)
        p[i] = usm_malloc(10000, q, USM_HOST);
    for (int i = 0; i < 3; i++)
        OK(usm_free_ctx(p[i], ctx));
    CHECK(usm_malloc(100, q, USM_HOST)); /* freed with its context */
    desc.name = "arena";
    OK(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool));
    CHECK(usm_pool_malloc(pool, 500)); /* freed with its pool */
    usm_pool_destroy(pool);
    p[0] = usm_realloc(NULL, 100, USM_HOST);
    p[0] = usm_realloc(p[0], 100000, USM_UNKNOWN);
    CHECK(p[0] || !moves_data);
    usm_free(p[0]);
}

static void count(usm_event *ev, usm_status status, void *user)
{
    (void)ev;
    (void)status;
    (void)user;
}

static usm_status nothing(void *user)
{
    (void)user;
    return USM_OK;
}

static void commands(usm_context *ctx, usm_queue *q, usm_queue *other)
{
    char       text[100] = "some text", back[100];
    usm_event *gate = NULL, *ev[4] = {NULL};
    usm_kind   k = usm_device_has(usm_queue_get_device(q), USM_ASPECT_USM_DEVICE_ALLOCATIONS)
                       ? USM_DEVICE
                       : USM_HOST;
    char      *p = usm_malloc(1000, q, k), *far = usm_malloc(1000, other, k);

    OK(usm_event_create(ctx, &gate));
    if (moves_data) {
        OK(usm_memcpy(q, p, text, sizeof text, 1, &gate, NULL));
        OK(usm_memcpy(q, p + 7, p, 90, 0, NULL, &ev[0]));
        OK(usm_memcpy(other, far, p, 100, 1, &ev[0], &ev[1]));
        OK(usm_fill(q, p, "odd", 3, 30, 1, &ev[1], NULL));
        OK(usm_fill(q, far, "xyz", 3, 20, 0, NULL, NULL)); /* another context's */
        OK(usm_memcpy(q, back, p, sizeof back, 0, NULL, NULL));
    }
    OK(usm_host_task(q, nothing, NULL, 0, NULL, &ev[2]));
    OK(usm_event_on_complete(ev[2], count, NULL));
    OK(usm_queue_barrier(other, 1, &ev[2], &ev[3]));
    OK(usm_event_signal(gate, USM_OK));
    for (int i = 0; i < 4; i++) {
        if (ev[i])
            OK(usm_event_wait(ev[i]));
        usm_event_release(ev[i]);
    }
    usm_event_release(gate);
    OK(usm_queue_wait(q));
    OK(usm_queue_wait(other));
    usm_free(p);
    usm_free(far);
}

static void failing(usm_context *ctx, usm_queue *q)
{
    usm_event       *gate = NULL, *ev = NULL;
    usm_program     *program   = NULL;
    usm_context     *none      = NULL;
    char             local[10] = "", *p = usm_malloc(100, q, USM_HOST);
    usm_image        broken = {USM_IMAGE_OPENCL_C, "not a kernel", 12};
    usm_program_desc desc   = USM_PROGRAM_DESC_INIT;
    usm_context_desc odd    = {0};

    OK(usm_event_create(ctx, &gate));
    (void)!usm_memcpy(q, p, local, 10, 1, &gate, &ev); /* behind an event that fails */
    OK(usm_event_signal(gate, USM_E_SYSTEM));
    if (ev)
        CHECK(usm_event_wait(ev) == USM_E_DEPENDENCY);
    usm_event_release(ev);
    usm_event_release(gate);
    CHECK(usm_free_ctx(local, NULL) == USM_E_INVALID_POINTER);
    desc.nimages = 1;
    desc.images  = &broken;
    CHECK(usm_program_create(ctx, &desc, &program) < 0);
    CHECK(usm_context_create(&odd, &none) < 0);
    CHECK(!usm_malloc(SIZE_MAX / 2, q, USM_HOST));
    usm_free(p);
}

static void set_range(const usm_range *r, void *const *args)
{
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        (*(int **)args[0])[i] = 7;
}

static void launches(usm_context *ctx, usm_queue *q)
{
    static const usm_arg_kind kinds[]  = {USM_ARG_POINTER};
    const usm_native_kernel   native   = {"set", set_range, 1, kinds};
    usm_image                 images[] = {{USM_IMAGE_NATIVE, &native, sizeof native},
                                          {USM_IMAGE_BUNDLE, leaks_kernels, leaks_kernels_size}};
    usm_program_desc          desc     = USM_PROGRAM_DESC_INIT;
    usm_program              *program  = NULL;
    usm_launch                launch   = USM_LAUNCH_INIT;
    int                       back[50], *p = usm_malloc(sizeof back, q, USM_HOST);
    usm_arg                   arg = USM_ARG_PTR(p);

    desc.nimages = 2;
    desc.images  = images;
    OK(usm_program_create(ctx, &desc, &program));
    OK(usm_kernel_create(program, "set", &launch.kernel));
    launch.global[0] = 50;
    launch.nargs     = 1;
    launch.args      = &arg;
    if (moves_data) {
        OK(usm_queue_submit(q, &launch, 0, NULL, NULL));
        OK(usm_memcpy(q, back, p, sizeof back, 0, NULL, NULL));
        OK(usm_queue_wait(q));
        CHECK(back[49] == 7);
    }
    usm_kernel_destroy(launch.kernel);
    usm_program_destroy(program);
    usm_free(p);
}

static void everything(void)
{
    usm_context *ctx = NULL, *other = NULL;
    usm_queue   *q = NULL, *other_q = NULL;
    char         c[4] = "", *p;

    p          = usm_alloc_host(4);
    moves_data = usm_copy(p, c, 4) != USM_E_NO_DATA_MOVED;
    usm_free(p);
    OK(usm_context_create(NULL, &ctx));
    OK(usm_context_create(NULL, &other));
    OK(usm_queue_create(ctx, NULL, NULL, &q));
    OK(usm_queue_create(other, NULL, NULL, &other_q));
    memory(ctx, q);
    commands(ctx, q, other_q);
    failing(ctx, q);
    if (usm_device_has(usm_queue_get_device(q), USM_ASPECT_KERNELS))
        launches(ctx, q);
    usm_queue_destroy(q);
    usm_queue_destroy(other_q);
    usm_context_destroy(ctx);
    usm_context_destroy(other);
    CHECK(usm_alloc_host(1000)); /* ends with the default context */
}

static void *volatile kept; /* what a planted defect leaves */

static void plant(const char *what)
{
    if (!strcmp(what, "block")) {
        kept = usm_alloc_device(12345);
    } else if (!strcmp(what, "context")) {
        usm_context *ctx = NULL;
        OK(usm_context_create(NULL, &ctx));
    } else if (!strcmp(what, "heap")) {
        kept = usm__heap_alloc(4321);
        kept = NULL;
    } else if (!strcmp(what, "overrun")) {
        volatile char *p = usm__heap_alloc(10);
        kept             = p[10] ? NULL : &failures;
        usm__heap_free((void *)(uintptr_t)p);
    } else {
        failed("no such planted defect");
    }
}

/* Contexts end on the thread that ended their last command: a moment may pass. */
static void nothing_is_live(usm_device *dev, bool ended)
{
    struct timespec wait = {0, 1000000};
    usm_memory_info info = USM_MEMORY_INFO_INIT;

    for (int ms = 0; ms < 3000; ms++) {
        OK(usm_device_memory(dev, &info));
        if (!info.ours && (!ended || (!info.pooled && !usm__contexts_alive())))
            return;
        nanosleep(&wait, NULL);
    }
    fprintf(stderr, "leaks: %llu bytes live, %llu held, %zu contexts\n",
            (unsigned long long)info.ours, (unsigned long long)info.pooled, usm__contexts_alive());
    failures++;
}

int main(int argc, char **argv)
{
    const char *planted = argc > 1 && !strncmp(argv[1], "--planted=", 10) ? argv[1] + 10 : NULL;
    usm_device *dev     = NULL;
    size_t      n       = 0;

    setenv("USM_LOG", "off", 0); /* the failures are meant */
    setenv("USM_CACHE_DIR", "off", 1);
    alarm(240);
    OK(usm_get_devices(&dev, 1, &n));
    for (int round = 0; round < 5; round++)
        everything();
    if (planted)
        plant(planted);
    nothing_is_live(dev, false);
    usm_shutdown();
    nothing_is_live(dev, true);
    printf("leaks: %d failures\n", failures);
    return failures ? 1 : 0;
}
