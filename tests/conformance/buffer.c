/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "buffer": buffers as arguments of kernels, in fills and in copies, on every device; the
 * order that follows from their ranges; the host's accesses among commands.  What is refused, and
 * all that needs no device, is tests/unit/test_buffer.c's. */
#include "common.h"

#include <pthread.h>

#define N 4096 /* floats of most buffers */

typedef struct bench {
    usm_program *program;
    usm_kernel  *axpy, *ids;
    usm_queue   *q2; /* another in-order one of the device                                       */
} bench;

static bench bench_new(const rig *r)
{
    bench b;

    b.program = program_new(r);
    b.axpy    = kernel_new(b.program, "axpy");
    b.ids     = kernel_new(b.program, "ids");
    b.q2      = queue_with(r, 0);
    return b;
}

static void bench_end(bench *b)
{
    usm_queue_destroy(b->q2);
    usm_kernel_destroy(b->ids);
    usm_kernel_destroy(b->axpy);
    usm_program_destroy(b->program);
}

static usm_buffer *buffer_new(const rig *r, size_t size)
{
    usm_buffer *b = usm_buffer_new(r->ctx, size);

    CHECK(b, "%s: a buffer of %zu bytes: %s", r->name, size, usm_last_error());
    return b;
}

static void set_all(usm_buffer *b, float value)
{
    usm_access a;
    float     *p;

    CHECK_OK(usm_access_begin(b, 0, usm_buffer_size(b), USM_WRITE_NO_INIT, &a));
    p = a.ptr;
    for (size_t i = 0; i < a.size / sizeof *p; i++)
        p[i] = value;
    usm_access_end(&a);
}

/* Floats [first, first + n) are all `want`. */
static void check_range(const rig *r, usm_buffer *b, size_t first, size_t n, float want,
                        const char *what)
{
    usm_access a;

    CHECK_OK(usm_access_begin(b, first * sizeof(float), n * sizeof(float), USM_READ, &a));
    for (size_t i = 0; i < n; i++)
        CHECK(((float *)a.ptr)[i] == want, "%s: %s: element %zu is %g, not %g", r->name, what,
              first + i, (double)((float *)a.ptr)[i], (double)want);
    usm_access_end(&a);
}

Test(buffer, sizes_beyond_the_address_space_are_refused)
{
    EACH_DEVICE (r) {
        const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4095, SIZE_MAX / 2, SIZE_MAX / 4 + 1};

        for (int i = 0; i < 4; i++)
            CHECK(!usm_buffer_new(r.ctx, sizes[i]) && usm_last_status() == USM_E_NO_MEMORY,
                  "%s: %zu bytes: %s", r.name, sizes[i], usm_last_error());
    }
}

typedef struct part {
    usm_buffer *buffer;
    size_t      first, n; /* floats */
} part;

/* y += x over n floats each. */
static usm_status try_add(const bench *b, usm_queue *q, part y, part x, size_t ndeps,
                          usm_event *const *deps, usm_event **ev)
{
    usm_accessor to     = {y.buffer, y.first * sizeof(float), y.n * sizeof(float), USM_READ_WRITE};
    usm_accessor from   = {x.buffer, x.first * sizeof(float), x.n * sizeof(float), USM_READ};
    float        one    = 1.0f;
    usm_arg      args[] = {USM_ARG_BUFFER(to), USM_ARG_BUFFER(from), USM_ARG_VAL(one)};
    usm_launch   l      = USM_LAUNCH_INIT;

    l.kernel    = b->axpy;
    l.global[0] = y.n;
    l.nargs     = 3;
    l.args      = args;
    return usm_queue_submit(q, &l, ndeps, deps, ev);
}

static void add(const bench *b, usm_queue *q, part y, part x)
{
    CHECK_OK(try_add(b, q, y, x, 0, NULL, NULL));
}

Test(buffer, a_kernel_gets_the_first_byte_of_each_range)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS))
            continue;
        bench        b      = bench_new(&r);
        usm_buffer  *buf    = buffer_new(&r, N * sizeof(int));
        int          ten    = 10;
        usm_accessor out    = {buf, 1000 * sizeof(int), 500 * sizeof(int), USM_WRITE};
        usm_arg      args[] = {USM_ARG_BUFFER(out), USM_ARG_VAL(ten)};
        usm_launch   l      = USM_LAUNCH_INIT;
        usm_access   a;
        CHECK_OK(usm_access_begin(buf, 0, N * sizeof(int), USM_WRITE_NO_INIT, &a));
        memset(a.ptr, 0xff, a.size);
        usm_access_end(&a);
        l.kernel    = b.ids;
        l.global[0] = 400;
        l.nargs     = 2;
        l.args      = args;
        CHECK_OK(usm_queue_submit(r.q, &l, 0, NULL, NULL));
        CHECK_OK(usm_access_begin(buf, 0, N * sizeof(int), USM_READ, &a));
        for (int i = 0; i < N; i++) {
            int want = i >= 1000 && i < 1400 ? i - 1000 + 10 : -1; /* the rest is kept */
            CHECK(((int *)a.ptr)[i] == want, "%s: element %d is %d, not %d", r.name, i,
                  ((int *)a.ptr)[i], want);
        }
        usm_access_end(&a);
        usm_buffer_destroy(buf);
        bench_end(&b);
    }
}

