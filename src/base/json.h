/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The writer of JSON: objects, arrays and values, to memory or to a file (base/out.h).
 *
 * It sees to commas, escapes, lines and nesting.  `key` is NULL for elements of arrays and for the
 * outermost value.  Texts of drivers need not be UTF-8: each byte that is part of no valid
 * character becomes U+FFFD, so that the output always parses.  Numbers are the same in every
 * locale, but for those of usm__json_real(), which only tools call.  Nothing is allocated. */
#ifndef USM_BASE_JSON_H
#define USM_BASE_JSON_H

#include "base/out.h"

#include <stdbool.h>

typedef enum usm__json_form {
    USM__JSON_COMPACT,  /* without spaces and lines */
    USM__JSON_INDENTED, /* one value a line, by two spaces for each level; for people too */
    USM__JSON_PAGE,     /* compact; '<' is escaped, so that the text may be inside <script> */
} usm__json_form;

typedef struct usm__json {
    usm__out       out;
    usm__json_form form;
    int            depth;
    bool           has_element; /* the open object or array needs a comma before the next */
    bool           has_line;    /* the next element begins a line */
} usm__json;

void usm__json_object_begin(usm__json *j, const char *key);
void usm__json_object_end(usm__json *j);
void usm__json_array_begin(usm__json *j, const char *key);
void usm__json_array_end(usm__json *j);
/* In compact text: begins a line before the next element or the end of the scope. */
void usm__json_line(usm__json *j);

void usm__json_text(usm__json *j, const char *key, const char *value); /* NULL: null */
/* At most `max` bytes of `value`. */
void usm__json_text_max(usm__json *j, const char *key, const char *value, size_t max);
void usm__json_number(usm__json *j, const char *key, uint64_t value);
void usm__json_signed(usm__json *j, const char *key, int64_t value);
/* `value` in parts of 10^-digits, all of which are written. */
void usm__json_parts(usm__json *j, const char *key, uint64_t value, unsigned digits);
void usm__json_address(usm__json *j, const char *key, uint64_t value); /* "0x..." */
/* As %.<digits>g writes it; null if it is not finite. */
void usm__json_real(usm__json *j, const char *key, double value, int digits);
void usm__json_bool(usm__json *j, const char *key, bool value);
void usm__json_null(usm__json *j, const char *key);

/* The length of the UTF-8 character at `text`, which has `left` bytes, at least one; 0 if it is
 * none. */
size_t usm__json_utf8_length(const char *text, size_t left);

#endif
