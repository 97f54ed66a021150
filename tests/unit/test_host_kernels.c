/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Native kernels of the host backend: tables, ranges, arguments, local memory, guard mode. */
#include "host_fixture.h"

/* --- programs -------------------------------------------------------------------------------- */

static void nothing_fn(const usm_range *range, void *const *args)
{
    (void)range;
    (void)args;
}

static const usm_arg_kind two_kinds[] = {USM_ARG_POINTER, USM_ARG_LOCAL};

static usm_status build(usm_image_type type, const void *data, size_t size, void **program)
{
    const usm_image image = {type, data, size};

    return be->program_build(ctx, NULL, &image, "-DX", NULL, program);
}

static void only_whole_native_tables_build(void)
{
    static const usm_native_kernel nameless[]     = {{"a", nothing_fn, 0, NULL},
                                                     {NULL, nothing_fn, 0, NULL}};
    static const usm_native_kernel emptily[]      = {{"", nothing_fn, 0, NULL}};
    static const usm_native_kernel functionless[] = {{"a", NULL, 0, NULL}};
    void                          *program        = &module;

    begin();
    CHECK_INT(build(USM_IMAGE_SPIRV, "xx", 2, &program), USM_E_NO_IMAGE);
    CHECK_IN("native", usm_last_error());
    CHECK_INT(build(USM_IMAGE_OPENCL_C, "xx", 2, &program), USM_E_NO_IMAGE);
    CHECK_INT(build(USM_IMAGE_BINARY, "xx", 2, &program), USM_E_NO_IMAGE);
    CHECK_INT(build(USM_IMAGE_NATIVE, note_table, sizeof(note_table) - 1, &program), USM_E_INVALID);
    CHECK_INT(build(USM_IMAGE_NATIVE, note_table, 0, &program), USM_E_INVALID);
    CHECK_INT(build(USM_IMAGE_NATIVE, NULL, sizeof(note_table), &program), USM_E_INVALID);
    CHECK_INT(build(USM_IMAGE_NATIVE, nameless, sizeof(nameless), &program), USM_E_INVALID);
    CHECK_IN("entry 1", usm_last_error());
    CHECK_INT(build(USM_IMAGE_NATIVE, emptily, sizeof(emptily), &program), USM_E_INVALID);
    CHECK_INT(build(USM_IMAGE_NATIVE, functionless, sizeof(functionless), &program), USM_E_INVALID);
    CHECK(program == &module);
    end();
}

static void a_program_tells_its_kernels(void)
{
    static const usm_native_kernel table[] = {{"first", nothing_fn, 0, NULL},
                                              {"second", nothing_fn, 2, two_kinds},
                                              {"third", nothing_fn, 3, NULL}};
    void                          *program = NULL, *kernel = &module, *data = NULL;
    char                          *names    = NULL;
    size_t                         nargs    = 0, size;
    usm_arg_kind                   kinds[3] = {USM_ARG_VALUE, USM_ARG_VALUE, USM_ARG_VALUE};

    begin();
    CHECK_INT(build(USM_IMAGE_NATIVE, table, sizeof(table), &program), USM_OK);
    CHECK_INT(be->program_kernels(program, &names), USM_OK);
    CHECK_STR(names, "first;second;third");
    module_heap_free(names);
    CHECK_INT(be->program_binary(program, &data, &size), USM_E_NOT_SUPPORTED);
    CHECK_INT(be->kernel_create(program, "firs", &kernel), USM_E_NO_KERNEL);
    CHECK_IN("firs", usm_last_error());
    CHECK(kernel == &module);
    CHECK_INT(be->kernel_create(program, "second", &kernel), USM_OK);
    CHECK_INT(be->kernel_info(kernel, &nargs, kinds, 1), USM_OK);
    CHECK_INT(nargs, 2);
    CHECK(kinds[0] == USM_ARG_POINTER && kinds[1] == USM_ARG_VALUE); /* no more than asked for */
    CHECK_INT(be->kernel_info(kernel, &nargs, kinds, 3), USM_OK);
    CHECK_INT(kinds[1], USM_ARG_LOCAL);
    be->kernel_destroy(kernel);
    CHECK_INT(be->kernel_create(program, "third", &kernel), USM_OK);
    CHECK_INT(be->kernel_info(kernel, &nargs, kinds, 3), USM_OK);
    CHECK(nargs == 3 && kinds[0] == USM_ARG_NONE && kinds[2] == USM_ARG_NONE);
    be->kernel_destroy(kernel);
    be->program_destroy(program);
    end();
}

