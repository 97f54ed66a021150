/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Programs and kernels over a backend that compiles nothing: bundles, the choice of images, build
 * logs, the cache in memory, what kernels say, and that all is given back.
 *
 * Not here: launches (test_launch.c), the cache on disk (test_cache.c, and switched off here). */
#include "program/program.h"

#include "base/fault.h"
#include "fake_backend.h"

#include <plain.h>
#include <pthread.h>
#include <usm/usm.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The call fails with `want` and leaves a story that contains `culprit`. */
#define REFUSED(call, want, culprit)                                                               \
    do {                                                                                           \
        usm_status refused_got = (call);                                                           \
        CHECK_STR(usm_status_name(refused_got), usm_status_name(want));                            \
        CHECK_IN(culprit, usm_last_error());                                                       \
    } while (0)
#define OK(call) plain_ok((call), __FILE__, __LINE__)

static void plain_ok(usm_status s, const char *file, int line)
{
    if (s != USM_OK) {
        printf("# %s: %s\n", usm_status_name(s), usm_last_error());
        plain_fail(file, line, "success");
    }
}

/* A context of fake devices, e.g. "fake:0,1". */
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

static usm_device *device(usm_context *ctx, size_t i)
{
    usm_device *devs[4];
    size_t      n;

    OK(usm_context_get_devices(ctx, devs, 4, &n));
    CHECK(i < n);
    return devs[i];
}

static usm_status create(usm_context *ctx, const usm_image *images, size_t n, usm_program **p)
{
    usm_program_desc desc = USM_PROGRAM_DESC_INIT;

    desc.images  = images;
    desc.nimages = n;
    return usm_program_create(ctx, &desc, p);
}

static usm_program *program_of(usm_context *ctx, usm_image image)
{
    usm_program *p = NULL;

    OK(create(ctx, &image, 1, &p));
    return p;
}

static int image_on(usm_program *p, usm_device *dev)
{
    usm_image_type type = 0;

    OK(usm_program_get_image(p, dev, &type));
    return (int)type;
}

static int builds(void)
{
    int sum = 0;

    for (size_t i = 0; i < COUNT(fake.builds); i++)
        sum += fake.builds[i];
    return sum;
}

static void nothing(const usm_range *range, void *const *args)
{
    (void)range;
    (void)args;
}

static const usm_arg_kind      two_kinds[]    = {USM_ARG_POINTER, USM_ARG_VALUE};
static const usm_native_kernel native_table[] = {{"k", nothing, 2, two_kinds},
                                                 {"other", nothing, 0, NULL}};
static const usm_image         native_image = {USM_IMAGE_NATIVE, native_table, sizeof native_table};

/* --- bundles -------------------------------------------------------------------------------- */

static void a_bundle_gives_its_images_in_place(void)
{
    static const char text[] = "USMK1 2\nopencl_c 5\nspirv 3\n\nabcdeXYZ";
    usm_image         images[4];
    size_t            n = 0;

    OK(usm__bundle_parse(text, sizeof text - 1, images, 4, &n));
    CHECK_INT(n, 2);
    CHECK_INT(images[0].type, USM_IMAGE_OPENCL_C);
    CHECK_INT(images[0].size, 5);
    CHECK(memcmp(images[0].data, "abcde", 5) == 0);
    CHECK_INT(images[1].type, USM_IMAGE_SPIRV);
    CHECK(images[1].data == text + sizeof text - 1 - 3);
}

