/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Launches over a backend that only records them: what is refused, by which sentence, and what
 * reaches the backend of what is not.  That kernels compute is tests/conformance's matter. */
#include "base/fault.h"
#include "fake_backend.h"
#include "program/program.h"

#include <plain.h>
#include <sys/mman.h>
#include <usm/usm.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define OK(call) launch_ok((call), __FILE__, __LINE__)
/* The launch fails so, and nothing reached the backend. */
#define REFUSED(call, want, culprit)                                                               \
    do {                                                                                           \
        int        refused_before = fake.launches + fake.markers;                                  \
        usm_status refused_got    = (call);                                                        \
        CHECK_STR(usm_status_name(refused_got), usm_status_name(want));                            \
        CHECK_IN(culprit, usm_last_error());                                                       \
        CHECK_INT(fake.launches + fake.markers, refused_before);                                   \
    } while (0)

static void launch_ok(usm_status s, const char *file, int line)
{
    if (s != USM_OK) {
        printf("# %s: %s\n", usm_status_name(s), usm_last_error());
        plain_fail(file, line, "success");
    }
}

static void nothing(const usm_range *range, void *const *args)
{
    (void)range;
    (void)args;
}

static const usm_arg_kind      kinds[]  = {USM_ARG_POINTER, USM_ARG_VALUE, USM_ARG_LOCAL};
static const usm_native_kernel native[] = {{"k", nothing, 3, kinds}, {"bare", nothing, 0, NULL}};

/* All that a case needs, on one device; begin() and end() of each case. */
static struct {
    usm_context *ctx;
    usm_queue   *q;
    usm_program *program;
    usm_kernel  *k, *bare;
    char        *block; /* 256 bytes of shared memory */
    int          value;
    usm_arg      args[4];
    usm_launch   launch;
} rig;

static usm_context *context_of(const char *selector)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_device      *devs[4];
    usm_context     *ctx = NULL;

    OK(usm_select_devices(selector, devs, 4, &desc.ndevices));
    desc.devices = devs;
    OK(usm_context_create(&desc, &ctx));
    return ctx;
}

