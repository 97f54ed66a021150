/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Modules and kernels of the Level Zero backend.  Included by program.c, kernel.c, and by the files
 * that append launches and detect their end. */
#ifndef USM_BACKENDS_LEVEL_ZERO_PROGRAM_H
#define USM_BACKENDS_LEVEL_ZERO_PROGRAM_H

#include "../common/instances.h"
#include "level_zero.h"

typedef struct lz_program {
    ze_module_handle_t native;
    lz_context        *ctx; /* holds a reference */
    lz_device         *dev;
    char              *kinds; /* kinds of arguments (common/kinds.h), or NULL */
    uint32_t           max_groups[3];
    _Atomic size_t     refs; /* the core's, and one for each kernel */
} lz_program;

/* A kernel keeps all its native kernels: one must not be destroyed while its launches run. */
typedef struct lz_kernel {
    /* fixed after create */
    lz_program *program;
    uint32_t    nargs;
    uint32_t    required[3];    /* the required size of its work-groups; 0: any                */
    uint32_t    most, multiple; /* maximum number of work-items in a group; preferred multiple */
    /* atomic */
    _Atomic size_t refs; /* the core's, one for each busy instance, and those of launches in
                            streams */
    instances      idle;
    char           name[];
} lz_kernel;

/* The values set in the native kernel are also stored here, and are set again only if they
 * differ. */
typedef struct lz_instance {
    instance_link      link; /* first */
    ze_kernel_handle_t native;
    lz_kernel         *kernel;
    uint32_t           indirect; /* ze_kernel_indirect_access_flags_t */
    uint32_t           group[3]; /* 0: not set yet                    */
    uint32_t           offset[3];
    size_t             asked_for[3]; /* the global size for which `suggested` is the driver's
                                        suggestion */
    uint32_t           suggested[3];
} lz_instance;

/* Called after the launch was appended (Level Zero copies the arguments then), or abandoned.
 * Before that the stream takes a reference to the kernel, until the launch has ended: see
 * kernel.c. */
void lz_instance_give_back(lz_instance *instance);

/* The flags for a module of SPIR-V, on the host heap; NULL: no memory.  is_large: blocks may be
 * larger than 4 GiB. */
char *lz_build_flags(const char *options, bool is_large);

void lz_program_unref(lz_program *program);

#endif
