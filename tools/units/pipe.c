/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Frames over file descriptors: see pipe.h. */
#include "units/pipe.h"

#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { TURN = 1 << 20 }; /* bytes that are read before others have their turn */

const char unit_no_frame[]  = "it sends what is no frame";
const char unit_has_ended[] = "it has ended";

struct unit_out {
    unit_out      *next;
    unit_frame     frame;
    unsigned char  head[UNIT_HEADER];
    const void    *data;
    unsigned char *owned;
};

/* ---- begin and end --------------------------------------------------------------------------- */

static bool let_not_block(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

bool unit_pipe_open(unit_pipe *p, int in, int out)
{
    *p      = (unit_pipe){.in = in, .out = out};
    p->last = &p->first;
    return let_not_block(in) && let_not_block(out);
}

static void drop_first(unit_pipe *p)
{
    unit_out *o = p->first;

    p->first = o->next;
    if (!p->first)
        p->last = &p->first;
    p->sent = 0;
    usm__heap_free(o->owned);
    usm__heap_free(o);
}

void unit_pipe_close(unit_pipe *p)
{
    while (p->first)
        drop_first(p);
    usm__heap_free(p->bytes);
    p->bytes = NULL;
    if (p->in >= 0)
        (void)close(p->in);
    if (p->out >= 0)
        (void)close(p->out);
    p->in = p->out = -1;
}

/* ---- writing --------------------------------------------------------------------------------- */

bool unit_pipe_put(unit_pipe *p, const unit_frame *f, const void *data, bool owned)
{
    unit_out *o = usm__heap_alloc(sizeof *o);

    if (!o)
        return false;
    o->frame = *f;
    o->data  = data;
    o->owned = owned ? (unsigned char *)(uintptr_t)data : NULL;
    unit_frame_encode(f, o->head);
    *p->last = o;
    p->last  = &o->next;
    return true;
}

bool unit_pipe_holds(const unit_pipe *p, unit_op op)
{
    for (const unit_out *o = p->first; o; o = o->next)
        if (o->frame.op == op)
            return true;
    return false;
}

static ssize_t write_some(unit_pipe *p, const unit_out *o)
{
    size_t       head   = p->sent < UNIT_HEADER ? UNIT_HEADER - p->sent : 0;
    size_t       done   = p->sent < UNIT_HEADER ? 0 : p->sent - UNIT_HEADER;
    struct iovec both[] = {{(void *)(uintptr_t)(o->head + UNIT_HEADER - head), head},
                           {(unsigned char *)(uintptr_t)o->data + done, o->frame.size - done}};

    return writev(p->out, both, o->frame.size > done ? 2 : 1);
}

bool unit_pipe_write(unit_pipe *p, void (*on_begin)(void *user, const unit_frame *f), void *user)
{
    while (p->first) {
        unit_out *o = p->first;
        ssize_t   n;

        if (p->sent == 0 && on_begin)
            on_begin(user, &o->frame);
        n = write_some(p, o);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        p->sent += (size_t)n;
        if (p->sent == UNIT_HEADER + o->frame.size)
            drop_first(p);
    }
    return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

static const char *begin_bytes(unit_pipe *p, const unit_reader *reader)
{
    const char *why;

    if (!unit_frame_decode(p->head, &p->frame))
        return unit_no_frame;
    why = reader->expects(reader->user, &p->frame);
    if (why)
        return why;
    if (p->frame.size > SIZE_MAX / 2)
        return "more bytes than there is memory";
    p->bytes = p->frame.size ? usm__heap_alloc((size_t)p->frame.size) : NULL;
    if (p->frame.size && !p->bytes)
        return "no memory for what it sends";
    p->has_head = true;
    p->got      = 0;
    return NULL;
}

static const char *end_bytes(unit_pipe *p, const unit_reader *reader)
{
    unsigned char *bytes = p->bytes;

    p->bytes    = NULL;
    p->has_head = false;
    p->got      = 0;
    return reader->take(reader->user, &p->frame, bytes);
}

const char *unit_pipe_read(unit_pipe *p, const unit_reader *reader, size_t *n)
{
    const char *why = NULL;

    for (*n = 0; *n < TURN && !why;) {
        uint64_t       all  = p->has_head ? p->frame.size : UNIT_HEADER;
        unsigned char *to   = p->has_head ? p->bytes : p->head;
        uint64_t       want = all - p->got;
        ssize_t        got  = read(p->in, to + p->got, want < TURN ? (size_t)want : TURN);

        if (got < 0)
            return errno == EAGAIN || errno == EINTR ? NULL : "its pipe cannot be read";
        if (got == 0)
            return unit_has_ended;
        *n += (size_t)got;
        p->got += (uint64_t)got;
        if (p->got < all)
            continue;
        if (!p->has_head)
            why = begin_bytes(p, reader);
        if (!why && p->has_head && (p->frame.size == 0 || p->got == p->frame.size))
            why = end_bytes(p, reader);
    }
    return why;
}
