/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory for keys: left out of core dumps, locked as far as the user's limit goes, overwritten when
 * it is given back.  Fault points: "os.mmap", "os.open".  Called by base/settings.c and, through
 * usm_os_api, by codecs. */
#ifndef USM_BASE_OS_SECRET_H
#define USM_BASE_OS_SECRET_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed pages of their own; NULL with errno, also when they could not be kept out of dumps. */
void *usm__os_secret_map(size_t size);
/* NULL is fine. */
void usm__os_secret_unmap(void *p, size_t size);
/* The pages that [p, p + size) touches, somebody else's memory, are kept out of dumps and locked
 * from now on: others' keys may come to lie there.  0 or -1 with errno. */
int  usm__os_secret_hide(void *p, size_t size);
void usm__os_secret_wipe(void *p, size_t size);
/* What p points to, if it can be read at all: up to `size` bytes; how many.  For looking where a
 * library keeps a key. */
size_t usm__os_secret_peek(const void *p, void *copy, size_t size);
/* The beginning of a file that belongs to us (or root) and that nobody else may read or write: how
 * many bytes; -1 with errno, EPERM: others may.  Nothing of it stays elsewhere. */
int64_t usm__os_secret_read(const char *path, void *data, size_t cap);

#endif