Test(buffer, commands_of_two_queues_follow_reads_and_writes)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS))
            continue;
        bench       b = bench_new(&r);
        usm_buffer *x = buffer_new(&r, N * sizeof(float)), *y = buffer_new(&r, N * sizeof(float));
        set_all(x, 1);
        set_all(y, 0);
        for (int i = 0; i < 12; i++) { /* x and y in turn: Fibonacci's numbers */
            add(&b, i % 2 ? r.q : b.q2, (part){i % 2 ? x : y, 0, N}, (part){i % 2 ? y : x, 0, N});
            if (i == 5)
                check_range(&r, y, 0, N, 8, "in the middle");
        }
        check_range(&r, y, 0, N, 144, "y");
        check_range(&r, x, 0, N, 233, "x");
        usm_buffer_destroy(x);
        usm_buffer_destroy(y);
        bench_end(&b);
    }
}

Test(buffer, disjoint_ranges_run_in_parallel)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS))
            continue;
        bench       b = bench_new(&r);
        usm_buffer *x = buffer_new(&r, N * sizeof(float)), *y = buffer_new(&r, N * sizeof(float));
        usm_event  *gate = gate_new(&r), *first = NULL, *second = NULL;
        set_all(x, 1);
        set_all(y, 0);
        CHECK_OK(try_add(&b, r.q, (part){y, 0, N / 2}, (part){x, 0, N / 2}, 1, &gate, &first));
        CHECK_OK(
            try_add(&b, b.q2, (part){y, N / 2, N / 2}, (part){x, N / 2, N / 2}, 0, NULL, &second));
        CHECK_OK(usm_event_wait(second));
        CHECK_IS(usm_event_query(first), USM_E_NOT_READY);
        check_range(&r, y, N / 2, N / 2, 1, "the half that may run");
        gate_open(gate);
        CHECK_OK(usm_event_wait(first));
        check_range(&r, y, 0, N, 1, "all");
        usm_event_release(first);
        usm_event_release(second);
        usm_event_release(gate);
        usm_buffer_destroy(x);
        usm_buffer_destroy(y);
        bench_end(&b);
    }
}

typedef struct reader {
    usm_buffer *b;
    float       seen;
    usm_status  status;
    atomic_int  began, done;
} reader;

static void *read_one(void *arg)
{
    reader    *it = arg;
    usm_access a;

    atomic_store(&it->began, 1);
    it->status = usm_access_begin(it->b, 0, sizeof(float), USM_READ, &a);
    if (it->status == USM_OK) {
        it->seen = *(float *)a.ptr;
        usm_access_end(&a);
    }
    atomic_store(&it->done, 1);
    return NULL;
}

Test(buffer, the_host_waits_for_the_commands_it_conflicts_with)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS))
            continue;
        bench       b = bench_new(&r);
        usm_buffer *x = buffer_new(&r, N * sizeof(float)), *y = buffer_new(&r, N * sizeof(float));
        usm_event  *gate = gate_new(&r);
        reader      c    = {.b = y};
        pthread_t   thread;
        usm_access  a;
        set_all(x, 1);
        set_all(y, 1);
        CHECK_OK(try_add(&b, r.q, (part){y, 0, 100}, (part){x, 0, 100}, 1, &gate, NULL));
        CHECK_IS(usm_access_begin(y, 0, 4, USM_READ | USM_NO_WAIT, &a), USM_E_AGAIN);
        check_range(&r, x, 0, N, 1, "what the command only reads");
        CHECK(!pthread_create(&thread, NULL, read_one, &c), "no thread");
        wait_until(&c.began, 1, "the reader");
        sleep_ms(20);
        CHECK(!atomic_load(&c.done), "%s: the access did not wait", r.name);
        gate_open(gate);
        pthread_join(thread, NULL);
        CHECK(!c.status && c.seen == 2, "%s: status %d, %g", r.name, c.status, (double)c.seen);
        usm_event_release(gate);
        usm_buffer_destroy(x);
        usm_buffer_destroy(y);
        bench_end(&b);
    }
}

