/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See model.h.  Here: commands on parts of buffers, as the model sees them: done at once, in the
 * order in which they were submitted, whichever queue they went to. */
#include "model.h"
#include "model_inside.h"

#include <stdlib.h>
#include <string.h>

/* A part of a buffer that a command uses. */
typedef struct part {
    handle      *h;
    usm_accessor acc;
    size_t       first; /* in the data                                                      */
} part;

static bool any_part(model *m, part *p, usm_access_mode mode)
{
    size_t offset, size;

    p->h = model_any(m);
    if (p->h == NULL)
        return false;
    model_part(m, p->h, &offset, &size);
    p->acc   = (usm_accessor){p->h->buf, offset, size, mode};
    p->first = p->h->offset + offset;
    return true;
}

/* Two of the same size that do not overlap. */
static bool two_parts(model *m, part *dst, part *src, usm_access_mode mode)
{
    size_t n;

    if (!any_part(m, dst, mode) || !any_part(m, src, USM_READ))
        return false;
    n             = dst->acc.size < src->acc.size ? dst->acc.size : src->acc.size;
    dst->acc.size = src->acc.size = n;
    return dst->h->data != src->h->data || dst->first + n <= src->first ||
           src->first + n <= dst->first;
}

/* What holds a command up is ended before somebody waits for the command: one thread. */
static void make_way(model *m, const part *p)
{
    model_end_overlapping(m, p->h->data, p->first, p->acc.size);
}

static void know(const part *dst, unsigned char how)
{
    memset(dst->h->data->known + dst->first, how, dst->acc.size);
}

/* A command failed at submission: nothing was done. */
static bool submitted(model *m, usm_status st, const char *what)
{
    if (st == USM_OK)
        return true;
    model_tell(m, "   %s: %s: %s", what, usm_status_name(st), usm_last_error());
    if ((st == USM_E_AGAIN || st == USM_E_BUDGET || st == USM_E_NO_MEMORY) ||
        (m->p.may_fail != NULL && m->p.may_fail(st)))
        m->counts.failures++;
    else
        model_wrong(m, "%s failed with %s", what, usm_status_name(st));
    return false;
}

static usm_queue *any_queue(model *m)
{
    return m->p.queues[model_pick(m, m->p.nqueues)];
}

static void fill(model *m)
{
    static const size_t sizes[] = {1, 2, 3, 4, 8, 12, 16};
    unsigned char       pattern[16];
    size_t              unit = sizes[model_pick(m, sizeof sizes / sizeof sizes[0])];
    part                dst;

    if (!any_part(m, &dst, model_pick(m, 2) ? USM_WRITE : USM_WRITE_NO_INIT))
        return;
    dst.acc.size -= dst.acc.size % unit;
    if (dst.acc.size == 0)
        return;
    for (size_t i = 0; i < unit; i++)
        pattern[i] = (unsigned char)model_random(m);
    make_way(m, &dst);
    model_tell(m, "fill buffer %zd [%zu, +%zu)", dst.h - m->handles, dst.acc.offset, dst.acc.size);
    if (!submitted(m, usm_buffer_fill(any_queue(m), &dst.acc, pattern, unit, 0, NULL, NULL),
                   "usm_buffer_fill"))
        return;
    for (size_t i = 0; i < dst.acc.size; i++)
        dst.h->data->bytes[dst.first + i] = pattern[i % unit];
    know(&dst, 0xff);
}

static void copy(model *m)
{
    part dst, src;

    if (!two_parts(m, &dst, &src, model_pick(m, 2) ? USM_WRITE : USM_WRITE_NO_INIT))
        return;
    make_way(m, &dst);
    make_way(m, &src);
    model_tell(m, "copy buffer %zd [%zu, +%zu) to %zd [%zu, ...)", src.h - m->handles,
               src.acc.offset, src.acc.size, dst.h - m->handles, dst.acc.offset);
    if (!submitted(m, usm_buffer_copy(any_queue(m), &dst.acc, &src.acc, 0, NULL, NULL),
                   "usm_buffer_copy"))
        return;
    memcpy(dst.h->data->bytes + dst.first, src.h->data->bytes + src.first, dst.acc.size);
    memcpy(dst.h->data->known + dst.first, src.h->data->known + src.first, dst.acc.size);
}

static void mix_model(const part *dst, const part *src, uint32_t value)
{
    unsigned char *d = dst->h->data->bytes + dst->first, *dk = dst->h->data->known + dst->first;
    const unsigned char *s  = src->h->data->bytes + src->first,
                        *sk = src->h->data->known + src->first;

    for (size_t i = 0; i < dst->acc.size; i++) {
        d[i] = (unsigned char)(d[i] * 3u + s[i] + value);
        dk[i] &= sk[i];
    }
}

static usm_status launch_mix(model *m, const part *dst, const part *src, const uint32_t *value)
{
    usm_arg    args[] = {USM_ARG_BUFFER(dst->acc), USM_ARG_BUFFER(src->acc), USM_ARG_VAL(*value)};
    usm_launch launch = USM_LAUNCH_INIT;

    launch.kernel    = m->p.mix;
    launch.global[0] = dst->acc.size;
    launch.nargs     = 3;
    launch.args      = args;
    return usm_queue_submit(any_queue(m), &launch, 0, NULL, NULL);
}

static void launch(model *m)
{
    uint32_t value = (uint32_t)model_random(m);
    part     dst, src;

    if (m->p.mix == NULL || !two_parts(m, &dst, &src, USM_READ_WRITE))
        return;
    make_way(m, &dst);
    make_way(m, &src);
    model_tell(m, "launch on buffer %zd [%zu, +%zu), from %zd", dst.h - m->handles, dst.acc.offset,
               dst.acc.size, src.h - m->handles);
    if (submitted(m, launch_mix(m, &dst, &src, &value), "usm_queue_submit"))
        mix_model(&dst, &src, value);
}

/* A command that an open access holds up: it starts after the end, and sees what was written. */
static void launch_behind_access(model *m)
{
    uint32_t   value = (uint32_t)model_random(m);
    part       dst, src;
    usm_access acc;
    usm_status st;

    if (m->p.mix == NULL || !two_parts(m, &dst, &src, USM_READ_WRITE))
        return;
    make_way(m, &dst);
    make_way(m, &src);
    st = usm_access_begin(src.h->buf, src.acc.offset, src.acc.size, USM_WRITE, &acc);
    if (!submitted(m, st, "usm_access_begin"))
        return;
    model_tell(m, "launch behind an access, on buffer %zd [%zu, +%zu), from %zd",
               dst.h - m->handles, dst.acc.offset, dst.acc.size, src.h - m->handles);
    st = launch_mix(m, &dst, &src, &value);
    memset(acc.ptr, (int)(value & 0xff), acc.size);
    memset(src.h->data->bytes + src.first, (int)(value & 0xff), acc.size);
    memset(src.h->data->known + src.first, 0xff, acc.size);
    usm_access_end(&acc);
    if (submitted(m, st, "usm_queue_submit behind an access"))
        mix_model(&dst, &src, value);
}

void model_command(model *m)
{
    m->counts.commands++;
    switch (model_pick(m, 8)) {
    case 0:
    case 1:
        fill(m);
        break;
    case 2:
    case 3:
        copy(m);
        break;
    case 4:
        launch_behind_access(m);
        break;
    default:
        launch(m);
        break;
    }
}
