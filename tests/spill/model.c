/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See model.h.  Here: buffers, sub-buffers, accesses, hints, and what a failure may be. */
#include "model.h"
#include "model_inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- help ---------------------------------------------------------------------------- */

_Noreturn void model_wrong(const model *m, const char *format, ...)
{
    va_list args;

    (void)printf("# seed %llu, operation %llu: ", (unsigned long long)m->p.seed,
                 (unsigned long long)m->counts.operations);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)printf("\n# last story: %s\n", usm_last_error());
    (void)fflush(NULL);
    _Exit(1);
}

void model_tell(const model *m, const char *format, ...)
{
    va_list args;

    if (!m->p.verbose)
        return;
    (void)printf("%6llu  ", (unsigned long long)m->counts.operations);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)printf("\n");
    (void)fflush(stdout);
}

uint64_t model_random(model *m)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return m->random;
}

size_t model_pick(model *m, size_t n)
{
    return (size_t)(model_random(m) >> 11) % n;
}

static void *must_have(void *p)
{
    if (p == NULL) {
        perror("model");
        abort();
    }
    return p;
}

handle *model_any(model *m)
{
    size_t start = model_pick(m, BUFFERS);

    for (size_t i = 0; i < BUFFERS; i++) {
        handle *h = &m->handles[(start + i) % BUFFERS];

        if (h->buf != NULL)
            return h;
    }
    return NULL;
}

void model_part(model *m, const handle *h, size_t *offset, size_t *size)
{
    size_t block = m->p.block_size, most = h->size;

    switch (model_pick(m, 8)) {
    case 0: /* all of it */
        *offset = 0;
        break;
    case 1: /* a whole block */
        *offset = h->size / block ? model_pick(m, h->size / block) * block : 0;
        most    = block;
        break;
    case 2: /* across the edge of two */
        *offset = h->size / block ? (1 + model_pick(m, h->size / block)) * block - 1 : 0;
        most    = 2;
        break;
    case 3:
    case 4: /* a few bytes */
        *offset = model_pick(m, h->size);
        most    = 1 + model_pick(m, 256);
        break;
    default:
        *offset = model_pick(m, h->size);
        most    = 1 + model_pick(m, 3 * block);
        break;
    }
    if (*offset >= h->size)
        *offset = h->size - 1;
    *size = most < h->size - *offset ? most : h->size - *offset;
    if (m->p.widest > 0 && *size > (m->p.widest - 1) * block)
        *size = (m->p.widest - 1) * block;
}

/* ---- contents ------------------------------------------------------------------------ */

static void check_bytes(model *m, const data *d, size_t offset, size_t size, const void *seen)
{
    const unsigned char *s     = seen;
    unsigned char        wrong = 0;

    m->counts.bytes_checked += size;
    for (size_t i = 0; i < size; i++)
        wrong |= (unsigned char)((s[i] ^ d->bytes[offset + i]) & d->known[offset + i]);
    if (wrong == 0)
        return;
    for (size_t i = 0; i < size; i++)
        if ((s[i] ^ d->bytes[offset + i]) & d->known[offset + i])
            model_wrong(m, "byte %zu of %zu (block %zu, +%zu) is 0x%02x, not 0x%02x", offset + i,
                        d->size, (offset + i) / m->p.block_size, (offset + i) % m->p.block_size,
                        s[i], d->bytes[offset + i]);
}

/* New content for a part of an open access. */
static void write_bytes(model *m, const opened *o)
{
    size_t         at    = model_pick(m, 3) == 0 ? model_pick(m, o->size) : 0;
    size_t         n     = model_pick(m, 3) == 0 ? 1 + model_pick(m, o->size - at) : o->size - at;
    unsigned char *p     = (unsigned char *)o->acc.ptr + at;
    size_t         first = o->h->offset + o->offset + at;
    uint64_t       value = model_random(m);

    if (model_pick(m, 8) == 0)
        memset(p, 0, n);
    else
        for (size_t i = 0; i < n; i++)
            p[i] = (unsigned char)((value >> (i % 8 * 8)) + i / 8);
    memcpy(o->h->data->bytes + first, p, n);
    memset(o->h->data->known + first, 0xff, n);
    if (m->is_planted && model_pick(m, 16) == 0)
        p[n / 2] ^= 1;
}

