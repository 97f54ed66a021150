/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a native module of the software Level Zero driver is: an ELF shared object that includes
 * this header and ends with
 *
 *     static const ze_soft_kernel kernels[] = {
 *         {"add", 2, (const uint32_t[]){ZE_SOFT_ARG_POINTER, sizeof(float)}, add, {0, 0, 0}},
 *     };
 *     ZE_SOFT_KERNELS(kernels)
 *
 * built by `cc -shared -fPIC`, its bytes given to zeModuleCreate as ZE_MODULE_FORMAT_NATIVE.  A
 * range is laid out as libusm's usm_range, so one function can serve both.
 *
 * Included by native modules and by the driver (elf.c). */
#ifndef ZE_SOFT_KERNEL_H
#define ZE_SOFT_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#define ZE_SOFT_KERNEL_ABI 1u

/* The work-items to compute: begin[d] <= id[d] < end[d].  Ids include the offset.  Always whole
 * work-groups; exactly one when the kernel has local memory. */
typedef struct ze_soft_range {
    uint32_t dims;      /* always 3                                                       */
    size_t   offset[3]; /* global offset of the launch                                    */
    size_t   global[3]; /* work-items of the launch                                       */
    size_t   local[3];  /* work-items of a work-group                                     */
    size_t   begin[3];
    size_t   end[3];
} ze_soft_range;

/* args[i] points to the value of argument i, as in `*(float **)args[0]`; for local memory it is
 * the work-group's block itself.  Called on threads of the driver, never on the program's. */
typedef void ze_soft_kernel_fn(const ze_soft_range *range, void *const *args);

/* Sizes of arguments that are no values; a value's is its bytes. */
#define ZE_SOFT_ARG_POINTER UINT32_MAX
#define ZE_SOFT_ARG_LOCAL   (UINT32_MAX - 1)

typedef struct ze_soft_kernel {
    const char        *name;
    size_t             nargs;
    const uint32_t    *sizes; /* of its arguments                                        */
    ze_soft_kernel_fn *fn;
    size_t             required[3]; /* the only group size it can do; 0: any                   */
} ze_soft_kernel;

/* What the driver looks up in the object, by the name ze_soft_kernels. */
typedef struct ze_soft_table {
    uint32_t              abi;
    uint32_t              nkernels;
    const ze_soft_kernel *kernels;
} ze_soft_table;

#define ZE_SOFT_KERNELS(array)                                                                     \
    extern const ze_soft_table                                 ze_soft_kernels;                    \
    __attribute__((visibility("default"))) const ze_soft_table ze_soft_kernels = {                 \
        ZE_SOFT_KERNEL_ABI, sizeof(array) / sizeof(*(array)), (array)};

#endif
