/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Modules: one image built for one device, its log, its binary, the names of its kernels.
 *
 * Level Zero has no compiler for text: it accepts SPIR-V and its own binaries.  It has no query for
 * the arguments of a kernel, so their kinds are read from SPIR-V, and stored with binaries
 * (../common/kinds.c).
 *
 * Not here: the choice of the image and the cache of binaries (the core), kernels (kernel.c). */
#include "program.h"

#include "../common/kinds.h"

#include <stdio.h>
#include <string.h>

#define FOUR_GB (UINT64_C(4) << 30)

#define BLANKS " \t\r\n"

enum { SPIRV_MAGIC = 0x07230203, SPIRV_HEADER_SIZE = 20 };

/* --- building ----------------------------------------------------------------------------- */

static usm_status check_type(const lz_device *dev, usm_image_type type)
{
    if (type == USM_IMAGE_BINARY ||
        (type == USM_IMAGE_SPIRV && (dev->info.aspects >> USM_ASPECT_IMAGE_SPIRV & 1)))
        return USM_OK;
    if (type == USM_IMAGE_SPIRV)
        return lz_report(USM_E_NO_IMAGE, "the driver of '%s' takes no SPIR-V", dev->info.name);
    return lz_report(USM_E_NO_IMAGE,
                     "'%s' takes no %s through Level Zero: give SPIR-V, which usm_add_kernels() "
                     "in CMake embeds beside the text",
                     dev->info.name,
                     type == USM_IMAGE_OPENCL_C ? "OpenCL C" : "functions of the host");
}

/* Intel's compiler (IGC of 22.43) ends the process if the first word is another. */
static usm_status check_spirv(const usm_image *image)
{
    uint32_t magic = 0;

    if (image->size >= SPIRV_HEADER_SIZE)
        memcpy(&magic, image->data, sizeof(magic));
    if (magic != SPIRV_MAGIC || image->size % 4)
        return lz_report(USM_E_BUILD, "the %zu bytes given as SPIR-V are no module of it",
                         image->size);
    return USM_OK;
}

/* Reads kinds that no driver returns: from SPIR-V, and those stored with a binary. */
static usm_status read_image(const usm_image *image, usm_image *raw, char **kinds)
{
    usm_status status;

    *raw = *image;
    if (image->type == USM_IMAGE_BINARY)
        return kinds_unwrap(lz_host, image, raw, kinds);
    status = check_spirv(image);
    return status ? status : kinds_of_spirv(lz_host, image->data, image->size, kinds);
}

/* NULL: there is none, or no memory for it. */
static char *log_text(ze_module_build_log_handle_t log)
{
    size_t size = 0;
    char  *text;

    if (!log || lz.zeModuleBuildLogGetString(log, &size, NULL) || size < 2)
        return NULL;
    text = lz_host->heap_alloc(size + 1);
    if (text &&
        (lz.zeModuleBuildLogGetString(log, &size, text) || text[strspn(text, BLANKS)] == '\0')) {
        lz_host->heap_free(text);
        text = NULL;
    }
    return text;
}

#define NO_LOG                                                                                     \
    "there is no log (with several drivers the loader hands none out: name one in "                \
    "ZE_ENABLE_ALT_DRIVERS)"

/* Quotes the first line that mentions an error, otherwise the first line. */
static usm_status build_failed(ze_result_t err, const lz_program *program, usm_image_type type,
                               const char *log)
{
    const char *line   = log ? strstr(log, "error") : NULL;
    usm_status  status = native_to_status(err);

    if (status == USM_E_NO_MEMORY || status == USM_E_DEVICE_LOST)
        return lz_fail(err, "building the module (zeModuleCreate)");
    if (type == USM_IMAGE_BINARY && !log)
        log = "the binary was made for another device or driver";
    while (line && line > log && line[-1] != '\n')
        line--;
    if (!line)
        line = log ? log + strspn(log, BLANKS) : NO_LOG;
    return lz_report(USM_E_BUILD, "the program does not build for '%s' (%s, 0x%x): %.*s",
                     program->dev->info.name, lz_error_name(err), (unsigned)err,
                     (int)strcspn(line, "\r\n"), line);
}

/* A loader that intercepts calls returns the log of a failed module as the driver's own handle, and
 * crashes when it gets that handle back (1.8.12 and 1.20.6): such a log is not read. */
static bool is_log_readable(const lz_program *program, ze_result_t err)
{
    void *handle = program->dev->native, *behind = handle;

    return !err || !lz.zelLoaderTranslateHandle ||
           lz.zelLoaderTranslateHandle(LZ_HANDLE_DEVICE, handle, &behind) || behind == handle;
}

