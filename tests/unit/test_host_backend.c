/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the host backend promises to the core (usm/backend.h): the device, memory, copies, guard
 * mode, and that each failure is survived.  Order and events are in test_host_queue.c, kernels in
 * test_host_kernels.c. */
#include "host_fixture.h"

/* --- the device and its memory --------------------------------------------------------------- */

static void the_device_tells_what_it_can(void)
{
    usm_backend_device d     = {.handle = NULL};
    uint64_t           total = 0, left = 0;
    size_t             count = 0;
    bool               can   = false;

    module_start();
    be = usm_host_backend_entry(&module_api);
    CHECK_INT(be->devices(NULL, 0, &count), USM_OK);
    CHECK_INT(count, 1);
    CHECK_INT(be->devices(&d, 1, &count), USM_OK);
    CHECK_STR(d.platform_name, "host");
    CHECK(d.name[0] != 0 && d.type == USM_DEVICE_TYPE_CPU && d.compute_units > 0);
    CHECK(d.memory_size > 1 << 20 && d.max_align == USM_MAX_ALIGNMENT);
    CHECK(d.aspects >> USM_ASPECT_USM_SYSTEM_ALLOCATIONS & 1);
    CHECK(d.aspects >> USM_ASPECT_IMAGE_NATIVE & 1);
    CHECK(!(d.aspects >> USM_ASPECT_PARTITION & 1));
    CHECK_INT(be->device_memory(d.handle, &total, &left), USM_OK);
    CHECK(total == d.memory_size && left <= total && left > 0);
    CHECK_INT(be->can_access_peer(d.handle, d.handle, &can), USM_OK);
    CHECK(can);
}

static void memory_is_zeroed_aligned_and_given_back(void)
{
    static const size_t sizes[] = {1, 4096, 4097, 3 << 20};

    begin();
    for (size_t align = 1; align <= USM_MAX_ALIGNMENT; align *= 2)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            void *p = NULL;
            char *bytes;

            CHECK_INT(be->mem_alloc(ctx, NULL, USM_SHARED, sizes[i], align, &p), USM_OK);
            CHECK_INT((uintptr_t)p % align, 0);
            bytes = p;
            CHECK(bytes[0] == 0 && bytes[sizes[i] - 1] == 0);
            bytes[0] = bytes[sizes[i] - 1] = 1;
            CHECK_INT(be->mem_free(ctx, USM_SHARED, p, sizes[i]), USM_OK);
            CHECK_INT(module.mapped, 0);
        }
    end();
}

static void more_than_there_is_is_no_memory(void)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, (size_t)1 << 60, (size_t)1 << 46};

    for (int guard = 0; guard < 2; guard++) {
        begin_with(guard, 0);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            void *p = &module;

            CHECK_INT(be->mem_alloc(ctx, NULL, USM_DEVICE, sizes[i], 2 << 20, &p), USM_E_NO_MEMORY);
            CHECK(p == &module);
        }
        end();
    }
}

static void in_child_memory_works(void)
{
    void *p = NULL, *own = NULL;

    CHECK_INT(be->mem_alloc(ctx, NULL, USM_HOST, 100, 64, &p), USM_OK);
    memset(p, 1, 100);
    CHECK_INT(be->mem_free(ctx, USM_HOST, p, 100), USM_OK);
    CHECK_INT(be->mem_alloc(ctx, NULL, USM_DEVICE, 100, 64, &p), USM_OK);
    CHECK_INT(be->mem_free(ctx, USM_DEVICE, p, 100), USM_OK);
    CHECK_INT(be->context_create(0, NULL, &own), USM_OK); /* no lock stayed taken */
    be->context_destroy(own);
}

struct hold {
    void (*lock)(void), (*unlock)(void);
    atomic_bool locked, done;
};

static void hold_lock(void *arg)
{
    struct hold *h = arg;

    h->lock();
    h->locked = true;
    module_sleep_ms(20); /* the other thread forks meanwhile */
    h->unlock();
    h->done = true;
}

