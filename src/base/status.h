/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The origin of every failure: usm__fail() writes the thread's error message and yields the status.
 * It is a macro, so that analyzers see that the path fails. */
#ifndef USM_BASE_STATUS_H
#define USM_BASE_STATUS_H

#include <base/thread.h>
#include <usm/status.h>

#define usm__fail(status, ...) (usm__note((status), __VA_ARGS__), (status))

/* Writes error message and status of the calling thread; never allocates, never logs. */
void usm__note(usm_status status, const char *format, ...) USM_PRINTF(2, 3);
void usm__note_v(usm_status status, const char *format, __builtin_va_list args) USM_PRINTF(2, 0);

/* Saves the error message while clean-up code runs that may itself fail. */
typedef struct usm__story {
    usm_status status;
    char       text[USM__STORY_SIZE];
} usm__story;
void usm__story_save(usm__story *s);
void usm__story_restore(const usm__story *s);

#endif
