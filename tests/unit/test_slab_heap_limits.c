/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the heap of large blocks does when memory is short or calls fail, and what it gives back of
 * its own accord or when it is told to. */
#include "slab_heap_fixture.h"

/* --- memory is short ------------------------------------------------------------------------- */

static void idle_memory_goes_before_a_request_fails(bool by_map)
{
    slab_block *a, *b;

    open_heap(by_map);
    a = get(20 * MIB);
    put(a);
    source.limit = 40 * MIB;
    a            = get(40 * MIB);
    CHECK_INT(stats_now().held, 40 * MIB);
    CHECK_INT(slab_heap_alloc(&heap, 1, 1, &b), USM_E_BUDGET);
    CHECK_STR(usm_last_error(), "the source's own story");
    put(a);
    a = get(10 * MIB);
    put(a);
    close_heap();
}

static void no_more_is_asked_for_than_there_is(void)
{
    slab_block *a, *b;

    open_heap(false);
    a            = get(30 * MIB);
    source.limit = 35 * MIB;
    b            = get(5 * MIB); /* the next area would have 32 MiB */
    CHECK_INT(source.last_size, 5 * MIB);
    put(a);
    put(b);
    close_heap();
}

static void no_more_goes_back_than_a_request_needs(void)
{
    slab_heap_params params = params_for(false);
    slab_block      *b[8];

    params.area_size = 10 * MIB;
    open_with(&params);
    for (size_t i = 0; i < 8; i++)
        b[i] = get(10 * MIB);
    for (size_t i = 0; i < 8; i++)
        put(b[i]);
    source.poke  = NULL; /* it trims */
    source.limit = 80 * MIB;
    b[0]         = get(12 * MIB);
    CHECK_INT(source.gives, 2);
    CHECK_INT(stats_now().held, 72 * MIB);
    put(b[0]);
    close_heap();
}

static void a_short_source_gets_the_run_that_needs_least(void)
{
    slab_block *a, *b, *c, *d, *e;

    open_heap(true);
    a = get(8 * MIB);
    b = get(9 * MIB);
    c = get(3 * MIB);
    d = get(MIB);
    put(a);
    CHECK_INT(slab_heap_trim(&heap, 0), 8 * MIB);
    put(c);
    source.limit =
        source.bytes + 2 * MIB; /* and a piece of c: two, where the lowest run needs three */
    e = get(5 * MIB);
    CHECK_INT(e->span.base, d->span.base + MIB);
    put(b);
    put(d);
    put(e);
    close_heap();
}

static void a_run_that_is_mapped_in_part_is_released(void)
{
    slab_block *b[5], *all = NULL;

    for (uint64_t n = 1; n <= 3; n++) {
        open_heap(true);
        source.poke = NULL;
        for (size_t i = 0; i < 5; i++)
            b[i] = get(i % 2 ? 3 * MIB : 4 * MIB);
        put(b[0]);
        put(b[2]);
        CHECK_INT(slab_heap_trim(&heap, 0), 6 * MIB); /* holes at 0..4 and 8..10 MiB */
        put(b[1]);
        put(b[3]);
        CHECK(usm__fault_arm("source.map", n, true, USM_E_DEVICE)); /* not a matter of memory */
        CHECK_INT(slab_heap_alloc(&heap, 14 * MIB, 1, &all), USM_E_DEVICE);
        usm__fault_disarm_all();
        CHECK_INT(stats_now().held, (12 + 2 * (n - 1)) * MIB);
        put(get(14 * MIB));
        put(b[4]);
        close_heap();
    }
}

static void *trim_all(void *arg)
{
    (void)arg;
    (void)slab_heap_trim(&heap, 0);
    return NULL;
}

static void a_request_waits_for_what_is_on_its_way_back(bool by_map)
{
    pthread_t thread;

    open_heap(by_map);
    put(get(10 * MIB));
    source.limit         = 12 * MIB;
    source.give_delay_ms = 40;
    CHECK(pthread_create(&thread, NULL, trim_all, NULL) == 0);
    module_sleep_ms(20); /* most likely in the middle of it; no matter if not */
    put(get(12 * MIB));
    CHECK(pthread_join(thread, NULL) == 0);
    close_heap();
}

