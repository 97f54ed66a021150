/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What pools say of themselves: usm_pool_describe(), and the report of an allocation that failed.
 */
#include "plain.h"

#include <usm/usm.h>

#include <errno.h>
#include <locale.h>

/* --- a reader of JSON: the end of the value at s, or NULL ------------------- */

static const char *skip_value(const char *s);

static const char *skip_text(const char *s)
{
    if (*s++ != '"')
        return NULL;
    for (; *s != '"'; s++) {
        if ((unsigned char)*s < 0x20)
            return NULL;
        if (*s == '\\' && !strchr("\"\\/bfnrtu", *++s))
            return NULL;
    }
    return s + 1;
}

static const char *skip_list(const char *s, char end, bool named)
{
    if (*++s == end)
        return s + 1;
    for (;;) {
        if (named && (!(s = skip_text(s)) || *s++ != ':'))
            return NULL;
        s = skip_value(s);
        if (!s || (*s != ',' && *s != end))
            return NULL;
        if (*s++ == end)
            return s;
    }
}

static const char *skip_number(const char *s)
{
    size_t n = strspn(s, "0123456789");

    if (n == 0 || (n > 1 && *s == '0'))
        return NULL;
    s += n;
    if (*s == '.') {
        n = strspn(++s, "0123456789");
        s = n ? s + n : NULL;
    }
    return s;
}

static const char *skip_value(const char *s)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < 3; i++)
        if (strncmp(s, words[i], strlen(words[i])) == 0)
            return s + strlen(words[i]);
    return *s == '{'   ? skip_list(s, '}', true)
           : *s == '[' ? skip_list(s, ']', false)
           : *s == '"' ? skip_text(s)
                       : skip_number(s);
}

static void check_json(const char *text)
{
    const char *end = skip_value(text);

    if (!end || *end)
        printf("# no JSON: %s\n", text);
    CHECK(end && *end == '\0');
    CHECK(strchr(text, '\n') == NULL);
}

static unsigned long long number_of(const char *json, const char *name)
{
    char        key[64];
    const char *at;

    (void)snprintf(key, sizeof key, "\"%s\":", name);
    at = strstr(json, key);
    CHECK(at != NULL);
    return strtoull(at + strlen(key), NULL, 10);
}

/* --- helpers -------------------------------------------------------------- */

static usm_context *make_context(void)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_context     *ctx  = NULL;

    CHECK_INT(usm_config_set("device_selector", "host:*"), USM_OK);
    CHECK_INT(usm_context_create(&desc, &ctx), USM_OK);
    return ctx;
}

static usm_pool *make_pool(usm_context *ctx, const char *name, size_t maximum_size)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;

    desc.name         = name;
    desc.area_size    = 1 << 20;
    desc.maximum_size = maximum_size;
    CHECK_INT(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool), USM_OK);
    return pool;
}

static const char *describe(usm_pool *pool, usm_text_format format)
{
    static char text[64 << 10];
    size_t      size = 0;

    CHECK_INT(usm_pool_describe(pool, format, text, sizeof text, &size), USM_OK);
    CHECK_INT(size, strlen(text));
    return text;
}

static int occurrences(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

/* --- usm_pool_describe() ---------------------------------------------------- */

static void check_figures(usm_pool *pool)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;
    const char    *json  = describe(pool, USM_JSON);

    CHECK_INT(usm_pool_get_stats(pool, &stats), USM_OK);
    check_json(json);
    CHECK_INT(number_of(json, "live"), stats.live);
    CHECK_INT(number_of(json, "live_peak"), stats.live_peak);
    CHECK_INT(number_of(json, "reserved"), stats.reserved);
    CHECK_INT(number_of(json, "reserved_peak"), stats.reserved_peak);
    CHECK_INT(number_of(json, "blocks"), stats.blocks);
    CHECK_INT(number_of(json, "allocations"), stats.allocations);
    CHECK_INT(number_of(json, "frees"), stats.frees);
    CHECK_INT(number_of(json, "driver_allocs"), stats.driver_allocs);
    CHECK_INT(number_of(json, "largest_free"), stats.largest_free);
    CHECK_INT(number_of(json, "threads"), stats.threads);
}

