/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writing exported files: opening, closing, texts in JSON.  Called by the exporters. */
#ifndef USM_PROFILE_OUT_H
#define USM_PROFILE_OUT_H

#include <stdio.h>

/* "-" is standard output.  0 and *out, or an errno value. */
int usm__out_open(const char *path, FILE **out);
/* Checks that everything was written: 0, or an errno value; then no partial file is left at `path`.
 * `status` is that of the work so far. */
int usm__out_close(FILE *out, const char *path, int status);

/* Writes a JSON string with its quotes, at most `max` bytes of `text`.  Bytes that are no UTF-8
 * become U+FFFD; '<' is escaped, so that the text may be inside <script>. */
void usm__out_json_text(FILE *out, const char *text, size_t max);

#endif
