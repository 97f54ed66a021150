/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Programs: one image built for one device.  Not here: the choice of the image and the cache of
 * binaries (the core), kernels (kernel.c). */
#include "opencl.h"

#include <stdio.h>
#include <string.h>

/* Lets kernel_info distinguish pointers from values. */
#define ARG_INFO "-cl-kernel-arg-info"
/* Lets kernels access all of a block that memory.c allocated with the flag for unrestricted
 * sizes. */
#define LARGE_BUFFERS "-cl-intel-greater-than-4GB-buffer-required"

/* --- creation -------------------------------------------------------------------- */

static cl_program create_with_il(const ocl_context *ctx, const usm_image *image, cl_int *err)
{
    if (ctx->platform->version >= 201 && cl.clCreateProgramWithIL)
        return cl.clCreateProgramWithIL(ctx->native, image->data, image->size, err);
    return ctx->ext->clCreateProgramWithILKHR(ctx->native, image->data, image->size, err);
}

static cl_program create(const ocl_context *ctx, const ocl_device *dev, const usm_image *image,
                         cl_int *err)
{
    const char          *text   = image->data;
    const unsigned char *binary = image->data;
    cl_int               loaded = CL_SUCCESS;
    cl_program           native;

    if (image->type == USM_IMAGE_OPENCL_C)
        return cl.clCreateProgramWithSource(ctx->native, 1, &text, &image->size, err);
    if (image->type == USM_IMAGE_SPIRV)
        return create_with_il(ctx, image, err);
    native =
        cl.clCreateProgramWithBinary(ctx->native, 1, &dev->id, &image->size, &binary, &loaded, err);
    if (!*err && loaded) {
        cl.clReleaseProgram(native);
        *err = loaded;
    }
    return *err ? NULL : native;
}

static bool can_take(const ocl_device *dev, usm_image_type type)
{
    if (type == USM_IMAGE_OPENCL_C)
        return dev->info.aspects >> USM_ASPECT_IMAGE_OPENCL_C & 1;
    if (type == USM_IMAGE_SPIRV)
        return dev->has_il;
    return type == USM_IMAGE_BINARY;
}

/* --- building --------------------------------------------------------------------- */

/* `options` are the user's and apply to OpenCL C; SPIR-V and binaries only get ours. */
static char *build_options(const ocl_device *dev, usm_image_type type, const char *options)
{
    const char *users = type == USM_IMAGE_OPENCL_C && options ? options : "";
    const char *large = dev->is_relaxed && type != USM_IMAGE_BINARY ? " " LARGE_BUFFERS : "";
    const char *info  = type == USM_IMAGE_BINARY ? "" : " " ARG_INFO;
    size_t      size  = strlen(users) + strlen(large) + strlen(info) + 1;
    char       *all   = ocl_host->heap_alloc(size);

    if (all)
        snprintf(all, size, "%s%s%s", users, large, info);
    return all;
}

/* NULL: there is none, or no memory for it. */
static char *build_log(cl_program native, cl_device_id id)
{
    size_t size = 0;
    char  *text;

    if (cl.clGetProgramBuildInfo(native, id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size) || size < 2)
        return NULL;
    text = ocl_host->heap_alloc(size + 1);
    if (text && (cl.clGetProgramBuildInfo(native, id, CL_PROGRAM_BUILD_LOG, size, text, NULL) ||
                 text[strspn(text, " \t\r\n")] == '\0')) {
        ocl_host->heap_free(text);
        text = NULL;
    }
    return text;
}

/* Quotes the first line that mentions an error, otherwise the first line. */
static usm_status build_failed(cl_int err, const ocl_device *dev, const char *log)
{
    usm_status  status = native_to_status(err);
    const char *line   = log ? strstr(log, "error") : NULL;

    if (status == USM_E_DEVICE || status == USM_E_INVALID)
        status = USM_E_BUILD;
    while (line && line > log && line[-1] != '\n')
        line--;
    if (!line)
        line = log ? log + strspn(log, " \t\r\n") : "it left no log";
    return ocl_report(status, "the program does not build for '%s' (%s, %d): %.*s", dev->info.name,
                      ocl_error_name(err), (int)err, (int)strcspn(line, "\r\n"), line);
}

