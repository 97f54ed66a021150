/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Modules, kernels and launches of the software driver: what their files share.
 *
 *   module.c   zeModule*, build logs         kernel.c  zeKernel*
 *   code.c     what a module was made from   launch.c  arguments taken at append, and running
 *   elf.c      native modules                spirv.c   reads SPIR-V
 *   link.c     modules with imports          text.c    logs
 *   opencl.c   the OpenCL runtime            clbuild.c, translate.c, uncast.c, clrun.c  programs,
 *              running
 *
 * A module owns one reference of its code; each kernel, and each launch of it, another one: what
 * still runs outlives the handles.  Code is immutable but for its OpenCL program, which a module
 * with imports gets when it is linked. */
#ifndef ZE_SOFT_MODULE_H
#define ZE_SOFT_MODULE_H

#include "exec.h"
#include "soft_kernel.h"

/* Work-items of a group at most; what the device says of itself must be the same. */
#define SOFT_MAX_GROUP 1024u
/* Bytes of local memory of a group at most. */
#define SOFT_MAX_LOCAL ((size_t)64 << 10)

/* --- text of logs (text.c) ----------------------------------------------------- */

/* Grows as needed; a line that finds no memory is dropped, `is_short` tells. */
typedef struct soft_text {
    char  *chars; /* 0-terminated, or NULL when empty */
    size_t length, room;
    bool   is_short;
} soft_text;

__attribute__((format(printf, 2, 3))) void soft_text_add(soft_text *text, const char *format, ...);
void                                       soft_text_free(soft_text *text);

/* --- code (code.c) --------------------------------------------------------------- */

typedef enum soft_arg_kind {
    SOFT_ARG_VALUE,
    SOFT_ARG_POINTER,
    SOFT_ARG_LOCAL,
    SOFT_ARG_OTHER /* images, samplers: no kernel with them can be launched */
} soft_arg_kind;

typedef struct soft_arg {
    soft_arg_kind kind;
    uint32_t      size; /* of a value, 0 when that is not known */
} soft_arg;

/* A kernel as its module describes it. */
typedef struct soft_function {
    char              *name;
    uint32_t           nargs;
    soft_arg          *args;
    uint32_t           required[3]; /* group size; 0: any */
    uint32_t           hinted[3];   /* group size that the source names as likely; 0: none */
    uint32_t           subgroup;    /* required size, 0: any */
    ze_soft_kernel_fn *native;      /* of native modules */
} soft_function;

typedef struct soft_names {
    char **names;
    size_t count;
} soft_names;

/* One binary that a module was made from. */
typedef struct soft_unit {
    uint8_t       *data;
    size_t         size;
    char          *flags; /* as the program gave them, never NULL */
    soft_function *functions;
    size_t         nfunctions;
    soft_names     imports, exports;
} soft_unit;

typedef struct soft_code {
    _Atomic size_t  refs;
    soft_unit      *units; /* SPIR-V: one or more; native: one */
    size_t          nunits;
    void           *object;    /* of dlopen; NULL for SPIR-V */
    int             object_fd; /* what it was loaded from, see elf.c; -1 */
    _Atomic(void *) program;   /* cl_program; NULL while imports are missing */
    bool            is_large;  /* built for allocations of more than 4 GiB */
} soft_code;

soft_code           *soft_code_new(size_t nunits);
soft_code           *soft_code_get(soft_code *code);
void                 soft_code_put(soft_code *code); /* NULL is fine */
const soft_function *soft_code_find(const soft_code *code, const char *name);
size_t               soft_code_kernels(const soft_code *code);
/* Takes copies of the bytes and flags (NULL: none). */
ze_result_t soft_unit_fill(soft_unit *unit, const void *data, size_t size, const char *flags);
bool        soft_names_have(const soft_names *names, const char *name);
ze_result_t soft_names_add(soft_names *names, const char *name, size_t length);
/* Room for one more function, zeroed; NULL: no memory. */
soft_function *soft_unit_add_function(soft_unit *unit);
bool           soft_has_flag(const char *flags, const char *flag);

/* --- native modules (elf.c) ------------------------------------------------------- */