/* --- ranges ---------------------------------------------------------------------------------- */

/* Counts each work-item in args[0], and ranges in args[1]; notes what is wrong in args[2]. */
static void cover_fn(const usm_range *r, void *const *args)
{
    atomic_uchar *seen   = *(atomic_uchar **)args[0];
    atomic_int   *ranges = *(atomic_int **)args[1];
    atomic_int   *wrong  = *(atomic_int **)args[2];

    atomic_fetch_add(ranges, 1);
    for (int d = 0; d < 3; d++) {
        size_t l = r->local[d] ? r->local[d] : 1;

        if (r->begin[d] >= r->end[d] || r->begin[d] < r->offset[d] ||
            r->end[d] > r->offset[d] + r->global[d] || (r->begin[d] - r->offset[d]) % l ||
            (r->end[d] - r->offset[d]) % l)
            atomic_fetch_add(wrong, 1);
    }
    for (size_t z = r->begin[2]; z < r->end[2]; z++)
        for (size_t y = r->begin[1]; y < r->end[1]; y++)
            for (size_t x = r->begin[0]; x < r->end[0]; x++)
                atomic_fetch_add(
                    &seen[((z - r->offset[2]) * r->global[1] + y - r->offset[1]) * r->global[0] +
                          x - r->offset[0]],
                    1);
}

static const usm_native_kernel cover_table[] = {{"cover", cover_fn, 3, NULL}};

static void *kernel_of(const usm_native_kernel *table)
{
    void *program = NULL, *kernel = NULL;

    CHECK_INT(build(USM_IMAGE_NATIVE, table, sizeof(*table), &program), USM_OK);
    CHECK_INT(be->kernel_create(program, table->name, &kernel), USM_OK);
    be->program_destroy(program); /* kernels do not need it */
    return kernel;
}

