/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The file from which a launch is resumed: what its ended chunks wrote, and their private copies.
 *
 *     head     as in saved.h: the launch's shape (32 characters), hashes of its program and of its
 *              inputs (resume_key.c), its indices, a random number that ties the file of unfinished
 *              chunks (states.c) to this one
 *     records  see resume.h
 *
 * Records are only appended.  A process that is killed leaves at most one incomplete record; it and
 * everything after it are ignored and overwritten.  Records are gathered in memory for `resume_ms`,
 * or until they are 4 MiB.  A launch whose file has a damaged head starts from the beginning. */
#include "offload/resume.h"

#include "base/inline/bits.h"
#include "base/inline/bytes.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_file.h"
#include "base/os_ipc.h"
#include "base/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define EVERY_MS 1000u
#define GATHERED ((size_t)4 << 20)

enum {
    AT_SHAPE   = USM__SAVED_MAGIC,
    AT_PROGRAM = 40,
    AT_INPUTS  = 56,
    AT_TOTAL   = 72,
    AT_NUMBER  = 80
};

struct usm__resume {
    usm__plan      *plan;
    char           *path;
    int             fd;
    bool            has_failed; /* logged once; nothing more is written */
    usm__resume_key key;
    uint64_t        number, every_ns, last_ns;
    usm__states    *states; /* of iterative launches; NULL: none are kept */
    uint64_t        last_states_ns;
    char           *bytes;
    size_t          used, cap;
};

/* ---- records ------------------------------------------------------------------------------ */

size_t usm__resume_size(const usm__plan *p, uint64_t count)
{
    size_t size = usm__plan_copies_size(p, count);

    for (size_t i = 0; i < p->desc.nargs; i++)
        if (usm__is_saved(&p->desc.args[i]))
            size += (size_t)count * p->desc.args[i].stride;
    return size;
}

bool usm__resume_read(const usm__plan *p, const unsigned char *record, usm__chunk *chunk,
                      size_t *size)
{
    usm__saved_record r = usm__saved_record_at(record);

    chunk->first = r.a;
    chunk->count = r.b;
    if (r.b == 0 || r.a >= p->total || r.b > p->total - r.a)
        return false;
    *size = usm__resume_size(p, r.b);
    return r.size == *size;
}

static void put_head(const usm__resume *r, usm__saved_head *head)
{
    usm__saved_head_begin(head, USM__SAVED_LAUNCH);
    usm__saved_head_add(head, r->plan->shape, AT_PROGRAM - AT_SHAPE);
    usm__saved_head_hash(head, &r->key.program);
    usm__saved_head_hash(head, &r->key.inputs);
    usm__saved_head_number(head, r->plan->total);
    usm__saved_head_number(head, r->number);
    usm__saved_head_end(head);
}

/* Copies the arguments' bytes of a chunk to or from a payload; *used: their number. */
static usm_status move_bytes(usm__plan *p, const usm__chunk *chunk, char *payload, bool is_in,
                             size_t *used)
{
    *used = 0;
    for (size_t i = 0; i < p->desc.nargs; i++) {
        usm_access_mode mode  = is_in ? USM_WRITE_NO_INIT : USM_READ;
        usm__piece      piece = {0};
        size_t          offset, size, skip;
        usm_status      st;

        if (!usm__is_saved(&p->desc.args[i]))
            continue;
        usm__plan_window(p, i, chunk, &offset, &size, &skip);
        st = usm__bytes_local.open(p, i, offset, size, mode, &piece);
        if (st != USM_OK)
            return st;
        if (is_in)
            memcpy(piece.ptr, payload + *used, size);
        else
            memcpy(payload + *used, piece.ptr, size);
        (void)usm__bytes_local.close(p, i, offset, mode, &piece, USM_OK);
        *used += size;
    }
    return USM_OK;
}

/* ---- reading ------------------------------------------------------------------------------- */

static bool read_all(int fd, void *data, size_t size, uint64_t at)
{
    return usm__os_pread(fd, data, size, at) == (ssize_t)size;
}

/* Reads the record at *at, if it is whole, and passes it to the arguments and to fn; false: there
 * is none. */
static bool read_record(usm__resume *r, usm__resume_fn fn, void *arg, uint64_t *at, usm_status *st)
{
    unsigned char head[USM__RECORD_SIZE];
    usm__chunk    chunk = {0};
    size_t        size, used;
    char         *payload;
    bool          is_whole;

    if (!read_all(r->fd, head, sizeof head, *at) || !usm__resume_read(r->plan, head, &chunk, &size))
        return false;
    payload = usm__heap_alloc(size);
    if (!payload) {
        *st = usm__fail(USM_E_NO_MEMORY, "no host memory for %zu bytes of a chunk", size);
        return false;
    }
    is_whole =
        read_all(r->fd, payload, size, *at + sizeof head) && usm__saved_is_whole(head, payload);
    if (is_whole)
        *st = move_bytes(r->plan, &chunk, payload, true, &used);
    is_whole = is_whole && *st == USM_OK && fn(arg, chunk.first, chunk.count, payload + used, st);
    usm__heap_free(payload);
    if (is_whole && r->states)
        usm__states_drop(r->states, chunk.first, chunk.count);
    *at += is_whole ? sizeof head + size : 0;
    return is_whole;
}

