/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What runs had ended, to be resumed from: see web.h.
 *
 *     FOLDER/.usm-web-<pid>/<run>/    of usm-run --resume: files, and no folders
 *
 * usm-run makes a folder when it has something to keep, and removes it when all is done.  What stopped
 * runs leave is removed when their place is taken, and when this program ends. */
#include "web.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

static void name_of_all(char *name, size_t size)
{
    (void)snprintf(name, size, ".usm-web-%d", (int)getpid());
}

void kept_path(const web *w, uint64_t number, char *path, size_t size)
{
    char all[64];

    name_of_all(all, sizeof all);
    /* usm-run removes the folders that it makes: this one is not to go while another run needs it. */
    if ((mkdirat(w->folder.fd, all, 0700) != 0 && errno != EEXIST) ||
        (size_t)snprintf(path, size, "%s/%s/%" PRIu64, w->folder.path, all, number) >= size)
        *path = '\0'; /* a folder that cannot be written: nothing is kept */
}

bool kept_is_there(const char *path)
{
    return *path && access(path, F_OK) == 0;
}

void kept_remove(const char *path)
{
    int            fd = *path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    DIR           *d  = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *e;

    if (!d) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    while ((e = readdir(d))) /* each stream has one thread */
        (void)unlinkat(dirfd(d), e->d_name, 0);
    (void)closedir(d);
    (void)rmdir(path);
}

void kept_end(const web *w)
{
    char all[64];

    name_of_all(all, sizeof all);
    (void)unlinkat(w->folder.fd, all, AT_REMOVEDIR);
}
