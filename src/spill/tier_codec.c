/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Codecs between blocks and tiers, and their bounce buffers.  A block is encoded into a bounce
 * buffer beside its frame, because the frame may be in use; the bytes that are read back are
 * decoded from a bounce buffer into the frame.
 *
 *     frame --lz4--> b --aes_gcm--> a ==tier==> a --aes_gcm--> b --lz4--> frame
 *     frame --one----------------> a ==tier==> a --one-----------------> frame
 *
 * There are few bounce buffers, allocated when first needed.  An io that finds none waits in a
 * queue, and is started by the io that frees one.  On the medium a block has its slot and no more:
 * bytes that encryption adds stay in memory, in the copy:
 *
 *     sums[0]  checksum of the stored bytes     sums[1]  bytes between the two codecs
 *     sums[2]  ... the encoded bytes beyond the size of a block
 *
 * Compression that does not save a sixteenth is discarded, and the block is stored unencoded if
 * there is no other codec.  `auto` compresses when samples show that it takes less time:
 *
 *     1 / encoder + (1 / ratio) / tier  <  1 / tier        all in bytes a second */
#include "spill/tier_private.h"

#include "base/assert.h"
#include "base/inline/bits.h"
#include "base/inline/list.h"
#include "base/os.h"
#include "base/text.h"
#include "device/registry.h"

#include <string.h>
#include <sys/mman.h>

#define LIMIT_SHARE  32u /* bounce buffers take at most this fraction of the limit            */
#define BOUNCES_MAX  8u
#define SAMPLES      4u  /* blocks that are compressed before the speed is known              */
#define SAMPLE_EVERY 32u /* afterwards one sample in so many blocks                           */
#define TIER_WRITES  8u  /* writes after which the tier's speed is known                      */

/* ---- creation ------------------------------------------------------------------------ */

static usm_status add_codec(usm__tiers *t, const char *name)
{
    usm_codec_params     params = {sizeof params, &usm__registry_api, ""};
    usm__codec          *c      = &t->codecs.list[t->codecs.n];
    const usm_codec_ops *ops    = usm__registry_codec(name);
    usm_status           st;

    if (!ops)
        return usm_last_status();
    st = ops->create(&params, &c->codec);
    if (st != USM_OK)
        return st;
    c->ops = ops;
    t->codecs.n++;
    if (t->codecs.n > 1 && (t->codecs.list[0].ops->traits & USM_CODEC_SECRET))
        return usm__fail(USM_E_SETTING,
                         "USM_SPILL_CODEC: %s has no effect after %s, which must come last", name,
                         t->codecs.list[0].ops->name);
    if (!(ops->traits & USM_CODEC_SHRINKS) &&
        ops->bound(c->codec, t->block_size) > t->block_size + USM__TAIL_MAX)
        return usm__fail(USM_E_SIZE, "codec %s adds more than %u bytes to a block of %zu", name,
                         USM__TAIL_MAX, t->block_size);
    return USM_OK;
}

static void size_bounces(usm__tiers *t)
{
    usm__codecs *c = &t->codecs;
    size_t       each;

    c->room = t->block_size + USM__PAGE; /* TAIL_MAX rounded up */
    each    = c->room * (c->n > 1 ? 2 : 1);
    c->nmax = (unsigned)usm_min_size(BOUNCES_MAX, usm_max_size(1, t->limit / LIMIT_SHARE / each));
}

usm_status usm__codecs_create(usm__tiers *t, const char *spec)
{
    usm__span  rest = usm__span_of(spec), field;
    usm_status st   = USM_OK;
    char       name[32], why[256];

    if (!usm__settings_check_codec(spec, why, sizeof why))
        return usm__fail(USM_E_SETTING, "USM_SPILL_CODEC cannot be \"%.64s\"; allowed: %s", spec,
                         why);
    if (usm__span_is(usm__span_trimmed(rest), "off"))
        return USM_OK;
    t->codecs.is_auto = usm__span_is(usm__span_trimmed(rest), "auto");
    if (t->codecs.is_auto)
        rest = usm__span_of("lz4");
    while (st == USM_OK && usm__span_next(&rest, ',', &field)) {
        memcpy(name, field.at, field.len);
        name[field.len] = '\0';
        st              = add_codec(t, name);
    }
    size_bounces(t);
    return st;
}

static void free_bounce(const usm__codecs *c, usm__bounce *b)
{
    if (b->a)
        (void)usm__os_unmap(b->a, c->room);
    if (b->b)
        (void)usm__os_unmap(b->b, c->room);
    usm__heap_free(b);
}

void usm__codecs_destroy(usm__tiers *t)
{
    usm__codecs *c = &t->codecs;

    for (usm__bounce *b = c->idle, *next; b; b = next) {
        next = b->next;
        free_bounce(c, b);
    }
    for (unsigned i = 0; i < c->n; i++)
        c->list[i].ops->destroy(c->list[i].codec);
    c->n = 0;
}

/* ---- bounce buffers -------------------------------------------------------------------- */