static void json_has_the_figures_of_get_stats(void)
{
    static const char *const names[] = {"direct", "arena", "slab", "whole"};
    usm_context             *ctx     = make_context();

    for (size_t i = 0; i < 3; i++) {
        usm_pool *pool = make_pool(ctx, names[i], 0);
        void     *a    = usm_pool_malloc(pool, 1000);
        void     *b    = usm_pool_malloc(pool, 100000);

        CHECK(a && b);
        usm_pool_free(pool, a);
        check_figures(pool);
        CHECK_IN(names[i], describe(pool, USM_JSON));
        CHECK_IN("\"kind\":\"host\",\"device\":\"host:0\"", describe(pool, USM_JSON));
        usm_pool_free(pool, b);
        check_figures(pool);
        usm_pool_destroy(pool);
    }
    usm_context_destroy(ctx);
}

static void a_pool_of_which_nothing_was_asked_has_no_rate(void)
{
    usm_context *ctx  = make_context();
    usm_pool    *pool = make_pool(ctx, "arena", 0);

    check_json(describe(pool, USM_JSON));
    CHECK_IN("\"reuse\":null", describe(pool, USM_JSON));
    CHECK(strstr(describe(pool, USM_TEXT), "reuse") == NULL);
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
}

/* Four blocks out of one area: one allocation of four reached the driver. */
static void the_reuse_rate_is_the_part_without_the_driver(void)
{
    usm_context *ctx  = make_context();
    usm_pool    *pool = make_pool(ctx, "arena", 0);
    void        *p[4];

    for (int i = 0; i < 4; i++)
        CHECK((p[i] = usm_pool_malloc(pool, 1000)) != NULL);
    CHECK_IN("\"reuse\":0.750000", describe(pool, USM_JSON));
    CHECK_IN("; reuse 75.00 %", describe(pool, USM_TEXT));
    for (int i = 0; i < 4; i++)
        usm_pool_free(pool, p[i]);
    usm_pool_destroy(pool);
    pool = make_pool(ctx, "direct", 0);
    p[0] = usm_pool_malloc(pool, 1000);
    CHECK_IN("\"reuse\":0.000000", describe(pool, USM_JSON));
    usm_pool_free(pool, p[0]);
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
}

static void a_decimal_comma_is_no_json(void)
{
    usm_context *ctx  = make_context();
    usm_pool    *pool = make_pool(ctx, "arena", 0);
    void        *p    = usm_pool_malloc(pool, 1000);

    if (!setlocale(LC_ALL, "de_DE.UTF-8"))
        printf("# no German locale here: the reader's own is used\n");
    check_json(describe(pool, USM_JSON));
    (void)setlocale(LC_ALL, "C");
    usm_pool_free(pool, p);
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
}

static void text_is_for_people(void)
{
    usm_context *ctx  = make_context();
    usm_pool    *pool = make_pool(ctx, "arena", 0);
    void        *p    = usm_pool_malloc(pool, 512 << 10);
    const char  *text = describe(pool, USM_TEXT);

    CHECK_IN("pool arena, host memory, host:0 (", text);
    CHECK_IN("live           512 KiB     in 1 block; peak 512 KiB", text);
    CHECK_IN("reserved       1 MiB       peak 1 MiB", text);
    usm_pool_free(pool, p);
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
}

/* The classes of the pool sum up to its totals while nobody else uses it. */
static void classes_are_those_of_the_pool(void)
{
    usm_context *ctx  = make_context();
    usm_pool    *pool = make_pool(ctx, "slab", 0);
    void        *p[20];
    const char  *json;

    for (size_t i = 0; i < 20; i++)
        CHECK((p[i] = usm_pool_malloc(pool, i < 10 ? 64 : 4096)) != NULL);
    for (size_t i = 0; i < 3; i++)
        usm_pool_free(pool, p[i]);
    json = describe(pool, USM_JSON);
    check_json(json);
    CHECK_INT(number_of(json, "blocks"), 17);
    CHECK_IN("{\"size\":64,\"live\":7,\"live_bytes\":448,", json);
    CHECK_IN("{\"size\":4096,\"live\":10,\"live_bytes\":40960,", json);
    CHECK_IN("allocations depot hits", describe(pool, USM_TEXT));
    for (size_t i = 3; i < 20; i++)
        usm_pool_free(pool, p[i]);
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
}