static void a_broken_bundle_is_refused_by_what_is_broken(void)
{
    static const struct {
        const char *text, *culprit;
    } broken[] = {
        {"", "does not start"},
        {"USMK1", "does not start"},
        {"USMK2 1\nspirv 1\n\nx", "does not start"},
        {"USMK1 1", "no end"},
        {"USMK1 0\n\n", "\"0\" images"},
        {"USMK1 17\n", "\"17\" images"},
        {"USMK1 -1\n", "\"-1\" images"},
        {"USMK1 99999999999999999999999\n", "images"},
        {"USMK1 1\nspirv 1", "entry 0 has no end"},
        {"USMK1 2\nspirv 1\n", "entry 1 has no end"},
        {"USMK1 1\nspirv\n\nx", "entry 0 is not"},
        {"USMK1 1\nSPIRV 1\n\nx", "type \"SPIRV\""},
        {"USMK1 1\nptx 1\n\nx", "type \"ptx\""},
        {"USMK1 1\nspirv 0\n\n", "size \"0\""},
        {"USMK1 1\nspirv x\n\nx", "size \"x\""},
        {"USMK1 1\nspirv 18446744073709551616\n\nx", "size \"18446744073709551616\""},
        {"USMK1 1\nspirv 18446744073709551615\n\nx", "cut off"},
        {"USMK1 1\nspirv 1\nx", "no empty line"},
        {"USMK1 1\nspirv 1\n\n", "cut off"},
        {"USMK1 1\nspirv 2\n\nx", "2 bytes, 1 are left"},
        {"USMK1 1\nspirv 1\n\nxy", "1 bytes after"},
        {"USMK1 1\r\nspirv 1\r\n\r\nx", "images"},
        {"USMK1 1\nspirv 0000000000000000000000000000000000000001\n\nx", "no end"},
    };
    usm_image images[4] = {native_image};
    size_t    n         = 7;

    for (size_t i = 0; i < COUNT(broken); i++)
        REFUSED(usm__bundle_parse(broken[i].text, strlen(broken[i].text), images, 4, &n),
                USM_E_INVALID, broken[i].culprit);
    REFUSED(usm__bundle_parse("USMK1 2\nspirv 1\nspirv 1\n\nxy", 27, images, 1, &n), USM_E_INVALID,
            "room for 1");
    REFUSED(usm__bundle_parse(NULL, 0, images, 4, &n), USM_E_INVALID, "no data");
    CHECK_INT(n, 7);
    CHECK(images[0].data == native_table);
}

/* Every prefix of a right bundle is wrong. */
static void a_bundle_cut_anywhere_is_refused(void)
{
    static const char text[] = "USMK1 2\nopencl_c 5\nspirv 3\n\nabcdeXYZ";
    usm_image         images[4];
    size_t            n;

    for (size_t size = 0; size < sizeof text - 1; size++) {
        char *exact = malloc(size ? size : 1); /* so that a checker sees reads behind it */

        CHECK(exact != NULL);
        memcpy(exact, text, size);
        CHECK_INT(usm__bundle_parse(exact, size, images, 4, &n), USM_E_INVALID);
        free(exact);
    }
}

/* --- images --------------------------------------------------------------------------------- */

static void each_device_takes_the_best_image(void)
{
    usm_context *ctx      = context_of("fake:0,2,3");
    usm_image    images[] = {native_image,
                             fake_text("kernel k(PV)"),
                             fake_spirv("kernel k(PV)"),
                             {USM_IMAGE_BINARY, "FAKEBIN1kernel k(PV)", 20}};
    usm_program *p        = NULL;

    OK(create(ctx, images, 4, &p));
    CHECK_INT(image_on(p, device(ctx, 0)), USM_IMAGE_BINARY);
    CHECK_INT(image_on(p, NULL), USM_IMAGE_BINARY);
    CHECK_INT(image_on(p, device(ctx, 1)), USM_IMAGE_NATIVE);
    REFUSED(usm_program_get_image(p, device(ctx, 2), &(usm_image_type){0}), USM_E_NO_IMAGE,
            "fake:3");
    usm_program_destroy(p);
    OK(create(ctx, images, 3, &p));
    CHECK_INT(image_on(p, NULL), USM_IMAGE_SPIRV);
    usm_program_destroy(p);
    OK(create(ctx, images, 2, &p));
    CHECK_INT(image_on(p, NULL), USM_IMAGE_OPENCL_C);
    usm_program_destroy(p);
    usm_context_destroy(ctx);
}

static void a_bundle_serves_devices_by_what_is_in_it(void)
{
    static const char text[]   = "USMK1 2\nopencl_c 13\nspirv 36\n\nkernel k(PV)\n"
                                 "\x03\x02\x23\x07                kernel k(PV)    ";
    usm_context      *ctx      = context_of("fake:0");
    usm_image         images[] = {{USM_IMAGE_BUNDLE, text, sizeof text - 1}};
    usm_program      *p        = NULL;

    OK(create(ctx, images, 1, &p));
    CHECK_INT(image_on(p, NULL), USM_IMAGE_SPIRV);
    usm_program_destroy(p);
    images[0].size--;
    REFUSED(create(ctx, images, 1, &p), USM_E_INVALID, "bundle");
    usm_context_destroy(ctx);
}