static void each_call_may_fail(bool by_map)
{
    static const char *const points[] = {
        "source.take", "source.map", "source.reserve", "source.pages", "heap.alloc",
        "os.mmap",     "*"};
    static const size_t sizes[] = {5 * MIB, SLAB_PAGE, 70 * MIB, 300 * KIB, 20 * MIB, MIB};
    slab_block         *b[6];

    for (size_t p = 0; p < sizeof(points) / sizeof(*points); p++) {
        for (uint64_t n = 1, fired = 1; fired; n++) {
            open_heap(by_map);
            CHECK(usm__fault_arm(points[p], n, false, USM_OK));
            for (size_t i = 0; i < 6; i++) {
                b[i] = NULL;
                if (!slab_heap_alloc(&heap, sizes[i], 64 * KIB, &b[i]))
                    check_block(b[i], sizes[i], 64 * KIB);
                CHECK(slab_heap_is_valid(&heap, source_pages_get));
                if (i % 2 && b[i - 1]) {
                    put(b[i - 1]);
                    b[i - 1] = NULL;
                }
                if (i == 4)
                    (void)slab_heap_trim(&heap, 0);
            }
            fired = usm__fault_fired();
            usm__fault_disarm_all();
            for (size_t i = 0; i < 6; i++)
                if (b[i])
                    put(b[i]);
            CHECK_INT(stats_now().used, 0);
            put(get(90 * MIB)); /* as if nothing had been */
            close_heap();
        }
    }
}

static void each_growth_may_fail_for_good(bool by_map)
{
    slab_block *b = NULL, *a;

    for (uint64_t n = 1; n < 24; n++) {
        open_heap(by_map);
        a = get(3 * MIB);
        CHECK(usm__fault_arm(by_map ? "source.map" : "source.take", n, true, USM_E_BUDGET));
        if (slab_heap_alloc(&heap, 40 * MIB, 1, &b)) {
            CHECK_STR(usm_last_error(), "the source's own story");
            b = NULL;
        }
        (void)stats_now();
        usm__fault_disarm_all();
        if (b)
            put(b);
        put(a);
        CHECK_INT(stats_now().used, 0);
        close_heap();
    }
}

/* --- giving back ----------------------------------------------------------------------------- */

static void pooling_goes_on_after_a_trim(bool by_map)
{
    slab_block *a, *b;
    size_t      calls;

    open_heap(by_map);
    a = get(10 * MIB);
    b = get(10 * MIB);
    put(b);
    CHECK(slab_heap_trim(&heap, 0) > 0);
    CHECK(stats_now().held < 20 * MIB);
    CHECK_INT(slab_heap_trim(&heap, 0), 0);
    put(get(8 * MIB));
    calls = source_calls();
    for (size_t i = 0; i < 100; i++)
        put(get(8 * MIB));
    CHECK_INT(source_calls(), calls);
    put(a);
    CHECK(slab_heap_trim(&heap, 0) > 0);
    CHECK_INT(stats_now().held, 0);
    put(get(MIB));
    CHECK(stats_now().held > 0);
    close_heap();
}

static void a_trim_keeps_what_it_is_told(bool by_map)
{
    slab_block *b[10];

    open_heap(by_map);
    for (size_t i = 0; i < 10; i++)
        b[i] = get(4 * MIB);
    for (size_t i = 0; i < 10; i++)
        put(b[i]);
    CHECK_INT(slab_heap_trim(&heap, stats_now().held), 0);
    CHECK(slab_heap_trim(&heap, 20 * MIB) > 0);
    CHECK(stats_now().held <= 20 * MIB && stats_now().held > (by_map ? 8 * MIB : 0));
    close_heap();
}

/* In areas or pieces of 2 MiB. */
static void open_to_retain(bool by_map, size_t retain, uint32_t ms)
{
    slab_heap_params params = params_for(by_map);

    params.retain    = retain;
    params.retain_ms = ms;
    params.area_size = 2 * MIB;
    open_with(&params);
}

