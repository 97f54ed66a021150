/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* SPIR-V to SPIR bitcode, by the tools llvm-spirv and, for modules that are linked, llvm-link: what
 * PoCL 3.1 takes.  Both work on memory files, so nothing is left behind.
 *
 * The tool must be of the LLVM that the runtime was built with: older bitcode is understood, newer
 * is not.  Called by opencl.c and clbuild.c. */
#include "opencl.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define FIRST_FD    3 /* of files that a tool reads */
#define MAX_UNITS   32
#define OLDEST_LLVM 10
#define FIRST_LLVM  14 /* where the runtime does not tell */

/* Whether `file` can be run from PATH. */
static bool is_on_path(const char *file)
{
    const char *path = getenv("PATH");
    char        full[4096];

    while (path && *path) {
        size_t n = strcspn(path, ":");

        if (snprintf(full, sizeof(full), "%.*s/%s", (int)n, path, file) < (int)sizeof(full) &&
            access(full, X_OK) == 0)
            return true;
        path += n + (path[n] == ':');
    }
    return false;
}

/* The newest tool that is not newer than the runtime's LLVM, or the one without a number. */
static const char *tool(const char *name, unsigned llvm, char *room, size_t size)
{
    for (unsigned version = llvm ? llvm : FIRST_LLVM; version >= OLDEST_LLVM; version--) {
        snprintf(room, size, "%s-%u", name, version);
        if (is_on_path(room))
            return room;
    }
    snprintf(room, size, "%s", name);
    return is_on_path(room) ? room : NULL;
}

bool soft_can_translate(unsigned llvm)
{
    char name[32];

    return tool("llvm-spirv", llvm, name, sizeof(name)) != NULL;
}

/* Descriptors become a tool's one after the other: a source must be no target of another, so all
 * sources lie above the targets. */
static int lift(int fd)
{
    int high = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD + MAX_UNITS) : -1;

    if (fd >= 0)
        close(fd);
    return high;
}

static int new_file(const void *data, size_t size)
{
    int    fd   = lift(memfd_create("ze_soft spirv", MFD_CLOEXEC));
    size_t done = 0;

    while (fd >= 0 && done < size) {
        ssize_t n = write(fd, (const char *)data + done, size - done);

        if (n <= 0) {
            close(fd);
            return -1;
        }
        done += (size_t)n;
    }
    return fd;
}

static void *read_file(int fd, size_t *size)
{
    struct stat st;
    char       *data;

    if (fstat(fd, &st) || st.st_size <= 0)
        return NULL;
    data = malloc((size_t)st.st_size + 1);
    if (!data)
        return NULL;
    *size = 0;
    while (*size < (size_t)st.st_size) {
        ssize_t n = pread(fd, data + *size, (size_t)st.st_size - *size, (off_t)*size);

        if (n <= 0)
            break;
        *size += (size_t)n;
    }
    data[*size] = 0;
    return data;
}

/* Runs the tool; inputs become its descriptors FIRST_FD and on.  Its exit status, -1: not run. */
static int run(char *const argv[], const int *inputs, size_t ninputs, int out, int err)
{
    posix_spawn_file_actions_t files;
    pid_t                      child;
    int                        status = -1;
    int                        error;

    if (posix_spawn_file_actions_init(&files))
        return -1;
    error = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    error = error ? error : posix_spawn_file_actions_adddup2(&files, out, 1);
    error = error ? error : posix_spawn_file_actions_adddup2(&files, err, 2);
    for (size_t i = 0; !error && i < ninputs; i++)
        error = posix_spawn_file_actions_adddup2(&files, inputs[i], FIRST_FD + (int)i);
    if (!error && posix_spawnp(&child, argv[0], &files, NULL, argv, environ) == 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    posix_spawn_file_actions_destroy(&files);
    return status;
}

/* What the tool makes of the inputs: a memory file, or -1 and why in the log. */
static int make(char *const argv[], const int *inputs, size_t ninputs, soft_text *log)
{
    int    out    = new_file(NULL, 0);
    int    err    = new_file(NULL, 0);
    int    status = out >= 0 && err >= 0 ? run(argv, inputs, ninputs, out, err) : -1;
    size_t size   = 0;
    char  *words  = err >= 0 ? read_file(err, &size) : NULL;

    if (words && size)
        soft_text_add(log, "%s: %s\n", argv[0], words);
    free(words);
    if (err >= 0)
        close(err);
    if (status == 0)
        return out;
    soft_text_add(log, "%s failed (status %d)\n", argv[0], status);
    if (out >= 0)
        close(out);
    return -1;
}

/* A file of the unit's SPIR-V as the runtime can take it, or -1. */
static int spirv_file(const soft_unit *unit)
{
    uint32_t *words = malloc(unit->size);
    int       fd    = -1;

    if (!words)
        return -1;
    memcpy(words, unit->data, unit->size);
    if (soft_uncast_atomics(words, unit->size / sizeof(*words)))
        fd = new_file(words, unit->size);
    free(words);
    return fd;
}

static int to_bitcode(char *name, const soft_unit *unit, soft_text *log)
{
    char  flag[] = "-r", in[] = "/proc/self/fd/3", to[] = "-o", out[] = "-";
    char *argv[]  = {name, flag, in, to, out, NULL};
    int   spirv   = spirv_file(unit);
    int   bitcode = spirv >= 0 ? make(argv, &spirv, 1, log) : -1;

    if (spirv >= 0)
        close(spirv);
    return bitcode;
}

/* One bitcode of several: what a runtime that links no bitcode needs. */
static int link_bitcode(unsigned llvm, const int *inputs, size_t n, soft_text *log)
{
    char  name[32], paths[MAX_UNITS][32], to[] = "-o", out[] = "-";
    char *argv[MAX_UNITS + 4] = {name};

    if (!tool("llvm-link", llvm, name, sizeof(name))) {
        soft_text_add(log, "linking modules needs llvm-link-%u or older here: install it\n", llvm);
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(paths[i], sizeof(paths[i]), "/proc/self/fd/%zu", FIRST_FD + i);
        argv[1 + i] = paths[i];
    }
    argv[1 + n] = to;
    argv[2 + n] = out;
    return make(argv, inputs, n, log);
}

ze_result_t soft_translate(const soft_cl *cl, const soft_unit *const *units, size_t nunits,
                           soft_text *log, uint8_t **data, size_t *size)
{
    char        name[32];
    int         files[MAX_UNITS], whole = -1;
    size_t      n      = 0;
    ze_result_t result = ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;

    if (nunits > MAX_UNITS || !tool("llvm-spirv", cl->llvm, name, sizeof(name))) {
        soft_text_add(log, "llvm-spirv is not there any more, or more than %d modules\n",
                      MAX_UNITS);
        return result;
    }
    while (n < nunits && (files[n] = to_bitcode(name, units[n], log)) >= 0)
        n++;
    if (n < nunits)
        goto err_files;
    whole = nunits == 1 ? files[0] : link_bitcode(cl->llvm, files, n, log);
    if (whole < 0) {
        result = ZE_RESULT_ERROR_MODULE_LINK_FAILURE;
        goto err_files;
    }
    *data  = read_file(whole, size);
    result = *data ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (nunits > 1)
        close(whole);
err_files:
    while (n > 0)
        close(files[--n]);
    return result;
}
