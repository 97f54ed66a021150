/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which bytes of a buffer are valid in one location: a set of bytes as sorted intervals that
 * neither overlap nor touch.
 *
 *     at[i].start < at[i].end < at[i + 1].start
 *
 * A pure data structure: no lock, no knowledge of locations.  Adding or removing a range makes at
 * most one more interval, so it cannot fail if room for one was reserved before.  That is how
 * locations.c changes several sets at once, or none.  Called by locations.c, extent*.c. */
#ifndef USM_BUFFER_VALID_H
#define USM_BUFFER_VALID_H

#include <stdbool.h>
#include <stddef.h>

typedef struct usm__interval {
    size_t start, end;
} usm__interval;

typedef struct usm__valid {
    size_t         n, cap;
    usm__interval *at;
    usm__interval  first[2]; /* most sets need no memory of their own                       */
} usm__valid;

void usm__valid_init(usm__valid *v);
void usm__valid_fini(usm__valid *v);
/* Reserves room for n more intervals; false: no memory. */
bool usm__valid_reserve(usm__valid *v, size_t n);

/* pre: start < end, there is room for one more interval. */
void usm__valid_add(usm__valid *v, size_t start, size_t end);
void usm__valid_remove(usm__valid *v, size_t start, size_t end);

/* The first interval that reaches beyond `from`, cut to [from, to); false: there is none. */
bool usm__valid_next(const usm__valid *v, size_t from, size_t to, usm__interval *found);
/* The same for bytes that are not in the set. */
bool usm__valid_next_gap(const usm__valid *v, size_t from, size_t to, usm__interval *found);
bool usm__valid_has_all(const usm__valid *v, size_t start, size_t end);
bool usm__valid_has_any(const usm__valid *v, size_t start, size_t end);
/* Number of bytes in the set. */
size_t usm__valid_size(const usm__valid *v);

#endif
