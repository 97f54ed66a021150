/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* USM_POOL: its grammar, and what is made of Unified Runtime's variables when it is unset. */
#include "plain.h"

#include "heap/pool_setting.h"

#include <usm/usm.h>

/* --- helpers -------------------------------------------------------------- */

static usm__pool_choice chosen(const char *text, usm_kind kind)
{
    usm__pool_choice c;
    char             why[256] = "";

    if (!usm__pool_setting_parse(text, kind, &c, why, sizeof why))
        printf("# %s: %s\n", text, why);
    CHECK_STR(why, "");
    return c;
}

static void check_refused(const char *text, const char *reason)
{
    usm__pool_choice c;
    char             why[256] = "";

    if (usm__pool_setting_parse(text, USM_HOST, &c, why, sizeof why))
        printf("# \"%s\" was taken\n", text);
    CHECK(!usm__pool_setting_parse(text, USM_HOST, &c, why, sizeof why));
    CHECK_IN(reason, why);
}

static usm__translation translated(const char *variable, const char *text)
{
    usm__translation t = {.value = ""};

    if (!usm__pool_setting_translate(variable, text, &t))
        printf("# %s is refused: %s\n", text, t.why);
    CHECK_STR(t.why, "");
    return t;
}

#define UR  "UR_L0_USM_ALLOCATOR"
#define OFF "UR_L0_DISABLE_USM_ALLOCATOR"

/* Runs fn in a child whose environment has these three (NULL: unset), at the level info; what it
 * logged. */
static const char *log_of_child(void (*fn)(void), const char *ours, const char *ur, const char *off)
{
    static const char *const names[] = {"USM_POOL", UR, OFF};
    const char *const        texts[] = {ours, ur, off};
    static char              text[8192];
    const char              *path = plain_path("child");

    for (size_t i = 0; i < 3; i++)
        (void)(texts[i] ? setenv(names[i], texts[i], 1) : unsetenv(names[i]));
    (void)setenv("USM_LOG", "info", 1);
    CHECK_INT(plain_child(fn, path), 0);
    for (size_t i = 0; i < 3; i++)
        (void)unsetenv(names[i]);
    (void)unsetenv("USM_LOG");
    return plain_read(path, text, sizeof text);
}

/* For children. */
static void print_setting(void)
{
    const char *value = NULL, *origin = NULL;

    CHECK_INT(usm_config_get("pool", &value, &origin), USM_OK);
    CHECK_INT(usm_config_get("pool", &value, &origin), USM_OK); /* what is said is said once */
    (void)fprintf(stderr, "<%s> from <%s>\n", value, origin);
}

