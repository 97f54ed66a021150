/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See export_file.h. */
#include "profile/export_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int usm__export_open(const char *path, FILE **out)
{
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");

    if (!file)
        return errno;
    *out = file;
    return 0;
}

int usm__export_close(FILE *out, const char *path, int status)
{
    errno = 0;
    if (fflush(out) != 0 || ferror(out))
        status = status ? status : errno ? errno : EIO;
    if (out == stdout)
        return status;
    errno = 0;
    if (fclose(out) != 0)
        status = status ? status : errno ? errno : EIO;
    if (status)
        (void)unlink(path);
    return status;
}
