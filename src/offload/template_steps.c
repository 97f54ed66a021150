/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Stencils and iterations: each step reads what the step before it wrote, so two arrays take turns,
 * the caller's output and one of the library.  A halo comes with the chunk's rows: usm_parallel()
 * copies it where a device does not use host memory.
 *
 * An iteration has settled when no chunk of a step has an element that moves: each chunk has an
 * int32 of its own, and the sum of all is 0.  Over ranks the sum comes to each with the end of the
 * launch, so all make the same number of steps. */
#include "offload/template.h"

#include "base/os.h"

#include <inttypes.h>
#include <string.h>

enum { PIECE = 16 << 20 }; /* bytes of a buffer that are copied at a time */

static uint64_t width_of(const usm__template_run *run)
{
    return run->desc->width ? run->desc->width : 1;
}

static usm_status make_step(usm__template_run *run, usm__template_data from, usm__template_data to,
                            int32_t *moving)
{
    const usm_template *t     = run->t;
    const int64_t       width = (int64_t)width_of(run), height = (int64_t)run->desc->count;
    usm_split_arg       args[6];
    size_t              n = 0;

    args[n++] = usm__template_rows(from, (size_t)width * t->in_size, false, t->radius);
    args[n++] = usm__template_rows(to, (size_t)width * t->out_size, true, 0);
    if (t->kind == USM_TEMPLATE_ITERATE)
        args[n++] = (usm_split_arg){.follow  = USM_FOLLOW_PRIVATE,
                                    .mode    = USM_READ_WRITE,
                                    .host    = moving,
                                    .size    = sizeof *moving,
                                    .merge   = USM_MERGE_SUM,
                                    .element = USM_ELEMENT_I32};
    args[n++] = usm__template_value(&width, sizeof width);
    args[n++] = usm__template_value(&height, sizeof height);
    args[n++] = usm__template_param(run);
    run->result.steps++;
    return usm__template_launch(run, t->kernel, 0, (uint64_t)height,
                                width > 1 ? (uint64_t)width : 0, args, n);
}

/* ---- the second array ------------------------------------------------------------------------ */

/* In a buffer where the output is in one, as it may be larger than memory. */
static usm_status create_other(const usm__template_run *run, size_t size, usm__template_data *other)
{
    usm_buffer_desc d = USM_BUFFER_DESC_INIT;

    usm_status st = USM_OK;

    if (!run->is_home)
        return USM_OK;
    if (run->out.buffer) {
        d.size = size;
        d.name = run->t->name;
        st     = usm_buffer_create(run->t->team->members[0].context, &d, &other->buffer);
    } else {
        other->host = usm__heap_alloc(size);
        if (!other->host)
            st = usm__fail(USM_E_NO_MEMORY,
                           "no host memory for the second array of template '%s', %zu bytes",
                           run->t->name, size);
    }
    return st == USM_OK ? USM_OK : usm__template_refuse(run->t->team, st, 1);
}

static void destroy_other(usm__template_data *other)
{
    usm_buffer_destroy(other->buffer);
    usm__heap_free(other->host);
}

static usm_status copy_buffer(usm_buffer *to, usm_buffer *from, size_t size)
{
    usm_status st = USM_OK;

    for (size_t at = 0; at < size && st == USM_OK; at += PIECE) {
        size_t     n = size - at < PIECE ? size - at : PIECE;
        usm_access read, write;

        st = usm_access_begin(from, at, n, USM_READ, &read);
        if (st != USM_OK)
            break;
        st = usm_access_begin(to, at, n, USM_WRITE_NO_INIT, &write);
        if (st == USM_OK) {
            memcpy(write.ptr, read.ptr, n);
            usm_access_end(&write);
        }
        usm_access_end(&read);
    }
    return st;
}

static usm_status copy(const usm__template_run *run, const usm__template_data *from, size_t size)
{
    if (from->buffer)
        return copy_buffer(run->out.buffer, from->buffer, size);
    if (from->host) /* of the rank of the data always, after a second step */
        memcpy(run->out.host, from->host, size);
    return USM_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The last of the steps writes to the caller's output. */
static usm_status run_stencil(usm__template_run *run, usm__template_data other)
{
    uint64_t           steps = run->desc->steps ? run->desc->steps : 1;
    usm__template_data from  = run->in;
    usm_status         st    = USM_OK;

    for (uint64_t left = steps; left > 0 && st == USM_OK; left--) {
        usm__template_data to = left % 2 ? run->out : other;

        st   = make_step(run, from, to, NULL);
        from = to;
    }
    return st;
}

/* moving: what this rank has of it, all of it on one process. */
static bool has_settled(const usm__template_run *run, int32_t moving)
{
    if (run->t->team->ranks)
        memcpy(&moving, &run->merged, sizeof moving);
    return moving == 0;
}

static usm_status run_iterate(usm__template_run *run, usm__template_data other, size_t size)
{
    usm__template_data from = run->in;
    usm_status         st   = USM_OK;
    bool               is_in_other;

    do {
        usm__template_data to     = run->result.steps % 2 ? other : run->out;
        int32_t            moving = 0;

        st                     = make_step(run, from, to, &moving);
        from                   = to;
        run->result.is_settled = st == USM_OK && has_settled(run, moving);
    } while (st == USM_OK && !run->result.is_settled && run->result.steps != run->desc->steps);
    is_in_other = run->result.steps % 2 == 0;
    return st == USM_OK && is_in_other ? copy(run, &other, size) : st;
}

usm_status usm__template_run_steps(usm__template_run *run)
{
    size_t             size       = (size_t)(run->desc->count * width_of(run)) * run->t->out_size;
    bool               is_iterate = run->t->kind == USM_TEMPLATE_ITERATE;
    usm__template_data other      = {NULL, NULL, 0};
    usm_status         st         = USM_OK;

    if (is_iterate ? run->desc->steps != 1 : run->desc->steps > 1)
        st = create_other(run, size, &other);
    if (st == USM_OK)
        st = is_iterate ? run_iterate(run, other, size) : run_stencil(run, other);
    usm__quietly(destroy_other(&other));
    return st;
}
