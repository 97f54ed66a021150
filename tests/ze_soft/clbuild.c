/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Builds SPIR-V units as programs of the OpenCL runtime; flags of Level Zero become OpenCL's.
 *
 * Where the runtime takes SPIR-V, several units are compiled and linked by it.  Where it takes SPIR
 * bitcode, translate.c links them first, and names that nobody exports are refused before the
 * runtime sees them: PoCL finds out only at the launch, too late to say so.
 *
 * Called by module.c and code.c.  Not here: running, clrun.c. */
#include "opencl.h"

#include <stdlib.h>
#include <string.h>

/* --- flags ----------------------------------------------------------------------- */

typedef struct flag {
    const char *ze;
    const char *cl; /* "": nothing to say to an OpenCL runtime on a CPU */
} flag;

static const flag known_flags[] = {
    {"-ze-opt-disable", "-cl-opt-disable"},
    {"-ze-opt-level=0", "-cl-opt-disable"},
    {"-ze-opt-level=1", ""},
    {"-ze-opt-level=2", ""},
    {"-ze-opt-greater-than-4GB-buffer-required", ""},
    {"-ze-opt-large-register-file", ""},
    {"-ze-opt-has-buffer-offset-arg", ""},
    {"-library-compilation", ""},
    {"-ze-intel-library-compilation", ""},
    {"-take-global-address", ""},
    {"-ze-take-global-address", ""},
    {"-g", "-g"},
};

static const char *translate_flag(const char *word, size_t n, soft_text *log)
{
    for (size_t i = 0; i < sizeof(known_flags) / sizeof(*known_flags); i++)
        if (strlen(known_flags[i].ze) == n && !memcmp(known_flags[i].ze, word, n))
            return known_flags[i].cl;
    soft_text_add(log, "flag ignored: %.*s\n", (int)n, word);
    return "";
}

/* -cl-... flags are OpenCL's own and pass. */
static void translate_flags(const char *flags, soft_text *options, soft_text *log)
{
    while (*(flags += strspn(flags, " \t\n"))) {
        size_t n = strcspn(flags, " \t\n");

        if (n > 4 && !memcmp(flags, "-cl-", 4))
            soft_text_add(options, "%.*s ", (int)n, flags);
        else
            soft_text_add(options, "%s ", translate_flag(flags, n, log));
        flags += n;
    }
}

/* --- programs ---------------------------------------------------------------------- */

static void take_log(const soft_cl *cl, cl_program program, soft_text *log)
{
    size_t size = 0;
    char  *text;

    if (cl->GetProgramBuildInfo(program, cl->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size) ||
        size < 2)
        return;
    text = calloc(1, size + 1);
    if (text &&
        !cl->GetProgramBuildInfo(program, cl->device, CL_PROGRAM_BUILD_LOG, size, text, NULL))
        soft_text_add(log, "%s\n", text);
    free(text);
}

static ze_result_t failed(const soft_cl *cl, const char *what, cl_int error, soft_text *log)
{
    if (error == CL_OUT_OF_HOST_MEMORY)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    soft_text_add(log, "%s: %s answers OpenCL error %d\n", cl->name, what, error);
    return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
}

static cl_program of_bitcode(const soft_cl *cl, const soft_unit *const *units, size_t nunits,
                             soft_text *log, ze_result_t *result)
{
    uint8_t    *bitcode = NULL;
    size_t      size    = 0;
    cl_program  program = NULL;
    cl_int      error = CL_SUCCESS, status = CL_SUCCESS;
    const void *bytes;

    *result = soft_translate(cl, units, nunits, log, &bitcode, &size);
    if (*result)
        return NULL;
    bytes   = bitcode;
    program = cl->CreateProgramWithBinary(cl->context, 1, &cl->device, &size,
                                          (const unsigned char **)(void *)&bytes, &status, &error);
    free(bitcode);
    if (error)
        *result = failed(cl, "clCreateProgramWithBinary", error, log);
    return error ? NULL : program;
}

static cl_program of_spirv(const soft_cl *cl, const soft_unit *unit, soft_text *log,
                           ze_result_t *result)
{
    cl_int     error   = CL_SUCCESS;
    cl_program program = cl->create_with_il(cl->context, unit->data, unit->size, &error);

    *result = error ? failed(cl, "clCreateProgramWithIL", error, log) : ZE_RESULT_SUCCESS;
    return error ? NULL : program;
}

/* One program, whole. */
static ze_result_t build_whole(const soft_cl *cl, const soft_unit *const *units, size_t nunits,
                               soft_text *log, cl_program *program)
{
    soft_text   options = {0};
    ze_result_t result  = ZE_RESULT_SUCCESS;
    cl_int      error;

    *program = cl->create_with_il ? of_spirv(cl, units[0], log, &result)
                                  : of_bitcode(cl, units, nunits, log, &result);
    if (!*program)
        return result;
    if (!cl->create_with_il)
        soft_text_add(&options, "-x spir -spir-std=1.2 ");
    for (size_t i = 0; i < nunits; i++)
        translate_flags(units[i]->flags, &options, log);
    error = cl->BuildProgram(*program, 1, &cl->device, options.chars, NULL, NULL);
    soft_text_free(&options);
    if (!error)
        return ZE_RESULT_SUCCESS;
    take_log(cl, *program, log);
    cl->ReleaseProgram(*program);
    return failed(cl, "clBuildProgram", error, log);
}

