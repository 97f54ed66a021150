/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finds and copies monitor pages: see reader.h. */
#include "monitor/reader.h"

#include "base/inline/atomic.h"
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 50 /* to find the page between two samples, each a fifth of a millisecond */

bool usm__monitor_open(usm__monitor_reader *r)
{
    r->pid_space = usm__monitor_namespace();
    r->word      = usm__monitor_folder(r->folder, sizeof r->folder)
                       ? usm__monitor_map_readers(r->folder, true)
                       : NULL;
    return r->word != NULL;
}

void usm__monitor_announce(const usm__monitor_reader *r)
{
    usm_store_relaxed(r->word, usm__os_now_ns() + USM__MONITOR_STAYS);
}

/* ---- one page ---------------------------------------------------------------------------- */

static bool is_same(const usm__monitor_page *p)
{
    usm__monitor_identity now;

    return usm__monitor_identify(p->pid, &now) && now.start_ticks == p->start_ticks &&
           (now.stack_start == 0 || now.stack_start == p->stack_start);
}

static usm__monitor_found refuse(char *why, const char *text)
{
    (void)snprintf(why, USM__MONITOR_WHY, "%s", text);
    return USM__MONITOR_REFUSED;
}

/* The sequence is read again after the copy: what was sampled meanwhile is copied once more.  A
 * process that was stopped or ended in the middle of a sample is shown as it is. */
static ssize_t copy(int fd, usm__monitor_page *page)
{
    uint64_t after = 0;
    ssize_t  n     = 0;

    for (int i = 0; i < TRIES; i++) {
        n = pread(fd, page, sizeof *page, 0);
        if (n < (ssize_t)sizeof *page)
            return n;
        if (pread(fd, &after, sizeof after, offsetof(usm__monitor_page, sequence)) ==
                (ssize_t)sizeof after &&
            after % 2 == 0 && after == usm_load_relaxed(&page->sequence))
            return n;
        usm__os_sleep_ns(200000);
    }
    return n;
}

static usm__monitor_found read_page(int fd, uint32_t pid, usm__monitor_page *page, char *why)
{
    struct stat st;
    ssize_t     n;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return refuse(why, "it is not a file");
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        return refuse(why, "another user wrote it, or may write it");
    n = copy(fd, page);
    if (!usm__monitor_check(page, n > 0 ? (size_t)n : 0, why))
        return USM__MONITOR_REFUSED;
    if (page->pid != pid)
        return refuse(why, "it names another process");
    return is_same(page) ? USM__MONITOR_LIVES : USM__MONITOR_GONE;
}

/* A process that got the same number may have replaced the file since it was opened: its page stays.
 * pre: fd is open, so that no other file has its inode. */
static void remove_page(const char *path, int fd)
{
    struct stat was, now;

    if (fstat(fd, &was) == 0 && lstat(path, &now) == 0 && was.st_dev == now.st_dev &&
        was.st_ino == now.st_ino)
        (void)unlink(path);
}

usm__monitor_found usm__monitor_read(const usm__monitor_reader *r, uint32_t pid,
                                     usm__monitor_page *page, char *why)
{
    char                  path[USM__MONITOR_PATH];
    usm__monitor_identity now;
    usm__monitor_found    found;
    int                   fd;

    (void)snprintf(path, sizeof path, "%s/%u-%llu.page", r->folder, pid,
                   (unsigned long long)r->pid_space);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? USM__MONITOR_GONE : refuse(why, "it cannot be opened");
    found = read_page(fd, pid, page, why);
    /* What nobody will ever write again goes, a page or not. */
    if (found == USM__MONITOR_REFUSED && !usm__monitor_identify(pid, &now))
        found = USM__MONITOR_GONE;
    if (found == USM__MONITOR_GONE)
        remove_page(path, fd);
    (void)close(fd);
    return found;
}

/* ---- the folder ---------------------------------------------------------------------------- */

/* The process id of a name as "123-4026531836.page"; 0: it is none, or of another namespace. */
static uint32_t pid_of(const usm__monitor_reader *r, const char *suffix, const char *name)
{
    char              *end;
    unsigned long      pid = strtoul(name, &end, 10);
    unsigned long long pid_space;

    if (name[0] < '1' || name[0] > '9' || *end != '-' || pid > INT32_MAX)
        return 0;
    pid_space = strtoull(end + 1, &end, 10);
    return pid_space == r->pid_space && strcmp(end, suffix) == 0 ? (uint32_t)pid : 0;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

size_t usm__monitor_list_of(const usm__monitor_reader *r, const char *suffix, uint32_t *pids,
                            size_t cap)
{
    DIR                 *folder = opendir(r->folder);
    const struct dirent *entry;
    size_t               n = 0;
    uint32_t             pid;

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this call's own */
    while (folder && (entry = readdir(folder)) != NULL) {
        pid = pid_of(r, suffix, entry->d_name);
        if (pid != 0 && n++ < cap)
            pids[n - 1] = pid;
    }
    if (folder)
        (void)closedir(folder);
    qsort(pids, n < cap ? n : cap, sizeof *pids, compare);
    return n;
}

size_t usm__monitor_list(const usm__monitor_reader *r, uint32_t *pids, size_t cap)
{
    return usm__monitor_list_of(r, ".page", pids, cap);
}
