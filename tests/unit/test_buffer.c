/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Buffers over the host backend: what is refused and by which sentence, sub-buffers, the user's
 * memory, final data, several accesses at once, accesses and commands that wait for each other,
 * threads.  What kernels compute over every runtime is tests/conformance/buffer.c's matter. */
#include "buffer/buffer.h"
#include "buffer/track.h"

#include <plain.h>
#include <sched.h>
#include <stdatomic.h>
#include <usm/usm.h>

#define KIB      1024
#define OK(call) expect((call), USM_OK, __FILE__, __LINE__)
#define REFUSED(call, want, culprit)                                                               \
    do {                                                                                           \
        expect((call), (want), __FILE__, __LINE__);                                                \
        CHECK_IN(culprit, usm_last_error());                                                       \
    } while (0)

static void expect(usm_status got, usm_status want, const char *file, int line)
{
    if (got != want) {
        printf("# %s, not %s: %s\n", usm_status_name(got), usm_status_name(want), usm_last_error());
        plain_fail(file, line, "the status");
    }
}

/* ---- kernels and a rig ----------------------------------------------------------- */

/* args: int *data, int add */
static void add_range(const usm_range *r, void *const *args)
{
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        (*(int **)args[0])[i] += *(const int *)args[1];
}

/* args: int *out, const int *in */
static void copy_range(const usm_range *r, void *const *args)
{
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        (*(int **)args[0])[i] = (*(int **)args[1])[i];
}

static const usm_arg_kind      add_kinds[]  = {USM_ARG_POINTER, USM_ARG_VALUE};
static const usm_arg_kind      copy_kinds[] = {USM_ARG_POINTER, USM_ARG_POINTER};
static const usm_native_kernel natives[]    = {{"add", add_range, 2, add_kinds},
                                               {"copy", copy_range, 2, copy_kinds}};

typedef struct noted {
    atomic_int n;
    usm_status status;
} noted;

static struct {
    usm_context *ctx;
    usm_queue   *q, *q2;
    usm_kernel  *add, *copy;
    noted        errors;
} rig;

static void on_error(usm_context *ctx, usm_status status, const char *reason, void *user)
{
    (void)ctx;
    (void)reason;
    rig.errors.status = status;
    atomic_fetch_add(&((noted *)user)->n, 1);
}

/* USM_TEST_COPIES: the host's device has memory of its own, as a GPU. */
static bool has_copies(void)
{
    return getenv("USM_TEST_COPIES") != NULL;
}

static void begin(void)
{
    usm_context_desc desc    = USM_CONTEXT_DESC_INIT;
    usm_device      *dev     = NULL;
    usm_image        image   = {USM_IMAGE_NATIVE, natives, sizeof natives};
    usm_program_desc pd      = USM_PROGRAM_DESC_INIT;
    usm_program     *program = NULL;

    usm__locations_force_copies(has_copies());
    OK(usm_select_devices("host:*", &dev, 1, &desc.ndevices));
    desc.devices  = &dev;
    desc.on_error = on_error;
    desc.user     = &rig.errors;
    atomic_store(&rig.errors.n, 0);
    OK(usm_context_create(&desc, &rig.ctx));
    OK(usm_queue_create(rig.ctx, NULL, NULL, &rig.q));
    OK(usm_queue_create(rig.ctx, NULL, NULL, &rig.q2));
    pd.nimages = 1;
    pd.images  = &image;
    OK(usm_program_create(rig.ctx, &pd, &program));
    OK(usm_kernel_create(program, "add", &rig.add));
    OK(usm_kernel_create(program, "copy", &rig.copy));
    usm_program_destroy(program);
}

static void end(void)
{
    usm_kernel_destroy(rig.add);
    usm_kernel_destroy(rig.copy);
    usm_queue_destroy(rig.q);
    usm_queue_destroy(rig.q2);
    usm_context_destroy(rig.ctx);
}

static usm_buffer *buffer_of(size_t size)
{
    usm_buffer *b = usm_buffer_new(rig.ctx, size);

    if (!b)
        printf("# %s\n", usm_last_error());
    CHECK(b != NULL);
    return b;
}

/* data[i] += add over ints [first, first + n) of b. */
static usm_status try_add(usm_queue *q, usm_buffer *b, size_t first, size_t n, int add,
                          size_t ndeps, usm_event *const *deps, usm_event **ev)
{
    usm_accessor a      = {b, first * sizeof(int), n * sizeof(int), USM_READ_WRITE};
    usm_arg      args[] = {USM_ARG_BUFFER(a), USM_ARG_VAL(add)};
    usm_launch   l      = USM_LAUNCH_INIT;

    l.kernel    = rig.add;
    l.global[0] = n;
    l.nargs     = 2;
    l.args      = args;
    return usm_queue_submit(q, &l, ndeps, deps, ev);
}

static void add(usm_buffer *b, size_t first, size_t n, int value)
{
    OK(try_add(rig.q, b, first, n, value, 0, NULL, NULL));
}

static void set_ints(usm_buffer *b, size_t n, int value)
{
    usm_access a;

    OK(usm_access_begin(b, 0, n * sizeof(int), USM_WRITE_NO_INIT, &a));
    for (size_t i = 0; i < n; i++)
        ((int *)a.ptr)[i] = value;
    usm_access_end(&a);
}

static void check_ints(usm_buffer *b, size_t first, size_t n, int want)
{
    usm_access a;

    OK(usm_access_begin(b, first * sizeof(int), n * sizeof(int), USM_READ, &a));
    for (size_t i = 0; i < n; i++)
        if (((int *)a.ptr)[i] != want) {
            printf("# element %zu is %d, not %d\n", first + i, ((int *)a.ptr)[i], want);
            CHECK(((int *)a.ptr)[i] == want);
        }
    usm_access_end(&a);
}

static bool is_tracked(usm_buffer *b)
{
    return (usm_load_acquire(&b->root->flags) & USM__BUFFER_TRACKED) != 0;
}

/* ---- creation ------------------------------------------------------------------------ */