static usm__bounce *make_bounce(const usm__codecs *c)
{
    usm__bounce *b = usm__heap_alloc(sizeof *b);

    if (!b)
        return NULL;
    b->a = usm__os_map(c->room, PROT_READ | PROT_WRITE);
    b->b = c->n > 1 ? usm__os_map(c->room, PROT_READ | PROT_WRITE) : NULL;
    if (b->a && (c->n == 1 || b->b))
        return b;
    free_bounce(c, b);
    return NULL;
}

/* Lock held.  USM_E_AGAIN: none is free, the io waits in the queue. */
static usm_status take_idle(usm__codecs *c, usm__io *io)
{
    io->scratch = c->idle;
    if (c->idle) {
        c->idle = c->idle->next;
        return USM_OK;
    }
    usm__io_queue_append(&c->queue, io);
    return USM_E_AGAIN;
}

static usm_status enter_made(usm__tiers *t, usm__io *io)
{
    usm__codecs *c  = &t->codecs;
    usm_status   st = USM_E_NO_MEMORY;

    io->scratch = make_bounce(c);
    if (io->scratch)
        return USM_OK;
    usm__mutex_lock(&t->lock);
    if (--c->made > 0) /* an existing one will be freed */
        st = take_idle(c, io);
    usm__mutex_unlock(&t->lock);
    return st == USM_E_NO_MEMORY ? usm__fail(st, "no memory for the buffers of codecs") : st;
}

usm_status usm__codecs_enter(usm__tiers *t, usm__io *io)
{
    usm__codecs *c  = &t->codecs;
    usm_status   st = USM_OK;
    bool         make;

    usm__mutex_lock(&t->lock);
    make = !c->idle && c->made < c->nmax;
    if (make)
        c->made++;
    else
        st = take_idle(c, io);
    usm__mutex_unlock(&t->lock);
    return make ? enter_made(t, io) : st;
}

usm__io *usm__codecs_leave(usm__tiers *t, usm__io *io)
{
    usm__codecs *c      = &t->codecs;
    usm__bounce *bounce = io->scratch;
    usm__io     *next;

    io->scratch = NULL;
    usm__mutex_lock(&t->lock);
    next = usm__io_queue_pop(&c->queue);
    if (!next) {
        bounce->next = c->idle;
        c->idle      = bounce;
    }
    usm__mutex_unlock(&t->lock);
    if (next)
        next->scratch = bounce;
    return next;
}

/* ---- whether compression pays -------------------------------------------------------------- */

bool usm__codec_pays(const usm__codec_speed *s)
{
    double plain, coded;

    if (s->tier_bytes == 0 || s->in == 0)
        return false;
    plain = (double)s->tier_ns / (double)s->tier_bytes; /* ns for a byte */
    coded = (double)s->ns / (double)s->in + plain * (double)s->out / (double)s->in;
    return coded < plain;
}

/* Lock held. */
static bool decide(usm__tiers *t, const usm__io *io)
{
    usm__codecs     *c     = &t->codecs;
    usm__tier       *tier  = &t->list[io->copy->tier ? usm__tier_index(io->copy->tier) : 0];
    uint64_t         n     = c->blocks++;
    usm__codec_speed speed = c->sample;

    if (n < SAMPLES || n % SAMPLE_EVERY == 0)
        return true;
    if (tier->writes.transfers < TIER_WRITES)
        return false;
    speed.tier_bytes = tier->writes.bytes;
    speed.tier_ns    = usm__flow_busy(&tier->writes, usm__os_now_ns());
    return usm__codec_pays(&speed);
}

bool usm__codecs_wants(usm__tiers *t, const usm__io *io)
{
    bool wants;

    if (!io->is_write)
        return io->copy->codecs != 0;
    if (!t->codecs.is_auto)
        return t->codecs.n > 0;
    usm__mutex_lock(&t->lock);
    wants = decide(t, io);
    usm__mutex_unlock(&t->lock);
    return wants;
}

/* Older samples count less. */
static void note_sample(usm__tiers *t, size_t out, uint64_t ns)
{
    usm__codec_speed *s = &t->codecs.sample;

    usm__mutex_lock(&t->lock);
    if (s->in > (uint64_t)SAMPLE_EVERY * t->block_size) {
        s->in /= 2;
        s->out /= 2;
        s->ns /= 2;
    }
    s->in += t->block_size;
    s->out += out;
    s->ns += ns;
    usm__mutex_unlock(&t->lock);
}

/* ---- encoding ------------------------------------------------------------------------------- */

/* Encodes with one codec; bytes that do not get smaller by a sixteenth are not compressed:
 * USM_E_SIZE. */
static usm_status encode_one(usm__tiers *t, usm__io *io, unsigned index, const void *in,
                             size_t size, void *out, size_t *encoded)
{
    const usm__codec *c    = &t->codecs.list[index];
    usm_codec_id      id   = {io->key, io->copy->generation, index};
    size_t            room = t->codecs.room;

    if (c->ops->traits & USM_CODEC_SHRINKS) {
        room = size - usm_max_size(size / 16, USM__PAGE);
        if (size <= USM__PAGE)
            return USM_E_SIZE;
    }
    return c->ops->encode(c->codec, &id, in, size, out, room, encoded);
}