/* ---- failures ------------------------------------------------------------------------ */

static size_t blocks_of(const model *m, const handle *h, size_t offset, size_t size)
{
    size_t block = m->p.block_size, first = h->offset + offset;

    if (h->data->is_user)
        return 0;
    if (h->data->size < block / 4)
        return 2; /* somewhere in a space of many */
    return (first + size - 1) / block - first / block + 1;
}

/* At most so many frames are held, or would be with `more`. */
static size_t blocks_held(const model *m, size_t more)
{
    size_t n = more;

    for (size_t i = 0; i < OPEN; i++)
        if (m->open[i].h != NULL)
            n += blocks_of(m, m->open[i].h, m->open[i].offset, m->open[i].size);
    for (size_t i = 0; i < BUFFERS; i++)
        if (m->handles[i].buf != NULL && m->handles[i].kept > 0)
            n += blocks_of(m, &m->handles[i], 0, m->handles[i].kept);
    return n;
}

/* An access that needs `need` blocks failed: is that in order? */
static void judge(model *m, usm_status st, size_t need, bool no_wait, const char *what)
{
    bool ok = false;

    m->counts.failures++;
    model_tell(m, "   %s: %s: %s", what, usm_status_name(st), usm_last_error());
    if (st == USM_E_AGAIN)
        ok = no_wait || m->p.holders > 0 || blocks_held(m, need) > m->p.frames;
    else if (st == USM_E_BUDGET)
        ok = need > m->p.frames;
    else
        ok = m->p.may_fail != NULL && m->p.may_fail(st);
    if (!ok)
        model_wrong(m,
                    "%s failed with %s, for which there is no cause (%zu blocks are needed, "
                    "%zu held, %zu there)",
                    what, usm_status_name(st), need, blocks_held(m, 0), m->p.frames);
    if (usm_last_error()[0] == 0)
        model_wrong(m, "%s failed without a message", what);
}

void model_judge(model *m, usm_status st, const char *what)
{
    judge(m, st, 1, false, what);
}

/* ---- accesses ------------------------------------------------------------------------ */

static void opened_now(model *m, opened *o)
{
    data  *d     = o->h->data;
    size_t first = o->h->offset + o->offset;
    char  *base  = (char *)o->acc.ptr - first;

    if (o->acc.size != o->size)
        model_wrong(m, "an access of %zu bytes has %zu", o->size, o->acc.size);
    if (d->base != NULL && d->base != base)
        model_wrong(m, "the bytes of a buffer moved from %p to %p", (const void *)d->base,
                    (void *)base);
    d->base = base;
    if (o->mode & USM_NO_INIT)
        memset(d->known + first, 0, o->size);
    else if (o->mode & USM_READ)
        check_bytes(m, d, first, o->size, o->acc.ptr);
    if (o->mode & USM_WRITE && model_pick(m, 4) != 0)
        write_bytes(m, o);
}

static void end(model *m, opened *o)
{
    if (o->mode & USM_READ)
        check_bytes(m, o->h->data, o->h->offset + o->offset, o->size, o->acc.ptr);
    usm_access_end(&o->acc);
    o->h = NULL;
}

void model_end_overlapping(model *m, const data *d, size_t offset, size_t size)
{
    for (size_t i = 0; i < OPEN; i++) {
        opened *o = &m->open[i];

        if (o->h != NULL && o->h->data == d && o->h->offset + o->offset < offset + size &&
            offset < o->h->offset + o->offset + o->size)
            end(m, o);
    }
}

static usm_access_mode any_mode(model *m)
{
    static const usm_access_mode modes[] = {
        USM_READ,       USM_READ,       USM_READ,          USM_WRITE,
        USM_READ_WRITE, USM_READ_WRITE, USM_WRITE_NO_INIT, USM_READ_WRITE_NO_INIT};

    return modes[model_pick(m, sizeof modes / sizeof modes[0])];
}

