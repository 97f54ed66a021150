/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* graph_kernels.cl in C, for the host's devices and as the reference. */
#include "graph_kernels.h"
#include "graph_images_kernels.h" /* made by usm_add_kernels() */

void serial_process(const uint8_t *in, uint32_t in_size, uint8_t *out, uint32_t out_size)
{
    for (uint32_t i = 0; i < out_size; i++)
        out[i] = (uint8_t)(in[(i * 7 + 3) % in_size] * 31 + in_size + i);
}

void serial_partition(const uint8_t *in, uint32_t in_size, uint32_t parts, uint8_t *out,
                      uint32_t part_size)
{
    for (uint32_t i = 0; i < parts * part_size; i++)
        out[i] = (uint8_t)(in[(i / part_size * 13 + i % part_size) % in_size] + i / part_size);
}

void serial_merge(const uint8_t *in, uint32_t in_size, uint32_t parts, uint8_t *out,
                  uint32_t out_size)
{
    uint32_t block = in_size / parts;

    for (uint32_t i = 0; i < out_size; i++) {
        uint32_t sum = parts;

        for (uint32_t j = 0; j < parts; j++)
            sum += in[j * block + i % block] * (j + 1);
        out[i] = (uint8_t)sum;
    }
}

/* A range that begins with the first item computes all: which item makes which byte is no matter.
 */
static bool is_first(const usm_range *range)
{
    return range->begin[0] == 0 && range->begin[1] == 0 && range->begin[2] == 0;
}

#define IN(i)   (*(uint8_t *const *)args[i])
#define SIZE(i) (*(const uint32_t *)args[i])

static void native_process(const usm_range *range, void *const *args)
{
    if (is_first(range))
        serial_process(IN(0), SIZE(1), IN(2), SIZE(3));
}

static void native_partition(const usm_range *range, void *const *args)
{
    if (is_first(range))
        serial_partition(IN(0), SIZE(1), SIZE(2), IN(3), SIZE(4));
}

static void native_merge(const usm_range *range, void *const *args)
{
    if (is_first(range))
        serial_merge(IN(0), SIZE(1), SIZE(2), IN(3), SIZE(4));
}

static const usm_native_kernel natives[KERNELS] = {{"processData", native_process, 4, NULL},
                                                   {"partitionData", native_partition, 5, NULL},
                                                   {"mergeData", native_merge, 5, NULL}};

usm_status kernels_create(usm_team *team, kernels *out)
{
    usm_image        images[2] = {{USM_IMAGE_NATIVE, natives, sizeof natives}};
    usm_program_desc d         = USM_PROGRAM_DESC_INIT;
    usm_status       st        = USM_OK;

    images[1] = (usm_image){USM_IMAGE_BUNDLE, graph_images_kernels, graph_images_kernels_size};
    d.nimages = 2;
    d.images  = images;
    for (int i = 0; i < KERNELS && st == USM_OK; i++)
        st = usm_team_kernel_create(team, &d, natives[i].name, &out->k[i]);
    return st;
}

void kernels_destroy(kernels *k)
{
    for (int i = 0; i < KERNELS; i++)
        usm_team_kernel_destroy(k->k[i]);
}
