/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The library of a driver interface (its loader), and its functions in a table: nothing is linked.
 * Compiled into each backend over a driver.  Not here: the list of functions. */
#ifndef USM_BACKENDS_COMMON_LIBRARY_H
#define USM_BACKENDS_COMMON_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct library_function {
    const char *name;
    size_t      offset; /* of the function pointer in the table */
    bool        is_required;
} library_function;

typedef struct library {
    const char             *file;     /* "libOpenCL.so.1"                                */
    const char             *required; /* the interface that the required functions belong to, for
                                         messages */
    const library_function *functions;
    size_t                  nfunctions;
    void                   *table;
    void                  **handle; /* of the library; *handle is NULL until it is loaded */
} library;

/* Opens the library and fills its table, once; false, with the reason, if it is missing or lacks a
 * required function.  One call at a time. */
bool library_load(const library *lib, char *why, size_t why_size);
/* Writes the address of a function into a table. */
void library_put(void *table, size_t offset, const void *address);

#endif
