/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finding jemalloc.  Here: its functions in the program, the message if they are missing, its
 * controls.  Not here: their use.  Called by the module's entry and jemalloc.c.
 *
 * A jemalloc that is built in the usual way (such as Debian's) has 2.6 KB of thread-local variables
 * that must be in the block that the C library lays out for a thread when the program starts.
 * glibc 2.36 has about 1.6 KB to spare there for libraries that are loaded later, so dlopen() fails
 * with "cannot allocate memory in static TLS block".  A library that is in the program from the
 * start, linked or preloaded, has its place.  So jemalloc is first looked for in the program.
 * dlopen() is tried as well, because a program may have been started with more room
 * (GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096: tried with 2.36), and because a jemalloc
 * that was configured with --disable-initial-exec-tls can be loaded at any time. */
#include "internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char shared_name[] = "libjemalloc.so.2";

struct usm_je_library usm_je; /* fixed once the module was entered */

static const char *const names[] = {
#define USM_JE_NAME(result, name, arguments) #name,
    USM_JE_FUNCTIONS(USM_JE_NAME)
#undef USM_JE_NAME
};
#define NAMES (sizeof(names) / sizeof(names[0]))

_Static_assert(sizeof(struct usm_je_library) == NAMES * sizeof(void *), "only functions in it");

/* Finds all of the functions in `library` with this prefix, or none. */
static bool find_in(void *library, const char *prefix)
{
    void *found[NAMES];
    char  name[64];

    for (size_t i = 0; i < NAMES; i++) {
        (void)snprintf(name, sizeof(name), "%s%s", prefix, names[i]);
        found[i] = dlsym(library, name);
        if (!found[i])
            return false;
    }
    memcpy(&usm_je, found, sizeof(found)); /* ISO C has no cast from data to code */
    return true;
}

/* The extent hooks used here are those of 5.x. */
static usm_status check_version(const usm_host_api *api)
{
    const char *version = "unknown";
    size_t      size    = sizeof(version);

    if (usm_je.mallctl("version", &version, &size, NULL, 0) == 0 && atoi(version) >= 5)
        return USM_OK;
    return api->report(USM_E_NOT_SUPPORTED,
                       "the program's jemalloc has version %s, but the pool needs 5.0 or later",
                       version);
}

usm_status usm_je_find(const usm_host_api *api)
{
    void       *library;
    const char *why;

    if (find_in(RTLD_DEFAULT, "") || find_in(RTLD_DEFAULT, "je_"))
        return check_version(api);
    library = dlopen(shared_name, RTLD_NOW | RTLD_LOCAL); /* never closed, because threads have its
                                                             data */
    if (library && (find_in(library, "") || find_in(library, "je_")))
        return check_version(api);
    why = library ? "it has no mallocx()"
                  : dlerror(); /* NOLINT(concurrency-mt-unsafe): glibc has one for each thread */
    return api->report(USM_E_NOT_SUPPORTED,
                       "the pool `jemalloc` needs a program that has jemalloc from its start: link "
                       "it with -ljemalloc or start it with LD_PRELOAD=%s (loading it now failed: "
                       "%s)",
                       shared_name, why ? why : "no reason given");
}

uint64_t usm_je_allocated(void)
{
    uint64_t bytes = 0;
    size_t   size  = sizeof(bytes);

    return usm_je.mallctl("thread.allocated", &bytes, &size, NULL, 0) == 0 ? bytes : 0;
}

int usm_je_control(const char *name, unsigned index, const void *value, size_t size)
{
    char  text[64], copy[16];
    void *given = NULL;

    (void)snprintf(text, sizeof(text), "arena.%u.%s", index, name);
    if (value && size <= sizeof(copy)) /* mallctl() takes a pointer to non-const even for data that
                                          it only reads */
        given = memcpy(copy, value, size);
    return usm_je.mallctl(text, NULL, NULL, given, size);
}