/* Launches and waits; how many ranges there were. */
static int cover(const usm_launch *form)
{
    static atomic_uchar seen[200000];
    static atomic_int   ranges, wrong;
    usm_launch          launch = *form;
    size_t              n      = 1;
    void               *kernel = kernel_of(cover_table);
    const usm_arg       args[] = {USM_ARG_PTR(seen), USM_ARG_PTR(&ranges), USM_ARG_PTR(&wrong)};

    for (uint32_t d = 0; d < launch.dims; d++)
        n *= launch.global[d];
    CHECK(n < sizeof(seen));
    for (size_t i = 0; i <= n; i++)
        seen[i] = 0;
    ranges       = 0;
    launch.nargs = 3;
    launch.args  = args;
    CHECK_INT(be->launch(queue, kernel, &launch, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    be->kernel_destroy(kernel);
    CHECK_INT(wrong, 0);
    for (size_t i = 0; i < n; i++)
        CHECK_INT(seen[i], 1);
    CHECK_INT(seen[n], 0);
    return ranges;
}

static void ranges_cover_each_item_once(void)
{
    static const size_t globals[][3] = {{1, 1, 1},     {7, 1, 1},    {100003, 1, 1}, {1, 13, 1},
                                        {317, 211, 1}, {37, 41, 43}, {1, 1, 97},     {100, 1, 1},
                                        {1000, 2, 1},  {64, 64, 31}};

    begin();
    for (size_t i = 0; i < sizeof(globals) / sizeof(globals[0]); i++)
        for (uint32_t dims = 1; dims <= 3; dims++) {
            usm_launch launch = USM_LAUNCH_INIT;

            launch.dims = dims;
            for (uint32_t d = 0; d < 3; d++) {
                launch.global[d] = globals[i][d];
                launch.offset[d] = (size_t)1000 * (d + 1); /* ignored in unused dimensions */
            }
            CHECK(cover(&launch) >= 1);
        }
    end();
}

static void ranges_are_whole_work_groups(void)
{
    usm_launch launch = USM_LAUNCH_INIT;

    begin();
    launch.dims      = 2;
    launch.global[0] = 48;
    launch.global[1] = 350;
    launch.local[0]  = 16;
    launch.local[1]  = 7; /* cover_fn checks */
    launch.offset[1] = 5;
    CHECK_INT(cover(&launch), 4 * (int)usm__host.workers);
    launch.local[1] = 350; /* one group high: cut the other way */
    CHECK_INT(cover(&launch), 3);
    launch.local[0] = 48; /* one group in all */
    CHECK_INT(cover(&launch), 1);
    end();
}

static void workers_share_a_launch(void)
{
    usm_launch launch = USM_LAUNCH_INIT;

    begin();
    usm__host.workers = 4;
    launch.global[0]  = 15; /* one item each */
    CHECK_INT(cover(&launch), 15);
    launch.global[0] = 1000;
    CHECK_INT(cover(&launch), 16);
    end();
}

static pthread_barrier_t both_are_here;

static void meet_fn(const usm_range *range, void *const *args)
{
    (void)range;
    (void)args;
    (void)pthread_barrier_wait(&both_are_here);
}

static void parts_run_at_the_same_time(void)
{
    static const usm_native_kernel table[] = {{"meet", meet_fn, 0, NULL}};
    usm_launch                     launch  = USM_LAUNCH_INIT;
    void                          *kernel;

    begin();
    CHECK(usm__host.workers >= 2); /* also on one processor */
    CHECK(pthread_barrier_init(&both_are_here, NULL, 2) == 0);
    kernel           = kernel_of(table);
    launch.global[0] = 2;
    CHECK_INT(be->launch(queue, kernel, &launch, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK); /* one worker alone would never come back */
    (void)pthread_barrier_destroy(&both_are_here);
    be->kernel_destroy(kernel);
    end();
}

static void empty_ranges_complete_in_their_turn(void)
{
    usm_launch launch = USM_LAUNCH_INIT;
    void      *gate, *ev = NULL;
    long       value = 1;
    usm_arg    arg   = {USM_ARG_VALUE, sizeof(value), &value};

    begin();
    gate             = user_event();
    launch.dims      = 3;
    launch.global[1] = 0;
    launch.nargs     = 1;
    launch.args      = &arg;
    CHECK_INT(be->launch(queue, noted.kernel, &launch, 1, &gate, &ev), USM_OK);
    stays_unready(ev);
    signal_event(gate, USM_OK);
    CHECK_INT(be->event_wait(ev), USM_OK);
    CHECK_INT(notes(), 0);
    release2(gate, ev);
    end();
}

/* --- arguments ------------------------------------------------------------------------------- */

struct wide {
    char bytes[100];
};

static atomic_int misaligned;
static char       args_seen[128];

static void args_fn(const usm_range *range, void *const *args)
{
    (void)range;
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)args[i] % 64)
            atomic_fetch_add(&misaligned, 1);
    (void)snprintf(args_seen, sizeof(args_seen), "%d %s %c %s", *(int *)args[0],
                   ((struct wide *)args[1])->bytes, *(char *)args[2],
                   *(void **)args[3] ? *(char **)args[3] : "null");
}

static void arguments_are_copied_and_aligned(void)
{
    static const usm_native_kernel table[] = {{"args", args_fn, 4, NULL}};
    int                            n       = 42;
    struct wide                    w       = {"wide"};
    char                           c = 'c', text[] = "text";
    usm_arg    args[] = {USM_ARG_REF(n), USM_ARG_REF(w), USM_ARG_REF(c), USM_ARG_PTR(text)};
    usm_launch launch = USM_LAUNCH_INIT;
    void      *gate, *kernel;

    begin();
    misaligned   = 0;
    gate         = user_event();
    kernel       = kernel_of(table);
    launch.nargs = 4;
    launch.args  = args;
    CHECK_INT(be->launch(queue, kernel, &launch, 1, &gate, NULL), USM_OK);
    n = 0;
    c = 0;
    memset(&w, 0, sizeof(w));
    memset(args, 0, sizeof(args));
    be->kernel_destroy(kernel); /* launches in flight go on */
    signal_event(gate, USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    CHECK_STR(args_seen, "42 wide c text");
    CHECK_INT(misaligned, 0);
    release(gate);
    end();
}

static void pointers_may_be_null(void)
{
    static const usm_native_kernel table[] = {{"args", args_fn, 4, NULL}};
    int                            n       = 1;
    struct wide                    w       = {""};
    char                           c       = 'x';
    const usm_arg args[] = {USM_ARG_VAL(n), USM_ARG_VAL(w), USM_ARG_VAL(c), USM_ARG_PTR(NULL)};
    usm_launch    launch = USM_LAUNCH_INIT;
    void         *kernel;

    begin();
    kernel       = kernel_of(table);
    launch.nargs = 4;
    launch.args  = args;
    CHECK_INT(be->launch(queue, kernel, &launch, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    CHECK_STR(args_seen, "1  x null");
    be->kernel_destroy(kernel);
    end();
}

static atomic_int local_calls;

/* Fills both blocks with a number of its own, and finds it there a moment later. */
static void local_fn(const usm_range *range, void *const *args)
{
    atomic_int *wrong = *(atomic_int **)args[0];
    size_t     *a     = args[1];
    size_t     *b     = args[2];
    size_t      mine  = range->begin[0] + 1;

    atomic_fetch_add(&local_calls, 1);
    if ((uintptr_t)a % 64 || (uintptr_t)b % 64)
        atomic_fetch_add(wrong, 1);
    for (size_t i = 0; i < 100; i++)
        a[i] = mine;
    for (size_t i = 0; i < 3; i++)
        b[i] = mine + 1;
    module_sleep_ms(1);
    for (size_t i = 0; i < 100; i++)
        if (a[i] != mine || b[i % 3] != mine + 1)
            atomic_fetch_add(wrong, 1);
}

static const usm_native_kernel local_table[] = {{"local", local_fn, 3, NULL}};

static void local_memory_belongs_to_one_range(void)
{
    static atomic_int wrong;
    const usm_arg     args[] = {USM_ARG_PTR(&wrong), USM_ARG_SCRATCH(100 * sizeof(size_t)),
                                USM_ARG_SCRATCH(3 * sizeof(size_t))};
    usm_launch        launch = USM_LAUNCH_INIT;
    void             *kernel;

    begin();
    usm__host.workers = 4;
    kernel            = kernel_of(local_table);
    launch.global[0]  = 64;
    launch.local[0]   = 4;
    launch.nargs      = 3;
    launch.args       = args;
    CHECK_INT(be->launch(queue, kernel, &launch, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    CHECK_INT(wrong, 0);
    be->kernel_destroy(kernel);
    end();
}

static void local_memory_needs_a_local_size(void)
{
    const usm_arg args[] = {USM_ARG_PTR(NULL), USM_ARG_SCRATCH(8), USM_ARG_SCRATCH(8)};
    usm_launch    launch = USM_LAUNCH_INIT;
    void         *kernel, *ev = &module;

    begin();
    kernel       = kernel_of(local_table);
    launch.nargs = 3;
    launch.args  = args;
    CHECK_INT(be->launch(queue, kernel, &launch, 0, NULL, &ev), USM_E_ARGUMENTS);
    CHECK_IN("local size", usm_last_error());
    CHECK(ev == &module);
    be->kernel_destroy(kernel);
    end();
}

static void a_launch_without_local_memory_to_be_had_fails(void)
{
    static atomic_int wrong;
    const usm_arg     args[] = {USM_ARG_PTR(&wrong),
                                USM_ARG_SCRATCH((size_t)64 << 10), /* not kept for the next share */
                                USM_ARG_SCRATCH(3 * sizeof(size_t))};
    usm_launch        launch = USM_LAUNCH_INIT;
    void             *gate, *kernel, *ev = NULL;

    begin();
    release(note_after(1, NULL, 0));
    CHECK_INT(be->queue_wait(queue), USM_OK);
    CHECK(usm__fault_arm("os.thread", 1, true, USM_OK)); /* so one worker has all shares */
    local_calls      = 0;
    gate             = user_event();
    kernel           = kernel_of(local_table);
    launch.global[0] = 64;
    launch.local[0]  = 1;
    launch.nargs     = 3;
    launch.args      = args;
    CHECK_INT(be->launch(queue, kernel, &launch, 1, &gate, &ev), USM_OK);
    CHECK(usm__fault_arm("heap.alloc", 3, false, USM_OK)); /* the third share's */
    signal_event(gate, USM_OK);
    CHECK_INT(be->event_wait(ev), USM_E_NO_MEMORY);
    usm__fault_disarm_all();
    /* Those behind it were not begun; a second worker may have been in one already. */
    CHECK(local_calls == 2 || local_calls == 3);
    CHECK_INT(wrong, 0);
    be->kernel_destroy(kernel);
    release2(gate, ev);
    end();
}

/* --- guard mode ------------------------------------------------------------------------------ */

static char       *device_memory;
static atomic_bool inside, may_go;

static void touch_fn(const usm_range *range, void *const *args)
{
    char *p = *(char **)args[0];

    for (size_t i = range->begin[0]; i < range->end[0]; i++)
        p[i] = (char)(p[i] + 1);
}

static void linger_fn(const usm_range *range, void *const *args)
{
    (void)range;
    (void)args;
    inside = true;
    while (!may_go)
        module_sleep_ms(1);
}

static void touch_from_the_host(void)
{
    (void)signal(SIGSEGV, SIG_DFL); /* not a sanitizer's report */
    *(volatile char *)device_memory = 1;
}

static bool is_closed(void)
{
    int status = plain_child(touch_from_the_host, NULL);

    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static void guarded_memory_is_open_while_kernels_run(void)
{
    static const usm_native_kernel touch[]  = {{"touch", touch_fn, 1, NULL}};
    static const usm_native_kernel linger[] = {{"linger", linger_fn, 0, NULL}};
    usm_launch                     launch   = USM_LAUNCH_INIT;
    char                          *back     = calloc(1, 5000);
    void                          *k1, *k2, *p = NULL, *late = NULL;

    begin_with(true, USM_QUEUE_OUT_OF_ORDER);
    inside = may_go = false;
    k1              = kernel_of(touch);
    k2              = kernel_of(linger);
    CHECK_INT(be->mem_alloc(ctx, NULL, USM_DEVICE, 5000, 64, &p), USM_OK);
    device_memory = p;
    CHECK(is_closed());

    const usm_arg arg = USM_ARG_PTR(p);

    launch.nargs     = 1;
    launch.args      = &arg;
    launch.global[0] = 5000;
    CHECK_INT(be->fill(queue, p, "A", 1, 5000, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->barrier(queue, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->launch(queue, k1, &launch, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    CHECK_INT(be->copy(queue, back, p, 5000, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    CHECK(back[0] == 'B' && memcmp(back, back + 1, 4999) == 0);
    CHECK(is_closed()); /* again */

    launch.nargs     = 0;
    launch.global[0] = 1;
    CHECK_INT(be->launch(queue, k2, &launch, 0, NULL, NULL), USM_OK);
    while (!inside)
        module_sleep_ms(1);
    CHECK_INT(be->mem_alloc(ctx, NULL, USM_DEVICE, 100, 64, &late), USM_OK);
    device_memory                   = late;
    *(volatile char *)device_memory = 1; /* open for the kernel that runs */
    may_go                          = true;
    CHECK_INT(be->queue_wait(queue), USM_OK);
    CHECK(is_closed());
    CHECK_INT(be->mem_free(ctx, USM_DEVICE, p, 5000), USM_OK);
    CHECK_INT(be->mem_free(ctx, USM_DEVICE, late, 100), USM_OK);
    be->kernel_destroy(k1);
    be->kernel_destroy(k2);
    free(back);
    end();
}

static void a_launch_that_cannot_open_guarded_memory_fails(void)
{
    void *p = NULL, *more = NULL, *ev;

    begin_with(true, 0);
    CHECK_INT(be->mem_alloc(ctx, NULL, USM_DEVICE, 100, 64, &p), USM_OK);
    CHECK_INT(be->mem_alloc(ctx, NULL, USM_DEVICE, 100, 64, &more), USM_OK);
    CHECK(usm__fault_arm("os.mprotect", 2, false, USM_OK)); /* the second region's */
    ev = note_after(1, NULL, 0);
    CHECK_INT(be->event_wait(ev), USM_E_NO_MEMORY);
    CHECK_INT(notes(), 0);
    usm__fault_disarm_all();
    device_memory = p;
    CHECK(is_closed()); /* the first was closed again */
    release(ev);
    ev = note_after(2, NULL, 0);
    CHECK_INT(be->event_wait(ev), USM_OK);
    CHECK_INT(be->mem_free(ctx, USM_DEVICE, p, 100), USM_OK);
    CHECK_INT(be->mem_free(ctx, USM_DEVICE, more, 100), USM_OK);
    release(ev);
    end();
}

/* --- failures everywhere --------------------------------------------------------------------- */

static bool scenario_passes(void)
{
    static atomic_int wrong;
    const usm_arg     args[] = {USM_ARG_PTR(&wrong), USM_ARG_SCRATCH(100 * sizeof(size_t)),
                                USM_ARG_SCRATCH(3 * sizeof(size_t))};
    usm_launch        launch = USM_LAUNCH_INIT;
    void             *c = NULL, *q = NULL, *program = NULL, *kernel = NULL, *ev = NULL;
    const usm_image   image = {USM_IMAGE_NATIVE, local_table, sizeof(local_table)};
    char             *names = NULL;
    usm_status        failure;

    launch.global[0] = 4;
    launch.local[0]  = 1;
    launch.nargs     = 3;
    launch.args      = args;
    (void)((failure = be->context_create(0, NULL, &c)) ||
           (failure = be->queue_create(c, NULL, 0, &q)) ||
           (failure = be->program_build(c, NULL, &image, NULL, NULL, &program)) ||
           (failure = be->program_kernels(program, &names)) ||
           (failure = be->kernel_create(program, "local", &kernel)) ||
           (failure = be->launch(q, kernel, &launch, 0, NULL, &ev)) ||
           (failure = be->event_wait(ev)));
    CHECK(!failure || failure == USM_E_NO_MEMORY || failure == USM_E_SYSTEM);
    CHECK_INT(wrong, 0);
    usm__fault_disarm_all();
    module_heap_free(names);
    if (ev)
        release(ev);
    be->kernel_destroy(kernel);
    be->program_destroy(program);
    if (q)
        be->queue_destroy(q);
    if (c)
        be->context_destroy(c);
    module_clean();
    return !failure;
}

static void each_failure_is_survived(void)
{
    uint64_t n = 1;

    be = usm_host_backend_entry(&module_api);
    for (;; n++) {
        module_start();
        CHECK(usm__fault_arm("*", n, false, USM_OK));
        if (scenario_passes() && !usm__fault_fired())
            break;
    }
    CHECK(n > 10);
}

static const plain_case cases[] = {
    CASE(only_whole_native_tables_build),
    CASE(a_program_tells_its_kernels),
    CASE(ranges_cover_each_item_once),
    CASE(ranges_are_whole_work_groups),
    CASE(workers_share_a_launch),
    CASE(parts_run_at_the_same_time),
    CASE(empty_ranges_complete_in_their_turn),
    CASE(arguments_are_copied_and_aligned),
    CASE(pointers_may_be_null),
    CASE(local_memory_belongs_to_one_range),
    CASE(local_memory_needs_a_local_size),
    CASE(a_launch_without_local_memory_to_be_had_fails),
    CASE(guarded_memory_is_open_while_kernels_run),
    CASE(a_launch_that_cannot_open_guarded_memory_fails),
    CASE(each_failure_is_survived),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
