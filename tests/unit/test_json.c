/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What base/json.h promises: commas, lines and nesting in each form, escapes, numbers, and that
 * memory that is too small is counted as snprintf() does. */
#include "plain.h"

#include "base/json.h"

#include <math.h>

/* --- helpers -------------------------------------------------------------- */

static char text[512];

static usm__json begin(usm__json_form form)
{
    text[0] = '\0';
    return (usm__json){.out = {.text = text, .cap = sizeof text}, .form = form};
}

static void write_nested(usm__json *j)
{
    usm__json_object_begin(j, NULL);
    usm__json_number(j, "one", 1);
    usm__json_array_begin(j, "list");
    usm__json_array_begin(j, NULL);
    usm__json_array_end(j);
    usm__json_object_begin(j, NULL);
    usm__json_bool(j, "yes", true);
    usm__json_object_end(j);
    usm__json_array_end(j);
    usm__json_null(j, "none");
    usm__json_object_end(j);
}

/* --- nesting -------------------------------------------------------------- */

static void compact_text_has_neither_spaces_nor_lines(void)
{
    usm__json j = begin(USM__JSON_COMPACT);

    write_nested(&j);
    CHECK_STR(text, "{\"one\":1,\"list\":[[],{\"yes\":true}],\"none\":null}");
    CHECK_INT(j.out.used, strlen(text));
}

static void indented_text_has_a_value_on_each_line(void)
{
    usm__json j = begin(USM__JSON_INDENTED);

    write_nested(&j);
    CHECK_STR(text, "{\n"
                    "  \"one\": 1,\n"
                    "  \"list\": [\n"
                    "    [],\n"
                    "    {\n"
                    "      \"yes\": true\n"
                    "    }\n"
                    "  ],\n"
                    "  \"none\": null\n"
                    "}\n");
}

static void compact_text_has_the_lines_that_were_asked_for(void)
{
    usm__json j = begin(USM__JSON_PAGE);

    usm__json_array_begin(&j, NULL);
    usm__json_line(&j);
    usm__json_number(&j, NULL, 1);
    usm__json_number(&j, NULL, 2);
    usm__json_line(&j);
    usm__json_number(&j, NULL, 3);
    usm__json_line(&j);
    usm__json_array_end(&j);
    CHECK_STR(text, "[\n1,2,\n3\n]\n");
}

/* --- texts ---------------------------------------------------------------- */

static const char *string_of(usm__json_form form, const char *value, size_t max)
{
    usm__json j = begin(form);

    usm__json_text_max(&j, NULL, value, max);
    return text;
}

static void characters_are_escaped_as_the_form_says(void)
{
    static const char value[] = "a\"\\/\n\r\t\b\x1f\x7f<";

    CHECK_STR(string_of(USM__JSON_COMPACT, value, SIZE_MAX),
              "\"a\\\"\\\\/\\u000a\\u000d\\u0009\\u0008\\u001f\\u007f<\"");
    CHECK_STR(string_of(USM__JSON_INDENTED, value, SIZE_MAX),
              "\"a\\\"\\\\/\\n\\r\\t\\u0008\\u001f\\u007f<\"");
    CHECK_STR(string_of(USM__JSON_PAGE, value, SIZE_MAX),
              "\"a\\\"\\\\/\\u000a\\u000d\\u0009\\u0008\\u001f\\u007f\\u003c\"");
}

static void bytes_of_no_character_become_the_replacement_character(void)
{
    static const char *const cases[][2] = {
        {"\x80", "\\ufffd"},
        {"\xc0\xaf", "\\ufffd\\ufffd"}, /* overlong */
        {"\xc2\x80", "\xc2\x80"},       /* the first of two bytes */
        {"\xe0\x9f\xbf", "\\ufffd\\ufffd\\ufffd"},
        {"\xed\x9f\xbf", "\xed\x9f\xbf"}, /* the last before the surrogates */
        {"\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd"},
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"}, /* U+10FFFF */
        {"\xf4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd"},
        {"\xe2\x82", "\\ufffd\\ufffd"}, /* cut short */
        {"\xe2(", "\\ufffd("},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char wanted[64];

        snprintf(wanted, sizeof wanted, "\"%s\"", cases[i][1]);
        CHECK_STR(string_of(USM__JSON_COMPACT, cases[i][0], SIZE_MAX), wanted);
    }
}

static void a_text_ends_at_its_limit(void)
{
    CHECK_STR(string_of(USM__JSON_COMPACT, "abc", 2), "\"ab\"");
    CHECK_STR(string_of(USM__JSON_COMPACT, "a\xe2\x82\xac", 3), "\"a\\ufffd\\ufffd\"");
    CHECK_STR(string_of(USM__JSON_COMPACT, "", 0), "\"\"");
}

/* --- numbers -------------------------------------------------------------- */

static void numbers_are_written_whole(void)
{
    usm__json j = begin(USM__JSON_COMPACT);

    usm__json_array_begin(&j, NULL);
    usm__json_number(&j, NULL, UINT64_MAX);
    usm__json_signed(&j, NULL, INT64_MIN);
    usm__json_parts(&j, NULL, 1002, 3);
    usm__json_parts(&j, NULL, 1000000, 6);
    usm__json_address(&j, NULL, 0xabc);
    usm__json_real(&j, NULL, 0.1, 9);
    usm__json_real(&j, NULL, (double)NAN, 9);
    usm__json_real(&j, NULL, (double)-INFINITY, 9);
    usm__json_text(&j, NULL, NULL);
    usm__json_array_end(&j);
    CHECK_STR(text, "[18446744073709551615,-9223372036854775808,1.002,1.000000,\"0xabc\",0.1,null,"
                    "null,null]");
}

/* --- where it goes -------------------------------------------------------- */

static void memory_that_is_too_small_is_filled_and_counted(void)
{
    usm__json none = {.form = USM__JSON_COMPACT};
    char      whole[256];
    size_t    size;

    write_nested(&none);
    size = none.out.used;
    for (size_t cap = 1; cap <= size + 1; cap++) {
        usm__json j = {.out = {.text = whole, .cap = cap}};

        memset(whole, '#', sizeof whole);
        write_nested(&j);
        CHECK_INT(j.out.used, size);
        CHECK_INT(strlen(whole), cap - 1);
        CHECK_INT(whole[cap], '#'); /* nothing behind the end */
    }
}

static void a_file_gets_the_same_as_memory(void)
{
    FILE     *file = tmpfile();
    usm__json j = begin(USM__JSON_COMPACT), f = {.out = {.file = file}};
    char      read[256] = "";

    CHECK(file != NULL);
    write_nested(&j);
    write_nested(&f);
    rewind(file);
    CHECK_INT(fread(read, 1, sizeof read, file), j.out.used);
    CHECK_STR(read, text);
    CHECK_INT(f.out.used, j.out.used);
    CHECK_INT(fclose(file), 0);
}

static const plain_case cases[] = {
    CASE(compact_text_has_neither_spaces_nor_lines),
    CASE(indented_text_has_a_value_on_each_line),
    CASE(compact_text_has_the_lines_that_were_asked_for),
    CASE(characters_are_escaped_as_the_form_says),
    CASE(bytes_of_no_character_become_the_replacement_character),
    CASE(a_text_ends_at_its_limit),
    CASE(numbers_are_written_whole),
    CASE(memory_that_is_too_small_is_filled_and_counted),
    CASE(a_file_gets_the_same_as_memory),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
