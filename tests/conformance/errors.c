/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "errors": statuses, stories, and the calls with NULL, with destroyed objects and with
 * objects of the wrong type: each answers, none crashes. */
#include "common.h"

#include <pthread.h>

Test(errors, every_status_has_a_name_and_a_meaning)
{
#define HAS_NAME(name, number, meaning)                                                            \
    CHECK(!strcmp(usm_status_name(name), #name), "%d is %s", number, usm_status_name(name));       \
    CHECK(!strcmp(usm_status_string(name), meaning), "%s: %s", #name, usm_status_string(name));
    USM_STATUS_LIST(HAS_NAME)
    CHECK(!strcmp(usm_status_name((usm_status)-1000), "unknown status"), "a name for -1000");
    CHECK(usm_status_string((usm_status)-1000)[0], "no text for -1000");
    CHECK(!strcmp(usm_status_name((usm_status)7), "unknown status"), "a name for 7");
}

TestAlone(errors, at_first_there_is_no_story)
{
    CHECK(usm_last_error() && !usm_last_error()[0], "'%s'", usm_last_error());
    CHECK_IS(usm_last_status(), USM_OK);
}

Test(errors, a_story_stays_until_the_next_failure)
{
    size_t count = 0;

    CHECK_IS(usm_config_set("first_culprit", "x"), USM_E_SETTING);
    CHECK(story_names("first_culprit"), "%s", usm_last_error());
    EACH_DEVICE (r) { /* successes do not touch it */
        CHECK_OK(usm_queue_wait(r.q));
        CHECK(story_names("first_culprit"), "after a success: %s", usm_last_error());
    }
    CHECK_IS(usm_select_devices("host:second", NULL, 0, &count), USM_E_SELECTOR);
    CHECK(!story_names("first_culprit") && story_names("second"), "%s", usm_last_error());
    CHECK_IS(usm_last_status(), USM_E_SELECTOR);
}

static void *fail_here(void *arg)
{
    const char **wrong = arg;

    if (usm_last_error()[0] || usm_last_status())
        *wrong = "another thread's story";
    else if (usm_config_set("their_culprit", "x") != USM_E_SETTING || !story_names("their_culprit"))
        *wrong = "no message of its own";
    return NULL;
}

Test(errors, each_thread_has_its_own_story)
{
    pthread_t   id;
    const char *wrong = NULL;

    CHECK_IS(usm_config_set("my_culprit", "x"), USM_E_SETTING);
    CHECK(!pthread_create(&id, NULL, fail_here, &wrong), "no thread");
    pthread_join(id, NULL);
    CHECK(!wrong, "%s", wrong);
    CHECK(story_names("my_culprit"), "it was overwritten: %s", usm_last_error());
}

Test(errors, a_story_is_one_sentence_that_fits)
{
    char  long_key[5000];
    char *end;

    memset(long_key, 'k', sizeof long_key);
    long_key[sizeof long_key - 1] = 0;
    CHECK_IS(usm_config_set(long_key, "x"), USM_E_SETTING);
    end = strchr(usm_last_error(), 0);
    CHECK(end - usm_last_error() > 20 && end - usm_last_error() < 2048, "%td bytes",
          end - usm_last_error());
    CHECK(!strchr(usm_last_error(), '\n'), "more than a line: %s", usm_last_error());
}

/* The call is refused, with a name and a story. */
#define REFUSED(call)                                                                              \
    do {                                                                                           \
        usm_status refused = (call);                                                               \
        CHECK(refused < 0, "%s: not refused", #call);                                              \
        CHECK(strcmp(usm_status_name(refused), "unknown status"), "%s: status %d", #call,          \
              refused);                                                                            \
        CHECK(refused != USM_E_INTERNAL, "%s: %s", #call, usm_last_error());                       \
        CHECK(story_names(""), "%s: no message", #call);                                           \
        CHECK_IS(usm_last_status(), refused);                                                      \
    } while (0)

Test(errors, null_objects_are_refused_by_every_function)
{
    usm_context     *ctx       = NULL;
    usm_queue       *q         = NULL;
    usm_event       *ev        = NULL;
    usm_pool        *pool      = NULL;
    usm_program     *program   = NULL;
    usm_kernel      *kernel    = NULL;
    usm_device      *dev       = NULL;
    void            *out       = NULL;
    char             text[8]   = "";
    size_t           n         = 0;
    bool             can_reach = false;
    usm_launch       launch    = USM_LAUNCH_INIT;
    usm_profiling    times     = USM_PROFILING_INIT;
    usm_pool_stats   stats     = USM_POOL_STATS_INIT;
    usm_device_info  info      = USM_DEVICE_INFO_INIT;
    usm_memory_info  memory    = USM_MEMORY_INFO_INIT;
    usm_program_desc desc      = USM_PROGRAM_DESC_INIT;
    usm_image_type   type;

    REFUSED(usm_queue_wait(NULL));
    REFUSED(usm_queue_query(NULL));
    REFUSED(usm_queue_get_native(NULL, "host", &out));
    REFUSED(usm_event_signal(NULL, USM_OK));
    REFUSED(usm_event_query(NULL));
    REFUSED(usm_event_wait(NULL));
    REFUSED(usm_event_wait_all(2, NULL));
    REFUSED(usm_event_on_complete(NULL, NULL, NULL));
    REFUSED(usm_event_profiling(NULL, &times));
    REFUSED(usm_event_retain(NULL));
    REFUSED(usm_event_get_native(NULL, "host", &out));
    REFUSED(usm_context_get_native(NULL, "host", &out));
    REFUSED(usm_context_from_native(NULL, &ctx));
    REFUSED(usm_memcpy(NULL, text, text, 1, 0, NULL, NULL));
    REFUSED(usm_memcpy_2d(NULL, text, 1, text, 1, 1, 1, 0, NULL, NULL));
    REFUSED(usm_memset(NULL, text, 0, 1, 0, NULL, NULL));
    REFUSED(usm_fill(NULL, text, "a", 1, 1, 0, NULL, NULL));
    REFUSED(usm_prefetch(NULL, text, 1, 0, NULL, NULL));
    REFUSED(usm_mem_advise(NULL, text, 1, USM_ADVICE_DEFAULT, 0, NULL, NULL));
    REFUSED(usm_queue_barrier(NULL, 0, NULL, NULL));
    REFUSED(usm_host_task(NULL, NULL, NULL, 0, NULL, NULL));
    REFUSED(usm_queue_submit(NULL, &launch, 0, NULL, NULL));
    REFUSED(usm_pool_trim_to(NULL, 0));
    REFUSED(usm_pool_get_stats(NULL, &stats));
    REFUSED(usm_pool_reset_peaks(NULL));
    REFUSED(usm_pool_reset(NULL));
    REFUSED(usm_program_create(NULL, &desc, &program));
    REFUSED(usm_program_get_image(NULL, dev, &type));
    REFUSED(usm_kernel_create(NULL, "k", &kernel));
    REFUSED(usm_device_get_info(NULL, &info));
    REFUSED(usm_device_memory(NULL, &memory));
    REFUSED(usm_device_can_access_peer(NULL, NULL, &can_reach));
    REFUSED(usm_select_devices(NULL, NULL, 0, &n));
    CHECK(!ctx && !q && !ev && !pool && !program && !kernel && !dev && !out,
          "an output was touched");
}

Test(errors, a_null_context_is_the_default_one_or_refused)
{
    rig        r    = rig_first();
    usm_queue *q    = NULL;
    usm_event *ev   = NULL;
    usm_pool  *pool = NULL;

    if (usm_queue_create(NULL, NULL, NULL, &q) == USM_OK)
        CHECK(usm_queue_get_context(q) == usm_default_context(), "a queue of another context");
    if (usm_event_create(NULL, &ev) == USM_OK)
        gate_open(ev);
    pool = usm_pool_default(NULL, NULL, USM_HOST);
    CHECK(!pool || pool == usm_pool_default(usm_default_context(), NULL, USM_HOST), "another pool");
    pool = NULL;
    if (usm_pool_create(NULL, NULL, USM_HOST, NULL, &pool) == USM_OK)
        usm_pool_destroy(pool);
    usm_queue_destroy(q);
    usm_event_release(ev);
    rig_end(&r);
}

Test(errors, functions_that_give_pointers_answer_null_to_null_objects)
{
    CHECK_NO_BLOCK(usm_malloc(8, NULL, USM_HOST), USM_E_INVALID_HANDLE);
    CHECK_NO_BLOCK(usm_malloc_host(8, NULL), USM_E_INVALID_HANDLE);
    CHECK_NO_BLOCK(usm_malloc_device(8, NULL), USM_E_INVALID_HANDLE);
    CHECK_NO_BLOCK(usm_malloc_shared(8, NULL), USM_E_INVALID_HANDLE);
    CHECK_NO_BLOCK(usm_aligned_alloc_host(8, 8, NULL), USM_E_INVALID_HANDLE);
    CHECK_NO_BLOCK(usm_aligned_alloc_device(8, 8, NULL), USM_E_INVALID_HANDLE);
    CHECK_NO_BLOCK(usm_aligned_alloc_shared(8, 8, NULL), USM_E_INVALID_HANDLE);
    CHECK_NO_BLOCK(usm_pool_malloc(NULL, 8), USM_E_INVALID_HANDLE);
    CHECK_NO_BLOCK(usm_pool_aligned_alloc(NULL, 8, 8), USM_E_INVALID_HANDLE);
    CHECK(!usm_queue_get_context(NULL) && !usm_queue_get_device(NULL), "of a NULL queue");
    CHECK(!usm_device_parent(NULL), "a parent of NULL");
    CHECK(!usm_device_has(NULL, USM_ASPECT_CPU), "an aspect of NULL");
}

Test(errors, null_outputs_are_refused)
{
    EACH_DEVICE (r) {
        void  *p = mem(&r, USM_DEVICE, 8);
        size_t n;
        REFUSED(usm_context_create(NULL, NULL));
        REFUSED(usm_queue_create(r.ctx, NULL, NULL, NULL));
        REFUSED(usm_event_create(r.ctx, NULL));
        REFUSED(usm_pool_create(r.ctx, NULL, USM_DEVICE, NULL, NULL));
        REFUSED(usm_get_devices(NULL, 0, NULL));
        REFUSED(usm_get_devices(NULL, 3, &n));
        REFUSED(usm_select_devices("host:*", NULL, 0, NULL));
        REFUSED(usm_context_get_devices(r.ctx, NULL, 0, NULL));
        REFUSED(usm_context_get_native(r.ctx, "opencl", NULL));
        REFUSED(usm_device_get_info(r.dev, NULL));
        REFUSED(usm_device_memory(r.dev, NULL));
        REFUSED(usm_device_can_access_peer(r.dev, r.dev, NULL));
        REFUSED(usm_get_pointer_device(p, r.ctx, NULL));
        REFUSED(usm_get_pointer_context(p, NULL));
        CHECK_OK(usm_get_address_range(p, r.ctx, NULL, NULL)); /* each may be left out */
        REFUSED(usm_pool_get_stats(usm_pool_default(r.ctx, NULL, USM_DEVICE), NULL));
        REFUSED(usm_program_create(r.ctx, NULL, NULL));
        usm_free(p);
    }
}

TestAlone(errors, destroying_null_is_fine)
{
    usm_context_destroy(NULL);
    usm_queue_destroy(NULL);
    usm_event_release(NULL);
    usm_pool_destroy(NULL);
    usm_program_destroy(NULL);
    usm_kernel_destroy(NULL);
    CHECK_IS(usm_last_status(), USM_OK);
}

Test(errors, a_destroyed_queue_is_named)
{
    EACH_DEVICE (r) {
        usm_queue *q = queue_with(&r, 0);
        char       c = 0;
        usm_queue_destroy(q);
        CHECK_REFUSED(usm_queue_wait(q), USM_E_INVALID_HANDLE, "queue");
        CHECK_REFUSED(usm_queue_query(q), USM_E_INVALID_HANDLE, "queue");
        CHECK_REFUSED(usm_memset(q, &c, 0, 1, 0, NULL, NULL), USM_E_INVALID_HANDLE, "queue");
        CHECK_REFUSED(usm_queue_barrier(q, 0, NULL, NULL), USM_E_INVALID_HANDLE, "queue");
        CHECK_NO_BLOCK(usm_malloc_host(8, q), USM_E_INVALID_HANDLE);
        CHECK(!usm_queue_get_context(q) && !usm_queue_get_device(q), "%s", r.name);
        usm_queue_destroy(q); /* told, harmless */
        CHECK_OK(usm_queue_wait(r.q));
    }
}

Test(errors, a_destroyed_context_is_named)
{
    EACH_DEVICE (r) {
        rig          gone = rig_first();
        usm_context *ctx  = gone.ctx;
        usm_queue   *q    = NULL;
        size_t       n    = 0;
        rig_end(&gone);
        CHECK_REFUSED(usm_queue_create(ctx, NULL, NULL, &q), USM_E_INVALID_HANDLE, "context");
        CHECK_REFUSED(usm_context_wait(ctx), USM_E_INVALID_HANDLE, "context");
        CHECK_REFUSED(usm_context_get_devices(ctx, NULL, 0, &n), USM_E_INVALID_HANDLE, "context");
        CHECK_NO_BLOCK(usm_malloc_ctx(8, NULL, ctx, USM_HOST), USM_E_INVALID_HANDLE);
        usm_context_destroy(ctx); /* told, harmless */
    }
}

Test(errors, a_destroyed_pool_program_or_kernel_is_named)
{
    EACH_DEVICE (r) {
        usm_pool_stats s    = USM_POOL_STATS_INIT;
        usm_pool      *pool = NULL;
        if (can(&r, NEED_HOST)) {
            CHECK_OK(usm_pool_create(r.ctx, NULL, USM_HOST, NULL, &pool));
            usm_pool_destroy(pool);
            CHECK_REFUSED(usm_pool_get_stats(pool, &s), USM_E_INVALID_HANDLE, "pool");
            CHECK_NO_BLOCK(usm_pool_malloc(pool, 8), USM_E_INVALID_HANDLE);
            usm_pool_destroy(pool);
        }
        if (!can(&r, NEED(KERNELS)))
            continue;
        usm_program *program = program_new(&r);
        usm_kernel  *kernel = kernel_new(program, "count"), *other = NULL;
        usm_launch   launch = USM_LAUNCH_INIT;
        launch.kernel       = kernel;
        usm_kernel_destroy(kernel);
        usm_program_destroy(program);
        CHECK_REFUSED(usm_kernel_create(program, "ids", &other), USM_E_INVALID_HANDLE, "program");
        CHECK_REFUSED(usm_queue_submit(r.q, &launch, 0, NULL, NULL), USM_E_INVALID_HANDLE,
                      "kernel");
        usm_program_destroy(program);
        usm_kernel_destroy(kernel);
    }
}

Test(errors, an_object_of_another_type_is_refused)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r);
        CHECK_IS(usm_queue_wait(opaque(r.ctx)), USM_E_INVALID_HANDLE);
        CHECK_IS(usm_queue_wait(opaque(gate)), USM_E_INVALID_HANDLE);
        CHECK_IS(usm_event_wait(opaque(r.q)), USM_E_INVALID_HANDLE);
        CHECK_IS(usm_context_wait(opaque(r.dev)), USM_E_INVALID_HANDLE);
        CHECK_IS(usm_event_create(opaque(r.q), &(usm_event *){NULL}), USM_E_INVALID_HANDLE);
        gate_open(gate);
        usm_event_release(gate);
    }
}

Test(errors, memory_that_is_no_object_is_refused)
{
    static char zeroes[4096] __attribute__((aligned(64)));

    CHECK_IS(usm_queue_wait(opaque(zeroes)), USM_E_INVALID_HANDLE);
    CHECK_IS(usm_event_query(opaque(zeroes)), USM_E_INVALID_HANDLE);
    CHECK_IS(usm_context_wait(opaque(zeroes)), USM_E_INVALID_HANDLE);
    usm_queue_destroy(opaque(zeroes));
    usm_context_destroy(opaque(zeroes));
    for (size_t i = 0; i < sizeof zeroes; i++)
        CHECK(!zeroes[i], "foreign memory was written");
}

/* Blocking calls on `gone`, a block of 100 bytes that is no more: they would fault. */
static void blocking_calls_refuse(void *gone, usm_status want, const char *when)
{
    char here[100] = "";

    CHECK(usm_copy(gone, here, 100) == want, "copy to it, %s: %s", when, usm_last_error());
    CHECK(usm_copy(here, gone, 100) == want, "copy from it, %s: %s", when, usm_last_error());
    CHECK(usm_copy_2d(gone, 10, here, 10, 10, 10) == want, "2-D to it, %s", when);
    CHECK(usm_copy_2d(here, 10, gone, 10, 10, 10) == want, "2-D from it, %s", when);
    CHECK_REFUSED(usm_set(gone, 0, 100), want, "set: "); /* usm_set, or usm_memset below it */
}

/* On the host's device, where memory that is given back is unmapped at once: with a driver that
 * allocates on the heap the address may be somebody's again. */
TestAlone(errors, blocking_copies_refuse_memory_that_is_gone)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_device      *host = NULL;
    usm_context     *ctx  = NULL;
    size_t           n    = 0;
    void            *p, *gone;

    CHECK_OK(usm_config_set("device_selector", "host:*"));
    CHECK_OK(usm_get_devices(&host, 1, &n));
    p    = usm_alloc_shared(100);
    gone = opaque(p);
    usm_free(p);
    blocking_calls_refuse(gone, USM_E_INVALID_POINTER, "after its free");

    desc.ndevices = 1;
    desc.devices  = &host;
    CHECK_OK(usm_context_create(&desc, &ctx));
    p = usm_malloc_ctx(100, NULL, ctx, USM_SHARED);
    CHECK(p, "%s", usm_last_error());
    usm_context_destroy(ctx);
    blocking_calls_refuse(opaque(p), USM_E_INVALID_POINTER, "after its context");

    p = usm_alloc_shared(100);
    CHECK(p, "%s", usm_last_error());
    usm_shutdown();
    blocking_calls_refuse(opaque(p), USM_E_SHUTDOWN, "after usm_shutdown()");
}

TestAlone(errors, out_of_memory_is_told_and_no_warning)
{
    const char *tmp = getenv("TMPDIR");
    char        path[256], setting[300];
    int         fd;
    FILE       *f;

    snprintf(path, sizeof path, "%.200s/usm-test-log-XXXXXX", tmp ? tmp : "/tmp");
    fd = mkstemp(path);
    f  = fd >= 0 ? fdopen(fd, "r") : NULL;
    CHECK(f, "no file for the log");
    snprintf(setting, sizeof setting, "level:trace;output:%s", path);
    CHECK_OK(usm_config_set("log", setting));
    EACH_DEVICE (r) {
        char line[512];
        if (!can(&r, NEED_HOST))
            continue;
        usm_free(mem(&r, USM_HOST, 8)); /* what the first use logs is not meant */
        fseek(f, 0, SEEK_END);
        CHECK(!usm_malloc(opaque_size(SIZE_MAX / 2), r.q, USM_HOST), "%s: half of all", r.name);
        while (fgets(line, sizeof line, f)) /* the report, which is for who asks for information */
            CHECK(!strstr(line, "warning") && !strstr(line, "error") &&
                      (!strstr(line, "memory") || strstr(line, "usm: info: ")),
                  "%s: logged: %s", r.name, line);
        clearerr(f);
    }
    snprintf(setting, sizeof setting, "level:warn;output:%s", path);
    CHECK_OK(usm_config_set("log", setting));
    EACH_DEVICE (r) {
        char line[512];
        if (!can(&r, NEED_HOST))
            continue;
        CHECK(!usm_malloc(opaque_size(SIZE_MAX / 2), r.q, USM_HOST), "%s: half of all", r.name);
        CHECK(!fgets(line, sizeof line, f), "%s: logged: %s", r.name, line);
        clearerr(f);
    }
    fclose(f);
    remove(path);
}
