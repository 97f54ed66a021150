/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One task on one device: its inputs are gathered in memory of the device, the kernel runs, and its
 * blocks are copied back.
 *
 *     copies   queue:  inputs of task n + 1 | ...
 *     compute  queue:  kernel of task n, blocks back | kernel of task n + 1, blocks back | ...
 *
 * So the inputs of the next task are copied while a kernel computes.  Where kernels can use host
 * memory, a single input and the output are used in place. */
#include "offload/graph.h"

#include "base/inline/atomic.h"
#include "base/inline/clock.h"
#include "base/os.h"

#include <usm/command.h>
#include <usm/event.h>
#include <usm/memory.h>

#include <stdio.h>
#include <string.h>

/* ---- mail ------------------------------------------------------------------------------------ */

usm__graph_mail *usm__graph_mail_create(void)
{
    usm__graph_mail *mail = usm__heap_alloc(sizeof *mail);

    if (!mail)
        return NULL;
    usm__mutex_init(&mail->lock, USM__RANK_EVENT, "ended launches of a graph");
    (void)usm_cond_init_monotonic(&mail->came);
    mail->refs = 1;
    return mail;
}

void usm__graph_mail_drop(usm__graph_mail *mail)
{
    if (atomic_fetch_sub_explicit(&mail->refs, 1, memory_order_acq_rel) != 1)
        return;
    (void)pthread_cond_destroy(&mail->came);
    usm__mutex_fini(&mail->lock);
    usm__heap_free(mail);
}

void usm__graph_mail_ring(usm__graph_mail *mail)
{
    usm__mutex_lock(&mail->lock);
    mail->rang = true;
    (void)pthread_cond_signal(&mail->came);
    usm__mutex_unlock(&mail->lock);
}

usm__graph_flight *usm__graph_mail_take(usm__graph_mail *mail, uint64_t deadline_ns)
{
    struct timespec    until = {(time_t)(deadline_ns / 1000000000u),
                                (long)(deadline_ns % 1000000000u)};
    usm__graph_flight *first;

    usm__mutex_lock(&mail->lock);
    while (!mail->ended && !mail->rang &&
           usm__mutex_wait(&mail->lock, &mail->came, deadline_ns ? &until : NULL) == 0) {}
    first       = mail->ended;
    mail->ended = NULL;
    mail->rang  = false;
    usm__mutex_unlock(&mail->lock);
    return first;
}

/* Called at the last event of a flight, failed or not. */
static void on_end(usm_event *ev, usm_status status, void *user)
{
    usm__graph_flight *f    = user;
    usm__graph_mail   *mail = f->mail;

    (void)ev;
    f->end_ns = usm__os_now_ns();
    f->status = status;
    if (status < 0) {
        usm_status own = usm_event_query(f->computed); /* the copy's status is only DEPENDENCY */

        if (own < 0 && own != USM_E_NOT_READY)
            f->status = own;
        (void)snprintf(f->message, sizeof f->message, "%s",
                       usm_last_status() == f->status ? usm_last_error()
                                                      : usm_status_string(f->status));
    }
    usm__mutex_lock(&mail->lock);
    f->next     = mail->ended;
    mail->ended = f;
    (void)pthread_cond_signal(&mail->came);
    usm__mutex_unlock(&mail->lock);
    usm__graph_mail_drop(mail);
}

/* ---- memory and copies ----------------------------------------------------------------------- */

void usm__graph_flight_free(usm__graph_flight *f)
{
    usm_event_release(f->copied);
    usm_event_release(f->computed);
    usm_event_release(f->ended);
    usm_free(f->in);
    usm_free(f->out);
    usm__heap_free(f);
}

static bool is_aligned(const void *p)
{
    return (uintptr_t)p % USM__BLOCK_ALIGN == 0;
}

/* The arguments of a task's kernel. */
typedef struct given {
    const void *in;
    void       *out;
    void       *blocks; /* in host memory */
    uint32_t    in_size, parts, out_size;
    size_t      out_total;
} given;

static usm_status bring(usm__graph_flight *f, given *v, const usm__graph_piece *pieces, uint32_t n)
{
    unsigned char *at;
    size_t         offset = 0;

    if (f->place->member->uses_host_memory && n == 1 && is_aligned(pieces[0].data)) {
        v->in = pieces[0].data;
        return USM_OK;
    }
    f->in = usm_aligned_alloc_device(USM__BLOCK_ALIGN, v->in_size, f->place->copies);
    if (!f->in)
        return usm_last_status();
    at = f->in;
    for (uint32_t i = 0; i < n; i++) {
        usm_status st = usm_memcpy(f->place->copies, at + offset, pieces[i].data, pieces[i].size, 0,
                                   NULL, i + 1 == n ? &f->copied : NULL);

        if (st != USM_OK)
            return st;
        offset += pieces[i].size;
    }
    f->bytes_in = offset;
    v->in       = f->in;
    return USM_OK;
}

