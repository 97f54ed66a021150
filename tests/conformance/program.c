/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "program": images, builds and their failures, the cache of built programs.
 * What launches do is in launch.c; the kernels themselves in kernels.cl and kernels.c. */
#include "common.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char broken[] = "kernel void k(global int *p) { p[0] = no_such_variable; }";

static usm_status build(usm_context *ctx, usm_image image, usm_program **program)
{
    usm_program_desc desc = USM_PROGRAM_DESC_INIT;

    desc.nimages = 1;
    desc.images  = &image;
    return usm_program_create(ctx, &desc, program);
}

/* Runs `ids` of a program and looks at the result. */
static void check_ids(const rig *r, usm_program *program)
{
    usm_kernel *kernel = kernel_new(program, "ids");
    usm_launch  launch = USM_LAUNCH_INIT;
    int         add = 7, back[100], *out = mem(r, USM_DEVICE, sizeof back);
    usm_arg     args[] = {USM_ARG_PTR(out), USM_ARG_VAL(add)};

    launch.kernel    = kernel;
    launch.global[0] = 100;
    launch.nargs     = 2;
    launch.args      = args;
    CHECK_OK(usm_queue_submit(r->q, &launch, 0, NULL, NULL));
    get(r, back, out, sizeof back);
    for (int i = 0; i < 100; i++)
        CHECK(back[i] == i + 7, "%s: item %d wrote %d", r->name, i, back[i]);
    usm_kernel_destroy(kernel);
    usm_free(out);
}

/* Builds one type of image and runs it. */
static void check_image(usm_image_type type, uint64_t aspect)
{
    usm_image image = image_of(type);

    if (!image.data)
        skip("this build has no image of type %d: clang or llvm-spirv was not found", (int)type);
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE | aspect))
            continue;
        usm_program   *program = NULL;
        usm_image_type took    = USM_IMAGE_BINARY;
        CHECK_OK(build(r.ctx, image, &program));
        CHECK_OK(usm_program_get_image(program, r.dev, &took));
        CHECK(took == type || type == USM_IMAGE_BUNDLE, "%s took %d", r.name, (int)took);
        check_ids(&r, program);
        usm_program_destroy(program);
    }
}

Test(program, opencl_c_builds_and_runs)
{
    check_image(USM_IMAGE_OPENCL_C, NEED(IMAGE_OPENCL_C));
}

Test(program, spirv_builds_and_runs)
{
    check_image(USM_IMAGE_SPIRV, NEED(IMAGE_SPIRV));
}

Test(program, native_functions_run)
{
    check_image(USM_IMAGE_NATIVE, NEED(IMAGE_NATIVE));
}

Test(program, a_bundle_runs_by_the_image_that_fits)
{
    check_image(USM_IMAGE_BUNDLE, NEED(IMAGE_OPENCL_C));
}

Test(program, each_device_takes_the_best_image_it_can_run)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        usm_program   *program = program_new(&r); /* native functions and a bundle */
        usm_image_type took    = USM_IMAGE_BINARY;
        CHECK_OK(usm_program_get_image(program, r.dev, &took));
        CHECK((took == USM_IMAGE_NATIVE) == has(&r, NEED(IMAGE_NATIVE)), "%s took %d", r.name,
              (int)took);
        check_ids(&r, program);
        usm_program_destroy(program);
    }
}

Test(program, a_text_that_does_not_compile_gives_its_log)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(IMAGE_OPENCL_C)))
            continue;
        char             log[4096] = "";
        usm_image        image     = {USM_IMAGE_OPENCL_C, broken, sizeof broken - 1};
        usm_program_desc desc      = USM_PROGRAM_DESC_INIT;
        usm_program     *program   = NULL;
        desc.nimages               = 1;
        desc.images                = &image;
        desc.log                   = log;
        desc.log_size              = sizeof log;
        CHECK_REFUSED(usm_program_create(r.ctx, &desc, &program), USM_E_BUILD, "");
        CHECK(strstr(log, "no_such_variable"), "%s: the log does not name it: %s", r.name, log);
        CHECK(!program, "%s: the output was touched", r.name);
    }
}

