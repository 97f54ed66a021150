/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The states of iterative chunks (usm_parallel_desc.state_arg) that have not ended: what a chunk
 * had written at the end of a round, and its private copies.  They are kept in memory, and in a
 * file beside that of the launch (resume.c).
 *
 *     head     as in saved.h: the launch's shape (32 characters), its indices, the number of the
 *              launch's file, how many states follow
 *     states   records, as in resume.h
 *
 * States are stored by indices, not by chunk: a chunk that is cut differently the next time takes
 * the states that exist of its indices, and starts the others from the beginning.  That requires
 * private copies by leaves; a launch with one copy per chunk keeps no states.
 *
 * The file is replaced by a new one, so that it is whole whenever the process is killed.  A state
 * whose checksum is wrong is ignored, and so are those after it: these chunks start from the
 * beginning.  The number ties the two files together: after one of them was removed by hand, the
 * other is not used.  A chunk that has ended keeps its state in the list until the launch's file
 * has its result, so that at any time one of the two has it. */
#include "offload/resume.h"

#include "base/inline/atomic.h"
#include "base/inline/bits.h"
#include "base/inline/bytes.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { AT_COUNT = USM__SAVED_MAGIC + 32 + 16 }; /* the number of states, in the head */

typedef struct state {
    struct state *next;
    uint64_t      first, end;
    size_t        size;
    char          bytes[]; /* the payload */
} state;

struct usm__states {
    /* fixed after open */
    usm__plan *plan;
    char      *path;
    uint64_t   number;
    /* guarded by lock */
    usm__mutex    lock; /* no other mutex of its rank is locked with it */
    state        *list;
    char        **from, **to; /* by argument: where the calls that move bytes read and write */
    _Atomic(bool) has_changed;
};

/* ---- bytes: the lock is held -------------------------------------------------------------- */

/* Finds where the bytes of each argument begin in a payload of `count` indices. */
static void view_payload(const usm__plan *p, char *bytes, uint64_t count, char **at)
{
    size_t used = 0, offset;

    for (size_t i = 0; i < p->desc.nargs; i++) {
        if (!usm__is_saved(&p->desc.args[i]))
            continue;
        at[i] = bytes + used;
        used += (size_t)count * p->desc.args[i].stride;
    }
    for (size_t i = 0; i < p->desc.nargs; i++)
        if (p->desc.args[i].follow == USM_FOLLOW_PRIVATE) {
            (void)usm__plan_copies(p, count, i, &offset);
            at[i] = bytes + used + offset;
        }
}

static void view_chunk(const usm__plan *p, const usm__piece *pieces, char *copies, uint64_t count,
                       char **at)
{
    size_t offset;

    for (size_t i = 0; i < p->desc.nargs; i++)
        if (usm__is_saved(&p->desc.args[i])) {
            at[i] = pieces[i].ptr;
        } else if (p->desc.args[i].follow == USM_FOLLOW_PRIVATE) {
            (void)usm__plan_copies(p, count, i, &offset);
            at[i] = copies + offset;
        }
}

/* Copies [first, end) from one view to the other; the views begin at from_first and to_first. */
static void move(const usm__states *s, uint64_t from_first, uint64_t to_first, uint64_t first,
                 uint64_t end)
{
    for (size_t i = 0; i < s->plan->desc.nargs; i++) {
        const usm_split_arg *a = &s->plan->desc.args[i];

        if (usm__is_saved(a))
            memcpy(s->to[i] + (first - to_first) * a->stride,
                   s->from[i] + (first - from_first) * a->stride, (end - first) * a->stride);
        else if (a->follow == USM_FOLLOW_PRIVATE)
            memcpy(s->to[i] + (first - to_first) / a->leaf * a->size,
                   s->from[i] + (first - from_first) / a->leaf * a->size,
                   usm__copies_of(a, end - first) * a->size);
    }
}

static state *make(const usm__states *s, uint64_t first, uint64_t end)
{
    size_t size = usm__resume_size(s->plan, end - first);
    state *e    = usm__heap_alloc(sizeof *e + size);

    if (!e)
        return NULL;
    e->first = first;
    e->end   = end;
    e->size  = size;
    return e;
}

static void add(usm__states *s, state *e)
{
    e->next = s->list;
    s->list = e;
}

/* Adds a part of a state as a state of its own; without memory the part is dropped. */
static void add_part(usm__states *s, state *of, uint64_t first, uint64_t end)
{
    state *e = first < end ? make(s, first, end) : NULL;

    if (!e)
        return;
    view_payload(s->plan, of->bytes, of->end - of->first, s->from);
    view_payload(s->plan, e->bytes, end - first, s->to);
    move(s, of->first, first, first, end);
    add(s, e);
}

