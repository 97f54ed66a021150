/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Readers of monitor pages: which processes have one, and a consistent copy of each.  Called by tools.
 *
 * Pages are read, not mapped: a file that shrinks meanwhile ends nobody.  Nothing in them is trusted. */
#ifndef USM_MONITOR_READER_H
#define USM_MONITOR_READER_H

#include "monitor/folder.h"
#include "monitor/page.h"

#define USM__MONITOR_WHY 160

/* Makes `page`, of which `size` bytes were read, one that can be used without further checks: texts
 * end and are of printable UTF-8, counts are within their arrays.  False, with a sentence in `why`
 * (USM__MONITOR_WHY bytes): it is no page of this version. */
bool usm__monitor_check(usm__monitor_page *page, size_t size, char *why);

typedef struct usm__monitor_reader {
    char               folder[USM__MONITOR_PATH - 300];
    _Atomic(uint64_t) *word;
    uint64_t           pid_space; /* the namespace of process ids */
} usm__monitor_reader;

/* False, with errno. */
bool usm__monitor_open(usm__monitor_reader *r);
/* The processes sample for some seconds from now on, those that make a call of libusm. */
void usm__monitor_announce(const usm__monitor_reader *r);

typedef enum usm__monitor_found {
    USM__MONITOR_LIVES,
    USM__MONITOR_GONE,   /* its process has ended: the page was removed */
    USM__MONITOR_REFUSED /* not ours, or no page; `why` says it         */
} usm__monitor_found;

/* Copies the page of `pid`. */
usm__monitor_found usm__monitor_read(const usm__monitor_reader *r, uint32_t pid,
                                     usm__monitor_page *page, char *why);
/* Lists the processes that have a page, in order, at most `cap`; returns how many there are. */
size_t usm__monitor_list(const usm__monitor_reader *r, uint32_t *pids, size_t cap);
/* The same for files of another suffix, which processes have beside their pages. */
size_t usm__monitor_list_of(const usm__monitor_reader *r, const char *suffix, uint32_t *pids,
                            size_t cap);

#endif