static void a_child_finds_no_lock_taken(void)
{
    struct hold holds[] = {{usm__host_graph_lock, usm__host_graph_unlock, false, false},
                           {usm__host_guard_lock, usm__host_guard_unlock, false, false}};

    begin_with(true, 0);
    for (size_t i = 0; i < 2; i++) {
        CHECK_INT(module_thread_start(hold_lock, &holds[i], "holds-lock"), 0);
        while (!holds[i].locked)
            module_sleep_ms(1);
        CHECK_INT(plain_child(in_child_memory_works, NULL), 0);
        while (!holds[i].done)
            module_sleep_ms(1);
    }
    end();
}

static void a_childs_memory_works_and_the_parents_work_goes_on(void)
{
    void *gate, *ev;

    begin_with(true, 0);
    gate = user_event();
    ev   = note_after(1, &gate, 1);
    CHECK_INT(plain_child(in_child_memory_works, NULL), 0);
    signal_event(gate, USM_OK);
    CHECK_INT(be->event_wait(ev), USM_OK);
    release2(gate, ev);
    end();
}

static void *wait_for(void *ev)
{
    CHECK_INT(be->event_wait(ev), USM_OK);
    return NULL;
}

static void *inherited;

static void in_child_release(void)
{
    release(inherited);
    be->queue_destroy(queue);
}

static void a_child_can_release_what_the_parent_waits_for(void)
{
    pthread_t other;

    begin();
    inherited = user_event();
    CHECK(pthread_create(&other, NULL, wait_for, inherited) == 0);
    module_sleep_ms(20); /* into its wait */
    CHECK_INT(plain_child(in_child_release, NULL), 0);
    signal_event(inherited, USM_OK);
    CHECK(pthread_join(other, NULL) == 0);
    release(inherited);
    end();
}

/* --- copies and fills ------------------------------------------------------------------------ */

static char pattern_at(size_t i)
{
    return (char)(i * 7 + i / 251);
}

static void copies_move_every_byte_of_any_size(void)
{
    static const size_t sizes[] = {1, 15, 4096, 12345, 9 << 20, (64 << 20) + 3};

    begin();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t n   = sizes[i];
        char  *src = malloc(n + 1), *dst = malloc(n + 1);

        CHECK(src && dst);
        for (size_t k = 0; k <= n; k++)
            src[k] = pattern_at(k), dst[k] = 0;
        src[n] = 1;
        CHECK_INT(be->copy(queue, dst, src, n, 0, NULL, NULL), USM_OK);
        CHECK_INT(be->queue_wait(queue), USM_OK);
        CHECK(memcmp(dst, src, n) == 0 && dst[n] == 0);
        free(src);
        free(dst);
    }
    end();
}

