/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels as C loops, for devices that run C (the host), and as the OpenCL C and SPIR-V made of
 * clarity.cl for the others.
 *
 *     rows     out = in, blurred along its rows
 *     columns  out = in, blurred along its columns
 *     shrink   out = in at half the resolution
 *     combine  out = in, with what sets it apart from two blurs of it made stronger */
#include "kernels.h"

#include "clarity_kernels.h" /* made of clarity.cl by usm_add_kernels() */

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const float weights[TAPS] = {0.04f * 1, 0.04f * 2, 0.04f * 3, 0.04f * 4, 0.04f * 5,
                                    0.04f * 4, 0.04f * 3, 0.04f * 2, 0.04f * 1};

static const float *floats(void *const *args, size_t i)
{
    return *(const float *const *)args[i];
}

static float *out_floats(void *const *args, size_t i)
{
    return *(float *const *)args[i];
}

static size_t size_arg(void *const *args, size_t i)
{
    return (size_t) * (const int *)args[i];
}

static void rows_part(const usm_range *part, void *const *args)
{
    const float *in    = floats(args, 0);
    float       *out   = out_floats(args, 1);
    size_t       pitch = size_arg(args, 2), first = size_arg(args, 3), w = part->global[0];

    for (size_t y = part->begin[1]; y < part->end[1]; y++)
        for (size_t x = part->begin[0]; x < part->end[0]; x++) {
            const float *from = in + first + y * pitch + x;
            float        sum  = 0.0f;

            for (size_t k = 0; k < TAPS; k++)
                sum += weights[k] * from[k];
            out[y * w + x] = sum;
        }
}

static void columns_part(const usm_range *part, void *const *args)
{
    const float *in  = floats(args, 0);
    float       *out = out_floats(args, 1);
    size_t       w   = part->global[0];

    for (size_t y = part->begin[1]; y < part->end[1]; y++)
        for (size_t x = part->begin[0]; x < part->end[0]; x++) {
            const float *from = in + y * w + x;
            float        sum  = 0.0f;

            for (size_t k = 0; k < TAPS; k++)
                sum += weights[k] * from[k * w];
            out[y * w + x] = sum;
        }
}

static void shrink_part(const usm_range *part, void *const *args)
{
    const float *in    = floats(args, 0);
    float       *out   = out_floats(args, 1);
    size_t       pitch = size_arg(args, 2), w = part->global[0];

    for (size_t y = part->begin[1]; y < part->end[1]; y++)
        for (size_t x = part->begin[0]; x < part->end[0]; x++) {
            const float *from = in + 2 * y * pitch + 2 * x;

            out[y * w + x] = 0.25f * ((from[0] + from[1]) + (from[pitch] + from[pitch + 1]));
        }
}

static void combine_part(const usm_range *part, void *const *args)
{
    const float *in = floats(args, 0), *near = floats(args, 1), *wide = floats(args, 2);
    float       *out   = out_floats(args, 3);
    size_t       pitch = size_arg(args, 4), first = size_arg(args, 5), w = part->global[0];

    for (size_t y = part->begin[1]; y < part->end[1]; y++)
        for (size_t x = part->begin[0]; x < part->end[0]; x++) {
            float v = in[first + y * pitch + x], n = near[y * w + x],
                  f = wide[y / 2 * (w / 2) + x / 2];

            v += 0.8f * (v - n) + 0.4f * (n - f);
            out[y * w + x] = v < 0.0f ? 0.0f : v > 1.0f ? 1.0f : v;
        }
}

#define P USM_ARG_POINTER
#define V USM_ARG_VALUE
static const usm_arg_kind rows_kinds[]    = {P, P, V, V};
static const usm_arg_kind columns_kinds[] = {P, P};
static const usm_arg_kind shrink_kinds[]  = {P, P, V};
static const usm_arg_kind combine_kinds[] = {P, P, P, P, V, V};

static const usm_native_kernel natives[KERNELS] = {
    [ROWS]    = {"rows", rows_part, COUNT(rows_kinds), rows_kinds},
    [COLUMNS] = {"columns", columns_part, COUNT(columns_kinds), columns_kinds},
    [SHRINK]  = {"shrink", shrink_part, COUNT(shrink_kinds), shrink_kinds},
    [COMBINE] = {"combine", combine_part, COUNT(combine_kinds), combine_kinds},
};

bool kernels_create(kernels *k)
{
    const usm_image  images[] = {{USM_IMAGE_BUNDLE, clarity_kernels, clarity_kernels_size},
                                 {USM_IMAGE_NATIVE, natives, sizeof natives}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;
    usm_program     *program  = NULL;
    bool             done     = true;

    *k           = (kernels){{NULL}};
    desc.nimages = COUNT(images);
    desc.images  = images;
    if (usm_program_create(usm_default_context(), &desc, &program) != USM_OK)
        return false;
    for (size_t i = 0; i < KERNELS && done; i++)
        done = usm_kernel_create(program, natives[i].name, &k->of[i]) == USM_OK;
    usm_program_destroy(program);
    if (!done)
        kernels_destroy(k);
    return done;
}

void kernels_destroy(kernels *k)
{
    for (size_t i = 0; i < KERNELS; i++)
        usm_kernel_destroy(k->of[i]);
    *k = (kernels){{NULL}};
}

usm_status launch(const kernels *k, usm_queue *q, step s)
{
    usm_launch l = USM_LAUNCH_INIT;

    l.kernel    = k->of[s.name];
    l.dims      = 2;
    l.global[0] = (size_t)s.w;
    l.global[1] = (size_t)s.h;
    l.nargs     = s.nargs;
    l.args      = s.args;
    return usm_queue_submit(q, &l, 0, NULL, NULL);
}