static void descriptions_that_make_no_sense_are_refused(void)
{
    usm_buffer_desc d    = USM_BUFFER_DESC_INIT;
    usm_home_ops    home = {.struct_size = sizeof home};
    usm_buffer     *b    = NULL;
    int             data[4];

    begin();
    REFUSED(usm_buffer_create(rig.ctx, NULL, &b), USM_E_INVALID, "desc is NULL");
    REFUSED(usm_buffer_create(rig.ctx, &d, NULL), USM_E_INVALID, "buf is NULL");
    REFUSED(usm_buffer_create(rig.ctx, &d, &b), USM_E_INVALID, "size is 0");
    d.size  = 16;
    d.flags = USM_BUFFER_COPY_DATA;
    REFUSED(usm_buffer_create(rig.ctx, &d, &b), USM_E_INVALID, "without host_data");
    d.host_data = data;
    d.flags     = USM_BUFFER_COPY_DATA | USM_BUFFER_CONST_DATA;
    REFUSED(usm_buffer_create(rig.ctx, &d, &b), USM_E_INVALID, "flags 0x3");
    d.flags = 0;
    d.home  = &home;
    REFUSED(usm_buffer_create(rig.ctx, &d, &b), USM_E_INVALID, "not from both");
    d.host_data = NULL;
    REFUSED(usm_buffer_create(rig.ctx, &d, &b), USM_E_INVALID, "no read function");
    d.struct_size = 8;
    REFUSED(usm_buffer_create(rig.ctx, &d, &b), USM_E_ABI, "USM_BUFFER_DESC_INIT");
    CHECK(b == NULL);
    end();
}

static void a_handle_that_was_destroyed_is_recognised(void)
{
    usm_buffer *b;
    usm_access  a;

    begin();
    b = buffer_of(100);
    CHECK_INT(usm_buffer_size(b), 100);
    CHECK(usm_buffer_get_context(b) == rig.ctx);
    usm_buffer_destroy(b);
    REFUSED(usm_access_begin(b, 0, 1, USM_READ, &a), USM_E_INVALID_HANDLE, "was destroyed");
    REFUSED(usm_access_begin(NULL, 0, 1, USM_READ, &a), USM_E_INVALID_HANDLE, "buffer is NULL");
    CHECK_INT(usm_buffer_size(b), 0);
    usm_buffer_destroy(NULL);
    end();
}

static void accesses_that_make_no_sense_are_refused(void)
{
    usm_buffer *b;
    usm_access  a;

    begin();
    b = buffer_of(100);
    REFUSED(usm_access_begin(b, 0, 101, USM_READ, &a), USM_E_INVALID, "exceed the buffer");
    REFUSED(usm_access_begin(b, 101, 0, USM_READ, &a), USM_E_INVALID, "exceed the buffer");
    REFUSED(usm_access_begin(b, SIZE_MAX, 2, USM_READ, &a), USM_E_INVALID, "exceed the buffer");
    REFUSED(usm_access_begin(b, 0, 1, 0, &a), USM_E_INVALID, "not an access mode");
    REFUSED(usm_access_begin(b, 0, 1, USM_READ | USM_NO_INIT, &a), USM_E_INVALID,
            "not an access mode");
    REFUSED(usm_access_begin(b, 0, 1, 64, &a), USM_E_INVALID, "not an access mode");
    REFUSED(usm_access_begin(b, 0, 1, USM_READ, NULL), USM_E_INVALID, "acc is NULL");
    OK(usm_access_begin(b, 100, 0, USM_READ, &a)); /* nothing, at the end */
    CHECK_INT(a.size, 0);
    usm_access_end(&a);
    usm_access_end(NULL);
    usm_buffer_destroy(b);
    end();
}

/* ---- the host -------------------------------------------------------------------------- */

static void sizes_of_all_kinds_keep_what_is_written(void)
{
    static const size_t sizes[] = {1, 7, 4096, 100000, 300 * KIB, 5 * KIB * KIB + 3};

    begin();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        usm_buffer *b = buffer_of(sizes[i]);
        usm_access  a;
        char       *ptr;

        OK(usm_access_begin(b, 0, sizes[i], USM_WRITE_NO_INIT, &a));
        ptr = a.ptr;
        CHECK_INT(a.size, sizes[i]);
        memset(a.ptr, (int)i + 1, sizes[i]);
        usm_access_end(&a);
        OK(usm_access_begin(b, sizes[i] / 2, sizes[i] - sizes[i] / 2, USM_READ, &a));
        CHECK(a.ptr == ptr + sizes[i] / 2); /* for life */
        for (size_t k = 0; k < a.size; k++)
            if (((char *)a.ptr)[k] != (char)(i + 1))
                CHECK(!"a byte was lost");
        usm_access_end(&a);
        usm_buffer_destroy(b);
    }
    end();
}

static void one_thread_may_have_many_accesses_open(void)
{
    enum { N = 3 * USM__OPEN_MAX };
    usm_buffer *b;
    usm_access  a[N];

    begin();
    b = buffer_of(N * 8);
    for (int i = 0; i < N; i++) {
        OK(usm_access_begin(b, (size_t)i * 8, 8, USM_WRITE_NO_INIT, &a[i]));
        *(uint64_t *)a[i].ptr = (uint64_t)i;
    }
    for (int i = 0; i < N; i++)
        usm_access_end(&a[i]);
    OK(usm_access_begin(b, 0, N * 8, USM_READ, &a[0]));
    for (int i = 0; i < N; i++)
        CHECK_INT(((uint64_t *)a[0].ptr)[i], i);
    usm_access_end(&a[0]);
    usm_buffer_destroy(b);
    end();
}

static void a_buffer_with_an_open_access_stays(void)
{
    usm_buffer *b;
    usm_access  a;

    begin();
    b = buffer_of(64);
    OK(usm_access_begin(b, 0, 64, USM_WRITE_NO_INIT, &a));
    usm_buffer_destroy(b); /* warns */
    memset(a.ptr, 1, 64);
    usm_access_end(&a);
    CHECK_INT(usm_buffer_size(b), 64);
    usm_buffer_destroy(b);
    end();
}

static void sub_buffers_share_the_bytes_and_keep_the_parent(void)
{
    usm_buffer *b, *left, *right, *none = NULL;
    usm_access  a;

    begin();
    b = buffer_of(1000 * sizeof(int));
    set_ints(b, 1000, 1);
    REFUSED(usm_buffer_create_sub(b, 1, 4000, &none), USM_E_INVALID, "exceed the buffer");
    REFUSED(usm_buffer_create_sub(b, 0, 0, &none), USM_E_INVALID, "size is 0");
    OK(usm_buffer_create_sub(b, 0, 2000, &left));
    OK(usm_buffer_create_sub(b, 2000, 2000, &right));
    REFUSED(usm_buffer_create_sub(left, 0, 4, &none), USM_E_INVALID, "sub-buffer itself");
    REFUSED(usm_buffer_set_final_data(left, &none), USM_E_INVALID, "parent");
    REFUSED(usm_access_begin(left, 0, 2001, USM_READ, &a), USM_E_INVALID, "exceed the buffer");
    CHECK(usm_buffer_get_context(right) == rig.ctx);
    usm_buffer_destroy(b);
    add(right, 0, 500, 5);
    check_ints(right, 0, 500, 6);
    check_ints(left, 0, 500, 1);
    usm_buffer_destroy(left);
    check_ints(right, 499, 1, 6);
    usm_buffer_destroy(right);
    CHECK(none == NULL);
    end();
}