/* Begins; on a failure judges it, and by chance heals and tries again, which must succeed. */
static bool begin(model *m, opened *o)
{
    size_t     need = blocks_of(m, o->h, o->offset, o->size);
    bool       wait = model_pick(m, 12) != 0;
    int        mode = wait ? (int)o->mode : (int)o->mode | USM_NO_WAIT;
    usm_status st;

    memset(&o->acc, 0x5a, sizeof o->acc);
    model_tell(m, "access buffer %zd [%zu, +%zu) of %zu, mode %d", o->h - m->handles, o->offset,
               o->size, o->h->size, mode);
    st = usm_access_begin(o->h->buf, o->offset, o->size, (usm_access_mode)mode, &o->acc);
    if (st == USM_OK)
        return true;
    judge(m, st, need, !wait, "usm_access_begin");
    for (size_t i = 0; i < sizeof o->acc; i++)
        if (((unsigned char *)&o->acc)[i] != 0x5a)
            model_wrong(m, "a failed access changed the caller's usm_access");
    return false;
}

/* Nothing fails any more: a failure that happened before may be told once for each buffer. */
static void begin_healed(model *m, opened *o)
{
    usm_status st = USM_OK;

    for (int tries = 0; tries < 4; tries++) {
        st = usm_access_begin(o->h->buf, o->offset, o->size, o->mode, &o->acc);
        if (st == USM_OK)
            return;
        if (st == USM_E_AGAIN && m->p.holders > 0)
            tries--;
        else if (st != USM_E_IO && st != USM_E_SPILL_FULL && st != USM_E_NO_MEMORY)
            break;
    }
    model_wrong(m,
                "an access of [%zu, +%zu) of buffer %zd still fails with %s when all faults are "
                "gone",
                o->offset, o->size, o->h - m->handles, usm_status_name(st));
}

static opened *free_slot(model *m)
{
    for (size_t i = 0; i < OPEN; i++)
        if (m->open[i].h == NULL)
            return &m->open[i];
    return NULL;
}

static void step_begin(model *m)
{
    handle *h = model_any(m);
    opened *o = free_slot(m);

    if (h == NULL || o == NULL)
        return;
    o->mode = any_mode(m);
    model_part(m, h, &o->offset, &o->size);
    o->h = h;
    if (begin(m, o)) {
        opened_now(m, o);
        return;
    }
    o->h = NULL;
    if (m->p.heal == NULL || model_pick(m, 4) != 0 ||
        blocks_held(m, blocks_of(m, h, o->offset, o->size)) > m->p.frames)
        return;
    m->p.heal();
    o->h = h;
    begin_healed(m, o);
    opened_now(m, o);
    m->p.resume();
}

static void step_end(model *m)
{
    opened *o = &m->open[model_pick(m, OPEN)];

    if (o->h != NULL)
        end(m, o);
}

static void step_write(model *m)
{
    opened *o = &m->open[model_pick(m, OPEN)];

    if (o->h != NULL && o->mode & USM_WRITE)
        write_bytes(m, o);
}

static void step_many(model *m)
{
    usm_buffer_range list[3];
    usm_access       accs[3];
    opened          *slots[3];
    size_t           n = 0, need = 0, most = 1 + model_pick(m, 3);
    usm_status       st;

    while (n < most && (slots[n] = free_slot(m)) != NULL) {
        opened *o = slots[n];

        o->h = model_any(m);
        if (o->h == NULL)
            return;
        o->mode = any_mode(m);
        model_part(m, o->h, &o->offset, &o->size);
        list[n] = (usm_buffer_range){o->h->buf, o->offset, o->size, o->mode};
        model_tell(m, "  of many: buffer %zd [%zu, +%zu), mode %d", o->h - m->handles, o->offset,
                   o->size, (int)o->mode);
        need += blocks_of(m, o->h, o->offset, o->size);
        n++;
    }
    model_tell(m, "%zu accesses at once", n);
    for (size_t i = 0; i < n; i++)
        slots[i]->h = NULL; /* not held yet */
    if (n == 0)
        return;
    st = usm_access_many(n, list, accs);
    if (st != USM_OK) {
        judge(m, st, need, false, "usm_access_many");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        opened *o = slots[i];

        for (size_t k = 0; k < BUFFERS; k++)
            if (m->handles[k].buf == list[i].buffer)
                o->h = &m->handles[k];
        o->size = list[i].size;
        o->acc  = accs[i];
    }
    /* What becomes indeterminate first: the list may overlap itself. */
    for (size_t i = 0; i < n; i++)
        if (slots[i]->mode & USM_NO_INIT)
            memset(slots[i]->h->data->known + slots[i]->h->offset + slots[i]->offset, 0,
                   slots[i]->size);
    for (size_t i = 0; i < n; i++)
        opened_now(m, slots[i]);
}

