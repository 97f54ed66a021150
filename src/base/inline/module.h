/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The first thing that a module does when it is entered: it checks that libusm has the tables that
 * the module was compiled with. */
#ifndef USM_BASE_INLINE_MODULE_H
#define USM_BASE_INLINE_MODULE_H

#include <usm/module.h>

#include <stdbool.h>

/* Declares `name` as a function that `member` of a table points to, so that its type is written
 * once. */
#define USM_DECLARE_ENTRY(table, member, name) __typeof__(*((const table *)0)->member) name

/* `what`: "the transport file".  False, with an error message: the module must not go on. */
static inline bool usm_module_fits(const usm_host_api *api, const char *what)
{
    if (api->abi == USM_MODULE_ABI && api->struct_size >= sizeof *api)
        return true;
    (void)api->report(
        USM_E_ABI,
        "%s was built for module ABI %u with a table of %zu bytes, this libusm has %u "
        "and %u; build both from one release",
        what, USM_MODULE_ABI, sizeof *api, (unsigned)api->abi, (unsigned)api->struct_size);
    return false;
}

#endif
