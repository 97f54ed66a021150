/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens the library of a driver interface, and finds its functions.
 *
 * A library that the process has already is preferred (RTLD_NOLOAD): the one loaded first serves
 * the whole process.  Loading the system's early would take drivers away from a runtime that brings
 * its own library, or initialise every driver twice.  It is never closed, because drivers leave
 * threads behind.
 *
 * Called by the loader.c of each backend. */
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* A data pointer becomes a function pointer: POSIX allows that, ISO C does not. */
void library_put(void *table, size_t offset, const void *address)
{
    memcpy((char *)table + offset, &address, sizeof(address));
}

/* Returns the first required function that is missing, or NULL. */
static const char *fill(const library *lib, void *handle)
{
    for (size_t i = 0; i < lib->nfunctions; i++) {
        const library_function *f       = &lib->functions[i];
        const void             *address = dlsym(handle, f->name);

        if (!address && f->is_required)
            return f->name;
        library_put(lib->table, f->offset, address);
    }
    return NULL;
}

bool library_load(const library *lib, char *why, size_t why_size)
{
    void       *handle = *lib->handle;
    const char *text, *missing;

    if (handle)
        return true;
    handle = dlopen(lib->file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!handle)
        handle = dlopen(lib->file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        text = dlerror(); /* NOLINT(concurrency-mt-unsafe): glibc has one for each thread */
        snprintf(why, why_size, "%s", text ? text : "it cannot be opened");
        return false;
    }
    missing = fill(lib, handle);
    if (!missing) {
        *lib->handle = handle;
        return true;
    }
    snprintf(why, why_size, "%s lacks %s, which is part of %s", lib->file, missing, lib->required);
    dlclose(handle);
    return false;
}
