/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Files and their names, for homes and journals: above the single calls of base/os_storage.h, what
 * is repeated after an interruption or a part; and calls that transports have no use for.  Fault
 * points besides those there: "os.stat", "os.fsync_dir", "os.link", "os.rename".  0, or -1 with
 * errno, unless said otherwise.
 *
 * A test puts itself between these files (the linker's --wrap) to play a machine that loses power.
 */
#ifndef USM_BASE_OS_FILE_H
#define USM_BASE_OS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct usm__os_stat {
    uint64_t inode;
    uint64_t birth_ns; /* since 1970; 0: the file system does not say                        */
    uint64_t size;
    uint32_t mode; /* permission bits                                                        */
    uint32_t uid, gid;
    uint32_t links; /* names                                                                 */
    bool     is_regular;
} usm__os_stat;

/* Close-on-exec; the descriptor, or -1.  flags are open()'s. */
int usm__os_open(const char *path, int flags, uint32_t mode);
/* A file without a name in the folder; -1 with EOPNOTSUPP when it could not be named afterwards. */
int usm__os_open_nameless(const char *folder, uint32_t mode);
/* Of the file behind the name, or of the descriptor. */
int usm__os_stat_path(const char *path, usm__os_stat *st);
int usm__os_stat_fd(int fd, usm__os_stat *st);
/* How many bytes were there, up to the file's end; -1. */
ssize_t usm__os_pread(int fd, void *data, size_t size, uint64_t offset);
int     usm__os_pwrite(int fd, const void *data, size_t size, uint64_t offset);
/* Room for the bytes is certain, and the file is that long if need be (keep_size: not).  0 too
 * where the file system cannot promise it. */
int usm__os_fallocate(int fd, uint64_t offset, uint64_t size, bool keep_size);
/* Data and size. */
int usm__os_fsync(int fd);
/* The names in the folder. */
int usm__os_fsync_dir(const char *folder);
/* Gives a nameless file its name; EEXIST. */
int usm__os_link_fd(int fd, const char *path);
int usm__os_rename(const char *from, const char *to);
/* For as long as the descriptor is open, against others who ask the same of the same file; shared
 * or not.  Touches no byte of it.  -1 with EAGAIN: another has it.  0 too where there are no locks.
 */
int usm__os_claim(int fd, bool is_exclusive);
/* The file gets permissions and group of another, as far as we may give them. */
void usm__os_permit_as(int fd, const usm__os_stat *other);
bool usm__os_may_write(const char *path);

#endif
