/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Findings that the library itself reports: devices, backends that were refused, devices that do
 * not do their work, variables without a meaning. */
#include "doctor.h"
#include "table.h"

#include "base/settings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

extern char **environ;

static void check_fatal(doctor *d, const inventory *inv)
{
    if (inv->fatal)
        doctor_add(d, FINDING_PROBLEM, "devices", tool_printf("A driver is fatal: %s.", inv->fatal),
                   tool_printf("The drivers below that are no problem can be named in "
                               "OCL_ICD_VENDORS one by one; update or remove the one that is."));
}

static void check_selection(doctor *d, const inventory *inv)
{
    char *terms = tool_printf("%s", "");

    for (size_t i = 0; i < inv->nselected; i++) {
        char *longer = tool_printf("%s %s", terms, inv->devices[i].info.selector);

        free(terms);
        terms = longer;
    }
    if (inv->nselected)
        doctor_add(d, FINDING_OK, "devices", tool_printf("Selected:%s.", terms), NULL);
    else if (!inv->fatal)
        doctor_add(d, FINDING_PROBLEM, "devices", tool_printf("%s.", inv->error),
                   tool_printf("Correct USM_DEVICE_SELECTOR, or unset it."));
    free(terms);
}

static void check_backend(doctor *d, const usm__backend_slot *s)
{
    if (!s->tried || s->ok)
        return;
    if (s->path[0])
        doctor_add(d, FINDING_PROBLEM, "backends",
                   tool_printf("The backend %s was refused: %s.", s->name, s->reason),
                   tool_printf("Install the %s module of libusm %s, or remove %s.", s->name,
                               USM_VERSION_STRING, s->path));
    else
        doctor_add(d, FINDING_NOTE, "backends", tool_printf("%s.", s->reason),
                   tool_printf("Install the %s module, if it is wanted.", s->name));
}

static void check_device(doctor *d, const inventory_device *dev)
{
    switch (dev->probe.moves) {
    case MOVES_YES:
        doctor_add(d, FINDING_OK, "devices",
                   tool_printf("%s moves data (%s).", dev->info.selector, dev->info.name), NULL);
        break;
    case MOVES_UNKNOWN:
        doctor_add(d, FINDING_PROBLEM, "devices",
                   tool_printf("%s (%s) could not be tried: %s", dev->info.selector, dev->info.name,
                               dev->probe.text),
                   tool_printf("Leave it out: USM_DEVICE_SELECTOR='!%s'.", dev->info.selector));
        break;
    case MOVES_NO:
    case MOVES_CRASHES:
    case MOVES_HANGS:
        doctor_add(d, FINDING_PROBLEM, "devices",
                   tool_printf("%s (%s) does not work: %s.", dev->info.selector, dev->info.name,
                               dev->probe.text),
                   tool_printf("Update its driver, or leave it out: USM_DEVICE_SELECTOR='!%s'.",
                               dev->info.selector));
        break;
    }
}

void doctor_check_library(doctor *d, const inventory *inv)
{
    check_fatal(d, inv);
    check_selection(d, inv);
    for (size_t i = 0; i < inv->nbackends; i++)
        check_backend(d, inv->backends[i]);
    for (size_t i = 0; i < inv->nselected; i++)
        check_device(d, &inv->devices[i]);
}

static const usm__setting *find_setting(const char *variable, size_t len)
{
    for (const usm__setting *s = usm__settings; s->key; s++) {
        if (strlen(s->variable) == len && strncmp(s->variable, variable, len) == 0)
            return s;
    }
    return NULL;
}

static void check_variable(doctor *d, const char *entry, size_t len)
{
    const usm__setting *s     = find_setting(entry, len);
    const char         *value = entry + len + 1;

    if (!s)
        doctor_add(d, FINDING_NOTE, "settings",
                   tool_printf("%.*s is set but means nothing to libusm.", (int)len, entry),
                   tool_printf("usm-info --env lists the variables there are."));
    else if (*value && strncmp(usm__setting_origin(s->key), entry, len) != 0)
        doctor_add(d, FINDING_PROBLEM, "settings",
                   tool_printf("%.*s is ignored: the value does not parse.",
                               s->secret ? (int)len : (int)strlen(entry), entry),
                   tool_printf("usm-info --env says what %.*s may be.", (int)len, entry));
}

/* Prefixes that the library ignores too (base/settings.c). */
static bool is_somebody_elses(const char *variable)
{
    static const char *const others[] = {"USM_TEST_", "USM_CI_", "USM_BENCH_"};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strncmp(variable, others[i], strlen(others[i])) == 0)
            return true;
    }
    return false;
}

static void check_plugin_path(doctor *d)
{
    const char *at = usm__setting_text("plugin_path");

    for (; *at; at += strspn(at, ":")) {
        size_t      len    = strcspn(at, ":");
        char       *folder = tool_printf("%.*s", (int)len, at);
        struct stat s;

        if (len > 0 && (stat(folder, &s) != 0 || !S_ISDIR(s.st_mode)))
            doctor_add(d, FINDING_PROBLEM, "settings",
                       tool_printf("USM_PLUGIN_PATH names %s, which is not a folder.", folder),
                       tool_printf("Correct it; folders are separated by \":\"."));
        free(folder);
        at += len;
    }
}

void doctor_check_settings(doctor *d)
{
    size_t before = d->nfindings;

    for (char **e = environ; *e; e++) {
        size_t len = strcspn(*e, "=");

        if (strncmp(*e, "USM_", 4) == 0 && (*e)[len] == '=' && !is_somebody_elses(*e))
            check_variable(d, *e, len);
    }
    check_plugin_path(d);
    if (d->nfindings == before)
        doctor_add(d, FINDING_OK, "settings", tool_printf("Every USM_ variable is understood."),
                   NULL);
}