static void spirv_that_does_not_build_gives_way_to_text(void)
{
    usm_context *ctx      = context_of("fake:0");
    usm_image    images[] = {fake_spirv("#error version 9"), fake_text("kernel k(PV)")};
    usm_program *p        = NULL;
    const char  *log      = plain_path("log");
    char         line[1024];

    REFUSED(usm_config_set("no_such_setting", "1"), USM_E_SETTING, "no_such_setting");
    OK(usm_config_set("log", "level:info;output:stderr"));
    CHECK(freopen(log, "we", stderr) != NULL);
    OK(create(ctx, images, 2, &p));
    OK(usm_config_set("log", NULL));
    CHECK_INT(image_on(p, NULL), USM_IMAGE_OPENCL_C);
    CHECK_IN("fake:0 does not take the spirv image", plain_read(log, line, sizeof line));
    CHECK_IN("version 9", line);
    CHECK_IN("fake:0 takes the opencl_c image instead", line);
    CHECK_IN("no_such_setting", usm_last_error()); /* success leaves the story alone */
    usm_program_destroy(p);
    REFUSED(create(ctx, images, 1, &p), USM_E_BUILD, "version 9");
    images[1] = fake_text("#unknown"); /* the compile error is told, not what came after it */
    REFUSED(create(ctx, images, 2, &p), USM_E_BUILD, "version 9");
    usm_context_destroy(ctx);
}

static void a_binary_for_another_device_leaves_the_device_out(void)
{
    usm_context *ctx      = context_of("fake:0,2");
    usm_image    images[] = {{USM_IMAGE_BINARY, "OTHERBIN", 8}, native_image};
    usm_program *p        = NULL;

    OK(create(ctx, images, 2, &p));
    CHECK_INT(image_on(p, device(ctx, 1)), USM_IMAGE_NATIVE);
    CHECK_INT(usm_program_get_image(p, NULL, &(usm_image_type){0}), USM_E_NO_IMAGE);
    usm_program_destroy(p);
    REFUSED(create(ctx, images, 1, &p), USM_E_NO_IMAGE, "the program has binary");
    usm_context_destroy(ctx);
}

static void no_image_names_what_devices_take_and_what_there_is(void)
{
    usm_context *ctx  = context_of("fake:2,3");
    usm_image    text = fake_text("kernel k(PV)");
    usm_program *p    = NULL;

    REFUSED(create(ctx, &text, 1, &p), USM_E_NO_IMAGE,
            "fake:2 takes native; fake:3 runs no kernels; the program has opencl_c");
    CHECK(p == NULL);
    usm_context_destroy(ctx);
    ctx = context_of("fake:0");
    REFUSED(create(ctx, &native_image, 1, &p), USM_E_NO_IMAGE,
            "fake:0 takes spirv, opencl_c; the program has native");
    usm_context_destroy(ctx);
}