/* ---- buffers ------------------------------------------------------------------------- */

static handle *free_handle(model *m)
{
    for (size_t i = 0; i < BUFFERS; i++)
        if (m->handles[i].buf == NULL)
            return &m->handles[i];
    return NULL;
}

static size_t any_size(model *m)
{
    size_t block = m->p.block_size;

    switch (model_pick(m, 4)) {
    case 0:
        return 1 + model_pick(m, block / 4);
    case 1:
        return block / 4 + model_pick(m, 2 * block);
    default:
        return 1 + model_pick(m, (m->p.frames + m->p.frames / 2) * block);
    }
}

static data *new_data(model *m, size_t size)
{
    data *d = must_have(calloc(1, sizeof(data)));

    d->size  = size;
    d->bytes = must_have(calloc(1, size));
    d->known = must_have(calloc(1, size));
    if (model_pick(m, 8) == 0) {
        d->home = model_home_create(m, d);
    } else if (model_pick(m, 8) == 0) {
        d->is_user = true;
        d->user    = must_have(malloc(size));
        for (size_t i = 0; i < size; i++)
            d->user[i] = d->bytes[i] = (unsigned char)(i * 7);
        memset(d->known, 0xff, size);
    }
    return d;
}

static void drop_data(model *m, data *d)
{
    if (--d->handles > 0)
        return;
    if (d->is_user)
        check_bytes(m, d, 0, d->size, d->user);
    if (d->home != NULL) {
        model_home_check(m, d);
        model_home_destroy(d->home);
    }
    m->bytes -= d->size;
    free(d->user);
    free(d->bytes);
    free(d->known);
    free(d);
}

static void step_create(model *m)
{
    handle         *h    = free_handle(m);
    usm_buffer_desc desc = USM_BUFFER_DESC_INIT;
    size_t          size = any_size(m);
    usm_status      st;

    if (h == NULL || m->bytes + size > m->p.most_bytes)
        return;
    *h             = (handle){.data = new_data(m, size), .size = size};
    desc.size      = size;
    desc.host_data = h->data->user;
    if (h->data->home != NULL) {
        desc.home      = &model_home_ops;
        desc.home_data = h->data->home;
    }
    desc.name = model_pick(m, 2) ? "of the model" : NULL;
    model_tell(m, "create buffer %zd: %zu bytes%s", h - m->handles, size,
               h->data->is_user ? " of the user"
               : h->data->home  ? " with a home"
                                : "");
    h->data->handles = 1;
    m->bytes += size;
    st = usm_buffer_create(m->p.ctx, &desc, &h->buf);
    if (st == USM_OK)
        return;
    judge(m, st, 0, false, "usm_buffer_create");
    if (h->data->home != NULL) /* it was not taken over, or closed */
        atomic_store(&h->data->home->is_closed, true);
    drop_data(m, h->data);
    h->buf = NULL;
}

static void step_sub(model *m)
{
    handle    *parent = model_any(m), *h = free_handle(m);
    usm_status st;

    if (parent == NULL || h == NULL || parent->is_sub)
        return;
    h->is_sub = true;
    h->kept   = 0;
    h->data   = parent->data;
    model_part(m, parent, &h->offset, &h->size);
    model_tell(m, "sub-buffer %zd of %zd", h - m->handles, parent - m->handles);
    st = usm_buffer_create_sub(parent->buf, h->offset, h->size, &h->buf);
    if (st != USM_OK) {
        judge(m, st, 0, false, "usm_buffer_create_sub");
        h->buf = NULL;
        return;
    }
    h->data->handles++;
}

