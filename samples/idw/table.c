/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads tables of numbers separated by commas (table.h); for points.c and borders.c. */
#include "table.h"

#include <stdlib.h>
#include <string.h>

/* The values of one line; false when it holds anything but numbers and commas. */
static bool parse_line(const char *line, const char *end, double *values, size_t *count)
{
    *count = 0;
    while (line < end) {
        char *after;

        if (*count == IDW_TABLE_COLUMNS)
            return false;
        values[(*count)++] = strtod(line, &after);
        if (after == line || after > end)
            return false;
        if (after < end && *after++ != ',')
            return false;
        line = after;
    }
    return true;
}

static const char *line_end(const char *line)
{
    const char *end = strchr(line, '\n');

    return end ? end : line + strlen(line);
}

/* The first line of numbers: behind the comments and the names of the columns. */
static const char *skip_header(const char *text, size_t *line)
{
    bool is_comment = true;

    for (*line = 1; *text && is_comment; (*line)++) {
        const char *end = line_end(text);

        is_comment = *text == '#';
        text       = *end ? end + 1 : end;
    }
    return text;
}

bool idw_table_read(const char *text, idw_table_row_fn row, void *user, size_t *line)
{
    for (text = skip_header(text, line); *text; (*line)++) {
        const char *end = line_end(text);
        double      values[IDW_TABLE_COLUMNS];
        size_t      count;

        if (!parse_line(text, end, values, &count) || !row(values, count, user))
            return false;
        text = *end ? end + 1 : end;
    }
    return true;
}