static void check_cut(usm_pool *pool, usm_text_format format)
{
    static char full[64 << 10], text[64 << 10];
    size_t      size = 0, again = 0;

    CHECK_INT(usm_pool_describe(pool, format, NULL, 0, &size), USM_OK);
    CHECK(size > 100 && size + 2 < sizeof full);
    CHECK_INT(usm_pool_describe(pool, format, full, sizeof full, NULL), USM_OK);
    for (size_t cap = 1; cap <= size + 2; cap++) {
        memset(text, '#', cap + 1);
        CHECK_INT(usm_pool_describe(pool, format, text, cap, &again), USM_OK);
        CHECK_INT(again, size);
        CHECK_INT(strlen(text), cap <= size ? cap - 1 : size);
        CHECK(strncmp(text, full, strlen(text)) == 0);
        CHECK(text[cap] == '#');
    }
}

static void a_small_buffer_gets_what_fits(void)
{
    usm_context *ctx  = make_context();
    usm_pool    *pool = make_pool(ctx, "slab", 0);
    void        *p    = usm_pool_malloc(pool, 1000);

    check_cut(pool, USM_TEXT);
    check_cut(pool, USM_JSON);
    check_cut(NULL, USM_TEXT);
    check_cut(NULL, USM_JSON);
    usm_pool_free(pool, p);
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
}

static void all_pools_come_with_their_tags(void)
{
    usm_context *ctx = make_context();
    usm_pool    *a   = make_pool(ctx, "arena", 0);
    usm_pool    *b   = make_pool(ctx, "direct", 0);
    void        *p;
    const char  *json;

    CHECK_INT(usm_tag_push("solver"), USM_OK);
    p = usm_pool_malloc(a, 1000);
    CHECK_INT(usm_tag_pop(), USM_OK);
    CHECK(p != NULL);
    json = describe(NULL, USM_JSON);
    check_json(json);
    CHECK_IN("{\"pools\":[{\"pool\":\"", json);
    CHECK_IN("\"pool\":\"arena\"", json);
    CHECK_IN("\"pool\":\"direct\"", json);
    CHECK_IN("\"tags\":[{\"name\":\"solver\",\"live\":", json);
    CHECK_IN("pool arena", describe(NULL, USM_TEXT));
    CHECK_IN("solver\n", describe(NULL, USM_TEXT));
    usm_pool_free(a, p);
    usm_pool_destroy(a);
    usm_pool_destroy(b);
    usm_context_destroy(ctx);
}