static void destroy(model *m, handle *h)
{
    usm_status st;

    for (size_t i = 0; i < OPEN; i++)
        if (m->open[i].h == h)
            end(m, &m->open[i]);
    model_tell(m, "destroy buffer %zd", h - m->handles);
    /* With the last handle it ends by itself. */
    while (h->kept > 0 && h->data->handles > 1) {
        st = usm_buffer_advise(h->buf, 0, h->kept, USM_BUFFER_UNPIN);
        if (st == USM_OK)
            h->kept = 0;
        else
            judge(m, st, 0, false, "USM_BUFFER_UNPIN");
    }
    usm_buffer_destroy(h->buf);
    h->buf  = NULL;
    h->kept = 0;
    drop_data(m, h->data);
}

static void step_destroy(model *m)
{
    handle *h = model_any(m);

    if (h != NULL && model_pick(m, 2) == 0)
        destroy(m, h);
}

/* ---- hints --------------------------------------------------------------------------- */

static void step_advise(model *m)
{
    static const usm_buffer_advice list[] = {USM_BUFFER_NORMAL, USM_BUFFER_WILL_NEED,
                                             USM_BUFFER_WONT_NEED, USM_BUFFER_SEQUENTIAL,
                                             USM_BUFFER_RANDOM};
    handle                        *h      = model_any(m);
    size_t                         offset, size;
    usm_status                     st;
    usm_buffer_advice              advice = list[model_pick(m, sizeof list / sizeof list[0])];

    if (h == NULL)
        return;
    model_part(m, h, &offset, &size);
    model_tell(m, "advise buffer %zd: %d", h - m->handles, (int)advice);
    st = usm_buffer_advise(h->buf, offset, size, advice);
    if (st != USM_OK)
        judge(m, st, 0, false, "usm_buffer_advise");
}

static void step_keep(model *m)
{
    handle    *h = model_any(m);
    usm_status st;
    size_t     size, others = 0;

    if (h == NULL || h->data->is_user)
        return;
    for (size_t i = 0; i < BUFFERS; i++)
        others += m->handles[i].buf != NULL && m->handles[i].kept > 0;
    if (h->kept == 0 && m->p.widest > 0 && others > 1)
        return;
    if (h->kept > 0) {
        model_tell(m, "unpin buffer %zd", h - m->handles);
        st = usm_buffer_advise(h->buf, 0, h->kept, USM_BUFFER_UNPIN);
        if (st == USM_OK)
            h->kept = 0;
        else
            judge(m, st, 0, false, "USM_BUFFER_UNPIN");
        return;
    }
    size = 1 + model_pick(m, h->size < 2 * m->p.block_size ? h->size : 2 * m->p.block_size);
    model_tell(m, "pin buffer %zd", h - m->handles);
    st = usm_buffer_advise(h->buf, 0, size, USM_BUFFER_PIN);
    if (st == USM_OK)
        h->kept = size;
    else
        judge(m, st, blocks_of(m, h, 0, size), false, "USM_BUFFER_PIN");
}

static void step_discard(model *m)
{
    handle    *h = model_any(m);
    size_t     offset, size;
    usm_status st;

    if (h == NULL || h->data->is_user)
        return;
    model_part(m, h, &offset, &size);
    model_end_overlapping(m, h->data, h->offset + offset, size);
    if (m->p.nqueues > 0 && usm_context_wait(m->p.ctx) != USM_OK)
        model_wrong(m, "waiting for the context fails");
    model_tell(m, "discard [%zu, +%zu) of buffer %zd", offset, size, h - m->handles);
    st = usm_buffer_advise(h->buf, offset, size, USM_BUFFER_DISCARD);
    /* A command that is complete may be let go of a moment later. */
    for (int i = 0; i < 2000 && st == USM_E_BUSY && m->p.nqueues > 0; i++) {
        m->p.let_go_on();
        st = usm_buffer_advise(h->buf, offset, size, USM_BUFFER_DISCARD);
    }
    if (st != USM_OK)
        judge(m, st, 0, false, "USM_BUFFER_DISCARD");
    memset(h->data->known + h->offset + offset, 0, size);
}

