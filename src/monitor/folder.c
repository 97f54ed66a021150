/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The folder of monitor pages, the word of readers, the identity of a process: see folder.h. */
#include "monitor/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORD_BYTES 4096

/* A folder that somebody else owns or may enter could hold anything. */
static bool make_own(const char *path)
{
    struct stat st;

    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return false;
    if (lstat(path, &st) != 0)
        return false;
    errno = EACCES;
    return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0;
}

/* Writes parent/usm, or parent/usm-<uid> where the parent is everybody's. */
static bool make_in(const char *parent, bool is_shared, char *path, size_t size)
{
    char suffix[16] = "";
    int  n;

    if (is_shared)
        (void)snprintf(suffix, sizeof suffix, "-%u", (unsigned)geteuid());
    n     = snprintf(path, size, "%s/usm%s", parent, suffix);
    errno = ENAMETOOLONG;
    return n > 0 && (size_t)n < size && make_own(path);
}

bool usm__monitor_folder(char *path, size_t size)
{
    char own[32];
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): setenv is the program's affair */
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");

    if (runtime && runtime[0] == '/')
        return make_in(runtime, false, path, size);
    (void)snprintf(own, sizeof own, "/run/user/%u", (unsigned)geteuid());
    return make_in(own, false, path, size) || make_in("/dev/shm", true, path, size) ||
           make_in("/tmp", true, path, size);
}

static int open_readers(const char *folder)
{
    char        path[USM__MONITOR_PATH];
    struct stat st;
    int         n = snprintf(path, sizeof path, "%s/" USM__MONITOR_READERS, folder);
    int         fd;

    if (n <= 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        (st.st_size >= WORD_BYTES || posix_fallocate(fd, 0, WORD_BYTES) == 0))
        return fd;
    (void)close(fd);
    errno = EINVAL;
    return -1;
}

void *usm__monitor_map_readers(const char *folder, bool may_write)
{
    int   fd = open_readers(folder);
    void *p;

    if (fd < 0)
        return NULL;
    p = mmap(NULL, WORD_BYTES, may_write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    (void)close(fd);
    return p == MAP_FAILED ? NULL : p;
}

/* Field n >= 3 of the line, which counts from 1: the second is a name that may contain anything. */
static const char *field(const char *line, unsigned n)
{
    const char *at = strrchr(line, ')');

    for (unsigned i = 2; at && i < n; i++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    return at ? at : "";
}

static uint64_t number(const char *line, unsigned n)
{
    return strtoull(field(line, n), NULL, 10);
}

/* A process that has ended stays a zombie until its parent waits for it.  A main thread that has called
 * pthread_exit() looks the same (state Z), but its process lives as long as other threads run. */
static bool has_ended(const char *line)
{
    const char state = field(line, 3)[0];

    return (state == 'Z' || state == 'X') && number(line, 20) <= 1;
}

bool usm__monitor_identify(uint32_t pid, usm__monitor_identity *identity)
{
    char    path[32], line[1024];
    ssize_t n;
    int     fd;

    (void)snprintf(path, sizeof path, "/proc/%u/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, line, sizeof line - 1);
    (void)close(fd);
    if (n <= 0)
        return false;
    line[n]               = '\0';
    identity->start_ticks = number(line, 22);
    identity->stack_start = number(line, 28);
    return identity->start_ticks != 0 && !has_ended(line);
}

uint64_t usm__monitor_namespace(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}
