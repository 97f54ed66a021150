/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The Level Zero backend: programs of SPIR-V and of the driver's binaries, their logs, binaries and
 * kinds, and what is no image at all.  Launches: test_level_zero_kernels.c. */
#include "level_zero_images.h"

#include "backends/level_zero/program.h"

/* --- what is built ------------------------------------------------------------------------ */

static void programs_are_built_and_run(void)
{
    needs_commands();
    over_images(0, check_add);
}

static void check_names(void *program)
{
    char *names = NULL;

    CHECK_INT(ops->program_kernels(program, &names), USM_OK);
    CHECK_IN("add", names);
    CHECK_IN(";", names);
    CHECK_IN("eights", names);
    module_heap_free(names);
}

static void kernels_are_listed(void)
{
    over_images(0, check_names);
}

static void check_kinds(void *program)
{
    static const char  *names[]       = {"sum", "odd"};
    static usm_arg_kind expected[][5] = {
        {USM_ARG_POINTER, USM_ARG_POINTER, USM_ARG_LOCAL},
        {USM_ARG_POINTER, USM_ARG_VALUE, USM_ARG_VALUE, USM_ARG_VALUE, USM_ARG_VALUE}};
    static const size_t nargs[] = {3, 5};

    for (size_t i = 0; i < 2; i++) {
        usm_arg_kind kinds[5] = {USM_ARG_NONE};
        size_t       n        = 0;
        void        *k        = kernel_of(program, names[i]);

        CHECK_INT(ops->kernel_info(k, &n, kinds, 2), USM_OK);
        CHECK_INT(n, nargs[i]);
        CHECK_INT(kinds[2], USM_ARG_NONE); /* beyond cap */
        CHECK_INT(ops->kernel_info(k, &n, kinds, 5), USM_OK);
        CHECK_INT(memcmp(kinds, expected[i], sizeof(kinds)), 0);
        ops->kernel_destroy(k);
    }
}

static void kinds_of_arguments_are_known(void)
{
    over_images(0, check_kinds);
}

static void check_groups(void *program)
{
    void              *any = kernel_of(program, "sum"), *eights = kernel_of(program, "eights");
    usm_backend_groups groups;

    CHECK_INT(ops->kernel_groups(any, &groups), USM_OK);
    CHECK(groups.max_size >= 8 && groups.multiple >= 1 && groups.required[0] == 0);
    CHECK_INT(ops->kernel_groups(eights, &groups), USM_OK);
    CHECK(groups.required[0] == 8 && groups.required[1] == 1 && groups.required[2] == 1);
    ops->kernel_destroy(any);
    ops->kernel_destroy(eights);
}

static void work_groups_of_a_kernel_are_known(void)
{
    over_images(0, check_groups);
}

static void check_binary(void *program)
{
    void      *data = NULL, *again;
    size_t     size = 0;
    usm_image  damaged;
    usm_status s = ops->program_binary(program, &data, &size);

    if (s == USM_E_NOT_SUPPORTED) {
        printf("#   the driver has no binary of it\n");
        return;
    }
    CHECK_INT(s, USM_OK);
    CHECK(size > 0);
    again = build_with(USM_IMAGE_BINARY, data, size, NULL);
    check_kinds(again);
    if (!is_capture)
        check_add(again);
    ops->program_destroy(again);
    memset((char *)data + 8, 0xff, 8); /* the size of what stands before the driver's own */
    damaged = (usm_image){USM_IMAGE_BINARY, data, size};
    CHECK_INT(ops->program_build(ctx, dev->handle, &damaged, NULL, NULL, &again), USM_E_BUILD);
    CHECK_IN("damaged", usm_last_error());
    module_heap_free(data);
}

static void a_binary_comes_back_as_the_same_program(void)
{
    over_images(0, check_binary);
}

/* Without our kinds in front it is taken, too, and no kind is claimed. */
static void a_bare_binary_has_unknown_kinds(void)
{
    usm_arg_kind kinds[3] = {USM_ARG_VALUE, USM_ARG_VALUE, USM_ARG_VALUE};
    size_t       n        = 0;
    void        *program, *k;

    if (!native_size)
        SKIP("no native binary that does not come from a program");
    open_with(0);
    program = build_with(USM_IMAGE_BINARY, native, native_size, NULL);
    k       = kernel_of(program, "sum");
    CHECK_INT(ops->kernel_info(k, &n, kinds, 3), USM_OK);
    CHECK_INT(n, 3);
    for (int i = 0; i < 3; i++)
        CHECK_INT(kinds[i], USM_ARG_NONE);
    check_add(program);
    ops->kernel_destroy(k);
    ops->program_destroy(program);
    close_all();
}