static usm_status build(cl_program native, const ocl_device *dev, const char *options, char **log)
{
    /* PoCL 3.1 loses its information about arguments if a binary has options, even "". */
    cl_int err  = cl.clBuildProgram(native, 1, &dev->id, options[0] ? options : NULL, NULL, NULL);
    char  *text = build_log(native, dev->id);
    usm_status status = err ? build_failed(err, dev, text) : USM_OK;

    if (text && log)
        *log = text;
    else
        ocl_host->heap_free(text);
    return status;
}

static usm_status create_failed(cl_int err, const ocl_device *dev, usm_image_type type)
{
    usm_status status = native_to_status(err);

    if (status == USM_E_NO_MEMORY)
        return ocl_fail(err, "creating the program");
    return ocl_report(USM_E_BUILD, "'%s' does not take the %s (%s, %d)", dev->info.name,
                      type == USM_IMAGE_SPIRV    ? "SPIR-V module"
                      : type == USM_IMAGE_BINARY ? "binary, which was made for another "
                                                   "device or driver"
                                                 : "source",
                      ocl_error_name(err), (int)err);
}

/* Reads kinds that the driver will not know: from SPIR-V, and those stored with a binary. */
static usm_status read_kinds(const usm_image *image, usm_image *raw, char **kinds)
{
    *raw = *image;
    if (image->type == USM_IMAGE_SPIRV)
        return kinds_of_spirv(ocl_host, image->data, image->size, kinds);
    if (image->type == USM_IMAGE_BINARY)
        return kinds_unwrap(ocl_host, image, raw, kinds);
    return USM_OK;
}

usm_status ocl_program_build(void *ctx, void *dev, const usm_image *image, const char *options,
                             char **log, void **out)
{
    ocl_device  *d = dev;
    ocl_program *program;
    usm_image    raw;
    char        *all;
    usm_status   status;
    cl_int       err = CL_SUCCESS;

    if (!can_take(d, image->type))
        return ocl_report(USM_E_NO_IMAGE, "'%s' cannot take an image of type %d", d->info.name,
                          (int)image->type);
    program = ocl_host->heap_alloc(sizeof(*program));
    all     = build_options(d, image->type, options);
    status  = USM_E_NO_MEMORY;
    if (!program || !all) {
        (void)ocl_no_memory();
        goto err_free;
    }
    program->ctx = ctx;
    program->dev = d;
    usm_store_relaxed(&program->refs, 1);
    status = read_kinds(image, &raw, &program->kinds);
    if (status)
        goto err_free;
    program->native = create(ctx, d, &raw, &err);
    if (err) {
        status = create_failed(err, d, image->type);
        goto err_free;
    }
    status = build(program->native, d, all, log);
    if (status)
        goto err_release;
    ocl_host->heap_free(all);
    *out = program;
    return USM_OK;

err_release:
    cl.clReleaseProgram(program->native);
err_free:
    if (program)
        ocl_host->heap_free(program->kinds);
    ocl_host->heap_free(all);
    ocl_host->heap_free(program);
    return status;
}

void ocl_program_unref(ocl_program *program)
{
    if (!usm_ref_drop(&program->refs))
        return;
    cl.clReleaseProgram(program->native);
    ocl_host->heap_free(program->kinds);
    ocl_host->heap_free(program);
}

void ocl_program_destroy(void *program)
{
    if (program)
        ocl_program_unref(program);
}

/* --- queries ----------------------------------------------------------------------------- */

/* The index of the program's device among the program's devices, which are the context's; PoCL 3.1
 * has only those it was built for, and for a sub-device the whole device. */
static usm_status device_index(const ocl_program *program, cl_uint n, cl_uint *index)
{
    cl_device_id *ids = ocl_host->heap_alloc(n * sizeof(*ids));
    cl_int        err;

    if (!ids)
        return ocl_no_memory();
    err    = cl.clGetProgramInfo(program->native, CL_PROGRAM_DEVICES, n * sizeof(*ids), ids, NULL);
    *index = 0;
    while (!err && n > 1 && *index < n && ids[*index] != program->dev->id)
        (*index)++;
    ocl_host->heap_free(ids);
    if (!err && *index == n)
        err = CL_INVALID_DEVICE;
    return err ? ocl_fail(err, "clGetProgramInfo(CL_PROGRAM_DEVICES)") : USM_OK;
}

