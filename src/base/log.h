/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Logging by level, chosen by USM_LOG="level:info;output:stderr" (or just "info"; output: stderr,
 * stdout or a file).  Default: warn to stderr.  A line is "usm: warning: text".  A lack of memory
 * is a warning only where heap/pool_report.c says so: otherwise its report is logged at level info. */
#ifndef USM_BASE_LOG_H
#define USM_BASE_LOG_H

#include "base/job.h"

#include <usm/module.h>

/* For output that the user requested by USM_HOOKS: printed at every level, as "usm: hook: ...". */
#define USM__LOG_HOOK ((usm_log_level)0)

bool usm__log_enabled(usm_log_level level);
void usm__log(usm_log_level level, const char *format, ...) USM_PRINTF(2, 3);
void usm__log_v(usm_log_level level, const char *format, __builtin_va_list args) USM_PRINTF(2, 0);

/* Checks a text for the setting `log`. */
bool usm__log_check(const char *value, char *why, size_t why_size);

#define usm__warn(...) usm__log(USM_LOG_WARN, __VA_ARGS__)
/* For messages that are the same in all processes of a job: one process warns, and the others log
 * at level info.  USM_LOG_NODE does the same for the processes of one node. */
#define usm__warn_job(...)                                                                         \
    usm__log(usm__launcher_speaks() ? USM_LOG_WARN : USM_LOG_INFO, __VA_ARGS__)
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
