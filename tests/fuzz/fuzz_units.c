/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzzes what a unit says to usm-run --on, and what it is told of an app.  Called by libFuzzer.
 *
 * The first byte says which.  0: the rest is an app, which must encode to the bytes it was decoded
 * from.  Else: the rest is what a unit sends, frame after frame, from its hello on; once it is
 * ready, it is asked for blocks and launches.  However it answers, no more memory is taken for it
 * than it was asked for, and no more events come than there were questions. */
#include "base/os.h"
#include "units/peer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NODES = 4, BLOCK = 16, QUESTIONS = 4 };

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* ---- an app ---------------------------------------------------------------------------------- */

static void read_app(const uint8_t *data, size_t size)
{
    unit_app       a;
    unsigned char *again;
    uint64_t       n = 0;

    if (unit_app_decode(data, size, &a)) {
        again = unit_app_encode(&a, &n);
        must(again && n == size && memcmp(again, data, size) == 0);
        usm__heap_free(again);
        for (uint64_t i = 0; i < a.nimages; i++)
            must(unit_app_first(&a, i) <= i);
    }
    unit_app_free(&a);
}

/* ---- a unit ---------------------------------------------------------------------------------- */

static bool put(void *user, const unit_frame *f, const void *data, bool owned)
{
    unsigned char head[UNIT_HEADER];
    unit_frame    again;

    (void)user;
    unit_frame_encode(f, head);
    must(unit_frame_decode(head, &again) && again.op == f->op && again.size == f->size);
    if (owned)
        usm__heap_free((void *)(uintptr_t)data);
    return true;
}

static void ask(peer *p)
{
    static unsigned char bytes[BLOCK];

    must(peer_unroll(p, 1, 2));
    must(peer_send(p, &(usm__graph_range){0, 0, 1}, bytes, BLOCK));
    must(peer_run(p, 0, &(usm__graph_range){1, 0, 2}, UINT64_C(2) * BLOCK, true));
    must(peer_run(p, 1, &(usm__graph_range){2, 1, 1}, BLOCK, false));
    must(peer_fetch(p, &(usm__graph_range){2, 1, 1}, BLOCK));
    must(peer_drop(p, 0));
}

/* Most bytes that may follow a header that was accepted. */
static uint64_t most(const unit_frame *f)
{
    return f->op == UNIT_BLOCKS ? 2 * BLOCK : UNIT_TEXT;
}

static void play(peer *p, const uint8_t *data, size_t size)
{
    bool     is_asked = false;
    uint64_t now      = 1;

    while (size >= UNIT_HEADER && p->phase != PEER_LOST) {
        unsigned char *bytes = NULL;
        unit_frame     f;

        if (!unit_frame_decode(data, &f) || peer_expects(p, &f))
            break;
        must(f.size <= most(&f));
        data += UNIT_HEADER;
        size -= UNIT_HEADER;
        if (f.size > size)
            break;
        if (f.size) {
            bytes = usm__heap_alloc((size_t)f.size);
            must(bytes != NULL);
            memcpy(bytes, data, (size_t)f.size);
        }
        data += f.size;
        size -= (size_t)f.size;
        if (peer_take(p, &f, bytes, now += 1000))
            break;
        if (p->phase == PEER_WORKS && !is_asked)
            ask(p);
        is_asked = p->phase == PEER_WORKS;
    }
}

static void read_unit(const uint8_t *data, size_t size)
{
    uint64_t        sizes[NODES] = {BLOCK};
    unit_image      images[] = {{.key = (char *)(uintptr_t) "k/file", .data = "abc", .size = 3}};
    const unit_app  app      = {.text    = (char *)(uintptr_t) "{}",
                                .size    = 2,
                                .sizes   = sizes,
                                .nnodes  = NODES,
                                .images  = images,
                                .nimages = 1};
    peer            p        = {.app = &app, .put = put};
    usm__unit_event ev;
    unsigned        events = 0, losses = 0;

    peer_init(&p);
    must(peer_hello(&p, "fuzz"));
    play(&p, data, size);
    while (peer_next(&p, &ev)) {
        events++;
        must((ev.kind == USM__UNIT_BLOCKS) == (ev.data != NULL));
        must(memchr(ev.message, '\0', sizeof ev.message) != NULL);
        usm__heap_free(ev.data);
    }
    must(events <= 1 + QUESTIONS); /* and that it came */
    peer_lose(&p);
    while (peer_next(&p, &ev))
        losses += ev.kind == USM__UNIT_LOST;
    must(losses == 1);
    peer_fini(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 0)
        read_app(data + 1, size - 1);
    else
        read_unit(data + 1, size - 1);
    return 0;
}
