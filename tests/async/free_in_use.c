/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* USM_VALIDATION=1 names the free of a block that queued work uses, by queue and command, and keeps
 * the block until that work has ended; it says nothing of a free that comes behind a wait.  Queues
 * are held by user events. */
#include "../spill/mix.h"
#include "plain.h"

#include <usm/usm.h>

#include <time.h>

enum { SIZE = 4096 };

static struct {
    usm_context *ctx;
    usm_queue   *q;
    usm_program *program;
    usm_kernel  *mix;
    char         log[512], text[8192];
} t;

static void must(usm_status st)
{
    if (st != USM_OK)
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    CHECK_INT(st, USM_OK);
}

static const char *log_text(void)
{
    return plain_read(t.log, t.text, sizeof t.text);
}

static void open_all(void)
{
    FILE *empty = fopen(t.log, "we");

    CHECK(empty != NULL);
    CHECK(fclose(empty) == 0);
    must(usm_context_create(NULL, &t.ctx));
    must(usm_queue_create(t.ctx, NULL, NULL, &t.q));
    must(mix_create(t.ctx, &t.program, &t.mix));
}

static void close_all(void)
{
    usm_kernel_destroy(t.mix);
    usm_program_destroy(t.program);
    usm_queue_destroy(t.q);
    usm_context_destroy(t.ctx);
}

static usm_event *hold(void)
{
    usm_event *gate = NULL;

    must(usm_event_create(t.ctx, &gate));
    must(usm_queue_barrier(t.q, 1, &gate, NULL));
    return gate;
}

static void *block(void)
{
    void *p = usm_malloc_shared(SIZE, t.q);

    CHECK(p != NULL);
    memset(p, 0, SIZE);
    return p;
}

static bool goes_within_ten_seconds(const void *p)
{
    for (int i = 0; i < 5000 && usm_get_pointer_type(p, t.ctx) != USM_UNKNOWN; i++)
        (void)nanosleep(&(struct timespec){0, 2000000}, NULL);
    return usm_get_pointer_type(p, t.ctx) == USM_UNKNOWN;
}

/* p was freed and is named with the command `what`; it goes when the gate opens. */
static void check_named_and_kept(const void *p, usm_event *gate, const char *what)
{
    char address[64];

    (void)snprintf(address, sizeof address, "the block %p", p);
    CHECK_IN(address, usm_last_error());
    CHECK_IN(what, usm_last_error());
    CHECK_IN("of queue ", usm_last_error());
    CHECK_IN(address, log_text());
    CHECK_INT(usm_get_pointer_type(p, t.ctx), USM_SHARED);
    must(usm_event_signal(gate, USM_OK));
    usm_event_release(gate);
    CHECK(goes_within_ten_seconds(p));
}

static void a_free_of_a_block_that_a_fill_uses_is_named(void)
{
    usm_event *gate;
    void      *p;

    open_all();
    p    = block();
    gate = hold();
    must(usm_memset(t.q, p, 1, SIZE, 0, NULL, NULL));
    must(usm_free_ctx(p, t.ctx));
    check_named_and_kept(p, gate, "fill ");
    close_all();
}

static void a_free_of_a_block_that_a_copy_reads_is_named(void)
{
    usm_event *gate;
    void      *p, *r;

    open_all();
    p    = block();
    r    = block();
    gate = hold();
    must(usm_memcpy(t.q, r, p, SIZE, 0, NULL, NULL));
    must(usm_free_ctx(p, t.ctx));
    check_named_and_kept(p, gate, "copy ");
    must(usm_queue_wait(t.q));
    usm_free(r);
    close_all();
}

static void launch(const void *dst, const void *src, const void *const *indirect, size_t n)
{
    uint32_t   value  = 1;
    usm_arg    args[] = {USM_ARG_PTR(dst), USM_ARG_PTR(src), USM_ARG_VAL(value)};
    usm_launch l      = USM_LAUNCH_INIT;

    l.kernel    = t.mix;
    l.dims      = 1;
    l.global[0] = SIZE;
    l.nargs     = 3;
    l.args      = args;
    l.indirect  = indirect;
    l.nindirect = n;
    must(usm_queue_submit(t.q, &l, 0, NULL, NULL));
}

static void a_free_of_an_argument_is_named(void)
{
    usm_event *gate;
    void      *p, *r;

    open_all();
    p    = block();
    r    = block();
    gate = hold();
    launch(r, p, NULL, 0);
    must(usm_free_ctx(p, t.ctx));
    check_named_and_kept(p, gate, "launch ");
    must(usm_queue_wait(t.q));
    usm_free(r);
    close_all();
}

static void a_free_of_an_indirect_pointer_is_named(void)
{
    const void *indirect[1];
    usm_event  *gate;
    char       *p;
    void       *r;

    open_all();
    p           = block();
    r           = block();
    indirect[0] = p + 100; /* the block counts */
    gate        = hold();
    launch(r, r, indirect, 1);
    must(usm_free_ctx(p, t.ctx));
    check_named_and_kept(p, gate, "launch ");
    must(usm_queue_wait(t.q));
    usm_free(r);
    close_all();
}

static void a_free_behind_a_wait_is_nobodys_business(void)
{
    usm_event *ev = NULL;
    void      *p;

    open_all();
    for (int i = 0; i < 3; i++) {
        p = block();
        must(usm_memset(t.q, p, 1, SIZE, 0, NULL, &ev));
        if (i == 0)
            must(usm_queue_wait(t.q));
        else if (i == 1)
            must(usm_event_wait(ev));
        usm_event_release(ev);
        ev = NULL;
        if (i == 2)
            must(usm_free_blocking(p, t.ctx));
        else
            must(usm_free_ctx(p, t.ctx));
        CHECK_INT(usm_get_pointer_type(p, t.ctx), USM_UNKNOWN);
    }
    CHECK_STR(log_text(), "");
    close_all();
}

static void a_free_in_queue_order_is_lawful(void)
{
    usm_event *gate;
    void      *p;

    open_all();
    gate = hold();
    p    = usm_async_malloc(t.q, USM_DEVICE, SIZE);
    CHECK(p != NULL);
    must(usm_memset(t.q, p, 1, SIZE, 0, NULL, NULL));
    must(usm_async_free(t.q, p));
    must(usm_event_signal(gate, USM_OK));
    usm_event_release(gate);
    must(usm_queue_wait(t.q));
    CHECK_STR(log_text(), "");
    close_all();
}

static const plain_case cases[] = {
    CASE(a_free_of_a_block_that_a_fill_uses_is_named),
    CASE(a_free_of_a_block_that_a_copy_reads_is_named),
    CASE(a_free_of_an_argument_is_named),
    CASE(a_free_of_an_indirect_pointer_is_named),
    CASE(a_free_behind_a_wait_is_nobodys_business),
    CASE(a_free_in_queue_order_is_lawful),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    char log[600];

    (void)alarm(100);
    (void)snprintf(t.log, sizeof t.log, "%s", plain_path("log"));
    (void)snprintf(log, sizeof log, "level:error;output:%s", t.log);
    if (usm_config_set("validation", "1") != USM_OK || usm_config_set("log", log) != USM_OK)
        return 1;
    return plain_main(argc, argv, cases);
}