Test(program, a_log_that_is_too_small_is_cut_and_ended)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(IMAGE_OPENCL_C)))
            continue;
        char             log[12];
        usm_image        image   = {USM_IMAGE_OPENCL_C, broken, sizeof broken - 1};
        usm_program_desc desc    = USM_PROGRAM_DESC_INIT;
        usm_program     *program = NULL;
        memset(log, 'x', sizeof log);
        desc.nimages  = 1;
        desc.images   = &image;
        desc.log      = log;
        desc.log_size = 8;
        CHECK_IS(usm_program_create(r.ctx, &desc, &program), USM_E_BUILD);
        CHECK(memchr(log, 0, 8), "%s: not ended", r.name);
        CHECK(!memcmp(log + 8, "xxxx", 4), "%s: written beyond its size", r.name);
        CHECK_IS(build(r.ctx, image, &program), USM_E_BUILD); /* and without any */
    }
}

Test(program, options_reach_the_compiler)
{
    static const char text[] = "kernel void k(global int *p) { p[0] = VALUE; }";

    EACH_DEVICE (r) {
        if (!can(&r, NEED(IMAGE_OPENCL_C) | NEED_KERNELS | NEED_DEVICE))
            continue;
        for (int value = 41; value <= 42; value++) { /* two programs, one cache */
            char             options[32];
            usm_image        image   = {USM_IMAGE_OPENCL_C, text, sizeof text - 1};
            usm_program_desc desc    = USM_PROGRAM_DESC_INIT;
            usm_program     *program = NULL;
            usm_launch       launch  = USM_LAUNCH_INIT;
            int              back = 0, *out = mem(&r, USM_DEVICE, sizeof back);
            usm_arg          arg = USM_ARG_PTR(out);
            snprintf(options, sizeof options, "-DVALUE=%d", value);
            desc.nimages = 1;
            desc.images  = &image;
            desc.options = options;
            CHECK_OK(usm_program_create(r.ctx, &desc, &program));
            launch.kernel = kernel_new(program, "k");
            launch.nargs  = 1;
            launch.args   = &arg;
            CHECK_OK(usm_queue_submit(r.q, &launch, 0, NULL, NULL));
            get(&r, &back, out, sizeof back);
            CHECK(back == value, "%s: %d", r.name, back);
            usm_kernel_destroy(launch.kernel);
            usm_program_destroy(program);
            usm_free(out);
        }
    }
}

Test(program, a_missing_kernel_is_named_with_those_there_are)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(KERNELS)))
            continue;
        usm_program *program = program_new(&r);
        usm_kernel  *kernel  = NULL;
        CHECK_REFUSED(usm_kernel_create(program, "idz", &kernel), USM_E_NO_KERNEL, "idz");
        CHECK(story_names("axpy") && story_names("follow"), "not listed: %s", usm_last_error());
        CHECK(!kernel, "%s: the output was touched", r.name);
        CHECK_REFUSED(usm_kernel_create(program, "", &kernel), USM_E_INVALID, "name");
        usm_program_destroy(program);
    }
}

Test(program, no_image_for_any_device_is_named)
{
    EACH_DEVICE (r) {
        usm_program *program = NULL;
        bool         native = has(&r, NEED(IMAGE_NATIVE)), text = has(&r, NEED(IMAGE_OPENCL_C));
        if (native && text) {
            not_offered("%s takes every image", r.name);
            continue;
        }
        tried();
        CHECK_REFUSED(
            build(r.ctx, image_of(native ? USM_IMAGE_OPENCL_C : USM_IMAGE_NATIVE), &program),
            USM_E_NO_IMAGE, r.name);
        CHECK(!program, "%s: the output was touched", r.name);
    }
}

