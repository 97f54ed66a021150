/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scratch files.  They are opened without a name, so that nothing is left of them however the
 * process ends.  room.c manages the room of their blocks.  Called by file.c. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* For file systems without O_TMPFILE: a name that is removed before anything is written. */
static int open_and_unlink(const usm_file_store *s, const char *folder, int flags)
{
    char path[PATH_ROOM + 64];
    int  fd = -1, error = 0;

    for (int i = 0; i < 100 && fd < 0; i++) {
        (void)snprintf(path, sizeof(path), "%s/.usm-%ld-%u", folder, (long)getpid(),
                       usm_add_relaxed(&usm_file_now.names, 1u));
        fd    = s->api->os->open(path, flags | O_CREAT | O_EXCL, 0600);
        error = errno;
        if (fd < 0 && error != EEXIST) { /* without direct I/O the file may have been created all
                                            the same */
            (void)s->api->os->unlink(path);
            break;
        }
    }
    if (fd >= 0)
        (void)s->api->os->unlink(path);
    errno = error;
    return fd;
}

static int open_nameless(const usm_file_store *s, const char *folder, int flags)
{
    int fd = s->api->os->open(folder, flags | O_TMPFILE, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT))
        return fd;
    if (errno == ENOENT && access(folder, F_OK) != 0)
        return -1;
    return open_and_unlink(s, folder, flags);
}

static usm_status refuse(const usm_file_store *s, const char *folder, int error)
{
    char        room[128];
    const char *text = strerror_r(error, room, sizeof(room));

    if (error == ENOMEM)
        return s->api->report(USM_E_NO_MEMORY, "no memory to open a file in %s", folder);
    return s->api->report(
        USM_E_IO,
        "no file can be made in %s: %s; name a folder that you may write to, as in "
        "USM_SPILL=file:/var/tmp",
        folder, text);
}

static usm_status check_filesystem(const usm_file_store *s, usm_file_place *place, int fd)
{
    usm_os_file   file;
    usm_file_kind kind;

    if (s->api->os->inspect(fd, &file) != 0)
        return refuse(s, place->path, errno);
    kind = usm_file_classify(file.filesystem, &place->filesystem);
    if (kind == USM_FILE_MEMORY)
        return s->api->report(
            USM_E_INVALID,
            "%s is %s, which is memory itself: spilling there frees none; name a folder on a disk, "
            "as in USM_SPILL=file:/var/tmp",
            place->path, place->filesystem);
    if (kind == USM_FILE_NETWORK)
        usm_file_warn_network(s->api, place->filesystem, place->path);
    return USM_OK;
}

static usm_status open_place(usm_file_store *s, const char *folder)
{
    usm_file_place *place = &s->places[s->nplaces];
    usm_status      st;

    *place = (usm_file_place){.direct = -1, .buffered = -1};
    (void)snprintf(place->path, sizeof(place->path), "%s", folder);
    if (s->config.direct) {
        place->direct = open_nameless(s, folder, O_RDWR | O_DIRECT);
        if (place->direct < 0 && errno != EINVAL)
            return refuse(s, folder, errno);
        if (place->direct < 0)
            s->api->log(USM_LOG_WARN | USM_LOG_NODE,
                        "%s has no direct I/O: what is spilled there also takes memory of the "
                        "system's file cache",
                        folder);
    }
    if (place->direct < 0) {
        place->buffered = open_nameless(s, folder, O_RDWR);
        if (place->buffered < 0)
            return refuse(s, folder, errno);
    }
    s->nplaces++; /* from here on it is closed with the others */
    st = check_filesystem(s, place, place->direct >= 0 ? place->direct : place->buffered);
    return st;
}

usm_status usm_file_open_places(usm_file_store *s)
{
    for (size_t i = 0; i < s->config.nfolders; i++) {
        usm_status st = open_place(s, s->config.folders[i]);

        if (st != USM_OK) {
            usm_file_close_places(s);
            return st;
        }
    }
    return USM_OK;
}

void usm_file_close_places(usm_file_store *s)
{
    for (size_t i = 0; i < s->nplaces; i++) {
        if (s->places[i].direct >= 0)
            (void)s->api->os->close(s->places[i].direct);
        if (s->places[i].buffered >= 0)
            (void)s->api->os->close(s->places[i].buffered);
    }
    s->nplaces = 0;
}

void usm_file_locate(const usm_file_store *s, uint64_t block, uint32_t *place, uint64_t *at)
{
    *place = s->is_home ? 0 : (uint32_t)(block % s->nplaces);
    *at    = s->is_home ? s->home.base + block * s->block_size : block / s->nplaces * s->block_size;
}
