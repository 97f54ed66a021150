/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What base promises about texts, settings and the log. */
#include "plain.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>

/* --- helpers -------------------------------------------------------------- */

static usm__span span(const char *text)
{
    return usm__span_of(text);
}

static bool size_is(const char *text, uint64_t bytes)
{
    uint64_t n = 77;

    return usm__span_size(span(text), &n) && n == bytes;
}

static bool size_is_refused(const char *text)
{
    uint64_t n = 77;

    return !usm__span_size(span(text), &n) && n == 77;
}

/* As a process begins, with nothing of ours in its environment. */
static void start_afresh(void)
{
    static const char *const others[] = {"ONEAPI_DEVICE_SELECTOR", "USM_LGO", "USM_WEATHER",
                                         "USM_TEST_X", "USM_log"};

    for (const usm__setting *s = usm__settings; s->key != NULL; s++)
        (void)unsetenv(s->variable);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        (void)unsetenv(others[i]);
    usm__fault_disarm_all();
    usm__settings_forget();
    (void)usm__log_enabled(USM_LOG_ERROR); /* back to stderr */
}

/* The log goes to a fresh file from here on. */
static const char *log_to_file(const char *level)
{
    const char *path = plain_path("log");
    char        value[600];

    (void)unlink(path);
    (void)snprintf(value, sizeof(value), "level:%s;output:%s", level, path);
    CHECK_INT(usm__settings_set("log", value), USM_OK);
    return path;
}

static const char *logged(const char *path)
{
    static char text[16384];

    return plain_read(path, text, sizeof(text));
}

