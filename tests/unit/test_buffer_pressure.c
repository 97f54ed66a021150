/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands over buffers that do not fit in memory together: of several queues, with accesses of the
 * host in between, all equal to doing one after the other; memory that is held by an access ends in
 * a failure that names it, not in a wait for ever.
 *
 * With USM_TEST_COPIES the host's device has memory of its own, as a GPU. */
#include "buffer/locations.h"

#include <plain.h>
#include <stdatomic.h>
#include <usm/usm.h>

#define MIB     ((size_t)1 << 20)
#define BUFFERS 40
#define INTS    (MIB / sizeof(unsigned) + 1000) /* of one: a little more than a block           */
#define QUEUES  4
#define STEPS   400
#define SEEDS   4

#define OK(call) expect((call), USM_OK, __FILE__, __LINE__)

static void expect(usm_status got, usm_status want, const char *file, int line)
{
    if (got != want) {
        printf("# %s, not %s: %s\n", usm_status_name(got), usm_status_name(want), usm_last_error());
        plain_fail(file, line, "the status");
    }
}

static uint64_t seed;

static unsigned pick(unsigned n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(seed >> 33) % n;
}

/* args: unsigned *y, const unsigned *x */
static void mix_range(const usm_range *r, void *const *args)
{
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        (*(unsigned **)args[0])[i] = (*(unsigned **)args[0])[i] * 3 + (*(unsigned **)args[1])[i];
}

static const usm_arg_kind      mix_kinds[] = {USM_ARG_POINTER, USM_ARG_POINTER};
static const usm_native_kernel natives[]   = {{"mix", mix_range, 2, mix_kinds}};

static struct {
    usm_context *ctx;
    usm_queue   *q[QUEUES];
    usm_kernel  *mix;
    usm_buffer  *b[BUFFERS];
    unsigned     value[BUFFERS]; /* of all elements but the first: the model                      */
    unsigned     first[BUFFERS];
} rig;

static void begin(void)
{
    usm_context_desc desc    = USM_CONTEXT_DESC_INIT;
    usm_device      *dev     = NULL;
    usm_image        image   = {USM_IMAGE_NATIVE, natives, sizeof natives};
    usm_program_desc pd      = USM_PROGRAM_DESC_INIT;
    usm_program     *program = NULL;

    OK(usm_config_set("memory_limit", getenv("USM_TEST_COPIES") ? "host:24M" : "host:12M"));
    OK(usm_config_set("spill_wait", "100"));
    usm__locations_force_copies(getenv("USM_TEST_COPIES") != NULL);
    OK(usm_select_devices("host:*", &dev, 1, &desc.ndevices));
    desc.devices = &dev;
    OK(usm_context_create(&desc, &rig.ctx));
    for (int i = 0; i < QUEUES; i++)
        OK(usm_queue_create(rig.ctx, NULL, NULL, &rig.q[i]));
    pd.nimages = 1;
    pd.images  = &image;
    OK(usm_program_create(rig.ctx, &pd, &program));
    OK(usm_kernel_create(program, "mix", &rig.mix));
    usm_program_destroy(program);
    for (unsigned i = 0; i < BUFFERS; i++) {
        usm_accessor a = {0};

        rig.b[i] = usm_buffer_new(rig.ctx, INTS * sizeof(unsigned));
        CHECK(rig.b[i] != NULL);
        rig.value[i] = rig.first[i] = i;
        a = (usm_accessor){rig.b[i], 0, INTS * sizeof(unsigned), USM_WRITE_NO_INIT};
        OK(usm_buffer_fill(rig.q[i % QUEUES], &a, &i, sizeof i, 0, NULL, NULL));
    }
}

static void end(void)
{
    for (int i = 0; i < BUFFERS; i++)
        usm_buffer_destroy(rig.b[i]);
    usm_kernel_destroy(rig.mix);
    for (int i = 0; i < QUEUES; i++)
        usm_queue_destroy(rig.q[i]);
    usm_context_destroy(rig.ctx);
}

