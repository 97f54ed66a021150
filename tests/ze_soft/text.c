/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Text that grows: build logs of modules.  Called by all files of module.h. */
#include "module.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool make_room(soft_text *text, size_t more)
{
    size_t room = text->room ? text->room : 256;
    char  *chars;

    while (room - text->length <= more)
        room *= 2;
    if (room == text->room)
        return true;
    chars = realloc(text->chars, room);
    if (!chars)
        return false;
    text->chars = chars;
    text->room  = room;
    return true;
}

void soft_text_add(soft_text *text, const char *format, ...)
{
    va_list args;
    int     n;

    va_start(args, format);
    n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !make_room(text, (size_t)n)) {
        text->is_short = true;
        return;
    }
    va_start(args, format);
    vsnprintf(text->chars + text->length, text->room - text->length, format, args);
    va_end(args);
    text->length += (size_t)n;
}

void soft_text_free(soft_text *text)
{
    free(text->chars);
    *text = (soft_text){0};
}
