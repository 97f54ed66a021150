/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What is done a second time costs no more than the driver's own work: nothing is compiled, taken
 * from the heap or from the system, made in the driver or waited for.
 *
 * Counted by fault rules that never fire (base/fault.h): calls of the heap, of the system, of the
 * backend's functions.  Some commands are done first, so that what is kept for the next ones is
 * there; then the same once more, counted, for each name. */
#include "plain.h"

#include "base/fault.h"
#include "second_launch_kernels.h" /* made of second_launch.cl by usm_add_kernels() */

#include <stdatomic.h>
#include <usm/usm.h>

enum { N = 256, WARM = 20 };

static struct {
    usm_context *ctx;
    usm_queue   *q;
    usm_program *program;
    usm_kernel  *kernel;
    usm_buffer  *buffer;
    int         *memory;
    atomic_int   tasks;
} t;

static void must(usm_status st)
{
    if (st != USM_OK)
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    CHECK_INT(st, USM_OK);
}

static void add_natively(const usm_range *r, void *const *args)
{
    int *p = *(int **)args[0];

    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        p[i] += *(const int *)args[1];
}

static const usm_arg_kind      kinds[]  = {USM_ARG_POINTER, USM_ARG_VALUE};
static const usm_native_kernel native[] = {{"add", add_natively, 2, kinds}};

static void open_all(void)
{
    const usm_image images[] = {
        {USM_IMAGE_NATIVE, native, sizeof native},
        {USM_IMAGE_BUNDLE, second_launch_kernels, second_launch_kernels_size}};
    usm_program_desc d = USM_PROGRAM_DESC_INIT;

    d.nimages = 2;
    d.images  = images;
    must(usm_context_create(NULL, &t.ctx));
    must(usm_queue_create(t.ctx, NULL, NULL, &t.q));
    must(usm_program_create(t.ctx, &d, &t.program));
    must(usm_kernel_create(t.program, "add", &t.kernel));
    t.memory = usm_malloc(N * sizeof(int), t.q, USM_HOST);
    t.buffer = usm_buffer_new(t.ctx, N * sizeof(int));
    CHECK(t.memory && t.buffer);
    memset(t.memory, 0, N * sizeof(int));
}

static void close_all(void)
{
    usm_buffer_destroy(t.buffer);
    usm_free(t.memory);
    usm_kernel_destroy(t.kernel);
    usm_program_destroy(t.program);
    usm_queue_destroy(t.q);
    usm_context_destroy(t.ctx);
}

/* --- what is repeated ------------------------------------------------------------------------ */

static void submit(const usm_arg *first, size_t ndeps, usm_event *const *deps, usm_event **ev)
{
    int        one    = 1;
    usm_arg    args[] = {*first, USM_ARG_VAL(one)};
    usm_launch l      = USM_LAUNCH_INIT;

    l.kernel    = t.kernel;
    l.dims      = 1;
    l.global[0] = N;
    l.nargs     = 2;
    l.args      = args;
    must(usm_queue_submit(t.q, &l, ndeps, deps, ev));
}

static void plain_launch(void)
{
    usm_arg p = USM_ARG_PTR(t.memory);

    submit(&p, 0, NULL, NULL);
}

static void launch_with_event(void)
{
    usm_arg    p  = USM_ARG_PTR(t.memory);
    usm_event *ev = NULL;

    submit(&p, 0, NULL, &ev);
    usm_event_release(ev);
}

/* Each waits for the one before, in one in-order queue. */
static void chain(void)
{
    usm_arg    p = USM_ARG_PTR(t.memory);
    usm_event *a = NULL, *b = NULL;

    submit(&p, 0, NULL, &a);
    submit(&p, 1, &a, &b);
    submit(&p, 1, &b, NULL);
    usm_event_release(a);
    usm_event_release(b);
}

static void launch_over_buffer(void)
{
    usm_accessor whole = {t.buffer, 0, N * sizeof(int), USM_READ_WRITE};
    usm_arg      p     = USM_ARG_BUFFER(whole);

    submit(&p, 0, NULL, NULL);
}

static usm_status count_task(void *user)
{
    (void)user;
    atomic_fetch_add(&t.tasks, 1);
    return USM_OK;
}

static void plain_task(void)
{
    must(usm_host_task(t.q, count_task, NULL, 0, NULL, NULL));
}

static usm_status count_access(void *user, void *const *ptrs)
{
    (void)user;
    ++*(int *)ptrs[0];
    atomic_fetch_add(&t.tasks, 1);
    return USM_OK;
}

static void task_over_buffer(void)
{
    usm_accessor a[] = {{t.buffer, 0, sizeof(int), USM_READ_WRITE}, {t.buffer, 512, 64, USM_READ}};

    must(usm_buffer_task(t.q, count_access, NULL, 2, a, 0, NULL, NULL));
}

/* --- counting -------------------------------------------------------------------------------- */

