/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See pickle.h.  Each operation is a letter and its operand, little-endian; the names beside them
 * are those of Python's pickletools. */
#include "profile/pickle.h"

#include "base/json.h"

#include <string.h>

#define BATCH 1000u

static void put(usm__pickle *p, char operation, uint64_t operand, unsigned bytes)
{
    (void)fputc(operation, p->out);
    for (unsigned i = 0; i < bytes; i++)
        (void)fputc((int)(operand >> (8 * i) & 0xff), p->out);
}

void usm__pickle_begin(usm__pickle *p, FILE *out)
{
    *p = (usm__pickle){.out = out};
    put(p, '\x80', 2, 1); /* PROTO */
}

void usm__pickle_end(usm__pickle *p)
{
    put(p, '.', 0, 0); /* STOP */
}

void usm__pickle_dict_begin(usm__pickle *p)
{
    put(p, '}', 0, 0); /* EMPTY_DICT */
    put(p, '(', 0, 0); /* MARK */
}

void usm__pickle_dict_end(usm__pickle *p)
{
    put(p, 'u', 0, 0); /* SETITEMS */
}

void usm__pickle_list_begin(usm__pickle *p)
{
    put(p, ']', 0, 0); /* EMPTY_LIST */
    put(p, '(', 0, 0); /* MARK */
}

void usm__pickle_list_next(usm__pickle *p, size_t i)
{
    if (i == 0 || i % BATCH != 0)
        return;
    usm__pickle_list_end(p);
    put(p, '(', 0, 0); /* MARK */
}

void usm__pickle_list_end(usm__pickle *p)
{
    put(p, 'e', 0, 0); /* APPENDS */
}

void usm__pickle_word(usm__pickle *p, const char *constant)
{
    uint32_t i = 0;

    while (i < p->nkeys && strcmp(p->keys[i], constant) != 0)
        i++;
    if (i < p->nkeys) {
        put(p, 'h', i, 1); /* BINGET */
        return;
    }
    usm__pickle_text(p, constant);
    if (i < USM__PICKLE_KEYS) {
        p->keys[p->nkeys++] = constant;
        put(p, 'q', i, 1); /* BINPUT */
    }
}

void usm__pickle_text(usm__pickle *p, const char *text)
{
    static const char unknown[] = "\xef\xbf\xbd"; /* U+FFFD */
    size_t            size = strlen(text), total = 0;

    for (int pass = 0; pass < 2; pass++) { /* the length comes first */
        for (size_t i = 0; i < size;) {
            size_t      n     = usm__json_utf8_length(&text[i], size - i);
            const char *bytes = n ? &text[i] : unknown;

            if (pass == 0)
                total += n ? n : 3;
            else
                (void)fwrite(bytes, 1, n ? n : 3, p->out);
            i += n ? n : 1;
        }
        if (pass == 0)
            put(p, 'X', total, 4); /* BINUNICODE */
    }
}

void usm__pickle_number(usm__pickle *p, uint64_t value)
{
    if (value <= UINT8_MAX)
        put(p, 'K', value, 1); /* BININT1 */
    else if (value <= UINT16_MAX)
        put(p, 'M', value, 2); /* BININT2 */
    else if (value <= INT32_MAX)
        put(p, 'J', value, 4); /* BININT */
    else {
        unsigned bytes = value > INT64_MAX ? 9 : 8;

        put(p, '\x8a', bytes, 1); /* LONG1, with a sign */
        for (unsigned i = 0; i < bytes; i++)
            (void)fputc(i < 8 ? (int)(value >> (8 * i) & 0xff) : 0, p->out);
    }
}

void usm__pickle_bool(usm__pickle *p, bool value)
{
    put(p, value ? '\x88' : '\x89', 0, 0); /* NEWTRUE, NEWFALSE */
}

uint32_t usm__pickle_remember(usm__pickle *p)
{
    put(p, 'r', USM__PICKLE_KEYS + p->memo, 4); /* LONG_BINPUT */
    return p->memo++;
}

void usm__pickle_again(usm__pickle *p, uint32_t what)
{
    put(p, 'j', USM__PICKLE_KEYS + what, 4); /* LONG_BINGET */
}