static void images_that_cannot_be_right_are_named(void)
{
    static const usm_arg_kind      wild[]    = {USM_ARG_POINTER, (usm_arg_kind)9};
    static const usm_native_kernel noname[]  = {{NULL, nothing, 0, NULL}};
    static const usm_native_kernel nofn[]    = {{"k", NULL, 0, NULL}};
    static const usm_native_kernel twice[]   = {{"k", nothing, 0, NULL}, {"k", nothing, 0, NULL}};
    static const usm_native_kernel badkind[] = {{"k", nothing, 2, wild}};
    const struct {
        usm_image   image;
        const char *culprit;
    } bad[] = {
        {{USM_IMAGE_OPENCL_C, NULL, 5}, "image 0 (opencl_c) has no data"},
        {{USM_IMAGE_SPIRV, "x", 0}, "image 0 (spirv) has no data"},
        {{(usm_image_type)77, "x", 1}, "type 77"},
        {{(usm_image_type)0, "x", 1}, "type 0"},
        {{USM_IMAGE_OPENCL_C, "\0\0", 2}, "empty"},
        {{USM_IMAGE_SPIRV, "not SPIR-V at all...", 20}, "magic"},
        {{USM_IMAGE_SPIRV, "\x03\x02\x23\x07", 4}, "magic"},
        {{USM_IMAGE_BUNDLE, "x", 1}, "bundle"},
        {{USM_IMAGE_NATIVE, native_table, sizeof native_table - 1}, "sizeof"},
        {{USM_IMAGE_NATIVE, noname, sizeof noname}, "kernel 0 has no name"},
        {{USM_IMAGE_NATIVE, nofn, sizeof nofn}, "\"k\" has no function"},
        {{USM_IMAGE_NATIVE, twice, sizeof twice}, "twice"},
        {{USM_IMAGE_NATIVE, badkind, sizeof badkind}, "argument 1 has the kind 9"},
    };
    usm_context *ctx = context_of("fake:0,2");
    usm_program *p   = NULL;

    for (size_t i = 0; i < COUNT(bad); i++)
        REFUSED(create(ctx, &bad[i].image, 1, &p), USM_E_INVALID, bad[i].culprit);
    CHECK(p == NULL);
    usm_context_destroy(ctx);
}

static void the_0_of_a_string_literal_is_no_part_of_the_text(void)
{
    static const char text[]  = "kernel k(PV)";
    usm_context      *ctx     = context_of("fake:0");
    usm_image         with    = {USM_IMAGE_OPENCL_C, text, sizeof text};
    usm_image         without = {USM_IMAGE_OPENCL_C, text, sizeof text - 1};
    int               before  = builds();
    usm_program      *a = program_of(ctx, with), *b = program_of(ctx, without);

    CHECK_INT(builds(), before + 1); /* the cache sees one program */
    usm_program_destroy(a);
    usm_program_destroy(b);
    usm_context_destroy(ctx);
}

static void descriptors_and_handles_are_checked(void)
{
    usm_context     *ctx  = context_of("fake:0");
    usm_image        text = fake_text("kernel k(PV)");
    usm_program_desc desc = USM_PROGRAM_DESC_INIT;
    usm_program     *p    = NULL;
    usm_kernel      *k    = NULL;
    char             log[4];

    REFUSED(usm_program_create(ctx, NULL, &p), USM_E_INVALID, "desc is NULL");
    REFUSED(usm_program_create(ctx, &desc, &p), USM_E_INVALID, "0 images");
    desc.images  = &text;
    desc.nimages = 1;
    REFUSED(usm_program_create(ctx, &desc, NULL), USM_E_INVALID, "program is NULL");
    desc.struct_size = 8;
    REFUSED(usm_program_create(ctx, &desc, &p), USM_E_ABI, "USM_PROGRAM_DESC_INIT");
    desc.struct_size = sizeof desc;
    desc.log_size    = sizeof log;
    REFUSED(usm_program_create(ctx, &desc, &p), USM_E_INVALID, "log is NULL");
    desc.log_size = 0;
    desc.images   = NULL;
    REFUSED(usm_program_create(ctx, &desc, &p), USM_E_INVALID, "1 image at");
    CHECK(p == NULL);

    p = program_of(ctx, text);
    REFUSED(usm_program_get_image(p, NULL, NULL), USM_E_INVALID, "type is NULL");
    REFUSED(usm_kernel_create(p, NULL, &k), USM_E_INVALID, "name");
    REFUSED(usm_kernel_create(p, "", &k), USM_E_INVALID, "name");
    REFUSED(usm_kernel_create(p, "k", NULL), USM_E_INVALID, "kernel is NULL");
    REFUSED(usm_kernel_create((usm_program *)ctx, "k", &k), USM_E_INVALID_HANDLE, "is a context");
    usm_program_destroy(p);
    REFUSED(usm_kernel_create(p, "k", &k), USM_E_INVALID_HANDLE, "was destroyed");
    usm_program_destroy(p); /* refused, harmless */
    usm_program_destroy(NULL);
    usm_kernel_destroy(NULL);
    CHECK(k == NULL);
    usm_context_destroy(ctx);
}