static usm_status try_mix(usm_queue *q, usm_buffer *y, usm_buffer *x, usm_event **ev)
{
    usm_accessor to     = {y, 0, INTS * sizeof(unsigned), USM_READ_WRITE};
    usm_accessor from   = {x, 0, INTS * sizeof(unsigned), USM_READ};
    usm_arg      args[] = {USM_ARG_BUFFER(to), USM_ARG_BUFFER(from)};
    usm_launch   l      = USM_LAUNCH_INIT;

    l.kernel    = rig.mix;
    l.global[0] = INTS;
    l.nargs     = 2;
    l.args      = args;
    return usm_queue_submit(q, &l, 0, NULL, ev);
}

static void check(unsigned i)
{
    usm_access a;
    unsigned  *p;

    OK(usm_access_begin(rig.b[i], 0, INTS * sizeof(unsigned), USM_READ, &a));
    p = a.ptr;
    if (p[0] != rig.first[i])
        CHECK_INT(p[0], rig.first[i]);
    for (size_t k = 1; k < INTS; k++)
        if (p[k] != rig.value[i]) {
            printf("# buffer %u, element %zu\n", i, k);
            CHECK_INT(p[k], rig.value[i]);
        }
    usm_access_end(&a);
}

static void mix(unsigned y, unsigned x)
{
    OK(try_mix(rig.q[pick(QUEUES)], rig.b[y], rig.b[x], NULL));
    rig.value[y] = rig.value[y] * 3 + rig.value[x];
    rig.first[y] = rig.first[y] * 3 + rig.first[x];
}

/* The host's turn: the first element, while commands for the same bytes queue up behind it. */
static void touch(unsigned i)
{
    usm_access a;

    OK(usm_access_begin(rig.b[i], 0, sizeof(unsigned), USM_READ_WRITE, &a));
    CHECK_INT(*(unsigned *)a.ptr, rig.first[i]);
    ++*(unsigned *)a.ptr;
    rig.first[i]++;
    for (unsigned k = pick(3); k > 0; k--)
        mix(pick(2) ? i : pick(BUFFERS), pick(BUFFERS));
    usm_access_end(&a);
}

static void commands_beyond_memory_equal_serial_execution(void)
{
    for (unsigned s = 1; s <= SEEDS; s++) {
        seed = s;
        begin();
        for (int step = 0; step < STEPS; step++) {
            unsigned what = pick(16);

            if (what == 0)
                check(pick(BUFFERS));
            else if (what <= 2)
                touch(pick(BUFFERS));
            else
                mix(pick(BUFFERS), pick(BUFFERS));
        }
        for (unsigned i = 0; i < BUFFERS; i++)
            check(i);
        end();
    }
}

/* Everything at once is held by the host: what needs memory fails and says so. */
static void memory_that_is_held_is_an_answer_and_no_wait_for_ever(void)
{
    usm_event *ev = NULL;
    usm_access a[BUFFERS];
    unsigned   n = 0;
    usm_status st;

    begin();
    for (int i = 0; i < QUEUES; i++)
        OK(usm_queue_wait(rig.q[i]));
    for (st = USM_OK; st == USM_OK && n < BUFFERS; n += st == USM_OK)
        st = usm_access_begin(rig.b[n], 0, INTS * sizeof(unsigned), USM_READ, &a[n]);
    CHECK(n > 0 && n < BUFFERS);
    expect(st, USM_E_AGAIN, __FILE__, __LINE__);
    CHECK_IN("held", usm_last_error());
    if (!getenv("USM_TEST_COPIES")) {
        OK(try_mix(rig.q[0], rig.b[BUFFERS - 1], rig.b[BUFFERS - 2], &ev));
        expect(usm_event_wait(ev), USM_E_AGAIN, __FILE__, __LINE__);
        usm_event_release(ev);
    }
    while (n > 0)
        usm_access_end(&a[--n]);
    end();
}

/* ---- a task that needs memory ---------------------------------------------------------------- */