/* ---- writing ------------------------------------------------------------------------------- */

static void give_up(usm__resume *r, const char *ending)
{
    if (!r->has_failed)
        usm__warn("resume: \"%s%s\" cannot be written (errno %d): the launch goes on without",
                  r->path, ending, errno);
    r->has_failed = true;
}

static void flush(usm__resume *r)
{
    if (!r->has_failed && r->used && usm__os_write(r->fd, r->bytes, r->used) != 0)
        give_up(r, "");
    r->used = 0;
}

/* Ended chunks are written first: they are no longer among the unfinished ones. */
static void write_states(usm__resume *r)
{
    flush(r);
    if (!r->has_failed && !usm__states_write(r->states))
        give_up(r, ".states");
}

static bool make_room(usm__resume *r, size_t size)
{
    void *bytes;

    if (r->cap - r->used >= size)
        return true;
    if (r->used)
        flush(r);
    if (r->cap >= size)
        return true;
    size  = usm_max_size(size, GATHERED);
    bytes = usm__heap_realloc(r->bytes, size);
    if (!bytes)
        return false;
    r->bytes = bytes;
    r->cap   = size;
    return true;
}

void usm__resume_add(usm__resume *r, const usm__chunk *chunk, const void *copies)
{
    size_t         size = usm__resume_size(r->plan, chunk->count), used;
    size_t         last = usm__plan_copies_size(r->plan, chunk->count);
    unsigned char *head;
    uint64_t       now = usm__os_now_ns();

    if (r->has_failed || !make_room(r, USM__RECORD_SIZE + size))
        return; /* the chunk is done again if the launch is resumed */
    head = (unsigned char *)r->bytes + r->used;
    if (move_bytes(r->plan, chunk, (char *)head + USM__RECORD_SIZE, false, &used) != USM_OK)
        return;
    if (last)
        memcpy(head + USM__RECORD_SIZE + used, copies, last);
    usm__saved_seal(head, chunk->first, chunk->count, size);
    r->used += USM__RECORD_SIZE + size;
    if (r->states)
        usm__states_drop(r->states, chunk->first, chunk->count);
    if (now - r->last_ns < r->every_ns && r->used < GATHERED)
        return;
    flush(r);
    r->last_ns = now;
}

/* ---- unfinished chunks --------------------------------------------------------------------- */

uint64_t usm__resume_keeps_ns(const usm__resume *r)
{
    return r->states ? r->every_ns : 0;
}

void usm__resume_keep(usm__resume *r, const usm__chunk *chunk, const usm__piece *pieces,
                      const void *copies)
{
    usm__states_keep(r->states, chunk, pieces, copies);
}

bool usm__resume_bring(usm__resume *r, const usm__chunk *chunk, const usm__piece *pieces,
                       void *copies)
{
    return usm__states_bring(r->states, chunk, pieces, copies);
}

bool usm__resume_is_due(const usm__resume *r, uint64_t now_ns)
{
    return r->states && !r->has_failed && now_ns - r->last_states_ns >= r->every_ns &&
           usm__states_have_changed(r->states);
}

void usm__resume_write(usm__resume *r)
{
    write_states(r);
    r->last_ns = r->last_states_ns = usm__os_now_ns();
}

/* States are kept only if all private copies are by leaves. */
static bool has_states(const usm__plan *p)
{
    if (p->state_arg == USM__NO_ARG)
        return false;
    for (size_t i = 0; i < p->desc.nargs; i++)
        if (p->desc.args[i].follow == USM_FOLLOW_PRIVATE && p->desc.args[i].leaf == 0)
            return false;
    return true;
}

/* ---- open and close ------------------------------------------------------------------------ */

static usm_status refuse(const usm__resume *r, const char *why)
{
    return usm__fail(USM_E_INVALID, "resume: \"%s\" is %s; remove it, or name another", r->path,
                     why);
}

/* Compares the launches that two heads describe; `found` is whole. */
static usm_status compare(const usm__resume *r, const unsigned char *head,
                          const unsigned char *found)
{
    if (memcmp(head + AT_SHAPE, found + AT_SHAPE, AT_PROGRAM - AT_SHAPE) != 0 ||
        memcmp(head + AT_TOTAL, found + AT_TOTAL, AT_NUMBER - AT_TOTAL) != 0)
        return refuse(r, "the file of another launch (kernel, ranges, arguments or values differ)");
    if (memcmp(head + AT_PROGRAM, found + AT_PROGRAM, AT_INPUTS - AT_PROGRAM) != 0)
        return refuse(r, "the file of another launch (the program's images or options differ)");
    if (memcmp(head + AT_INPUTS, found + AT_INPUTS, AT_TOTAL - AT_INPUTS) != 0)
        return refuse(r, "the file of another launch (inputs, native code or resume_key differ)");
    return USM_OK;
}

