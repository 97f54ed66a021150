/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Text in aligned columns, for people.
 *
 * Rows are filled cell by cell.  Printing makes each column as wide as its widest cell (in
 * characters, not bytes) and wraps the last cell of a row at 100 columns.  Also here: the tool's
 * own allocations, which end the tool if memory is exhausted.  Called by everything that prints. */
#ifndef USM_INFO_TABLE_H
#define USM_INFO_TABLE_H

#include <usm/export.h>

#include <stdio.h>

typedef struct table table;

/* Rows start `indent` columns in; columns are `gap` apart. */
table *table_new(int indent, int gap);
/* Appends a cell to the current row. */
void table_cell(table *t, const char *format, ...) USM_PRINTF(2, 3);
/* Ends the current row. */
void table_row(table *t);
/* Adds a line after the last row, wrapped, that does not affect the columns. */
void table_note(table *t, int indent, const char *format, ...) USM_PRINTF(3, 4);
/* Adds lines after the last row, unchanged: a compiler's log points at columns. */
void table_verbatim(table *t, int indent, const char *text);
/* Prints and frees the table. */
void table_print(table *t, FILE *out);

/* Returns zeroed memory; exits if there is none. */
void *tool_alloc(size_t size);
void *tool_realloc(void *p, size_t size);
char *tool_printf(const char *format, ...) USM_PRINTF(1, 2);

#endif
