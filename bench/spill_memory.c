/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The memory of this process as the system counts it: a thread looks at /proc/self/statm every
 * millisecond, and the kernel's own high-water mark is asked where it can be set back
 * (/proc/self/clear_refs); the higher counts.  Called by spill_worker.c. */
#include "spill_memory.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct {
    uint64_t         base;
    _Atomic uint64_t peak; /* absolute */
    int              statm;
    bool             is_exact; /* the high-water mark was set back */
} watched;

static uint64_t resident(void)
{
    char    text[128];
    ssize_t n = pread(watched.statm, text, sizeof text - 1, 0);
    char   *second;

    if (n <= 0)
        return 0;
    text[n] = '\0';
    second  = strchr(text, ' ');
    return second ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static void *look(void *arg)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    (void)arg;
    for (;;) {
        uint64_t now = resident();

        if (now > atomic_load(&watched.peak))
            atomic_store(&watched.peak, now);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static bool set_back(void)
{
    int  fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, "5", 1) == 1;

    if (fd >= 0)
        close(fd);
    return ok;
}

/* A number of a file of "name: number" lines; 0: it is not there. */
static uint64_t number_in(const char *path, const char *name)
{
    FILE    *f = fopen(path, "r");
    char     line[256];
    uint64_t value = 0;
    size_t   n     = strlen(name);

    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, n) == 0)
            value = strtoull(line + n, NULL, 10);
    if (f)
        fclose(f);
    return value;
}

bool spill_memory_watch(void)
{
    pthread_t thread;

    if (watched.base > 0)
        return true;
    watched.statm    = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    watched.is_exact = set_back();
    watched.base     = resident();
    if (watched.base == 0 || pthread_create(&thread, NULL, look, NULL) != 0)
        return false;
    pthread_detach(thread);
    return true;
}

static uint64_t over_base(uint64_t bytes)
{
    return bytes > watched.base ? bytes - watched.base : 0;
}

void spill_memory_get(uint64_t *peak, uint64_t *now)
{
    uint64_t seen = atomic_load(&watched.peak);
    uint64_t mark = watched.is_exact ? number_in("/proc/self/status", "VmHWM:") * 1024 : 0;

    *peak = over_base(mark > seen ? mark : seen);
    *now  = over_base(resident());
}

bool spill_memory_written(uint64_t *bytes)
{
    if (access("/proc/self/io", R_OK) != 0)
        return false;
    *bytes = number_in("/proc/self/io", "write_bytes:");
    return true;
}

void spill_memory_warm(uint64_t bytes)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return;
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    for (uint64_t at = 0; at < bytes; at += 4096)
        *(volatile char *)(p + at) = 1;
    munmap(p, bytes);
}
