/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The host backend's address ranges (usm/backend.h, USM_CAP_VMEM): pieces of memory in a range work
 * like memory that was allocated, also under guard mode and across pieces, and each failure is
 * survived. */
#include "host_fixture.h"

#define MIB   ((size_t)1 << 20)
#define G     (2 * MIB)
#define RANGE ((size_t)1 << 30)
/* Addresses that there are, but never so much memory; ThreadSanitizer leaves fewer, and 1 TiB
 * in one piece not always. */
#if defined(__SANITIZE_THREAD__)
#define TOO_MUCH ((size_t)1 << 38)
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TOO_MUCH ((size_t)1 << 38)
#endif
#endif
#ifndef TOO_MUCH
#define TOO_MUCH ((size_t)1 << 45)
#endif

static const usm_kind kinds[] = {USM_HOST, USM_DEVICE, USM_SHARED};

static char *reserve(usm_kind kind)
{
    void *p = NULL;

    CHECK_INT(be->vmem_reserve(ctx, kind, RANGE, &p), USM_OK);
    CHECK_INT((uintptr_t)p % G, 0);
    return p;
}

static usm_status try_piece(char *p, usm_kind kind, size_t size, void **phys)
{
    void      *made   = NULL;
    usm_status status = be->phys_create(ctx, NULL, kind, size, &made);

    if (status == USM_OK && (status = be->vmem_map(ctx, p, size, made, 0)) != USM_OK)
        CHECK_INT(be->phys_destroy(ctx, made), USM_OK);
    if (status == USM_OK)
        *phys = made;
    return status;
}

static void *piece(char *p, usm_kind kind, size_t size)
{
    void *phys = NULL;

    CHECK_INT(try_piece(p, kind, size, &phys), USM_OK);
    return phys;
}

static void drop(char *p, size_t size, void *phys)
{
    CHECK_INT(be->vmem_unmap(ctx, p, size), USM_OK);
    CHECK_INT(be->phys_destroy(ctx, phys), USM_OK);
}

static char *touched;

static void write_it(void)
{
    (void)signal(SIGSEGV, SIG_DFL); /* not a sanitizer's report */
    *(volatile char *)touched = 1;
}