static usm_status encode_auto(usm__tiers *t, usm__io *io, void *out, size_t *encoded)
{
    uint64_t   start = usm__os_now_ns();
    usm_status st    = encode_one(t, io, 0, io->data, t->block_size, out, encoded);

    if (st == USM_OK || st == USM_E_SIZE)
        note_sample(t, st == USM_OK ? *encoded : t->block_size, usm__os_now_ns() - start);
    return st;
}

/* Encodes with all codecs, into a. *between: bytes after the first of two. */
static usm_status encode_all(usm__tiers *t, usm__io *io, size_t *encoded, size_t *between)
{
    usm__bounce *bounce = io->scratch;
    const void  *in     = io->data;
    size_t       size   = t->block_size;

    *between = 0;
    for (unsigned i = 0; i < t->codecs.n; i++) {
        char      *out = i + 1 < t->codecs.n ? bounce->b : bounce->a;
        usm_status st  = t->codecs.is_auto ? encode_auto(t, io, out, encoded)
                                           : encode_one(t, io, i, in, size, out, encoded);

        if (st == USM_E_SIZE && (t->codecs.list[i].ops->traits & USM_CODEC_SHRINKS))
            continue; /* the next codec gets the bytes that this one did not compress */
        if (st != USM_OK)
            return st;
        io->copy->codecs |= (uint8_t)(1u << i);
        in   = out;
        size = *encoded;
        if (i + 1 < t->codecs.n)
            *between = size;
    }
    if (in == bounce->b) { /* the last codec did not compress */
        char *full = bounce->b;

        bounce->b = bounce->a;
        bounce->a = full;
    }
    *encoded = size;
    return USM_OK;
}

/* How many of the encoded bytes are stored on the medium. */
static size_t on_medium(const usm__tiers *t, size_t encoded)
{
    return usm_min_size(encoded, t->block_size);
}

usm_status usm__codecs_encode(usm__tiers *t, usm__io *io)
{
    usm__copy   *copy   = io->copy;
    usm__bounce *bounce = io->scratch;
    size_t       size = 0, between = 0, stored;
    usm_status   st;

    if (!usm__io_is_whole(t, io))
        return usm__fail(USM_E_INTERNAL, "a part of a block was to be encoded");
    copy->codecs  = 0;
    copy->encoded = 0;
    st            = encode_all(t, io, &size, &between);
    if (st != USM_OK || copy->codecs == 0)
        return st;
    stored = on_medium(t, size);
    usm_assert(size - stored <= USM__TAIL_MAX);
    if (stored % USM__PAGE != 0)
        memset(bounce->a + stored, 0, USM__PAGE - stored % USM__PAGE);
    copy->encoded = (uint32_t)size;
    copy->sums[0] = usm__sector_sum(bounce->a, stored, io->key, 0);
    copy->sums[1] = (uint32_t)between;
    memcpy(copy->sums + 2, bounce->a + stored, size - stored);
    return USM_OK;
}

/* ---- decoding ------------------------------------------------------------------------------- */

static usm_status decode_one(usm__tiers *t, usm__io *io, unsigned index, const void *in,
                             size_t encoded, void *out)
{
    const usm__codec *c    = &t->codecs.list[index];
    usm_codec_id      id   = {io->key, io->copy->generation, index};
    bool              last = index == 0 || !(io->copy->codecs & 1u);

    return c->ops->decode(c->codec, &id, in, encoded, out,
                          last ? t->block_size : io->copy->sums[1]);
}

static usm_status decode_all(usm__tiers *t, usm__io *io)
{
    usm__bounce *bounce = io->scratch;
    bool         first = io->copy->codecs & 1u, second = io->copy->codecs & 2u;
    const char  *in   = bounce->a;
    size_t       size = io->copy->encoded;
    usm_status   st   = USM_OK;

    if (second) {
        st   = decode_one(t, io, 1, in, size, first ? (void *)bounce->b : io->data);
        in   = bounce->b;
        size = io->copy->sums[1];
    }
    return st == USM_OK && first ? decode_one(t, io, 0, in, size, io->data) : st;
}

usm_status usm__codecs_decode(usm__tiers *t, usm__io *io, const char *place)
{
    const usm__copy *copy   = io->copy;
    usm__bounce     *bounce = io->scratch;
    size_t           stored = on_medium(t, copy->encoded);

    if (!usm__io_is_whole(t, io))
        return usm__fail(USM_E_INTERNAL, "a part of an encoded block was asked for");
    if (copy->sums[0] != usm__sector_sum(bounce->a, stored, io->key, 0))
        return usm__fail(USM_E_CORRUPT,
                         "%s returned other bytes than were stored: slot %llu, %u bytes of "
                         "generation %u",
                         place, (unsigned long long)io->slot, (unsigned)copy->encoded,
                         (unsigned)copy->generation);
    memcpy(bounce->a + stored, copy->sums + 2, copy->encoded - stored);
    return decode_all(t, io);
}
