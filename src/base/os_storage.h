/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The calls on files that transports make, as in usm_os_api.  Each is one system call whose result
 * is returned unchanged, because transports repeat calls themselves.  (base/os_file.h has functions
 * that repeat.)
 *
 * Fault points: "os.open", "os.unlink", "os.inspect", "os.pread", "os.pwrite", "os.fallocate",
 * "os.ftruncate", "os.fsync", "os.lock", "os.event_fd".  The status of a rule chooses the error:
 * USM_E_SPILL_FULL is ENOSPC, USM_E_BUSY EAGAIN, USM_E_AGAIN EINTR, USM_E_NOT_SUPPORTED EOPNOTSUPP;
 * "os.pread.short" and "os.pwrite.short" make a call transfer half of the requested bytes. */
#ifndef USM_BASE_OS_STORAGE_H
#define USM_BASE_OS_STORAGE_H

#include <usm/module.h>

int      usm__os_file_open(const char *path, int flags, unsigned mode);
int      usm__os_file_unlink(const char *path);
int      usm__os_file_inspect(int fd, usm_os_file *file);
int64_t  usm__os_file_pread(int fd, void *data, size_t size, uint64_t at);
int64_t  usm__os_file_pwrite(int fd, const void *data, size_t size, uint64_t at);
int      usm__os_file_fallocate(int fd, int mode, uint64_t at, uint64_t size);
int      usm__os_file_truncate(int fd, uint64_t size);
int      usm__os_file_sync(int fd);
int      usm__os_file_lock(int fd, bool is_exclusive, uint64_t at, uint64_t size);
void     usm__os_file_drop_cache(int fd, uint64_t at, uint64_t size);
int      usm__os_event_fd(void);
uint64_t usm__os_limit(usm_os_limit which);

#endif
