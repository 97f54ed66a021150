/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Backing stores that are files of the user: read in place through the transport `file`; written
 * only by commits, through the journal (spill/journal.h).
 *
 * Besides the transport's descriptor, the backing store has one of its own, which locks the file:
 * one writer or any number of readers, over all processes.  The lock is taken before the journal is
 * read, so nobody replays the commit of a process that is alive. */
#include "base/log.h"
#include "base/os.h"
#include "base/os_file.h"
#include "base/os_storage.h"
#include "device/registry.h"
#include "spill/home_private.h"
#include "spill/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number of attempts for a transfer: a path to storage may come back. */
#define ATTEMPTS 3u

typedef struct file_home {
    usm__home                base;
    const usm_transport_ops *ops;
    void                    *store;
    usm__journal            *journal; /* NULL: read only                                     */
    int                      fd;
    bool                     is_made; /* created by this opening, which removes it if it fails */
    uint64_t                 offset;
    char                     path[PATH_MAX];
} file_home;

static usm_status fail_errno(const char *path, const char *what)
{
    char why[128];
    int  error = errno;

    return usm__fail(USM_E_IO, "%s: %s: %s", path, what, strerror_r(error, why, sizeof(why)));
}

/* --- reading -------------------------------------------------------------------- */

static void fetched(usm_transfer *t, usm_status status)
{
    usm__io   *io = usm_container_of(t, usm__io, t);
    file_home *f  = usm_container_of((usm__home *)io->owner, file_home, base);

    if (status == USM_E_IO && ++io->attempts < ATTEMPTS) {
        t->next = NULL;
        f->ops->submit(f->store, t);
        return;
    }
    usm__home_end_read(&f->base, io, status);
}

static void file_read(usm__home *home, usm__io *io)
{
    file_home *f = usm_container_of(home, file_home, base);

    io->t = (usm_transfer){
        .op         = USM_TRANSFER_FETCH,
        .block      = io->block,
        .offset     = (size_t)io->first * home->params.sector_size,
        .size       = (size_t)io->count * home->params.sector_size,
        .data       = io->data,
        .registered = SIZE_MAX, /* memory is registered with the tiers' store */
        .is_awaited = io->is_awaited,
        .done       = fetched,
    };
    f->ops->submit(f->store, &io->t);
}

static usm_status file_commit(usm__home *home, const usm__dirty_blocks *dirty)
{
    return usm__journal_commit(usm_container_of(home, file_home, base)->journal, dirty);
}

static void file_close(usm__home *home)
{
    file_home *f = usm_container_of(home, file_home, base);

    if (f->store != NULL)
        f->ops->close(f->store);
    usm__journal_close(f->journal);
    if (f->fd >= 0)
        (void)usm__os_close(f->fd);
    usm__home_fini(home);
    usm__heap_free(f);
}

/* --- opening --------------------------------------------------------------------- */

static usm_status check_mode(const char *path, usm_access_mode mode)
{
    if (mode == USM_READ || mode == USM_READ_WRITE || mode == USM_READ_WRITE_NO_INIT)
        return USM_OK;
    return usm__fail(USM_E_INVALID,
                     "%s: a file is opened with USM_READ, USM_READ_WRITE or USM_READ_WRITE | "
                     "USM_NO_INIT, not with mode %d",
                     path, (int)mode);
}

/* Opens the descriptor, and finds the name without symbolic links: a file has one journal,
 * whichever of its names is used. */
static usm_status open_file(file_home *f, const char *path, usm_access_mode mode)
{
    int flags = (mode & USM_WRITE ? O_RDWR : O_RDONLY) | O_NONBLOCK;

    f->fd = usm__os_open(path, flags, 0);
    if (f->fd < 0 && errno == ENOENT && (mode & USM_NO_INIT)) {
        f->fd      = usm__os_open(path, flags | O_CREAT | O_EXCL, 0666);
        f->is_made = f->fd >= 0;
    }
    if (f->fd < 0)
        return fail_errno(path, mode & USM_WRITE ? "the file cannot be opened for writing"
                                                 : "the file cannot be opened for reading");
    if (realpath(path, f->path) == NULL)
        return fail_errno(path, "the file's folder cannot be resolved");
    return USM_OK;
}

static usm_status claim(const file_home *f, bool is_writable)
{
    if (usm__os_claim(f->fd, is_writable) == 0)
        return USM_OK;
    if (errno != EAGAIN)
        return fail_errno(f->path, "the file cannot be locked");
    return usm__fail(USM_E_BUSY,
                     "%s is open in another buffer or process%s: a file has one writer, or any "
                     "number of readers",
                     f->path, is_writable ? "" : " for writing");
}

static usm_status look_at(const file_home *f, usm__os_stat *st)
{
    if (usm__os_stat_fd(f->fd, st) != 0)
        return fail_errno(f->path, "the file cannot be inspected");
    if (!st->is_regular)
        return usm__fail(USM_E_IO, "%s is not a regular file; buffers need one", f->path);
    if (f->base.is_writable && st->links > 1)
        usm__warn("%s has %u names: after a crash open it by this one: the journal of its commits "
                  "is beside it",
                  f->path, st->links);
    return USM_OK;
}