/* --- build logs ----------------------------------------------------------------------------- */

static void a_compile_error_reaches_the_caller(void)
{
    usm_context     *ctx  = context_of("fake:0");
    usm_image        text = fake_text("#error use of undeclared identifier 'foo'\n");
    usm_program_desc desc = USM_PROGRAM_DESC_INIT;
    usm_program     *p    = NULL;
    char             log[256];

    desc.images  = &text;
    desc.nimages = 1;
    REFUSED(usm_program_create(ctx, &desc, &p), USM_E_BUILD,
            "the opencl_c image does not build for fake:0: k.cl:1:1: error: use of undeclared "
            "identifier 'foo' (usm_program_desc.log");
    memset(log, 'x', sizeof log);
    desc.log      = log;
    desc.log_size = sizeof log;
    REFUSED(usm_program_create(ctx, &desc, &p), USM_E_BUILD, "undeclared identifier");
    CHECK(strncmp(log, "Compilation started\n", 20) == 0);
    CHECK_IN("1 error generated.", log);
    memset(log, 'x', sizeof log);
    desc.log_size = 10;
    REFUSED(usm_program_create(ctx, &desc, &p), USM_E_BUILD, "undeclared identifier");
    CHECK_STR(log, "Compilati");
    CHECK(log[10] == 'x');
    desc.log_size = 1;
    REFUSED(usm_program_create(ctx, &desc, &p), USM_E_BUILD, "undeclared identifier");
    CHECK_STR(log, "");
    CHECK(p == NULL);
    usm_context_destroy(ctx);
}

static void logs_of_success_and_of_several_builds_are_kept(void)
{
    usm_context     *ctx      = context_of("fake:0,1");
    usm_image        images[] = {fake_spirv("#error one"), fake_text("#warn two\nkernel k()")};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;
    usm_program     *p        = NULL;
    const char      *at;
    char             log[1024];

    desc.images   = images;
    desc.nimages  = 2;
    desc.log      = log;
    desc.log_size = sizeof log;
    OK(usm_program_create(ctx, &desc, &p));
    CHECK_IN("error: one", log); /* of each device */
    at = strstr(log, "warning: two");
    CHECK(at != NULL);
    CHECK_IN("error: one", at);
    at = strstr(at, "error: one");
    CHECK_IN("warning: two", at);
    usm_program_destroy(p);
    images[0] = fake_text("kernel quiet()");
    OK(usm_program_create(ctx, &desc, &p));
    CHECK_STR(log, "");
    usm_program_destroy(p);
    usm_context_destroy(ctx);
}

/* --- the cache in memory -------------------------------------------------------------------- */

static void a_program_is_built_once_for_each_device_and_option(void)
{
    usm_context     *ctx    = context_of("fake:0,1");
    usm_image        text   = fake_text("kernel once(PV)");
    usm_program_desc desc   = USM_PROGRAM_DESC_INIT;
    usm_program     *p[4]   = {NULL};
    int              before = builds();

    desc.images  = &text;
    desc.nimages = 1;
    OK(usm_program_create(ctx, &desc, &p[0]));
    CHECK_INT(builds(), before + 2);
    OK(usm_program_create(ctx, &desc, &p[1]));
    CHECK_INT(builds(), before + 2);
    desc.options = "-DN=4";
    OK(usm_program_create(ctx, &desc, &p[2]));
    CHECK_INT(builds(), before + 4);
    for (size_t i = 0; i < 3; i++)
        usm_program_destroy(p[i]);
    desc.options = NULL;
    OK(usm_program_create(ctx, &desc, &p[3]));
    CHECK_INT(builds(), before + 4);
    usm_program_destroy(p[3]);
    usm_context_destroy(ctx);
    CHECK_INT(fake_alive(), 0);
}

static void a_failed_build_is_tried_again(void)
{
    usm_context *ctx    = context_of("fake:0");
    usm_image    text   = fake_text("#error no\n");
    int          before = builds();
    usm_program *p      = NULL;

    CHECK_INT(create(ctx, &text, 1, &p), USM_E_BUILD);
    CHECK_INT(create(ctx, &text, 1, &p), USM_E_BUILD);
    CHECK_INT(builds(), before + 2);
    usm_context_destroy(ctx);
}

