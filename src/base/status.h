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

/* Checks that a struct of the caller's is there, and has at least the first `least` bytes.  Its
 * first member is struct_size, which `init`, the name of a macro, sets.
 *   USM_E_INVALID  it is NULL
 *   USM_E_ABI      it is smaller: of an older version, or struct_size was not set */
usm_status usm__struct_check(const char *call, const char *what, const void *given, size_t least,
                             const char *init);

/* Saves the error message while clean-up code runs that may itself fail. */
typedef struct usm__message {
    usm_status status;
    char       text[USM__STORY_SIZE];
} usm__message;
void usm__message_save(usm__message *s);
void usm__message_restore(const usm__message *s);

/* Makes a call of which the message of an earlier failure survives whatever it reports. */
#define usm__quietly(call)                                                                         \
    do {                                                                                           \
        usm__message kept_;                                                                        \
                                                                                                   \
        usm__message_save(&kept_);                                                                 \
        (void)(call);                                                                              \
        usm__message_restore(&kept_);                                                              \
    } while (0)

#endif
