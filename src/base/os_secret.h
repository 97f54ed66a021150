/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory for keys: left out of core dumps, locked as far as the user's limit permits, overwritten
 * when it is freed.  Fault points: "os.mmap", "os.open".  Called by base/settings.c and, through
 * usm_os_api, by codecs. */
#ifndef USM_BASE_OS_SECRET_H
#define USM_BASE_OS_SECRET_H

#include <stddef.h>
#include <stdint.h>

/* Maps zeroed pages of their own; NULL with errno, also if they cannot be kept out of dumps. */
void *usm__os_secret_map(size_t size);
/* NULL is fine. */
void usm__os_secret_unmap(void *p, size_t size);
/* Keeps the pages of [p, p + size), memory of another owner, out of dumps from now on, and locks
 * them: keys of others may be placed there.  Returns 0, or -1 with errno. */
int  usm__os_secret_hide(void *p, size_t size);
void usm__os_secret_wipe(void *p, size_t size);
/* Copies up to `size` bytes from p, if they can be read; returns how many.  For finding where a
 * library stores a key. */
size_t usm__os_secret_peek(const void *p, void *copy, size_t size);
/* Reads the beginning of a file that belongs to us (or root) and that no other user may read or
 * write.  Returns the number of bytes; -1 with errno, EPERM: others have access.  No copy of it
 * stays elsewhere. */
int64_t usm__os_secret_read(const char *path, void *data, size_t cap);

#endif
