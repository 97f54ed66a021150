/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finds libze_loader.so.1 and its functions, at the first use and not before, and initialises the
 * drivers behind it.
 *
 * The loader is never linked, and one that the process has already is taken first (RTLD_NOLOAD):
 * a SYCL runtime brings its own, and two of them in a process initialise every driver twice.
 *
 * zeInit is always checked: the loaders 1.8 and 1.20 list drivers although it failed, and calls
 * into those crash later.
 *
 * Not here: what the functions are used for.  Called by device.c. */
#include "level_zero.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libze_loader.so.1"

lz_functions lz;

typedef struct symbol {
    const char *name;
    size_t      offset;
    bool        is_required;
} symbol;

static const symbol functions[] = {
#define REQUIRED(name) {#name, offsetof(lz_functions, name), true},
#define OPTIONAL(name) {#name, offsetof(lz_functions, name), false},
    LZ_REQUIRED(REQUIRED) LZ_OPTIONAL(OPTIONAL) LZ_LATER(OPTIONAL)
#undef REQUIRED
#undef OPTIONAL
};

/* The first required function that is missing, or NULL.  A data pointer becomes a function pointer:
 * POSIX has it so, C has it not. */
static const char *fill(void *library)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *address = dlsym(library, functions[i].name);

        if (!address && functions[i].is_required)
            return functions[i].name;
        memcpy((char *)&lz + functions[i].offset, &address, sizeof(address));
    }
    return NULL;
}

static void *open_library(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

    return library ? library : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

bool lz_load(char *why, size_t why_size)
{
    static void *library; /* never closed: drivers leave threads behind */
    const char  *missing;

    if (library)
        return true;
    library = open_library();
    if (!library) {
        const char *text =
            dlerror(); /* NOLINT(concurrency-mt-unsafe): glibc keeps one per thread */

        snprintf(why, why_size, "%s", text ? text : "cannot open " LIBRARY);
        return false;
    }
    missing = fill(library);
    if (!missing)
        return true;
    snprintf(why, why_size, LIBRARY " lacks %s, which Level Zero has had since 1.0", missing);
    dlclose(library);
    library = NULL;
    return false;
}

/* --- drivers ------------------------------------------------------------------ */

/* Since API 1.10; drivers that are older are not reached this way. */
static ze_result_t init_drivers(ze_driver_handle_t *list, uint32_t cap, uint32_t *count)
{
    lz_init_driver_type_desc desc = {
        .stype = LZ_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC,
        .flags = LZ_INIT_DRIVER_TYPE_FLAG_GPU,
    };
    uint32_t    n = 0;
    ze_result_t err;

    if (!lz.zeInitDrivers)
        return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    err = lz.zeInitDrivers(&n, NULL, &desc);
    if (err || !n)
        return err ? err : ZE_RESULT_ERROR_UNINITIALIZED;
    n   = n < cap ? n : cap;
    err = lz.zeInitDrivers(&n, list, &desc);
    if (!err)
        *count = n;
    return err;
}

static ze_result_t init_and_get(ze_driver_handle_t *list, uint32_t cap, uint32_t *count,
                                const char **call)
{
    uint32_t    n   = 0;
    ze_result_t err = lz.zeInit(ZE_INIT_FLAG_GPU_ONLY);

    *call = "zeInit";
    if (err)
        return err;
    *call = "zeDriverGet";
    err   = lz.zeDriverGet(&n, NULL);
    if (err)
        return err;
    n   = n < cap ? n : cap;
    err = n ? lz.zeDriverGet(&n, list) : ZE_RESULT_SUCCESS;
    if (!err)
        *count = n;
    return err;
}

static bool wants_zeinit(ze_result_t err)
{
    return err == ZE_RESULT_ERROR_UNSUPPORTED_VERSION ||
           err == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE || err == ZE_RESULT_ERROR_UNINITIALIZED;
}

ze_result_t lz_init_drivers(ze_driver_handle_t *list, uint32_t cap, uint32_t *count,
                            const char **call)
{
    ze_result_t err = init_drivers(list, cap, count);

    *call = "zeInitDrivers";
    return wants_zeinit(err) ? init_and_get(list, cap, count, call) : err;
}
