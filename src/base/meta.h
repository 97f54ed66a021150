/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The metadata arena: fixed-size objects that are never unmapped.
 *
 * A freed slot stays readable.  It is reused only for the same type, and only after
 * `USM__META_QUARANTINE` others.  A stale handle can therefore be read safely, and is recognised by
 * its magic word.  A slot is zeroed when it is allocated, except its first `keep` bytes.
 * Thread-safe. */
#ifndef USM_BASE_META_H
#define USM_BASE_META_H

#include <base/mutex.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define USM__META_QUARANTINE 64

typedef struct usm__meta_type {
    usm__mutex lock;
    size_t     size; /* of one object; slots are rounded up to 64 bytes             */
    size_t     keep; /* bytes at the start that survive free and reuse (magic word) */
    void      *free_head, *free_tail; /* oldest first */
    size_t     free_count;
    char      *chunk, *chunk_end; /* slots that were never used */
    size_t     live;

    struct usm__meta_type *next;   /* all types in use: guarded by the list's lock in meta.c */
    atomic_bool            listed; /* set once, before the type's lock is first taken        */
} usm__meta_type;

#define USM__META_TYPE(type, keep_bytes, name)                                                     \
    {                                                                                              \
        USM__MUTEX_INIT_BRIEF(USM__RANK_META, name), sizeof(type), (keep_bytes), 0, 0, 0, 0, 0, 0, \
            0, 0                                                                                   \
    }

void  *usm__meta_alloc(usm__meta_type *type); /* NULL if memory is exhausted */
void   usm__meta_free(usm__meta_type *type, void *p);
size_t usm__meta_slot_size(const usm__meta_type *type); /* bytes that an object takes */

#endif
