/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A writer of JSON text: objects, arrays, values, indented by two spaces.
 *
 * It handles commas, escapes and indentation, not the content.  Called by everything behind --json.
 * `key` is NULL for elements of arrays and for the outermost value.  Texts of drivers need not be
 * UTF-8: invalid bytes become U+FFFD, so that the output always parses. */
#ifndef USM_INFO_JSON_H
#define USM_INFO_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json {
    FILE *out;
    int   depth;
    bool  has_element; /* the open object or array needs a comma before the next */
} json;

void json_begin(json *j, FILE *out);
void json_end(json *j); /* the last newline */

void json_object_begin(json *j, const char *key);
void json_object_end(json *j);
void json_array_begin(json *j, const char *key);
void json_array_end(json *j);

void json_text(json *j, const char *key, const char *value); /* NULL: null */
void json_number(json *j, const char *key, uint64_t value);
void json_real(json *j, const char *key, double value); /* no infinity: null */
void json_bool(json *j, const char *key, bool value);
void json_null(json *j, const char *key);

#endif
