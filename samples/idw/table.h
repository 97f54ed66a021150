/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The two tables of data/, linked into the program by embed.cmake, and the reader for both. */
#ifndef IDW_TABLE_H
#define IDW_TABLE_H

#include <stdbool.h>
#include <stddef.h>

extern const char   idw_airports_us[]; /* data/airports_us.csv, 0-terminated */
extern const size_t idw_airports_us_size;
extern const char   idw_states_us[]; /* data/states_us.csv, 0-terminated */
extern const size_t idw_states_us_size;

/* Reads lines of numbers: skips the comments and the line of names at the top, then calls
 * row(values, count, user) for every line, with count 0 for an empty one.  False when a line does
 * not parse or row() says false; *line is then its number. */
#define IDW_TABLE_COLUMNS 4
typedef bool (*idw_table_row_fn)(const double *values, size_t count, void *user);
bool idw_table_read(const char *text, idw_table_row_fn row, void *user, size_t *line);

#endif
