/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The memory and processor time that the machine and the control groups allow the process: part of
 * os.h.
 *
 * The limit of a group applies to all groups below it, so every group from the process's own up to
 * the root is read.  In a container the path in /proc/self/cgroup may lie outside of the mounted
 * part: folders that do not exist are skipped, and the walk ends at the mount point, which is then
 * the process's group.  Version 2 is mounted at /sys/fs/cgroup or beside version 1 at .../unified;
 * version 1 at .../memory and .../cpu. */
#include "base/os.h"
#include "base/text.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXT_SIZE 8192

/* The file names of one version. */
typedef struct flavour {
    const char *limit, *usage, *inactive;
} flavour;

static const flavour v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
static const flavour v2 = {"memory.max", "memory.current", "inactive_file"};

typedef struct figures {
    uint64_t limit, free;
} figures;

/* Reads up to TEXT_SIZE - 1 bytes; false if there is no such file. */
static bool read_text(const char *path, char *text)
{
    size_t  used = 0;
    ssize_t n    = 1;
    int     fd   = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    while (n > 0 && used < TEXT_SIZE - 1) {
        n = read(fd, text + used, TEXT_SIZE - 1 - used);
        used += n > 0 ? (size_t)n : 0;
    }
    (void)close(fd);
    text[used] = '\0';
    return n >= 0;
}

static bool read_number(const char *folder, const char *name, uint64_t *value)
{
    char      path[PATH_MAX], text[TEXT_SIZE];
    usm__span rest, word;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) >= sizeof(path) ||
        !read_text(path, text))
        return false;
    rest = usm__span_of(text);
    return usm__span_next(&rest, '\n', &word) && usm__span_number(word, value);
}

/* The number after `key` in lines of "key number" or "key: number kB"; 0 if there is none. */
static uint64_t find_number(const char *text, const char *key)
{
    usm__span rest = usm__span_of(text), line, word;
    uint64_t  value;

    while (usm__span_next(&rest, '\n', &line)) {
        if (!usm__span_next(&line, ' ', &word) || !usm__span_is(word, key))
            continue;
        while (usm__span_next(&line, ' ', &word))
            if (usm__span_number(word, &value))
                return value;
    }
    return 0;
}

static uint64_t reclaimable(const char *folder, const char *key)
{
    char path[PATH_MAX], text[TEXT_SIZE];

    if ((size_t)snprintf(path, sizeof(path), "%s/memory.stat", folder) >= sizeof(path) ||
        !read_text(path, text))
        return 0;
    return find_number(text, key);
}

static void ask_memory(const char *folder, bool is_v2, void *out)
{
    const flavour *f   = is_v2 ? &v2 : &v1;
    figures       *all = out;
    uint64_t       limit, usage, idle;

    if (!read_number(folder, f->limit, &limit)) /* no such file, or "max" */
        return;
    if (limit < all->limit)
        all->limit = limit;
    if (!read_number(folder, f->usage, &usage))
        return;
    idle  = reclaimable(folder, f->inactive);
    usage = usage > idle ? usage - idle : 0;
    limit = limit > usage ? limit - usage : 0;
    if (limit < all->free)
        all->free = limit;
}

/* Reads "quota period" of version 2, or a file for each; without a quota these are "max" or -1.
 * *cpus is the smallest number so far, 0: no limit. */
static void ask_cpus(const char *folder, bool is_v2, void *out)
{
    unsigned *cpus = out;
    char      path[PATH_MAX], text[TEXT_SIZE];
    uint64_t  quota, period, n;
    usm__span rest, first, second;

    if (!is_v2) {
        if (!read_number(folder, "cpu.cfs_quota_us", &quota) ||
            !read_number(folder, "cpu.cfs_period_us", &period))
            return;
    } else {
        if ((size_t)snprintf(path, sizeof(path), "%s/cpu.max", folder) >= sizeof(path) ||
            !read_text(path, text))
            return;
        text[strcspn(text, "\n")] = '\0';
        rest                      = usm__span_of(text);
        if (!usm__span_next(&rest, ' ', &first) || !usm__span_next(&rest, ' ', &second) ||
            !usm__span_number(first, &quota) || !usm__span_number(second, &period))
            return;
    }
    if (quota == 0 || period == 0)
        return;
    n = (quota + period - 1) / period;
    if (n < UINT_MAX && (*cpus == 0 || n < *cpus))
        *cpus = (unsigned)n;
}

/* A query of each group: the function that adds to `out`, and its controller. */
typedef struct question {
    const char *controller;
    void (*ask)(const char *folder, bool is_v2, void *out);
    void *out;
} question;

/* Queries mount/group, then each folder above it, and finally mount itself. */
static void ask_upwards(const char *mount, usm__span group, bool is_v2, const question *q)
{
    char   folder[PATH_MAX];
    size_t root = strlen(mount);

    if (root + group.len >= sizeof(folder))
        return;
    memcpy(folder, mount, root);
    memcpy(folder + root, group.at, group.len);
    folder[root + group.len] = '\0';
    for (;;) {
        char *slash;

        q->ask(folder, is_v2, q->out);
        slash = strrchr(folder + root, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

static bool lists(usm__span controllers, const char *name)
{
    usm__span one;

    while (usm__span_next(&controllers, ',', &one))
        if (usm__span_is(one, name))
            return true;
    return false;
}

/* Handles a line "4:memory:/group" (version 1) or "0::/group" (version 2). */
static void ask_line(usm__span line, const char *mount, const question *q)
{
    char      below[PATH_MAX];
    usm__span id, controllers;

    if (!usm__span_next(&line, ':', &id) || !usm__span_next(&line, ':', &controllers))
        return;
    if (controllers.len == 0) {
        ask_upwards(mount, line, true, q);
        if ((size_t)snprintf(below, sizeof(below), "%s/unified", mount) < sizeof(below))
            ask_upwards(below, line, true, q);
    } else if (lists(controllers, q->controller) &&
               (size_t)snprintf(below, sizeof(below), "%s/%s", mount, q->controller) <
                   sizeof(below)) {
        ask_upwards(below, line, false, q);
    }
}

static void ask_all(const char *list, const char *mount, const question *q)
{
    char      text[TEXT_SIZE];
    usm__span rest, line;

    if (!read_text(list, text))
        return;
    rest = usm__span_of(text);
    while (usm__span_next(&rest, '\n', &line))
        ask_line(line, mount, q);
}

void usm__os_cgroup_memory(const char *list, const char *mount, uint64_t *limit, uint64_t *free)
{
    figures all = {UINT64_MAX, UINT64_MAX};

    ask_all(list, mount, &(question){"memory", ask_memory, &all});
    *limit = all.limit;
    *free  = all.free;
}

unsigned usm__os_cgroup_cpus(const char *list, const char *mount)
{
    unsigned cpus = 0;

    ask_all(list, mount, &(question){"cpu", ask_cpus, &cpus});
    return cpus;
}

static uint64_t meminfo(const char *key)
{
    char text[TEXT_SIZE];

    return read_text("/proc/meminfo", text) ? find_number(text, key) * 1024 : 0;
}

uint64_t usm__os_memory_total(void)
{
    uint64_t ram = meminfo("MemTotal:"), limit, free;

    usm__os_cgroup_memory("/proc/self/cgroup", "/sys/fs/cgroup", &limit, &free);
    return limit < ram ? limit : ram;
}

uint64_t usm__os_memory_free(void)
{
    uint64_t ram = meminfo("MemAvailable:"), limit, free;

    usm__os_cgroup_memory("/proc/self/cgroup", "/sys/fs/cgroup", &limit, &free);
    return free < ram ? free : ram;
}
