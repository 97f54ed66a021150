/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes texts to a file, or to memory that may be too small. */
#include "base/out.h"

#include "base/inline/bits.h"

#include <string.h>

void usm__out_put(usm__out *o, const char *format, ...)
{
    __builtin_va_list args;
    size_t            room = o->used < o->cap ? o->cap - o->used : 0;
    int               n;

    __builtin_va_start(args, format);
    n = o->file ? vfprintf(o->file, format, args)
                : vsnprintf(room ? o->text + o->used : NULL, room, format, args);
    __builtin_va_end(args);
    if (n > 0)
        o->used += (size_t)n;
}

void usm__out_bytes(usm__out *o, const char *bytes, size_t n)
{
    size_t room = o->used < o->cap ? o->cap - o->used : 0, fits = room ? room - 1 : 0;

    if (o->file)
        (void)fwrite(bytes, 1, n, o->file);
    else if (room) {
        fits = usm_min_size(n, fits);
        memcpy(o->text + o->used, bytes, fits);
        o->text[o->used + fits] = '\0';
    }
    o->used += n;
}
