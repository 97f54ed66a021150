/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pages and timelines of traces: see web.h.  usm-prof makes them, beside the trace. */
#include "web.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EXPORT_SECONDS = 300 };

static const struct {
    const char *form, *option, *suffix;
} forms[] = {{"html", "--html", ".html"}, {"perfetto", "--perfetto", ".perfetto"}};

/* Answers with the name of the file. */
static int answer_export(request *r, int error, int status, const child_text *err, const char *made)
{
    char        text[128];
    json_answer a;

    if (error)
        return answer_error(r, 500, "usm-prof: %s", strerror(error));
    if (status)
        return answer_error(r, 400, "usm-prof %s: %s", child_end_text(status, text, sizeof text),
                            err->text ? err->text : "");
    if (!json_open(r, &a))
        return 503;
    usm__json_object_begin(&a.j, NULL);
    usm__json_text(&a.j, "path", made);
    usm__json_object_end(&a.j);
    return json_close(r, 200, &a);
}

/* path: a trace in the opened folder, whose name has `name`. */
static int export_to(request *r, int folder, const char *path, size_t form)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char        made[PATH_MAX + 16];
    const char *own = made + (name - path);
    child_text  out = {.max = 4096}, err = {.max = 4096};
    const char *args[] = {"export", name, forms[form].option, own, NULL};
    child_plan  plan   = {.program = "usm-prof", .args = args, .folder = folder};
    struct stat s;
    int         status = 0, http;

    (void)snprintf(made, sizeof made, "%s%s", path, forms[form].suffix);
    if (*name == '-' || fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) || !S_ISREG(s.st_mode))
        return answer_error(r, 400, "%s is no file of the folder", path);
    if (fstatat(folder, own, &s, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(s.st_mode))
        return answer_error(r, 409, "%s is there already, and no file", made);
    http = child_run(r->w, &plan, EXPORT_SECONDS, &out, &err, &status);
    http = answer_export(r, http, status, &err, made);
    free(out.text);
    free(err.text);
    return http;
}

int traces_export(request *r)
{
    char   path[PATH_MAX], wanted[16] = "";
    size_t form = 0;
    int    folder, http;

    if (!compose_path(r, path))
        return 400;
    (void)query_text(r, "form", wanted, sizeof wanted);
    while (form < sizeof forms / sizeof *forms && strcmp(forms[form].form, wanted) != 0)
        form++;
    if (form == sizeof forms / sizeof *forms)
        return answer_error(r, 400, "a trace is exported as html or perfetto");
    folder = compose_folder_of(r, path);
    if (folder < 0)
        return 400;
    http = export_to(r, folder, path, form);
    (void)close(folder);
    return http;
}