static bool is_closed(char *p)
{
    int status;

    touched = p;
    status  = plain_child(write_it, NULL);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static void run(usm_status queued)
{
    CHECK_INT(queued, USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK);
}

/* --- without guard mode ----------------------------------------------------------------------- */

static void pieces_of_every_kind_come_and_go(void)
{
    for (size_t i = 0; i < 3; i++) {
        size_t g = 0;
        char  *p;
        void  *a, *b;

        begin();
        CHECK_INT(be->vmem_granularity(ctx, NULL, kinds[i], RANGE, &g), USM_OK);
        CHECK_INT(g, G);
        p = reserve(kinds[i]);
        CHECK(is_closed(p));
        a = piece(p + G, kinds[i], G);
        b = piece(p + 2 * G, kinds[i], 3 * G);
        CHECK(is_closed(p + G - 1) && is_closed(p + 5 * G));
        CHECK(p[G] == 0 && p[5 * G - 1] == 0);
        memset(p + G, 7, 4 * G);
        drop(p + G, G, a);
        CHECK(is_closed(p + G) && p[2 * G] == 7);
        a = piece(p + G, kinds[i], G);
        CHECK(p[G] == 0); /* what it held was dropped */
        drop(p + G, G, a);
        drop(p + 2 * G, 3 * G, b);
        CHECK_INT(be->vmem_release(ctx, p, RANGE), USM_OK);
        end();
    }
}

static void more_than_there_is_is_no_memory(void)
{
    for (int guard = 0; guard < 2; guard++) {
        void *p = &module, *phys = NULL;

        begin_with(guard, 0);
        CHECK_INT(be->vmem_reserve(ctx, USM_DEVICE, (size_t)1 << 60, &p), USM_E_NO_MEMORY);
        CHECK(p == &module);
        CHECK_IN("no 1152921504606846976 bytes of addresses left", usm_last_error());
        CHECK_INT(be->vmem_reserve(ctx, USM_SHARED, TOO_MUCH, &p), USM_OK);
        CHECK_INT(try_piece(p, USM_SHARED, TOO_MUCH, &phys), USM_E_NO_MEMORY);
        CHECK(!phys && is_closed(p));
        CHECK_INT(be->vmem_release(ctx, p, TOO_MUCH), USM_OK);
        end();
    }
}

static char *shared_with_child;

static void change_in_child(void)
{
    CHECK(shared_with_child[0] == 3);
    memset(shared_with_child, 4, G);
}

static void a_childs_pieces_are_its_own(void)
{
    void *phys;

    begin();
    shared_with_child = reserve(USM_DEVICE);
    phys              = piece(shared_with_child, USM_DEVICE, G);
    memset(shared_with_child, 3, G);
    CHECK_INT(plain_child(change_in_child, NULL), 0);
    CHECK(shared_with_child[0] == 3);
    drop(shared_with_child, G, phys);
    CHECK_INT(be->vmem_release(ctx, shared_with_child, RANGE), USM_OK);
    end();
}

/* --- guard mode ------------------------------------------------------------------------------- */

static void touch_fn(const usm_range *range, void *const *args)
{
    char *p = *(char **)args[0];

    for (size_t i = range->begin[0]; i < range->end[0]; i++)
        p[i] = (char)(p[i] + 1);
}

static void add_one(char *p, size_t n)
{
    static const usm_native_kernel touch[] = {{"touch", touch_fn, 1, NULL}};
    const usm_image                image   = {USM_IMAGE_NATIVE, touch, sizeof(touch)};
    const usm_arg                  arg     = USM_ARG_PTR(p);
    usm_launch                     launch  = USM_LAUNCH_INIT;
    void                          *program, *kernel;

    CHECK_INT(be->program_build(ctx, NULL, &image, NULL, NULL, &program), USM_OK);
    CHECK_INT(be->kernel_create(program, "touch", &kernel), USM_OK);
    be->program_destroy(program);
    launch.nargs     = 1;
    launch.args      = &arg;
    launch.global[0] = n;
    run(be->launch(queue, kernel, &launch, 0, NULL, NULL));
    be->kernel_destroy(kernel);
}

/* Commands begin in one piece and end in the next. */
static void guarded_pieces_are_for_commands_only(void)
{
    char  *back = malloc(2 * G), *rows = malloc(2 * G), *p, *at;
    size_t n = G;
    void  *a, *b;

    CHECK(back && rows);
    begin_with(true, 0);
    p = reserve(USM_DEVICE);
    a = piece(p + 3 * G, USM_DEVICE, G);
    b = piece(p + 4 * G, USM_DEVICE, G);
    CHECK(is_closed(p + 3 * G) && is_closed(p + 5 * G - 1));
    at = p + 3 * G + G / 2;
    run(be->fill(queue, at, "A", 1, n, 0, NULL, NULL));
    add_one(at, n);
    CHECK(is_closed(at));
    run(be->copy(queue, back, at, n, 0, NULL, NULL));
    CHECK(back[0] == 'B' && memcmp(back, back + 1, n - 1) == 0);
    run(be->copy_2d(queue, rows, 128, at, 128, 64, n / 128, 0, NULL, NULL));
    CHECK(rows[0] == 'B' && rows[n - 128] == 'B');
    drop(p + 3 * G, G, a);
    a = piece(p + 3 * G, USM_DEVICE, G);
    run(be->copy(queue, back, at, n, 0, NULL, NULL));
    CHECK(back[0] == 0 && back[G / 2 - 1] == 0 && back[G / 2] == 'B');
    drop(p + 3 * G, G, a);
    drop(p + 4 * G, G, b);
    CHECK(is_closed(p + 3 * G));
    CHECK_INT(be->vmem_release(ctx, p, RANGE), USM_OK);
    free(back);
    free(rows);
    end();
}

static void guard_mode_leaves_other_kinds_open(void)
{
    begin_with(true, 0);
    for (size_t i = 0; i < 3; i++) {
        char *p    = reserve(kinds[i]);
        void *phys = piece(p, kinds[i], G);

        CHECK(is_closed(p) == (kinds[i] == USM_DEVICE));
        drop(p, G, phys);
        CHECK_INT(be->vmem_release(ctx, p, RANGE), USM_OK);
    }
    end();
}

/* --- failures --------------------------------------------------------------------------------- */

static usm_status all_of_it(void)
{
    void      *p = NULL, *phys = NULL;
    usm_status status = be->vmem_reserve(ctx, USM_DEVICE, RANGE, &p);

    if (status != USM_OK)
        return status;
    status = try_piece((char *)p + G, USM_DEVICE, G, &phys);
    usm__fault_disarm_all(); /* what gives back is looked at below */
    if (status == USM_OK)
        drop((char *)p + G, G, phys);
    CHECK(is_closed((char *)p + G));
    CHECK_INT(be->vmem_release(ctx, p, RANGE), USM_OK);
    return status;
}

static void whatever_fails_nothing_is_left(void)
{
    static const char *const calls[] = {"os.mmap",  "os.munmap",    "os.mprotect",
                                        "os.memfd", "os.ftruncate", "heap.alloc"};

    for (int guard = 0; guard < 2; guard++)
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
            for (uint64_t n = 1, fired = 1; fired > 0; n++) {
                usm_status status;

                begin_with(guard, 0);
                CHECK(usm__fault_arm(calls[i], n, false, USM_OK));
                status = all_of_it();
                fired  = usm__fault_fired();
                CHECK_INT(status, !fired                              ? USM_OK
                                  : strcmp(calls[i], "os.memfd") == 0 ? USM_E_SYSTEM /* EMFILE */
                                                                      : USM_E_NO_MEMORY);
                end(); /* looks for what is left */
            }
}

static void what_cannot_be_given_back_can_be_tried_again(void)
{
    for (int guard = 0; guard < 2; guard++)
        for (uint64_t n = 1; n <= (guard ? 2u : 1u); n++) {
            char *p;
            void *phys;

            begin_with(guard, 0);
            p    = reserve(USM_DEVICE);
            phys = piece(p, USM_DEVICE, G);
            CHECK(usm__fault_arm("os.mmap", n, false, USM_OK));
            CHECK(be->vmem_unmap(ctx, p, G) < 0);
            usm__fault_disarm_all();
            drop(p, G, phys);
            CHECK(is_closed(p));
            CHECK(usm__fault_arm("os.munmap", n, false, USM_OK));
            CHECK(be->vmem_release(ctx, p, RANGE) < 0);
            usm__fault_disarm_all();
            CHECK_INT(be->vmem_release(ctx, p, RANGE), USM_OK);
            end();
        }
}

static const plain_case cases[] = {
    CASE(pieces_of_every_kind_come_and_go),
    CASE(more_than_there_is_is_no_memory),
    CASE(a_childs_pieces_are_its_own),
    CASE(guarded_pieces_are_for_commands_only),
    CASE(guard_mode_leaves_other_kinds_open),
    CASE(whatever_fails_nothing_is_left),
    CASE(what_cannot_be_given_back_can_be_tried_again),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
