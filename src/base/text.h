/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Small parsers and formatters for settings; none of them allocates. */
#ifndef USM_BASE_TEXT_H
#define USM_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of a text, not 0-terminated. */
typedef struct usm__span {
    const char *at;
    size_t      len;
} usm__span;

usm__span usm__span_of(const char *text);
usm__span usm__span_trimmed(usm__span s); /* without blanks at its ends */
/* Cuts the next field up to `sep` off *rest, without blanks at its ends; false if nothing is left.
 * "a;;b" gives "a", "", "b"; "a;" gives "a"; "" gives nothing. */
bool usm__span_next(usm__span *rest, char sep, usm__span *field);
bool usm__span_is(usm__span s, const char *word); /* ASCII, without regard to case */
bool usm__span_number(usm__span s, uint64_t *n);  /* decimal digits only */
/* "64K", "1.5G", "4096": bytes; suffixes K M G T with or without B or iB; fractions of a byte are
 * dropped. */
bool usm__span_size(usm__span s, uint64_t *bytes);
bool usm__span_bool(usm__span s, bool *value);
/* "250ms", "10us", "1.5s", "40ns"; a number without a unit is refused. */
bool usm__span_duration_ns(usm__span s, uint64_t *ns);
/* Formats a size such as "12.3 MiB"; "64 KiB" only if it is exact.  Returns buf. */
const char *usm__format_bytes(uint64_t bytes, char *buf, size_t size);

#endif