static void users_memory_is_used_in_place_and_final_when_destroyed(void)
{
    static int      data[20000];
    usm_buffer_desc d = USM_BUFFER_DESC_INIT;
    usm_buffer     *b = NULL;
    usm_event      *gate;
    usm_access      a;

    begin();
    for (int i = 0; i < 20000; i++)
        data[i] = i;
    d.size      = sizeof data;
    d.host_data = data;
    OK(usm_buffer_create(rig.ctx, &d, &b));
    OK(usm_access_begin(b, 4, 4, USM_READ_WRITE, &a));
    CHECK(a.ptr == &data[1]);
    usm_access_end(&a);
    OK(usm_event_create(rig.ctx, &gate));
    OK(try_add(rig.q, b, 0, 20000, 1, 0, NULL, NULL));
    OK(try_add(rig.q2, b, 0, 20000, 1, 1, &gate, NULL));
    OK(usm_event_signal(gate, USM_OK));
    usm_buffer_destroy(b); /* waits */
    for (int i = 0; i < 20000; i++)
        CHECK_INT(data[i], i + 2);
    usm_event_release(gate);
    end();
}

static void const_and_copied_data_are_only_read(void)
{
    static const uint32_t flags[] = {USM_BUFFER_CONST_DATA, USM_BUFFER_COPY_DATA};
    static const size_t   sizes[] = {1000, 3000000};

    begin();
    for (int i = 0; i < 4; i++) {
        size_t          n    = sizes[i / 2];
        int            *data = malloc(n * sizeof *data);
        usm_buffer_desc d    = USM_BUFFER_DESC_INIT;
        usm_buffer     *b    = NULL;

        CHECK(data != NULL);
        for (size_t k = 0; k < n; k++)
            data[k] = 7;
        d.size      = n * sizeof *data;
        d.host_data = data;
        d.flags     = flags[i % 2];
        OK(usm_buffer_create(rig.ctx, &d, &b));
        if (flags[i % 2] == USM_BUFFER_COPY_DATA)
            memset(data, 0, d.size);
        add(b, 0, n, 1);
        check_ints(b, 0, n, 8);
        usm_buffer_destroy(b);
        CHECK_INT(data[n - 1], flags[i % 2] == USM_BUFFER_COPY_DATA ? 0 : 7);
        free(data);
    }
    end();
}

static void final_data_gets_the_content_unless_it_is_not_wanted(void)
{
    int         out[1000] = {0}, none[1000] = {0};
    usm_buffer *b;

    begin();
    b = buffer_of(sizeof out);
    set_ints(b, 1000, 40);
    OK(usm_buffer_set_final_data(b, out));
    add(b, 0, 1000, 2);
    usm_buffer_destroy(b);
    for (int i = 0; i < 1000; i++)
        CHECK_INT(out[i], 42);
    b = buffer_of(sizeof none);
    set_ints(b, 1000, 40);
    OK(usm_buffer_set_final_data(b, none));
    OK(usm_buffer_set_write_back(b, false));
    usm_buffer_destroy(b);
    CHECK_INT(none[0], 0);
    CHECK_INT(rig.errors.n, 0);
    end();
}

/* ---- commands ---------------------------------------------------------------------------- */

static void commands_on_two_queues_follow_the_bytes(void)
{
    usm_buffer *b, *c;

    begin();
    b = buffer_of(4000);
    c = buffer_of(4000);
    set_ints(b, 1000, 0);
    for (int i = 0; i < 200; i++) {
        usm_accessor to = {c, 0, 4000, USM_WRITE}, from = {b, 0, 4000, USM_READ};

        OK(try_add(i % 2 ? rig.q : rig.q2, b, 0, 1000, 1, 0, NULL, NULL));
        OK(usm_buffer_copy(i % 2 ? rig.q2 : rig.q, &to, &from, 0, NULL, NULL));
    }
    check_ints(c, 0, 1000, 200);
    check_ints(b, 0, 1000, 200);
    usm_buffer_destroy(b);
    usm_buffer_destroy(c);
    end();
}

static void disjoint_ranges_run_in_parallel(void)
{
    usm_buffer *b;
    usm_event  *gate, *first = NULL, *second = NULL;

    begin();
    b = buffer_of(4000);
    set_ints(b, 1000, 0);
    OK(usm_event_create(rig.ctx, &gate));
    OK(try_add(rig.q, b, 0, 500, 1, 1, &gate, &first));
    OK(try_add(rig.q2, b, 500, 500, 2, 0, NULL, &second));
    OK(usm_event_wait(second)); /* while the first cannot begin */
    CHECK_INT(usm_event_query(first), USM_E_NOT_READY);
    check_ints(b, 500, 500, 2);
    OK(usm_event_signal(gate, USM_OK));
    OK(usm_event_wait(first));
    check_ints(b, 0, 500, 1);
    usm_event_release(first);
    usm_event_release(second);
    usm_event_release(gate);
    usm_buffer_destroy(b);
    end();
}

typedef struct waiting {
    usm_buffer *b;
    atomic_int  done;
    int         seen;
} waiting;

static void *read_first(void *arg)
{
    waiting   *w = arg;
    usm_access a;

    OK(usm_access_begin(w->b, 0, sizeof(int), USM_READ, &a));
    w->seen = *(int *)a.ptr;
    atomic_store(&w->done, 1);
    usm_access_end(&a);
    return NULL;
}

