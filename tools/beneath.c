/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Files of one folder: see beneath.h.  The kernel resolves the name and refuses each step that
 * leaves the folder (openat2(2)), so that nothing that changes meanwhile can lead out of it. */
#include "beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int tool_open_beneath(int folder, const char *name, int flags)
{
    struct open_how how = {
        .flags   = (unsigned)(flags | O_CLOEXEC),
        .mode    = flags & O_CREAT ? 0666 : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };

    return (int)syscall(SYS_openat2, folder, name, &how, sizeof how);
}

int tool_root_open(tool_root *root, const char *path)
{
    root->fd   = -1;
    root->path = realpath(path, NULL);
    if (!root->path)
        return errno;
    root->fd = open(root->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root->fd >= 0)
        return 0;
    free(root->path);
    root->path = NULL;
    return errno;
}

/* The part of an absolute path behind the root's; NULL if it does not begin with that. */
static const char *behind(const tool_root *root, const char *path)
{
    size_t n = strcmp(root->path, "/") == 0 ? 0 : strlen(root->path);

    if (strncmp(path, root->path, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return NULL;
    path += n;
    path += strspn(path, "/");
    return *path ? path : ".";
}

int tool_root_open_file(const tool_root *root, const char *name, int flags)
{
    char        here[PATH_MAX], path[2 * PATH_MAX];
    const char *from = *name == '/' ? behind(root, name) : NULL;

    if (from)
        return tool_open_beneath(root->fd, from, flags);
    if (*name != '/' && getcwd(here, sizeof here))
        from = behind(root, here);
    if (!from) {
        errno = EXDEV;
        return -1;
    }
    if ((size_t)snprintf(path, sizeof path, "%s/%s", from, name) >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return tool_open_beneath(root->fd, path, flags);
}