Test(buffer, a_command_waits_for_an_open_access_and_its_caller_does_not)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS))
            continue;
        bench       b = bench_new(&r);
        usm_buffer *x = buffer_new(&r, N * sizeof(float)), *y = buffer_new(&r, N * sizeof(float)),
                   *z    = buffer_new(&r, N * sizeof(float));
        usm_event *ev[3] = {NULL, NULL, NULL};
        usm_access a;
        for (int round = 0; round < 3; round++) { /* y is fresh, then has been on the device */
            set_all(x, 1);
            set_all(y, 0);
            set_all(z, 0);
            CHECK_OK(usm_access_begin(y, 0, 40, USM_READ_WRITE, &a));
            CHECK_OK(try_add(&b, r.q, (part){y, 0, N / 2}, (part){x, 0, N / 2}, 0, NULL, &ev[0]));
            CHECK_OK(try_add(&b, r.q, (part){z, 0, N}, (part){x, 0, N}, 0, NULL, &ev[1]));
            CHECK_OK(
                try_add(&b, b.q2, (part){y, N / 2, N / 2}, (part){x, 0, N / 2}, 0, NULL, &ev[2]));
            CHECK_OK(usm_event_wait(ev[2])); /* other bytes */
            CHECK_IS(usm_event_query(ev[0]), USM_E_NOT_READY);
            CHECK_IS(usm_event_query(ev[1]), USM_E_NOT_READY); /* behind it in the queue */
            *(float *)a.ptr = 10;
            usm_access_end(&a);
            CHECK_OK(usm_queue_wait(r.q));
            CHECK_OK(usm_event_query(ev[0]));
            check_range(&r, y, 0, 1, 11, "what the host wrote before");
            check_range(&r, y, 1, N - 1, 1, "the rest");
            check_range(&r, z, 0, N, 1, "the command behind");
            for (int i = 0; i < 3; i++)
                usm_event_release(ev[i]);
        }
        usm_buffer_destroy(x);
        usm_buffer_destroy(y);
        usm_buffer_destroy(z);
        bench_end(&b);
    }
}

Test(buffer, fills_and_copies_are_commands_like_others)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS))
            continue;
        bench        b = bench_new(&r);
        usm_buffer  *x = buffer_new(&r, N * sizeof(float)), *y = buffer_new(&r, N * sizeof(float));
        float        two = 2, three[3] = {3, 3, 3};
        usm_accessor all_x = {x, 0, N * sizeof(float), USM_WRITE_NO_INIT},
                     odd = {y, 12, 3000, USM_WRITE}, src = {x, 4, 3000, USM_READ};
        set_all(y, 1);
        CHECK_OK(usm_buffer_fill(r.q, &all_x, &two, sizeof two, 0, NULL, NULL));
        add(&b, b.q2, (part){y, 0, N}, (part){x, 0, N});
        CHECK_OK(usm_buffer_fill(r.q, &odd, three, sizeof three, 0, NULL, NULL));
        check_range(&r, y, 0, 3, 3, "before the fill's range");
        check_range(&r, y, 3, 750, 3, "the fill's range");
        check_range(&r, y, 753, N - 753, 3, "behind it");
        CHECK_OK(usm_buffer_copy(b.q2, &odd, &src, 0, NULL, NULL));
        check_range(&r, y, 3, 750, 2, "the copy's range");
        check_range(&r, y, 753, N - 753, 3, "behind it");
        usm_buffer_destroy(x);
        usm_buffer_destroy(y);
        bench_end(&b);
    }
}

Test(buffer, users_memory_holds_the_result_when_the_buffer_is_gone)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS))
            continue;
        bench           b = bench_new(&r);
        float           data[N], out[N] = {0};
        usm_buffer     *x = buffer_new(&r, sizeof data), *y = NULL, *sub = NULL;
        usm_buffer_desc d = USM_BUFFER_DESC_INIT;
        for (int i = 0; i < N; i++)
            data[i] = (float)i;
        d.size      = sizeof data;
        d.host_data = data;
        set_all(x, 1);
        CHECK_OK(usm_buffer_create(r.ctx, &d, &y));
        CHECK_OK(usm_buffer_create_sub(y, 0, sizeof data / 2, &sub));
        CHECK_OK(usm_buffer_set_final_data(x, out));
        add(&b, r.q, (part){sub, 0, N / 2}, (part){x, 0, N / 2});
        add(&b, b.q2, (part){y, 0, N}, (part){x, 0, N});
        add(&b, b.q2, (part){x, 0, N}, (part){x, 0, N}); /* one range, read and written */
        usm_buffer_destroy(sub);
        usm_buffer_destroy(y);
        for (int i = 0; i < N; i++)
            CHECK(data[i] == (float)(i + (i < N / 2 ? 2 : 1)), "%s: element %d is %g", r.name, i,
                  (double)data[i]);
        usm_buffer_destroy(x);
        for (int i = 0; i < N; i++)
            CHECK(out[i] == 2, "%s: element %d of the final data is %g", r.name, i, (double)out[i]);
        bench_end(&b);
    }
}