static void the_host_waits_for_a_command_it_conflicts_with(void)
{
    waiting    w = {0};
    pthread_t  thread;
    usm_event *gate;
    usm_access a;

    begin();
    w.b = buffer_of(4000);
    set_ints(w.b, 1000, 0);
    OK(usm_event_create(rig.ctx, &gate));
    OK(try_add(rig.q, w.b, 0, 500, 3, 1, &gate, NULL));
    CHECK(is_tracked(w.b));
    REFUSED(usm_access_begin(w.b, 0, 4, USM_READ | USM_NO_WAIT, &a), USM_E_AGAIN, "not complete");
    OK(usm_access_begin(w.b, 2000, 4, USM_READ, &a)); /* other bytes */
    usm_access_end(&a);
    CHECK_INT(pthread_create(&thread, NULL, read_first, &w), 0);
    usleep(20000);
    CHECK_INT(w.done, 0);
    OK(usm_event_signal(gate, USM_OK));
    pthread_join(thread, NULL);
    CHECK_INT(w.seen, 3);
    usm_event_release(gate);
    usm_buffer_destroy(w.b);
    end();
}

typedef struct sleeper {
    waiting     w;
    pthread_t   thread;
    _Atomic int tid;
} sleeper;

static void *read_first_as(void *arg)
{
    sleeper *s = arg;

    atomic_store(&s->tid, (int)gettid());
    return read_first(&s->w);
}

/* Starts a thread that reads w.b, and returns once it sleeps: the command before the read cannot be
 * launched yet. */
static void start_sleeper(sleeper *s, usm_buffer *b)
{
    *s = (sleeper){.w.b = b};
    CHECK_INT(pthread_create(&s->thread, NULL, read_first_as, s), 0);
    while (atomic_load(&s->tid) == 0)
        sched_yield();
    plain_await_sleep(atomic_load(&s->tid));
}

/* Threads sleep for different reasons: whatever happens, those it concerns are woken, however many
 * others sleep in front of them. */
static void every_sleeper_is_woken_for_its_own_command(void)
{
    enum { FRONT = 6 };
    usm_buffer *b[2];
    usm_access  a[2];
    sleeper     s[FRONT + 1];

    begin();
    for (int i = 0; i < 2; i++) {
        b[i] = buffer_of(4000);
        set_ints(b[i], 1000, 0);
        OK(usm_access_begin(b[i], 0, 4000, USM_WRITE, &a[i]));
        OK(try_add(i ? rig.q2 : rig.q, b[i], 0, 1000, 3, 0, NULL, NULL));
    }
    for (int i = 0; i < FRONT; i++)
        start_sleeper(&s[i], b[0]);
    start_sleeper(&s[FRONT], b[1]);
    usm_access_end(&a[1]);
    CHECK_INT(pthread_join(s[FRONT].thread, NULL), 0);
    CHECK_INT(s[FRONT].w.seen, 3);
    usm_access_end(&a[0]);
    for (int i = 0; i < FRONT; i++) {
        CHECK_INT(pthread_join(s[i].thread, NULL), 0);
        CHECK_INT(s[i].w.seen, 3);
    }
    usm_buffer_destroy(b[0]);
    usm_buffer_destroy(b[1]);
    end();
}

/* A command behind an access that is open is submitted at once and runs after its end; `tracked`:
 * the buffer has had a command before. */
static void command_behind_an_access(bool tracked, size_t ints)
{
    usm_buffer *b  = buffer_of(ints * sizeof(int));
    usm_event  *ev = NULL, *gate, *late = NULL;
    usm_access  a, other;

    set_ints(b, ints, 0);
    OK(usm_event_create(rig.ctx, &gate));
    if (tracked)
        OK(try_add(rig.q2, b, ints - 1, 1, 0, 1, &gate, &late));
    OK(usm_access_begin(b, 0, 400, USM_WRITE, &a));
    OK(try_add(rig.q, b, 0, ints / 2, 5, 0, NULL, &ev)); /* does not wait */
    CHECK_INT(usm_event_query(ev), USM_E_NOT_READY);
    CHECK_INT(usm_queue_query(rig.q), USM_E_NOT_READY);
    OK(try_add(rig.q2, b, ints / 2, 1, 1, 0, NULL, NULL)); /* other bytes go ahead */
    *(int *)a.ptr = 10;
    REFUSED(usm_access_begin(b, 4, 4, USM_READ | USM_NO_WAIT, &other), USM_E_AGAIN, "not complete");
    usm_access_end(&a);
    OK(usm_event_wait(ev));
    check_ints(b, 0, 1, 15);
    check_ints(b, 1, 1, 5);
    OK(usm_queue_wait(rig.q));
    OK(usm_event_signal(gate, USM_OK));
    OK(usm_queue_wait(rig.q2));
    check_ints(b, ints / 2, 1, 1);
    usm_event_release(ev);
    usm_event_release(late);
    usm_event_release(gate);
    usm_buffer_destroy(b);
}

static void a_command_waits_for_an_open_access_without_holding_its_caller(void)
{
    begin();
    for (int i = 0; i < 20; i++) {
        command_behind_an_access(false, 1000);
        command_behind_an_access(true, 1000);
        command_behind_an_access(false, 1000000); /* several blocks */
        command_behind_an_access(true, 1000000);
    }
    end();
}

static void an_in_order_queue_keeps_its_order_behind_a_deferred_command(void)
{
    usm_buffer *a, *b;
    usm_access  acc;
    usm_event  *ev = NULL;

    begin();
    a = buffer_of(4000);
    b = buffer_of(4000);
    set_ints(a, 1000, 0);
    set_ints(b, 1000, 0);
    OK(usm_access_begin(a, 0, 4, USM_READ, &acc));
    add(a, 0, 1000, 1);                              /* deferred */
    OK(try_add(rig.q, b, 0, 1000, 1, 0, NULL, &ev)); /* behind it in the queue */
    usleep(5000);
    CHECK_INT(usm_event_query(ev), USM_E_NOT_READY);
    usm_access_end(&acc);
    OK(usm_queue_wait(rig.q));
    check_ints(b, 0, 1000, 1);
    check_ints(a, 0, 1000, 1);
    usm_event_release(ev);
    usm_buffer_destroy(a);
    usm_buffer_destroy(b);
    end();
}

static usm_status do_nothing(void *user, void *const *ptrs)
{
    (void)user;
    (void)ptrs;
    return USM_OK;
}