static usm_status fit_size(const file_home *f, uint64_t length, usm_access_mode mode, size_t *size)
{
    uint64_t end;

    if (*size == 0) {
        if (length <= f->offset || length - f->offset > SIZE_MAX)
            return usm__fail(USM_E_SIZE, "%s has %llu bytes, and none at or after %llu", f->path,
                             (unsigned long long)length, (unsigned long long)f->offset);
        *size = (size_t)(length - f->offset);
        return USM_OK;
    }
    if (__builtin_add_overflow(f->offset, *size, &end) || end > INT64_MAX)
        return usm__fail(USM_E_SIZE, "%s: no file has %zu bytes from %llu on", f->path, *size,
                         (unsigned long long)f->offset);
    if (end > length && !(mode & USM_NO_INIT))
        return usm__fail(
            USM_E_SIZE,
            "%s has %llu bytes, but %zu from %llu on are needed; with USM_NO_INIT it is extended",
            f->path, (unsigned long long)length, *size, (unsigned long long)f->offset);
    return USM_OK;
}

static usm_status open_store(file_home *f, size_t size, bool may_grow)
{
    const usm_transport_home home = {
        .path     = f->path,
        .offset   = f->offset,
        .size     = size,
        .writable = may_grow, /* our own descriptor writes */
        .create   = may_grow,
    };
    const usm_transport_params params = {
        .struct_size = sizeof(params),
        .api         = &usm__registry_api,
        .config      = "",
        .block_size  = f->base.params.block_size,
        .home        = &home,
    };

    f->ops = usm__registry_transport("file");
    if (f->ops == NULL)
        return usm_last_status();
    if (!(f->ops->caps & USM_TRANSPORT_CAP_HOMES))
        return usm__fail(USM_E_NOT_SUPPORTED,
                         "the transport `file` does not support files of the user");
    return f->ops->open(&params, &f->store);
}

/* Makes the file's existence and length durable before the first commit relies on them. */
static usm_status settle_length(const file_home *f)
{
    char folder[PATH_MAX];

    memcpy(folder, f->path, sizeof(folder));
    *(strrchr(folder, '/') == folder ? folder + 1 : strrchr(folder, '/')) = '\0';
    if (usm__os_fsync(f->fd) != 0)
        return fail_errno(f->path, "the file cannot be synced");
    if (usm__os_fsync_dir(folder) != 0)
        return fail_errno(folder, "the folder cannot be synced");
    return USM_OK;
}

static usm_status open_parts(file_home *f, usm_access_mode mode, size_t *size)
{
    usm__os_stat st;
    bool         is_replayed, may_grow;
    usm_status   status = look_at(f, &st);

    if (status == USM_OK)
        status = claim(f, f->base.is_writable);
    if (status == USM_OK)
        status = usm__journal_replay(f->path, &is_replayed);
    if (status == USM_OK)
        status = fit_size(f, st.size, mode, size);
    if (status != USM_OK)
        return status;
    f->base.params.size = *size;
    may_grow            = st.size < f->offset + *size || f->is_made;
    status              = open_store(f, *size, may_grow);
    if (status == USM_OK && may_grow)
        status = settle_length(f);
    if (status == USM_OK && f->base.is_writable)
        status = usm__journal_open(&(usm__journal_params){.path       = f->path,
                                                          .offset     = f->offset,
                                                          .block_size = f->base.params.block_size,
                                                          .size       = *size,
                                                          .home       = f->fd},
                                   &f->journal);
    return status;
}

static size_t sector_size_of(size_t block_size)
{
    return block_size / USM__SECTORS_MAX > 4096 ? block_size / USM__SECTORS_MAX : 4096;
}

usm_status usm__home_open_file(const char *path, uint64_t offset, size_t *size,
                               usm_access_mode mode, size_t block_size, usm__home **home)
{
    static const usm__home_kind kind   = {file_read, file_commit, file_close};
    const char                 *slash  = strrchr(path, '/');
    const usm__home_params      params = {block_size, sector_size_of(block_size), 0};
    size_t                      fitted = *size;
    usm__message                message;
    file_home                  *f;
    usm_status                  status = check_mode(path, mode);

    if (status != USM_OK)
        return status;
    f = usm__heap_alloc(sizeof(*f));
    if (f == NULL)
        return usm__fail(USM_E_NO_MEMORY, "no memory for the backing store %s", path);
    usm__home_init(&f->base, &kind, &params, slash != NULL ? slash + 1 : path);
    f->base.is_writable = mode & USM_WRITE;
    f->offset           = offset;
    f->fd               = -1;
    status              = open_file(f, path, mode);
    if (status == USM_OK)
        status = open_parts(f, mode, &fitted);
    if (status == USM_OK) {
        *size = fitted;
        *home = &f->base;
        return USM_OK;
    }
    usm__message_save(&message);
    if (f->is_made)
        (void)usm__os_file_unlink(path);
    file_close(&f->base);
    usm__message_restore(&message);
    return status;
}