static ze_result_t compile(const soft_cl *cl, const soft_unit *unit, soft_text *log,
                           cl_program *program)
{
    soft_text   options = {0};
    ze_result_t result  = ZE_RESULT_SUCCESS;
    cl_int      error;

    *program = of_spirv(cl, unit, log, &result);
    if (!*program)
        return result;
    translate_flags(unit->flags, &options, log);
    error = cl->CompileProgram(*program, 1, &cl->device, options.chars, 0, NULL, NULL, NULL, NULL);
    soft_text_free(&options);
    if (!error)
        return ZE_RESULT_SUCCESS;
    take_log(cl, *program, log);
    cl->ReleaseProgram(*program);
    return failed(cl, "clCompileProgram", error, log);
}

static ze_result_t link(const soft_cl *cl, cl_program *compiled, size_t n, soft_text *log,
                        cl_program *program)
{
    cl_int error = CL_SUCCESS;

    *program =
        cl->LinkProgram(cl->context, 1, &cl->device, "", (cl_uint)n, compiled, NULL, NULL, &error);
    if (!error)
        return ZE_RESULT_SUCCESS;
    if (*program) {
        take_log(cl, *program, log);
        cl->ReleaseProgram(*program);
    }
    return failed(cl, "clLinkProgram", error, log) == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY
               ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY
               : ZE_RESULT_ERROR_MODULE_LINK_FAILURE;
}

static ze_result_t compile_and_link(const soft_cl *cl, const soft_unit *const *units, size_t nunits,
                                    soft_text *log, cl_program *program)
{
    cl_program *compiled = calloc(nunits, sizeof(*compiled));
    ze_result_t result   = compiled ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    size_t      n        = 0;

    while (!result && n < nunits) {
        result = compile(cl, units[n], log, &compiled[n]);
        n += !result;
    }
    if (!result)
        result = link(cl, compiled, n, log, program);
    while (n > 0)
        cl->ReleaseProgram(compiled[--n]);
    free(compiled);
    return result;
}

/* --- imports --------------------------------------------------------------------------- */

static bool is_exported(const soft_unit *const *units, size_t nunits, const char *name)
{
    for (size_t i = 0; i < nunits; i++)
        if (soft_names_have(&units[i]->exports, name))
            return true;
    return false;
}

/* Says which; a runtime may have some of them itself. */
static size_t missing_imports(const soft_unit *const *units, size_t nunits, soft_text *log)
{
    size_t n = 0;

    for (size_t i = 0; i < nunits; i++)
        for (size_t j = 0; j < units[i]->imports.count; j++)
            if (!is_exported(units, nunits, units[i]->imports.names[j])) {
                soft_text_add(log, "nobody exports %s\n", units[i]->imports.names[j]);
                n++;
            }
    return n;
}

ze_result_t soft_cl_build(const soft_unit *const *units, size_t nunits, soft_text *log,
                          void **program)
{
    const soft_cl *cl   = soft_cl_runtime(log);
    cl_program     made = NULL;
    ze_result_t    result;
    bool           is_whole = nunits == 1 && units[0]->imports.count == 0;

    if (!cl)
        return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
    if (!is_whole && missing_imports(units, nunits, log) && !cl->create_with_il)
        return ZE_RESULT_ERROR_MODULE_LINK_FAILURE;
    if (!soft_cl_enter())
        return ZE_RESULT_ERROR_DEVICE_LOST;
    if (is_whole || !cl->create_with_il)
        result = build_whole(cl, units, nunits, log, &made);
    else
        result = compile_and_link(cl, units, nunits, log, &made);
    soft_cl_leave(false);
    if (!result)
        *program = made;
    return result;
}

void soft_cl_release_program(void *program)
{
    soft_text      ignored = {0};
    const soft_cl *cl      = program ? soft_cl_runtime(&ignored) : NULL;

    if (cl)
        cl->ReleaseProgram(program);
    soft_text_free(&ignored);
}

ze_result_t soft_cl_global(void *program, const char *name, size_t *size, void **pointer)
{
    soft_text      ignored = {0};
    const soft_cl *cl      = soft_cl_runtime(&ignored);

    soft_text_free(&ignored);
    if (!cl || !cl->global)
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (cl->global(cl->device, program, name, size, pointer) != CL_SUCCESS)
        return ZE_RESULT_ERROR_INVALID_GLOBAL_NAME;
    return ZE_RESULT_SUCCESS;
}

ze_result_t soft_cl_function(void *program, const char *name, void **pointer)
{
    soft_text      ignored = {0};
    const soft_cl *cl      = soft_cl_runtime(&ignored);
    cl_ulong       address = 0;

    soft_text_free(&ignored);
    if (!cl || !cl->function)
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (cl->function(cl->device, program, name, &address) != CL_SUCCESS)
        return ZE_RESULT_ERROR_INVALID_FUNCTION_NAME;
    *pointer = (void *)(uintptr_t)address;
    return ZE_RESULT_SUCCESS;
}