static void a_buffer_goes_back_to_the_hit_path(void)
{
    usm_buffer  *b;
    usm_accessor nothing;

    begin();
    b       = buffer_of(4000);
    nothing = (usm_accessor){b, 400, 0, USM_READ_WRITE};
    set_ints(b, 1000, 0);
    CHECK(!is_tracked(b));
    add(b, 0, 1000, 1);
    check_ints(b, 0, 1000, 1);
    if (has_copies()) { /* until nothing of it is on a device */
        CHECK(is_tracked(b));
        set_ints(b, 1000, 1);
    }
    CHECK(!is_tracked(b));
    OK(usm_buffer_task(rig.q, do_nothing, NULL, 1, &nothing, 0, NULL, NULL));
    OK(usm_queue_wait(rig.q));
    CHECK(has_copies() || !is_tracked(b)); /* there it is for the host to find out */
    usm_buffer_destroy(b);
    end();
}

/* A task whose bytes are partly on the device waits for one that waits for the user, who wants
 * other bytes first: else this case ends with its time. */
static void who_waits_for_the_user_keeps_nobody_from_other_bytes(void)
{
    usm_buffer  *b;
    usm_accessor second, both;
    usm_event   *gate, *ev = NULL;
    usm_access   a;

    begin();
    b      = buffer_of(12000);
    second = (usm_accessor){b, 4000, 4000, USM_READ_WRITE};
    both   = (usm_accessor){b, 0, 8000, USM_READ};
    set_ints(b, 3000, 1);
    add(b, 0, 1000, 1);
    OK(usm_queue_wait(rig.q));
    OK(usm_event_create(rig.ctx, &gate));
    OK(usm_buffer_task(rig.q, do_nothing, NULL, 1, &second, 1, &gate, NULL));
    OK(usm_buffer_task(rig.q2, do_nothing, NULL, 1, &both, 0, NULL, &ev));
    usleep(20000); /* it gets so far */
    OK(usm_access_begin(b, 8000, 4000, USM_READ_WRITE, &a));
    usm_access_end(&a);
    OK(usm_event_signal(gate, USM_OK));
    OK(usm_event_wait(ev));
    check_ints(b, 0, 1000, 2);
    usm_event_release(ev);
    usm_event_release(gate);
    usm_buffer_destroy(b);
    end();
}

static void fills_and_copies_check_their_ranges(void)
{
    usm_buffer  *b, *c;
    int          seven = 7;
    usm_accessor dst, src;

    begin();
    b   = buffer_of(4000);
    c   = buffer_of(4000);
    dst = (usm_accessor){b, 0, 4000, USM_WRITE_NO_INIT};
    src = (usm_accessor){b, 0, 2000, USM_READ};
    OK(usm_buffer_fill(rig.q, &dst, &seven, sizeof seven, 0, NULL, NULL));
    check_ints(b, 0, 1000, 7);
    REFUSED(usm_buffer_fill(rig.q, &dst, &seven, 3, 0, NULL, NULL), USM_E_INVALID,
            "not a multiple");
    REFUSED(usm_buffer_fill(rig.q, &src, &seven, 4, 0, NULL, NULL), USM_E_INVALID, "mode");
    REFUSED(usm_buffer_fill(rig.q, NULL, &seven, 4, 0, NULL, NULL), USM_E_INVALID, "NULL");
    REFUSED(usm_buffer_copy(rig.q, &dst, &src, 0, NULL, NULL), USM_E_INVALID, "4000 bytes");
    dst = (usm_accessor){c, 1000, 2000, USM_WRITE};
    OK(usm_buffer_copy(rig.q, &dst, &src, 0, NULL, NULL));
    check_ints(c, 250, 500, 7);
    dst = (usm_accessor){b, 4, 2000, 0}; /* overlapping: as memmove() */
    OK(usm_buffer_copy(rig.q, &dst, &src, 0, NULL, NULL));
    check_ints(b, 0, 1000, 7);
    dst.offset = 3000;
    REFUSED(usm_buffer_copy(rig.q, &dst, &src, 0, NULL, NULL), USM_E_INVALID, "exceed the buffer");
    dst.offset = 0;
    dst.size   = 0;
    src.size   = 0;
    OK(usm_buffer_copy(rig.q, &dst, &src, 0, NULL, NULL));
    OK(usm_queue_wait(rig.q));
    usm_buffer_destroy(b);
    usm_buffer_destroy(c);
    end();
}

/* ---- small fills and copies -------------------------------------------------------- */

static uint64_t submitted(void)
{
    return usm_load_acquire(&rig.q->submitted);
}

static void check_bytes(usm_buffer *b, size_t size, char want)
{
    usm_access a;

    OK(usm_access_begin(b, 0, size, USM_READ, &a));
    for (size_t i = 0; i < size; i++)
        CHECK(((const char *)a.ptr)[i] == want);
    usm_access_end(&a);
}

/* Nothing of them is left to wait for, and the queue has not heard of them; of a large one, and of
 * one with an event, it has. */
static void small_fills_and_copies_are_done_by_their_caller(void)
{
    enum { SMALL = 16 * KIB, LARGE = 64 * KIB };
    usm_buffer  *b, *c;
    usm_event   *ev = NULL;
    usm_accessor to, from;

    begin();
    b    = buffer_of(LARGE);
    c    = buffer_of(SMALL);
    to   = (usm_accessor){b, 0, SMALL, USM_WRITE_NO_INIT};
    from = (usm_accessor){b, 0, SMALL, USM_READ};
    OK(usm_buffer_fill(rig.q, &to, "\7", 1, 0, NULL, NULL));
    check_bytes(b, SMALL, 7);
    to.buffer = c;
    OK(usm_buffer_copy(rig.q, &to, &from, 0, NULL, NULL));
    check_bytes(c, SMALL, 7);
    CHECK_INT(submitted(), has_copies() ? 2 : 0);
    OK(usm_buffer_fill(rig.q, &to, "\1\1\1", 2, 0, NULL, &ev));
    OK(usm_event_wait(ev));
    check_bytes(c, SMALL, 1);
    CHECK_INT(submitted(), has_copies() ? 3 : 1);
    OK(usm_queue_wait(rig.q));
    to = (usm_accessor){b, 0, LARGE, USM_WRITE_NO_INIT};
    OK(usm_buffer_fill(rig.q, &to, "\2", 1, 0, NULL, NULL));
    check_bytes(b, LARGE, 2);
    CHECK_INT(submitted(), has_copies() ? 4 : 2);
    usm_event_release(ev);
    usm_buffer_destroy(b);
    usm_buffer_destroy(c);
    end();
}

static usm_status wait_for_flag(void *flag)
{
    while (!atomic_load((atomic_bool *)flag))
        sched_yield();
    return USM_OK;
}

