/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See out.h. */
#include "profile/out.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int usm__out_open(const char *path, FILE **out)
{
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");

    if (!file)
        return errno;
    *out = file;
    return 0;
}

int usm__out_close(FILE *out, const char *path, int status)
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

/* Number of bytes of the UTF-8 sequence at p, 0 if it is invalid (Unicode, table 3-7). */
static size_t utf8_length(const unsigned char *p)
{
    size_t        n  = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    unsigned char lo = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char hi = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;

    if (p[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if (p[i] < lo || p[i] > hi)
            return 0;
        lo = 0x80;
        hi = 0xbf;
    }
    return n;
}

static void write_ascii(FILE *out, unsigned char c)
{
    if (c == '"' || c == '\\')
        fprintf(out, "\\%c", c);
    else if (c < 0x20 || c == 0x7f || c == '<')
        fprintf(out, "\\u%04x", c);
    else
        fputc(c, out);
}

void usm__out_json_text(FILE *out, const char *text, size_t max)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + strnlen(text, max);

    fputc('"', out);
    while (p < end) {
        size_t n = utf8_length(p);

        if (n == 0 || n > (size_t)(end - p)) {
            fputs("\\ufffd", out);
            n = 1;
        } else if (n == 1) {
            write_ascii(out, *p);
        } else {
            fwrite(p, 1, n, out);
        }
        p += n;
    }
    fputc('"', out);
}