static usm_status compute(usm__graph_flight *f, const given *v, const usm_node_desc *d,
                          usm_kernel *kernel)
{
    usm_arg    args[] = {USM_ARG_PTR(v->in), USM_ARG_VAL(v->in_size), USM_ARG_VAL(v->parts),
                         USM_ARG_PTR(v->out), USM_ARG_VAL(v->out_size)};
    usm_launch l      = USM_LAUNCH_INIT;

    l.kernel = kernel;
    l.nargs  = 5;
    l.args   = args;
    if (d->kind == USM_NODE_PROCESS || d->kind == USM_NODE_EXPANDABLE) {
        l.nargs = 4; /* these kinds have no argument `parts` */
        args[2] = args[3];
        args[3] = args[4];
    }
    if (d->dims) {
        l.dims = d->dims;
        memcpy(l.global, d->global, sizeof l.global);
        memcpy(l.local, d->local, sizeof l.local);
    }
    return usm_queue_submit(f->place->compute, &l, f->copied ? 1 : 0, &f->copied, &f->computed);
}

static usm_status start(usm_graph *g, usm__graph_flight *f, given *v)
{
    const usm__graph_node *n = &g->nodes[f->task->node];
    usm__graph_piece       few[8];
    usm__graph_piece      *pieces = few;
    usm_status             st;

    if (n->ninputs > sizeof few / sizeof few[0])
        pieces = usm__heap_alloc(n->ninputs * sizeof *pieces);
    if (!pieces)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the inputs of '%s'", n->desc.name);
    st = usm__graph_pieces(g, f->task, pieces, &v->in_size, &v->parts);
    if (n->desc.kind == USM_NODE_PARTITION)
        v->parts = n->nblocks; /* a partitioner makes parts, other nodes receive them */
    if (st == USM_OK)
        st = bring(f, v, pieces, n->ninputs);
    if (pieces != few)
        usm__heap_free(pieces);
    if (st != USM_OK)
        return st;
    v->out = v->blocks;
    if (!f->place->member->uses_host_memory || !is_aligned(v->blocks)) {
        f->out = usm_aligned_alloc_device(USM__BLOCK_ALIGN, v->out_total, f->place->compute);
        v->out = f->out;
    }
    if (!v->out)
        return usm_last_status();
    st = compute(f, v, &n->desc, n->desc.kernel->kernels[f->place->member->index]);
    if (st != USM_OK || !f->out)
        return st;
    f->bytes_out = v->out_total;
    return usm_memcpy(f->place->compute, v->blocks, f->out, v->out_total, 1, &f->computed,
                      &f->ended);
}

/* Commands that were queued before one was refused use memory that is about to be freed: waits for
 * them. */
static void settle(usm__graph_flight *f)
{
    usm__message message;

    usm__message_save(&message);
    (void)usm_queue_wait(f->place->copies);
    if (f->computed)
        (void)usm_event_wait(f->computed);
    if (f->ended)
        (void)usm_event_wait(f->ended);
    usm__graph_flight_free(f);
    usm__message_restore(&message);
}

usm_status usm__graph_flight_begin(usm_graph *g, usm__graph_task *task, usm__graph_place *place,
                                   usm__graph_mail *mail)
{
    usm__graph_node   *n = &g->nodes[task->node];
    usm__graph_flight *f = usm__heap_alloc(sizeof *f);
    given              v = {0};
    usm_status         st;

    if (!f)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a launch of '%s'", n->desc.name);
    f->task     = task;
    f->mail     = mail;
    f->place    = place;
    f->begin_ns = usm__os_now_ns();
    v.out_size  = (uint32_t)n->desc.out_size;
    v.out_total = n->desc.out_size * (n->ntasks == 1 ? n->nblocks : 1);
    v.blocks    = n->blocks + task->part * n->desc.out_size;
    st          = start(g, f, &v);
    if (st == USM_OK) {
        atomic_fetch_add_explicit(&mail->refs, 1, memory_order_relaxed);
        st = usm_event_on_complete(f->ended ? f->ended : f->computed, on_end, f);
        if (st == USM_OK)
            return USM_OK;
        usm__graph_mail_drop(mail);
    }
    settle(f);
    return st;
}
