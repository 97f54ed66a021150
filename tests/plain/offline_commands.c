/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues, copies, events, tasks and kernels on the host, through libusm as its users see it.  The
 * same over every runtime is in tests/conformance. */
#include "plain.h"

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <usm/usm.h>

#define OK(call) CHECK_INT(call, USM_OK)

static usm_queue *queue(void)
{
    usm_queue *q = usm_default_queue();

    CHECK(q != NULL);
    return q;
}

static void a_copy_goes_there_and_back(void)
{
    char  out[1000], back[1000] = "";
    void *p = usm_alloc_device(sizeof out);

    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (char)(i * 3);
    OK(usm_copy(p, out, sizeof out));
    OK(usm_copy(back, p, sizeof back));
    CHECK(!memcmp(out, back, sizeof out));
    usm_free(p);
}

static void an_overlapping_copy_is_a_memmove(void)
{
    char  want[500], back[500];
    char *p = usm_alloc_device(sizeof want);

    for (size_t i = 0; i < sizeof want; i++)
        want[i] = (char)(i * 7);
    OK(usm_copy(p, want, sizeof want));
    OK(usm_copy(p + 3, p, 400));
    memmove(want + 3, want, 400);
    OK(usm_copy(back, p, sizeof back));
    CHECK(!memcmp(want, back, sizeof want));
    usm_free(p);
}

static void memory_of_two_contexts_is_copied(void)
{
    usm_context *ctx     = NULL;
    char         back[8] = "", *near = usm_alloc_device(8), *far;

    OK(usm_context_create(NULL, &ctx));
    far = usm_malloc_ctx(8, NULL, ctx, USM_DEVICE);
    CHECK(near && far);
    OK(usm_copy(near, "distant", 8));
    OK(usm_copy(far, near, 8));
    OK(usm_copy(back, far, 8));
    CHECK_STR(back, "distant");
    usm_free(near);
    usm_context_destroy(ctx);
}

static void a_pattern_of_three_bytes_fills(void)
{
    char back[10] = "", *p = usm_alloc_device(9);

    OK(usm_fill(queue(), p, "abc", 3, 3, 0, NULL, NULL));
    OK(usm_memcpy(queue(), back, p, 9, 0, NULL, NULL));
    OK(usm_queue_wait(queue()));
    CHECK_STR(back, "abcabcabc");
    usm_free(p);
}

static void rows_are_copied(void)
{
    char back[7] = "", *p = usm_alloc_shared(8);

    memset(p, '.', 8);
    OK(usm_copy_2d(p, 4, "abcdefghi", 3, 2, 2));
    memcpy(back, p, 6);
    CHECK_STR(back, "ab..de");
    usm_free(p);
}

static void a_range_over_the_end_is_refused(void)
{
    char *p = usm_alloc_host(10), text[100000] = "";

    CHECK_INT(usm_copy(p, text, sizeof text), USM_E_SIZE);
    CHECK_INT(usm_copy(NULL, text, 1), USM_E_INVALID_POINTER);
    usm_free(p);
}

static void a_user_event_holds_a_command(void)
{
    char      *p    = usm_alloc_shared(1);
    usm_event *gate = NULL, *ev = NULL;

    *p = '.';
    OK(usm_event_create(usm_default_context(), &gate));
    OK(usm_memset(queue(), p, 'x', 1, 1, &gate, &ev));
    CHECK_INT(usm_event_query(ev), USM_E_NOT_READY);
    CHECK_INT(*p, '.');
    OK(usm_event_signal(gate, USM_OK));
    OK(usm_event_wait(ev));
    CHECK_INT(*p, 'x');
    CHECK_INT(usm_event_signal(gate, USM_OK), USM_E_INVALID);
    usm_event_release(gate);
    usm_event_release(ev);
    usm_free(p);
}

static void a_failure_reaches_its_dependents(void)
{
    usm_event *gate = NULL, *ev = NULL;

    OK(usm_event_create(usm_default_context(), &gate));
    OK(usm_queue_barrier(queue(), 1, &gate, &ev));
    OK(usm_event_signal(gate, USM_E_DEVICE));
    CHECK_INT(usm_event_wait(ev), USM_E_DEPENDENCY);
    usm_event_release(gate);
    usm_event_release(ev);
}

static void count_event(usm_event *ev, usm_status status, void *user)
{
    (void)ev;
    if (status == USM_OK)
        atomic_fetch_add((atomic_int *)user, 1);
}