Test(program, images_without_data_or_of_no_type_are_refused)
{
    EACH_DEVICE (r) {
        usm_program     *program = NULL;
        usm_image        empty = {USM_IMAGE_OPENCL_C, NULL, 0}, odd = {(usm_image_type)99, "x", 1};
        usm_program_desc none = USM_PROGRAM_DESC_INIT;
        CHECK_REFUSED(build(r.ctx, empty, &program), USM_E_INVALID, "image");
        CHECK_REFUSED(build(r.ctx, odd, &program), USM_E_INVALID, "99");
        CHECK_REFUSED(usm_program_create(r.ctx, &none, &program), USM_E_INVALID, "image");
        none.struct_size = 1;
        CHECK_REFUSED(usm_program_create(r.ctx, &none, &program), USM_E_ABI, "struct_size");
        usm_image ragged = image_of(USM_IMAGE_NATIVE);
        ragged.size -= 3;
        CHECK_REFUSED(build(r.ctx, ragged, &program), USM_E_INVALID, "");
        CHECK(!program, "%s: the output was touched", r.name);
    }
}

Test(program, a_broken_bundle_is_refused)
{
    static const char *const bundles[] = {
        "",
        "USMK",
        "USMK1 1\n",
        "USMK1 1\nopencl_c 10\n\nshort",
        "USMK1 1\nopencl_c -1\n\nshort",
        "USMK1 99999999999\nopencl_c 1\n\nx",
        "USMK9 1\nopencl_c 1\n\nx",
        "USMK1 1\nopencl_c 18446744073709551615\n\nx",
        "USMK1 2\nopencl_c 18446744073709551615\nspirv 2\n\nx",
        "USMK1 0\n\n",
        "ELF and whatever",
    };

    EACH_DEVICE (r) {
        for (size_t i = 0; i < sizeof bundles / sizeof *bundles; i++) {
            usm_image    image   = {USM_IMAGE_BUNDLE, bundles[i], strlen(bundles[i])};
            usm_program *program = NULL;
            usm_status   s       = build(r.ctx, image, &program);
            CHECK(s == USM_E_INVALID, "%s: bundle %zu: %s", r.name, i, usm_status_name(s));
            CHECK(story_names("bundle") || story_names("image"), "bundle %zu: %s", i,
                  usm_last_error());
            CHECK(!program, "%s: the output was touched", r.name);
        }
    }
}

Test(program, a_broken_spirv_module_is_refused)
{
    static const uint32_t words[] = {0x07230203, 0x00010000, 0, 1, 0, 0xffffffff, 0xffffffff};

    EACH_DEVICE (r) {
        if (!can(&r, NEED(IMAGE_SPIRV)))
            continue;
        usm_image    image   = {USM_IMAGE_SPIRV, words, sizeof words};
        usm_program *program = NULL;
        usm_status   s       = build(r.ctx, image, &program);
        CHECK(s == USM_E_BUILD || s == USM_E_INVALID, "%s: %s", r.name, usm_status_name(s));
        CHECK(story_names(""), "%s: no message", r.name);
    }
}

Test(program, kernels_outlive_their_program)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        usm_program *program = program_new(&r);
        usm_kernel  *kernel  = kernel_new(program, "ids");
        usm_launch   launch  = USM_LAUNCH_INIT;
        int          add = 1, back[10], *out = mem(&r, USM_DEVICE, sizeof back);
        usm_arg      args[] = {USM_ARG_PTR(out), USM_ARG_VAL(add)};
        usm_program_destroy(program);
        launch.kernel    = kernel;
        launch.global[0] = 10;
        launch.nargs     = 2;
        launch.args      = args;
        CHECK_OK(usm_queue_submit(r.q, &launch, 0, NULL, NULL));
        usm_kernel_destroy(kernel); /* the launch in flight goes on */
        get(&r, back, out, sizeof back);
        CHECK(back[9] == 10, "%s: %d", r.name, back[9]);
        usm_free(out);
    }
}

