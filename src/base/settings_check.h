/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks of settings whose grammar src/base knows: the table in base/settings.c names them. */
#ifndef USM_BASE_SETTINGS_CHECK_H
#define USM_BASE_SETTINGS_CHECK_H

#include "base/text.h"

/* Maximum number of tiers below host memory. */
#define USM__SPILL_TIERS_MAX 7

/* "off", or transport[:config] separated by ";". */
bool usm__settings_check_spill(const char *text, char *why, size_t why_size);
/* "off", "auto", or the names of codecs, each once, separated by ",". */
bool usm__settings_check_codec(const char *text, char *why, size_t why_size);
/* 32 or 64 hexadecimal digits, or nothing. */
bool usm__settings_check_key(const char *text, char *why, size_t why_size);
/* Nothing, a path, or name=watts separated by ",". */
bool usm__settings_check_watts(const char *text, char *why, size_t why_size);
/* True if it begins with "/", "./" or "../", or has no "=". */
bool usm__settings_is_watts_path(const char *text);
/* Splits "name=watts" into the name and the number, 0 or more; false: it has another form. */
bool usm__settings_cut_watts(usm__span line, usm__span *name, double *watts);

#endif
