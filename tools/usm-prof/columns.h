/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Columns of numbers: the first column is left-aligned, the others right-aligned, each as wide as
 * its widest cell.  Called by report.c. */
#ifndef USM_PROF_COLUMNS_H
#define USM_PROF_COLUMNS_H

#include <usm/export.h>

#include <stddef.h>
#include <stdint.h>

typedef struct columns columns;

/* Never NULL: exits with 3 if memory is exhausted, as the next two do. */
columns *columns_new(size_t n);
/* Adds the next cell; a row is full after n of them. */
void columns_add(columns *c, const char *format, ...) USM_PRINTF(2, 3);
/* Adds a number of bytes, of nanoseconds, or a share of a whole in percent ("-" if the whole is
 * 0). */
void columns_bytes(columns *c, uint64_t bytes);
void columns_time(columns *c, double ns);
void columns_share(columns *c, uint64_t part, uint64_t whole);
/* Prints to stdout and frees it. */
void columns_print(columns *c);

/* "1.23 ms"; returns buf. */
const char *time_text(double ns, char *buf, size_t size);

#endif