Test(buffer, overlapping_accessors_of_one_kernel_see_the_same_bytes)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS))
            continue;
        bench       b = bench_new(&r);
        usm_buffer *x = buffer_new(&r, N * sizeof(float));
        set_all(x, 1);
        /* x[100 + i] += x[i] for i < 100: the ranges of 150 overlap, the elements do not. */
        usm_accessor to     = {x, 100 * sizeof(float), 100 * sizeof(float), USM_READ_WRITE};
        usm_accessor from   = {x, 0, 150 * sizeof(float), USM_READ};
        float        one    = 1.0f;
        usm_arg      args[] = {USM_ARG_BUFFER(to), USM_ARG_BUFFER(from), USM_ARG_VAL(one)};
        usm_launch   l      = USM_LAUNCH_INIT;
        l.kernel            = b.axpy;
        l.global[0]         = 100;
        l.nargs             = 3;
        l.args              = args;
        CHECK_OK(usm_queue_submit(r.q, &l, 0, NULL, NULL));
        check_range(&r, x, 0, 100, 1, "read");
        check_range(&r, x, 100, 100, 2, "written");
        check_range(&r, x, 200, N - 200, 1, "behind");
        usm_buffer_destroy(x);
        bench_end(&b);
    }
}

Test(buffer, a_buffer_is_used_by_two_devices_in_turn)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS))
            continue;
        bench            b    = bench_new(&r), h;
        usm_context_desc desc = USM_CONTEXT_DESC_INIT;
        usm_device      *dev  = NULL;
        rig              host = {.name = "host"};
        usm_buffer *x = buffer_new(&r, N * sizeof(float)), *y = buffer_new(&r, N * sizeof(float));
        CHECK_OK(usm_select_devices("host:*", &dev, 1, &desc.ndevices));
        desc.devices = &dev;
        CHECK_OK(usm_context_create(&desc, &host.ctx));
        CHECK_OK(usm_queue_create(host.ctx, dev, NULL, &host.q));
        host.dev = dev;
        h        = bench_new(&host);
        set_all(x, 1);
        set_all(y, 0);
        for (int i = 0; i < 10; i++)
            add(i % 2 ? &b : &h, i % 2 ? r.q : host.q, (part){y, 0, N}, (part){x, 0, N});
        check_range(&r, y, 0, N, 10, "both in turn");
        add(&b, r.q, (part){y, 0, N / 2}, (part){x, 0, N / 2});
        add(&h, host.q, (part){y, N / 2, N / 2}, (part){x, 0, N / 2});
        check_range(&r, y, 0, N, 11, "a half each");
        CHECK_OK(usm_queue_wait(host.q));
        CHECK_OK(usm_queue_wait(r.q));
        usm_buffer_destroy(x);
        usm_buffer_destroy(y);
        bench_end(&h);
        rig_end(&host);
        bench_end(&b);
    }
}

Test(buffer, a_failed_command_reaches_who_reads_its_bytes)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS))
            continue;
        bench       b = bench_new(&r);
        usm_buffer *x = buffer_new(&r, N * sizeof(float)), *y = buffer_new(&r, N * sizeof(float));
        usm_event  *gate = gate_new(&r), *ev = NULL;
        usm_access  a;
        set_all(x, 1);
        set_all(y, 0);
        CHECK_OK(try_add(&b, r.q, (part){y, 0, 10}, (part){x, 0, 10}, 1, &gate, &ev));
        CHECK_OK(usm_event_signal(gate, USM_E_IO));
        CHECK(usm_event_wait(ev) < 0, "%s: the command ran", r.name);
        CHECK_REFUSED(usm_access_begin(y, 0, 4, USM_READ, &a), USM_E_DEPENDENCY, "failed");
        check_range(&r, x, 0, N, 1, "what it only read");
        set_all(y, 5);
        check_range(&r, y, 0, N, 5, "written anew");
        usm_event_release(ev);
        usm_event_release(gate);
        usm_buffer_destroy(x);
        usm_buffer_destroy(y);
        bench_end(&b);
    }
}
