/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Loading modules: the folders that are searched, and the messages if a module does not load.
 * Called by device/registry.c. */
#include "device/module.h"

#include "base/log.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/text.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Both are defined by CMake: the modules' folder, and the path to the libraries from a tool's
 * folder. */
#ifndef USM_MODULE_ABI_NAME
#define USM_MODULE_ABI_NAME "0"
#define USM_BIN_TO_LIB      "../lib"
#endif

/* The folder of the file that contains libusm's code: libusm.so, or the program if libusm is
 * static. */
static bool own_folder(char *out, size_t size)
{
    static const char here = 0;
    Dl_info           info;
    char             *slash;

    if (!dladdr(&here, &info) || !info.dli_fname || strlen(info.dli_fname) >= size)
        return false;
    memcpy(out, info.dli_fname, strlen(info.dli_fname) + 1);
    if (!strchr(out, '/')) { /* a program found through PATH */
        ssize_t n = readlink("/proc/self/exe", out, size - 1);

        if (n <= 0)
            return false;
        out[n] = 0;
    }
    slash = strrchr(out, '/');
    if (!slash)
        return false;
    *slash = 0;
    return true;
}

/* The i-th folder to search; false: there are no more. */
static bool place(size_t i, char *out, size_t size)
{
    static const char *const beside[] = {"/usm-" USM_MODULE_ABI_NAME, "",
                                         "/" USM_BIN_TO_LIB "/usm-" USM_MODULE_ABI_NAME,
                                         "/" USM_BIN_TO_LIB};
    usm__span                rest     = usm__span_of(usm__setting_text("plugin_path")), field;
    char                     own[PATH_MAX];
    size_t                   n = 0;

    for (; usm__span_next(&rest, ':', &field); n++)
        if (n == i)
            return snprintf(out, size, "%.*s", (int)field.len, field.at) < (int)size;
    i -= n;
    return i < sizeof beside / sizeof *beside && own_folder(own, sizeof own) &&
           snprintf(out, size, "%s%s", own, beside[i]) < (int)size;
}

static usm_status load(const char *what, const char *path, void **entry)
{
    char  why[512] = "", symbol[64];
    void *module   = usm__os_dlopen(path, why, sizeof why);

    if (!module)
        return usm__fail(USM_E_NO_BACKEND, "the module %s does not load: %s", path, why);
    snprintf(symbol, sizeof symbol, "usm_%s_entry", what);
    *entry = usm__os_dlsym(module, symbol);
    if (*entry)
        return USM_OK;
    usm__os_dlclose(module);
    return usm__fail(USM_E_ABI, "%s is not a module of libusm: it has no %s", path, symbol);
}

static bool is_in(const char *folder, const char *what, const char *name, char *file, size_t size)
{
    struct stat st;

    return snprintf(file, size, "%s/libusm_%s_%s.so", folder, what, name) < (int)size &&
           stat(file, &st) == 0 && S_ISREG(st.st_mode); /* reading another sort of file of that name
                                                           might never end */
}

bool usm__module_exists(const char *what, const char *name)
{
    char folder[PATH_MAX], file[PATH_MAX + 128];

    for (size_t i = 0; place(i, folder, sizeof folder); i++)
        if (is_in(folder, what, name, file, sizeof file))
            return true;
    return false;
}

usm_status usm__module_load(const char *what, const char *name, char *path, size_t path_size,
                            void **entry)
{
    char   folder[PATH_MAX], file[PATH_MAX + 128], looked[256] = "";
    size_t used = 0;

    for (size_t i = 0; place(i, folder, sizeof folder); i++) {
        if (is_in(folder, what, name, file, sizeof file)) {
            snprintf(path, path_size, "%s", file);
            return load(what, file, entry); /* path may be cut off */
        }
        if (used < sizeof looked)
            used += (size_t)snprintf(looked + used, sizeof looked - used, "%s%s", used ? ", " : "",
                                     folder);
    }
    return usm__fail(USM_E_NO_BACKEND,
                     "there is no libusm_%s_%s.so in %s; install it or set USM_PLUGIN_PATH", what,
                     name, looked);
}
