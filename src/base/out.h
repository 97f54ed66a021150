/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Text for the caller's memory, as text and as JSON: all is counted, and what fits is written, as
 * snprintf() does.  Nothing is allocated, so that it works when there is no memory; numbers are
 * integers, which no locale spells otherwise.  Called by usm_pool_describe(), usm_spill_describe().
 */
#ifndef USM_BASE_OUT_H
#define USM_BASE_OUT_H

#include "base/text.h"

#include <usm/types.h>

#include <stddef.h>
#include <stdint.h>

typedef struct usm__out {
    char  *text;
    size_t cap, used;
} usm__out;

void usm__out_put(usm__out *o, const char *format, ...) USM_PRINTF(2, 3);
/* A JSON string; what is no UTF-8 becomes U+FFFD. */
void usm__out_string(usm__out *o, const char *text);
/* ,"name":value */
void usm__out_number(usm__out *o, const char *name, uint64_t value);

/* The room of one size: "1023.9 MiB". */
typedef char usm__size_text[16];

#define USM__SIZE_TEXT(bytes)                                                                      \
    usm__format_bytes((bytes), (usm__size_text){0}, sizeof(usm__size_text))

#endif
