/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens a library of the system and names its functions, so that a program starts where there is
 * no such library and can say so.
 *
 * Most programs link their runtime (-lOpenCL, -lze_loader) and need nothing of this file. */
#ifndef INTEROP_LOADER_H
#define INTEROP_LOADER_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What test drivers take for "cannot run here". */
#define EXIT_SKIPPED 77

_Noreturn static inline void end(int status)
{
    exit(status); /* NOLINT(concurrency-mt-unsafe): these programs have one thread */
}

static inline void *loader_open(const char *soname)
{
    void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        printf("nothing to do: %s is not here, or does not load\n", soname);
        end(EXIT_SKIPPED);
    }
    return library;
}

/* Into *function, a pointer to a pointer to a function; what is missing is too old a runtime. */
static inline void loader_find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);

    if (!symbol) {
        printf("nothing to do: the runtime has no %s\n", name);
        end(EXIT_SKIPPED);
    }
    memcpy(function, &symbol, sizeof symbol);
}

#endif
