/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of split.cl as native functions, and the images of both. */
#ifndef OFFLOAD_SPLIT_H
#define OFFLOAD_SPLIT_H

#include "split_kernels.h" /* made by usm_add_kernels() */

#include <usm/parallel.h>
#include <usm/usm.h>

#define SPLIT_POINTER(type, n) (*(type *const *)args[n])
#define SPLIT_VALUE(type, n)   (*(const type *)args[n])

static inline void split_blend(const usm_range *r, void *const *args)
{
    const uint32_t *whole = SPLIT_POINTER(const uint32_t, 0),
                   *in    = SPLIT_POINTER(const uint32_t, 1);
    uint32_t *out         = SPLIT_POINTER(uint32_t, 2);
    uint32_t  px = SPLIT_VALUE(uint32_t, 3), py = SPLIT_VALUE(uint32_t, 4);
    uint32_t  pz = SPLIT_VALUE(uint32_t, 5);

    for (size_t z = r->begin[2]; z < r->end[2]; z++)
        for (size_t y = r->begin[1]; y < r->end[1]; y++)
            for (size_t x = r->begin[0]; x < r->end[0]; x++) {
                size_t at =
                    (x - r->offset[0]) * px + (y - r->offset[1]) * py + (z - r->offset[2]) * pz;

                out[at] = in[at] * 3u + whole[(x * 7 + y * 13 + z * 29) % 64];
            }
}

static inline void split_smooth(const usm_range *r, void *const *args)
{
    const uint32_t *in  = SPLIT_POINTER(const uint32_t, 0);
    uint32_t       *out = SPLIT_POINTER(uint32_t, 1);
    uint64_t        n   = SPLIT_VALUE(uint64_t, 2);

    for (size_t g = r->begin[0]; g < r->end[0]; g++) {
        size_t   i      = g - r->offset[0];
        uint32_t before = g > 0 ? *(in + i - 1) : 0u, after = g + 1 < n ? in[i + 1] : 0u;

        out[i] = before + 2u * in[i] + 5u * after;
    }
}

static inline void split_fold(const usm_range *r, void *const *args)
{
    const int32_t *in    = SPLIT_POINTER(const int32_t, 0);
    uint32_t      *sum   = SPLIT_POINTER(uint32_t, 1);
    int32_t       *least = SPLIT_POINTER(int32_t, 2), *most = SPLIT_POINTER(int32_t, 3);
    float         *mean = SPLIT_POINTER(float, 4);
    uint32_t       leaf = SPLIT_VALUE(uint32_t, 5);

    for (size_t g = r->begin[0]; g < r->end[0]; g++) {
        size_t  i = g - r->offset[0], k = i / leaf;
        int32_t old;

        (void)__atomic_fetch_add(&sum[k], (uint32_t)in[i], __ATOMIC_RELAXED);
        old = __atomic_load_n(&least[k], __ATOMIC_RELAXED);
        while (in[i] < old && !__atomic_compare_exchange_n(&least[k], &old, in[i], 0,
                                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            ;
        old = __atomic_load_n(&most[k], __ATOMIC_RELAXED);
        while (in[i] > old && !__atomic_compare_exchange_n(&most[k], &old, in[i], 0,
                                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            ;
        mean[i] += (float)in[i] * 0.37f;
    }
}

static inline void split_find(const usm_range *r, void *const *args)
{
    const uint32_t *in    = SPLIT_POINTER(const uint32_t, 0);
    int64_t        *found = SPLIT_POINTER(int64_t, 1);
    uint32_t        key   = SPLIT_VALUE(uint32_t, 2);

    for (size_t g = r->begin[0]; g < r->end[0]; g++) {
        size_t i = g - r->offset[0];

        if (in[i] == key) {
            found[2 * i]     = (int64_t)g;
            found[2 * i + 1] = (int64_t)in[i] * 2;
        }
    }
}

static inline void split_steps(const usm_range *r, void *const *args)
{
    uint32_t *out   = SPLIT_POINTER(uint32_t, 0);
    int32_t  *state = SPLIT_POINTER(int32_t, 1);

    for (size_t g = r->begin[0]; g < r->end[0]; g++) {
        size_t i = g - r->offset[0];

        if (state[2 * i] != 1)
            continue;
        state[2 * i + 1]++;
        if (state[2 * i + 1] > (int32_t)(g % 5)) {
            state[2 * i] = 0;
            out[i]       = (uint32_t)state[2 * i + 1];
        }
    }
}

static inline void split_twice(const usm_range *r, void *const *args)
{
    uint32_t *data = SPLIT_POINTER(uint32_t, 0);

    for (size_t i = r->begin[0] - r->offset[0]; i < r->end[0] - r->offset[0]; i++)
        data[i] = data[i] * 2u + 1u;
}

static inline usm_status split_create(usm_team *team, const char *name, usm_team_kernel **kernel)
{
    static const usm_native_kernel natives[] = {
        {"blend", split_blend, 6, NULL}, {"smooth", split_smooth, 3, NULL},
        {"fold", split_fold, 6, NULL},   {"find", split_find, 3, NULL},
        {"steps", split_steps, 2, NULL}, {"twice", split_twice, 1, NULL}};
    usm_image        images[] = {{USM_IMAGE_BUNDLE, split_kernels, split_kernels_size},
                                 {USM_IMAGE_NATIVE, natives, sizeof natives}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;

    desc.images  = images;
    desc.nimages = 2;
    return usm_team_kernel_create(team, &desc, name, kernel);
}

#endif
