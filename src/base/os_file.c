/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The calls of base/os_file.h.  Called by src/spill, for backing stores and their journals. */
#include "base/os_file.h"

#include "base/fault.h"
#include "base/os_storage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int close_and_fail(int fd, int error)
{
    (void)close(fd);
    errno = error;
    return -1;
}

int usm__os_open(const char *path, int flags, uint32_t mode)
{
    int fd;

    do
        fd = usm__os_file_open(path, flags, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* A name by which a descriptor can be opened. */
static void name_of_fd(int fd, char name[32])
{
    (void)snprintf(name, 32, "/proc/self/fd/%d", fd);
}

int usm__os_open_nameless(const char *folder, uint32_t mode)
{
    char name[32];
    int  fd = usm__os_open(folder, O_TMPFILE | O_RDWR, mode);

    if (fd < 0) {
        /* Kernels and file systems without O_TMPFILE take the call for an attempt to open a
         * folder. */
        errno = errno == EISDIR || errno == EINVAL || errno == ENOENT ? EOPNOTSUPP : errno;
        return -1;
    }
    name_of_fd(fd, name);
    return access(name, F_OK) == 0 ? fd : close_and_fail(fd, EOPNOTSUPP);
}

static int stat_at(int fd, const char *path, int flags, usm__os_stat *st)
{
    struct statx s;

    if (usm__fault_errno("os.stat", EIO) ||
        statx(fd, path, flags, STATX_BASIC_STATS | STATX_BTIME, &s) != 0)
        return -1;
    *st = (usm__os_stat){
        .inode      = s.stx_ino,
        .size       = s.stx_size,
        .mode       = s.stx_mode & 07777u,
        .uid        = s.stx_uid,
        .gid        = s.stx_gid,
        .links      = s.stx_nlink,
        .is_regular = S_ISREG(s.stx_mode),
    };
    if (s.stx_mask & STATX_BTIME)
        st->birth_ns = (uint64_t)s.stx_btime.tv_sec * 1000000000u + s.stx_btime.tv_nsec;
    return 0;
}

int usm__os_stat_path(const char *path, usm__os_stat *st)
{
    return stat_at(AT_FDCWD, path, 0, st);
}

int usm__os_stat_fd(int fd, usm__os_stat *st)
{
    return stat_at(fd, "", AT_EMPTY_PATH, st);
}

ssize_t usm__os_pread(int fd, void *data, size_t size, uint64_t offset)
{
    size_t got = 0;

    while (got < size) {
        int64_t n = usm__os_file_pread(fd, (char *)data + got, size - got, offset + got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

int usm__os_pwrite(int fd, const void *data, size_t size, uint64_t offset)
{
    size_t done = 0;

    while (done < size) {
        int64_t n = usm__os_file_pwrite(fd, (const char *)data + done, size - done, offset + done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n < 0 ? errno : EIO;
            return -1;
        }
        done += (size_t)n;
    }
    return 0;
}

int usm__os_fallocate(int fd, uint64_t offset, uint64_t size, bool keep_size)
{
    int rc;

    do
        rc = usm__os_file_fallocate(fd, keep_size ? FALLOC_FL_KEEP_SIZE : 0, offset, size);
    while (rc != 0 && errno == EINTR);
    return rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -1;
}

int usm__os_fsync(int fd)
{
    /* Never repeated: after a failure the kernel marks the lost pages as clean. */
    return usm__fault_errno("os.fsync", EIO) ? -1 : fsync(fd);
}

int usm__os_fsync_dir(const char *folder)
{
    int fd, rc;

    if (usm__fault_errno("os.fsync_dir", EIO))
        return -1;
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    rc = fsync(fd);
    if (rc != 0 && (errno == EINVAL || errno == ENOTSUP))
        rc = 0; /* a file system on which folders need no sync */
    if (rc != 0)
        return close_and_fail(fd, errno);
    (void)close(fd);
    return 0;
}

int usm__os_link_fd(int fd, const char *path)
{
    char name[32];

    if (usm__fault_errno("os.link", EIO))
        return -1;
    name_of_fd(fd, name);
    return linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

int usm__os_rename(const char *from, const char *to)
{
    return usm__fault_errno("os.rename", EACCES) ? -1 : rename(from, to);
}

int usm__os_claim(int fd, bool is_exclusive)
{
    /* The last byte that a file can have: no transfer locks it. */
    int rc = usm__os_file_lock(fd, is_exclusive, INT64_MAX - 1, 1);

    if (rc != 0 && errno == EACCES)
        errno = EAGAIN;
    return rc == 0 || errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -1;
}

void usm__os_permit_as(int fd, const usm__os_stat *other)
{
    uint32_t mode = other->mode & 0666u;

    if (fchown(fd, other->uid, (gid_t)-1) != 0)
        mode |= 0600u; /* the file stays ours, so we need access */
    if (fchown(fd, (uid_t)-1, other->gid) != 0)
        mode &= ~(uint32_t)0060; /* our group is not the one that may read it */
    (void)fchmod(fd, mode);
}

bool usm__os_may_write(const char *path)
{
    return access(path, W_OK) == 0;
}