enum { SIZE = 65536 };

static struct {
    usm_context  *ctx;
    usm_queue    *q[3];
    _Atomic(bool) goes;
    size_t        given;
} lone;

static usm_status make_room(void *unused)
{
    (void)unused;
    while (!atomic_load(&lone.goes))
        usleep(1000);
    /* Whoever hears that the fill of `idle` has ended may not have come to its extent yet. */
    while (lone.given < SIZE) {
        lone.given += usm__locations_give_back(lone.ctx, usm_queue_get_device(lone.q[0]), SIZE);
        usleep(1000);
    }
    return USM_OK;
}

static usm_buffer *make_buffer(bool is_on_device)
{
    usm_buffer        *b    = usm_buffer_new(lone.ctx, SIZE);
    const usm_accessor all  = {b, 0, SIZE, USM_WRITE_NO_INIT};
    const char         byte = 1;
    usm_access         a;

    CHECK(b != NULL);
    if (is_on_device) {
        OK(usm_buffer_fill(lone.q[0], &all, &byte, 1, 0, NULL, NULL));
        OK(usm_queue_wait(lone.q[0]));
    } else {
        OK(usm_access_begin(b, 0, SIZE, USM_WRITE_NO_INIT, &a));
        memset(a.ptr, 1, SIZE);
        usm_access_end(&a);
    }
    return b;
}

static void copy_part(usm_queue *q, usm_buffer *to, usm_buffer *from, size_t begin, size_t end)
{
    usm_accessor dst = {to, 0, end - begin, USM_WRITE}, src = {from, begin, end - begin, USM_READ};

    OK(usm_buffer_copy(q, &dst, &src, 0, NULL, NULL));
}

/* The first copy's bytes reach the device behind the fill, which waits for the task; the second
 * one's come from there.  That must hold up nothing that takes other bytes from the device. */
static void a_task_gets_memory_while_commands_wait_for_it(void)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_device      *dev  = NULL;
    usm_buffer      *idle, *used, *to[2];
    const char       byte = 2;
    usm_accessor     first;

    OK(usm_config_set("memory_limit", "auto"));
    OK(usm_select_devices("host:*", &dev, 1, &desc.ndevices));
    desc.devices = &dev;
    OK(usm_context_create(&desc, &lone.ctx));
    usm__locations_force_copies(true);
    for (int i = 0; i < 3; i++)
        OK(usm_queue_create(lone.ctx, NULL, NULL, &lone.q[i]));
    idle  = make_buffer(true);
    used  = make_buffer(false);
    to[0] = usm_buffer_new(lone.ctx, SIZE);
    to[1] = usm_buffer_new(lone.ctx, SIZE);
    CHECK(to[0] && to[1]);
    first = (usm_accessor){used, 0, 100, USM_WRITE};
    OK(usm_host_task(lone.q[0], make_room, NULL, 0, NULL, NULL));
    OK(usm_buffer_fill(lone.q[0], &first, &byte, 1, 0, NULL, NULL));
    copy_part(lone.q[1], to[0], used, 0, 4096);
    copy_part(lone.q[2], to[1], used, 1000, 8192);
    atomic_store(&lone.goes, true);
    (void)alarm(60);
    for (int i = 0; i < 3; i++)
        OK(usm_queue_wait(lone.q[i]));
    (void)alarm(0);
    CHECK(lone.given >= SIZE);
    usm_buffer_destroy(idle);
    usm_buffer_destroy(used);
    usm_buffer_destroy(to[0]);
    usm_buffer_destroy(to[1]);
    for (int i = 0; i < 3; i++)
        usm_queue_destroy(lone.q[i]);
    usm_context_destroy(lone.ctx);
}

static const plain_case cases[] = {
    CASE(commands_beyond_memory_equal_serial_execution),
    CASE(memory_that_is_held_is_an_answer_and_no_wait_for_ever),
    CASE(a_task_gets_memory_while_commands_wait_for_it),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