/* They come after what is before them in their queue, and after an open access of their bytes. */
static void small_fills_keep_their_order(void)
{
    static atomic_bool may_go;
    usm_buffer        *b;
    usm_access         a;
    usm_accessor       all;

    begin();
    atomic_store(&may_go, false);
    b   = buffer_of(KIB);
    all = (usm_accessor){b, 0, KIB, USM_WRITE_NO_INIT};
    OK(usm_access_begin(b, 0, KIB, USM_WRITE_NO_INIT, &a));
    memset(a.ptr, 1, KIB);
    OK(usm_buffer_fill(rig.q2, &all, "\2", 1, 0, NULL, NULL));
    CHECK_INT(*(char *)a.ptr, 1);
    usm_access_end(&a);
    check_bytes(b, KIB, 2);
    OK(usm_host_task(rig.q, wait_for_flag, &may_go, 0, NULL, NULL));
    OK(usm_buffer_fill(rig.q, &all, "\3", 1, 0, NULL, NULL));
    REFUSED(usm_access_begin(b, 0, KIB, USM_READ | USM_NO_WAIT, &a), USM_E_AGAIN, "not complete");
    atomic_store(&may_go, true);
    check_bytes(b, KIB, 3);
    OK(usm_queue_wait(rig.q));
    usm_buffer_destroy(b);
    end();
}

static void accessors_that_make_no_sense_are_refused(void)
{
    usm_buffer  *b;
    int          one = 1;
    usm_accessor a;
    usm_arg      args[2] = {USM_ARG_BUFFER(a), USM_ARG_VAL(one)};
    usm_launch   l       = USM_LAUNCH_INIT;

    begin();
    b           = buffer_of(400);
    l.kernel    = rig.add;
    l.global[0] = 100;
    l.nargs     = 2;
    l.args      = args;
    a           = (usm_accessor){b, 4, 400, USM_READ};
    REFUSED(usm_queue_submit(rig.q, &l, 0, NULL, NULL), USM_E_INVALID, "exceed the buffer");
    a = (usm_accessor){b, 0, 400, USM_READ | USM_NO_WAIT};
    REFUSED(usm_queue_submit(rig.q, &l, 0, NULL, NULL), USM_E_INVALID, "NO_WAIT");
    a = (usm_accessor){NULL, 0, 400, USM_READ};
    REFUSED(usm_queue_submit(rig.q, &l, 0, NULL, NULL), USM_E_INVALID_HANDLE, "buffer is NULL");
    args[0].size = 3;
    REFUSED(usm_queue_submit(rig.q, &l, 0, NULL, NULL), USM_E_ARGUMENTS, "no usm_accessor");
    args[0] = USM_ARG_BUFFER(a);
    args[1] = USM_ARG_BUFFER(a);
    REFUSED(usm_queue_submit(rig.q, &l, 0, NULL, NULL), USM_E_ARGUMENTS, "an accessor");
    usm_buffer_destroy(b);
    end();
}

static void a_failed_command_is_told_once_to_who_reads(void)
{
    usm_buffer *b;
    usm_event  *gate, *ev = NULL;
    usm_access  a;

    begin();
    b = buffer_of(4000);
    set_ints(b, 1000, 1);
    OK(usm_event_create(rig.ctx, &gate));
    OK(try_add(rig.q, b, 0, 100, 1, 1, &gate, &ev));
    OK(usm_event_signal(gate, USM_E_IO));
    CHECK(usm_event_wait(ev) < 0);
    REFUSED(usm_access_begin(b, 40, 8, USM_READ, &a), USM_E_DEPENDENCY, "failed");
    OK(usm_access_begin(b, 40, 8, USM_READ, &a));
    usm_access_end(&a);
    usm_event_release(ev);
    usm_event_release(gate);

    OK(usm_event_create(rig.ctx, &gate)); /* nobody has the event; then it is written anew */
    OK(try_add(rig.q, b, 0, 100, 1, 1, &gate, NULL));
    OK(usm_event_signal(gate, USM_E_IO));
    OK(usm_access_begin(b, 0, 4000, USM_WRITE_NO_INIT, &a));
    usm_access_end(&a);
    OK(usm_access_begin(b, 0, 4000, USM_READ, &a));
    usm_access_end(&a);
    for (int i = 0; i < 2000 && atomic_load(&rig.errors.n) == 0; i++)
        usleep(1000);
    CHECK_INT(rig.errors.n, 1);
    usm_event_release(gate);
    usm_buffer_destroy(b);
    end();
}

static void destroying_without_write_back_does_not_wait(void)
{
    usm_buffer *b;
    usm_event  *gate, *ev = NULL;

    begin();
    b = buffer_of(4000);
    set_ints(b, 1000, 1);
    OK(usm_event_create(rig.ctx, &gate));
    OK(try_add(rig.q, b, 0, 1000, 1, 1, &gate, &ev));
    usm_buffer_destroy(b);
    OK(usm_event_signal(gate, USM_OK));
    OK(usm_event_wait(ev));
    usm_event_release(ev);
    usm_event_release(gate);
    end();
}

static void a_context_may_go_before_its_buffers(void)
{
    usm_buffer *b;

    begin();
    b = buffer_of(4000);
    set_ints(b, 1000, 3);
    add(b, 0, 1000, 1);
    end();
    check_ints(b, 0, 1000, 4);
    usm_buffer_destroy(b);
}

/* ---- several at once, without waiting ------------------------------------------------------ */

static void many_accesses_are_all_or_none(void)
{
    usm_buffer      *b, *c;
    usm_buffer_range list[3];
    usm_access       accs[3];
    usm_event       *gate;

    begin();
    b       = buffer_of(4000);
    c       = buffer_of(8 * KIB * KIB);
    list[0] = (usm_buffer_range){b, 0, 4000, USM_WRITE_NO_INIT};
    list[1] = (usm_buffer_range){c, KIB, 4 * KIB * KIB, USM_WRITE_NO_INIT};
    list[2] = (usm_buffer_range){c, 0, 0, USM_READ};
    OK(usm_access_many(3, list, accs));
    memset(accs[0].ptr, 1, accs[0].size);
    memset(accs[1].ptr, 2, accs[1].size);
    CHECK_INT(accs[2].size, 0);
    for (int i = 0; i < 3; i++)
        usm_access_end(&accs[i]);
    OK(usm_event_create(rig.ctx, &gate));
    OK(try_add(rig.q, b, 0, 1000, 1, 1, &gate, NULL));
    list[1].mode = USM_READ | USM_NO_WAIT;
    list[0].mode = USM_READ | USM_NO_WAIT;
    REFUSED(usm_access_many(2, list, accs), USM_E_AGAIN, "not complete");
    OK(try_add(rig.q2, c, 0, 1000, 1, 0, NULL, NULL)); /* nothing of c was kept */
    OK(usm_queue_wait(rig.q2));
    OK(usm_event_signal(gate, USM_OK));
    list[2].size = 9 * KIB * KIB;
    REFUSED(usm_access_many(3, list, accs), USM_E_INVALID, "exceed the buffer");
    OK(usm_access_many(0, NULL, NULL));
    REFUSED(usm_access_many(1, NULL, NULL), USM_E_INVALID, "list"[0] ? "NULL" : "");
    OK(usm_queue_wait(rig.q));
    usm_event_release(gate);
    usm_buffer_destroy(b);
    usm_buffer_destroy(c);
    end();
}

