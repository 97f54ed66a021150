/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes the parts for each device and the policy into an app's file.  The rest of the text stays as it
 * is, byte by byte. */
#include "simulate.h"

#include "base/inline/plural.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A text that replaces a part of the file's. */
typedef struct change {
    const char *from, *to; /* in the file's text; alike: an insertion */
    char        text[200];
} change;

/* Sets a field of an object; before its first field, if it is new. */
static change set_field(value object, const char *key, const char *what)
{
    value  v = member(object, key);
    change c = {.from = v.at};

    if (v.json) {
        c.to = value_end(v.at);
        (void)snprintf(c.text, sizeof c.text, "%s", what);
        return c;
    }
    c.from   = object.at + 1;
    c.to     = c.from;
    int room = (int)strspn(c.from, " \t\r\n");
    (void)snprintf(c.text, sizeof c.text, "%.*s\"%s\": %s,%s", room < 100 ? room : 0, c.from, key,
                   what, room ? "" : " ");
    return c;
}

static int by_place(const void *a, const void *b)
{
    const change *x = a, *y = b;

    return (x->from > y->from) - (x->from < y->from);
}

static size_t find_changes(const app *a, const outcome *best, change *changes)
{
    value  root = {a->root, a->text + strspn(a->text, " \t\r\n")};
    char   what[64];
    size_t n = 0;

    (void)snprintf(what, sizeof what, "\"%s\"", best->policy);
    changes[n++] = set_field(root, "policy", what);
    (void)snprintf(what, sizeof what, "%u", best->per_device);
    for (size_t i = 0; i < a->nnodes; i++)
        if (a->nodes[i].desc.kind == USM_NODE_PARTITION && !a->nodes[i].desc.parts)
            changes[n++] = set_field(a->nodes[i].at, "per_device", what);
    qsort(changes, n, sizeof *changes, by_place);
    return n;
}

static bool write_changed(const app *a, FILE *out, const change *changes, size_t n)
{
    const char *at = a->text;

    for (size_t i = 0; i < n; i++) {
        (void)fwrite(at, 1, (size_t)(changes[i].from - at), out);
        (void)fputs(changes[i].text, out);
        at = changes[i].to;
    }
    (void)fwrite(at, 1, a->text_size - (size_t)(at - a->text), out);
    return !ferror(out);
}

/* Beside the file, and then in its place: whoever reads it sees one of the two, whole. */
static bool replace(const app *a, const change *changes, size_t n)
{
    size_t      size = strlen(a->path) + 8;
    char       *path = need(malloc(size));
    struct stat old;
    FILE       *out = NULL;
    int         fd;
    bool        is_ok;

    (void)snprintf(path, size, "%s.XXXXXX", a->path);
    fd    = mkstemp(path);
    out   = fd < 0 ? NULL : fdopen(fd, "w");
    is_ok = out && stat(a->path, &old) == 0 && fchmod(fd, old.st_mode & 07777) == 0 &&
            write_changed(a, out, changes, n);
    is_ok &= out && fclose(out) == 0;
    is_ok = is_ok && rename(path, a->path) == 0;
    if (!is_ok) {
        fprintf(stderr, "usm-run: --suggest: %s: %s\n", a->path, strerror(errno));
        if (fd >= 0)
            (void)unlink(path);
    }
    free(path);
    return is_ok;
}

bool suggest_write(app *a, const outcome *best)
{
    change *changes = need(calloc(a->nnodes + 1, sizeof *changes));
    size_t  n       = find_changes(a, best, changes);
    bool    is_ok   = replace(a, changes, n);

    free(changes);
    if (is_ok && best->per_device)
        fprintf(stderr, "usm-run: %s: %u %s for each device, policy %s\n", a->path,
                best->per_device, usm__plural(best->per_device, "part", "parts"), best->policy);
    else if (is_ok)
        fprintf(stderr, "usm-run: %s: policy %s\n", a->path, best->policy);
    return is_ok;
}