static void native_tables_are_not_shared(void)
{
    usm_context *ctx    = context_of("fake:2");
    int          before = builds();
    usm_program *a = program_of(ctx, native_image), *b = program_of(ctx, native_image);

    CHECK_INT(builds(), before + 2);
    usm_program_destroy(a);
    usm_program_destroy(b);
    CHECK_INT(fake.programs, 0); /* and none is kept */
    usm_context_destroy(ctx);
}

typedef struct racer {
    pthread_t    thread;
    usm_context *ctx;
    usm_image    image;
    usm_program *program;
    usm_status   status;
} racer;

static void *race(void *arg)
{
    racer *r = arg;

    r->status = create(r->ctx, &r->image, 1, &r->program);
    return NULL;
}

static void run_race(racer *racers, size_t n, usm_context *ctx, usm_image image)
{
    for (size_t i = 0; i < n; i++) {
        racers[i] = (racer){.ctx = ctx, .image = image};
        CHECK_INT(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (size_t i = 0; i < n; i++)
        CHECK_INT(pthread_join(racers[i].thread, NULL), 0);
}

static void threads_that_want_one_program_build_it_once(void)
{
    usm_context *ctx    = context_of("fake:0");
    int          before = builds();
    racer        racers[8];

    fake.build_ms = 50;
    run_race(racers, 8, ctx, fake_text("kernel shared(P)"));
    CHECK_INT(builds(), before + 1);
    for (size_t i = 0; i < 8; i++) {
        CHECK_INT(racers[i].status, USM_OK);
        usm_program_destroy(racers[i].program);
    }
    run_race(racers, 4, ctx, fake_text("#error shared\n"));
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(racers[i].status, USM_E_BUILD);
    fake.build_ms = 0;
    usm_context_destroy(ctx);
    CHECK_INT(fake_alive(), 0);
}

static void the_cache_forgets_programs_nobody_uses(void)
{
    usm_context *ctx  = context_of("fake:0");
    usm_program *held = program_of(ctx, fake_text("kernel held()"));
    int          before;
    char         text[64];

    for (int i = 0; i < 500; i++) {
        (void)snprintf(text, sizeof text, "kernel k%d(P)", i);
        usm_program_destroy(program_of(ctx, fake_text(text)));
        CHECK(fake.programs <= 130);
    }
    CHECK(fake.programs > 100); /* it is a cache after all */
    before = builds();
    usm_program_destroy(program_of(ctx, fake_text(text)));
    usm_program_destroy(program_of(ctx, fake_text("kernel held()"))); /* in use: never forgotten */
    CHECK_INT(builds(), before);
    CHECK_INT(image_on(held, NULL), USM_IMAGE_OPENCL_C);
    usm_program_destroy(held);
    usm_context_destroy(ctx);
    CHECK_INT(fake_alive(), 0);
}

/* --- kernels -------------------------------------------------------------------------------- */

static void a_missing_kernel_is_told_what_there_is(void)
{
    static char  text[2048] = "kernel first(P)\nkernel second()\n";
    usm_context *ctx        = context_of("fake:0");
    usm_program *p          = program_of(ctx, fake_text(text));
    usm_kernel  *k          = NULL;
    char         name[300];

    REFUSED(usm_kernel_create(p, "third", &k), USM_E_NO_KERNEL,
            "no kernel \"third\" for fake:0; the program has: first, second");
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = 0;
    REFUSED(usm_kernel_create(p, name, &k), USM_E_NO_KERNEL, "127 bytes");
    usm_program_destroy(p);
    for (size_t i = 0, used = strlen(text); i < 60; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "kernel a_longer_name_%zu()\n", i);
    p = program_of(ctx, fake_text(text));
    REFUSED(usm_kernel_create(p, "third", &k), USM_E_NO_KERNEL, "first, second, a_longer_name_0, ");
    CHECK_STR(usm_last_error() + strlen(usm_last_error()) - 5, ", ...");
    CHECK(strlen(usm_last_error()) < 600);
    usm_program_destroy(p);
    p = program_of(ctx, fake_text("nothing here"));
    REFUSED(usm_kernel_create(p, "k", &k), USM_E_NO_KERNEL, "has: none");
    usm_program_destroy(p);
    CHECK(k == NULL);
    usm_context_destroy(ctx);
}

static void kernels_of_differing_images_are_compared(void)
{
    static const struct {
        const char *text, *culprit;
    } bad[] = {
        {"kernel k(P)", "\"k\" has 2 arguments on fake:2, but 1"},
        {"kernel k(PP)", "argument 1 of kernel \"k\" is a value on fake:2, but a pointer"},
    };
    usm_context *ctx       = context_of("fake:0,2");
    usm_image    images[2] = {native_image};
    usm_program *p         = NULL;
    usm_kernel  *k         = NULL;

    for (size_t i = 0; i < COUNT(bad); i++) {
        images[1] = fake_text(bad[i].text);
        OK(create(ctx, images, 2, &p));
        REFUSED(usm_kernel_create(p, "k", &k), USM_E_INVALID, bad[i].culprit);
        usm_program_destroy(p);
    }
    images[1] = fake_text("kernel k(--)"); /* what one does not tell, the other does */
    OK(create(ctx, images, 2, &p));
    OK(usm_kernel_create(p, "k", &k));
    CHECK_INT(k->nargs, 2);
    CHECK_INT(k->kinds[0], USM_ARG_POINTER);
    CHECK_INT(k->kinds[1], USM_ARG_VALUE);
    usm_kernel_destroy(k);
    usm_program_destroy(p);
    CHECK_INT(fake.kernels, 0);
    usm_context_destroy(ctx);
}

static void kernels_outlive_their_program_and_context_handles(void)
{
    usm_context *ctx = context_of("fake:0");
    usm_program *p   = program_of(ctx, fake_text("kernel k(PV)"));
    usm_kernel  *k   = NULL;

    OK(usm_kernel_create(p, "k", &k));
    usm_program_destroy(p);
    OK(usm__kernel_check(k));
    CHECK_INT(fake.kernels, 1);
    usm_context_destroy(ctx);
    CHECK_INT(fake.contexts, 1); /* until its last object goes */
    REFUSED(usm__kernel_check(k), USM_E_INVALID_HANDLE, "context");
    usm_kernel_destroy(k);
    CHECK_INT(fake_alive(), 0);
    REFUSED(usm__kernel_check(k), USM_E_INVALID_HANDLE, "was destroyed");
    usm_kernel_destroy(k); /* refused, harmless */
}

static usm_context *parents_context;
static usm_program *parents_program;
static usm_kernel  *parents_kernel;
static void *volatile parents_native[4]; /* what the child lets lie, for leak checkers to see */

static void use_in_child(void)
{
    usm_image    text = fake_text("kernel k(PV)");
    usm_program *p    = NULL;
    usm_kernel  *k    = NULL;
    int          live = fake_alive();

    REFUSED(create(parents_context, &text, 1, &p), USM_E_FORKED, "fork");
    REFUSED(usm_kernel_create(parents_program, "k", &k), USM_E_FORKED, "fork");
    REFUSED(usm__kernel_check(parents_kernel), USM_E_FORKED, "fork");
    usm_kernel_destroy(parents_kernel);
    usm_program_destroy(parents_program);
    usm_context_destroy(parents_context);
    CHECK_INT(fake_alive(), live); /* the driver is not called */
}

static void programs_are_inert_in_a_forked_child(void)
{
    usm_image images[] = {fake_text("kernel k(PV)"), native_image};

    parents_context = context_of("fake:0,2");
    OK(create(parents_context, images, 2, &parents_program));
    OK(usm_kernel_create(parents_program, "k", &parents_kernel));
    for (size_t i = 0; i < 2; i++) {
        parents_native[i]     = parents_kernel->native[i];
        parents_native[i + 2] = parents_program->built[i]->native;
    }
    CHECK_INT(plain_child(use_in_child, NULL), 0);
    OK(usm__kernel_check(parents_kernel));
    usm_kernel_destroy(parents_kernel);
    usm_program_destroy(parents_program);
    usm_context_destroy(parents_context);
}

/* --- failures from below -------------------------------------------------------------------- */

static usm_status whole_life(usm_context *ctx)
{
    usm_image images[] = {native_image, fake_spirv("#error x"), fake_text("#warn w\nkernel k(PV)")};
    usm_program *p     = NULL;
    usm_kernel  *k = NULL, *none = NULL;
    usm_status   s = create(ctx, images, 3, &p);

    if (s == USM_OK)
        s = usm_kernel_create(p, "k", &k);
    if (s == USM_OK) {
        s = usm_kernel_create(p, "no", &none);
        CHECK(s != USM_OK && !none);
        s = s == USM_E_NO_KERNEL ? USM_OK : s;
    }
    usm_kernel_destroy(k);
    usm_program_destroy(p);
    return s;
}

/* The n-th call of `point` fails, for every n there is.  `how` is for calls of the backend. */
static void sweep(const char *point, usm_status how, usm_status want)
{
    for (uint64_t n = 1;; n++) {
        usm_context *ctx = context_of("fake:0,2");
        usm_status   s;
        bool         fired;

        CHECK(n < 200);
        CHECK(usm__fault_arm(point, n, false, how));
        s     = whole_life(ctx);
        fired = usm__fault_fired() > 0;
        usm__fault_disarm_all();
        if (s != USM_OK)
            CHECK_STR(usm_status_name(s), usm_status_name(want));
        if (s != USM_OK)
            CHECK(*usm_last_error());
        OK(whole_life(ctx)); /* everything still works */
        usm_context_destroy(ctx);
        CHECK_INT(fake_alive(), 0);
        if (!fired) {
            CHECK(n > 1);
            return;
        }
    }
}

static void running_out_of_memory_anywhere_leaks_nothing(void)
{
    sweep("heap.alloc", USM_OK, USM_E_NO_MEMORY);
}

static void a_driver_that_fails_anywhere_leaks_nothing(void)
{
    sweep("program_build", USM_E_DEVICE_LOST, USM_E_DEVICE_LOST);
    sweep("program_build", USM_E_NO_MEMORY, USM_E_NO_MEMORY);
    sweep("kernel_create", USM_E_DEVICE_LOST, USM_E_DEVICE_LOST);
    sweep("kernel_info", USM_E_DEVICE_LOST, USM_E_DEVICE_LOST);
    sweep("program_kernels", USM_E_DEVICE_LOST, USM_E_INTERNAL); /* never the status */
}

static const plain_case cases[] = {CASE(a_bundle_gives_its_images_in_place),
                                   CASE(a_broken_bundle_is_refused_by_what_is_broken),
                                   CASE(a_bundle_cut_anywhere_is_refused),
                                   CASE(each_device_takes_the_best_image),
                                   CASE(a_bundle_serves_devices_by_what_is_in_it),
                                   CASE(spirv_that_does_not_build_gives_way_to_text),
                                   CASE(a_binary_for_another_device_leaves_the_device_out),
                                   CASE(no_image_names_what_devices_take_and_what_there_is),
                                   CASE(images_that_cannot_be_right_are_named),
                                   CASE(the_0_of_a_string_literal_is_no_part_of_the_text),
                                   CASE(descriptors_and_handles_are_checked),
                                   CASE(a_compile_error_reaches_the_caller),
                                   CASE(logs_of_success_and_of_several_builds_are_kept),
                                   CASE(a_program_is_built_once_for_each_device_and_option),
                                   CASE(a_failed_build_is_tried_again),
                                   CASE(native_tables_are_not_shared),
                                   CASE(threads_that_want_one_program_build_it_once),
                                   CASE(the_cache_forgets_programs_nobody_uses),
                                   CASE(a_missing_kernel_is_told_what_there_is),
                                   CASE(kernels_of_differing_images_are_compared),
                                   CASE(kernels_outlive_their_program_and_context_handles),
                                   CASE(programs_are_inert_in_a_forked_child),
                                   CASE(running_out_of_memory_anywhere_leaks_nothing),
                                   CASE(a_driver_that_fails_anywhere_leaks_nothing),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    usm__registry_add_backend("fake", fake_backend_entry);
    (void)usm_config_set("cache_dir", "off");
    return plain_main(argc, argv, cases);
}
