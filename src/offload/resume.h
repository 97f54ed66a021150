/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the file of ended chunks (resume.c) and that of unfinished ones (states.c).  A record
 * (saved.h) has some indices of a launch: their first, their count; the payload is by argument what
 * chunks write, and then the private copies. */
#ifndef USM_OFFLOAD_RESUME_H
#define USM_OFFLOAD_RESUME_H

#include "offload/parallel.h"
#include "offload/saved.h"

static inline bool usm__is_saved(const usm_split_arg *a)
{
    return a->follow == USM_FOLLOW_CHUNK && (a->mode & USM_WRITE);
}

/* The size of the payload. */
size_t usm__resume_size(const usm__plan *plan, uint64_t count);
/* False: not a record of this launch. */
bool usm__resume_read(const usm__plan *plan, const unsigned char *record, usm__chunk *chunk,
                      size_t *size);

/* ---- resume_key.c -------------------------------------------------------------------------- */

typedef struct usm__resume_key {
    usm__hash program, inputs;
} usm__resume_key;

/* Reads the inputs if the caller gave no resume_key.
 *   USM_E_INVALID  they cannot be compared, and there is no resume_key */
usm_status usm__resume_key_make(usm__plan *plan, usm__resume_key *key);

/* ---- states.c: any thread ----------------------------------------------------------------- */

typedef struct usm__states usm__states;

/* Reads the file beside `path`, if it belongs to the launch whose file has this number.
 *   USM_E_INVALID  there is a file of another kind */
usm_status usm__states_open(usm__plan *plan, const char *path, uint64_t number, usm__states **out);
/* Stores the bytes that the chunk writes and its private copies, as they are now. */
void usm__states_keep(usm__states *s, const usm__chunk *chunk, const usm__piece *pieces,
                      const void *copies);
/* Copies stored states to the chunk's bytes; false: there are none. */
bool usm__states_bring(usm__states *s, const usm__chunk *chunk, const usm__piece *pieces,
                       void *copies);
/* Removes the states of indices that have ended. */
void usm__states_drop(usm__states *s, uint64_t first, uint64_t count);
/* Whether there are states that the file does not have. */
bool usm__states_have_changed(const usm__states *s);
/* One thread at a time.  False, with errno: the file is unchanged. */
bool usm__states_write(usm__states *s);
/* is_done: the file is deleted. */
void usm__states_close(usm__states *s, bool is_done);

#endif
