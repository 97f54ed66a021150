/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finding and loading modules: libusm_<what>_<name>.so in USM_PLUGIN_PATH, in usm-<abi>/ beside
 * libusm.so, or in the build tree's lib folder. */
#ifndef USM_DEVICE_MODULE_H
#define USM_DEVICE_MODULE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* what: "backend", "pool", "transport" or "codec"; the entry is usm_<what>_entry.  `path` gets the
 * file's path.
 *   USM_E_NO_BACKEND  there is no such file (the message lists the folders), or it does not
 *                     load (with dlopen's text) */
usm_status usm__module_load(const char *what, const char *name, char *path, size_t path_size,
                            void **entry);
/* True if usm__module_load() would find a file. */
bool usm__module_exists(const char *what, const char *name);

#endif
