/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The fault sweep: failures inside the software Level Zero driver, whose functions of ze_soft.h are
 * found in the process.  Where the runtime has another driver there are none.  Called by sweep.c.
 */
#include "paths.h"
#include "sweep.h"

#include "ze_soft/ze_soft.h"

#include <dlfcn.h>

static struct {
    ze_soft_fail_at_fn     *fail_at;
    ze_soft_fail_if_fn     *fail_if;
    ze_soft_has_failed_fn  *has_failed;
    ze_soft_failed_call_fn *failed_call;
    ze_soft_live_fn        *live;
} soft;

/* POSIX lets a data pointer become a function pointer, C does not. */
static bool find(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);

    memcpy(function, &address, sizeof address);
    return address != NULL;
}

/* Also before the loader opens it: it is the same library then. */
bool driver_open(void)
{
    const char *path = getenv("ZE_ENABLE_ALT_DRIVERS");
    void       *library;

    if (!path || !strstr(path, "libze_soft"))
        return false;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library || !find(library, "ze_soft_fail_at", &soft.fail_at) ||
        !find(library, "ze_soft_fail_if", &soft.fail_if) ||
        !find(library, "ze_soft_has_failed", &soft.has_failed) ||
        !find(library, "ze_soft_failed_call", &soft.failed_call) ||
        !find(library, "ze_soft_live", &soft.live)) {
        fprintf(stderr, "%s is not the software driver: %s\n", path, dlerror());
        abort();
    }
    return true;
}

static int asks(const char *function)
{
    return paths_hit(function);
}

void driver_arm(uint32_t code)
{
    soft.fail_if(asks, code);
}

bool driver_has_failed(void)
{
    return soft.has_failed && soft.has_failed();
}

void driver_disarm(void)
{
    if (soft.fail_at)
        soft.fail_at(0, 0, 0);
}

const char *driver_failed_call(void)
{
    return soft.failed_call ? soft.failed_call() : "";
}

uint64_t driver_live(void)
{
    return soft.live ? soft.live() : 0;
}
