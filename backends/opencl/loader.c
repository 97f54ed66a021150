/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finds libOpenCL.so.1 and its functions, at the first use and not before.
 *
 * The loader is never linked, and one that the process has already is taken
 * first (RTLD_NOLOAD): whichever libOpenCL.so.1 comes first serves the whole
 * process, and bringing the system's in early would take, for example, Intel's
 * drivers away from a SYCL runtime that brings its own.
 *
 * Not here: what the functions are used for.  Called by device.c. */
#include "opencl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libOpenCL.so.1"

ocl_functions cl;

typedef struct symbol {
    const char *name;
    size_t      offset;
    bool        is_required;
} symbol;

static const symbol functions[] = {
#define REQUIRED(name) {#name, offsetof(ocl_functions, name), true},
#define OPTIONAL(name) {#name, offsetof(ocl_functions, name), false},
    OCL_REQUIRED(REQUIRED) OCL_OPTIONAL(OPTIONAL)
#undef REQUIRED
#undef OPTIONAL
};

static const symbol extensions[] = {
#define EXTENSION(name) {#name, offsetof(ocl_extensions, name), false},
    OCL_EXTENSION(EXTENSION)
#undef EXTENSION
};

/* A data pointer becomes a function pointer: POSIX has it so, C has it not. */
static void put(void *table, size_t offset, const void *address)
{
    memcpy((char *)table + offset, &address, sizeof(address));
}

/* The first required function that is missing, or NULL. */
static const char *fill(void *library)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *address = dlsym(library, functions[i].name);

        if (!address && functions[i].is_required)
            return functions[i].name;
        put(&cl, functions[i].offset, address);
    }
    return NULL;
}

static void *open_library(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

    return library ? library : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

bool ocl_load(char *why, size_t why_size)
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
    snprintf(why, why_size, LIBRARY " lacks %s, so it is older than OpenCL 1.2", missing);
    dlclose(library);
    library = NULL;
    return false;
}

void ocl_load_extensions(cl_platform_id platform, ocl_extensions *ext)
{
    for (size_t i = 0; i < sizeof(extensions) / sizeof(extensions[0]); i++)
        put(ext, extensions[i].offset,
            cl.clGetExtensionFunctionAddressForPlatform(platform, extensions[i].name));
}
