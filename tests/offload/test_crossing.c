/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Threads that submit commands over the same buffers at the same moment: whatever order they come
 * in, it is one order, in the buffers and in the queues.  Where it is not, commands wait for each
 * other for good, or run together: a case then hangs, or finds what was half written.
 *
 * Over a driver a command takes fifty times as long as over the host, and threads meet as often in
 * 248 of them as there; with USM_TEST_LONG=1 it is 1000 everywhere. */
#include "plain.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <usm/usm.h>

enum { MOST = PLAIN_SANITIZED ? 300 : 1000, THREADS = 4, WORDS = 8, CELL = WORDS * 8 };

static unsigned many = MOST; /* commands of a thread, a multiple of 4 */

static struct {
    usm_context *ctx;
    usm_queue   *q, *second; /* both in order */
    usm_queue   *free_order; /* or the second, where there are none */
    usm_buffer  *b;          /* a cell that is shared by all, one a thread */
} t;

static void must(usm_status st)
{
    if (st != USM_OK)
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    CHECK_INT(st, USM_OK);
}

static void open_all(void)
{
    usm_queue_desc d      = USM_QUEUE_DESC_INIT;
    uint64_t       nought = 0;
    usm_accessor   all;

    d.flags = USM_QUEUE_OUT_OF_ORDER;
    must(usm_context_create(NULL, &t.ctx));
    must(usm_queue_create(t.ctx, NULL, NULL, &t.q));
    must(usm_queue_create(t.ctx, NULL, NULL, &t.second));
    t.free_order = t.second;
    if (usm_device_has(usm_queue_get_device(t.q), USM_ASPECT_OUT_OF_ORDER_QUEUE))
        must(usm_queue_create(t.ctx, NULL, &d, &t.free_order));
    t.b = usm_buffer_new(t.ctx, (size_t)CELL * (1 + THREADS));
    CHECK(t.b != NULL);
    all = (usm_accessor){t.b, 0, (size_t)CELL * (1 + THREADS), USM_WRITE_NO_INIT};
    must(usm_buffer_fill(t.q, &all, &nought, sizeof nought, 0, NULL, NULL));
}

static void close_all(void)
{
    usm_buffer_destroy(t.b);
    if (t.free_order != t.second)
        usm_queue_destroy(t.free_order);
    usm_queue_destroy(t.second);
    usm_queue_destroy(t.q);
    usm_context_destroy(t.ctx);
}

static usm_accessor cell(size_t i, usm_access_mode mode)
{
    return (usm_accessor){t.b, i * CELL, CELL, mode};
}

/* Each word is raised by itself: who runs at the same time leaves words that differ. */
static usm_status raise_words(void *user, void *const *ptrs)
{
    uint64_t *words = ptrs[0];

    (void)user;
    for (size_t i = 0; i < WORDS; i++)
        words[i]++;
    return USM_OK;
}

static atomic_uint torn;

static usm_status compare_words(void *user, void *const *ptrs)
{
    const uint64_t *words = ptrs[0];

    (void)user;
    for (size_t i = 1; i < WORDS; i++)
        if (words[i] != words[0])
            atomic_fetch_add(&torn, 1u);
    return USM_OK;
}

static void check_cell(size_t i, uint64_t want)
{
    usm_access acc;

    must(usm_access_begin(t.b, i * CELL, CELL, USM_READ, &acc));
    for (size_t k = 0; k < WORDS; k++)
        CHECK_INT(((uint64_t *)acc.ptr)[k], want);
    usm_access_end(&acc);
}

static void run_threads(void *(*fn)(void *), unsigned n)
{
    pthread_t threads[THREADS];

    atomic_store(&torn, 0u);
    for (uintptr_t i = 0; i < n; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, fn, (void *)i), 0);
    for (unsigned i = 0; i < n; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK_INT(atomic_load(&torn), 0);
}

/* --- one queue ------------------------------------------------------------------------------- */

/* The thread's own cell and the shared one in turn; of some the event is wanted, which is another
 * way into the queue. */
static void *raise_in_one_queue(void *thread)
{
    uintptr_t me = (uintptr_t)thread;

    for (unsigned i = 0; i < many; i++) {
        usm_accessor a  = cell(i % 2 ? 0 : 1 + me, USM_READ_WRITE);
        usm_event   *ev = NULL;

        must(usm_buffer_task(t.q, raise_words, NULL, 1, &a, 0, NULL, i % 7 == me ? &ev : NULL));
        usm_event_release(ev);
    }
    return NULL;
}

static void threads_raise_a_shared_cell_in_one_queue(void)
{
    open_all();
    run_threads(raise_in_one_queue, THREADS);
    check_cell(0, THREADS * many / 2);
    for (size_t i = 0; i < THREADS; i++)
        check_cell(1 + i, many / 2);
    close_all();
}