static void any_name_makes_valid_json(void)
{
    static const char *const names[] = {"a \"quoted\\ name\n\x01\x7f",
                                        "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xff\xc3",
                                        "\xc0\x80\xed\xa0\x80", "x\xf4\x90\x80\x80y"};
    usm_context             *ctx     = make_context();
    usm_pool                *pool    = make_pool(ctx, "direct", 0);

    for (size_t i = 0; i < 5; i++) {
        void *p;

        CHECK_INT(usm_tag_push(names[i]), USM_OK);
        p = usm_pool_malloc(pool, 10);
        CHECK_INT(usm_tag_pop(), USM_OK);
        CHECK(p != NULL);
        usm_pool_free(pool, p);
    }
    check_json(describe(NULL, USM_JSON));
    CHECK_IN("\"a \\\"quoted\\\\ name\\u000a\\u0001\\u007f\"", describe(NULL, USM_JSON));
    CHECK_IN("\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"", describe(NULL, USM_JSON));
    CHECK_IN("\"\\ufffd\\ufffd\"", describe(NULL, USM_JSON));
    CHECK_IN("\"x\\ufffd\\ufffd\\ufffd\\ufffdy\"", describe(NULL, USM_JSON));
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
}

static void bad_arguments_are_refused(void)
{
    usm_context *ctx     = make_context();
    usm_pool    *pool    = make_pool(ctx, "arena", 0);
    char         text[8] = "before";
    size_t       size    = 77;

    CHECK_INT(usm_pool_describe(pool, USM_TEXT, NULL, 8, &size), USM_E_INVALID);
    CHECK_INT(usm_pool_describe(pool, (usm_text_format)7, text, 8, &size), USM_E_INVALID);
    CHECK_INT(usm_pool_describe((usm_pool *)(void *)ctx, USM_TEXT, text, 8, &size),
              USM_E_INVALID_HANDLE);
    CHECK_INT(size, 77);
    CHECK_STR(text, "before");
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
}

/* --- out of memory ----------------------------------------------------------- */

static const char *log_of_child(void (*fn)(void), const char *level, const char *limit)
{
    static char text[16384];
    const char *path = plain_path("child");

    (void)setenv("USM_LOG", level, 1);
    (void)(limit ? setenv("USM_MEMORY_LIMIT", limit, 1) : unsetenv("USM_MEMORY_LIMIT"));
    CHECK_INT(plain_child(fn, path), 0);
    (void)unsetenv("USM_LOG");
    (void)unsetenv("USM_MEMORY_LIMIT");
    return plain_read(path, text, sizeof text);
}

static void cross_a_limit(void)
{
    usm_context *ctx   = make_context();
    usm_pool    *pool  = make_pool(ctx, "arena", 0);
    usm_pool    *other = make_pool(ctx, "direct", 0);
    void        *p     = usm_pool_malloc(pool, 3 << 20);
    void        *q     = usm_pool_malloc(other, 2 << 20);

    CHECK(p && q);
    CHECK_INT(usm_tag_push("solver"), USM_OK);
    CHECK(usm_pool_malloc(other, 4096) != NULL);
    errno = 0;
    CHECK(usm_pool_malloc(pool, 64 << 20) == NULL);
    CHECK_INT(errno, ENOMEM);
    CHECK_INT(usm_last_status(), USM_E_BUDGET);
    (void)fprintf(stderr, "<%s>\n", usm_last_error());
    CHECK(usm_pool_malloc(pool, 65 << 20) == NULL); /* within the second: no report */
    CHECK_IN("65 MiB of host memory on host:0", usm_last_error());
}

static void a_limit_that_is_crossed_is_reported_with_who_holds_what(void)
{
    const char *log    = log_of_child(cross_a_limit, "info", "host:8M");
    const char *reason = strchr(log, '<');

    CHECK_IN(
        "usm: info: out of memory (USM_E_BUDGET): 64 MiB of host memory on host:0 could not be "
        "allocated: ",
        log);
    CHECK_IN("USM_MEMORY_LIMIT (the arena pool: 3 MiB live, 3 MiB reserved, largest free 0 B)\n",
             log);
    CHECK_IN("  this pool: live 3 MiB in 1 block (peak 3 MiB), reserved 3 MiB (peak 3 MiB)", log);
    CHECK_IN("  other: host pool direct: live 2", log);
    CHECK_IN("  tag solver: live 4 KiB in 1 block, peak 4 KiB", log);
    CHECK_IN("  remedy: USM_MEMORY_LIMIT (usm-exec --limit) allows 8 MiB for host, and 5", log);
    CHECK_INT(occurrences(log, "out of memory"), 1);
    CHECK(reason != NULL);
    CHECK_IN("<64 MiB of host memory on host:0 could not be allocated: ", reason);
    CHECK(strstr(reason, "remedy") == NULL);
}

static void without_info_only_the_story_speaks(void)
{
    const char *log = log_of_child(cross_a_limit, "warn", "host:8M");

    CHECK_IN("<64 MiB of host memory on host:0 could not be allocated: ", log);
    CHECK_INT(occurrences(log, "\n"), 1);
}

static void cross_maximum_size(void)
{
    usm_context *ctx  = make_context();
    usm_pool    *pool = make_pool(ctx, "arena", 2 << 20);

    CHECK(usm_pool_malloc(pool, 1 << 20) != NULL);
    CHECK(usm_pool_aligned_alloc(pool, 4096, 2 << 20) == NULL);
    CHECK_INT(usm_last_status(), USM_E_BUDGET);
    CHECK_IN("2 MiB of host memory on host:0, aligned to 4 KiB could not be allocated",
             usm_last_error());
}

static void maximum_size_is_reported_as_the_pools(void)
{
    const char *log = log_of_child(cross_maximum_size, "info", NULL);

    CHECK_IN("  remedy: the pool may hold 2 MiB: free some, or raise maximum_size in its "
             "descriptor or in USM_POOL",
             log);
    CHECK_IN("  usm_tag_push() around parts of the program", log);
}

/* 24 blocks are 7 MiB and more, every second of which goes. */
static void make_holes(void)
{
    usm_context *ctx  = make_context();
    usm_pool    *pool = make_pool(ctx, "slab", 0);
    void        *p[24];

    for (size_t i = 0; i < 24; i++)
        CHECK((p[i] = usm_pool_malloc(pool, 300 << 10)) != NULL);
    for (size_t i = 0; i < 24; i += 2)
        usm_pool_free(pool, p[i]);
    CHECK(usm_pool_malloc(pool, 2 << 20) == NULL);
    CHECK_INT(usm_last_status(), USM_E_BUDGET);
}

static void holes_are_told_from_a_lack(void)
{
    const char *log = log_of_child(make_holes, "info", "host:8M");

    CHECK_IN("of the pool are free, but not in one piece", log);
    CHECK_IN("  blocks of 320 KiB: live 3.", log);
    CHECK_IN(" in 12 blocks, held ", log);
}

static void waste(void)
{
    usm_context  *ctx  = make_context();
    usm_pool     *pool = make_pool(ctx, "direct", 0), *other = NULL;
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    void         *p;

    desc.name      = "arena";
    desc.area_size = 6 << 20;
    CHECK_INT(usm_pool_create(ctx, NULL, USM_HOST, &desc, &other), USM_OK);
    p = usm_pool_malloc(other, 5 << 20);
    CHECK(p != NULL && usm_pool_malloc(other, 64) != NULL); /* which keeps the area */
    usm_pool_free(other, p);
    CHECK(usm_pool_malloc(pool, 4 << 20) == NULL);
}

static void memory_that_lies_unused_elsewhere_is_pointed_at(void)
{
    const char *log = log_of_child(waste, "info", "host:8M");

    CHECK_IN("  other: host pool arena: live 64 B in 1 block, reserved 6 MiB", log);
    CHECK_IN("  remedy: 6.0 MiB lie unused in other pools, in areas that have live", log);
}

static void fail_with_a_wrong_request(void)
{
    usm_context *ctx  = make_context();
    usm_pool    *pool = make_pool(ctx, "direct", 0);

    CHECK(usm_pool_aligned_alloc(pool, 3, 8) == NULL);
    CHECK_INT(usm_last_status(), USM_E_ALIGNMENT);
    CHECK_IN("alignment 3", usm_last_error());
}

static void a_wrong_request_is_no_lack_of_memory(void)
{
    CHECK_STR(log_of_child(fail_with_a_wrong_request, "info", NULL), "");
}

static const plain_case cases[] = {
    /* First those whose children read the environment: nothing may have started libusm here. */
    CASE(a_limit_that_is_crossed_is_reported_with_who_holds_what),
    CASE(without_info_only_the_story_speaks),
    CASE(maximum_size_is_reported_as_the_pools),
    CASE(holes_are_told_from_a_lack),
    CASE(memory_that_lies_unused_elsewhere_is_pointed_at),
    CASE(a_wrong_request_is_no_lack_of_memory),
    CASE(json_has_the_figures_of_get_stats),
    CASE(a_pool_of_which_nothing_was_asked_has_no_rate),
    CASE(the_reuse_rate_is_the_part_without_the_driver),
    CASE(a_decimal_comma_is_no_json),
    CASE(text_is_for_people),
    CASE(classes_are_those_of_the_pool),
    CASE(a_small_buffer_gets_what_fits),
    CASE(all_pools_come_with_their_tags),
    CASE(any_name_makes_valid_json),
    CASE(bad_arguments_are_refused),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