/* How often `name` is called by one more of them, which is waited for uncounted. */
static uint64_t count_once(void (*once)(void), const char *name)
{
    uint64_t n;

    must(usm_queue_wait(t.q));
    CHECK(usm__fault_arm(name, 0, false, USM_OK));
    once();
    n = usm__fault_counted();
    must(usm_queue_wait(t.q)); /* counts its own call, and what ends there */
    usm__fault_disarm_all();
    return n;
}

/* Calls of other threads count as well, and come when they like: those of the commands before,
 * whose ends may each start a thread when the machine is busy.  What a launch costs it costs each
 * time: so the least of some tries, with time for the others in between. */
enum { TRIES = 25 };

static void let_others_run(void)
{
    (void)nanosleep(&(struct timespec){0, 20000000}, NULL);
}

static uint64_t count(void (*once)(void), const char *name)
{
    uint64_t least = count_once(once, name);

    for (int i = 1; least > 0 && i < TRIES; i++) {
        uint64_t n;

        let_others_run();
        n     = count_once(once, name);
        least = n < least ? n : least;
    }
    return least;
}

/* The heap also until the end of the command; completions are other threads', a moment later. */
static uint64_t count_heap_once(void (*once)(void))
{
    uint64_t n;

    must(usm_queue_wait(t.q));
    let_others_run();
    CHECK(usm__fault_arm("heap.alloc", 0, false, USM_OK));
    once();
    must(usm_queue_wait(t.q));
    let_others_run();
    n = usm__fault_counted();
    usm__fault_disarm_all();
    return n;
}

static uint64_t count_heap(void (*once)(void))
{
    uint64_t least = count_heap_once(once);

    for (int i = 1; least > 0 && i < TRIES; i++) {
        uint64_t n = count_heap_once(once);

        least = n < least ? n : least;
    }
    return least;
}

/* What no launch does a second time, and what no task does. */
static const char *const never_in_a_launch[] = {
    "program_build",     "kernel_create", "kernel_info", "mem_alloc",
    "queue_create",      "queue_wait",    "event_wait",  "copy",
    "event_create_user", "marker",        "barrier",     "os.*"};
static const char *const never_in_a_task[] = {"program_build", "kernel_create", "kernel_info",
                                              "mem_alloc",     "queue_create",  "queue_wait",
                                              "event_wait",    "copy"};

static void check_never(const char *what, void (*once)(void), const char *const *names, size_t n)
{
    for (int i = 0; i < WARM; i++)
        once();
    must(usm_queue_wait(t.q));
    for (size_t i = 0; i < n; i++) {
        uint64_t calls = count(once, names[i]);

        if (calls)
            printf("# %s: %llu calls of %s\n", what, (unsigned long long)calls, names[i]);
        CHECK_INT(calls, 0);
    }
}

static void check_second(const char *what, void (*once)(void))
{
    uint64_t calls;

    check_never(what, once, never_in_a_launch,
                sizeof never_in_a_launch / sizeof *never_in_a_launch);
    calls = count_heap(once);
    if (calls)
        printf("# %s takes memory from the heap\n", what);
    CHECK_INT(calls, 0);
}

static bool is_host(void)
{
    usm_device_info info = USM_DEVICE_INFO_INIT;

    must(usm_device_get_info(usm_queue_get_device(t.q), &info));
    return strcmp(info.backend, "host") == 0;
}

/* --- cases ----------------------------------------------------------------------------------- */

static void a_second_launch_costs_nothing_of_ours(void)
{
    open_all();
    check_second("a launch", plain_launch);
    check_second("a launch with an event", launch_with_event);
    check_second("a chain of launches", chain);
    close_all();
}

static void a_second_launch_over_buffers_costs_nothing_of_ours(void)
{
    open_all();
    check_second("a launch over a buffer", launch_over_buffer);
    close_all();
}

/* Elsewhere a task stands between two markers, and costs the heap its own record: only what no task
 * may do is counted there. */
static void a_second_task_costs_nothing_of_ours(void)
{
    open_all();
    if (is_host()) {
        check_second("a task", plain_task);
        check_second("a task over a buffer", task_over_buffer);
    } else {
        check_never("a task", plain_task, never_in_a_task,
                    sizeof never_in_a_task / sizeof *never_in_a_task);
        check_never("a task over a buffer", task_over_buffer, never_in_a_task,
                    sizeof never_in_a_task / sizeof *never_in_a_task);
    }
    close_all();
}

/* That counting counts: the first launch takes what later ones have. */
static void a_first_launch_is_seen_to_cost(void)
{
    open_all();
    CHECK(usm__fault_arm("*", 0, false, USM_OK));
    launch_with_event();
    must(usm_queue_wait(t.q));
    CHECK(usm__fault_counted() > 1);
    usm__fault_disarm_all();
    CHECK(count(plain_launch, "launch") == 1);
    close_all();
}

static const plain_case cases[] = {CASE(a_first_launch_is_seen_to_cost),
                                   CASE(a_second_launch_costs_nothing_of_ours),
                                   CASE(a_second_launch_over_buffers_costs_nothing_of_ours),
                                   CASE(a_second_task_costs_nothing_of_ours),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
