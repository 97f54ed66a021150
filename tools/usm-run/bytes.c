/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Bytes of inputs: from files, data servers, hexadecimal digits, text, numbers, or several of these
 * one after the other; and outputs: into files and data servers, or as text on stdout. */
#include "app.h"

#include "base/inline/hex.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- types of numbers ------------------------------------------------------------------------ */

typedef struct number_type {
    const char *name, *opencl;
    size_t      size;
    bool        is_float;
    json_int_t  least, most; /* of u64: as far as JSON allows */
} number_type;

static const number_type types[] = {
    {"i8", "char", 1, false, INT8_MIN, INT8_MAX},
    {"u8", "uchar", 1, false, 0, UINT8_MAX},
    {"i16", "short", 2, false, INT16_MIN, INT16_MAX},
    {"u16", "ushort", 2, false, 0, UINT16_MAX},
    {"i32", "int", 4, false, INT32_MIN, INT32_MAX},
    {"u32", "uint", 4, false, 0, UINT32_MAX},
    {"i64", "long", 8, false, INT64_MIN, INT64_MAX},
    {"u64", "ulong", 8, false, 0, INT64_MAX},
    {"f32", "float", 4, true, 0, 0},
    {"f64", "double", 8, true, 0, 0},
};
#define TYPE_NAMES "i8, u8, i16, u16, i32, u32, i64, u64, f32, f64"