static void an_access_without_waiting_is_complete_with_its_event(void)
{
    usm_buffer *b;
    usm_event  *gate, *ev = NULL, *late = NULL;
    usm_access  a;

    begin();
    b = buffer_of(4000);
    set_ints(b, 1000, 1);
    OK(usm_event_create(rig.ctx, &gate));
    OK(try_add(rig.q, b, 0, 1000, 1, 1, &gate, NULL));
    OK(usm_access_begin_async(b, 0, 4000, USM_READ, &a, &ev));
    CHECK_INT(usm_event_query(ev), USM_E_NOT_READY);
    OK(try_add(rig.q2, b, 0, 1000, 1, 0, NULL, &late)); /* comes after the access */
    OK(usm_event_signal(gate, USM_OK));
    OK(usm_event_wait(ev));
    CHECK_INT(((int *)a.ptr)[999], 2);
    CHECK_INT(usm_event_query(late), USM_E_NOT_READY);
    usm_access_end(&a);
    OK(usm_event_wait(late));
    check_ints(b, 0, 1000, 3);
    usm_event_release(ev);
    OK(usm_access_begin_async(b, 0, 0, USM_READ, &a, &ev));
    OK(usm_event_wait(ev));
    usm_access_end(&a);
    usm_event_release(ev);
    OK(usm_access_begin_async(b, 0, 4, USM_READ, &a, &ev));
    usm_access_end(&a); /* before its event */
    OK(usm_event_wait(ev));
    usm_event_release(ev);
    usm_event_release(late);
    usm_event_release(gate);
    usm_buffer_destroy(b);
    end();
}

static void advice_and_announcements_check_their_ranges(void)
{
    usm_buffer      *b;
    usm_event       *gate;
    usm_buffer_range r;
    usm_access       a;

    begin();
    b = buffer_of(4 * KIB * KIB);
    set_ints(b, KIB * KIB, 1);
    r = (usm_buffer_range){b, 0, 4 * KIB * KIB, 0};
    OK(usm_announce(1, &r));
    OK(usm_announce(0, NULL));
    r.size++;
    REFUSED(usm_announce(1, &r), USM_E_INVALID, "exceed the buffer");
    for (int i = USM_BUFFER_NORMAL; i <= USM_BUFFER_UNPIN; i++)
        OK(usm_buffer_advise(b, 0, KIB, (usm_buffer_advice)i));
    REFUSED(usm_buffer_advise(b, 0, 1, (usm_buffer_advice)99), USM_E_INVALID, "advice");
    OK(usm_event_create(rig.ctx, &gate));
    OK(usm_access_begin(b, KIB, KIB, USM_READ, &a));
    REFUSED(usm_buffer_advise(b, 0, 2 * KIB, USM_BUFFER_DISCARD), USM_E_BUSY, "accessed");
    OK(usm_buffer_advise(b, KIB * KIB, KIB * KIB, USM_BUFFER_DISCARD));
    usm_access_end(&a);
    CHECK(!is_tracked(b));
    OK(try_add(rig.q, b, 0, 10, 1, 1, &gate, NULL));
    REFUSED(usm_buffer_advise(b, 0, 4, USM_BUFFER_DISCARD), USM_E_BUSY, "command");
    OK(usm_event_signal(gate, USM_OK));
    OK(usm_queue_wait(rig.q));
    check_ints(b, 0, 10, 2);
    REFUSED(usm_buffer_commit(b), USM_E_NOT_SUPPORTED, "no file");
    usm_event_release(gate);
    usm_buffer_destroy(b);
    end();
}

/* More than memory holds, of a context of its own. */
static usm_buffer *fill_more_than_memory(usm_context **ctx)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_device      *dev  = NULL;
    usm_buffer      *b;
    usm_access       a;

    OK(usm_select_devices("host:*", &dev, 1, &desc.ndevices));
    desc.devices = &dev;
    OK(usm_context_create(&desc, ctx));
    b = usm_buffer_new(*ctx, 64 * KIB * KIB);
    CHECK(b != NULL);
    for (size_t at = 0; at < 64 * KIB * KIB; at += KIB * KIB) {
        OK(usm_access_begin(b, at, KIB * KIB, USM_WRITE_NO_INIT, &a));
        memset(a.ptr, (int)(at / KIB / KIB), a.size);
        usm_access_end(&a);
    }
    OK(usm_access_begin(b, 5 * KIB * KIB, 1, USM_READ, &a));
    CHECK_INT(*(char *)a.ptr, 5);
    usm_access_end(&a);
    return b;
}

