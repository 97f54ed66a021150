/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The calls of base/os_storage.h, and limits of the process.  Called only through usm__os_api, by
 * transports. */
#include "base/os_storage.h"

#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

int usm__os_file_open(const char *path, int flags, unsigned mode)
{
    return usm__fault_errno("os.open", EMFILE) ? -1
                                               : open(path, flags | O_CLOEXEC | O_NOCTTY, mode);
}

int usm__os_file_unlink(const char *path)
{
    return usm__fault_errno("os.unlink", EIO) ? -1 : unlink(path);
}

static int size_of_device(int fd, uint64_t *size)
{
    return ioctl(fd, BLKGETSIZE64, size);
}

int usm__os_file_inspect(int fd, usm_os_file *file)
{
    struct stat   st;
    struct statfs fs;
    usm_os_file   f = {0};

    if (usm__fault_errno("os.inspect", EIO) || fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0)
        return -1;
    f.is_regular = S_ISREG(st.st_mode);
    f.is_device  = S_ISBLK(st.st_mode);
    f.size       = (uint64_t)st.st_size;
    f.filesystem = (uint64_t)fs.f_type;
    f.available  = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    f.total      = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
    if (f.is_device && size_of_device(fd, &f.size) != 0)
        return -1;
#ifdef STATX_DIOALIGN
    struct statx x;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) == 0 && (x.stx_mask & STATX_DIOALIGN))
        f.direct_align = x.stx_dio_offset_align;
#endif
    *file = f;
    return 0;
}

/* The part of `size` to transfer if the call is to be short: multiples of 4 KiB stay multiples. */
static size_t cut(const char *name, size_t size)
{
    if (size <= 4096 || !usm__fault_hit(name, NULL))
        return size;
    return size >= 8192 ? size / 2 & ~(size_t)4095 : size / 2;
}

int64_t usm__os_file_pread(int fd, void *data, size_t size, uint64_t at)
{
    if (usm__fault_errno("os.pread", EIO))
        return -1;
    return pread(fd, data, cut("os.pread.short", size), (off_t)at);
}

int64_t usm__os_file_pwrite(int fd, const void *data, size_t size, uint64_t at)
{
    if (usm__fault_errno("os.pwrite", EIO))
        return -1;
    return pwrite(fd, data, cut("os.pwrite.short", size), (off_t)at);
}

int usm__os_file_fallocate(int fd, int mode, uint64_t at, uint64_t size)
{
    return usm__fault_errno("os.fallocate", ENOSPC) ? -1
                                                    : fallocate(fd, mode, (off_t)at, (off_t)size);
}

int usm__os_file_truncate(int fd, uint64_t size)
{
    return usm__fault_errno("os.ftruncate", ENOSPC) ? -1 : ftruncate(fd, (off_t)size);
}

int usm__os_file_sync(int fd)
{
    return usm__fault_errno("os.fsync", EIO) ? -1 : fdatasync(fd);
}

int usm__os_file_lock(int fd, bool is_exclusive, uint64_t at, uint64_t size)
{
    struct flock range = {
        .l_type   = is_exclusive ? F_WRLCK : F_RDLCK,
        .l_whence = SEEK_SET,
        .l_start  = (off_t)at,
        .l_len    = (off_t)size,
    };

    return usm__fault_errno("os.lock", EAGAIN) ? -1 : fcntl(fd, F_OFD_SETLK, &range);
}

void usm__os_file_drop_cache(int fd, uint64_t at, uint64_t size)
{
    /* Does not wait: a wait would consume the error of an earlier write, which a later sync must
     * report. */
    (void)sync_file_range(fd, (off_t)at, (off_t)size, SYNC_FILE_RANGE_WRITE);
    (void)posix_fadvise(fd, (off_t)at, (off_t)size, POSIX_FADV_DONTNEED);
}

int usm__os_event_fd(void)
{
    return usm__fault_errno("os.event_fd", EMFILE) ? -1 : eventfd(0, EFD_CLOEXEC);
}

/* With this capability the limit of locked memory does not apply. */
static bool may_lock_all(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    struct __user_cap_data_struct   data[_LINUX_CAPABILITY_U32S_3] = {{0}};

    return syscall(SYS_capget, &head, data) == 0 && (data[0].effective >> CAP_IPC_LOCK & 1u);
}

uint64_t usm__os_limit(usm_os_limit which)
{
    const int     resource = which == USM_OS_LIMIT_FILE_SIZE ? RLIMIT_FSIZE : RLIMIT_MEMLOCK;
    struct rlimit limit;

    if (which == USM_OS_LIMIT_LOCKED_MEMORY && may_lock_all())
        return UINT64_MAX;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur;
}
