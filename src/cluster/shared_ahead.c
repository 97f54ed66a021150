/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Readahead behind accesses to shared buffers: which blocks are requested before an access asks for
 * them.
 *
 * A stream is a series of accesses one behind the other.  Once some of them in a row have found
 * bytes elsewhere, the blocks behind each are requested, too, so that they arrive while the program
 * works and the copies of one block overlap the messages of the next.  Accesses that find all here
 * end the series: a rank that goes through blocks of its own does not take its neighbour's behind
 * them.
 *
 * They are requested for reading, whatever the accesses do: their owner stays their owner, so that a
 * rank that ends takes nothing with it that it never accessed, and reads go on there. */
#include "cluster/shared.h"

enum { RUN = 2 }; /* accesses that must have found bytes elsewhere */

/* The stream that such an access continues, or the one that was used longest ago.  It may begin in
 * the last block of the access before it. */
static usm__shared_stream *find(usm_shared_buffer *s, uint64_t first)
{
    usm__shared_stream *oldest = &s->streams[0];

    for (unsigned i = 0; i < USM__SHARED_STREAMS; i++) {
        usm__shared_stream *it = &s->streams[i];

        if (it->used > 0 && (it->next == first || it->next == first + 1))
            return it;
        if (it->used < oldest->used)
            oldest = it;
    }
    *oldest = (usm__shared_stream){.run = 0};
    return oldest;
}

/* Half of the blocks at a time, so that their messages are sent together. */
static void request(usm_shared_buffer *s, usm__shared_stream *it)
{
    const uint64_t most = usm__shared_ahead(s);

    if (it->asked < it->next)
        it->asked = it->next;
    if (it->asked > it->next + most / 2)
        return;
    for (; it->asked < s->machine.blocks && it->asked - it->next < most; it->asked++)
        usm__shared_want(&s->machine, it->asked, USM_READ);
}

usm__shared_stream *usm__shared_stream_continue(usm_shared_buffer *s, uint64_t first,
                                                uint64_t behind)
{
    usm__shared_stream *it = find(s, first);

    it->used = ++s->accesses;
    it->next = behind;
    if (it->run >= RUN)
        request(s, it);
    return it;
}

void usm__shared_stream_ended(usm__shared_stream *stream, bool had_missed)
{
    stream->run = had_missed ? stream->run + 1 : 0;
}