static usm_program *program_of(usm_context *ctx)
{
    usm_image        images[] = {fake_text("kernel k(PVL)\nkernel bare()"),
                                 {USM_IMAGE_NATIVE, native, sizeof native}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;
    usm_program     *p        = NULL;

    desc.images  = images;
    desc.nimages = 2;
    OK(usm_program_create(ctx, &desc, &p));
    return p;
}

/* A launch of k that is right. */
static void reset_launch(void)
{
    rig.args[0] = USM_ARG_PTR(rig.block);
    rig.args[1] = USM_ARG_REF(rig.value);
    rig.args[2] = USM_ARG_SCRATCH(16);
    rig.launch  = (usm_launch)USM_LAUNCH_INIT;

    rig.launch.kernel    = rig.k;
    rig.launch.args      = rig.args;
    rig.launch.nargs     = 3;
    rig.launch.global[0] = 128;
    rig.launch.local[0]  = 32;
}

static void begin(const char *selector, uint32_t flags)
{
    usm_queue_desc desc = USM_QUEUE_DESC_INIT;

    desc.flags  = flags;
    rig.ctx     = context_of(selector);
    rig.program = program_of(rig.ctx);
    OK(usm_queue_create(rig.ctx, NULL, &desc, &rig.q));
    OK(usm_kernel_create(rig.program, "k", &rig.k));
    OK(usm_kernel_create(rig.program, "bare", &rig.bare));
    rig.block = usm_malloc_shared(256, rig.q);
    CHECK(rig.block != NULL);
    reset_launch();
}

static void end(void)
{
    usm_free(rig.block);
    usm_kernel_destroy(rig.bare);
    usm_kernel_destroy(rig.k);
    usm_program_destroy(rig.program);
    usm_queue_destroy(rig.q);
    usm_context_destroy(rig.ctx);
    CHECK_INT(fake_alive(), 0);
}

static usm_status submit(void)
{
    return usm_queue_submit(rig.q, &rig.launch, 0, NULL, NULL);
}

/* --- what arrives --------------------------------------------------------------------------- */

static void a_right_launch_arrives_as_it_was_given(void)
{
    usm_event *ev = NULL, *dep = NULL;

    begin("fake:0", USM_QUEUE_OUT_OF_ORDER);
    OK(usm_event_create(rig.ctx, &dep));
    rig.launch.offset[0]      = 5;
    rig.launch.indirect_kinds = USM_INDIRECT_SHARED;
    OK(usm_queue_submit(rig.q, &rig.launch, 1, &dep, &ev));
    OK(usm_event_wait(ev));
    CHECK_STR(fake.kernel, "k");
    CHECK_INT(fake.ndeps, 1);
    CHECK_INT(fake.launch.nargs, 3);
    CHECK(fake.args[0].value == rig.block);
    CHECK(fake.args[1].value == &rig.value && fake.args[1].size == sizeof(int));
    CHECK_INT(fake.args[2].size, 16);
    CHECK_INT(fake.launch.offset[0], 5);
    CHECK_INT(fake.launch.indirect_kinds, USM_INDIRECT_SHARED);
    OK(usm_event_signal(dep, USM_OK));
    usm_event_release(dep);
    usm_event_release(ev);
    end();
}

static void unused_dimensions_are_made_normal(void)
{
    begin("fake:0", 0);
    for (size_t d = 1; d < 3; d++) {
        rig.launch.global[d] = 0;
        rig.launch.offset[d] = 99;
        rig.launch.local[d]  = 7;
    }
    OK(submit());
    for (size_t d = 1; d < 3; d++) {
        CHECK_INT(fake.launch.global[d], 1);
        CHECK_INT(fake.launch.offset[d], 0);
        CHECK_INT(fake.launch.local[d], 1);
    }
    rig.launch.kernel   = rig.bare; /* k has local memory, which needs a local size */
    rig.launch.nargs    = 0;
    rig.launch.local[0] = 0;
    OK(submit());
    for (size_t d = 0; d < 3; d++)
        CHECK_INT(fake.launch.local[d], 0);
    rig.launch.kernel = rig.k;
    rig.launch.nargs  = 3;
    CHECK_INT(submit(), USM_E_ARGUMENTS);
    CHECK_IN("give the launch a local size", usm_last_error());
    CHECK_INT(rig.launch.local[1], 7); /* the caller's own is left alone */
    end();
}

static void no_work_items_are_only_dependencies(void)
{
    usm_event *ev = NULL, *dep = NULL;
    int        launches, markers;

    begin("fake:0", 0);
    launches             = fake.launches;
    markers              = fake.markers;
    rig.launch.dims      = 2;
    rig.launch.global[1] = 0;
    rig.launch.local[1]  = 1;
    OK(usm_queue_submit(rig.q, &rig.launch, 0, NULL, &ev));
    OK(usm_event_query(ev));
    usm_event_release(ev);
    CHECK_INT(fake.markers, markers + 1);
    rig.args[0].value = "foreign"; /* what is wrong is wrong in an empty launch too */
    CHECK_INT(submit(), USM_E_INVALID_POINTER);
    end();

    begin("fake:0", USM_QUEUE_OUT_OF_ORDER);
    rig.launch.global[0] = 0;
    OK(usm_event_create(rig.ctx, &dep));
    OK(usm_queue_submit(rig.q, &rig.launch, 1, &dep, &ev));
    CHECK_INT(fake.ndeps, 1);
    usm_event_release(ev);
    OK(usm_queue_submit(rig.q, &rig.launch, 0, NULL, &ev));
    OK(usm_event_query(ev));
    usm_event_release(ev);
    OK(submit());
    CHECK_INT(fake.launches, launches);
    OK(usm_event_signal(dep, USM_OK));
    usm_event_release(dep);
    end();
}

static void null_interior_and_another_devices_pointers_are_arguments(void)
{
    usm_device *devs[2];
    size_t      n;
    void       *other;

    begin("fake:0,1", 0);
    OK(usm_context_get_devices(rig.ctx, devs, 2, &n));
    other = usm_malloc_ctx(64, devs[1], rig.ctx, USM_DEVICE);
    CHECK(other != NULL);
    rig.args[0].value = NULL;
    OK(submit());
    rig.args[0].value = rig.block + 255;
    OK(submit());
    rig.args[0].value = other;
    OK(submit());
    usm_free(other);
    end();
}

/* --- what is refused ------------------------------------------------------------------------ */

static void objects_are_checked(void)
{
    usm_context *other_ctx;
    usm_program *other_program;
    usm_kernel  *other = NULL;

    begin("fake:0", 0);
    REFUSED(usm_queue_submit(NULL, &rig.launch, 0, NULL, NULL), USM_E_INVALID_HANDLE, "queue");
    REFUSED(usm_queue_submit(rig.q, NULL, 0, NULL, NULL), USM_E_INVALID, "launch is NULL");
    REFUSED(usm_queue_submit(rig.q, &rig.launch, 1, NULL, NULL), USM_E_INVALID, "");
    rig.launch.struct_size = 8;
    REFUSED(submit(), USM_E_ABI, "USM_LAUNCH_INIT");
    reset_launch();
    rig.launch.kernel = NULL;
    REFUSED(submit(), USM_E_INVALID_HANDLE, "kernel is NULL");
    rig.launch.kernel = (usm_kernel *)rig.q;
    REFUSED(submit(), USM_E_INVALID_HANDLE, "is a queue where a kernel");

    other_ctx     = context_of("fake:0");
    other_program = program_of(other_ctx);
    OK(usm_kernel_create(other_program, "k", &other));
    rig.launch.kernel = other;
    REFUSED(submit(), USM_E_WRONG_CONTEXT, "\"k\" is of another context");
    usm_kernel_destroy(other);
    REFUSED(submit(), USM_E_INVALID_HANDLE, "was destroyed");
    usm_program_destroy(other_program);
    usm_context_destroy(other_ctx);
    end();
}

static void a_device_without_the_program_is_named(void)
{
    usm_device *devs[2];
    size_t      n;
    usm_queue  *q = NULL;

    begin("fake:0,3", 0);
    OK(usm_context_get_devices(rig.ctx, devs, 2, &n));
    OK(usm_queue_create(rig.ctx, devs[1], NULL, &q));
    REFUSED(usm_queue_submit(q, &rig.launch, 0, NULL, NULL), USM_E_NO_IMAGE, "fake:3");
    usm_queue_destroy(q);
    end();
}

static void ranges_are_checked_by_dimension(void)
{
    static const struct {
        uint32_t    dims;
        size_t      offset[3], global[3], local[3];
        const char *culprit;
    } bad[] = {
        {0, {0}, {1, 1, 1}, {0}, "dims is 0"},
        {4, {0}, {1, 1, 1}, {0}, "dims is 4"},
        {2, {0}, {SIZE_MAX, 2, 1}, {0}, "more than can be counted"},
        {3, {0}, {(size_t)1 << 32, (size_t)1 << 31, 2}, {0}, "more than can be counted"},
        {1, {2}, {SIZE_MAX - 1, 1, 1}, {0}, "offset[0]"},
        {2, {0, SIZE_MAX}, {1, 1, 1}, {0}, "offset[1]"},
        {2, {0}, {8, 8, 1}, {8, 0, 0}, "local[1] is 0"},
        {3, {0}, {8, 8, 8}, {0, 0, 2}, "local[0] is 0"},
        {2, {0}, {8, 9, 1}, {8, 2, 0}, "local[1] 2 does not divide global[1] 9"},
        {1, {0}, {8, 1, 1}, {16, 0, 0}, "local[0] 16 does not divide"},
        {2, {0}, {128, 8, 1}, {32, 4, 1}, "32 x 4 x 1 is beyond the 64 of fake:0"},
        {2, {0}, {0, 0, 1}, {SIZE_MAX, SIZE_MAX, 1}, "beyond the 64"},
    };

    begin("fake:0", 0);
    for (size_t i = 0; i < COUNT(bad); i++) {
        rig.launch.dims = bad[i].dims;
        memcpy(rig.launch.offset, bad[i].offset, sizeof bad[i].offset);
        memcpy(rig.launch.global, bad[i].global, sizeof bad[i].global);
        memcpy(rig.launch.local, bad[i].local, sizeof bad[i].local);
        REFUSED(submit(), USM_E_INVALID, bad[i].culprit);
    }
    end();
}

static void arguments_are_checked_in_turn(void)
{
    static const usm_arg p = {USM_ARG_POINTER, 8, NULL}, l = {USM_ARG_LOCAL, 16, NULL};
    static const int     number = 7;
    static const usm_arg v      = {USM_ARG_VALUE, sizeof number, &number};
    const struct {
        usm_arg     args[3];
        const char *culprit;
    } bad[] = {
        {{v, v, l}, "argument 0 of kernel \"k\" is a pointer (USM_ARG_PTR), but a value"},
        {{p, p, l}, "argument 1 of kernel \"k\" is a value (USM_ARG_VAL), but a pointer"},
        {{p, v, v}, "argument 2 of kernel \"k\" is local memory (USM_ARG_SCRATCH), but a value"},
        {{p, l, p}, "argument 1 of"}, /* the first is told */
        {{p, {USM_ARG_NONE, 0, NULL}, l}, "argument 1 of kernel \"k\" has the kind 0"},
        {{p, {(usm_arg_kind)9, 0, NULL}, l}, "argument 1 of kernel \"k\" has the kind 9"},
        {{p, {USM_ARG_VALUE, 0, &number}, l}, "argument 1 of kernel \"k\": a value of 0 bytes"},
        {{p, {USM_ARG_VALUE, 4, NULL}, l}, "argument 1 of kernel \"k\": a value of 4 bytes at"},
        {{p, {USM_ARG_VALUE, SIZE_MAX, &number}, l}, "argument 1 of kernel \"k\": a value of"},
        {{p, v, {USM_ARG_LOCAL, 0, NULL}}, "argument 2 of kernel \"k\": 0 bytes of local"},
        {{p, v, {USM_ARG_LOCAL, 1025, NULL}}, "argument 2 of kernel \"k\": with its 1025 bytes"},
        {{p, v, {USM_ARG_LOCAL, SIZE_MAX, NULL}}, "local memory than the 1024 bytes of fake:0"},
    };

    begin("fake:0", 0);
    for (size_t i = 0; i < COUNT(bad); i++) {
        rig.launch.args = bad[i].args;
        REFUSED(submit(), USM_E_ARGUMENTS, bad[i].culprit);
    }
    rig.launch.nargs = 2;
    REFUSED(submit(), USM_E_ARGUMENTS, "kernel \"k\" takes 3 arguments, not 2");
    rig.launch.nargs = SIZE_MAX;
    REFUSED(submit(), USM_E_ARGUMENTS, "takes 3 arguments");
    rig.launch.nargs = 3;
    rig.launch.args  = NULL;
    REFUSED(submit(), USM_E_ARGUMENTS, "args is NULL");
    reset_launch();
    rig.launch.kernel = rig.bare;
    REFUSED(submit(), USM_E_ARGUMENTS, "\"bare\" takes 0 arguments, not 3");
    rig.launch.nargs = 0;
    rig.launch.args  = NULL;
    OK(submit());
    end();
}

/* Each part fits, the sum does not. */
static void local_memory_is_added_up(void)
{
    usm_image        text    = fake_text("kernel two(LL)");
    usm_program_desc desc    = USM_PROGRAM_DESC_INIT;
    usm_program     *program = NULL;
    usm_kernel      *two     = NULL;

    begin("fake:0", 0);
    desc.images  = &text;
    desc.nimages = 1;
    OK(usm_program_create(rig.ctx, &desc, &program));
    OK(usm_kernel_create(program, "two", &two));
    rig.launch.kernel = two;
    rig.launch.nargs  = 2;
    rig.args[0]       = USM_ARG_SCRATCH(512);
    rig.args[1]       = USM_ARG_SCRATCH(512);
    OK(submit());
    rig.args[1] = USM_ARG_SCRATCH(513);
    REFUSED(submit(), USM_E_ARGUMENTS, "argument 1 of kernel \"two\": with its 513 bytes");
    usm_kernel_destroy(two);
    usm_program_destroy(program);
    end();
}

static void pointers_that_are_not_ours_are_refused(void)
{
    static int   foreign;
    usm_context *other_ctx;
    usm_queue   *other_q = NULL;
    void        *freed, *other;

    begin("fake:0", 0);
    rig.args[0].value = &foreign;
    REFUSED(submit(), USM_E_INVALID_POINTER, "argument 0 of kernel \"k\"");
    CHECK_IN("is not libusm's memory, and fake:0 has no system allocations", usm_last_error());
    freed             = usm_malloc_device(64, rig.q);
    rig.args[0].value = freed;
    usm_free(freed);
    REFUSED(submit(), USM_E_INVALID_POINTER, "argument 0 of kernel \"k\"");
    CHECK_IN("was freed", usm_last_error());

    other_ctx = context_of("fake:0");
    OK(usm_queue_create(other_ctx, NULL, NULL, &other_q));
    other             = usm_malloc_shared(64, other_q);
    rig.args[0].value = other;
    REFUSED(submit(), USM_E_WRONG_CONTEXT, "argument 0 of kernel \"k\"");
    usm_free(other);
    usm_queue_destroy(other_q);
    usm_context_destroy(other_ctx);
    end();
}

static void with_system_allocations_any_memory_is_an_argument(void)
{
    static int foreign;
    char      *nowhere = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    begin("fake:2", 0);
    rig.args[0].value = &foreign;
    OK(submit());
    CHECK(nowhere != MAP_FAILED);
    rig.args[0].value = nowhere + 100;
    OK(submit());
    CHECK_INT(munmap(nowhere, 4096), 0);
    REFUSED(submit(), USM_E_INVALID_POINTER, "argument 0 of kernel \"k\": there is no memory at");
    rig.args[0].value = (void *)8;
    REFUSED(submit(), USM_E_INVALID_POINTER, "there is no memory at");
    end();
}

static void indirect_pointers_are_checked_too(void)
{
    static int  foreign;
    const void *indirect[3];

    begin("fake:0", 0);
    indirect[0] = indirect[1] = indirect[2] = rig.block;
    rig.launch.indirect                     = indirect;
    rig.launch.nindirect                    = 3;
    OK(submit());
    CHECK_INT(fake.launch.nindirect, 3);
    indirect[1] = &foreign;
    REFUSED(submit(), USM_E_INVALID_POINTER, "indirect pointer 1 of kernel \"k\"");
    indirect[1] = NULL;
    REFUSED(submit(), USM_E_INVALID_POINTER, "indirect pointer 1 of kernel \"k\" is NULL");
    rig.launch.indirect = NULL;
    REFUSED(submit(), USM_E_INVALID, "indirect is NULL");
    rig.launch.nindirect      = 0;
    rig.launch.indirect_kinds = 8;
    REFUSED(submit(), USM_E_INVALID, "indirect_kinds 0x8");
    end();
}

/* --- cost ----------------------------------------------------------------------------------- */

/* The fake's events come from the heap, so none is asked for. */
static void a_launch_allocates_nothing(void)
{
    begin("fake:0", 0);
    OK(submit());
    CHECK(usm__fault_arm("*", 0, false, USM_OK));
    OK(submit());
    CHECK_INT(usm__fault_counted(), 1); /* the backend's launch itself */
    usm__fault_disarm_all();
    end();
}

static void arguments_take_any_expression_and_can_be_assigned(void)
{
    typedef struct pair {
        float a, b;
    } pair;
    const pair p       = {1, 2};
    int        count   = 4;
    usm_arg    args[3] = {USM_ARG_PTR(&count), USM_ARG_VAL(2.0f), USM_ARG_SCRATCH(16)};

    CHECK_INT(args[1].size, sizeof(float));
    CHECK(*(const float *)args[1].value == 2.0f);
    args[0] = USM_ARG_PTR(NULL);
    args[1] = USM_ARG_VAL(count + 1);
    args[2] = USM_ARG_VAL(p);
    count   = 9; /* what was taken stays */
    CHECK(args[0].kind == USM_ARG_POINTER && !args[0].value);
    CHECK_INT(*(const int *)args[1].value, 5);
    CHECK(args[2].size == sizeof p && ((const pair *)args[2].value)->b == 2);
    args[1] = USM_ARG_REF(count);
    CHECK(args[1].kind == USM_ARG_VALUE && args[1].value == &count);
}

static const plain_case cases[] = {CASE(arguments_take_any_expression_and_can_be_assigned),
                                   CASE(a_right_launch_arrives_as_it_was_given),
                                   CASE(unused_dimensions_are_made_normal),
                                   CASE(no_work_items_are_only_dependencies),
                                   CASE(null_interior_and_another_devices_pointers_are_arguments),
                                   CASE(objects_are_checked),
                                   CASE(a_device_without_the_program_is_named),
                                   CASE(ranges_are_checked_by_dimension),
                                   CASE(arguments_are_checked_in_turn),
                                   CASE(local_memory_is_added_up),
                                   CASE(pointers_that_are_not_ours_are_refused),
                                   CASE(with_system_allocations_any_memory_is_an_argument),
                                   CASE(indirect_pointers_are_checked_too),
                                   CASE(a_launch_allocates_nothing),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    usm__registry_add_backend("fake", fake_backend_entry);
    (void)usm_config_set("cache_dir", "off");
    return plain_main(argc, argv, cases);
}
