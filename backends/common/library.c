/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens the library a driver interface is reached through, and finds its functions.
 *
 * One that the process has already is taken first (RTLD_NOLOAD): whichever comes first serves the
 * whole process, and bringing the system's in early would take drivers away from a runtime that
 * brings its own, or initialise every driver twice.  It is never closed again: drivers leave
 * threads behind.
 *
 * Called by the loader.c of each backend. */
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* A data pointer becomes a function pointer: POSIX has it so, C has it not. */
void library_put(void *table, size_t offset, const void *address)
{
    memcpy((char *)table + offset, &address, sizeof(address));
}

/* The first required function that is missing, or NULL. */
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

bool library_load(library *lib, char *why, size_t why_size)
{
    void       *handle = lib->handle;
    const char *text, *missing;

    if (handle)
        return true;
    handle = dlopen(lib->file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!handle)
        handle = dlopen(lib->file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        text = dlerror(); /* NOLINT(concurrency-mt-unsafe): glibc keeps one per thread */
        snprintf(why, why_size, "%s", text ? text : "it cannot be opened");
        return false;
    }
    missing = fill(lib, handle);
    if (!missing) {
        lib->handle = handle;
        return true;
    }
    snprintf(why, why_size, "%s lacks %s, which is part of %s", lib->file, missing, lib->required);
    dlclose(handle);
    return false;
}