/* The driver fills one buffer for each device that has a binary: Intel's CPU runtime refuses NULL
 * for the others, against the specification. */
static usm_status read_binaries(const ocl_program *program, const size_t *sizes,
                                unsigned char **buffers, cl_uint n)
{
    cl_int err;

    for (cl_uint i = 0; i < n; i++)
        if (sizes[i] && !(buffers[i] = ocl_host->heap_alloc(sizes[i])))
            return ocl_no_memory();
    err = cl.clGetProgramInfo(program->native, CL_PROGRAM_BINARIES, n * sizeof(*buffers), buffers,
                              NULL);
    return err ? ocl_fail(err, "clGetProgramInfo(CL_PROGRAM_BINARIES)") : USM_OK;
}

/* The buffers that the driver fills. */
typedef struct binaries {
    cl_uint         n;
    size_t         *sizes;
    unsigned char **buffers;
} binaries;

static usm_status pick_binary(const ocl_program *program, const binaries *b, const char *kinds,
                              void **data, size_t *size)
{
    cl_uint    index  = 0;
    usm_status status = device_index(program, b->n, &index);
    cl_int     err;

    if (status)
        return status;
    err = cl.clGetProgramInfo(program->native, CL_PROGRAM_BINARY_SIZES, b->n * sizeof(*b->sizes),
                              b->sizes, NULL);
    if (err)
        return ocl_fail(err, "clGetProgramInfo(CL_PROGRAM_BINARY_SIZES)");
    if (!b->sizes[index])
        return ocl_report(USM_E_NOT_SUPPORTED, "the driver has no binary of the program");
    status = read_binaries(program, b->sizes, b->buffers, b->n);
    if (status)
        return status;
    return kinds_wrap(ocl_host, kinds, b->buffers[index], b->sizes[index], data, size);
}

usm_status ocl_program_binary(void *program, void **data, size_t *size)
{
    ocl_program *p     = program;
    char        *kinds = NULL;
    binaries     b     = {0, NULL, NULL};
    usm_status   status;
    cl_int err = cl.clGetProgramInfo(p->native, CL_PROGRAM_NUM_DEVICES, sizeof(b.n), &b.n, NULL);

    if (err || !b.n)
        return ocl_fail(err ? err : CL_INVALID_PROGRAM, "clGetProgramInfo(CL_PROGRAM_NUM_DEVICES)");
    status = ocl_kinds_of_program(p, &kinds);
    if (status)
        return status;
    b.sizes   = ocl_host->heap_alloc(b.n * sizeof(*b.sizes));
    b.buffers = ocl_host->heap_alloc(b.n * sizeof(*b.buffers));
    status    = b.sizes && b.buffers ? pick_binary(p, &b, kinds, data, size) : ocl_no_memory();
    for (cl_uint i = 0; b.buffers && i < b.n; i++)
        ocl_host->heap_free(b.buffers[i]);
    ocl_host->heap_free(b.buffers);
    ocl_host->heap_free(b.sizes);
    ocl_host->heap_free(kinds);
    return status;
}

usm_status ocl_program_kernels(void *program, char **names)
{
    const ocl_program *p    = program;
    size_t             size = 0;
    char              *text;
    cl_int err = cl.clGetProgramInfo(p->native, CL_PROGRAM_KERNEL_NAMES, 0, NULL, &size);

    if (err)
        return ocl_fail(err, "clGetProgramInfo(CL_PROGRAM_KERNEL_NAMES)");
    text = ocl_host->heap_alloc(size + 1);
    if (!text)
        return ocl_no_memory();
    err = cl.clGetProgramInfo(p->native, CL_PROGRAM_KERNEL_NAMES, size, text, NULL);
    if (err) {
        ocl_host->heap_free(text);
        return ocl_fail(err, "clGetProgramInfo(CL_PROGRAM_KERNEL_NAMES)");
    }
    *names = text;
    return USM_OK;
}
