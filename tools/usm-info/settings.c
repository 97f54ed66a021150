/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of settings with the current values, and in the form of the documentation: `usm-info
 * --env --markdown` is the source of the table in docs/settings.md. */
#include "show.h"
#include "table.h"

#include "base/settings.h"

static void setting_cells(table *t, const usm__setting *s)
{
    const char *value = usm__setting_text(s->key);

    table_cell(t, "%s", s->variable);
    table_cell(t, "%s", *value ? value : "-");
    table_cell(t, "%s", usm__setting_origin(s->key));
}

void show_settings_short(void)
{
    table *t = table_new(2, 2);

    for (const usm__setting *s = usm__settings; s->key; s++) {
        setting_cells(t, s);
        table_row(t);
    }
    table_print(t, stdout);
}

/* Other libraries' variables, in the order in which they are read; "" for none.  Returns names. */
static const char *foreign_names(const usm__setting *s, const char *between, char *names,
                                 size_t size)
{
    size_t used = 0;

    names[0] = '\0';
    for (size_t i = 0; s->foreign[i] && used < size; i++)
        used +=
            (size_t)snprintf(names + used, size - used, "%s%s", i ? between : "", s->foreign[i]);
    return names;
}

void show_settings(void)
{
    table *t = table_new(0, 2);
    char   names[128];

    table_cell(t, "VARIABLE");
    table_cell(t, "VALUE");
    table_cell(t, "SET BY");
    table_cell(t, "DEFAULT");
    table_row(t);
    for (const usm__setting *s = usm__settings; s->key; s++) {
        setting_cells(t, s);
        table_cell(t, "%s", *s->initial ? s->initial : "-");
        table_row(t);
        table_note(t, 4, "%s", s->help);
        if (*s->unit)
            table_note(t, 4, "unit: %s", s->unit);
        if (*foreign_names(s, ", ", names, sizeof names))
            table_note(t, 4, "read when this is unset: %s", names);
    }
    table_print(t, stdout);
}

/* A cell of a Markdown table. */
static void print_markdown(const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            putchar('\\');
        putchar(*text == '\n' ? ' ' : *text);
    }
}

static void print_markdown_code(const char *text)
{
    if (!*text)
        return;
    putchar('`');
    print_markdown(text);
    putchar('`');
}

void show_settings_markdown(void)
{
    char names[128];

    puts("| variable | default | unit | meaning |");
    puts("|---|---|---|---|");
    for (const usm__setting *s = usm__settings; s->key; s++) {
        printf("| `%s` | ", s->variable);
        print_markdown_code(s->initial);
        fputs(" | ", stdout);
        print_markdown_code(s->unit);
        fputs(" | ", stdout);
        print_markdown(s->help);
        if (*foreign_names(s, "`, `", names, sizeof names))
            printf("; read when this is unset: `%s`", names);
        puts(" |");
    }
}

void show_settings_json(usm__json *j)
{
    char names[128];

    usm__json_array_begin(j, "settings");
    for (const usm__setting *s = usm__settings; s->key; s++) {
        usm__json_object_begin(j, NULL);
        usm__json_text(j, "variable", s->variable);
        usm__json_text(j, "key", s->key);
        usm__json_text(j, "value", usm__setting_text(s->key));
        usm__json_text(j, "origin", usm__setting_origin(s->key));
        usm__json_text(j, "default", s->initial);
        usm__json_text(j, "unit", s->unit);
        usm__json_text(j, "help", s->help);
        usm__json_text(j, "foreign", *foreign_names(s, ", ", names, sizeof names) ? names : NULL);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
}
