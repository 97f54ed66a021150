/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "settings": usm_config_set, usm_config_get and what stands over what. */
#include "common.h"

/* The value and origin of a key. */
static void check_setting(const char *key, const char *want, const char *want_origin)
{
    const char *value = NULL, *origin = NULL;

    CHECK_OK(usm_config_get(key, &value, &origin));
    CHECK(value && !strcmp(value, want), "%s is '%s', not '%s'", key, value, want);
    CHECK(origin && !strcmp(origin, want_origin), "%s comes from '%s', not '%s'", key, origin,
          want_origin);
}

/* Alone, all of them: no setting was read of the environment before. */
TestAlone(settings, without_a_variable_the_default_is_in_force)
{
    const char *value = NULL, *origin = NULL;

    unsetenv("USM_VALIDATION");
    CHECK_OK(usm_config_get("validation", &value, &origin));
    CHECK(value && origin && !strcmp(origin, "default"), "'%s' from '%s'", value, origin);
}

TestAlone(settings, the_variable_stands_over_the_default)
{
    setenv("USM_POOL", "arena", 1);
    check_setting("pool", "arena", "USM_POOL");
}

TestAlone(settings, the_programs_value_stands_over_the_variable_until_taken_back)
{
    setenv("USM_POOL", "arena", 1);
    CHECK_OK(usm_config_set("pool", "direct"));
    check_setting("pool", "direct", "usm_config_set");
    CHECK_OK(usm_config_set("pool", NULL));
    check_setting("pool", "arena", "USM_POOL");
}

TestAlone(settings, the_variable_stands_over_a_foreign_one)
{
    setenv("USM_DEVICE_SELECTOR", "host:0", 1);
    setenv("ONEAPI_DEVICE_SELECTOR", "opencl:*", 1);
    check_setting("device_selector", "host:0", "USM_DEVICE_SELECTOR");
}

TestAlone(settings, keys_are_found_in_any_case)
{
    CHECK_OK(usm_config_set("Device_SELECTOR", "host:*"));
    check_setting("device_selector", "host:*", "usm_config_set");
    check_setting("DEVICE_SELECTOR", "host:*", "usm_config_set");
}

TestAlone(settings, an_unknown_key_is_named)
{
    const char *value = "before", *origin = "before";

    CHECK_REFUSED(usm_config_set("colour", "blue"), USM_E_SETTING, "colour");
    CHECK_REFUSED(usm_config_get("colour", &value, &origin), USM_E_SETTING, "colour");
    CHECK_REFUSED(usm_config_set("", "blue"), USM_E_SETTING, "");
    CHECK(!strcmp(value, "before") && !strcmp(origin, "before"), "an output was touched");
}

TestAlone(settings, a_value_that_does_not_parse_is_named_with_what_may_be)
{
    CHECK_REFUSED(usm_config_set("validation", "perhaps"), USM_E_SETTING, "perhaps");
    CHECK(story_names("yes") || story_names("true"), "what may be is not told: %s",
          usm_last_error());
    CHECK_REFUSED(usm_config_set("device_selector", "nonsense"), USM_E_SETTING, "nonsense");
    CHECK_REFUSED(usm_config_set("hooks", "fault:no_such_call@1"), USM_E_SETTING, "no_such_call");
    CHECK_REFUSED(usm_config_set("log", "level:loud"), USM_E_SETTING, "loud");
}

TestAlone(settings, every_spelling_of_a_boolean_is_taken)
{
    static const char *const yes[] = {"1", "true", "yes", "on", "TRUE", "On"}, *const no[] = {
                                                                                   "0",     "false",
                                                                                   "no",    "off",
                                                                                   "False", "OFF"};

    for (int i = 0; i < 6; i++) {
        CHECK_OK(usm_config_set("null_vmem", yes[i]));
        CHECK_OK(usm_config_set("null_vmem", no[i]));
    }
}

TestAlone(settings, a_variable_that_does_not_parse_is_ignored_with_the_default_in_force)
{
    const char *value = NULL, *origin = NULL;

    setenv("USM_VALIDATION", "perhaps", 1);
    CHECK_OK(usm_config_get("validation", &value, &origin));
    CHECK(!strcmp(origin, "default"), "'%s' from %s", value, origin);
}

TestAlone(settings, null_is_refused_where_it_means_nothing)
{
    const char *value, *origin = NULL;

    CHECK_REFUSED(usm_config_set(NULL, "x"), USM_E_INVALID, "");
    CHECK_REFUSED(usm_config_get(NULL, &value, &origin), USM_E_INVALID, "");
    CHECK_OK(usm_config_get("log", NULL, NULL)); /* each output may be left out */
}

TestAlone(settings, many_changes_of_one_key_hold)
{
    char text[32];

    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "/tmp/cache-%d", i);
        CHECK_OK(usm_config_set("cache_dir", text));
    }
    check_setting("cache_dir", "/tmp/cache-999", "usm_config_set");
}

TestAlone(settings, a_descriptor_stands_over_the_setting)
{
    CHECK_OK(usm_config_set("pool", "direct"));
    EACH_DEVICE (r) {
        usm_pool_desc desc = USM_POOL_DESC_INIT;
        usm_pool     *pool = NULL;
        if (!can(&r, NEED_HOST))
            continue;
        desc.name = "arena";
        CHECK_OK(usm_pool_create(r.ctx, r.dev, USM_HOST, &desc, &pool));
        CHECK_OK(usm_pool_reset(pool)); /* an arena: it has a reset */
        usm_pool_destroy(pool);
    }
}