static int occurrences(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

/* --- texts ---------------------------------------------------------------- */

static void lists_are_cut_into_trimmed_fields(void)
{
    usm__span   rest   = span(" a ;;\tb c;"), field;
    const char *want[] = {"a", "", "b c"};

    for (size_t i = 0; i < 3; i++) {
        CHECK(usm__span_next(&rest, ';', &field));
        CHECK(usm__span_is(field, want[i]));
    }
    CHECK(!usm__span_next(&rest, ';', &field));
}

static void an_empty_list_has_no_fields(void)
{
    usm__span rest = span(""), field = {"x", 1};

    CHECK(!usm__span_next(&rest, ';', &field));
    CHECK(usm__span_is(field, "x"));
}

static void words_compare_without_regard_to_case(void)
{
    CHECK(usm__span_is(span("LeVel"), "lEvEl"));
    CHECK(!usm__span_is(span("level"), "levels"));
    CHECK(!usm__span_is(span("lev"), "level"));
    CHECK(!usm__span_is(span("[el"), "{el")); /* differ by 0x20 as letters do */
    CHECK(usm__span_is(span(""), ""));
}

static void numbers_are_decimal_digits_only(void)
{
    static const char *const bad[] = {"", " 1", "1 ", "+1", "-1", "0x10", "1.0", "1e3", "٣"};
    uint64_t                 n     = 77;

    CHECK(usm__span_number(span("0"), &n) && n == 0);
    CHECK(usm__span_number(span("007"), &n) && n == 7);
    CHECK(usm__span_number((usm__span){"12345", 2}, &n) && n == 12);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(!usm__span_number(span(bad[i]), &n) && n == 12);
}

static void a_number_beyond_64_bits_is_refused(void)
{
    uint64_t n = 77;

    CHECK(usm__span_number(span("18446744073709551615"), &n) && n == UINT64_MAX);
    CHECK(!usm__span_number(span("18446744073709551616"), &n));
    CHECK(!usm__span_number(span("99999999999999999999"), &n));
    CHECK(!usm__span_number(span("36893488147419103232"), &n)); /* 2^65: 0 when it wraps */
}

static void sizes_take_units_in_any_spelling(void)
{
    CHECK(size_is("4096", 4096));
    CHECK(size_is("64K", 65536));
    CHECK(size_is("64kb", 65536));
    CHECK(size_is("64KiB", 65536));
    CHECK(size_is(" 2 m ", 2u << 20));
    CHECK(size_is("3G", 3ull << 30));
    CHECK(size_is("1tib", 1ull << 40));
    CHECK(size_is("512B", 512));
}

static void fractions_of_a_size_are_exact_and_round_down(void)
{
    CHECK(size_is("1.5G", 3ull << 29));
    CHECK(size_is("0.25K", 256));
    CHECK(size_is("0.3K", 307)); /* 307.2 */
    CHECK(size_is("1.00000000099K", 1024));
    CHECK(size_is("16777215.5T", (16777215ull << 40) + (1ull << 39)));
    CHECK(size_is("2.0", 2));
}

static void odd_sizes_are_refused(void)
{
    static const char *const bad[] = {"",    "K",   ".5G", "1.",  "1.G",  "1.5", "-1",
                                      "1KK", "1 0", "1X",  "1Ki", "1,5G", "80%", "0x10"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(size_is_refused(bad[i]));
}

static void a_size_beyond_64_bits_is_refused(void)
{
    CHECK(size_is("16777215T", 16777215ull << 40));
    CHECK(size_is_refused("16777216T"));
    CHECK(size_is_refused("18446744073709551616"));
    CHECK(size_is_refused("18446744073709551615K"));
}

static void booleans_have_eight_spellings(void)
{
    static const char *const yes[] = {"1", "true", "YES", "On", " on "};
    static const char *const no[]  = {"0", "False", "no", "OFF", "off\n"};
    static const char *const bad[] = {"", "2", "y", "enable", "tru"};
    bool                     b;

    for (size_t i = 0; i < 5; i++) {
        b = false;
        CHECK(usm__span_bool(span(yes[i]), &b) && b);
        CHECK(usm__span_bool(span(no[i]), &b) && !b);
        b = true;
        CHECK(!usm__span_bool(span(bad[i]), &b) && b);
    }
}

static void durations_need_a_unit(void)
{
    uint64_t ns = 77;

    CHECK(usm__span_duration_ns(span("250ms"), &ns) && ns == 250000000);
    CHECK(usm__span_duration_ns(span("10us"), &ns) && ns == 10000);
    CHECK(usm__span_duration_ns(span("1.5s"), &ns) && ns == 1500000000);
    CHECK(usm__span_duration_ns(span("40ns"), &ns) && ns == 40);
    CHECK(!usm__span_duration_ns(span("5"), &ns));
    CHECK(!usm__span_duration_ns(span("0.5ns"), &ns));
    CHECK(!usm__span_duration_ns(span("1m"), &ns));
    CHECK(!usm__span_duration_ns(span("18446744074s"), &ns));
    CHECK_INT(ns, 40);
}

static void bytes_are_formatted_for_people(void)
{
    char b[32];

    CHECK_STR(usm__format_bytes(0, b, sizeof(b)), "0 B");
    CHECK_STR(usm__format_bytes(1023, b, sizeof(b)), "1023 B");
    CHECK_STR(usm__format_bytes(1024, b, sizeof(b)), "1 KiB");
    CHECK_STR(usm__format_bytes(65537, b, sizeof(b)), "64.0 KiB");
    CHECK_STR(usm__format_bytes(12897485, b, sizeof(b)), "12.3 MiB");
    CHECK_STR(usm__format_bytes(1048575, b, sizeof(b)), "1.0 MiB");
    CHECK_STR(usm__format_bytes(UINT64_MAX, b, sizeof(b)), "16.0 EiB");
    CHECK_STR(usm__format_bytes(1ull << 63, b, sizeof(b)), "8 EiB");
    CHECK_STR(usm__format_bytes(12345, b, 4), "12."); /* cut, not beyond its end */
}

/* --- settings ------------------------------------------------------------- */

static void a_default_says_so(void)
{
    const char *value = NULL, *origin = NULL;

    start_afresh();
    CHECK_INT(usm__settings_get("log", &value, &origin), USM_OK);
    CHECK_STR(value, "warn");
    CHECK_STR(origin, "default");
    CHECK_STR(usm__setting_text("cache_dir"), "");
    CHECK(!usm__setting_bool("validation"));
    CHECK_INT(usm__settings_get("log", NULL, NULL), USM_OK);
}

static void what_binds_and_does_not_parse_refuses_and_is_not_dropped(void)
{
    start_afresh();
    CHECK_INT(usm__settings_refusal(), USM_OK);
    start_afresh();
    (void)setenv("USM_SPILL", "/data", 1);
    CHECK_STR(usm__setting_text("spill"), "/data");
    CHECK_STR(usm__setting_origin("spill"), "USM_SPILL");
    CHECK_INT(usm__settings_refusal(), USM_E_SETTING);
    CHECK_IN("USM_SPILL=\"/data\" cannot be used", usm_last_error());
    CHECK_IN("did you mean file:/data?", usm_last_error());
    CHECK_INT(usm__settings_set("spill", "file:/data"), USM_OK); /* over the variable */
    CHECK_INT(usm__settings_refusal(), USM_OK);
    start_afresh();
    (void)setenv("USM_JOB_KEY", "deadbeef", 1);
    CHECK_INT(usm__settings_refusal(), USM_E_SETTING);
    CHECK(strstr(usm_last_error(), "deadbeef") == NULL);
    CHECK_STR(usm__setting_text("job_key"), "");
    start_afresh();
    (void)setenv("USM_SPILL_WAIT", "soon", 1); /* others are dropped with a warning */
    CHECK_INT(usm__settings_refusal(), USM_OK);
    CHECK_INT(usm__setting_size("spill_wait"), 2000);
    start_afresh();
}

static void our_variable_is_over_the_foreign_one(void)
{
    start_afresh();
    (void)setenv("ONEAPI_DEVICE_SELECTOR", "opencl:gpu", 1);
    CHECK_STR(usm__setting_text("device_selector"), "opencl:gpu");
    CHECK_STR(usm__setting_origin("device_selector"), "ONEAPI_DEVICE_SELECTOR");
    start_afresh();
    (void)setenv("ONEAPI_DEVICE_SELECTOR", "opencl:gpu", 1);
    (void)setenv("USM_DEVICE_SELECTOR", "host:*", 1);
    CHECK_STR(usm__setting_text("device_selector"), "host:*");
    CHECK_STR(usm__setting_origin("device_selector"), "USM_DEVICE_SELECTOR");
    start_afresh();
}

static void usm_config_set_is_over_the_environment_until_taken_back(void)
{
    start_afresh();
    (void)setenv("USM_POOL", "arena", 1);
    CHECK_INT(usm__settings_set("pool", "direct"), USM_OK);
    CHECK_STR(usm__setting_text("pool"), "direct");
    CHECK_STR(usm__setting_origin("pool"), "usm_config_set");
    CHECK_INT(usm__settings_set("pool", ""), USM_OK); /* nothing, and over the environment */
    CHECK_STR(usm__setting_text("pool"), "");
    CHECK_INT(usm__settings_set("pool", NULL), USM_OK);
    CHECK_STR(usm__setting_text("pool"), "arena");
    CHECK_STR(usm__setting_origin("pool"), "USM_POOL");
    start_afresh();
}

static void an_empty_variable_counts_as_unset(void)
{
    start_afresh();
    (void)setenv("USM_DEVICE_SELECTOR", "", 1);
    (void)setenv("ONEAPI_DEVICE_SELECTOR", "host", 1);
    CHECK_STR(usm__setting_text("device_selector"), "host");
    start_afresh();
}

static void the_environment_is_read_once(void)
{
    start_afresh();
    (void)setenv("USM_POOL", "arena", 1);
    CHECK_STR(usm__setting_text("pool"), "arena");
    (void)setenv("USM_POOL", "direct", 1);
    CHECK_STR(usm__setting_text("pool"), "arena");
    start_afresh();
}

static void keys_come_in_any_case_with_or_without_prefix(void)
{
    const char *value = NULL;

    start_afresh();
    CHECK_INT(usm__settings_set("USM_PooL", "arena"), USM_OK);
    CHECK_INT(usm__settings_get("pool", &value, NULL), USM_OK);
    CHECK_STR(value, "arena");
    CHECK_INT(usm__settings_get("usm_pool", &value, NULL), USM_OK);
    CHECK_STR(value, "arena");
    CHECK_STR(usm__setting_text("POOL"), "arena");
    start_afresh();
}

static void an_unknown_key_is_refused_with_the_nearest_one(void)
{
    const char *value = "untouched";

    start_afresh();
    CHECK_INT(usm__settings_set("USM_DEVCE_SELECTOR", "host"), USM_E_SETTING);
    CHECK_IN("did you mean \"device_selector\"", usm_last_error());
    CHECK_INT(usm__settings_get("colour", &value, NULL), USM_E_SETTING);
    CHECK_STR(value, "untouched");
    CHECK_IN("\"colour\"", usm_last_error());
    CHECK(strstr(usm_last_error(), "did you mean") == NULL);
    for (const usm__setting *s = usm__settings; s->key != NULL; s++)
        CHECK_IN(s->key, usm_last_error());
    CHECK_INT(usm__settings_set("", "x"), USM_E_SETTING);
    CHECK_INT(usm__settings_set("usm_", "x"), USM_E_SETTING);
    CHECK(usm__setting_text("colour") == NULL);
}

static void a_null_key_is_an_invalid_argument(void)
{
    CHECK_INT(usm__settings_set(NULL, "x"), USM_E_INVALID);
    CHECK_IN("usm_config_set", usm_last_error());
    CHECK_INT(usm__settings_get(NULL, NULL, NULL), USM_E_INVALID);
    CHECK_IN("usm_config_get", usm_last_error());
}

static void a_value_that_does_not_parse_lists_what_may_be(void)
{
    start_afresh();
    CHECK_INT(usm__settings_set("validation", "yes"), USM_OK);
    CHECK_INT(usm__settings_set("validation", "maybe"), USM_E_SETTING);
    CHECK_IN("validation", usm_last_error());
    CHECK_IN("\"maybe\"", usm_last_error());
    CHECK_IN("1, 0, true, false, yes, no, on, off", usm_last_error());
    CHECK(usm__setting_bool("validation")); /* the one before stays */
    CHECK_INT(usm__settings_set("log", "loud"), USM_E_SETTING);
    CHECK_IN("error|warn|info|debug|trace", usm_last_error());
    CHECK_INT(usm__settings_set("log", "info;output:"), USM_E_SETTING);
    start_afresh();
}

static void a_bad_variable_warns_once_and_gives_way_to_the_default(void)
{
    const char *path;

    start_afresh();
    (void)setenv("USM_VALIDATION", "maybe", 1);
    path = log_to_file("warn");
    CHECK(!usm__setting_bool("validation"));
    CHECK(!usm__setting_bool("validation"));
    CHECK_STR(usm__setting_origin("validation"), "default");
    CHECK_INT(occurrences(logged(path), "\n"), 1);
    CHECK_IN("USM_VALIDATION=\"maybe\"", logged(path));
    CHECK_IN("true, false", logged(path));
    start_afresh();
}

static bool no_bad(const char *value, char *why, size_t why_size)
{
    (void)snprintf(why, why_size, "anything but bad");
    return strcmp(value, "bad") != 0;
}

static void a_bad_variable_gives_way_to_the_foreign_one(void)
{
    const char *path;

    start_afresh();
    path = log_to_file("warn");
    usm__setting_set_check("device_selector", no_bad);
    (void)setenv("USM_DEVICE_SELECTOR", "bad", 1);
    (void)setenv("ONEAPI_DEVICE_SELECTOR", "host", 1);
    CHECK_STR(usm__setting_text("device_selector"), "host");
    CHECK_IN("USM_DEVICE_SELECTOR=\"bad\"", logged(path));
    CHECK_IN("anything but bad", logged(path));
    start_afresh();
}

static void a_check_that_comes_late_takes_bad_values_back(void)
{
    const char *path;

    start_afresh();
    path = log_to_file("warn");
    (void)setenv("USM_HOOKS", "bad", 1);
    CHECK_INT(usm__settings_set("pool", "bad"), USM_OK);
    CHECK_STR(usm__setting_text("hooks"), "bad");
    usm__setting_set_check("pool", no_bad);
    usm__setting_set_check("hooks", no_bad);
    CHECK_STR(usm__setting_text("pool"), "");
    CHECK_STR(usm__setting_text("hooks"), "");
    CHECK_IN("usm_config_set(\"pool\", \"bad\")", logged(path));
    CHECK_IN("USM_HOOKS=\"bad\"", logged(path));
    CHECK_INT(usm__settings_set("pool", "bad"), USM_E_SETTING);
    CHECK_IN("anything but bad", usm_last_error());
    start_afresh();
}

static void a_text_stays_valid_after_it_was_replaced(void)
{
    const char *first, *again;
    char        value[32];

    start_afresh();
    CHECK_INT(usm__settings_set("pool", "arena"), USM_OK);
    first = usm__setting_text("pool");
    for (int i = 0; i < 100; i++) {
        (void)snprintf(value, sizeof(value), "direct%d", i);
        CHECK_INT(usm__settings_set("pool", value), USM_OK);
    }
    CHECK_STR(first, "arena");
    CHECK_INT(usm__settings_set("pool", "arena"), USM_OK);
    again = usm__setting_text("pool");
    CHECK(first == again); /* what was set before is not kept twice */
    start_afresh();
}

static void out_of_memory_leaves_a_setting_as_it_was(void)
{
    start_afresh();
    CHECK_INT(usm__settings_set("pool", "arena"), USM_OK);
    CHECK(usm__fault_arm("heap.alloc", 1, false, USM_OK));
    CHECK_INT(usm__settings_set("pool", "direct"), USM_E_NO_MEMORY);
    CHECK_STR(usm__setting_text("pool"), "arena");
    CHECK_INT(usm__fault_fired(), 1);
    start_afresh();
}

static void settings_are_right_without_memory_too(void)
{
    start_afresh();
    (void)setenv("USM_POOL", "arena", 1);
    (void)setenv("USM_VALIDATION", "on", 1);
    CHECK(usm__fault_arm("heap.alloc", 1, true, USM_OK));
    CHECK_STR(usm__setting_text("pool"), "arena");
    CHECK(usm__setting_bool("validation"));
    CHECK_STR(usm__setting_text("log"), "warn");
    start_afresh();
}

static void unknown_variables_are_named_with_the_nearest_setting(void)
{
    const char *path;

    start_afresh();
    (void)setenv("USM_LGO", "info", 1);
    (void)setenv("USM_WEATHER", "x", 1);
    (void)setenv("USM_log", "info", 1);
    (void)setenv("USM_POOL", "arena", 1);
    (void)setenv("USM_TEST_X", "1", 1);
    path = log_to_file("warn");
    usm__settings_warn_unknown();
    CHECK_IN("USM_LGO is not a setting: did you mean USM_LOG?", logged(path));
    CHECK_IN("USM_log is not a setting: did you mean USM_LOG?", logged(path));
    CHECK_IN("USM_WEATHER is not a setting and is ignored", logged(path));
    CHECK(strstr(logged(path), "USM_POOL") == NULL);
    CHECK(strstr(logged(path), "USM_TEST") == NULL);
    usm__settings_warn_unknown(); /* says it once */
    CHECK_INT(occurrences(logged(path), "USM_LGO"), 1);
    start_afresh();
}

static void every_setting_is_described_and_its_default_parses(void)
{
    start_afresh();
    for (const usm__setting *s = usm__settings; s->key != NULL; s++) {
        CHECK(strlen(s->help) > 20);
        CHECK(strncmp(s->variable, "USM_", 4) == 0);
        CHECK(strcasecmp(s->variable + 4, s->key) == 0);
        CHECK_INT(usm__settings_set(s->key, s->initial), USM_OK);
    }
    start_afresh();
}

/* What the next case's copy of this program does; 77 when its rights were not lent. */
static int report_as_lent(void)
{
    if (getauxval(AT_SECURE) == 0)
        return 77;
    return strcmp(usm__setting_text("pool"), "arena") == 0 &&
                   usm__setting_text("hooks")[0] == '\0' &&
                   usm__setting_text("plugin_path")[0] == '\0' &&
                   usm__setting_text("cache_dir")[0] == '\0' &&
                   strcmp(usm__setting_text("log"), "warn") == 0
               ? 0
               : 1;
}

static void run_a_lent_copy(void)
{
    const char *copy = plain_path("lent");
    char       *argv[2];

    argv[0] = strdup(copy);
    argv[1] = NULL;
    for (const usm__setting *s = usm__settings; s->key != NULL; s++)
        (void)setenv(s->variable, "arena", 1);
    (void)setenv("USM_TEST_LENT", "1", 1);
    (void)execv(copy, argv);
    _exit(1);
}

/* Rights are lent by a setuid program: paths and hooks must not come from the
 * environment of whoever calls it. */
static void a_setuid_program_takes_no_paths_and_hooks_from_its_caller(void)
{
    const char *copy = plain_path("lent");
    char        command[1800], program[1024];
    ssize_t     n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    int         status;

    start_afresh();
    if (geteuid() != 0)
        SKIP("only root can make a program of another user");
    CHECK(n > 0);
    program[n] = '\0';
    (void)snprintf(command, sizeof(command), "cp '%s' '%s'", program, copy);
    CHECK_INT(system(command), 0);
    CHECK_INT(chown(copy, 65534, (gid_t)-1), 0);
    CHECK_INT(chmod(copy, 04755), 0);
    status = plain_child(run_a_lent_copy, NULL);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("setuid has no effect in this folder");
    CHECK_INT(status, 0);
}

/* --- the log -------------------------------------------------------------- */

static void a_line_has_a_prefix_and_one_newline(void)
{
    const char *path;

    start_afresh();
    path = log_to_file("trace");
    usm__log(USM_LOG_ERROR, "a %d", 1);
    usm__warn("b\n");
    usm__info("c");
    usm__debug("d");
    usm__log(USM_LOG_TRACE, "%s", "");
    CHECK_STR(logged(path), "usm: error: a 1\nusm: warning: b\nusm: info: c\nusm: debug: d\n"
                            "usm: trace: \n");
    start_afresh();
}

static void lines_above_the_level_are_not_written(void)
{
    const char *path;

    start_afresh();
    CHECK(usm__log_enabled(USM_LOG_WARN));
    CHECK(!usm__log_enabled(USM_LOG_INFO));
    path = log_to_file("info");
    CHECK(usm__log_enabled(USM_LOG_INFO));
    usm__info("heard");
    usm__debug("unheard");
    CHECK_STR(logged(path), "usm: info: heard\n");
    CHECK_INT(usm__settings_set("log", "off"), USM_OK);
    CHECK(!usm__log_enabled(USM_LOG_ERROR));
    start_afresh();
}

static void the_log_setting_takes_short_and_long_forms(void)
{
    static const char *const good[] = {"info", "level:info", " Level: INFO ; output: stderr ",
                                       "output:stdout;info", ";info;"};

    start_afresh();
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        CHECK_INT(usm__settings_set("log", good[i]), USM_OK);
        CHECK(usm__log_enabled(USM_LOG_INFO));
        CHECK(!usm__log_enabled(USM_LOG_DEBUG));
    }
    start_afresh();
}

static void a_long_line_is_cut_and_says_so(void)
{
    const char *path;
    char        text[5000];
    size_t      n;

    start_afresh();
    path = log_to_file("warn");
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    usm__warn("%s", text);
    n = strlen(logged(path));
    CHECK(n > 1000 && n <= 2048);
    CHECK_STR(logged(path) + n - 5, "x...\n");
    start_afresh();
}

static void the_log_file_is_appended_to_and_not_inherited(void)
{
    const char *path;
    struct stat wanted, st;
    bool        found = false;

    start_afresh();
    path = log_to_file("warn");
    plain_write(path, "before\n");
    usm__warn("after");
    CHECK_STR(logged(path), "before\nusm: warning: after\n");
    CHECK(stat(path, &wanted) == 0);
    for (int fd = 3; fd < 256; fd++) {
        if (fstat(fd, &st) == 0 && st.st_dev == wanted.st_dev && st.st_ino == wanted.st_ino) {
            CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
            CHECK((fcntl(fd, F_GETFL) & O_APPEND) != 0);
            found = true;
        }
    }
    CHECK(found);
    start_afresh();
    usm__log(USM_LOG_INFO, "nothing");
    for (int fd = 3; fd < 256; fd++)
        CHECK(fstat(fd, &st) != 0 || st.st_ino != wanted.st_ino || st.st_dev != wanted.st_dev);
}

static void warn_to_a_missing_folder(void)
{
    CHECK_INT(usm__settings_set("log", "output:/no/such/folder/log"), USM_OK);
    usm__warn("one");
    CHECK_INT(usm__settings_set("pool", "arena"), USM_OK); /* the log looks at its setting again */
    usm__warn("two");
}

static void a_log_that_cannot_be_opened_goes_to_stderr_and_says_so_once(void)
{
    const char *errors = plain_path("errors");

    start_afresh();
    CHECK_INT(plain_child(warn_to_a_missing_folder, errors), 0);
    CHECK_IN("usm: warning: one\nusm: warning: two\n", logged(errors));
    CHECK_IN("\"/no/such/folder/log\" cannot be opened (No such file", logged(errors));
    CHECK_INT(occurrences(logged(errors), "cannot be opened"), 1);
}

static void say_with_a_bad_setting(void)
{
    usm__settings_forget();
    usm__warn("said");
}

static void a_bad_log_variable_is_told_on_stderr(void)
{
    const char *errors = plain_path("errors");

    start_afresh();
    (void)setenv("USM_LOG", "loud", 1);
    CHECK_INT(plain_child(say_with_a_bad_setting, errors), 0);
    CHECK_INT(occurrences(logged(errors), "USM_LOG=\"loud\" is ignored"), 1);
    CHECK_IN("usm: warning: said\n", logged(errors));
    start_afresh();
}

static void logging_leaves_errno_alone(void)
{
    start_afresh();
    CHECK_INT(usm__settings_set("log", "output:/no/such/folder/log;off"), USM_OK);
    errno = EDOM;
    usm__log(USM_LOG_ERROR, "x");
    CHECK_INT(errno, EDOM);
    (void)log_to_file("warn");
    errno = EDOM;
    usm__warn("x");
    CHECK_INT(errno, EDOM);
    start_afresh();
}

static void log_into_a_pipe_without_a_reader(void)
{
    char value[600];

    (void)snprintf(value, sizeof value, "output:%s", plain_path("pipe"));
    CHECK_INT(usm__settings_set("log", value), USM_OK);
    usm__warn("a line");
}

/* Opening it would wait for a reader. */
static void a_log_that_nobody_reads_goes_to_stderr(void)
{
    char text[512];

    CHECK_INT(mkfifo(plain_path("pipe"), 0600), 0);
    CHECK_INT(plain_child(log_into_a_pipe_without_a_reader, plain_path("errors")), 0);
    CHECK_IN("the log goes to stderr", plain_read(plain_path("errors"), text, sizeof text));
    CHECK_IN("a line", text);
}

static const plain_case cases[] = {
    CASE(lists_are_cut_into_trimmed_fields),
    CASE(an_empty_list_has_no_fields),
    CASE(words_compare_without_regard_to_case),
    CASE(numbers_are_decimal_digits_only),
    CASE(a_number_beyond_64_bits_is_refused),
    CASE(sizes_take_units_in_any_spelling),
    CASE(fractions_of_a_size_are_exact_and_round_down),
    CASE(odd_sizes_are_refused),
    CASE(a_size_beyond_64_bits_is_refused),
    CASE(booleans_have_eight_spellings),
    CASE(durations_need_a_unit),
    CASE(bytes_are_formatted_for_people),
    CASE(a_default_says_so),
    CASE(what_binds_and_does_not_parse_refuses_and_is_not_dropped),
    CASE(our_variable_is_over_the_foreign_one),
    CASE(usm_config_set_is_over_the_environment_until_taken_back),
    CASE(an_empty_variable_counts_as_unset),
    CASE(the_environment_is_read_once),
    CASE(keys_come_in_any_case_with_or_without_prefix),
    CASE(an_unknown_key_is_refused_with_the_nearest_one),
    CASE(a_null_key_is_an_invalid_argument),
    CASE(a_value_that_does_not_parse_lists_what_may_be),
    CASE(a_bad_variable_warns_once_and_gives_way_to_the_default),
    CASE(a_bad_variable_gives_way_to_the_foreign_one),
    CASE(a_check_that_comes_late_takes_bad_values_back),
    CASE(a_text_stays_valid_after_it_was_replaced),
    CASE(out_of_memory_leaves_a_setting_as_it_was),
    CASE(settings_are_right_without_memory_too),
    CASE(unknown_variables_are_named_with_the_nearest_setting),
    CASE(every_setting_is_described_and_its_default_parses),
    CASE(a_setuid_program_takes_no_paths_and_hooks_from_its_caller),
    CASE(a_line_has_a_prefix_and_one_newline),
    CASE(lines_above_the_level_are_not_written),
    CASE(the_log_setting_takes_short_and_long_forms),
    CASE(a_long_line_is_cut_and_says_so),
    CASE(the_log_file_is_appended_to_and_not_inherited),
    CASE(a_log_that_cannot_be_opened_goes_to_stderr_and_says_so_once),
    CASE(a_bad_log_variable_is_told_on_stderr),
    CASE(logging_leaves_errno_alone),
    CASE(a_log_that_nobody_reads_goes_to_stderr),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    if (getenv("USM_TEST_LENT") != NULL)
        _exit(report_as_lent()); /* leak checkers cannot look into such a process */
    return plain_main(argc, argv, cases);
}