/* Loads the unit's bytes; INVALID_NATIVE_BINARY and why in the log. */
ze_result_t soft_elf_load(soft_code *code, soft_text *log);
void        soft_elf_unload(soft_code *code);
/* A data object (or function) of the loaded module; NULL when there is none. */
void *soft_elf_symbol(const soft_code *code, const char *name, bool is_function, size_t *size);

/* --- SPIR-V (spirv.c) ------------------------------------------------------------- */

/* Fills functions, imports and exports, and writes specialization constants (NULL: none) into the
 * unit's bytes as their new defaults.  MODULE_BUILD_FAILURE and why in the log. */
ze_result_t soft_spirv_read(soft_unit *unit, const ze_module_constants_t *constants,
                            soft_text *log);

/* --- the OpenCL runtime (opencl.c, clbuild.c, translate.c, clrun.c) --------------- */

/* Builds one unit, or compiles and links several.  MODULE_LINK_FAILURE when all compile and names
 * are missing. */
ze_result_t soft_cl_build(const soft_unit *const *units, size_t nunits, soft_text *log,
                          void **program);
void        soft_cl_release_program(void *program); /* NULL is fine */
/* UNSUPPORTED_FEATURE when the runtime cannot tell, INVALID_GLOBAL_NAME, INVALID_FUNCTION_NAME. */
ze_result_t soft_cl_global(void *program, const char *name, size_t *size, void **pointer);
ze_result_t soft_cl_function(void *program, const char *name, void **pointer);

/* The value of an argument; data NULL: local memory of `size` bytes, or a null value. */
typedef struct soft_value {
    size_t size;
    void  *data;
} soft_value;

/* All that running a kernel takes. */
typedef struct soft_call {
    const soft_function *function;
    uint32_t             group[3]; /* work-items of a group */
    uint32_t             count[3]; /* groups */
    uint32_t             offset[3];
    const soft_value    *values; /* function->nargs of them */
} soft_call;

typedef struct soft_cl_kernel soft_cl_kernel;
ze_result_t soft_cl_kernel_new(void *program, const char *name, soft_cl_kernel **kernel);
void        soft_cl_kernel_free(soft_cl_kernel *kernel); /* NULL is fine */
ze_result_t soft_cl_run(soft_cl_kernel *kernel, const soft_call *call);
/* 0 where the runtime does not say. */
typedef struct soft_cl_kernel_info {
    size_t max_group, multiple;
    size_t local_bytes, private_bytes;
} soft_cl_kernel_info;
void soft_cl_kernel_ask(soft_cl_kernel *kernel, soft_cl_kernel_info *info);

/* --- handles ------------------------------------------------------------------- */

/* Gives the log, with its text, to who wants it (NULL: nobody). */
ze_result_t soft_log_give(soft_text *text, ze_module_build_log_handle_t *out);

/* link.c; the table is module.c's. */
ze_result_t ZE_APICALL soft_zeModuleDynamicLink(uint32_t n, ze_module_handle_t *modules,
                                                ze_module_build_log_handle_t *out_log);
ze_result_t ZE_APICALL soft_zeModuleInspectLinkageExt(ze_linkage_inspection_ext_desc_t *desc,
                                                      uint32_t n, ze_module_handle_t *modules,
                                                      ze_module_build_log_handle_t *out_log);

typedef struct soft_module {
    soft_handle   handle;
    soft_context *ctx;
    soft_device  *dev;
    soft_code    *code;
} soft_module;

/* What runs: a kernel object of its own for each ze_kernel, shared with its launches. */
typedef struct soft_entry {
    _Atomic size_t       refs;
    soft_code           *code; /* a reference */
    const soft_function *function;
    soft_cl_kernel      *cl; /* NULL: native */
} soft_entry;

soft_entry *soft_entry_get(soft_entry *entry);
void        soft_entry_put(soft_entry *entry);

typedef struct soft_slot {
    void  *data; /* room for `size` bytes, or NULL: local memory, a null value */
    size_t size;
    bool   is_set;
} soft_slot;

typedef struct soft_kernel {
    soft_handle  handle;
    soft_device *dev;
    soft_entry  *entry;
    uint32_t     max_group;
    uint32_t     group[3];
    uint32_t     offset[3];
    uint32_t     indirect; /* flags as set */
    char        *attributes;
    soft_slot    slots[]; /* of the function's arguments */
} soft_kernel;

#endif
