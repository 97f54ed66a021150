/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* zeModule* and build logs: modules made of SPIR-V, of shared objects, or of what
 * zeModuleGetNativeBinary gave.
 *
 * The binary of a native module is its own bytes again.  That of a SPIR-V module is a container of
 * the SPIR-V with its flags, and is built again when a module is made of it: "ZESOFT1\n", the
 * number of units, and for each the size of its bytes, the size of its flags with their 0, bytes,
 * flags; numbers are 64 bits.
 *
 * Here the handles; linking is in link.c, what modules are made of in code.c. */
#include "module.h"
#include "memory.h"
#include "tables.h"

#include <stdlib.h>
#include <string.h>

#define CONTAINER "ZESOFT1\n"
#define MAGIC     (sizeof(CONTAINER) - 1)
#define LARGE     "-ze-opt-greater-than-4GB-buffer-required"
#define MAX_UNITS 4096u /* in a container: what comes in is judged */

/* --- logs -------------------------------------------------------------------------- */

typedef struct soft_log {
    soft_handle handle;
    soft_text   text;
} soft_log;

/* Gives the log, with its text, to who wants it. */
ze_result_t soft_log_give(soft_text *text, ze_module_build_log_handle_t *out)
{
    soft_log *log;

    if (!out)
        return ZE_RESULT_SUCCESS;
    log = exec_object_new(SOFT_LOG, sizeof(*log));
    if (!log)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    log->text = *text;
    *text     = (soft_text){0};
    *out      = (ze_module_build_log_handle_t)(void *)log;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeModuleBuildLogDestroy(ze_module_build_log_handle_t h)
{
    soft_log *log;

    soft_enter_free(__func__);
    EXEC_HANDLE(log, h, SOFT_LOG);
    exec_object_retire(log);
    soft_text_free(&log->text);
    exec_object_free(log);
    return ZE_RESULT_SUCCESS;
}

/* Copies out[0..*size) where there is room for all of it, and says how much it is. */
static ze_result_t give_bytes(const void *bytes, size_t n, size_t *size, void *out)
{
    if (out && *size < n)
        return ZE_RESULT_ERROR_INVALID_SIZE;
    if (out)
        memcpy(out, bytes, n);
    *size = n;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeModuleBuildLogGetString(ze_module_build_log_handle_t h,
                                                             size_t *size, char *text)
{
    soft_log *log;

    SOFT_CALL();
    EXEC_HANDLE(log, h, SOFT_LOG);
    if (!size)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return give_bytes(log->text.chars ? log->text.chars : "", log->text.length + 1, size, text);
}

/* --- what a module is made of ----------------------------------------------------------- */

typedef struct source {
    const void                  *data;
    size_t                       size;
    const char                  *flags;
    const ze_module_constants_t *constants;
} source;

static ze_result_t fill_spirv(soft_code *code, size_t i, const source *from, soft_text *log)
{
    soft_unit  *unit = &code->units[i];
    ze_result_t result;

    if (!from->data)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (from->size == 0)
        return ZE_RESULT_ERROR_INVALID_SIZE;
    result = soft_unit_fill(unit, from->data, from->size, from->flags);
    if (!result)
        result = soft_spirv_read(unit, from->constants, log);
    code->is_large = code->is_large || (!result && soft_has_flag(unit->flags, LARGE));
    return result;
}

/* Several modules in one: the extension ZE_experimental_module_program. */
static ze_result_t read_program(const ze_module_program_exp_desc_t *desc, soft_text *log,
                                soft_code **out)
{
    soft_code  *code   = desc->count ? soft_code_new(desc->count) : NULL;
    ze_result_t result = ZE_RESULT_SUCCESS;

    if (desc->count == 0)
        return ZE_RESULT_ERROR_INVALID_SIZE;
    if (!desc->inputSizes || !desc->pInputModules)
        result = ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    else if (!code)
        result = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < desc->count && !result; i++) {
        source from = {desc->pInputModules[i], desc->inputSizes[i],
                       desc->pBuildFlags ? desc->pBuildFlags[i] : NULL,
                       desc->pConstants ? desc->pConstants[i] : NULL};

        result = fill_spirv(code, i, &from, log);
    }
    if (result)
        soft_code_put(code);
    else
        *out = code;
    return result;
}

static ze_result_t read_spirv(const ze_module_desc_t *desc, soft_text *log, soft_code **out)
{
    const void *program = soft_chain_find(desc->pNext, ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC);
    source      from = {desc->pInputModule, desc->inputSize, desc->pBuildFlags, desc->pConstants};
    soft_code  *code;
    ze_result_t result;

    if (program)
        return read_program(program, log, out);
    code   = soft_code_new(1);
    result = code ? fill_spirv(code, 0, &from, log) : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (result)
        soft_code_put(code);
    else
        *out = code;
    return result;
}

static ze_result_t read_elf(const ze_module_desc_t *desc, soft_text *log, soft_code **out)
{
    soft_code  *code = soft_code_new(1);
    ze_result_t result;

    if (!code)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    result = soft_unit_fill(code->units, desc->pInputModule, desc->inputSize, desc->pBuildFlags);
    if (!result)
        result = soft_elf_load(code, log);
    code->is_large = true; /* functions of this machine: any address is like another */
    if (result)
        soft_code_put(code);
    else
        *out = code;
    return result;
}

/* --- containers ------------------------------------------------------------------------- */

typedef struct cursor {
    const uint8_t *at, *end;
} cursor;

/* The next n bytes, or NULL when there are not that many. */
static const void *next_bytes(cursor *c, uint64_t n)
{
    const uint8_t *at = c->at;

    if (n > (uint64_t)(c->end - at))
        return NULL;
    c->at += n;
    return at;
}

static uint64_t next_number(cursor *c)
{
    uint64_t    n    = 0;
    const void *from = next_bytes(c, sizeof(n));

    if (from)
        memcpy(&n, from, sizeof(n));
    return n;
}

static ze_result_t refuse_container(soft_text *log)
{
    soft_text_add(log, "native module: a SPIR-V module's binary that was cut short or changed\n");
    return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
}

static ze_result_t next_unit(cursor *c, soft_code *code, size_t i, soft_text *log)
{
    uint64_t size       = next_number(c);
    uint64_t flags_size = next_number(c);
    source   from       = {next_bytes(c, size), (size_t)size, next_bytes(c, flags_size), NULL};

    if (!from.data || !from.flags || size == 0 || flags_size == 0 ||
        from.flags[flags_size - 1] != 0)
        return refuse_container(log);
    return fill_spirv(code, i, &from, log);
}

static ze_result_t read_container(const ze_module_desc_t *desc, soft_text *log, soft_code **out)
{
    cursor      c = {desc->pInputModule + MAGIC, desc->pInputModule + desc->inputSize};
    uint64_t    n = next_number(&c);
    soft_code  *code;
    ze_result_t result = ZE_RESULT_SUCCESS;

    if (n == 0 || n > MAX_UNITS)
        return refuse_container(log);
    code = soft_code_new((size_t)n);
    if (!code)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; i < n && !result; i++)
        result = next_unit(&c, code, i, log);
    if (result)
        soft_code_put(code);
    else
        *out = code;
    return result;
}

