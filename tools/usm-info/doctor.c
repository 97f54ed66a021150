/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs the checks of doctor.h and prints what they found. */
#include "doctor.h"
#include "show.h"
#include "spill.h"
#include "table.h"

#include <stdlib.h>

void doctor_add(doctor *d, finding_level level, const char *check, char *text, char *remedy)
{
    finding *f;

    d->findings = tool_realloc(d->findings, (d->nfindings + 1) * sizeof *d->findings);
    f           = &d->findings[d->nfindings++];
    f->level    = level;
    f->check    = check;
    f->text     = text;
    f->remedy   = remedy;
}

char *doctor_path(const doctor *d, const char *path)
{
    return tool_printf("%s%s", d->root, path);
}

static const char *level_name(finding_level level)
{
    return level == FINDING_OK ? "ok" : level == FINDING_NOTE ? "note" : "problem";
}

static size_t count(const doctor *d, finding_level level)
{
    size_t n = 0;

    for (size_t i = 0; i < d->nfindings; i++)
        n += d->findings[i].level == level;
    return n;
}

static void print_text(const doctor *d)
{
    size_t problems = count(d, FINDING_PROBLEM), notes = count(d, FINDING_NOTE);
    table *t = table_new(0, 2);

    for (size_t i = 0; i < d->nfindings; i++) {
        const finding *f = &d->findings[i];

        table_cell(t, "%s", level_name(f->level));
        table_cell(t, "%s", f->check);
        table_cell(t, "%s%s%s", f->text, f->remedy ? "\n-> " : "", f->remedy ? f->remedy : "");
        table_row(t);
    }
    table_print(t, stdout);
    if (problems)
        printf("\n%zu problem%s, %zu note%s.\n", problems, problems == 1 ? "" : "s", notes,
               notes == 1 ? "" : "s");
    else
        printf("\nNothing is broken.\n");
}

static void print_json(const doctor *d)
{
    usm__json j;

    show_json_head(&j, stdout);
    usm__json_number(&j, "problems", count(d, FINDING_PROBLEM));
    usm__json_number(&j, "notes", count(d, FINDING_NOTE));
    usm__json_array_begin(&j, "findings");
    for (size_t i = 0; i < d->nfindings; i++) {
        usm__json_object_begin(&j, NULL);
        usm__json_text(&j, "level", level_name(d->findings[i].level));
        usm__json_text(&j, "check", d->findings[i].check);
        usm__json_text(&j, "finding", d->findings[i].text);
        usm__json_text(&j, "remedy", d->findings[i].remedy);
        usm__json_object_end(&j);
    }
    usm__json_array_end(&j);
    usm__json_object_end(&j);
}

static void run_checks(doctor *d)
{
    inventory inv;

    inventory_collect(&inv, INVENTORY_ALL);
    inventory_probe(&inv);
    doctor_check_library(d, &inv);
    inventory_free(&inv);
    doctor_check_settings(d);
    doctor_check_opencl(d);
    doctor_check_level_zero(d);
    doctor_check_nodes(d);
    doctor_check_cache(d);
    doctor_check_limits(d);
    doctor_check_spill(d);
    doctor_check_managed(d);
}

int doctor_report(const char *root, bool as_json)
{
    doctor d = {.root = root ? root : ""};
    int    rc;

    run_checks(&d);
    if (as_json)
        print_json(&d);
    else
        print_text(&d);
    rc = count(&d, FINDING_PROBLEM) ? 1 : 0;
    for (size_t i = 0; i < d.nfindings; i++) {
        free(d.findings[i].text);
        free(d.findings[i].remedy);
    }
    free(d.findings);
    return rc;
}
