/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the file of ended chunks (resume.c) and that of chunks in the middle (states.c) share: some
 * indices of a launch as bytes.
 *
 *     record   first, count, bytes of the payload, checksum of all of the record but itself
 *              payload: by argument, what chunks write; then the private copies
 *
 * Numbers are 64 bits, the lowest byte first; the payload is as the program has it in memory. */
#ifndef USM_OFFLOAD_RESUME_H
#define USM_OFFLOAD_RESUME_H

#include "offload/parallel.h"

#define USM__RECORD_SIZE ((size_t)32) /* without the payload */

static inline bool usm__is_saved(const usm_split_arg *a)
{
    return a->follow == USM_FOLLOW_CHUNK && (a->mode & USM_WRITE);
}

uint64_t usm__saved_sum(const void *data, size_t size);

/* Of the payload. */
size_t usm__saved_size(const usm__plan *plan, uint64_t count);
/* Everything but the payload, which is there already. */
void usm__saved_seal(unsigned char *record, uint64_t first, uint64_t count, size_t size);
/* False: none of this launch. */
bool usm__saved_read(const usm__plan *plan, const unsigned char *record, usm__chunk *chunk,
                     size_t *size);
bool usm__saved_is_whole(const unsigned char *record, const void *payload, size_t size);

/* ---- resume_key.c -------------------------------------------------------------------------- */

typedef struct usm__resume_key {
    usm__hash program, inputs;
} usm__resume_key;

/* Reads inputs where the caller gave no key of his own.
 *   USM_E_INVALID  they cannot be compared, and there is none */
usm_status usm__resume_key_make(usm__plan *plan, usm__resume_key *key);

/* ---- states.c: any thread ----------------------------------------------------------------- */

typedef struct usm__states usm__states;

/* Reads what the file beside `path` holds, if it is of the launch whose file has this number.
 *   USM_E_INVALID  something else lies there */
usm_status usm__states_open(usm__plan *plan, const char *path, uint64_t number, usm__states **out);
/* What is written of the chunk and its private copies, as they are now. */
void usm__states_keep(usm__states *s, const usm__chunk *chunk, const usm__piece *pieces,
                      const void *copies);
/* What was kept of the chunk goes to its bytes; false: nothing was. */
bool usm__states_bring(usm__states *s, const usm__chunk *chunk, const usm__piece *pieces,
                       void *copies);
/* They have ended. */
void usm__states_drop(usm__states *s, uint64_t first, uint64_t count);
/* There is something that the file does not say. */
bool usm__states_have_changed(const usm__states *s);
/* One thread at a time.  False, with errno: the file is as it was. */
bool usm__states_write(usm__states *s);
/* is_done: the file goes. */
void usm__states_close(usm__states *s, bool is_done);

#endif
