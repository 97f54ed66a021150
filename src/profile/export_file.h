/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opening and closing exported files.  Called by the exporters. */
#ifndef USM_PROFILE_EXPORT_FILE_H
#define USM_PROFILE_EXPORT_FILE_H

#include <stdio.h>

/* "-" is standard output.  0 and *out, or an errno value. */
int usm__export_open(const char *path, FILE **out);
/* Checks that everything was written: 0, or an errno value; then no partial file is left at `path`.
 * `status` is that of the work so far. */
int usm__export_close(FILE *out, const char *path, int status);

#endif
