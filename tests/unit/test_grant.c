/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* When commands over buffers get their memory (src/buffer/grant.c), case by case: what once waited
 * in a circle, what never fits, what waits for the program and is told so.
 * tests/spill/grant_model.c tries at random. */
#include <plain.h>
#include <unistd.h>
#include <usm/usm.h>

#define KIB ((size_t)1 << 10)
#define MIB (KIB << 10)

#define OK(call) expect((call), USM_OK, __FILE__, __LINE__)

static void expect(usm_status got, usm_status want, const char *file, int line)
{
    if (got != want) {
        printf("# %s, not %s: %s\n", usm_status_name(got), usm_status_name(want), usm_last_error());
        plain_fail(file, line, "the status");
    }
}

static struct {
    usm_context *ctx;
    usm_queue   *q, *free_order;
} rig;

static void begin(void)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_queue_desc   out  = {sizeof out, USM_QUEUE_OUT_OF_ORDER};
    usm_device      *dev  = NULL;

    OK(usm_config_set("memory_limit", "host:4M"));
    OK(usm_config_set("queue_wait", "100"));
    OK(usm_select_devices("host:*", &dev, 1, &desc.ndevices));
    desc.devices = &dev;
    OK(usm_context_create(&desc, &rig.ctx));
    OK(usm_queue_create(rig.ctx, NULL, NULL, &rig.q));
    OK(usm_queue_create(rig.ctx, NULL, &out, &rig.free_order));
}

static void end(void)
{
    usm_queue_destroy(rig.free_order);
    usm_queue_destroy(rig.q);
    usm_context_destroy(rig.ctx);
}

/* 4 MiB, of which each 64 KiB hold their number. */
static usm_buffer *buffer_of_4m(const char *name)
{
    usm_buffer_desc desc = USM_BUFFER_DESC_INIT;
    usm_buffer     *b    = NULL;
    usm_access      a;

    desc.size = 4 * MIB;
    desc.name = name;
    OK(usm_buffer_create(rig.ctx, &desc, &b));
    for (size_t at = 0; at < 4 * MIB; at += 64 * KIB) {
        OK(usm_access_begin(b, at, 64 * KIB, USM_WRITE_NO_INIT, &a));
        memset(a.ptr, (int)(at / (64 * KIB)), a.size);
        usm_access_end(&a);
    }
    return b;
}

static usm_status copy(usm_queue *q, usm_buffer *to, size_t dst, usm_buffer *from, size_t src,
                       size_t size)
{
    usm_accessor t = {to, dst, size, USM_WRITE}, f = {from, src, size, USM_READ};

    return usm_buffer_copy(q, &t, &f, 0, NULL, NULL);
}

static unsigned byte_at(usm_buffer *b, size_t at)
{
    usm_access a;
    unsigned   byte;

    OK(usm_access_begin(b, at, 1, USM_READ, &a));
    byte = *(unsigned char *)a.ptr;
    usm_access_end(&a);
    return byte;
}

/* ---- what once waited in a circle ---------------------------------------------------------- */

static usm_status do_nothing(void *user)
{
    (void)user;
    return USM_OK;
}

/* Each copy stands behind those before it by the queue alone, and memory is for some of them. */
static void copies_with_something_between(usm_queue *q, bool with_tasks)
{
    usm_buffer *b[2] = {buffer_of_4m("first"), buffer_of_4m("second")};
    unsigned    seed = 1;

    for (int i = 0; i < 60; i++) {
        unsigned to = (seed = seed * 1103515245 + 12345) >> 16 & 1;
        size_t   at = 256 * KIB * (seed >> 17 & 15), from = 256 * KIB * (seed >> 21 & 15);

        OK(copy(q, b[to], at, b[1 - to], from, 256 * KIB));
        if (with_tasks)
            OK(usm_host_task(q, do_nothing, NULL, 0, NULL, NULL));
        else
            OK(usm_queue_barrier(q, 0, NULL, NULL));
    }
    OK(usm_queue_wait(q));
    usm_buffer_destroy(b[0]);
    usm_buffer_destroy(b[1]);
}

static void run_copies_behind_each_other(void)
{
    begin();
    copies_with_something_between(rig.free_order, false);
    copies_with_something_between(rig.free_order, true);
    copies_with_something_between(rig.q, true);
    end();
}

static void copies_behind_each_other_by_their_queue_end(void)
{
    CHECK_INT(plain_child(run_copies_behind_each_other, NULL), 0);
}

/* Copies of one queue, each behind one of another by a barrier. */
static void run_copies_across_queues(void)
{
    usm_queue  *other = NULL;
    usm_buffer *b, *c;

    begin();
    b = buffer_of_4m("first");
    c = buffer_of_4m("second");
    OK(usm_queue_create(rig.ctx, NULL, NULL, &other));
    for (size_t i = 0; i < 100; i++) {
        size_t       at = i % 4 * MIB;
        usm_accessor to = {c, at, MIB, USM_WRITE}, from = {b, at, MIB, USM_READ};
        usm_event   *ev = NULL;

        OK(usm_buffer_copy(rig.q, &to, &from, 0, NULL, &ev));
        OK(usm_queue_barrier(other, 1, &ev, NULL));
        OK(copy(other, c, (at + MIB) % (4 * MIB), b, (at + MIB) % (4 * MIB), MIB));
        usm_event_release(ev);
    }
    OK(usm_queue_wait(other));
    OK(usm_queue_wait(rig.q));
    CHECK_INT(byte_at(c, 3 * MIB), 48);
    usm_queue_destroy(other);
    usm_buffer_destroy(b);
    usm_buffer_destroy(c);
    end();
}

