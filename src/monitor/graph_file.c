/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Files that show the graph of a process: see graph_file.h. */
#include "monitor/graph_file.h"

#include "base/inline/atomic.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "usm-graph 1"

enum { HEAD_MAX = 8192 }; /* bytes of the two lines before the text */

static const char graph_suffix[] = ".graph", progress_suffix[] = ".progress";

static void add_suffix(char *path, size_t size, const char *base, const char *suffix)
{
    (void)snprintf(path, size, "%s%s", base, suffix);
}

/* ---- the process that runs it ---------------------------------------------------------------- */

static bool write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);

        if (n < 0 && errno != EINTR)
            return false;
        bytes += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Replaces the file as a whole: who reads has the old one or the new one. */
static bool replace(const char *base, const char *suffix, const char *bytes, size_t size)
{
    char path[USM__MONITOR_PATH + 16], fresh[USM__MONITOR_PATH + 16];
    int  fd;
    bool is_ok;

    add_suffix(path, sizeof path, base, suffix);
    add_suffix(fresh, sizeof fresh, base, ".new");
    fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    is_ok = write_all(fd, bytes, size);
    (void)close(fd);
    if (is_ok && rename(fresh, path) == 0)
        return true;
    (void)unlink(fresh);
    return false;
}

/* The two lines before the text. */
static bool write_head(FILE *file, const char *name)
{
    usm__monitor_identity self;

    if (!usm__monitor_identify((uint32_t)getpid(), &self))
        return false;
    fprintf(file, MAGIC " %" PRIu64 " %" PRIu64 "\n", self.start_ticks, self.stack_start);
    for (; *name; name++)
        fputc(*name == '\n' ? '?' : *name, file);
    fputc('\n', file);
    return true;
}

static bool write_graph(const char *base, const char *name, const char *text)
{
    char  *bytes = NULL;
    size_t size  = 0;
    FILE  *file  = open_memstream(&bytes, &size);
    bool   is_ok;

    if (!file)
        return false;
    is_ok = write_head(file, name);
    fputs(text, file);
    is_ok = fclose(file) == 0 && is_ok && replace(base, graph_suffix, bytes, size);
    free(bytes);
    return is_ok;
}

bool usm__monitor_graph_show(usm__monitor_graph *g, const char *name, const char *text)
{
    char folder[USM__MONITOR_PATH - 64];

    g->path[0] = '\0';
    if (!usm__monitor_folder(folder, sizeof folder))
        return false;
    g->readers = usm__monitor_map_readers(folder, false);
    if (!g->readers)
        return false;
    (void)snprintf(g->path, sizeof g->path, "%s/%u-%llu", folder, (unsigned)getpid(),
                   (unsigned long long)usm__monitor_namespace());
    if (write_graph(g->path, name, text))
        return true;
    g->path[0] = '\0';
    return false;
}

bool usm__monitor_graph_is_watched(const usm__monitor_graph *g)
{
    uint64_t now = usm__os_now_ns(), until = g->path[0] ? usm_load_relaxed(g->readers) : 0;

    /* A value far ahead is no announcement. */
    return until > now && until - now <= 2 * (uint64_t)USM__MONITOR_STAYS;
}

void usm__monitor_graph_set_progress(const usm__monitor_graph *g, const char *line, size_t size)
{
    (void)replace(g->path, progress_suffix, line, size);
}

static void remove_files(const char *base)
{
    char path[USM__MONITOR_PATH + 16];

    add_suffix(path, sizeof path, base, graph_suffix);
    (void)unlink(path);
    add_suffix(path, sizeof path, base, progress_suffix);
    (void)unlink(path);
    add_suffix(path, sizeof path, base, ".new");
    (void)unlink(path);
}

void usm__monitor_graph_hide(usm__monitor_graph *g)
{
    if (g->path[0])
        remove_files(g->path);
    g->path[0] = '\0';
}

/* ---- readers ----------------------------------------------------------------------------------- */

size_t usm__monitor_list_graphs(const usm__monitor_reader *r, uint32_t *pids, size_t cap)
{
    return usm__monitor_list_of(r, graph_suffix, pids, cap);
}

static void base_of(const usm__monitor_reader *r, uint32_t pid, char *base, size_t size)
{
    (void)snprintf(base, size, "%s/%u-%llu", r->folder, pid, (unsigned long long)r->pid_space);
}

/* At most `most` bytes of a file of the user's own that nobody else may write, 0-terminated; NULL: it
 * is none, or too long to be one. */
static char *read_own(const char *base, const char *suffix, size_t most)
{
    char        path[USM__MONITOR_PATH + 16];
    struct stat st;
    char       *bytes = NULL;
    ssize_t     n     = -1;
    int         fd;

    add_suffix(path, sizeof path, base, suffix);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        (st.st_mode & 077) == 0 && st.st_size <= (off_t)USM__MONITOR_GRAPH_MAX) {
        most  = (size_t)st.st_size < most ? (size_t)st.st_size : most;
        bytes = malloc(most + 1);
    }
    if (bytes)
        n = pread(fd, bytes, most, 0);
    (void)close(fd);
    if (n >= 0)
        bytes[n] = '\0';
    else
        free(bytes);
    return n >= 0 ? bytes : NULL;
}

/* Ends the lines of the head.  False: it is none. */
static bool parse(usm__monitor_graph_found *found, uint64_t *stack_start)
{
    char *name = strchr(found->bytes, '\n'), *text = name ? strchr(name + 1, '\n') : NULL;

    if (!text ||
        sscanf(found->bytes, MAGIC " %" SCNu64 " %" SCNu64, &found->start_ticks, stack_start) != 2)
        return false;
    *text       = '\0';
    found->name = name + 1;
    found->text = text + 1;
    return true;
}

bool usm__monitor_read_graph(const usm__monitor_reader *r, uint32_t pid, bool has_text,
                             usm__monitor_graph_found *found)
{
    char                  base[USM__MONITOR_PATH];
    usm__monitor_identity now         = {0, 0};
    bool                  runs        = usm__monitor_identify(pid, &now), is_graph;
    uint64_t              stack_start = 0;

    base_of(r, pid, base, sizeof base);
    found->bytes = read_own(base, graph_suffix, has_text ? USM__MONITOR_GRAPH_MAX : HEAD_MAX);
    is_graph     = found->bytes && parse(found, &stack_start);
    if (is_graph && runs && now.start_ticks == found->start_ticks &&
        (now.stack_start == 0 || now.stack_start == stack_start))
        return true;
    if (!runs || is_graph) /* of a process that has ended, whatever it is */
        remove_files(base);
    free(found->bytes);
    found->bytes = NULL;
    return false;
}

char *usm__monitor_read_progress(const usm__monitor_reader *r, uint32_t pid)
{
    char base[USM__MONITOR_PATH];

    base_of(r, pid, base, sizeof base);
    return read_own(base, progress_suffix, USM__MONITOR_GRAPH_MAX);
}
