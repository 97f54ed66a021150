/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A nameless file, mapped: the way to have more data than memory without a library.  The kernel
 * decides which pages stay, and takes all free memory for them.  Called by the tasks for
 * `--compare mmap`. */
#include "mapped.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void *refused(const char *what)
{
    perror(what);
    return NULL;
}

static const char *directory(void)
{
    const char *dir = getenv("TMPDIR"); /* NOLINT(concurrency-mt-unsafe): one thread */

    return dir && *dir ? dir : "/var/tmp";
}

void *mapped_create(size_t size)
{
    char  path[4096];
    void *data = MAP_FAILED;
    int   fd;

    snprintf(path, sizeof path, "%s/out_of_core-XXXXXX", directory());
    fd = mkstemp(path);
    if (fd < 0)
        return refused(path);
    unlink(path);
    if (ftruncate(fd, (off_t)size) == 0)
        data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return data == MAP_FAILED ? refused("out_of_core: mapping a file") : data;
}

void mapped_destroy(void *data, size_t size)
{
    if (data)
        munmap(data, size);
}
