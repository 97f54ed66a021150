/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* USM_POOL: which pool serves which kind of memory, with which options; and the variables of
 * Intel's Unified Runtime that stand in for it when it is unset (core/pool_setting_ur.c). */
#ifndef USM_CORE_POOL_SETTING_H
#define USM_CORE_POOL_SETTING_H

#include "base/settings.h"

#include <usm/types.h>

/* What is said of one kind; 0 or "" where nothing is. */
typedef struct usm__pool_choice {
    char     name[32];
    char     options[128]; /* for the pool itself; none of ours has any, so always ""    */
    uint64_t area_size, maximum_size, min_align;
    uint64_t retain;    /* as usm_pool_desc.retain; "retain=0" is 1: nothing to speak of     */
    uint32_t retain_ms; /* "retain_ms=0" is 1                                             */
    bool     zero_init;
} usm__pool_choice;

/* What the setting in force says of `kind`. */
void usm__pool_choose(usm_kind kind, usm__pool_choice *choice);
/* The same of any text; false when it does not parse, and `why` says what is wrong. Without a
 * look at which pools there are. */
bool usm__pool_setting_parse(const char *text, usm_kind kind, usm__pool_choice *choice, char *why,
                             size_t why_size);

/* For the table of settings. */
bool usm__pool_setting_check(const char *text, char *why, size_t why_size);
bool usm__pool_setting_translate(const char *variable, const char *text, usm__translation *t);

#endif
