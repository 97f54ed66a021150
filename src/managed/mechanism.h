/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* userfaultfd: the kernel tells of accesses to absent or write-protected pages, and places pages.
 *
 *     mechanism   a block comes into the range                   ... and leaves it
 *     move        its pages are moved (UFFDIO_MOVE, Linux 6.8)   moved back
 *     copy        its bytes are copied (UFFDIO_COPY, 5.7), and   its pages are dropped: its content
 *                 the frame's memory is dropped                  is stored, or not needed
 *
 * Functions return 0 or errno.  Thread-safe for different blocks. */
#ifndef USM_MANAGED_MECHANISM_H
#define USM_MANAGED_MECHANISM_H

#include <usm/status.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct usm__mechanism {
    int  fd; /* -1: none                                                                     */
    bool moves;
    bool can_poison;
    bool is_user_only; /* system calls into absent pages fail with EFAULT                      */
    bool is_file;      /* the arena is a memory file                                           */
    bool frees_tables; /* a huge page stays one where a page table was (page_table.c)          */
} usm__mechanism;

#define USM__HUGE_PAGE ((size_t)2 << 20) /* moves in one step, whatever it holds */

/* Opens it; the arena's frames will be moved from and to. */
usm_status usm__mechanism_open(usm__mechanism *m, char *arena, size_t size, bool can_move);
/* What frees_tables is to be. */
bool usm__mechanism_tries_tables(const usm__mechanism *m);
/* Frees empty page tables of whole huge pages.  Where any page is, nothing is done: it must be found in
 * the way, and not be lost. */
void usm__mechanism_free_tables(char *at, size_t size);
/* Accesses to absent and protected pages of [p, p + size) are told from now on. */
int usm__mechanism_watch(const usm__mechanism *m, void *p, size_t size);
/* The frame's content comes to `at`, where no page is.  On failure it is still in the frame. */
int usm__mechanism_place(const usm__mechanism *m, void *frame, char *at, size_t size,
                         bool is_protected);
/* ... and leaves it: the frame has its pages again, or the system has. */
int usm__mechanism_take(const usm__mechanism *m, char *at, void *frame, size_t size);
int usm__mechanism_protect(const usm__mechanism *m, char *at, size_t size, bool is_protected);
/* Threads that wait for these pages look again. */
void usm__mechanism_wake(const usm__mechanism *m, char *at, size_t size);
/* Accesses to absent pages there fail with a signal from now on.  EEXIST: the first one is not
 * absent; pre: can_poison. */
int usm__mechanism_poison(const usm__mechanism *m, char *at, size_t size);
/* The same of pages that are all absent, on every kernel. */
int usm__mechanism_forbid(const usm__mechanism *m, char *at, size_t size);

#endif
