/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Devices and selectors, settings, stories, handles, start and end, fork: on the host, through
 * libusm as its users see it. */
#include "plain.h"

#include <signal.h>
#include <stdint.h>
#include <usm/usm.h>

static void the_host_is_a_device(void)
{
    usm_device     *dev  = NULL;
    usm_device_info info = USM_DEVICE_INFO_INIT;
    size_t          n    = 0;

    CHECK_INT(usm_select_devices("host:*", &dev, 1, &n), USM_OK);
    CHECK_INT(n, 1);
    CHECK_INT(usm_device_get_info(dev, &info), USM_OK);
    CHECK_STR(info.backend, "host");
    CHECK_STR(info.selector, "host:0");
    CHECK(info.memory_size > 0 && info.compute_units > 0 && info.name[0]);
}

static void the_host_has_all_memory_and_native_kernels(void)
{
    usm_device *dev = NULL;
    size_t      n   = 0;

    CHECK_INT(usm_select_devices("host:0", &dev, 1, &n), USM_OK);
    CHECK(usm_device_has(dev, USM_ASPECT_USM_HOST_ALLOCATIONS));
    CHECK(usm_device_has(dev, USM_ASPECT_USM_DEVICE_ALLOCATIONS));
    CHECK(usm_device_has(dev, USM_ASPECT_USM_SHARED_ALLOCATIONS));
    CHECK(usm_device_has(dev, USM_ASPECT_IMAGE_NATIVE));
    CHECK(!usm_device_has(dev, USM_ASPECT_GPU));
    CHECK(!usm_device_parent(dev));
}

static void a_selector_that_does_not_parse_is_named(void)
{
    size_t n = 77;

    CHECK_INT(usm_select_devices("host", NULL, 0, &n), USM_E_SELECTOR);
    CHECK_IN("host", usm_last_error());
    CHECK_INT(usm_select_devices("host:quantum", NULL, 0, &n), USM_E_SELECTOR);
    CHECK_IN("quantum", usm_last_error());
    CHECK_INT(n, 77);
}

static void an_unknown_backend_is_named(void)
{
    size_t n = 77;

    CHECK_INT(usm_select_devices("metal:*", NULL, 0, &n), USM_E_NO_BACKEND);
    CHECK_IN("metal", usm_last_error());
    CHECK_INT(n, 77);
}

static void a_selector_that_leaves_nothing_is_named(void)
{
    size_t n = 77;

    CHECK_INT(usm_select_devices("host:gpu", NULL, 0, &n), USM_E_NO_DEVICE);
    CHECK_IN("host:gpu", usm_last_error());
    CHECK_INT(usm_select_devices("host:*;!host:0", NULL, 0, &n), USM_E_NO_DEVICE);
    CHECK_INT(n, 77);
}

static void every_status_has_a_name(void)
{
#define HAS_NAME(name, number, meaning) CHECK_STR(usm_status_name(name), #name);
    USM_STATUS_LIST(HAS_NAME)
    CHECK_STR(usm_status_name((usm_status)-12345), "unknown status");
}

static void settings_are_set_and_read(void)
{
    const char *value = NULL, *origin = NULL;

    CHECK_INT(usm_config_set("Cache_DIR", "/tmp/here"), USM_OK);
    CHECK_INT(usm_config_get("cache_dir", &value, &origin), USM_OK);
    CHECK_STR(value, "/tmp/here");
    CHECK_STR(origin, "usm_config_set");
    CHECK_INT(usm_config_set("cache_dir", NULL), USM_OK);
}

static void wrong_settings_are_named(void)
{
    CHECK_INT(usm_config_set("colour", "blue"), USM_E_SETTING);
    CHECK_IN("colour", usm_last_error());
    CHECK_INT(usm_config_set("validation", "perhaps"), USM_E_SETTING);
    CHECK_IN("perhaps", usm_last_error());
}

static void *look_at_story(void *arg)
{
    *(bool *)arg = usm_last_error()[0] == 0 && usm_last_status() == USM_OK;
    return NULL;
}

static void stories_belong_to_threads(void)
{
    pthread_t id;
    bool      empty = false;

    CHECK_INT(usm_config_set("mine", "x"), USM_E_SETTING);
    CHECK(!pthread_create(&id, NULL, look_at_story, &empty));
    pthread_join(id, NULL);
    CHECK(empty);
    CHECK_IN("mine", usm_last_error());
}

static void null_handles_are_refused(void)
{
    CHECK_INT(usm_queue_wait(NULL), USM_E_INVALID_HANDLE);
    CHECK_INT(usm_event_wait(NULL), USM_E_INVALID_HANDLE);
    CHECK_INT(usm_context_wait(NULL), USM_OK); /* the default one */
    usm_queue_destroy(NULL);
    usm_context_destroy(NULL);
    usm_pool_destroy(NULL);
    usm_event_release(NULL);
    usm_program_destroy(NULL);
    usm_kernel_destroy(NULL);
}

static void destroyed_handles_are_refused(void)
{
    usm_context *ctx = NULL;
    usm_queue   *q   = NULL;

    CHECK_INT(usm_context_create(NULL, &ctx), USM_OK);
    CHECK_INT(usm_queue_create(ctx, NULL, NULL, &q), USM_OK);
    usm_queue_destroy(q);
    usm_context_destroy(ctx);
    CHECK_INT(usm_queue_wait(q), USM_E_INVALID_HANDLE);
    CHECK_INT(usm_context_wait(ctx), USM_E_INVALID_HANDLE);
}

static void the_default_objects_are_one(void)
{
    CHECK(usm_default_context() && usm_default_context() == usm_default_context());
    CHECK(usm_default_queue() && usm_default_queue() == usm_default_queue());
    CHECK(usm_queue_get_context(usm_default_queue()) == usm_default_context());
}

static void allocate_in_child(void)
{
    char *p = usm_alloc_shared(1000);

    CHECK(p != NULL);
    memset(p, 1, 1000);
    usm_free(p);
}

static void a_forked_child_allocates_on_the_host(void)
{
    void *p = usm_alloc_shared(100);

    CHECK(p != NULL);
    CHECK_INT(plain_child(allocate_in_child, NULL), 0);
    CHECK_INT(usm_free_ctx(p, NULL), USM_OK);
}

static void shut_down_and_use(void)
{
    void *p = usm_alloc_host(10);

    CHECK(p != NULL);
    usm_shutdown();
    usm_free(p);
    CHECK(!usm_alloc_host(10));
    CHECK_INT(usm_last_status(), USM_E_SHUTDOWN);
    CHECK_INT(usm_init(), USM_OK);
    p = usm_alloc_host(10);
    CHECK(p != NULL);
    usm_free(p);
}

static void after_a_shutdown_init_starts_anew(void)
{
    /* In a child that used nothing before: the other cases are left alone. */
    CHECK_INT(plain_child(shut_down_and_use, NULL), 0);
}

static const plain_case cases[] = {
    CASE(after_a_shutdown_init_starts_anew), /* first: nothing is used yet */
    CASE(the_host_is_a_device),
    CASE(the_host_has_all_memory_and_native_kernels),
    CASE(a_selector_that_does_not_parse_is_named),
    CASE(an_unknown_backend_is_named),
    CASE(a_selector_that_leaves_nothing_is_named),
    CASE(every_status_has_a_name),
    CASE(settings_are_set_and_read),
    CASE(wrong_settings_are_named),
    CASE(stories_belong_to_threads),
    CASE(null_handles_are_refused),
    CASE(destroyed_handles_are_refused),
    CASE(the_default_objects_are_one),
    CASE(a_forked_child_allocates_on_the_host),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
