/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* USM_POOL: the pool and its options for each kind of memory; and the variables of Intel's Unified
 * Runtime, which replace it if it is unset (heap/pool_setting_ur.c). */
#ifndef USM_HEAP_POOL_SETTING_H
#define USM_HEAP_POOL_SETTING_H

#include "base/settings.h"

#include <usm/types.h>

/* The choice for one kind; 0 or "" where the setting says nothing. */
typedef struct usm__pool_choice {
    char     name[32];
    char     options[128]; /* options for the pool itself; none of ours has any, so it is "" */
    uint64_t area_size, maximum_size, min_align;
    uint64_t retain;       /* as usm_pool_desc.retain; "retain=0" becomes 1: practically nothing */
    uint32_t retain_ms;    /* "retain_ms=0" becomes 1                                            */
    uint64_t thread_cache; /* as usm_pool_desc.thread_cache; "thread_cache=0" becomes 1: none */
    bool     zero_init;
} usm__pool_choice;

/* Returns the choice of the current setting for `kind`. */
void usm__pool_choose(usm_kind kind, usm__pool_choice *choice);
/* The same for any text; false if it does not parse, and `why` gets the reason.  Does not check
 * that the pools exist. */
bool usm__pool_setting_parse(const char *text, usm_kind kind, usm__pool_choice *choice, char *why,
                             size_t why_size);

/* For the table of settings. */
bool usm__pool_setting_check(const char *text, char *why, size_t why_size);
bool usm__pool_setting_translate(const char *variable, const char *text, usm__translation *t);

#endif
