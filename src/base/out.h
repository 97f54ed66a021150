/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes text and JSON to the caller's memory: everything is counted, and as much as fits is
 * written, as snprintf() does.  Nothing is allocated, so that this works without memory.  Numbers
 * are integers, which are the same in every locale.  Called by usm_pool_describe(),
 * usm_spill_describe(). */
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
/* Writes a JSON string; bytes that are not valid UTF-8 become U+FFFD. */
void usm__out_string(usm__out *o, const char *text);
/* Writes ,"name":value */
void usm__out_number(usm__out *o, const char *name, uint64_t value);

/* Room for a size such as "1023.9 MiB". */
typedef char usm__size_text[16];

#define USM__SIZE_TEXT(bytes)                                                                      \
    usm__format_bytes((bytes), (usm__size_text){0}, sizeof(usm__size_text))

#endif