static int occurrences(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

/* --- the grammar ---------------------------------------------------------- */

static void nothing_said_is_nothing_chosen(void)
{
    static const char *const empty[] = {"", ";", " ; ;; "};

    for (size_t i = 0; i < 3; i++) {
        usm__pool_choice c = chosen(empty[i], USM_DEVICE), zero = {.name = ""};

        CHECK(memcmp(&c, &zero, sizeof c) == 0);
    }
}

static void a_segment_without_a_kind_is_for_all(void)
{
    CHECK_STR(chosen("arena", USM_HOST).name, "arena");
    CHECK_STR(chosen("arena", USM_DEVICE).name, "arena");
    CHECK_STR(chosen("arena", USM_SHARED).name, "arena");
}

static void a_kind_chooses_for_itself_only(void)
{
    const char *text = "device:slab,threshold=1G;shared:direct";

    CHECK_STR(chosen(text, USM_DEVICE).name, "slab");
    CHECK(chosen(text, USM_DEVICE).retain == 1ull << 30);
    CHECK_STR(chosen(text, USM_SHARED).name, "direct");
    CHECK_INT(chosen(text, USM_SHARED).retain, 0);
    CHECK_STR(chosen(text, USM_HOST).name, "");
}

static void the_last_segment_wins_whole(void)
{
    const char *text = "host:slab,retain=1M;arena,area_size=2M;device:direct";

    CHECK_STR(chosen(text, USM_HOST).name, "arena");
    CHECK_INT(chosen(text, USM_HOST).retain, 0);
    CHECK_INT(chosen(text, USM_HOST).area_size, 2 << 20);
    CHECK_STR(chosen(text, USM_DEVICE).name, "direct");
    CHECK_INT(chosen(text, USM_DEVICE).area_size, 0);
}

static void blanks_and_case_do_not_matter(void)
{
    usm__pool_choice c = chosen(" Device : slab , AREA_size = 64 k , Retain = ALL ;", USM_DEVICE);

    CHECK_STR(c.name, "slab");
    CHECK_INT(c.area_size, 64 << 10);
    CHECK(c.retain == SIZE_MAX);
}

static void every_option_is_read(void)
{
    usm__pool_choice c = chosen("slab,area_size=32M,maximum_size=1.5G,min_align=2M,retain=256M,"
                                "retain_ms=10s,zero_init=yes,thread_cache=4M",
                                USM_HOST);

    CHECK_INT(c.area_size, 32 << 20);
    CHECK_INT(c.maximum_size, 1536ll << 20);
    CHECK_INT(c.min_align, 2 << 20);
    CHECK_INT(c.retain, 256 << 20);
    CHECK_INT(c.retain_ms, 10000);
    CHECK(c.zero_init);
    CHECK_INT(c.thread_cache, 4 << 20);
    CHECK_STR(c.options, "");
}

static void times_are_milliseconds_or_have_a_unit(void)
{
    CHECK_INT(chosen("slab,retain_ms=500", USM_HOST).retain_ms, 500);
    CHECK_INT(chosen("slab,retain_ms=1.5s", USM_HOST).retain_ms, 1500);
    CHECK_INT(chosen("slab,retain_ms=250ms", USM_HOST).retain_ms, 250);
    check_refused("slab,retain_ms=50d", "retain_ms is a time");
    check_refused("slab,retain_ms=4294967296", "retain_ms is a time");
}

/* In a descriptor 0 is the pool's preference. */
static void zero_that_was_said_is_not_the_pools_preference(void)
{
    CHECK_INT(chosen("slab,retain=0", USM_HOST).retain, 1);
    CHECK_INT(chosen("slab,retain_ms=0", USM_HOST).retain_ms, 1);
    CHECK_INT(chosen("slab,retain_ms=10us", USM_HOST).retain_ms, 1);
    CHECK_INT(chosen("slab,maximum_size=0", USM_HOST).maximum_size, 0);
    CHECK_INT(chosen("slab,thread_cache=0", USM_HOST).thread_cache, 1);
    CHECK_INT(chosen("slab,thread_cache=auto", USM_HOST).thread_cache, 0);
}

static void what_does_not_parse_is_named(void)
{
    static const struct {
        const char *text, *reason;
    } bad[] = {
        {"slab,colour=blue", "there is no option \"colour\"; options are area_size, maximum_size, "
                             "min_align (bytes), retain (bytes or all), retain_ms (10s, 500), "
                             "thread_cache (bytes or auto), zero_init (1, 0)"},
        {"direct;device:slab,colour=blue", "\"colour\""}, /* of another kind too */
        {"slab,area_size", "area_size is bytes"},
        {"slab,area_size=", "area_size is bytes"},
        {"slab,area_size=many", "not \"many\""},
        {"slab,thread_cache=some", "thread_cache is bytes, with K, M, G or T for powers of 1024, "
                                   "or auto; 0 is no caches"},
        {"slab,area_size=-1", "not \"-1\""},
        {"slab,area_size=1=2", "not \"1=2\""},
        {"slab,area_size=1\n2", "area_size is bytes"},
        {"host:slab\nx:1", "is not a pool's name"},
        {"slab,maximum_size=99999999T", "maximum_size is bytes"},
        {"slab,min_align=3", "a power of two up to 2M"},
        {"slab,min_align=4M", "a power of two up to 2M"},
        {"slab,retain=some", "or all"},
        {"slab,threshold=some", "threshold is bytes"},
        {"slab,zero_init=maybe", "true, false"},
        {"slab,,retain=1", "between two commas"},
        {"slab,=1", "there is no option \"\""},
        {"disk:slab", "\"disk:slab\" begins with no kind of memory"},
        {":slab", "begins with no kind of memory"},
        {"host:", "is not a pool's name"},
        {"host::slab", "is not a pool's name"},
        {"host:slab:", "is not a pool's name"},
        {"retain=1G", "\"retain=1G\" is not a pool's name"},
        {",retain=1G", "is not a pool's name"},
        {"a_name_that_is_far_longer_than_any_pools", "is not a pool's name"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_refused(bad[i].text, bad[i].reason);
}

/* --- the setting ---------------------------------------------------------- */

static void an_unknown_pool_is_refused_with_those_there_are(void)
{
    const char *log = log_of_child(print_setting, "device:slap,retain=1G", NULL, NULL);

    CHECK_IN(
        "usm: warning: USM_POOL=\"device:slap,retain=1G\" is ignored; allowed: there is no pool "
        "\"slap\"; there are ",
        log);
    CHECK_IN("arena", log);
    CHECK_IN("<> from <default>", log);
}

static void an_unknown_option_refuses_the_whole_value(void)
{
    const char *log = log_of_child(print_setting, "direct;device:arena,colour=blue", NULL, NULL);

    CHECK_INT(occurrences(log, "usm: warning: USM_POOL="), 1);
    CHECK_IN("there is no option \"colour\"", log);
    CHECK_IN("<> from <default>", log);
}

static void check_config_set(void)
{
    CHECK_INT(usm_config_set("pool", "arena,colour=blue"), USM_E_SETTING);
    CHECK_IN("there is no option \"colour\"", usm_last_error());
    CHECK_INT(usm_config_set("pool", "device:arena,retain=all"), USM_OK);
}

static void the_programs_value_is_checked_too(void)
{
    CHECK_INT(plain_child(check_config_set, NULL), 0);
}

/* --- Unified Runtime's variables ------------------------------------------ */

static void off_is_the_pool_direct_whatever_its_value(void)
{
    CHECK_STR(translated(OFF, "1").value, "direct");
    CHECK_STR(translated(OFF, "0").value, "direct");
    CHECK_STR(translated(OFF, "x;y").value, "direct");
    CHECK_STR(translated(OFF, "1").lost, "");
}

/* The example of DPC++'s documentation. */
static void a_full_value_is_translated_part_by_part(void)
{
    usm__translation t = translated(UR, "1;32M;host:1M,4,64K;device:1M,4,16M;shared:0,0,2M");

    CHECK_STR(t.value, "host:slab,retain=32M;device:slab,area_size=16M,retain=32M;shared:direct");
    CHECK_IN("total is retain", t.made);
    CHECK_IN("size of a slab is area_size", t.made);
    CHECK_IN("up to 2M is met anyway", t.made);
    CHECK_IN("is the pool direct", t.made);
    CHECK_IN("MaxPoolableSize", t.lost);
    CHECK_IN("Capacity", t.lost);
}

static void parts_may_be_left_out(void)
{
    static const struct {
        const char *text, *value;
    } good[] = {
        {"1", ""},
        {"0", ""},
        {"", ""},
        {";", ""},
        {";;", ""},
        {"1;", ""},
        {"1;64M", "slab,retain=64M"},
        {";64M", "slab,retain=64M"},
        {"1;0", "slab,retain=0"},
        {"1;1000", "slab,retain=1000"},
        {"1;;0", "direct"},
        {"1;;1M", ""},
        {"1;;,,64M", "slab,area_size=64M"},
        {"1;;,,64K", ""},
        {"1;;device:,,3M", "host:slab;device:slab,area_size=3M;shared:slab"},
        {"1;;device:0", "host:slab;device:direct;shared:slab"},
        {"1;;0;shared:2M", "host:direct;device:direct;shared:slab"}, /* the later one stands */
        {"1;;read_only_shared:4M,4,2M", ""},
        {"device:0", "host:slab;device:direct;shared:slab"}, /* newer versions */
        {"32m", NULL},
    };

    for (size_t i = 0; good[i].value; i++)
        CHECK_STR(translated(UR, good[i].text).value, good[i].value);
}

static void what_has_no_counterpart_is_named(void)
{
    CHECK_IN("EnableBuffers=0", translated(UR, "0").lost);
    CHECK_STR(translated(UR, "1").lost, "");
    CHECK_STR(translated(UR, "1;32M").lost, "");
    CHECK_STR(translated(UR, "1;;,,64K").lost, "");
    CHECK_IN("MaxPoolableSize", translated(UR, "1;;1M").lost);
    CHECK_STR(translated(UR, "1;;0,0,2M").lost, ""); /* nothing pooled: nothing is lost */
    CHECK_IN("Capacity", translated(UR, "1;;,4").lost);
    CHECK_IN("read_only_shared", translated(UR, "1;;read_only_shared:4M").lost);
}

static void bad_values_are_refused_with_the_grammar(void)
{
    static const char *const bad[] = {"2",         "yes",    "1M",         "1;lots",
                                      "1;;lots",   "1;;1,x", "1;;1,2,x",   "1;;1,2,3,4",
                                      "1;;gpu:1M", ":1,2",   "1;;host:-1", "1;32M;host"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        usm__translation t = {.value = ""};

        if (usm__pool_setting_translate(UR, bad[i], &t))
            printf("# \"%s\" was taken\n", bad[i]);
        CHECK(!usm__pool_setting_translate(UR, bad[i], &t));
        CHECK_IN("LARGEST", t.why);
    }
}

/* Whatever is made of them must be a value of ours. */
static void translations_are_values_of_ours(void)
{
    static const char *const texts[] = {"1;32M;host:1M,4,64K;device:1M,4,64K;shared:0,0,2M",
                                        "0;1K;1G,1000,1G", "1;;0;shared:2M,,3000001"};

    for (size_t i = 0; i < 3; i++) {
        usm__translation t = translated(UR, texts[i]);

        (void)chosen(t.value, USM_HOST);
        (void)chosen(t.value, USM_DEVICE);
        (void)chosen(t.value, USM_SHARED);
    }
}

static void ours_stands_over_theirs(void)
{
    const char *log = log_of_child(print_setting, "arena", "1;32M", "1");

    CHECK_STR(log, "<arena> from <USM_POOL>\n");
}

static void off_stands_over_the_other_one(void)
{
    const char *log = log_of_child(print_setting, NULL, "1;32M", "1");

    CHECK_IN("<direct> from <" OFF ">", log);
    CHECK_IN("usm: info: " OFF " is taken for USM_POOL=\"direct\"", log);
    CHECK_INT(occurrences(log, "\n"), 2);
}

static void what_was_made_of_them_is_logged_once(void)
{
    const char *log = log_of_child(print_setting, NULL, "1;;host:0;device:0;shared:0", NULL);

    CHECK_IN("<direct> from <" UR ">", log);
    CHECK_INT(occurrences(log, "usm: info: " UR " is taken for USM_POOL=\"direct\": a largest"), 1);
    CHECK_INT(occurrences(log, "warning"), 0);
}

static void what_was_lost_is_warned_about(void)
{
    const char *log = log_of_child(print_setting, NULL, "0;;0", NULL);

    CHECK_INT(occurrences(log, "usm: warning: " UR " is taken for USM_POOL=\"direct\", but without "
                               "EnableBuffers=0"),
              1);
}

static void one_that_does_not_parse_is_warned_about(void)
{
    const char *log = log_of_child(print_setting, NULL, "1;lots", NULL);

    CHECK_IN("usm: warning: " UR "=\"1;lots\" is ignored; allowed: [1|0][;[TOTAL]", log);
    CHECK_IN("<> from <default>", log);
}

static void a_bad_one_of_ours_gives_way_to_theirs(void)
{
    const char *log = log_of_child(print_setting, "nonsense,", "1;;0", NULL);

    CHECK_IN("USM_POOL=\"nonsense,\" is ignored", log);
    CHECK_IN("<direct> from <" UR ">", log);
}

static void use_a_pool(void)
{
    usm_pool      *pool  = usm_pool_default(NULL, NULL, USM_HOST);
    usm_pool_stats stats = USM_POOL_STATS_INIT;
    void          *a     = usm_pool_malloc(pool, 100);
    void          *b     = usm_pool_malloc(pool, 100);

    CHECK(a && b);
    CHECK_INT(usm_pool_get_stats(pool, &stats), USM_OK);
    usm_pool_free(pool, a);
    usm_pool_free(pool, b);
    (void)fprintf(stderr, "driver calls: %llu\n", (unsigned long long)stats.driver_allocs);
}

static void their_wish_reaches_the_pool(void)
{
    (void)setenv("USM_DEVICE_SELECTOR", "host:*", 1);
    CHECK_IN("driver calls: 2\n", log_of_child(use_a_pool, NULL, NULL, "1"));
    CHECK_IN("driver calls: 1\n", log_of_child(use_a_pool, "arena", NULL, NULL));
    (void)unsetenv("USM_DEVICE_SELECTOR");
}

static const plain_case cases[] = {
    CASE(nothing_said_is_nothing_chosen),
    CASE(a_segment_without_a_kind_is_for_all),
    CASE(a_kind_chooses_for_itself_only),
    CASE(the_last_segment_wins_whole),
    CASE(blanks_and_case_do_not_matter),
    CASE(every_option_is_read),
    CASE(times_are_milliseconds_or_have_a_unit),
    CASE(zero_that_was_said_is_not_the_pools_preference),
    CASE(what_does_not_parse_is_named),
    CASE(an_unknown_pool_is_refused_with_those_there_are),
    CASE(an_unknown_option_refuses_the_whole_value),
    CASE(the_programs_value_is_checked_too),
    CASE(off_is_the_pool_direct_whatever_its_value),
    CASE(a_full_value_is_translated_part_by_part),
    CASE(parts_may_be_left_out),
    CASE(what_has_no_counterpart_is_named),
    CASE(bad_values_are_refused_with_the_grammar),
    CASE(translations_are_values_of_ours),
    CASE(ours_stands_over_theirs),
    CASE(off_stands_over_the_other_one),
    CASE(what_was_made_of_them_is_logged_once),
    CASE(what_was_lost_is_warned_about),
    CASE(one_that_does_not_parse_is_warned_about),
    CASE(a_bad_one_of_ours_gives_way_to_theirs),
    CASE(their_wish_reaches_the_pool),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