/* Checks to which launch the file belongs.  *end: where its head ends; 0: the file must be
 * started. */
static usm_status read_head(usm__resume *r, uint64_t size, uint64_t *end)
{
    unsigned char   found[USM__SAVED_HEAD_MAX] = {0};
    usm__saved_head head;
    size_t          there;
    usm_status      st;

    *end = 0;
    if (usm__os_random(&r->number, sizeof r->number) != 0)
        r->number = usm__os_now_ns();
    put_head(r, &head);
    there = size < head.size ? (size_t)size : head.size;
    if (!read_all(r->fd, found, there, 0))
        return usm__fail(USM_E_IO, "resume: \"%s\" cannot be read (errno %d)", r->path, errno);
    switch (usm__saved_look(&head, found, there)) {
    case USM__SAVED_CUT:
        return USM_OK;
    case USM__SAVED_DAMAGED:
        usm__warn("resume: \"%s\" is damaged in its first %zu bytes: the launch begins again",
                  r->path, head.size);
        return USM_OK;
    case USM__SAVED_OTHER:
        return refuse(r, "the file of a launch by another version of libusm");
    case USM__SAVED_FOREIGN:
        return refuse(r, "no file of a launch");
    case USM__SAVED_WHOLE:
        break;
    }
    st = compare(r, head.bytes, found);
    if (st != USM_OK)
        return st;
    r->number = usm_get_le(found + AT_NUMBER, 8);
    *end      = head.size;
    return USM_OK;
}

/* Reads the existing records; *end: where writing continues. */
static usm_status take_up(usm__resume *r, usm__resume_fn fn, void *arg, uint64_t *end)
{
    usm__os_stat info;
    usm_status   st;

    if (usm__os_stat_fd(r->fd, &info) != 0)
        return usm__fail(USM_E_IO, "resume: \"%s\" cannot be read (errno %d)", r->path, errno);
    st = read_head(r, info.size, end);
    if (st == USM_OK && has_states(r->plan))
        st = usm__states_open(r->plan, r->path, r->number, &r->states);
    if (st != USM_OK || *end == 0)
        return st;
    while (read_record(r, fn, arg, end, &st))
        ;
    if (st == USM_OK && *end < info.size)
        usm__warn("resume: \"%s\" is damaged or cut short after byte %" PRIu64
                  ": what was behind it is done again",
                  r->path, *end);
    return st;
}

static usm_status begin(usm__resume *r, uint64_t end)
{
    usm__saved_head head;

    put_head(r, &head);
    if (ftruncate(r->fd, (off_t)end) == 0 && lseek(r->fd, (off_t)end, SEEK_SET) == (off_t)end &&
        (end > 0 || usm__os_write(r->fd, head.bytes, head.size) == 0))
        return USM_OK;
    return usm__fail(USM_E_IO, "resume: \"%s\" cannot be written (errno %d)", r->path, errno);
}

static usm_status open_file(usm__resume *r)
{
    r->fd = usm__os_open_alone(r->path);
    if (r->fd >= 0)
        return USM_OK;
    return usm__fail(errno == EWOULDBLOCK ? USM_E_BUSY : USM_E_IO,
                     errno == EWOULDBLOCK ? "resume: another launch has \"%s\" open (errno %d)"
                                          : "resume: \"%s\" cannot be opened (errno %d)",
                     r->path, errno);
}

usm_status usm__resume_open(usm__plan *plan, usm__resume_fn fn, void *arg, usm__resume **out)
{
    usm__resume *r   = usm__heap_alloc(sizeof *r);
    uint64_t     end = 0;
    usm_status   st;

    if (!r)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a file to resume from");
    r->plan     = plan;
    r->every_ns = (plan->desc.resume_ms ? plan->desc.resume_ms : EVERY_MS) * 1000000ull;
    r->last_ns = r->last_states_ns = usm__os_now_ns();
    r->path                        = usm__heap_strdup(plan->desc.resume);
    r->fd                          = -1;
    if (!r->path) {
        usm__heap_free(r);
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a path");
    }
    st = usm__resume_key_make(plan, &r->key); /* first, so that a refused launch leaves no file */
    if (st == USM_OK)
        st = open_file(r);
    if (st == USM_OK)
        st = take_up(r, fn, arg, &end);
    if (st == USM_OK)
        st = begin(r, end);
    if (st != USM_OK) {
        r->has_failed = true;
        usm__resume_close(r, false);
        return st;
    }
    *out = r;
    return USM_OK;
}

void usm__resume_close(usm__resume *r, bool is_done)
{
    if (!r)
        return;
    if (is_done)
        (void)unlink(r->path);
    else if (r->states && usm__states_have_changed(r->states))
        write_states(r);
    else
        flush(r);
    usm__states_close(r->states, is_done);
    if (r->fd >= 0)
        (void)usm__os_close(r->fd);
    usm__heap_free(r->bytes);
    usm__heap_free(r->path);
    usm__heap_free(r);
}
