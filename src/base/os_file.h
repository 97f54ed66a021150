/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Files and their names, for backing stores and journals.  Above the single calls of
 * base/os_storage.h, these functions continue after an interruption or a partial transfer; others
 * are of no use to transports.  Fault points in addition to those there: "os.stat", "os.fsync_dir",
 * "os.link", "os.rename".  They return 0, or -1 with errno, unless stated otherwise.
 *
 * A test replaces these functions (by the linker's --wrap) to simulate a machine that loses
 * power. */
#ifndef USM_BASE_OS_FILE_H
#define USM_BASE_OS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct usm__os_stat {
    uint64_t inode;
    uint64_t birth_ns; /* since 1970; 0: the file system does not report it */
    uint64_t size;
    uint32_t mode; /* permission bits                                                        */
    uint32_t uid, gid;
    uint32_t links; /* number of names */
    bool     is_regular;
} usm__os_stat;

/* Opens with close-on-exec; returns the descriptor, or -1.  flags are those of open(). */
int usm__os_open(const char *path, int flags, uint32_t mode);
/* Makes a file without a name in the folder; -1 with EOPNOTSUPP if it could not get a name
 * afterwards. */
int usm__os_open_nameless(const char *folder, uint32_t mode);
/* Information about the file with the name, or of the descriptor. */
int usm__os_stat_path(const char *path, usm__os_stat *st);
int usm__os_stat_fd(int fd, usm__os_stat *st);
/* Returns the number of bytes read, which ends at the end of the file; -1. */
ssize_t usm__os_pread(int fd, void *data, size_t size, uint64_t offset);
int     usm__os_pwrite(int fd, const void *data, size_t size, uint64_t offset);
/* Guarantees room for the bytes, and extends the file if necessary (not with keep_size).  Also 0 if
 * the file system cannot guarantee it. */
int usm__os_fallocate(int fd, uint64_t offset, uint64_t size, bool keep_size);
/* Syncs data and size. */
int usm__os_fsync(int fd);
/* Syncs the names in the folder. */
int usm__os_fsync_dir(const char *folder);
/* Gives a nameless file its name; EEXIST. */
int usm__os_link_fd(int fd, const char *path);
int usm__os_rename(const char *from, const char *to);
/* Locks the file for as long as the descriptor is open, against other callers of this function;
 * shared or exclusive.  Does not affect its bytes.  -1 with EAGAIN: another process has the lock.
 * Also 0 if the file system has no locks. */
int usm__os_claim(int fd, bool is_exclusive);
/* Gives the file the permissions and the group of another one, as far as the system lets us. */
void usm__os_permit_as(int fd, const usm__os_stat *other);
bool usm__os_may_write(const char *path);

#endif