static const number_type *type_of(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

const char *number_name(const char *name, size_t *size)
{
    const number_type *t = type_of(name);

    if (t)
        *size = t->size;
    return t ? t->opencl : NULL;
}

const char *number_names(void)
{
    return TYPE_NAMES;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static void append(app_node *n, const void *data, size_t size)
{
    n->data = need(realloc(n->data, n->size + size + 1));
    memcpy(n->data + n->size, data, size);
    n->size += size;
}

static bool add_hex(app *a, app_node *n, value v)
{
    unsigned      half = 0;
    unsigned char byte = 0;

    if (!json_is_string(v.json))
        return mistake(a, v.at, "'hex' must be a text of hexadecimal digits");
    for (const char *s = json_string_value(v.json); *s; s++) {
        int digit = usm__hex_digit(*s);

        if (isspace((unsigned char)*s))
            continue;
        if (digit < 0)
            return mistake(a, v.at, "'%c' is not a hexadecimal digit", *s);
        byte = (unsigned char)(byte << 4 | (unsigned)digit);
        if (half++ % 2)
            append(n, &byte, 1);
    }
    return half % 2 == 0 || mistake(a, v.at, "'hex' has %u digits: two make a byte", half);
}

static bool add_number(app *a, app_node *n, value v, const number_type *t)
{
    json_int_t whole = json_integer_value(v.json);
    double     d     = json_number_value(v.json);
    float      f     = (float)d;

    if (t->is_float && json_is_number(v.json)) {
        if (t->size == 4)
            append(n, &f, 4);
        else
            append(n, &d, 8);
        return true;
    }
    if (!json_is_integer(v.json) || whole < t->least || whole > t->most)
        return mistake(a, v.at, "this is no %s", t->name);
    if (t->size == 1)
        append(n, &(int8_t){(int8_t)whole}, 1);
    else if (t->size == 2)
        append(n, &(int16_t){(int16_t)whole}, 2);
    else if (t->size == 4)
        append(n, &(int32_t){(int32_t)whole}, 4);
    else
        append(n, &(int64_t){whole}, 8);
    return true;
}

static bool add_numbers(app *a, app_node *n, value piece, value list)
{
    const char        *end  = NULL;
    const char        *name = NULL;
    const number_type *t;
    bool               is_ok = true;

    if (!get_text(a, piece, "type", &name))
        return false;
    if (!name)
        return mistake(a, piece.at, "'numbers' needs a 'type': " TYPE_NAMES);
    t = type_of(name);
    if (!t)
        return mistake(a, member(piece, "type").at, "there is no type '%s'; there are " TYPE_NAMES,
                       name);
    if (!json_is_array(list.json))
        return mistake(a, list.at, "'numbers' must be an array");
    for (size_t i = 0; i < json_array_size(list.json) && is_ok; i++)
        is_ok = add_number(a, n, next_element(list, i, &end), t);
    return is_ok;
}

static bool add_file(app *a, app_node *n, value v)
{
    size_t size = 0;
    char  *data;

    if (!json_is_string(v.json))
        return mistake(a, v.at, "'file' must be the name of a file");
    data = read_file(a, v, json_string_value(v.json), &size);
    if (data)
        append(n, data, size);
    free(data);
    return data != NULL;
}

/* The value goes to where the input's bytes are, without a copy between. */
static bool add_value(app *a, app_node *n, value v)
{
    size_t size = 0;

    if (!size_of_value(a, v, &size))
        return false;
    n->data = need(realloc(n->data, n->size + size + 1));
    if (!a->is_dry && !read_value(a, v, n->data + n->size, size))
        return false;
    n->size += size;
    return true;
}

static bool add_text(app *a, app_node *n, value v)
{
    if (!json_is_string(v.json))
        return mistake(a, v.at, "'text' must be a text");
    append(n, json_string_value(v.json), json_string_length(v.json));
    return true;
}

enum { FROM_FILE, FROM_SERVER, FROM_HEX, FROM_TEXT, FROM_NUMBERS, SOURCES };

static bool add_source(app *a, app_node *n, value piece, const value *v)
{
    if (v[FROM_FILE].json)
        return add_file(a, n, v[FROM_FILE]);
    if (v[FROM_SERVER].json)
        return add_value(a, n, v[FROM_SERVER]);
    if (v[FROM_HEX].json)
        return add_hex(a, n, v[FROM_HEX]);
    if (v[FROM_NUMBERS].json)
        return add_numbers(a, n, piece, v[FROM_NUMBERS]);
    return add_text(a, n, v[FROM_TEXT]);
}

static bool add_piece(app *a, app_node *n, value piece)
{
    static const char *const keys[]  = {"file",    "from", "hex",  "text",
                                        "numbers", "type", "size", NULL};
    unsigned                 sources = 0;
    const size_t             before  = n->size;
    uint64_t                 size    = 0;
    value                    v[SOURCES];

    if (!check_keys(a, piece, "data", keys) || !get_number(a, piece, "size", 1, UINT32_MAX, &size))
        return false;
    for (unsigned i = 0; i < SOURCES; i++) {
        v[i] = member(piece, keys[i]);
        sources += v[i].json != NULL;
    }
    if (sources != 1)
        return mistake(a, piece.at,
                       "data is one of file, from, hex, text and numbers, not %u of them", sources);
    if (!add_source(a, n, piece, v))
        return false;
    return size == 0 || n->size - before == size ||
           mistake(a, member(piece, "size").at, "there are %zu bytes, and 'size' says %llu",
                   n->size - before, (unsigned long long)size);
}

/* On a unit the bytes come later. */
static bool make_data(app *a, app_node *n)
{
    if (!remote_size(a, n, &n->size))
        return false;
    n->data      = need(calloc(n->size, 1));
    n->desc.data = n->data;
    n->desc.size = n->size;
    return true;
}

bool read_pieces(app *a, app_node *n, value data)
{
    bool is_ok = true;

    if (!json_is_array(data.json))
        is_ok = add_piece(a, n, data);
    for (size_t i = 0; i < json_array_size(data.json); i++)
        is_ok &= add_piece(a, n, element(data, i));
    return is_ok;
}

bool read_data(app *a, app_node *n)
{
    value data = member(n->at, "data");
    bool  is_ok;

    if (a->remote)
        return make_data(a, n);
    if (!data.json)
        return mistake(a, n->at.at, "the input '%s' has no 'data'", n->desc.name);
    is_ok = read_pieces(a, n, data);
    if (is_ok && n->size == 0)
        return mistake(a, data.at, "the input '%s' has no bytes", n->desc.name);
    n->desc.data = n->data;
    n->desc.size = n->size;
    return is_ok;
}

/* ---- outputs --------------------------------------------------------------------------------- */

static bool check_format(app *a, value v)
{
    const char *name = json_string_value(v.json);

    if (name && (strcmp(name, "text") == 0 || strcmp(name, "hex") == 0 || type_of(name)))
        return true;
    return mistake(a, v.at,
                   "'print' is text, hex, or a type of numbers (" TYPE_NAMES
                   "), or an array of these");
}

bool check_output(app *a, value output)
{
    static const char *const keys[] = {"file", "to", "print", NULL};
    value                    print = member(output, "print"), to = member(output, "to");
    const char              *file  = NULL;
    bool                     is_ok = check_keys(a, output, "an output", keys);

    if (!is_ok)
        return false;
    is_ok = get_text(a, output, "file", &file);
    if (!file && !to.json && !print.json)
        return mistake(a, output.at, "an output needs a 'file', 'to' or 'print'");
    is_ok &= !to.json || check_value(a, to);
    if (print.json && !json_is_array(print.json))
        return is_ok && check_format(a, print);
    for (size_t i = 0; i < json_array_size(print.json); i++)
        is_ok &= check_format(a, element(print, i));
    return is_ok;
}

/* Narrow whole numbers are the low bytes of a wide one. */
static void print_number(FILE *out, const unsigned char *at, const number_type *t)
{
    uint64_t bits  = 0;
    unsigned spare = 64 - 8 * (unsigned)t->size;
    float    f32   = 0;
    double   f64   = 0;

    memcpy(&f32, at, t->size < sizeof f32 ? t->size : sizeof f32);
    memcpy(&f64, at, t->size);
    for (size_t i = 0; i < t->size; i++)
        bits |= (uint64_t)at[i] << 8 * i;
    if (t->is_float)
        fprintf(out, "%.*g", t->size == 4 ? 9 : 17, t->size == 4 ? (double)f32 : f64);
    else if (t->name[0] == 'i')
        fprintf(out, "%" PRId64, (int64_t)(bits << spare) / (int64_t)(UINT64_C(1) << spare));
    else
        fprintf(out, "%" PRIu64, bits);
}

/* Prints up to the first 0 byte. */
static void print_text(FILE *out, const unsigned char *at, size_t size)
{
    for (size_t i = 0; i < size && at[i]; i++)
        if (isprint(at[i]) || at[i] >= 0x80 || at[i] == '\n' || at[i] == '\t')
            fputc(at[i], out);
        else
            fprintf(out, "\\x%02x", at[i]);
}

/* Prints one number, or all of them, or the rest as text or digits.  Returns the number of
 * bytes. */
static size_t print_as(FILE *out, const char *format, const unsigned char *at, size_t size,
                       bool is_last)
{
    const number_type *t = type_of(format);

    if (!t) {
        if (strcmp(format, "text") == 0)
            print_text(out, at, size);
        else
            for (size_t i = 0; i < size; i++)
                fprintf(out, "%02x", at[i]);
        return size;
    }
    for (size_t i = 0; i + t->size <= size; i += t->size) {
        if (i)
            fputc(' ', out);
        print_number(out, at + i, t);
        if (!is_last)
            return t->size;
    }
    return size;
}

static void print_output(FILE *out, const json_t *print, const unsigned char *data, size_t size)
{
    size_t formats = json_is_array(print) ? json_array_size(print) : 1, used = 0;

    for (size_t i = 0; i < formats; i++) {
        const json_t *format = json_is_array(print) ? json_array_get(print, i) : print;

        if (i)
            fputc(' ', out);
        used +=
            print_as(out, json_string_value(format), data + used, size - used, i + 1 == formats);
    }
    fputc('\n', out);
}

static bool save_output(app *a, const app_node *n, const void *data, size_t size)
{
    const char *name  = json_string_value(member(n->output, "file").json);
    FILE       *file  = open_file(a, name, true);
    bool        is_ok = file && fwrite(data, 1, size, file) == size;

    if (file && fclose(file) != 0)
        is_ok = false;
    return is_ok || mistake(a, member(n->output, "file").at, "'%s' cannot be written: %s", name,
                            open_error(a));
}

bool write_output(app *a, const app_node *n, FILE *out)
{
    json_t     *print = member(n->output, "print").json;
    value       to    = member(n->output, "to");
    bool        is_ok = true;
    const void *data;
    size_t      size;

    if (!n->output.json)
        return true;
    if (usm_graph_get_output(a->graph, n->number, &data, &size) != USM_OK)
        return mistake(a, n->output.at, "%s", usm_last_error());
    if (print)
        print_output(out, print, data, size);
    if (member(n->output, "file").json)
        is_ok = save_output(a, n, data, size);
    return (!to.json || write_value(a, to, data, size)) && is_ok;
}