static void copies_behind_each_other_across_queues_end(void)
{
    CHECK_INT(plain_child(run_copies_across_queues, NULL), 0);
}

/* What waits for the program has no memory, so that the program gets some. */
static void run_behind_an_event_of_the_program(void)
{
    usm_buffer *b, *c;
    usm_event  *gate = NULL;

    begin();
    b = buffer_of_4m("first");
    c = buffer_of_4m("second");
    OK(usm_event_create(rig.ctx, &gate));
    OK(usm_queue_barrier(rig.q, 1, &gate, NULL));
    for (size_t i = 0; i < 4; i++)
        OK(copy(rig.q, c, i * MIB, b, (3 - i) * MIB, MIB));
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(byte_at(b, i * MIB), i * 16);
    OK(copy(rig.free_order, b, 0, b, 2 * MIB, MIB)); /* waits for a copy: it reads the bytes */
    OK(usm_event_signal(gate, USM_OK));
    OK(usm_queue_wait(rig.q));
    OK(usm_queue_wait(rig.free_order));
    CHECK_INT(byte_at(c, 0), 48);
    CHECK_INT(byte_at(b, 0), 32);
    usm_event_release(gate);
    usm_buffer_destroy(b);
    usm_buffer_destroy(c);
    end();
}

static void what_waits_for_the_program_holds_no_memory(void)
{
    CHECK_INT(plain_child(run_behind_an_event_of_the_program, NULL), 0);
}

/* ---- what never fits ------------------------------------------------------------------------ */

static void run_too_much(void)
{
    usm_buffer *b, *c;

    begin();
    b = buffer_of_4m("first");
    c = buffer_of_4m("second");
    expect(copy(rig.q, c, 0, b, 0, 3 * MIB), USM_E_BUDGET, __FILE__, __LINE__);
    CHECK_IN("access less at a time", usm_last_error());
    CHECK_INT(byte_at(c, 2 * MIB), 32); /* it was not touched, and is not lost */
    OK(copy(rig.q, c, 0, b, MIB, MIB));
    OK(usm_queue_wait(rig.q));
    CHECK_INT(byte_at(c, 0), 16);
    usm_buffer_destroy(b);
    usm_buffer_destroy(c);
    end();
}

static void a_command_that_never_fits_is_refused_at_once(void)
{
    CHECK_INT(plain_child(run_too_much, NULL), 0);
}

/* ---- what is told ---------------------------------------------------------------------------- */

static void run_behind_own_access(void)
{
    usm_buffer *b, *c;
    usm_access  a;

    begin();
    b = buffer_of_4m("mine");
    c = buffer_of_4m("other");
    OK(usm_access_begin(b, 0, MIB, USM_READ_WRITE, &a));
    OK(copy(rig.q, c, 0, b, 0, MIB));
    (void)alarm(1);
    (void)usm_queue_wait(rig.q); /* never returns */
}

static void who_waits_behind_his_own_access_is_warned(void)
{
    const char *errors = plain_path("errors");
    char        text[4096];
    int         status = plain_child(run_behind_own_access, errors);

    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
    CHECK_IN("access to buffer \"mine\" that this thread has open",
             plain_read(errors, text, sizeof text));
    CHECK_IN("have not moved for 100 ms", text);
    CHECK_IN("an open access of the host to buffer \"mine\"", text);
}

static void run_behind_a_gate(void)
{
    usm_buffer *b, *c;
    usm_event  *gate = NULL;

    begin();
    b = buffer_of_4m("first");
    c = buffer_of_4m("second");
    OK(usm_event_create(rig.ctx, &gate));
    OK(usm_queue_barrier(rig.q, 1, &gate, NULL));
    OK(copy(rig.q, c, 0, b, 0, MIB));
    (void)usleep(400000);
    OK(usm_event_signal(gate, USM_OK));
    OK(usm_queue_wait(rig.q));
    usm_event_release(gate);
    usm_buffer_destroy(b);
    usm_buffer_destroy(c);
    end();
}

static void what_does_not_move_is_told(void)
{
    const char *errors = plain_path("errors");
    char        text[4096];

    CHECK_INT(plain_child(run_behind_a_gate, errors), 0);
    CHECK_IN("have not moved for 100 ms", plain_read(errors, text, sizeof text));
    CHECK_IN("a command over buffer \"second\", buffer \"first\" waits for what is before it in "
             "its queue",
             text);
}

static const plain_case cases[] = {
    CASE(copies_behind_each_other_by_their_queue_end),
    CASE(copies_behind_each_other_across_queues_end),
    CASE(what_waits_for_the_program_holds_no_memory),
    CASE(a_command_that_never_fits_is_refused_at_once),
    CASE(who_waits_behind_his_own_access_is_warned),
    CASE(what_does_not_move_is_told),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
