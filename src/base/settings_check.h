/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks of settings whose grammar base knows: base/settings.c names them in its table. */
#ifndef USM_BASE_SETTINGS_CHECK_H
#define USM_BASE_SETTINGS_CHECK_H

#include "base/text.h"

/* Most tiers below host memory. */
#define USM__SPILL_TIERS_MAX 7

/* "off", or transport[:config] separated by ";". */
bool usm__settings_check_spill(const char *text, char *why, size_t why_size);
/* "off", "auto", or the names of codecs, each once, separated by ",". */
bool usm__settings_check_codec(const char *text, char *why, size_t why_size);
/* 32 or 64 hexadecimal digits, or nothing. */
bool usm__settings_check_key(const char *text, char *why, size_t why_size);
/* Nothing, a path, or name=watts separated by ",". */
bool usm__settings_check_watts(const char *text, char *why, size_t why_size);
/* It begins with "/", "./" or "../", or has no "=". */
bool usm__settings_is_watts_path(const char *text);
/* "name=watts": what of the line is the name, and the number, 0 or more; false: it is neither. */
bool usm__settings_cut_watts(usm__span line, usm__span *name, double *watts);

#endif
