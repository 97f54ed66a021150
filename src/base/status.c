/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Statuses and error messages.  Messages are stored in the calling thread's block (thread.c); a
 * thread for which there is no memory keeps at least its status. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char no_block[] =
    "a call failed and its error message is lost: there is no memory for this thread's message";

const char *usm_status_name(usm_status status)
{
    switch (status) {
#define CASE(name, number, meaning)                                                                \
    case name:                                                                                     \
        return #name;
        USM_STATUS_LIST(CASE)
#undef CASE
    }
    return "unknown status";
}

const char *usm_status_string(usm_status status)
{
    switch (status) {
#define CASE(name, number, meaning)                                                                \
    case name:                                                                                     \
        return meaning;
        USM_STATUS_LIST(CASE)
#undef CASE
    }
    return "unknown status";
}

const char *usm_last_error(void)
{
    if (usm__self.orphan != USM_OK)
        return no_block;
    return usm__self.block != NULL ? usm__self.block->message : "";
}

usm_status usm_last_status(void)
{
    if (usm__self.orphan != USM_OK)
        return usm__self.orphan;
    return usm__self.block != NULL ? usm__self.block->status : USM_OK;
}

/* A message that was cut off ends in "..." after its last whole UTF-8 character; no message ends in
 * a newline. */
static void tidy_message(char *text, int wanted)
{
    size_t n = strlen(text);

    if (wanted >= USM__STORY_SIZE) {
        n = USM__STORY_SIZE - 4;
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--;
        memcpy(text + n, "...", 4);
        n += 3;
    }
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        text[--n] = '\0';
}

void usm__note_v(usm_status status, const char *format, va_list args)
{
    /* Formatted in a separate buffer: an argument may be the old message. */
    char         text[USM__STORY_SIZE];
    int          error = errno;
    usm__thread *block = usm__thread_self();
    int          wanted;

    if (block == NULL) {
        usm__self.orphan = status;
        errno            = error;
        return;
    }
    wanted = vsnprintf(text, sizeof(text), format, args);
    if (wanted < 0)
        text[0] = '\0';
    tidy_message(text, wanted);
    memcpy(block->message, text, strlen(text) + 1);
    block->status    = status;
    usm__self.orphan = USM_OK;
    errno            = error;
}

void usm__note(usm_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    usm__note_v(status, format, args);
    va_end(args);
}

usm_status usm__struct_check(const char *call, const char *what, const void *given, size_t least,
                             const char *init)
{
    size_t size = given ? *(const size_t *)given : 0;

    if (size >= least)
        return USM_OK;
    if (!given)
        return usm__fail(USM_E_INVALID, "%s: %s is NULL; start with %s", call, what, init);
    return usm__fail(USM_E_ABI, "%s: %s has a struct_size of %zu; start with %s", call, what, size,
                     init);
}

void usm__message_save(usm__message *s)
{
    const char *text = usm_last_error();

    s->status = usm_last_status();
    memcpy(s->text, text, strlen(text) + 1);
}

void usm__message_restore(const usm__message *s)
{
    if (s->status != USM_OK) {
        usm__note(s->status, "%s", s->text);
        return;
    }
    usm__self.orphan = USM_OK;
    if (usm__self.block != NULL) {
        usm__self.block->status     = USM_OK;
        usm__self.block->message[0] = '\0';
    }
}
