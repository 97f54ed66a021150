/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes text to a file, or to the caller's memory: there everything is counted, and as much as
 * fits is written, as snprintf() does.  Nothing is allocated, so that this works without memory.
 * base/json.h writes JSON through it.  Called by the functions usm_..._describe(). */
#ifndef USM_BASE_OUT_H
#define USM_BASE_OUT_H

#include "base/text.h"

#include <usm/types.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct usm__out {
    char  *text;
    size_t cap, used;
    FILE  *file; /* NULL: to `text` */
} usm__out;

void usm__out_put(usm__out *o, const char *format, ...) USM_PRINTF(2, 3);
void usm__out_bytes(usm__out *o, const char *bytes, size_t n);

/* Room for a size such as "1023.9 MiB". */
typedef char usm__size_text[16];

#define USM__SIZE_TEXT(bytes)                                                                      \
    usm__format_bytes((bytes), (usm__size_text){0}, sizeof(usm__size_text))

#endif
