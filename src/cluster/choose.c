/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which MPI the program has loaded, and so which module of libusm fits.  Loads nothing, and calls
 * of MPI only what is allowed before MPI_Init().  Called by attach.c.  In this order:
 *
 *     the module that USM_MPI names
 *     the libraries that are loaded (RTLD_NOLOAD), by their names
 *     a library that has MPI_Get_library_version() (vendors' names, MPI inside another library)
 *
 * Two MPIs in one process are refused: their symbols have the same names.  One installation may be
 * loaded under two names, though: MPICH 5 has libmpi.so.12, whose handles are ints, and
 * libmpi_abi.so.1 with the standard's handles, which are pointers.  The size of the program's
 * MPI_Comm tells them apart. */
#include "base/settings.h"
#include "cluster/attach.h"
#include "cluster/internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct flavour {
    const char *name, *library;
    size_t      comm_size;
    bool        is_mpich;
} flavour;

static const flavour flavours[] = {{"openmpi", "libmpi.so.40", sizeof(void *), false},
                                   {"mpich12", "libmpi.so.12", sizeof(int), true},
                                   {"mpich", "libmpich.so.12", sizeof(int), true},
                                   {"abi", "libmpi_abi.so.1", sizeof(void *), true}};

typedef int get_version_fn(char *text, int *size);

/* Finds the loaded ones, each library once; returns their number. */
static size_t find_loaded(const flavour **list)
{
    void  *handles[sizeof flavours / sizeof flavours[0]];
    size_t n = 0;

    for (size_t i = 0; i < sizeof flavours / sizeof flavours[0]; i++) {
        void  *h     = dlopen(flavours[i].library, RTLD_LAZY | RTLD_NOLOAD);
        size_t known = 0;

        if (!h)
            continue;
        (void)dlclose(h); /* undoes only the count of dlopen() */
        while (known < n && handles[known] != h)
            known++;
        if (known < n)
            continue; /* the same library under another name */
        handles[n] = h;
        list[n++]  = &flavours[i];
    }
    return n;
}

/* The one of several that the program was compiled for; NULL: they are two MPIs. */
static const flavour *one_of(const flavour *const *list, size_t n, size_t comm_size)
{
    const flavour *fit = NULL;

    for (size_t i = 0; i < n; i++) {
        if (!list[i]->is_mpich)
            return NULL;
        if (list[i]->comm_size != comm_size)
            continue;
        if (fit)
            return NULL;
        fit = list[i];
    }
    return fit;
}

static usm_status refuse_two(const flavour *const *list, size_t n)
{
    char text[160] = "";

    for (size_t i = 0, used = 0; i < n && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? " and " : "",
                                 list[i]->library);
    return usm__fail(USM_E_MPI,
                     "%s are loaded in one process: link the program and its libraries with one "
                     "MPI; USM_MPI=%s or =%s says which of them libusm shall use",
                     text, list[0]->name, list[1]->name);
}

/* By the library's version text. */
static const flavour *by_version(size_t comm_size)
{
    get_version_fn *get_version;
    void           *symbol = dlsym(RTLD_DEFAULT, "MPI_Get_library_version");
    char            text[8192]; /* at least MPI_MAX_LIBRARY_VERSION_STRING of all known MPIs */
    int             size = 0;

    if (!symbol)
        return NULL;
    memcpy(&get_version, &symbol, sizeof get_version); /* ISO C has no cast from data to code */
    memset(text, 0, sizeof text);
    if (get_version(text, &size) != 0)
        return NULL;
    text[sizeof text - 1] = 0;
    if (strstr(text, "Open MPI"))
        return &flavours[0];
    if (strstr(text, "MPICH") || strstr(text, "Intel") || strstr(text, "MVAPICH"))
        return &flavours[comm_size == sizeof(void *) ? 3 : 1];
    return NULL;
}

usm_status usm__job_choose(size_t comm_size, char *name, size_t size)
{
    const char    *wish = usm__setting_text("mpi");
    const flavour *list[sizeof flavours / sizeof flavours[0]], *one;
    size_t         n;

    if (*wish && strcmp(wish, "auto") != 0) {
        (void)snprintf(name, size, "mpi_%s", wish);
        return USM_OK;
    }
    n = find_loaded(list);
    if (n == 0)
        one = by_version(comm_size);
    else
        one = n == 1 ? list[0] : one_of(list, n, comm_size);
    if (one) {
        (void)snprintf(name, size, "mpi_%s", one->name);
        return USM_OK;
    }
    if (n > 0)
        return refuse_two(list, n);
    return usm__fail(USM_E_MPI,
                     "the process has loaded no MPI that libusm knows (libmpi.so.40, libmpi.so.12, "
                     "libmpich.so.12, libmpi_abi.so.1): link the program with MPI, and call "
                     "MPI_Init_thread() first; USM_MPI names a module by hand");
}

/* ---- by the launcher ------------------------------------------------------------------------- */

static bool has(const char *name)
{
    return getenv(name) != NULL; /* NOLINT(concurrency-mt-unsafe): at the start of a tool */
}

const char *const *usm__cluster_candidates(void)
{
    static const char *const open_mpi[] = {"openmpi", NULL};
    static const char *const mpich[]    = {"mpich", "mpich12", "abi", NULL};
    static const char *const cray[]     = {"mpich12", "abi", NULL};

    if (has("OMPI_COMM_WORLD_SIZE") || (has("PMIX_RANK") && !has("PMI_RANK")))
        return open_mpi;
    if (has("PALS_RANKID"))
        return cray;
    return has("PMI_RANK") || has("PMI_FD") || has("PMI_SIZE") ? mpich : NULL;
}