static void put_number(uint8_t **at, uint64_t n)
{
    memcpy(*at, &n, sizeof(n));
    *at += sizeof(n);
}

static uint8_t *write_container(const soft_code *code, size_t *size)
{
    uint8_t *bytes, *at;

    *size = MAGIC + 8;
    for (size_t i = 0; i < code->nunits; i++)
        *size += 16 + code->units[i].size + strlen(code->units[i].flags) + 1;
    bytes = at = malloc(*size);
    if (!bytes)
        return NULL;
    memcpy(at, CONTAINER, MAGIC);
    at += MAGIC;
    put_number(&at, code->nunits);
    for (size_t i = 0; i < code->nunits; i++) {
        const soft_unit *unit       = &code->units[i];
        size_t           flags_size = strlen(unit->flags) + 1;

        put_number(&at, unit->size);
        put_number(&at, flags_size);
        memcpy(at, unit->data, unit->size);
        memcpy(at + unit->size, unit->flags, flags_size);
        at += unit->size + flags_size;
    }
    return bytes;
}

/* --- modules -------------------------------------------------------------------------------- */

/* As with Intel's compiler, only a library may be built while names are missing. */
static bool is_library(const soft_unit *unit)
{
    return unit->imports.count > 0 && (soft_has_flag(unit->flags, "-library-compilation") ||
                                       soft_has_flag(unit->flags, "-ze-intel-library-compilation"));
}