static usm_status build(lz_program *program, const usm_image *raw, const char *flags, char **log)
{
    ze_module_build_log_handle_t native_log = NULL;
    ze_module_desc_t             desc       = {
                          .stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                          .format =
            raw->type == USM_IMAGE_SPIRV ? ZE_MODULE_FORMAT_IL_SPIRV : ZE_MODULE_FORMAT_NATIVE,
                          .inputSize    = raw->size,
                          .pInputModule = raw->data,
                          .pBuildFlags  = raw->type == USM_IMAGE_SPIRV ? flags : NULL,
    };
    ze_result_t err    = lz.zeModuleCreate(program->ctx->native, program->dev->native, &desc,
                                           &program->native, &native_log);
    bool        reads  = is_log_readable(program, err);
    char       *text   = reads ? log_text(native_log) : NULL;
    usm_status  status = err ? build_failed(err, program, raw->type, text) : USM_OK;

    if (native_log && reads)
        (void)lz.zeModuleBuildLogDestroy(native_log);
    if (text && log)
        *log = text;
    else
        lz_host->heap_free(text);
    return status;
}

static usm_status ask_limits(lz_program *program)
{
    ze_device_compute_properties_t properties = {
        .stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES,
    };
    ze_result_t err = lz.zeDeviceGetComputeProperties(program->dev->native, &properties);

    if (err)
        return lz_fail(err, "zeDeviceGetComputeProperties");
    program->max_groups[0] = properties.maxGroupCountX;
    program->max_groups[1] = properties.maxGroupCountY;
    program->max_groups[2] = properties.maxGroupCountZ;
    return USM_OK;
}

/* True if blocks may be larger than 4 GiB. */
static bool is_large(const lz_device *dev)
{
    return dev->driver->has_relaxed_limits && dev->info.memory_size > FOUR_GB;
}

usm_status lz_program_build(void *ctx, void *dev, const usm_image *image, const char *options,
                            char **log, void **out)
{
    lz_program *program;
    usm_image   raw;
    char       *flags;
    usm_status  status = check_type(dev, image->type);

    if (status)
        return status;
    program = lz_host->heap_alloc(sizeof(*program));
    flags   = lz_build_flags(options, is_large(dev));
    status  = USM_E_NO_MEMORY;
    if (!program || !flags) {
        (void)lz_no_memory();
        goto err_free;
    }
    program->ctx = ctx;
    program->dev = dev;
    usm_store_relaxed(&program->refs, 1);
    status = read_image(image, &raw, &program->kinds);
    if (!status)
        status = ask_limits(program);
    if (!status)
        status = build(program, &raw, flags, log);
    if (status)
        goto err_free;
    defer_context_ref(&program->ctx->deferral);
    lz_host->heap_free(flags);
    *out = program;
    return USM_OK;

err_free:
    if (program)
        lz_host->heap_free(program->kinds);
    lz_host->heap_free(flags);
    lz_host->heap_free(program);
    return status;
}

void lz_program_unref(lz_program *program)
{
    if (!usm_ref_drop(&program->refs))
        return;
    (void)lz.zeModuleDestroy(program->native);
    defer_context_unref(&program->ctx->deferral);
    lz_host->heap_free(program->kinds);
    lz_host->heap_free(program);
}

void lz_program_destroy(void *program)
{
    if (program)
        lz_program_unref(program);
}

/* --- queries ------------------------------------------------------------------------------ */

usm_status lz_program_binary(void *program, void **data, size_t *size)
{
    const lz_program *p      = program;
    size_t            n      = 0;
    usm_status        status = USM_OK;
    uint8_t          *binary;
    ze_result_t       err = lz.zeModuleGetNativeBinary(p->native, &n, NULL);

    if (err)
        return lz_fail(err, "zeModuleGetNativeBinary");
    if (!n)
        return lz_report(USM_E_NOT_SUPPORTED, "the driver has no binary of the program");
    binary = lz_host->heap_alloc(n);
    if (!binary)
        return lz_no_memory();
    err = lz.zeModuleGetNativeBinary(p->native, &n, binary);
    if (err)
        status = lz_fail(err, "zeModuleGetNativeBinary");
    else
        status = kinds_wrap(lz_host, p->kinds, binary, n, data, size);
    lz_host->heap_free(binary);
    return status;
}

/* The driver owns the names, which live as long as the module. */
static char *join(const char *const *names, uint32_t n)
{
    size_t size = 1;
    char  *text, *at;

    for (uint32_t i = 0; i < n; i++)
        size += strlen(names[i]) + 1;
    text = lz_host->heap_alloc(size);
    at   = text;
    for (uint32_t i = 0; at && i < n; i++)
        at += snprintf(at, size - (size_t)(at - text), "%s%s", i ? ";" : "", names[i]);
    return text;
}

usm_status lz_program_kernels(void *program, char **names)
{
    const lz_program *p      = program;
    uint32_t          n      = 0;
    usm_status        status = USM_OK;
    const char      **list;
    char             *text;
    ze_result_t       err = lz.zeModuleGetKernelNames(p->native, &n, NULL);

    if (err)
        return lz_fail(err, "zeModuleGetKernelNames");
    list = lz_host->heap_alloc(n * sizeof(*list));
    if (!list)
        return lz_no_memory();
    err  = n ? lz.zeModuleGetKernelNames(p->native, &n, list) : ZE_RESULT_SUCCESS;
    text = err ? NULL : join(list, n);
    if (err)
        status = lz_fail(err, "zeModuleGetKernelNames");
    else if (!text)
        status = lz_no_memory();
    else
        *names = text;
    lz_host->heap_free(list);
    return status;
}