static void cut_out(usm__states *s, uint64_t first, uint64_t end)
{
    state *list = s->list;

    s->list = NULL;
    while (list) {
        state *e = list;

        list = e->next;
        if (e->end <= first || e->first >= end) {
            add(s, e);
            continue;
        }
        add_part(s, e, e->first, first);
        add_part(s, e, end, e->end);
        usm__heap_free(e);
        usm_store_relaxed(&s->has_changed, true);
    }
}

/* ---- called by slots ----------------------------------------------------------------------- */

void usm__states_keep(usm__states *s, const usm__chunk *chunk, const usm__piece *pieces,
                      const void *copies)
{
    uint64_t end = chunk->first + chunk->count;
    state   *e;

    usm__mutex_lock(&s->lock);
    for (e = s->list; e; e = e->next)
        if (e->first == chunk->first && e->end == end)
            break;
    if (!e) {
        e = make(s, chunk->first, end);
        if (e) {
            cut_out(s, chunk->first, end);
            add(s, e);
        }
    }
    if (e) { /* else the state that was kept before is still valid */
        view_chunk(s->plan, pieces, (char *)(uintptr_t)copies, chunk->count, s->from);
        view_payload(s->plan, e->bytes, chunk->count, s->to);
        move(s, chunk->first, chunk->first, chunk->first, end);
        usm_store_relaxed(&s->has_changed, true);
    }
    usm__mutex_unlock(&s->lock);
}

bool usm__states_bring(usm__states *s, const usm__chunk *chunk, const usm__piece *pieces,
                       void *copies)
{
    uint64_t end = chunk->first + chunk->count;
    bool     any = false;

    usm__mutex_lock(&s->lock);
    view_chunk(s->plan, pieces, copies, chunk->count, s->to);
    for (state *e = s->list; e; e = e->next) {
        uint64_t from = e->first > chunk->first ? e->first : chunk->first;
        uint64_t to   = e->end < end ? e->end : end;

        if (from >= to)
            continue;
        view_payload(s->plan, e->bytes, e->end - e->first, s->from);
        move(s, e->first, chunk->first, from, to);
        any = true;
    }
    usm__mutex_unlock(&s->lock);
    return any;
}

void usm__states_drop(usm__states *s, uint64_t first, uint64_t count)
{
    usm__mutex_lock(&s->lock);
    cut_out(s, first, first + count);
    usm__mutex_unlock(&s->lock);
}

bool usm__states_have_changed(const usm__states *s)
{
    return usm_load_relaxed(&s->has_changed);
}

/* ---- the file ----------------------------------------------------------------------------- */

static void put_head(const usm__states *s, uint64_t n, usm__saved_head *head)
{
    usm__saved_head_begin(head, USM__SAVED_STATES);
    usm__saved_head_add(head, s->plan->shape, sizeof s->plan->shape - 1);
    usm__saved_head_number(head, s->plan->total);
    usm__saved_head_number(head, s->number);
    usm__saved_head_number(head, n);
    usm__saved_head_end(head);
}

/* Serializes all states; NULL: no memory. */
static unsigned char *put_all(usm__states *s, size_t *size)
{
    unsigned char  *bytes, *at;
    uint64_t        n = 0;
    usm__saved_head head;

    usm__mutex_lock(&s->lock);
    *size = 0;
    for (const state *e = s->list; e; e = e->next, n++)
        *size += USM__RECORD_SIZE + e->size;
    put_head(s, n, &head);
    *size += head.size;
    at = bytes = usm__heap_alloc(*size);
    if (bytes) {
        memcpy(at, head.bytes, head.size);
        at += head.size;
        usm_store_relaxed(&s->has_changed, false);
    }
    for (const state *e = s->list; bytes && e; e = e->next) {
        memcpy(at + USM__RECORD_SIZE, e->bytes, e->size);
        usm__saved_seal(at, e->first, e->end - e->first, e->size);
        at += USM__RECORD_SIZE + e->size;
    }
    usm__mutex_unlock(&s->lock);
    return bytes;
}

bool usm__states_write(usm__states *s)
{
    size_t         size  = 0;
    unsigned char *bytes = put_all(s, &size);
    bool           is_ok = bytes && usm__os_write_file(s->path, bytes, size) == 0;
    int            error = bytes ? errno : ENOMEM;

    usm__heap_free(bytes);
    errno = error;
    return is_ok;
}

