/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Files of the folder, and checks of apps: see web.h.  What an app may be is known to usm-run
 * alone: a check runs it with --dry-run, and passes on what it says. */
#include "web.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENTRIES_MAX = 5000, DEPTH_MAX = 4, CHECK_SECONDS = 60 };
#ifndef CHECK_MEMORY /* a sanitizer, which maps terabytes, is built without a limit */
#define CHECK_MEMORY (UINT64_C(8) << 30)
#endif

/* ---- the list -------------------------------------------------------------------------------- */

typedef struct listing {
    usm__json *j;
    unsigned   n;
} listing;

static void list_folder(listing *l, int folder, const char *prefix, int depth);

static void list_entry(listing *l, int folder, const char *prefix, const char *name, int depth)
{
    char        path[PATH_MAX];
    struct stat s;
    bool        is_folder;
    int         fd = -1;

    if (*name == '.' || l->n >= ENTRIES_MAX || fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW))
        return;
    is_folder = S_ISDIR(s.st_mode);
    if ((size_t)snprintf(path, sizeof path, "%s%s%s", prefix, name, is_folder ? "/" : "") >=
        sizeof path)
        return;
    if (is_folder && depth < DEPTH_MAX)
        fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        list_folder(l, fd, path, depth + 1);
    if (!S_ISREG(s.st_mode))
        return;
    l->n++;
    usm__json_object_begin(l->j, NULL);
    usm__json_text(l->j, "path", path);
    usm__json_number(l->j, "size", (uint64_t)s.st_size);
    usm__json_number(l->j, "changed", (uint64_t)s.st_mtim.tv_sec);
    usm__json_object_end(l->j);
}

/* Takes the descriptor. */
static void list_folder(listing *l, int folder, const char *prefix, int depth)
{
    DIR           *d = fdopendir(folder);
    struct dirent *e;

    if (!d) {
        (void)close(folder);
        return;
    }
    while ((e = readdir(d))) /* each stream has one thread */
        list_entry(l, folder, prefix, e->d_name, depth);
    (void)closedir(d);
}

int compose_list(request *r)
{
    int         fd = tool_open_beneath(r->w->folder.fd, ".", O_RDONLY | O_DIRECTORY);
    json_answer a;
    listing     l = {&a.j, 0};

    if (fd < 0)
        return answer_error(r, 500, "%s: %s", r->w->folder.path, strerror(errno));
    if (!json_open(r, &a)) {
        (void)close(fd);
        return 503;
    }
    usm__json_object_begin(&a.j, NULL);
    usm__json_array_begin(&a.j, "files");
    list_folder(&l, fd, "", 0);
    usm__json_array_end(&a.j);
    usm__json_bool(&a.j, "is_cut", l.n >= ENTRIES_MAX);
    usm__json_object_end(&a.j);
    return json_close(r, 200, &a);
}

/* ---- one file -------------------------------------------------------------------------------- */

static int answer_errno(request *r, const char *path, int error)
{
    int status = error == ENOENT ? 404 : error == EXDEV || error == ELOOP ? 403 : 500;

    if (error == ENOSPC || error == EDQUOT)
        return answer_error(r, 507, "%s could not be saved: %s; what it was before is still there",
                            path, strerror(error));
    if (status == 403)
        return answer_error(r, 403, "%s lies outside of %s", path, r->w->folder.path);
    return answer_error(r, status, "%s: %s", path, strerror(error));
}

bool compose_path(request *r, char *path)
{
    if (query_text(r, "path", path, PATH_MAX) && *path)
        return true;
    (void)answer_error(r, 400, "which file? 'path' is missing");
    return false;
}

static int send_file(request *r, const char *path, int fd)
{
    struct stat s;
    char       *text;
    ssize_t     n;
    int         status;

    if (fstat(fd, &s) || !S_ISREG(s.st_mode))
        return answer_error(r, 400, "%s is no file", path);
    if (s.st_size > TEXT_MAX)
        return answer_error(r, 413, "%s has more than %d MiB", path, TEXT_MAX >> 20);
    text = malloc((size_t)s.st_size + 1);
    if (!text)
        return answer_error(r, 503, "no memory is left for %s", path);
    n      = pread(fd, text, (size_t)s.st_size, 0);
    status = n < 0 ? answer_errno(r, path, errno)
                   : answer(r, 200, "application/octet-stream", text, (size_t)n);
    free(text);
    return status;
}

