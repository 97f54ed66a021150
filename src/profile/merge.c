/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Joining trace files: the parts follow each other, each behind a chunk SOURCE with its own header.
 * The content of a part is not changed; reading makes numbers unique and sorts by time
 * (profile/trace.c).  Only whole chunks with a right checksum are taken.  Called by usm-prof
 * merge. */
#include "profile/trace.h"

#include "base/log.h"
#include "base/os.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct joined {
    unsigned char *data;
    size_t         size, room;
} joined;

static bool add(joined *j, const void *data, size_t size)
{
    size_t wanted = j->room ? j->room : 65536;
    void  *more;

    while (wanted - j->size < size)
        wanted *= 2;
    if (wanted != j->room) {
        more = usm__heap_realloc(j->data, wanted);
        if (more == NULL)
            return false;
        j->data = more;
        j->room = wanted;
    }
    if (size > 0)
        memcpy(j->data + j->size, data, size);
    j->size += size;
    return true;
}

/* Bytes of the whole, undamaged chunks behind the header. */
static size_t whole_chunks(const unsigned char *data, size_t size)
{
    size_t           at = sizeof(usm__trace_header);
    usm__trace_chunk c;

    while (size - at >= sizeof(c)) {
        memcpy(&c, data + at, sizeof(c));
        if (c.size > USM__TRACE_CHUNK_MAX || c.size > size - at - sizeof(c) ||
            usm__trace_check(data + at + sizeof(c), c.size) != c.check)
            break;
        at += sizeof(c) + c.size;
    }
    return at - sizeof(usm__trace_header);
}

static bool add_part(joined *j, const unsigned char *data, size_t size)
{
    usm__trace_header h;
    usm__trace_chunk  c = {USM__CHUNK_SOURCE, 0, sizeof(h), usm__trace_check(data, sizeof(h))};

    memcpy(&h, data, sizeof(h));
    if ((h.flags & USM__TRACE_MERGED) == 0 && /* else its parts have their own      */
        !(add(j, &c, sizeof(c)) && add(j, data, sizeof(h))))
        return false;
    return add(j, data + sizeof(h), whole_chunks(data, size));
}

/* Adds one file.  It is also read as a trace, so that a file that would not be readable is refused
 * here. */
static usm_status add_file(joined *j, const char *path)
{
    usm__profile *t    = NULL;
    size_t        size = 0;
    usm_status    st   = usm__profile_open(path, &t);
    void         *data;
    char          why[128];

    if (st != USM_OK)
        return st;
    if (t->damage[0] != '\0')
        usm__warn("%s: %s; what comes before is taken", path, t->damage);
    usm__profile_close(t);
    data = usm__os_read_file(path, SIZE_MAX, &size);
    if (data == NULL || size < sizeof(usm__trace_header))
        st = usm__fail(USM_E_SYSTEM, "the trace %s cannot be read: %s", path,
                       data ? "it became shorter" : strerror_r(errno, why, sizeof(why)));
    else if (!add_part(j, data, size))
        st = usm__fail(USM_E_NO_MEMORY, "no memory to join %s to others", path);
    usm__heap_free(data);
    return st;
}

usm_status usm__profile_merge(size_t n, char *const *paths, const char *out)
{
    joined             j  = {NULL, 0, 0};
    usm_status         st = USM_OK;
    usm__trace_header *first, h;
    char               why[128];

    if (n == 0)
        return usm__fail(USM_E_INVALID, "there is no trace to merge into %s", out);
    memset(&h, 0, sizeof(h)); /* of the file: that of the first part, once it is known */
    if (!add(&j, &h, sizeof(h)))
        st = usm__fail(USM_E_NO_MEMORY, "no memory to join traces");
    for (size_t i = 0; i < n && st == USM_OK; i++)
        st = add_file(&j, paths[i]);
    if (st == USM_OK) {
        memcpy(&h, j.data + sizeof(h) + sizeof(usm__trace_chunk), sizeof(h));
        first = (usm__trace_header *)(void *)j.data;
        h.flags |= USM__TRACE_MERGED;
        memcpy(first, &h, sizeof(h));
        if (usm__os_write_file(out, j.data, j.size) != 0)
            st = usm__fail(USM_E_SYSTEM, "the merged trace %s cannot be written: %s", out,
                           strerror_r(errno, why, sizeof(why)));
    }
    usm__heap_free(j.data);
    return st;
}