static void use_buffers_in_a_child(void)
{
    usm_context *ctx = NULL, *childs = NULL;
    int          status = 0;
    usm_buffer  *b      = fill_more_than_memory(&ctx);
    pid_t        pid    = fork();

    if (pid == 0) {
        usm_buffer_destroy(fill_more_than_memory(&childs));
        usm_context_destroy(childs);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    usm_buffer_destroy(b);
    usm_context_destroy(ctx);
    _exit(0);
}

static void a_child_has_buffers_of_its_own(void)
{
    usm_buffer *b;
    int         status = 0;
    pid_t       pid;

    if (PLAIN_TSAN)
        return; /* the child's engine has threads */
    begin();
    b   = buffer_of(4000);
    pid = fork();
    if (pid == 0) {
        (void)alarm(60);
        OK(usm_config_set("memory_limit", "host:16M"));
        use_buffers_in_a_child();
    }
    CHECK(pid > 0);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
    usm_buffer_destroy(b);
    end();
}

static void a_child_is_told_that_it_has_no_buffers(void)
{
    usm_buffer *b;
    usm_access  a;
    pid_t       pid;
    int         status = 0;

    begin();
    b   = buffer_of(4000);
    pid = fork();
    if (pid == 0) {
        bool right = usm_access_begin(b, 0, 4, USM_READ, &a) == USM_E_FORKED;

        usm_buffer_destroy(b);
        _exit(right ? 0 : 1);
    }
    CHECK(pid > 0);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
    usm_buffer_destroy(b);
    end();
}

/* ---- threads ------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS  300

typedef struct worker {
    usm_buffer *b, *shared;
    unsigned    seed;
    long        added;
} worker;

/* Its own quarter of the shared buffer by host and commands in turn; now and then all of it is
 * read. */
static void *work(void *arg)
{
    worker    *w     = arg;
    usm_queue *q     = NULL;
    size_t     first = (size_t)w->seed * 1000;
    usm_access a[2];

    OK(usm_queue_create(rig.ctx, NULL, NULL, &q));
    for (int i = 0; i < ROUNDS; i++) {
        usm_buffer_range both[2] = {{w->shared, first * 4, 4000, USM_READ_WRITE},
                                    {w->b, 0, 4000, USM_READ_WRITE}};

        OK(try_add(q, w->shared, first, 1000, 1, 0, NULL, NULL));
        if (i % 3 == 0) {
            OK(usm_access_begin(w->shared, first * 4 + 4, 4, USM_READ_WRITE, &a[0]));
            (*(int *)a[0].ptr)++;
            usm_access_end(&a[0]);
        } else if (i % 3 == 1) {
            OK(usm_access_many(2, both, a));
            ((int *)a[0].ptr)[1]++;
            ((int *)a[1].ptr)[1]++;
            usm_access_end(&a[1]);
            usm_access_end(&a[0]);
        } else if (i % 30 == 2) {
            OK(usm_access_begin(w->shared, 0, THREADS * 4000, USM_READ, &a[0]));
            usm_access_end(&a[0]);
        }
    }
    OK(usm_queue_wait(q));
    usm_queue_destroy(q);
    return NULL;
}

static void threads_share_a_buffer_with_commands(void)
{
    worker      w[THREADS];
    pthread_t   threads[THREADS];
    usm_buffer *shared;

    begin();
    shared = buffer_of(THREADS * 4000);
    set_ints(shared, THREADS * 1000, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        w[i] = (worker){buffer_of(4000), shared, i, 0};
        set_ints(w[i].b, 1000, 0);
        CHECK_INT(pthread_create(&threads[i], NULL, work, &w[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < THREADS; i++) {
        check_ints(shared, i * 1000 + 2, 998, ROUNDS);
        check_ints(shared, i * 1000, 1, ROUNDS);
        check_ints(shared, i * 1000 + 1, 1, ROUNDS + 2 * ROUNDS / 3);
        check_ints(w[i].b, 1, 1, ROUNDS / 3);
        usm_buffer_destroy(w[i].b);
    }
    CHECK_INT(rig.errors.n, 0);
    usm_buffer_destroy(shared);
    end();
}

/* Accesses of the hit path race with the first command of a buffer, again and again. */
static void *touch(void *arg)
{
    worker    *w = arg;
    usm_access a;

    for (int i = 0; i < 20000; i++) {
        OK(usm_access_begin(w->shared, 0, 4, USM_READ_WRITE, &a));
        (*(int *)a.ptr)++;
        usm_access_end(&a);
    }
    return NULL;
}

static void hits_and_first_commands_see_each_other(void)
{
    worker     w = {0};
    pthread_t  thread;
    usm_event *ev = NULL;
    int        n  = 0;

    begin();
    w.shared = buffer_of(4000);
    set_ints(w.shared, 1000, 0);
    CHECK_INT(pthread_create(&thread, NULL, touch, &w), 0);
    for (; n < 500; n++) {
        OK(try_add(rig.q, w.shared, 0, 1, 1, 0, NULL,
                   &ev)); /* += 1 is lost if both do it at once */
        OK(usm_event_wait(ev));
        usm_event_release(ev);
        if (n % 8 == 0)
            sched_yield();
    }
    pthread_join(thread, NULL);
    check_ints(w.shared, 0, 1, 20000 + n);
    usm_buffer_destroy(w.shared);
    end();
}

static const plain_case cases[] = {
    CASE(descriptions_that_make_no_sense_are_refused),
    CASE(a_handle_that_was_destroyed_is_recognised),
    CASE(accesses_that_make_no_sense_are_refused),
    CASE(sizes_of_all_kinds_keep_what_is_written),
    CASE(one_thread_may_have_many_accesses_open),
    CASE(a_buffer_with_an_open_access_stays),
    CASE(sub_buffers_share_the_bytes_and_keep_the_parent),
    CASE(users_memory_is_used_in_place_and_final_when_destroyed),
    CASE(const_and_copied_data_are_only_read),
    CASE(final_data_gets_the_content_unless_it_is_not_wanted),
    CASE(commands_on_two_queues_follow_the_bytes),
    CASE(disjoint_ranges_run_in_parallel),
    CASE(the_host_waits_for_a_command_it_conflicts_with),
    CASE(every_sleeper_is_woken_for_its_own_command),
    CASE(a_command_waits_for_an_open_access_without_holding_its_caller),
    CASE(an_in_order_queue_keeps_its_order_behind_a_deferred_command),
    CASE(a_buffer_goes_back_to_the_hit_path),
    CASE(who_waits_for_the_user_keeps_nobody_from_other_bytes),
    CASE(fills_and_copies_check_their_ranges),
    CASE(small_fills_and_copies_are_done_by_their_caller),
    CASE(small_fills_keep_their_order),
    CASE(accessors_that_make_no_sense_are_refused),
    CASE(a_failed_command_is_told_once_to_who_reads),
    CASE(destroying_without_write_back_does_not_wait),
    CASE(a_context_may_go_before_its_buffers),
    CASE(many_accesses_are_all_or_none),
    CASE(an_access_without_waiting_is_complete_with_its_event),
    CASE(advice_and_announcements_check_their_ranges),
    CASE(a_child_is_told_that_it_has_no_buffers),
    CASE(a_child_has_buffers_of_its_own),
    CASE(threads_share_a_buffer_with_commands),
    CASE(hits_and_first_commands_see_each_other),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
