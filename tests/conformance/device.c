/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "device": what devices tell, and the grammar that chooses them. */
#include "common.h"

Test(device, its_info_is_complete)
{
    EACH_DEVICE (r) {
        usm_device_info i = USM_DEVICE_INFO_INIT;
        CHECK_OK(usm_device_get_info(r.dev, &i));
        CHECK(i.type >= USM_DEVICE_TYPE_CPU && i.type <= USM_DEVICE_TYPE_ACCELERATOR, "type");
        const char *texts[] = {i.backend, i.name,           i.platform,
                               i.vendor,  i.driver_version, i.selector};
        for (int t = 0; t < 6; t++)
            CHECK(texts[t] && texts[t][0], "%s: text %d is empty", r.name, t);
        CHECK(i.compute_units > 0, "%s: no compute units", r.name);
        CHECK(i.memory_size > 0 && i.max_alloc_size > 0, "%s: no memory", r.name);
        CHECK(!has(&r, NEED_KERNELS) || i.max_work_group_size > 0, "%s: no work-groups", r.name);
    }
}

Test(device, its_term_selects_it_and_nothing_else)
{
    EACH_DEVICE (r) {
        usm_device *list[2] = {NULL, NULL};
        size_t      count   = 0;
        CHECK_OK(usm_select_devices(r.name, list, 2, &count));
        CHECK(count == 1 && list[0] == r.dev, "%s selects %zu devices", r.name, count);
    }
}

Test(device, its_type_is_also_an_aspect)
{
    EACH_DEVICE (r) {
        usm_device_info i = USM_DEVICE_INFO_INIT;
        CHECK_OK(usm_device_get_info(r.dev, &i));
        CHECK(usm_device_has(r.dev, USM_ASPECT_CPU) == (i.type == USM_DEVICE_TYPE_CPU), "cpu");
        CHECK(usm_device_has(r.dev, USM_ASPECT_GPU) == (i.type == USM_DEVICE_TYPE_GPU), "gpu");
    }
}

Test(device, aspects_that_need_others_come_with_them)
{
    EACH_DEVICE (r) {
        CHECK(!has(&r, NEED(USM_ATOMIC_HOST_ALLOCATIONS)) || has(&r, NEED_HOST), "%s", r.name);
        CHECK(!has(&r, NEED(USM_ATOMIC_SHARED_ALLOCATIONS)) || has(&r, NEED_SHARED), "%s", r.name);
        bool image = has(&r, NEED(IMAGE_OPENCL_C)) || has(&r, NEED(IMAGE_SPIRV)) ||
                     has(&r, NEED(IMAGE_NATIVE));
        CHECK(has(&r, NEED(KERNELS)) == image, "%s: kernels without an image, or images without",
              r.name);
        CHECK(!has(&r, NEED(PARTITION)) || usm_device_parent(r.dev) == NULL, "%s", r.name);
    }
}

Test(device, an_aspect_out_of_range_is_absent_and_nameless)
{
    EACH_DEVICE (r) {
        CHECK(!usm_device_has(r.dev, (usm_aspect)USM_ASPECT_COUNT), "%s", r.name);
        CHECK(!usm_device_has(r.dev, (usm_aspect)-1), "%s", r.name);
    }
    CHECK(!usm_device_has(NULL, USM_ASPECT_CPU), "NULL has an aspect");
    CHECK(!usm_aspect_name((usm_aspect)USM_ASPECT_COUNT), "a name out of range");
    CHECK(!usm_aspect_name((usm_aspect)-1), "a name below the range");
    CHECK(!strcmp(usm_aspect_name(USM_ASPECT_USM_SHARED_ALLOCATIONS), "usm_shared_allocations"),
          "another name");
}

