/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels as C loops, for devices that run C (the host), and as the OpenCL C and SPIR-V made of
 * multigrid.cl for the others.
 *
 *     start     out = a first guess at u, of f alone
 *     smooth    out = u, closer to the solution of  (1 + 4k) u - k (sum of its neighbours) = f
 *     residual  out = what is missing of f
 *     coarsen   out = a grid of twice the size, seen at half the resolution
 *     correct   u  += a grid of half the size, seen at twice the resolution */
#include "kernels.h"

#include "multigrid_kernels.h" /* made of multigrid.cl by usm_add_kernels() */

#define SHARE    0.8f
#define COUNT(a) (sizeof(a) / sizeof *(a))

static const float *floats(void *const *args, size_t i)
{
    return *(const float *const *)args[i];
}

static float *out_floats(void *const *args, size_t i)
{
    return *(float *const *)args[i];
}

static bool is_rim(size_t x, size_t y, size_t n)
{
    return x == 0 || y == 0 || x == n + 1 || y == n + 1;
}

static float rest(const float *u, const float *f, size_t i, size_t p, float k)
{
    return f[i] - ((1.0f + 4.0f * k) * u[i] - k * (u[i - 1] + u[i + 1] + u[i - p] + u[i + p]));
}

static void start_part(const usm_range *part, void *const *args)
{
    const float *f   = floats(args, 0);
    float       *out = out_floats(args, 1), k = *(const float *)args[3];
    size_t       n = (size_t) * (const int *)args[2], p = n + 2;

    for (size_t y = part->begin[1]; y < part->end[1]; y++)
        for (size_t x = part->begin[0]; x < part->end[0]; x++) {
            size_t i = y * p + x;

            out[i] = is_rim(x, y, n) ? 0.0f : SHARE * f[i] / (1.0f + 4.0f * k);
        }
}

static void smooth_part(const usm_range *part, void *const *args)
{
    const float *u = floats(args, 0), *f = floats(args, 1);
    float       *out = out_floats(args, 2), k = *(const float *)args[4];
    size_t       n = (size_t) * (const int *)args[3], p = n + 2;

    for (size_t y = part->begin[1]; y < part->end[1]; y++)
        for (size_t x = part->begin[0]; x < part->end[0]; x++) {
            size_t i = y * p + x;

            out[i] =
                is_rim(x, y, n) ? 0.0f : u[i] + SHARE * rest(u, f, i, p, k) / (1.0f + 4.0f * k);
        }
}

static void residual_part(const usm_range *part, void *const *args)
{
    const float *u = floats(args, 0), *f = floats(args, 1);
    float       *out = out_floats(args, 2), k = *(const float *)args[4];
    size_t       n = (size_t) * (const int *)args[3], p = n + 2;

    for (size_t y = part->begin[1]; y < part->end[1]; y++)
        for (size_t x = part->begin[0]; x < part->end[0]; x++) {
            size_t i = y * p + x;

            out[i] = is_rim(x, y, n) ? 0.0f : rest(u, f, i, p, k);
        }
}

static void coarsen_part(const usm_range *part, void *const *args)
{
    const float *fine = floats(args, 0);
    float       *out  = out_floats(args, 1);
    size_t       n = (size_t) * (const int *)args[2], p = n + 2, w = 2 * n + 3;

    for (size_t y = part->begin[1]; y < part->end[1]; y++)
        for (size_t x = part->begin[0]; x < part->end[0]; x++) {
            const float *c = fine + 2 * y * w + 2 * x;

            out[y * p + x] =
                is_rim(x, y, n)
                    ? 0.0f
                    : 0.0625f * (4.0f * c[0] + 2.0f * (*(c - 1) + c[1] + *(c - w) + c[w]) +
                                 (*(c - w - 1) + *(c - w + 1) + c[w - 1] + c[w + 1]));
        }
}

static void correct_part(const usm_range *part, void *const *args)
{
    float       *u      = out_floats(args, 0);
    const float *coarse = floats(args, 1);
    size_t       n = (size_t) * (const int *)args[2], p = n + 2, w = (n - 1) / 2 + 2;

    for (size_t y = part->begin[1]; y < part->end[1]; y++)
        for (size_t x = part->begin[0]; x < part->end[0]; x++) {
            const float *c  = coarse + y / 2 * w + x / 2;
            size_t       dx = x & 1, dy = (y & 1) * w;

            if (!is_rim(x, y, n))
                u[y * p + x] += 0.25f * (c[0] + c[dx] + c[dy] + c[dx + dy]);
        }
}

#define P USM_ARG_POINTER
#define V USM_ARG_VALUE
static const usm_arg_kind start_kinds[]   = {P, P, V, V};
static const usm_arg_kind smooth_kinds[]  = {P, P, P, V, V};
static const usm_arg_kind between_kinds[] = {P, P, V};

static const usm_native_kernel natives[KERNELS] = {
    [START]    = {"start", start_part, COUNT(start_kinds), start_kinds},
    [SMOOTH]   = {"smooth", smooth_part, COUNT(smooth_kinds), smooth_kinds},
    [RESIDUAL] = {"residual", residual_part, COUNT(smooth_kinds), smooth_kinds},
    [COARSEN]  = {"coarsen", coarsen_part, COUNT(between_kinds), between_kinds},
    [CORRECT]  = {"correct", correct_part, COUNT(between_kinds), between_kinds},
};

bool kernels_create(kernels *k)
{
    const usm_image  images[] = {{USM_IMAGE_BUNDLE, multigrid_kernels, multigrid_kernels_size},
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

usm_status launch(const kernels *k, kernel_name name, int n, const usm_arg *args, size_t nargs)
{
    usm_launch l = USM_LAUNCH_INIT;

    l.kernel    = k->of[name];
    l.dims      = 2;
    l.global[0] = l.global[1] = (size_t)n + 2;
    l.nargs                   = nargs;
    l.args                    = args;
    return usm_queue_submit(usm_default_queue(), &l, 0, NULL, NULL);
}