/* Refused with a story that has `word`; the log, when there must be one, is not empty. */
static void not_built(usm_image_type type, const void *data, size_t size, usm_status status,
                      const char *word, bool has_log)
{
    usm_image image   = {type, data, size};
    char     *log     = NULL;
    void     *program = NULL;

    CHECK_INT(ops->program_build(ctx, dev->handle, &image, NULL, &log, &program), status);
    CHECK(program == NULL);
    if (has_log && getenv("ZE_ENABLE_LOADER_INTERCEPT")) { /* as with several drivers */
        CHECK(log == NULL);
        CHECK_IN("does not build", usm_last_error());
        return;
    }
    CHECK_IN(word, usm_last_error());
    if (has_log) {
        CHECK(log && log[0]);
        printf("#   %.*s\n", (int)strcspn(log, "\n"), log);
    }
    module_heap_free(log);
}

static void what_is_no_image_is_refused_before_the_driver(void)
{
    static _Alignas(8) const char text[] = "kernel void f(global int *a) { a[0] = 1; }  ";

    open_with(0);
    not_built(USM_IMAGE_OPENCL_C, text, sizeof(text) - 1, USM_E_NO_IMAGE, "usm_add_kernels()",
              false);
    not_built(USM_IMAGE_NATIVE, text, 8, USM_E_NO_IMAGE, "usm_add_kernels()", false);
    if (has(USM_ASPECT_IMAGE_SPIRV)) {
        not_built(USM_IMAGE_SPIRV, text, sizeof(text) - 1, USM_E_BUILD, "SPIR-V", false);
        not_built(USM_IMAGE_SPIRV, text, 4, USM_E_BUILD, "SPIR-V", false);
        not_built(USM_IMAGE_SPIRV, spirv, 16, USM_E_BUILD, "SPIR-V", false);
    }
    close_all();
}

static void a_program_that_does_not_build_says_why(void)
{
    static _Alignas(8) char bad[FILE_MAX];

    open_with(0);
    not_built(USM_IMAGE_BINARY, "no binary of any driver", 23, USM_E_BUILD, dev->name, false);
    if (has_spirv()) { /* a header, then nothing that is an instruction */
        memset(bad, 0xff, spirv_size);
        memcpy(bad, spirv, 20);
        not_built(USM_IMAGE_SPIRV, bad, spirv_size, USM_E_BUILD, dev->name, true);
    }
    if (native_size) { /* it begins as a shared object does, and is cut off */
        not_built(USM_IMAGE_BINARY, native, 200, USM_E_BUILD, dev->name, true);
    }
    close_all();
}

static void options_of_the_text_do_not_reach_spir_v(void)
{
    static const struct {
        const char *options, *flags;
    } tries[] = {
        {NULL, ""},
        {" \t", ""},
        {"-DN=4 -D M=\"a b\" -I /nowhere -I/nowhere -cl-std=CL2.0 -Werror -w", ""},
        {"-cl-mad-enable  -ze-opt-disable", "-cl-mad-enable -ze-opt-disable"},
        {"-D", ""},
        {"-DS=\"-g -g\" -g -cl-kernel-arg-info", "-g"},
    };
    static const char large[] = "-ze-opt-greater-than-4GB-buffer-required";
    char              expected[128];

    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        const char *of = tries[i].flags;

        module_start();
        for (int is_large = 0; is_large < 2; is_large++) {
            char *flags = lz_build_flags(tries[i].options, is_large);

            (void)snprintf(expected, sizeof(expected), "%s%s%s", of, is_large && of[0] ? " " : "",
                           is_large ? large : "");
            CHECK_STR(flags, expected);
            module_heap_free(flags);
        }
        module_clean();
    }
    if (!has_spirv())
        SKIP("the device takes no SPIR-V, or none was made");
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        open_with(0);
        ops->program_destroy(build_with(USM_IMAGE_SPIRV, spirv, spirv_size, tries[i].options));
        close_all();
    }
}

/* ------------------------------------------------------------------------------------------ */

static const plain_case cases[] = {
    CASE(the_software_driver_is_found_where_it_runs),
    CASE(programs_are_built_and_run),
    CASE(kernels_are_listed),
    CASE(kinds_of_arguments_are_known),
    CASE(work_groups_of_a_kernel_are_known),
    CASE(a_binary_comes_back_as_the_same_program),
    CASE(a_bare_binary_has_unknown_kinds),
    CASE(what_is_no_image_is_refused_before_the_driver),
    CASE(a_program_that_does_not_build_says_why),
    CASE(options_of_the_text_do_not_reach_spir_v),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    static const plain_case none[] = {{NULL, NULL}};

    read_files();
    return level_zero_main(argc, argv, cases, none);
}