/* Alone: what other cases leave to other threads to free is counted as well. */
TestAlone(device, live_memory_is_counted_as_ours)
{
    EACH_DEVICE (r) {
        usm_memory_info m[3] = {USM_MEMORY_INFO_INIT, USM_MEMORY_INFO_INIT, USM_MEMORY_INFO_INIT};
        if (!can(&r, NEED_DEVICE))
            continue;
        wait_for_nothing_held(&r);
        CHECK_OK(usm_device_memory(r.dev, &m[0]));
        void *p = mem(&r, USM_DEVICE, 10 << 20);
        CHECK_OK(usm_device_memory(r.dev, &m[1]));
        usm_free(p);
        CHECK_OK(usm_device_memory(r.dev, &m[2]));
        CHECK(m[0].total > 0, "%s: no memory in all", r.name);
        CHECK(m[1].ours >= m[0].ours + (10 << 20), "%s: %llu after 10 MiB", r.name,
              (unsigned long long)m[1].ours);
        CHECK(m[1].pooled >= m[1].ours, "%s: more live than held", r.name);
        CHECK(m[2].ours == m[0].ours, "%s: %llu after the free", r.name,
              (unsigned long long)m[2].ours);
        CHECK(m[0].free == USM_MEMORY_UNKNOWN || m[0].free <= m[0].total, "%s: free", r.name);
    }
}

Test(device, a_root_device_has_no_parent)
{
    EACH_DEVICE (r)
        CHECK(usm_device_parent(r.dev) == NULL || strchr(strchr(r.name, ':'), '.'), "%s", r.name);
    CHECK(usm_device_parent(NULL) == NULL, "NULL has a parent");
}

Test(device, its_parts_are_selected_by_terms_with_a_dot)
{
    EACH_DEVICE (r) {
        usm_device_info i         = USM_DEVICE_INFO_INIT;
        usm_device     *parts[64] = {NULL}, *first = NULL;
        char            term[64];
        size_t          count = 0;
        CHECK_OK(usm_device_get_info(r.dev, &i));
        if (!i.sub_devices) {
            not_offered("%s has no parts", r.name);
            continue;
        }
        tried();
        snprintf(term, sizeof term, "%s.*", r.name);
        CHECK_OK(usm_select_devices(term, parts, 64, &count));
        CHECK(count == i.sub_devices, "%s gives %zu of %u parts", term, count, i.sub_devices);
        for (size_t p = 0; p < count && p < 64; p++)
            CHECK(usm_device_parent(parts[p]) == r.dev, "%s: part %zu has another parent", r.name,
                  p);
        snprintf(term, sizeof term, "%s.0", r.name);
        CHECK_OK(usm_select_devices(term, &first, 1, &count));
        CHECK(count == 1 && first == parts[0], "%s is not the first part", term);
        CHECK_OK(usm_device_get_info(first, &i));
        CHECK(!strcmp(i.selector, term), "%s calls itself %s", term, i.selector);
    }
}