/* A library's missing imports are for zeModuleDynamicLink. */
static ze_result_t build(soft_code *code, soft_text *log)
{
    const soft_unit **units   = calloc(code->nunits, sizeof(*units));
    void             *program = NULL;
    bool              is_open = false;
    ze_result_t       result;

    if (!units)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; i < code->nunits; i++) {
        units[i] = &code->units[i];
        is_open  = is_open || is_library(units[i]);
    }
    result = soft_cl_build(units, code->nunits, log, &program);
    free(units);
    if (result == ZE_RESULT_ERROR_MODULE_LINK_FAILURE && is_open)
        return ZE_RESULT_SUCCESS;
    if (result == ZE_RESULT_ERROR_MODULE_LINK_FAILURE) {
        soft_text_add(log, "a module to be linked later needs the flag -library-compilation\n");
        return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
    }
    atomic_store(&code->program, program);
    return result;
}

static ze_result_t make_code(const ze_module_desc_t *desc, soft_text *log, soft_code **out)
{
    bool is_container = desc->format == ZE_MODULE_FORMAT_NATIVE && desc->inputSize >= MAGIC &&
                        !memcmp(desc->pInputModule, CONTAINER, MAGIC);
    soft_code  *code = NULL;
    ze_result_t result;

    if (desc->format == ZE_MODULE_FORMAT_NATIVE && !is_container)
        return read_elf(desc, log, out);
    result = is_container ? read_container(desc, log, &code) : read_spirv(desc, log, &code);
    if (result)
        return result;
    result = build(code, log);
    if (result)
        soft_code_put(code);
    else
        *out = code;
    return result;
}

static ze_result_t check_desc(const ze_module_desc_t *desc)
{
    bool is_program;

    if (!desc)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if ((uint32_t)desc->format > ZE_MODULE_FORMAT_NATIVE)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    is_program = desc->format == ZE_MODULE_FORMAT_IL_SPIRV &&
                 soft_chain_find(desc->pNext, ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC);
    if (is_program) /* pInputModule is not looked at */
        return ZE_RESULT_SUCCESS;
    if (!desc->pInputModule)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return desc->inputSize ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_SIZE;
}

/* The program gets the log of what it gave, good or bad. */
static bool is_about_input(ze_result_t result)
{
    return result == ZE_RESULT_SUCCESS || result == ZE_RESULT_ERROR_MODULE_BUILD_FAILURE ||
           result == ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
}

