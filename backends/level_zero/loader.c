/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The names of the functions of libze_loader.so.1, which is opened at its first use and not before
 * (../common/library.c), and the initialisation of the drivers behind it.
 *
 * The result of zeInit is always checked: the loaders 1.8 and 1.20 list drivers even if it failed,
 * and calls into those crash later.
 *
 * Not here: the use of the functions.  Called by device.c. */
#include "../common/library.h"
#include "level_zero.h"

lz_functions lz; /* under the lock of the registry of devices until they are loaded, then fixed */

static const library_function functions[] = {
#define REQUIRED(name) {#name, offsetof(lz_functions, name), true},
#define OPTIONAL(name) {#name, offsetof(lz_functions, name), false},
    LZ_REQUIRED(REQUIRED) LZ_OPTIONAL(OPTIONAL) LZ_LATER(OPTIONAL)
#undef REQUIRED
#undef OPTIONAL
};

bool lz_load(char *why, size_t why_size)
{
    static const library loader = {"libze_loader.so.1",
                                   "Level Zero 1.0",
                                   functions,
                                   sizeof(functions) / sizeof(functions[0]),
                                   &lz,
                                   &lz.library};

    return library_load(&loader, why, why_size);
}

/* --- drivers ------------------------------------------------------------------ */

/* Since API 1.10; it does not find older drivers. */
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