static void copies_of_rows_leave_what_lies_between(void)
{
    enum { W = 3001, H = 7001, DP = 3010, SP = 3005 }; /* long enough to be shared out */
    char *src = malloc((size_t)SP * H), *dst = calloc(H, DP);

    begin();
    CHECK(src && dst);
    memset(src, 5, (size_t)SP * H);
    CHECK_INT(be->copy_2d(queue, dst, DP, src, SP, W, H, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    for (size_t y = 0; y < H; y++)
        for (size_t x = 0; x < DP; x++)
            if (dst[y * DP + x] != (x < W ? 5 : 0))
                plain_fail(__FILE__, __LINE__, "a byte of the rows is wrong");
    free(src);
    free(dst);
    end();
}

static void fills_repeat_patterns_of_any_size(void)
{
    static const size_t patterns[] = {1, 2, 3, 4, 12, 16, 100, 70000};
    static const size_t counts[]   = {1, 2, 1000, 100003};
    char                pattern[70000];

    begin();
    for (size_t k = 0; k < sizeof(pattern); k++)
        pattern[k] = pattern_at(k + 1);
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
        for (size_t j = 0; j < sizeof(counts) / sizeof(counts[0]); j++) {
            size_t ps = patterns[i], n = ps * (ps > 100 ? counts[j] % 1009 : counts[j]);
            char  *dst = calloc(1, n + 1);

            CHECK(dst != NULL);
            CHECK_INT(be->fill(queue, dst, pattern, ps, n, 0, NULL, NULL), USM_OK);
            CHECK_INT(be->queue_wait(queue), USM_OK);
            CHECK(memcmp(dst, pattern, ps) == 0 && memcmp(dst, dst + ps, n - ps) == 0);
            CHECK(dst[n] == 0);
            free(dst);
        }
    end();
}

static void a_pattern_is_needed_only_for_the_call(void)
{
    char  pattern[3] = "ab", dst[9] = {0};
    void *gate;

    begin();
    gate = user_event();
    CHECK_INT(be->fill(queue, dst, pattern, 3, 9, 1, &gate, NULL), USM_OK);
    memset(pattern, 'x', 3);
    signal_event(gate, USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    CHECK(memcmp(dst, "ab\0ab\0ab", 9) == 0);
    release(gate);
    end();
}

/* --- guard mode ------------------------------------------------------------------------------ */

static char *device_memory;

static void read_device_memory(void)
{
    (void)signal(SIGSEGV, SIG_DFL); /* not a sanitizer's report */
    printf("%d", *(volatile char *)device_memory);
}

static void write_device_memory(void)
{
    (void)signal(SIGSEGV, SIG_DFL);
    *(volatile char *)device_memory = 1;
}

static void the_host_may_not_touch_it(void)
{
    int read  = plain_child(read_device_memory, NULL),
        write = plain_child(write_device_memory, NULL);

    CHECK(WIFSIGNALED(read) && WTERMSIG(read) == SIGSEGV);
    CHECK(WIFSIGNALED(write) && WTERMSIG(write) == SIGSEGV);
}

static void guarded_memory_is_for_commands_only(void)
{
    const size_t size = 10 << 20;
    char        *back = calloc(1, size), *rows = calloc(1, size);
    void        *p = NULL;

    begin_with(true, 0);
    CHECK(back && rows);
    CHECK_INT(be->mem_alloc(ctx, NULL, USM_DEVICE, size, 2 << 20, &p), USM_OK);
    CHECK_INT((uintptr_t)p % (2 << 20), 0);
    device_memory = p;
    the_host_may_not_touch_it();
    CHECK_INT(be->fill(queue, p, "abc", 3, size / 3 * 3, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->copy(queue, device_memory + 1, "xyz", 3, 0, NULL, NULL), USM_OK); /* inside */
    CHECK_INT(be->copy(queue, back, p, size, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->copy_2d(queue, rows, 6, p, 3, 3, 5, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->copy(queue, device_memory + 30, device_memory, 9, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    CHECK(memcmp(back, "axyzbcabc", 9) == 0 && memcmp(rows + 6, "zbc", 3) == 0);
    the_host_may_not_touch_it();
    CHECK_INT(be->mem_free(ctx, USM_DEVICE, p, size), USM_OK);
    CHECK_INT(module.mapped, 0);
    free(back);
    free(rows);
    end();
}

static void only_device_memory_is_guarded(void)
{
    void *p = NULL;

    begin_with(true, 0);
    CHECK_INT(be->mem_alloc(ctx, NULL, USM_SHARED, 100, 64, &p), USM_OK);
    memset(p, 1, 100);
    CHECK_INT(be->mem_free(ctx, USM_SHARED, p, 100), USM_OK);
    CHECK_INT(be->mem_alloc(ctx, NULL, USM_HOST, 100, 64, &p), USM_OK);
    memset(p, 1, 100);
    CHECK_INT(be->mem_free(ctx, USM_HOST, p, 100), USM_OK);
    end();
}

/* --- failures everywhere --------------------------------------------------------------------- */

static void told_nothing(void *arg, usm_status status)
{
    (void)arg;
    (void)status;
}

/* Each step may be refused; what was accepted is waited for and given back. */
static bool scenario_passes(bool guard)
{
    void      *c = NULL, *q = NULL, *p = NULL, *gate = NULL, *ev = NULL;
    char       from[100] = {1}, to[100];
    usm_status failure;

    module.guard = guard;
    if ((failure = be->context_create(0, NULL, &c)))
        goto out;
    if ((failure = be->queue_create(c, NULL, USM_QUEUE_OUT_OF_ORDER, &q)))
        goto out;
    if ((failure = be->mem_alloc(c, NULL, USM_DEVICE, 100, 64 << 10, &p)))
        goto out;
    if ((failure = be->event_create_user(c, &gate)))
        goto out;
    if ((failure = be->copy(q, p, from, 100, 1, &gate, NULL)))
        goto out;
    if ((failure = be->barrier(q, 0, NULL, NULL)))
        goto out;
    if ((failure = be->copy(q, to, p, 100, 0, NULL, &ev)))
        goto out;
    if ((failure = be->event_notify(ev, told_nothing, NULL)))
        goto out;
    if ((failure = be->fill(q, from, "ab", 2, 100, 1, &ev, NULL)))
        goto out;
    CHECK_INT(be->event_signal(gate, USM_OK), USM_OK);
    CHECK_INT(be->event_wait(ev), USM_OK);
    CHECK_INT(to[0], 1);
out:
    if (failure) {
        CHECK(failure == USM_E_NO_MEMORY || failure == USM_E_SYSTEM);
        CHECK(usm_last_error()[0] != 0);
    }
    if (gate && failure)
        CHECK_INT(be->event_signal(gate, USM_E_DEVICE), USM_OK);
    if (q)
        (void)be->queue_wait(q);
    usm__fault_disarm_all(); /* giving back is not what is tried here */
    if (p)
        CHECK_INT(be->mem_free(c, USM_DEVICE, p, 100), USM_OK);
    if (gate)
        release(gate);
    if (ev)
        release(ev);
    if (q)
        be->queue_destroy(q);
    if (c)
        be->context_destroy(c);
    module_clean();
    return failure == USM_OK;
}

static uint64_t sweep(const char *point, bool guard, bool onwards)
{
    for (uint64_t n = 1;; n++) {
        bool     passed;
        uint64_t fired;

        module_start();
        CHECK(usm__fault_arm(point, n, onwards, USM_OK));
        passed = scenario_passes(guard);
        fired  = usm__fault_fired();
        if (!fired) {
            CHECK(passed);
            return n - 1;
        }
    }
}

static void each_failure_is_survived(void)
{
    be = usm_host_backend_entry(&module_api);
    CHECK(sweep("*", false, false) >= 10);
    CHECK(sweep("*", true, false) >= 15);
    /* All from the n-th on.  Not os.munmap: then nothing could be given back. */
    CHECK(sweep("heap.alloc", true, true) >= 8);
    CHECK(sweep("os.mmap", true, true) >= 3);
    CHECK(sweep("os.memfd", true, true) >= 1);
    CHECK(sweep("os.thread", true, true) >= 1);
}

static void guarded_memory_that_cannot_be_unmapped_stays(void)
{
    char  back = 0;
    void *p    = NULL;

    begin_with(true, 0);
    for (uint64_t n = 1; n <= 2; n++) {
        CHECK_INT(be->mem_alloc(ctx, NULL, USM_DEVICE, 100, 64, &p), USM_OK);
        CHECK(usm__fault_arm("os.munmap", n, false, USM_OK));
        CHECK_INT(be->mem_free(ctx, USM_DEVICE, p, 100), USM_E_NO_MEMORY);
        CHECK_INT(be->mem_free(ctx, USM_DEVICE, p, 100), USM_OK); /* tried again */
        usm__fault_disarm_all();
    }
    CHECK_INT(be->copy(queue, &back, "a", 1, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    end();
}

static const plain_case cases[] = {
    CASE(the_device_tells_what_it_can),
    CASE(memory_is_zeroed_aligned_and_given_back),
    CASE(more_than_there_is_is_no_memory),
    CASE(a_child_finds_no_lock_taken),
    CASE(a_childs_memory_works_and_the_parents_work_goes_on),
    CASE(a_child_can_release_what_the_parent_waits_for),
    CASE(copies_move_every_byte_of_any_size),
    CASE(copies_of_rows_leave_what_lies_between),
    CASE(fills_repeat_patterns_of_any_size),
    CASE(a_pattern_is_needed_only_for_the_call),
    CASE(guarded_memory_is_for_commands_only),
    CASE(only_device_memory_is_guarded),
    CASE(each_failure_is_survived),
    CASE(guarded_memory_that_cannot_be_unmapped_stays),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