static void a_callback_is_called(void)
{
    struct timespec wait  = {0, 1000000};
    atomic_int      calls = 0;
    usm_event      *ev    = NULL;

    OK(usm_queue_barrier(queue(), 0, NULL, &ev));
    OK(usm_event_on_complete(ev, count_event, &calls));
    for (int ms = 0; !atomic_load(&calls); ms++) {
        CHECK(ms < 10000);
        nanosleep(&wait, NULL);
    }
    usm_event_release(ev);
}

static usm_status add_one(void *user)
{
    ++*(int *)user;
    return USM_OK;
}

static void host_tasks_run_in_order(void)
{
    int n = 0;

    for (int i = 0; i < 20; i++)
        OK(usm_host_task(queue(), add_one, &n, 0, NULL, NULL));
    OK(usm_queue_wait(queue()));
    CHECK_INT(n, 20);
}

static usm_status fail(void *user)
{
    return *(usm_status *)user;
}

static void a_task_that_fails_has_its_status(void)
{
    usm_status how = USM_E_BUDGET;
    usm_event *ev  = NULL;

    OK(usm_host_task(queue(), fail, &how, 0, NULL, &ev));
    CHECK_INT(usm_event_wait(ev), USM_E_BUDGET);
    usm_event_release(ev);
}

static void squares_range(const usm_range *r, void *const *args)
{
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        (*(int **)args[0])[i] = (int)(i * i);
}

static usm_program *squares(void)
{
    static const usm_arg_kind      kinds[] = {USM_ARG_POINTER};
    static const usm_native_kernel table[] = {{"squares", squares_range, 1, kinds}};
    usm_image                      image   = {USM_IMAGE_NATIVE, table, sizeof table};
    usm_program_desc               desc    = USM_PROGRAM_DESC_INIT;
    usm_program                   *program = NULL;

    desc.nimages = 1;
    desc.images  = &image;
    OK(usm_program_create(usm_default_context(), &desc, &program));
    return program;
}

static void a_native_kernel_is_launched(void)
{
    usm_program *program = squares();
    int         *p       = usm_alloc_shared(1000 * sizeof *p);
    usm_arg      arg     = USM_ARG_PTR(p);
    usm_launch   launch  = USM_LAUNCH_INIT;

    OK(usm_kernel_create(program, "squares", &launch.kernel));
    launch.global[0] = 1000;
    launch.nargs     = 1;
    launch.args      = &arg;
    OK(usm_queue_submit(queue(), &launch, 0, NULL, NULL));
    OK(usm_queue_wait(queue()));
    for (int i = 0; i < 1000; i++)
        CHECK_INT(p[i], i * i);
    launch.nargs = 0;
    CHECK_INT(usm_queue_submit(queue(), &launch, 0, NULL, NULL), USM_E_ARGUMENTS);
    usm_kernel_destroy(launch.kernel);
    usm_program_destroy(program);
    usm_free(p);
}

static void a_missing_kernel_is_named(void)
{
    usm_program *program = squares();
    usm_kernel  *kernel  = NULL;

    CHECK_INT(usm_kernel_create(program, "cubes", &kernel), USM_E_NO_KERNEL);
    CHECK_IN("cubes", usm_last_error());
    CHECK_IN("squares", usm_last_error());
    CHECK(!kernel);
    usm_program_destroy(program);
}

static void a_queue_ends_with_work_in_flight(void)
{
    usm_queue *q    = NULL;
    usm_event *gate = NULL, *ev = NULL;
    int        n = 0;

    OK(usm_queue_create(usm_default_context(), NULL, NULL, &q));
    OK(usm_event_create(usm_default_context(), &gate));
    OK(usm_host_task(q, add_one, &n, 1, &gate, &ev));
    usm_queue_destroy(q);
    CHECK_INT(usm_queue_wait(q), USM_E_INVALID_HANDLE);
    OK(usm_event_signal(gate, USM_OK));
    OK(usm_event_wait(ev));
    CHECK_INT(n, 1);
    usm_event_release(gate);
    usm_event_release(ev);
}

static const plain_case cases[] = {
    CASE(a_copy_goes_there_and_back),
    CASE(an_overlapping_copy_is_a_memmove),
    CASE(memory_of_two_contexts_is_copied),
    CASE(a_pattern_of_three_bytes_fills),
    CASE(rows_are_copied),
    CASE(a_range_over_the_end_is_refused),
    CASE(a_user_event_holds_a_command),
    CASE(a_failure_reaches_its_dependents),
    CASE(a_callback_is_called),
    CASE(host_tasks_run_in_order),
    CASE(a_task_that_fails_has_its_status),
    CASE(a_native_kernel_is_launched),
    CASE(a_missing_kernel_is_named),
    CASE(a_queue_ends_with_work_in_flight),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