static ze_result_t ZE_APICALL soft_zeModuleCreate(ze_context_handle_t hctx, ze_device_handle_t hdev,
                                                  const ze_module_desc_t       *desc,
                                                  ze_module_handle_t           *out,
                                                  ze_module_build_log_handle_t *out_log)
{
    soft_context *ctx = soft_context_of(hctx);
    soft_device  *dev = soft_device_of(hdev);
    soft_text     log = {0};
    soft_module  *module;
    ze_result_t   result;

    SOFT_CALL();
    if (!ctx || !dev)
        return hctx && hdev ? ZE_RESULT_ERROR_INVALID_ARGUMENT
                            : ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (soft_is_lost(dev))
        return ZE_RESULT_ERROR_DEVICE_LOST;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    result = check_desc(desc);
    if (result)
        return result;
    module = exec_object_new(SOFT_MODULE, sizeof(*module));
    if (!module)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    module->ctx = ctx;
    module->dev = dev;
    result      = make_code(desc, &log, &module->code);
    if (is_about_input(result) && soft_log_give(&log, out_log))
        result = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    soft_text_free(&log);
    if (result) {
        soft_code_put(module->code);
        exec_object_retire(module);
        exec_object_free(module);
        return result;
    }
    *out = (ze_module_handle_t)(void *)module;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeModuleDestroy(ze_module_handle_t h)
{
    soft_module *module;

    soft_enter_free(__func__);
    EXEC_HANDLE(module, h, SOFT_MODULE);
    exec_object_retire(module);
    soft_code_put(module->code);
    exec_object_free(module);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeModuleGetNativeBinary(ze_module_handle_t h, size_t *size,
                                                           uint8_t *out)
{
    soft_module *module;
    uint8_t     *container;
    size_t       n;
    ze_result_t  result;

    SOFT_CALL();
    EXEC_HANDLE(module, h, SOFT_MODULE);
    if (!size)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (module->code->object)
        return give_bytes(module->code->units[0].data, module->code->units[0].size, size, out);
    container = write_container(module->code, &n);
    if (!container)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    result = give_bytes(container, n, size, out);
    free(container);
    return result;
}

static ze_result_t ZE_APICALL soft_zeModuleGetGlobalPointer(ze_module_handle_t h, const char *name,
                                                            size_t *size, void **pointer)
{
    soft_module *module;
    void        *program;
    void        *found = NULL;
    size_t       bytes = 0;
    ze_result_t  result;

    SOFT_CALL();
    EXEC_HANDLE(module, h, SOFT_MODULE);
    if (!name)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    program = atomic_load(&module->code->program);
    if (module->code->object) {
        found  = soft_elf_symbol(module->code, name, false, &bytes);
        result = found ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_GLOBAL_NAME;
    } else {
        result = program ? soft_cl_global(program, name, &bytes, &found)
                         : ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED;
    }
    if (result)
        return result;
    if (size)
        *size = bytes;
    if (pointer)
        *pointer = found;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeModuleGetFunctionPointer(ze_module_handle_t h,
                                                              const char *name, void **pointer)
{
    soft_module         *module;
    void                *program;
    void                *found = NULL;
    const soft_function *function;

    SOFT_CALL();
    EXEC_HANDLE(module, h, SOFT_MODULE);
    if (!name || !pointer)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    program = atomic_load(&module->code->program);
    if (!module->code->object)
        return program ? soft_cl_function(program, name, pointer)
                       : ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED;
    function = soft_code_find(module->code, name);
    if (function)
        memcpy(&found, &function->native, sizeof(found));
    else
        found = soft_elf_symbol(module->code, name, true, NULL);
    if (!found)
        return ZE_RESULT_ERROR_INVALID_FUNCTION_NAME;
    *pointer = found;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeModuleGetKernelNames(ze_module_handle_t h, uint32_t *count,
                                                          const char **names)
{
    soft_module *module;
    uint32_t     n = 0;
    uint32_t     all;

    SOFT_CALL();
    EXEC_HANDLE(module, h, SOFT_MODULE);
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    all = (uint32_t)soft_code_kernels(module->code);
    for (size_t i = 0; names && i < module->code->nunits; i++)
        for (size_t j = 0; j < module->code->units[i].nfunctions && n < *count; j++)
            names[n++] = module->code->units[i].functions[j].name;
    if (*count == 0 || *count > all)
        *count = all;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeModuleGetProperties(ze_module_handle_t      h,
                                                         ze_module_properties_t *properties)
{
    soft_module *module;

    SOFT_CALL();
    EXEC_HANDLE(module, h, SOFT_MODULE);
    if (!properties)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    properties->flags = 0;
    for (size_t i = 0; i < module->code->nunits; i++)
        if (module->code->units[i].imports.count > 0)
            properties->flags = ZE_MODULE_PROPERTY_FLAG_IMPORTS;
    return ZE_RESULT_SUCCESS;
}

SOFT_TABLE(zeGetModuleProcAddrTable, ze_module_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnCreate, soft_zeModuleCreate);
    SOFT_FIELD(1, 0, pfnDestroy, soft_zeModuleDestroy);
    SOFT_FIELD(1, 0, pfnDynamicLink, soft_zeModuleDynamicLink);
    SOFT_FIELD(1, 0, pfnGetNativeBinary, soft_zeModuleGetNativeBinary);
    SOFT_FIELD(1, 0, pfnGetGlobalPointer, soft_zeModuleGetGlobalPointer);
    SOFT_FIELD(1, 0, pfnGetKernelNames, soft_zeModuleGetKernelNames);
    SOFT_FIELD(1, 0, pfnGetProperties, soft_zeModuleGetProperties);
    SOFT_FIELD(1, 0, pfnGetFunctionPointer, soft_zeModuleGetFunctionPointer);
    SOFT_FIELD(1, 3, pfnInspectLinkageExt, soft_zeModuleInspectLinkageExt);
    return ZE_RESULT_SUCCESS;
}

SOFT_TABLE(zeGetModuleBuildLogProcAddrTable, ze_module_build_log_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnDestroy, soft_zeModuleBuildLogDestroy);
    SOFT_FIELD(1, 0, pfnGetString, soft_zeModuleBuildLogGetString);
    return ZE_RESULT_SUCCESS;
}