Test(device, a_part_allocates_copies_and_runs)
{
    EACH_DEVICE (r) {
        usm_device_info  i    = USM_DEVICE_INFO_INIT;
        usm_context_desc desc = USM_CONTEXT_DESC_INIT;
        usm_device      *part = NULL;
        usm_context     *ctx  = NULL;
        usm_queue       *q    = NULL;
        char             term[64], back[6] = "";
        size_t           count = 0;
        CHECK_OK(usm_device_get_info(r.dev, &i));
        if (!i.sub_devices || !has(&r, NEED_DATA | NEED_DEVICE)) {
            not_offered("%s has no parts, or no data moves", r.name);
            continue;
        }
        tried();
        snprintf(term, sizeof term, "%s.0", r.name);
        CHECK_OK(usm_select_devices(term, &part, 1, &count));
        desc.ndevices = 1;
        desc.devices  = &part;
        CHECK_OK(usm_context_create(&desc, &ctx));
        CHECK_OK(usm_queue_create(ctx, part, NULL, &q));
        char *p = usm_malloc_device(6, q);
        CHECK(p, "%s: %s", term, usm_last_error());
        CHECK_OK(usm_memcpy(q, p, "abcde", 6, 0, NULL, NULL));
        CHECK_OK(usm_memcpy(q, back, p, 6, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(q));
        CHECK(!strcmp(back, "abcde"), "%s: %s", term, back);
        usm_queue_destroy(q);
        usm_context_destroy(ctx);
    }
}

Test(device, a_part_that_does_not_exist_is_named)
{
    EACH_DEVICE (r) {
        usm_device *dev = NULL;
        char        term[64];
        size_t      count = 77;
        snprintf(term, sizeof term, "%s.63", r.name);
        CHECK_REFUSED(usm_select_devices(term, &dev, 1, &count), USM_E_NO_DEVICE, term);
        CHECK(!dev && count == 77, "an output was touched");
    }
}

Test(device, a_device_can_reach_its_own_memory)
{
    EACH_DEVICE (r) {
        bool       reach = false;
        usm_status s     = usm_device_can_access_peer(r.dev, r.dev, &reach);
        if (s == USM_E_NOT_SUPPORTED) {
            not_offered("%s cannot tell", r.name);
            continue;
        }
        tried();
        CHECK_OK(s);
        CHECK(reach, "%s cannot reach itself", r.name);
    }
}

/* --- selectors -------------------------------------------------------------------------------- */

static size_t selected(const char *selector, usm_device **list)
{
    size_t count = 0;

    CHECK_OK(usm_select_devices(selector, list, 32, &count));
    return count;
}

Test(device, the_star_selects_all_there_are_the_host_too)
{
    usm_device     *list[32], *mine[32];
    usm_device_info i = USM_DEVICE_INFO_INIT;
    size_t          n = selected("*:*", list), m = 0;
    bool            host = false;

    CHECK_OK(usm_get_devices(mine, 32, &m));
    for (size_t d = 0; d < n && d < 32; d++) {
        CHECK_OK(usm_device_get_info(list[d], &i));
        host = host || !strcmp(i.backend, "host");
    }
    CHECK(n >= 1 && host, "%zu devices, the host is not among them", n);
    for (size_t d = 0; d < m && d < 32; d++) {
        bool found = false;
        for (size_t e = 0; e < n && e < 32; e++)
            found = found || list[e] == mine[d];
        CHECK(found, "device %zu of the selector is not in *:*", d);
    }
}

Test(device, the_host_is_always_there)
{
    usm_device     *list[32];
    usm_device_info i = USM_DEVICE_INFO_INIT;

    CHECK(selected("host:*", list) == 1, "one host");
    CHECK_OK(usm_device_get_info(list[0], &i));
    CHECK(!strcmp(i.backend, "host") && !strcmp(i.selector, "host:0"), "%s %s", i.backend,
          i.selector);
    usm_device *by_number = NULL, *by_type = NULL;
    size_t      count = 0;
    CHECK_OK(usm_select_devices("host:0", &by_number, 1, &count));
    CHECK_OK(usm_select_devices("HOST:CPU", &by_type, 1, &count)); /* case does not count */
    CHECK(by_number == list[0] && by_type == list[0], "another device");
}

Test(device, backend_and_type_choose_among_devices)
{
    EACH_DEVICE (r) {
        usm_device_info          i = USM_DEVICE_INFO_INIT;
        usm_device              *list[32];
        char                     term[64];
        static const char *const types[] = {"", "cpu", "gpu", "accelerator"};
        CHECK_OK(usm_device_get_info(r.dev, &i));
        if (i.type == USM_DEVICE_TYPE_ACCELERATOR)
            continue; /* the grammar knows cpu, gpu and fpga */
        snprintf(term, sizeof term, "%s:%s", i.backend, types[i.type]);
        size_t n     = selected(term, list);
        bool   found = false;
        for (size_t d = 0; d < n && d < 32; d++) {
            usm_device_info other = USM_DEVICE_INFO_INIT;
            CHECK_OK(usm_device_get_info(list[d], &other));
            CHECK(other.type == i.type && !strcmp(other.backend, i.backend), "%s selects %s", term,
                  other.selector);
            found = found || list[d] == r.dev;
        }
        CHECK(found, "%s does not select %s", term, r.name);
    }
}

Test(device, several_terms_are_kept_in_their_order)
{
    EACH_DEVICE (r) {
        usm_device *list[32];
        char        term[128];
        snprintf(term, sizeof term, "host:0;%s", r.name);
        size_t n = selected(term, list);
        CHECK(n >= 1 && n <= 2, "%s selects %zu", term, n);
        CHECK(list[n - 1] == r.dev || n == 1, "%s", term);
        snprintf(term, sizeof term, "%s,%s;host:*", r.name, strchr(r.name, ':') + 1);
        n = selected(term, list); /* the same device by two terms is listed once */
        CHECK(list[0] == r.dev, "%s: another device first", term);
        for (size_t a = 0; a < n && a < 32; a++)
            for (size_t b = 0; b < a; b++)
                CHECK(list[a] != list[b], "%s lists a device twice", term);
    }
}

Test(device, discards_beat_accepts)
{
    usm_device *list[32];
    size_t      all = selected("*:*", list);

    EACH_DEVICE (r) {
        usm_device *left[32];
        char        term[128];
        size_t      count = 0;
        snprintf(term, sizeof term, "*:*;!%s", r.name);
        usm_status s = usm_select_devices(term, left, 32, &count);
        if (all == 1) {
            CHECK(s == USM_E_NO_DEVICE, "%s: %s", term, usm_status_name(s));
            continue;
        }
        CHECK_OK(s);
        CHECK(count == all - 1, "%s leaves %zu of %zu", term, count, all);
        for (size_t d = 0; d < count && d < 32; d++)
            CHECK(left[d] != r.dev, "%s does not discard it", term);
        snprintf(term, sizeof term, "!%s", r.name); /* discards alone imply *:* */
        CHECK(selected(term, left) == all - 1, "%s leaves %zu of %zu", term, count, all);
    }
}

Test(device, a_selector_that_leaves_nothing_names_itself_and_what_it_excluded)
{
    EACH_DEVICE (r) {
        char        term[128];
        usm_device *list[2] = {NULL};
        size_t      count   = 5;
        snprintf(term, sizeof term, "%s;!%s", r.name, r.name);
        CHECK_REFUSED(usm_select_devices(term, list, 2, &count), USM_E_NO_DEVICE, term);
        CHECK(story_names(r.name), "what was excluded is not named: %s", usm_last_error());
        CHECK(count == 5 && !list[0], "an output was touched");
    }
    CHECK_REFUSED(usm_select_devices("host:gpu", NULL, 0, &(size_t){0}), USM_E_NO_DEVICE,
                  "host:gpu");
    CHECK_REFUSED(usm_select_devices("host:7", NULL, 0, &(size_t){0}), USM_E_NO_DEVICE, "host:7");
}

Test(device, an_unknown_backend_or_device_is_named)
{
    size_t count = 0;

    CHECK_REFUSED(usm_select_devices("metal:*", NULL, 0, &count), USM_E_NO_BACKEND, "metal");
    CHECK(story_names(USM_TEST_BACKEND), "the backends there are are not named: %s",
          usm_last_error());
    CHECK_REFUSED(usm_select_devices("host:quantum", NULL, 0, &count), USM_E_SELECTOR, "quantum");
    CHECK(story_names("cpu"), "the devices there may be are not named: %s", usm_last_error());
}

Test(device, a_selector_that_does_not_parse_is_named_with_the_spot)
{
    static const char *const bad[][2] = {
        {"host", "host"},
        {"host:", "host:"},
        {":0", ":0"},
        {"*", "*"},
        {"!", ""},
        {"gpu", "gpu"},
        {"host:-1", "-1"},
        {"host:0.", "0."},
        {"host:.0", ".0"},
        {"host:0.0.0.0", "0.0.0"},
        {"host:0:0", "0:0"},
        {"host:0 opencl:0", "opencl:0"},
        {"host:0;wha t:0", "wha"},
        {"host:*.x", "*.x"},
        {"!host:0;host:1", "host:1"},
        {"!!host:0", "!"},
        {"host:0x1", "0x1"},
        {"host:99999999999999999999", "9999"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t     count = 0;
        usm_status s     = usm_select_devices(bad[i][0], NULL, 0, &count);
        CHECK(s == USM_E_SELECTOR, "'%s': %s: %s", bad[i][0], usm_status_name(s), usm_last_error());
        CHECK(story_names(bad[i][1]), "'%s': '%s' is not named: %s", bad[i][0], bad[i][1],
              usm_last_error());
    }
}

Test(device, the_count_is_told_whatever_fits)
{
    usm_device *list[32], *one[2] = {NULL, NULL};
    size_t      all = selected("*:*", list), count = 0;

    CHECK_OK(usm_select_devices("*:*", NULL, 0, &count));
    CHECK(count == all, "%zu, not %zu", count, all);
    CHECK_OK(usm_select_devices("*:*", one, 1, &count));
    CHECK(count == all && one[0] == list[0] && !one[1], "with room for one");
}

Test(device, devices_are_the_same_in_every_answer)
{
    usm_device *a[32], *b[32];
    size_t      n = selected("*:*", a), m = selected("*:*", b);

    CHECK(n == m, "%zu and %zu", n, m);
    for (size_t i = 0; i < n && i < 32; i++)
        CHECK(a[i] == b[i], "device %zu", i);
}

TestAlone(device, the_setting_chooses_for_the_process)
{
    usm_device     *list[32];
    usm_device_info i     = USM_DEVICE_INFO_INIT;
    size_t          count = 0;

    CHECK_OK(usm_config_set("device_selector", "host:*"));
    CHECK_OK(usm_get_devices(list, 32, &count));
    CHECK(count == 1, "%zu devices", count);
    CHECK_OK(usm_device_get_info(list[0], &i));
    CHECK(!strcmp(i.backend, "host"), "%s", i.backend);
    void *p = usm_alloc_shared(100);
    CHECK(p, "%s", usm_last_error());
    usm_free(p);
}

TestAlone(device, a_setting_that_leaves_nothing_is_told_by_every_call_that_needs_it)
{
    size_t count = 0;

    CHECK_OK(usm_config_set("device_selector", "host:gpu"));
    CHECK_REFUSED(usm_get_devices(NULL, 0, &count), USM_E_NO_DEVICE, "host:gpu");
    CHECK_NO_BLOCK(usm_alloc_host(10), USM_E_NO_DEVICE);
    CHECK(!usm_default_queue(), "a queue all the same");
    CHECK_IS(usm_last_status(), USM_E_NO_DEVICE);
    CHECK(!usm_default_context(), "a context all the same");
    CHECK_IS(usm_last_status(), USM_E_NO_DEVICE);
}

TestAlone(device, the_empty_environment_variable_counts_as_unset)
{
    size_t count = 0;

    setenv("USM_DEVICE_SELECTOR", "", 1);
    CHECK_OK(usm_get_devices(NULL, 0, &count));
    CHECK(count >= 1, "no device");
}

TestAlone(device, the_variable_of_oneapi_is_read_when_ours_is_unset)
{
    usm_device     *list[32];
    usm_device_info i     = USM_DEVICE_INFO_INIT;
    size_t          count = 0;
    const char     *value = NULL, *origin = NULL;

    unsetenv("USM_DEVICE_SELECTOR"); /* before anything was read */
    setenv("ONEAPI_DEVICE_SELECTOR", "host:*", 1);
    CHECK_OK(usm_get_devices(list, 32, &count));
    CHECK_OK(usm_device_get_info(list[0], &i));
    CHECK(count == 1 && !strcmp(i.backend, "host"), "%zu devices", count);
    CHECK_OK(usm_config_get("device_selector", &value, &origin));
    CHECK(!strcmp(origin, "ONEAPI_DEVICE_SELECTOR"), "origin %s", origin);
}

TestAlone(device, an_empty_selection_by_the_variable_names_the_variable)
{
    size_t count = 0;

    setenv("USM_DEVICE_SELECTOR", "host:gpu", 1);
    CHECK_REFUSED(usm_get_devices(NULL, 0, &count), USM_E_NO_DEVICE, "USM_DEVICE_SELECTOR");
}