int compose_read(request *r)
{
    char path[PATH_MAX];
    int  fd, status;

    if (!compose_path(r, path))
        return 400;
    fd = tool_open_beneath(r->w->folder.fd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return answer_errno(r, path, errno);
    status = send_file(r, path, fd);
    (void)close(fd);
    return status;
}

/* The folder of a file, opened, and where in `path` its own name begins. */
static int open_parent(const web *w, const char *path, const char **name)
{
    char        folder[PATH_MAX] = ".";
    const char *slash            = strrchr(path, '/');

    *name = slash ? slash + 1 : path;
    if (slash)
        (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return tool_open_beneath(w->folder.fd, *folder ? folder : "/", O_RDONLY | O_DIRECTORY);
}

static int write_all(int fd, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, text, size);

        if (n < 0 && errno != EINTR)
            return errno;
        text += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return fsync(fd) ? errno : 0;
}

/* Writes a new file and renames it: whoever reads, and whoever finds the disk full, has the old one
 * or the new one. */
static int replace(int folder, const char *name, const char *text, size_t size)
{
    char temporary[NAME_MAX + 1];
    int  fd, error;

    (void)snprintf(temporary, sizeof temporary, ".usm-web-%d-%lx", getpid(),
                   (unsigned long)(uintptr_t)&temporary);
    fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return errno;
    error = write_all(fd, text, size);
    if (close(fd) && !error)
        error = errno;
    if (!error && renameat(folder, temporary, folder, name))
        error = errno;
    if (error)
        (void)unlinkat(folder, temporary, 0);
    return error;
}

int compose_save(request *r)
{
    char        path[PATH_MAX];
    const char *name, *only_new = mg_get_header(r->c, "If-None-Match");
    size_t      size = 0;
    char       *text = read_body(r, &size);
    int         folder, error;

    if (!text)
        return 400;
    if (!compose_path(r, path)) {
        free(text);
        return 400;
    }
    folder = open_parent(r->w, path, &name);
    error  = folder < 0 ? errno : 0;
    if (!error && only_new && faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        error = EEXIST;
    if (!error)
        error = replace(folder, name, text, size);
    if (folder >= 0)
        (void)close(folder);
    free(text);
    if (error == EEXIST)
        return answer_error(r, 409, "there is a file %s already", path);
    return error ? answer_errno(r, path, error) : answer(r, 200, "application/json", "{}", 2);
}

/* ---- checks ---------------------------------------------------------------------------------- */

int compose_folder_of(request *r, const char *path)
{
    const char *name;
    int         folder = open_parent(r->w, path, &name);

    if (folder < 0)
        (void)answer_errno(r, path, errno);
    return folder;
}

static int answer_check(request *r, int error, int status, const child_text *err)
{
    char        text[128];
    json_answer a;

    if (error == ETIMEDOUT)
        return answer_error(r, 500, "the check was ended after %d s", CHECK_SECONDS);
    if (error)
        return answer_error(r, 500, "usm-run: %s", strerror(error));
    if (!json_open(r, &a))
        return 503;
    usm__json_object_begin(&a.j, NULL);
    usm__json_bool(&a.j, "is_ok", status == 0);
    usm__json_text(&a.j, "messages", err->text ? err->text : "");
    usm__json_text(&a.j, "end", child_end_text(status, text, sizeof text));
    usm__json_object_end(&a.j);
    return json_close(r, 200, &a);
}

int compose_check(request *r)
{
    const char *args[5 + 2 * STORES_MAX] = {"-", "--dry-run", "--within", r->w->folder.path};
    child_plan  plan = {.program = "usm-run", .args = args, .memory = CHECK_MEMORY};
    child_text  out = {.max = 4096}, err = {.max = 1 << 18};
    char        path[PATH_MAX];
    char       *text   = read_body(r, &plan.in_size);
    int         status = 0, error, http = 400;

    if (!text)
        return 400;
    (void)child_add_stores(r->w, args, 4);
    plan.folder = compose_path(r, path) ? compose_folder_of(r, path) : -1;
    if (plan.folder >= 0) {
        plan.in = text;
        error   = child_run(r->w, &plan, CHECK_SECONDS, &out, &err, &status);
        http    = answer_check(r, error, status, &err);
        (void)close(plan.folder);
    }
    free(out.text);
    free(err.text);
    free(text);
    return http;
}
