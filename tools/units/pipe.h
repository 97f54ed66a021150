/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Frames over two file descriptors that do not block: what waits to be written, and what has come
 * of the frame that is being read.  One thread at a time uses a pipe. */
#ifndef USM_TOOLS_UNITS_PIPE_H
#define USM_TOOLS_UNITS_PIPE_H

#include "units/wire.h"

typedef struct unit_out unit_out;

typedef struct unit_pipe {
    int in, out; /* -1: closed */
    /* to write */
    unit_out *first, **last;
    size_t    sent; /* bytes of the first one */
    /* to read */
    unsigned char  head[UNIT_HEADER];
    unit_frame     frame;
    unsigned char *bytes; /* of the frame; NULL: its header is still read */
    uint64_t       got;   /* of the header, or of the bytes */
    bool           has_head;
} unit_pipe;

/* Makes both ends not block. */
bool unit_pipe_open(unit_pipe *p, int in, int out);
/* Closes both ends; drops what was not written and what was not read to its end. */
void unit_pipe_close(unit_pipe *p);

/* f->size bytes of `data` follow the header.  owned: they are freed (usm__heap_free) once written;
 * otherwise they stay as they are until then.  false: no memory. */
bool               unit_pipe_put(unit_pipe *p, const unit_frame *f, const void *data, bool owned);
static inline bool unit_pipe_has_output(const unit_pipe *p)
{
    return p->first != NULL;
}
/* Whether a frame of this kind is not written to its end. */
bool unit_pipe_holds(const unit_pipe *p, unit_op op);
/* Writes what can be written.  on_begin, which may be NULL, is told of each frame whose first byte is
 * about to be written.  false: nobody reads. */
bool unit_pipe_write(unit_pipe *p, void (*on_begin)(void *user, const unit_frame *f), void *user);

/* What a reader does with frames. */
typedef struct unit_reader {
    void *user;
    /* Whether a frame may come with this header: NULL, or why it may not. */
    const char *(*expects)(void *user, const unit_frame *f);
    /* bytes: the receiver's, by usm__heap_free(); NULL where the size is 0.  NULL, or what is wrong. */
    const char *(*take)(void *user, const unit_frame *f, unsigned char *bytes);
} unit_reader;

extern const char unit_no_frame[], unit_has_ended[]; /* two of the reasons */
/* Reads what has come, 1 MiB at most.  NULL; or why nothing more can be read.  *n: how many bytes
 * came. */
const char *unit_pipe_read(unit_pipe *p, const unit_reader *reader, size_t *n);

#endif