static void use_and_free_20_mib(void)
{
    slab_block *b[10];

    for (size_t i = 0; i < 10; i++)
        b[i] = get(2 * MIB);
    for (size_t i = 0; i < 10; i++)
        put(b[i]);
}

/* It takes at most two times retain_ms to see that memory lay idle for so long. */
static void idle_memory_goes_after_a_while(bool by_map)
{
    open_to_retain(by_map, 5 * MIB, 20);
    use_and_free_20_mib();
    for (size_t i = 0; i < 2; i++) {
        module_sleep_ms(60);
        put(get(MIB));
    }
    CHECK(stats_now().held >= 6 * MIB && stats_now().held <= 8 * MIB);
    close_heap();
}

static void idle_memory_does_not_go_at_once(bool by_map)
{
    open_to_retain(by_map, 5 * MIB, 600000);
    use_and_free_20_mib();
    put(get(MIB));
    CHECK_INT(stats_now().held, 20 * MIB);
    close_heap();
}

static void idle_memory_stays_when_all_is_retained(bool by_map)
{
    slab_heap_params params = params_for(by_map);
    slab_block      *b;

    params.retain_ms = 1;
    open_with(&params);
    b = get(500 * MIB);
    put(b);
    module_sleep_ms(20);
    put(get(MIB));
    module_sleep_ms(20);
    put(get(MIB));
    CHECK(stats_now().held >= 500 * MIB);
    CHECK_INT(source.gives + source.unmaps, 0);
    close_heap();
}

static void memory_in_use_now_and_then_is_not_idle(bool by_map)
{
    slab_heap_params params = params_for(by_map);
    size_t           calls;

    params.retain    = MIB;
    params.retain_ms = 60;
    open_with(&params);
    put(get(100 * MIB));
    calls = source_calls();
    for (size_t i = 0; i < 20; i++) {
        put(get(100 * MIB));
        module_sleep_ms(10);
    }
    CHECK_INT(source_calls(), calls);
    close_heap();
}

static void sizes_that_grow_leave_only_what_is_retained(void)
{
    slab_heap_params params = params_for(false);

    params.retain = 1;
    open_with(&params);
    for (size_t i = 0; i < 20; i++)
        put(get((100 + i * 10) * MIB));
    CHECK_INT(stats_now().held, 390 * MIB); /* the first is what is kept of idle memory */
    close_heap();
}

/* --- the cases ------------------------------------------------------------------------------- */

BOTH(idle_memory_goes_before_a_request_fails)
BOTH(a_request_waits_for_what_is_on_its_way_back)
BOTH(each_call_may_fail)
BOTH(each_growth_may_fail_for_good)
BOTH(pooling_goes_on_after_a_trim)
BOTH(a_trim_keeps_what_it_is_told)
BOTH(idle_memory_goes_after_a_while)
BOTH(idle_memory_does_not_go_at_once)
BOTH(idle_memory_stays_when_all_is_retained)
BOTH(memory_in_use_now_and_then_is_not_idle)

static const plain_case cases[] = {
    BOTH_CASES(idle_memory_goes_before_a_request_fails),
    CASE(no_more_is_asked_for_than_there_is),
    CASE(no_more_goes_back_than_a_request_needs),
    CASE(a_short_source_gets_the_run_that_needs_least),
    CASE(a_run_that_is_mapped_in_part_is_released),
    BOTH_CASES(a_request_waits_for_what_is_on_its_way_back),
    BOTH_CASES(each_call_may_fail),
    BOTH_CASES(each_growth_may_fail_for_good),
    BOTH_CASES(pooling_goes_on_after_a_trim),
    BOTH_CASES(a_trim_keeps_what_it_is_told),
    BOTH_CASES(idle_memory_goes_after_a_while),
    BOTH_CASES(idle_memory_does_not_go_at_once),
    BOTH_CASES(idle_memory_stays_when_all_is_retained),
    BOTH_CASES(memory_in_use_now_and_then_is_not_idle),
    CASE(sizes_that_grow_leave_only_what_is_retained),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