static void step_announce(model *m)
{
    usm_buffer_range list[8];
    size_t           n = model_pick(m, 9);
    usm_status       st;

    for (size_t i = 0; i < n; i++) {
        handle *h = model_any(m);

        if (h == NULL)
            return;
        model_part(m, h, &list[i].offset, &list[i].size);
        list[i].buffer = h->buf;
        list[i].mode   = model_pick(m, 2) ? USM_READ : (usm_access_mode)0;
    }
    model_tell(m, "announce %zu", n);
    st = usm_announce(n, n ? list : NULL);
    if (st != USM_OK)
        judge(m, st, 0, false, "usm_announce");
}

/* Passes over a buffer in order: what prefetching is made for. */
static void step_pass(model *m)
{
    handle *h    = model_any(m);
    opened *o    = free_slot(m);
    size_t  unit = m->p.block_size / (model_pick(m, 2) ? 1 : 8);

    if (h == NULL || o == NULL)
        return;
    for (size_t at = 0; at < h->size; at += unit) {
        *o = (opened){.h      = h,
                      .offset = at,
                      .size   = unit < h->size - at ? unit : h->size - at,
                      .mode   = model_pick(m, 4) ? USM_READ : USM_READ_WRITE};
        if (begin(m, o)) {
            opened_now(m, o);
            end(m, o);
        }
        o->h = NULL;
    }
}

static void check_figures(model *m)
{
    usm_spill_stats stats = {.struct_size = sizeof stats};

    if (usm_spill_get_stats(m->p.ctx, &stats) != USM_OK)
        model_wrong(m, "usm_spill_get_stats() fails");
    if (stats.limit > 0 && stats.resident > stats.limit)
        model_wrong(m, "%llu bytes are in memory, the limit is %llu",
                    (unsigned long long)stats.resident, (unsigned long long)stats.limit);
    if (stats.pinned > stats.resident)
        model_wrong(m, "more is pinned than there is");
}

/* ---- outside ------------------------------------------------------------------------- */

model *model_create(const model_params *params)
{
    model *m = must_have(calloc(1, sizeof(model)));

    m->p      = *params;
    m->random = (params->seed + 1) * 0xD1342543DE82EF95u | 1;
    for (int i = 0; i < 4; i++)
        (void)model_random(m);
    return m;
}

void model_step(model *m)
{
    static const struct {
        void (*step)(model *m);
        unsigned weight;
    } steps[]       = {{step_begin, 30},   {step_end, 26},    {step_write, 12}, {step_create, 10},
                       {step_destroy, 4},  {step_many, 6},    {step_sub, 2},    {step_advise, 5},
                       {step_keep, 2},     {step_discard, 3}, {step_pass, 3},   {step_announce, 3},
                       {check_figures, 2}, {model_commit, 4}};
    unsigned chance = (unsigned)model_pick(m, m->p.nqueues > 0 ? 152 : 112), i = 0;

    m->counts.operations++;
    if (chance >= 112) {
        model_command(m);
        return;
    }
    while (chance >= steps[i].weight)
        chance -= steps[i++].weight;
    steps[i].step(m);
}

void model_check_all(model *m)
{
    opened o;

    for (size_t i = 0; i < OPEN; i++)
        if (m->open[i].h != NULL)
            end(m, &m->open[i]);
    for (size_t i = 0; i < BUFFERS; i++) {
        handle *h = &m->handles[i];

        if (h->buf == NULL)
            continue;
        if (h->kept > 0 && usm_buffer_advise(h->buf, 0, h->kept, USM_BUFFER_UNPIN) != USM_OK)
            model_wrong(m, "UNPIN fails");
        h->kept = 0;
    }
    for (size_t i = 0; i < BUFFERS; i++) {
        o = (opened){.h = &m->handles[i], .size = m->p.block_size, .mode = USM_READ};
        if (o.h->buf == NULL)
            continue;
        for (; o.offset < o.h->size; o.offset += o.size) {
            if (o.size > o.h->size - o.offset)
                o.size = o.h->size - o.offset;
            begin_healed(m, &o);
            opened_now(m, &o);
            usm_access_end(&o.acc);
        }
    }
    check_figures(m);
}

void model_destroy(model *m)
{
    for (size_t i = 0; i < BUFFERS; i++)
        if (m->handles[i].buf != NULL)
            destroy(m, &m->handles[i]);
    free(m);
}

model_counts model_get_counts(const model *m)
{
    return m->counts;
}

void model_plant(model *m)
{
    m->is_planted = true;
}