Test(program, one_program_serves_every_device_of_its_context)
{
    EACH_DEVICE (r) {
        usm_device_info  info     = USM_DEVICE_INFO_INIT;
        usm_device      *parts[8] = {NULL};
        usm_context_desc desc     = USM_CONTEXT_DESC_INIT;
        rig              part     = {0};
        char             term[64];
        size_t           count = 0;
        CHECK_OK(usm_device_get_info(r.dev, &info));
        if (!info.sub_devices || !has(&r, NEED_KERNELS | NEED_DEVICE)) {
            not_offered("%s has no parts, or runs no kernels", r.name);
            continue;
        }
        tried();
        snprintf(term, sizeof term, "%s.*", r.name);
        CHECK_OK(usm_select_devices(term, parts, 8, &count));
        desc.ndevices = count < 8 ? count : 8;
        desc.devices  = parts;
        part.name     = r.name;
        CHECK_OK(usm_context_create(&desc, &part.ctx));
        usm_program *program = program_new(&part);
        for (size_t i = 0; i < desc.ndevices; i++) {
            part.dev = parts[i];
            CHECK_OK(usm_queue_create(part.ctx, parts[i], NULL, &part.q));
            check_ids(&part, program);
            usm_queue_destroy(part.q);
        }
        part.q = NULL;
        usm_program_destroy(program);
        rig_end(&part);
    }
}

/* --- the cache -------------------------------------------------------------------------------- */

static void fresh_folder(char *path, size_t size)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(path, size, "%s/usm-cache-XXXXXX", tmp ? tmp : "/tmp");
    CHECK(mkdtemp(path), "no folder for the test");
}

static void remove_folder(const char *path)
{
    char command[600];

    snprintf(command, sizeof command, "chmod -R u+w '%s' && rm -rf '%s'", path, path);
    CHECK(!system(command), "cannot remove %s", path);
}

TestAlone(program, the_same_program_twice_is_right_each_time)
{
    char folder[256];

    fresh_folder(folder, sizeof folder);
    CHECK_OK(usm_config_set("cache_dir", folder));
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        for (int i = 0; i < 3; i++) {
            usm_program *program = program_new(&r);
            check_ids(&r, program);
            usm_program_destroy(program);
        }
    }
    EACH_DEVICE (r) { /* another context: from the folder */
        if (!has(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        usm_program *program = program_new(&r);
        check_ids(&r, program);
        usm_program_destroy(program);
    }
    remove_folder(folder);
}

TestAlone(program, a_cache_that_cannot_be_written_is_no_failure)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        CHECK_OK(usm_config_set("cache_dir", "/proc/no/such/folder"));
        usm_program *program = program_new(&r);
        check_ids(&r, program);
        usm_program_destroy(program);
    }
}

TestAlone(program, a_damaged_cache_is_built_anew)
{
    char folder[256], command[700];

    fresh_folder(folder, sizeof folder);
    CHECK_OK(usm_config_set("cache_dir", folder));
    for (int round = 0; round < 2; round++) {
        EACH_DEVICE (r) {
            if (!can(&r, NEED_KERNELS | NEED_DEVICE))
                continue;
            usm_program *program = program_new(&r);
            check_ids(&r, program);
            usm_program_destroy(program);
        }
        snprintf(command, sizeof command,
                 "find '%s' -type f | while read -r f; do printf garbage >\"$f\"; done", folder);
        CHECK(!system(command), "cannot damage the cache");
    }
    remove_folder(folder);
}

static int build_in_child(const char *folder)
{
    usm_config_set("cache_dir", folder);
    EACH_DEVICE (r) {
        if (!has(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        usm_program *program = program_new(&r);
        check_ids(&r, program);
        usm_program_destroy(program);
    }
    return 0;
}

TestAlone(program, many_processes_build_the_same_program_at_once)
{
    enum { N = 8 };
    char  folder[256];
    pid_t child[N];

    fresh_folder(folder, sizeof folder);
    for (int i = 0; i < N; i++) { /* before the library is used here: each child starts its own */
        child[i] = fork();
        CHECK(child[i] >= 0, "no process");
        if (child[i] == 0)
            _exit(build_in_child(folder));
    }
    for (int i = 0; i < N; i++) {
        int status = 0;
        CHECK(waitpid(child[i], &status, 0) == child[i], "waitpid");
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d: status %#x", i, status);
    }
    EACH_DEVICE (r)
        (void)can(&r, NEED_KERNELS | NEED_DEVICE);
    remove_folder(folder);
}
