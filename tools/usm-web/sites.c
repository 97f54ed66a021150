/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Who holds memory in a running process: see web.h.  A process that was started with USM_TRACE has
 * its trace open, complete up to a fifth of a second ago; usm-prof reads it through /proc, wherever
 * it lies and whatever its name is.  The process takes no part in that. */
#include "web.h"

#include "base/trace_format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SITES_SECONDS = 60 };

/* Whether an open file of the process is a trace that it writes itself, not one of its parent's. */
static bool is_trace(const char *path, uint32_t pid)
{
    usm__trace_header head;
    struct stat       s;
    int               fd;
    bool              is;

    if (stat(path, &s) || !S_ISREG(s.st_mode))
        return false;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    is = fd >= 0 && read(fd, &head, sizeof head) == (ssize_t)sizeof head &&
         memcmp(head.magic, USM__TRACE_MAGIC, sizeof head.magic) == 0 && head.pid == pid;
    if (fd >= 0)
        (void)close(fd);
    return is;
}

static bool find_trace(uint32_t pid, char *path, size_t size)
{
    char                 folder[32];
    DIR                 *files;
    const struct dirent *entry;
    bool                 is_found = false;

    (void)snprintf(folder, sizeof folder, "/proc/%u/fd", pid);
    files = opendir(folder);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this call's own */
    while (files && !is_found && (entry = readdir(files)) != NULL)
        is_found =
            snprintf(path, size, "%s/%s", folder, entry->d_name) < (int)size && is_trace(path, pid);
    if (files)
        (void)closedir(files);
    return is_found;
}

static int answer_report(request *r, int error, int status, const child_text *out,
                         const child_text *err)
{
    char text[128];

    if (error)
        return answer_error(r, 500, "usm-prof: %s", strerror(error));
    if (status || out->is_cut)
        return answer_error(r, 502, "usm-prof %s: %s", child_end_text(status, text, sizeof text),
                            err->text ? err->text : "");
    return answer(r, 200, "application/json", out->text ? out->text : "", out->size);
}

int sites_list(request *r)
{
    char        path[64];
    uint32_t    pid    = processes_asked(r);
    const char *args[] = {"report", path, "--json", "--top", "0", NULL};
    child_plan  plan   = {.program = "usm-prof", .args = args, .folder = -1};
    child_text  out = {.max = TEXT_MAX}, err = {.max = 4096};
    int         status = 0, http;

    if (pid == 0)
        return 404;
    if (!find_trace(pid, path, sizeof path))
        return answer_error(r, 409,
                            "process %u was started without a trace, so nobody recorded who "
                            "allocates: start it by usm-prof record --stacks, or with "
                            "USM_TRACE=NAME.trace and USM_TRACE_STACKS=on",
                            pid);
    http = child_run(r->w, &plan, SITES_SECONDS, &out, &err, &status);
    http = answer_report(r, http, status, &out, &err);
    free(out.text);
    free(err.text);
    return http;
}