/* Fills and copies besides tasks: each copy's source is whole. */
static void *fill_and_copy_in_one_queue(void *thread)
{
    uintptr_t    me     = (uintptr_t)thread;
    usm_accessor shared = cell(0, USM_WRITE_NO_INIT), from = cell(0, USM_READ),
                 own = cell(1 + me, USM_WRITE_NO_INIT);

    for (uint64_t i = 0; i < many / 4; i++) {
        must(usm_buffer_fill(t.q, &shared, &i, sizeof i, 0, NULL, NULL));
        must(usm_buffer_copy(t.q, &own, &from, 0, NULL, NULL));
        from.mode = USM_READ;
        must(usm_buffer_task(t.q, compare_words, NULL, 1, &from, 0, NULL, NULL));
        own.mode = USM_READ;
        must(usm_buffer_task(t.q, compare_words, NULL, 1, &own, 0, NULL, NULL));
        own.mode = USM_WRITE_NO_INIT;
    }
    return NULL;
}

static void threads_fill_and_copy_in_one_queue(void)
{
    open_all();
    run_threads(fill_and_copy_in_one_queue, THREADS);
    must(usm_queue_wait(t.q));
    CHECK_INT(atomic_load(&torn), 0);
    close_all();
}

/* --- several queues -------------------------------------------------------------------------- */

static usm_status nothing(void *user)
{
    (void)user;
    return USM_OK;
}

/* The even threads use one queue; the odd ones another, and let the first wait for what they
 * submitted: if that waits for a command of the even ones, then that must be in its queue by now.
 */
static void *wait_across(void *thread)
{
    uintptr_t    me = (uintptr_t)thread;
    usm_accessor a  = cell(0, USM_READ_WRITE);

    for (unsigned i = 0; i < many; i++) {
        usm_event *ev = NULL;

        if (me % 2 == 0) {
            must(usm_buffer_task(t.q, raise_words, NULL, 1, &a, 0, NULL, i % 2 ? &ev : NULL));
        } else {
            must(usm_buffer_task(i % 3 ? t.second : t.free_order, raise_words, NULL, 1, &a, 0, NULL,
                                 &ev));
            must(usm_host_task(t.q, nothing, NULL, 1, &ev, NULL));
        }
        usm_event_release(ev);
    }
    return NULL;
}

static void a_queue_waits_for_what_waits_for_its_commands(void)
{
    open_all();
    run_threads(wait_across, THREADS);
    check_cell(0, THREADS * many);
    close_all();
}

static void end_access(usm_event *ev, usm_status status, void *acc)
{
    (void)ev;
    CHECK_INT(status, USM_OK);
    usm_access_end(acc);
}

/* As above, by an access of the host that begins when its turn comes, and ends then. */
static void *wait_across_accesses(void *thread)
{
    static usm_access accs[THREADS][MOST];
    uintptr_t         me = (uintptr_t)thread;
    usm_accessor      a  = cell(0, USM_READ_WRITE);

    for (unsigned i = 0; i < many; i++) {
        usm_event *ev = NULL;

        if (me % 2 == 0) {
            must(usm_buffer_task(t.q, raise_words, NULL, 1, &a, 0, NULL, i % 2 ? &ev : NULL));
        } else if (i % 4 == 0) {
            must(usm_access_begin_async(t.b, 0, CELL, USM_READ, &accs[me][i], &ev));
            must(usm_event_on_complete(ev, end_access, &accs[me][i]));
            must(usm_host_task(t.q, nothing, NULL, 1, &ev, NULL));
        }
        usm_event_release(ev);
    }
    return NULL;
}

static void a_queue_waits_for_accesses_that_wait_for_its_commands(void)
{
    open_all();
    run_threads(wait_across_accesses, THREADS);
    check_cell(0, THREADS / 2 * many);
    must(usm_queue_wait(t.q));
    close_all();
}

/* Readers of one queue from several threads, of which a writer elsewhere waits for the last only.
 */
static void *read_and_write(void *thread)
{
    uintptr_t    me = (uintptr_t)thread;
    usm_accessor a  = cell(0, me ? USM_READ : USM_READ_WRITE);

    for (unsigned i = 0; i < many; i++) {
        usm_event *ev = NULL;

        if (me)
            must(usm_buffer_task(t.q, compare_words, NULL, 1, &a, 0, NULL, i % 5 ? NULL : &ev));
        else if (i % 4 == 0)
            must(usm_buffer_task(t.free_order, raise_words, NULL, 1, &a, 0, NULL, &ev));
        usm_event_release(ev);
    }
    return NULL;
}

static void a_writer_waits_for_all_readers_of_a_queue(void)
{
    open_all();
    run_threads(read_and_write, THREADS);
    check_cell(0, many / 4);
    must(usm_queue_wait(t.q));
    CHECK_INT(atomic_load(&torn), 0);
    close_all();
}

static const plain_case cases[] = {CASE(threads_raise_a_shared_cell_in_one_queue),
                                   CASE(threads_fill_and_copy_in_one_queue),
                                   CASE(a_queue_waits_for_what_waits_for_its_commands),
                                   CASE(a_queue_waits_for_accesses_that_wait_for_its_commands),
                                   CASE(a_writer_waits_for_all_readers_of_a_queue),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    const char *runtime = getenv("USM_TEST_RUNTIME"), *is_long = getenv("USM_TEST_LONG");

    if (runtime && strcmp(runtime, "host") != 0 && !is_long)
        many = PLAIN_SANITIZED ? 120 : 248;
    return plain_main(argc, argv, cases);
}
