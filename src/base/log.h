/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Logging by volume, chosen by USM_LOG="level:info;output:stderr" (also just
 * "info"; output: stderr, stdout or a file).  Default: warn to stderr.  A line
 * is "usm: warning: text".  Out of memory is never a warning: who asks for
 * information gets a report (core/pool_report.h). */
#ifndef USM_BASE_LOG_H
#define USM_BASE_LOG_H

#include "base/job.h"

#include <usm/module.h>

/* What the user asked for by USM_HOOKS: printed at every level, as "usm: hook: ...". */
#define USM__LOG_HOOK ((usm_log_level)0)

bool usm__log_enabled(usm_log_level level);
void usm__log(usm_log_level level, const char *format, ...) USM_PRINTF(2, 3);
void usm__log_v(usm_log_level level, const char *format, __builtin_va_list args) USM_PRINTF(2, 0);

/* The check of the setting `log`. */
bool usm__log_check(const char *value, char *why, size_t why_size);

#define usm__warn(...) usm__log(USM_LOG_WARN, __VA_ARGS__)
/* What all processes of a job would say alike: said by one of them, and by the others where
 * information is asked for.  For those of one node: USM_LOG_NODE. */
#define usm__warn_job(...) usm__log(usm__job_speaks() ? USM_LOG_WARN : USM_LOG_INFO, __VA_ARGS__)
#define usm__info(...)                                                                             \
    do {                                                                                           \
        if (usm__log_enabled(USM_LOG_INFO))                                                        \
            usm__log(USM_LOG_INFO, __VA_ARGS__);                                                   \
    } while (0)
#define usm__debug(...)                                                                            \
    do {                                                                                           \
        if (usm__log_enabled(USM_LOG_DEBUG))                                                       \
            usm__log(USM_LOG_DEBUG, __VA_ARGS__);                                                  \
    } while (0)

#endif