/* Reads states up to the first damaged one; false: there was one. */
static bool read_states(usm__states *s, const unsigned char *at, size_t size, uint64_t n)
{
    for (; n > 0; n--) {
        uint64_t   multiple = s->plan->multiple, end;
        usm__chunk chunk    = {0};
        size_t     payload;
        state     *e;

        if (size < USM__RECORD_SIZE || !usm__resume_read(s->plan, at, &chunk, &payload) ||
            payload > size - USM__RECORD_SIZE || !usm__saved_is_whole(at, at + USM__RECORD_SIZE))
            return false;
        end = chunk.first + chunk.count;
        if (chunk.first % multiple || (end % multiple && end != s->plan->total))
            return false;
        e = make(s, chunk.first, end);
        if (!e)
            return false;
        memcpy(e->bytes, at + USM__RECORD_SIZE, payload);
        cut_out(s, chunk.first, end);
        add(s, e);
        at += USM__RECORD_SIZE + payload;
        size -= USM__RECORD_SIZE + payload;
    }
    return size == 0;
}

static usm_status read_file(usm__states *s)
{
    size_t          size  = 0;
    unsigned char  *bytes = usm__os_read_file(s->path, SIZE_MAX, &size);
    usm_status      st    = USM_OK;
    uint64_t        n;
    usm__saved_head head;

    if (!bytes && errno == ENOENT)
        return USM_OK;
    if (!bytes)
        return usm__fail(USM_E_IO, "resume: \"%s\" cannot be read (errno %d)", s->path, errno);
    n = size < AT_COUNT + 8 ? 0 : usm_get_le(bytes + AT_COUNT, 8);
    put_head(s, n, &head);
    switch (usm__saved_look(&head, bytes, size)) {
    case USM__SAVED_FOREIGN:
        st = usm__fail(USM_E_INVALID,
                       "resume: \"%s\" should contain unfinished chunks, but it is something else; "
                       "remove it, or name another file to resume from",
                       s->path);
        break;
    case USM__SAVED_OTHER:
        usm__warn("resume: \"%s\" is by another version of libusm: unfinished chunks begin again",
                  s->path);
        break;
    case USM__SAVED_CUT:
    case USM__SAVED_DAMAGED:
        usm__warn("resume: \"%s\" is damaged: unfinished chunks begin again", s->path);
        break;
    case USM__SAVED_WHOLE:
        if (memcmp(bytes, head.bytes, head.size) != 0)
            usm__warn("resume: \"%s\" belongs to another launch and is ignored", s->path);
        else if (!read_states(s, bytes + head.size, size - head.size, n))
            usm__warn("resume: \"%s\" is damaged: some unfinished chunks begin again", s->path);
        break;
    }
    usm__heap_free(bytes);
    return st;
}

/* ---- open and close ----------------------------------------------------------------------- */

static char *path_beside(const char *path)
{
    size_t size = strlen(path) + sizeof ".states";
    char  *text = usm__heap_alloc(size);

    if (text)
        (void)snprintf(text, size, "%s.states", path);
    return text;
}

static bool is_left_over(const char *name, const void *arg)
{
    const char *ours = arg;
    size_t      n    = strlen(ours);

    return strncmp(name, ours, n) == 0 && usm__saved_is_aside(name + n);
}

/* Removes what a process left that was killed while it wrote. */
static void sweep(const usm__states *s)
{
    char *folder = usm__heap_strdup(s->path), *last;

    if (!folder)
        return;
    last = strrchr(folder, '/');
    if (last)
        last[last == folder] = '\0';
    usm__saved_sweep(last ? folder : ".", is_left_over, last ? strrchr(s->path, '/') + 1 : s->path);
    usm__heap_free(folder);
}

static void discard(usm__states *s)
{
    while (s->list) {
        state *e = s->list;

        s->list = e->next;
        usm__heap_free(e);
    }
    usm__mutex_fini(&s->lock);
    usm__heap_free(s->from);
    usm__heap_free(s->to);
    usm__heap_free(s->path);
    usm__heap_free(s);
}

usm_status usm__states_open(usm__plan *plan, const char *path, uint64_t number, usm__states **out)
{
    usm__states *s = usm__heap_alloc(sizeof *s);
    usm_status   st;

    if (!s)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for states of chunks");
    usm__mutex_init(&s->lock, USM__RANK_LAUNCH, "states");
    s->plan   = plan;
    s->number = number;
    s->path   = path_beside(path);
    s->from   = usm__heap_alloc(plan->desc.nargs * sizeof *s->from);
    s->to     = usm__heap_alloc(plan->desc.nargs * sizeof *s->to);
    if (s->path && s->from && s->to)
        st = read_file(s);
    else
        st = usm__fail(USM_E_NO_MEMORY, "no host memory for states of chunks");
    if (st != USM_OK) {
        discard(s);
        return st;
    }
    sweep(s);
    usm_store_relaxed(&s->has_changed, false);
    *out = s;
    return USM_OK;
}

void usm__states_close(usm__states *s, bool is_done)
{
    if (!s)
        return;
    if (is_done)
        (void)unlink(s->path);
    discard(s);
}
