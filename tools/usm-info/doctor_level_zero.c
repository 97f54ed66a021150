/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Level Zero's loader, and whether any driver behind it has a device.
 *
 * The loader looks for drivers by itself, or loads the libraries that ZE_ENABLE_ALT_DRIVERS names;
 * it silently skips one that does not load.  A child calls it, because a driver may kill the
 * process. */
#include "child.h"
#include "doctor.h"
#include "table.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOADER           "libze_loader.so.1"
#define DRIVERS          "ZE_ENABLE_ALT_DRIVERS"
#define CHECK            "Level Zero"
#define START_TIMEOUT_S  30
#define ZE_UNINITIALIZED 0x78000001u /* the result of zeInit if no driver works */

/* --- the child -------------------------------------------------------------- */

typedef uint32_t get_fn(void *of, uint32_t *count, void **handles);

/* Counts the devices of all drivers: adds to *ndevices; returns the first code that is not a
 * success. */
static uint32_t count_devices(void *loader, uint32_t *ndrivers, uint32_t *ndevices)
{
    void *drivers[16] = {NULL};
    uint32_t (*driver_get)(uint32_t * count, void **handles);
    get_fn  *device_get;
    void    *found = dlsym(loader, "zeDriverGet");
    uint32_t code, n;

    memcpy(&driver_get, &found, sizeof found); /* ISO C has no cast from data to code */
    found = dlsym(loader, "zeDeviceGet");
    memcpy(&device_get, &found, sizeof found);
    *ndrivers = sizeof drivers / sizeof *drivers;
    code      = driver_get(ndrivers, drivers);
    for (uint32_t i = 0; code == 0 && i < *ndrivers; i++) {
        n    = 0;
        code = device_get(drivers[i], &n, NULL);
        *ndevices += n;
    }
    return code;
}

/* Answers "code drivers devices" (exit 0), or dlopen's text (exit 1). */
int child_start_level_zero(int argc, char **argv)
{
    uint32_t (*init)(uint32_t flags);
    void    *loader = dlopen(LOADER, RTLD_NOW | RTLD_LOCAL), *found;
    uint32_t code, ndrivers = 0, ndevices = 0;

    (void)argc, (void)argv;
    if (!loader) {
        fputs(dlerror(), child_answer());
        return 1;
    }
    child_enter_scratch();
    found = dlsym(loader, "zeInit");
    memcpy(&init, &found, sizeof found);
    code = init(0);
    if (code == 0) /* after a failure the other calls may crash */
        code = count_devices(loader, &ndrivers, &ndevices);
    fprintf(child_answer(), "%u %u %u", code, ndrivers, ndevices);
    return 0;
}

/* --- what it says ------------------------------------------------------------- */

static void judge_loader(doctor *d, const char *why)
{
    if (strncmp(why, LOADER ": cannot open shared object file", strlen(LOADER) + 9) == 0)
        doctor_add(d, FINDING_NOTE, CHECK,
                   tool_printf("There is no Level Zero loader (" LOADER ")."),
                   tool_printf("For an Intel GPU install libze1 and Intel's driver; nothing else "
                               "needs it."));
    else
        doctor_add(d, FINDING_PROBLEM, CHECK,
                   tool_printf("The Level Zero loader does not load: %s.", why),
                   tool_printf("Reinstall libze1, or remove the file that is named."));
}

static void judge_counts(doctor *d, const char *answer)
{
    char         *at       = NULL;
    unsigned long code     = strtoul(answer, &at, 10);
    unsigned long ndrivers = strtoul(at, &at, 10), ndevices = strtoul(at, &at, 10);

    if (code == 0 && ndevices > 0)
        doctor_add(d, FINDING_OK, CHECK,
                   tool_printf(LOADER " loads: %lu driver%s, %lu device%s.", ndrivers,
                               ndrivers == 1 ? "" : "s", ndevices, ndevices == 1 ? "" : "s"),
                   NULL);
    else if (code == 0 || code == ZE_UNINITIALIZED)
        doctor_add(d, FINDING_NOTE, CHECK,
                   tool_printf(LOADER " loads, but no driver has a device."),
                   tool_printf("If an Intel GPU is in this machine, install its Level Zero driver "
                               "(libze-intel-gpu1, in Debian 12 intel-opencl-icd) and look at the "
                               "device nodes below."));
    else
        doctor_add(d, FINDING_PROBLEM, CHECK,
                   tool_printf("A Level Zero driver fails to start (0x%lx).", code),
                   tool_printf("Update it; ZE_ENABLE_LOADER_DEBUG_TRACE=1 shows which one it is."));
}

static void check_start(doctor *d)
{
    const char *const args[] = {"start-level-zero", NULL};
    child_result      result;
    char              why[256];

    child_run(args, START_TIMEOUT_S, &result);
    if (result.end == CHILD_EXITED && result.code == 1)
        judge_loader(d, result.answer);
    else if (result.end != CHILD_EXITED || result.code != 0)
        doctor_add(d, FINDING_PROBLEM, CHECK,
                   tool_printf("When Level Zero is started, %s.",
                               child_end_text(&result, why, sizeof why)),
                   tool_printf("Update or remove the driver; " DRIVERS " can name another."));
    else
        judge_counts(d, result.answer);
    free(result.answer);
}

/* Libraries, separated by commas; the loader skips those that do not exist. */
static void check_named(doctor *d)
{
    const char *value = getenv(DRIVERS);
    char       *list = tool_printf("%s", value ? value : ""), *save = NULL;

    for (char *it = strtok_r(list, ",", &save); it; it = strtok_r(NULL, ",", &save)) {
        if (strchr(it, '/') && access(it, R_OK) != 0)
            doctor_add(d, FINDING_PROBLEM, CHECK,
                       tool_printf(DRIVERS " names %s, which cannot be read.", it),
                       tool_printf("Correct the path, or unset " DRIVERS "."));
    }
    free(list);
}

void doctor_check_level_zero(doctor *d)
{
    check_named(d);
    check_start(d);
}
