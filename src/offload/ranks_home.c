/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A launch over ranks on the rank that provides the data ("home" in the code): it reads and writes
 * arguments' bytes for the others, and merges private copies.
 *
 * A chunk may be in progress on two ranks, and a rank may die in the middle of its stores.  Bytes
 * that are only written may be written twice, since the results are equal.  Of arguments that are
 * read and written, this rank keeps the content at the start of the launch: in pieces of 64 KiB,
 * each copied before its first byte changes.  Fetches are answered from the kept pieces, so that a
 * chunk that is done again starts with the same bytes.
 *
 * Private copies are kept here until the master says which rank's result counts: a chunk of a
 * silent rank may have been handed out again in parts, and only the master knows. */
#include "offload/ranks.h"

#include "base/os.h"

#include <stdio.h>
#include <string.h>

usm_status usm__ranks_home_init(usm__ranks_launch *l)
{
    const usm_parallel_desc *d = &l->plan->desc;
    size_t                   n = d->nargs ? d->nargs : 1;
    usm__ranks_home         *h = &l->home;

    usm_list_init(&h->copies);
    h->trees   = usm__heap_alloc(n * sizeof *h->trees);
    h->kept    = usm__heap_alloc(n * sizeof *h->kept);
    h->message = usm__heap_alloc(USM__WIRE_HEADER + (size_t)USM__WIRE_PIECE);
    if (!h->trees || !h->kept || !h->message)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a launch over ranks");
    for (size_t i = 0; i < d->nargs; i++) {
        const usm_split_arg *a = &d->args[i];

        if (a->follow == USM_FOLLOW_CHUNK && a->mode == USM_READ_WRITE) {
            h->kept[i] = usm__heap_alloc((a->size / USM__WIRE_PIECE + 1) * sizeof **h->kept);
            if (!h->kept[i])
                return usm__fail(USM_E_NO_MEMORY, "no host memory for a launch over ranks");
        }
        if (a->follow != USM_FOLLOW_PRIVATE || a->merge == USM_MERGE_NONE)
            continue;
        h->trees[i] = usm__tree_create(a, l->plan->total);
        if (!h->trees[i])
            return usm_last_status();
    }
    return USM_OK;
}

void usm__ranks_home_fini(usm__ranks_launch *l)
{
    usm__ranks_home *h = &l->home;
    usm_list        *it;

    for (size_t i = 0; h->trees && i < l->plan->desc.nargs; i++)
        usm__tree_destroy(h->trees[i]);
    for (size_t i = 0; h->kept && i < l->plan->desc.nargs; i++) {
        size_t n = h->kept[i] ? l->plan->desc.args[i].size / USM__WIRE_PIECE + 1 : 0;

        for (size_t k = 0; k < n; k++)
            usm__heap_free(h->kept[i][k]);
        usm__heap_free(h->kept[i]);
    }
    while (h->copies.next && (it = usm_list_pop(&h->copies)))
        usm__heap_free(usm_container_of(it, usm__copies, link));
    usm__heap_free(h->trees);
    usm__heap_free(h->kept);
    usm__heap_free(h->message);
}

/* ---- answers ---------------------------------------------------------------------------- */

/* The bytes are already in h->message, after the header. */
static void answer(usm__ranks_launch *l, uint32_t to, usm__wire *msg)
{
    unsigned char *m = l->home.message;

    msg->team   = l->ranks->id;
    msg->launch = l->number;
    usm__wire_encode(msg, m);
    if (to != l->ranks->self) {
        (void)usm__job_send(to, USM__JOB_TEAMS, m,
                            USM__WIRE_HEADER + msg->size); /* if lost, this is noticed elsewhere */
        return;
    }
    msg->bytes = m + USM__WIRE_HEADER;
    usm__mutex_lock(&usm__ranks_all.lock);
    usm__ranks_bytes_came(l, to, msg);
    usm__mutex_unlock(&usm__ranks_all.lock);
}

/* Makes the launch fail, once everything is done. */
static void fail(usm__ranks_launch *l, usm_status status)
{
    if (l->home.status != USM_OK)
        return;
    l->home.status = status;
    (void)snprintf(l->home.reason, sizeof l->home.reason, "%s", usm_last_error());
}

/* A rank that asks for no answer does not wait for one: a failure is then reported by this rank. */
static void acknowledge(usm__ranks_launch *l, uint32_t to, const usm__wire *what, usm_status status)
{
    usm__wire msg = {.op = USM__WIRE_ACK, .status = status, .request = what->request};

    if (what->request > 0)
        answer(l, to, &msg);
    else if (status != USM_OK)
        fail(l, usm__fail(status, "bytes that rank %u has computed cannot be kept: %s", to,
                          usm_status_name(status)));
}

/* Returns the argument if the message's address is within it and it has bytes here; else NULL. */
static const usm_split_arg *argument_of(const usm__ranks_launch *l, uint64_t arg, uint64_t offset,
                                        uint64_t size)
{
    const usm_parallel_desc *d = &l->plan->desc;
    const usm_split_arg     *a = arg < d->nargs ? &d->args[arg] : NULL;

    if (!a || a->follow < USM_FOLLOW_WHOLE || offset > a->size || size > a->size - offset)
        return NULL;
    return a;
}

/* ---- bytes ------------------------------------------------------------------------------ */

static usm_status read_bytes(usm__ranks_launch *l, size_t arg, size_t offset, size_t size, void *to)
{
    usm__piece piece = {0};
    usm_status st    = usm__bytes_local.open(l->plan, arg, offset, size, USM_READ, &piece);

    if (st != USM_OK)
        return st;
    memcpy(to, piece.ptr, size);
    return usm__bytes_local.close(l->plan, arg, offset, USM_READ, &piece, USM_OK);
}

static usm_status write_bytes(usm__ranks_launch *l, size_t arg, size_t offset, size_t size,
                              const void *from)
{
    usm__piece piece = {0};
    usm_status st    = usm__bytes_local.open(l->plan, arg, offset, size, USM_WRITE_NO_INIT, &piece);

    if (st != USM_OK)
        return st;
    memcpy(piece.ptr, from, size);
    return usm__bytes_local.close(l->plan, arg, offset, USM_WRITE_NO_INIT, &piece, USM_OK);
}

/* Reads bytes as they were at the start of the launch: kept pieces, or else the argument itself. */
static usm_status read_kept(usm__ranks_launch *l, size_t arg, size_t offset, size_t size, char *to)
{
    usm_status st = USM_OK;

    while (st == USM_OK && size > 0) {
        size_t      in = offset % USM__WIRE_PIECE, n = USM__WIRE_PIECE - in;
        const char *kept = l->home.kept[arg][offset / USM__WIRE_PIECE];

        if (n > size)
            n = size;
        if (kept)
            memcpy(to, kept + in, n);
        else
            st = read_bytes(l, arg, offset, n, to);
        offset += n;
        to += n;
        size -= n;
    }
    return st;
}

static usm_status keep(usm__ranks_launch *l, size_t arg, size_t offset, size_t size)
{
    size_t     all = l->plan->desc.args[arg].size;
    usm_status st  = USM_OK;

    for (size_t i = offset / USM__WIRE_PIECE; i * USM__WIRE_PIECE < offset + size; i++) {
        size_t at = i * USM__WIRE_PIECE,
               n  = all - at < USM__WIRE_PIECE ? all - at : USM__WIRE_PIECE;
        char *own;

        if (l->home.kept[arg][i])
            continue;
        own = usm__heap_alloc(n);
        if (!own)
            return usm__fail(USM_E_NO_MEMORY, "no host memory to keep what argument %zu was", arg);
        st = read_bytes(l, arg, at, n, own);
        if (st != USM_OK) {
            usm__heap_free(own);
            return st;
        }
        l->home.kept[arg][i] = own;
    }
    return st;
}

static void serve_fetch(usm__ranks_launch *l, uint32_t from, const usm__wire *ask)
{
    const usm_split_arg *a     = argument_of(l, ask->index, ask->a, ask->b);
    char                *bytes = (char *)l->home.message + USM__WIRE_HEADER;
    usm_status           st    = a ? USM_OK : USM_E_INVALID;

    for (uint64_t at = 0; st == USM_OK && at < ask->b;) {
        uint64_t  n   = ask->b - at < USM__WIRE_PIECE ? ask->b - at : USM__WIRE_PIECE;
        usm__wire msg = {
            .op = USM__WIRE_DATA, .request = ask->request, .a = ask->a + at, .size = (uint32_t)n};

        if (l->home.kept[ask->index])
            st = read_kept(l, ask->index, ask->a + at, n, bytes);
        else
            st = read_bytes(l, ask->index, ask->a + at, n, bytes);
        if (st == USM_OK)
            answer(l, from, &msg);
        at += n;
    }
    if (st != USM_OK) {
        usm__wire msg = {.op = USM__WIRE_DATA, .request = ask->request, .status = st};

        answer(l, from, &msg);
    }
}

static void serve_store(usm__ranks_launch *l, uint32_t from, const usm__wire *msg)
{
    const usm_split_arg *a  = argument_of(l, msg->index, msg->a, msg->size);
    usm_status           st = USM_OK;

    if (!a || a->follow != USM_FOLLOW_CHUNK || !(a->mode & USM_WRITE))
        st = USM_E_INVALID;
    else if (l->home.kept[msg->index])
        st = keep(l, msg->index, msg->a, msg->size);
    if (st == USM_OK)
        st = write_bytes(l, msg->index, msg->a, msg->size, msg->bytes);
    acknowledge(l, from, msg, st);
}

/* ---- private copies --------------------------------------------------------------------- */

/* The lock is held. */
static usm__copies *find_copies(usm__ranks_launch *l, uint32_t rank, uint64_t id)
{
    USM_LIST_FOREACH (it, &l->home.copies) {
        usm__copies *c = usm_container_of(it, usm__copies, link);

        if (c->rank == rank && c->id == id)
            return c;
    }
    return NULL;
}

/* Returns the record of the chunk, or a new one; NULL: no memory, or there is no such chunk.  The
 * lock is held. */
static usm__copies *make_copies(usm__ranks_launch *l, uint32_t rank, uint64_t id, uint64_t first,
                                uint64_t count)
{
    usm__copies *c = find_copies(l, rank, id);
    size_t       size;

    if (c)
        return c;
    if (count == 0 || first > l->plan->total || count > l->plan->total - first)
        return NULL;
    size = usm__plan_copies_size(l->plan, count);
    c    = usm__heap_alloc(sizeof *c + size);
    if (!c)
        return NULL;
    c->rank  = rank;
    c->id    = id;
    c->first = first;
    c->count = count;
    c->size  = size;
    usm_list_append(&l->home.copies, &c->link);
    return c;
}

usm_status usm__ranks_home_keep(usm__ranks_launch *l, const usm__chunk_end *end)
{
    const usm__chunk *chunk = &end->chunk;
    usm__copies      *c;

    usm__mutex_lock(&usm__ranks_all.lock);
    c = make_copies(l, l->ranks->self, chunk->id, chunk->first, chunk->count);
    if (c) {
        memcpy(c->bytes, end->copies, c->size < end->copies_size ? c->size : end->copies_size);
        c->have = c->size;
    }
    usm__mutex_unlock(&usm__ranks_all.lock);
    return c ? USM_OK : usm__fail(USM_E_NO_MEMORY, "no host memory for private copies");
}

/* Two members of a rank may do the same chunk, and send the same copies.  The second one's are
 * acknowledged and ignored, as are copies that arrive after the chunk has counted. */
static void take_copies(usm__ranks_launch *l, uint32_t from, const usm__wire *msg)
{
    uint64_t     at = (uint64_t)msg->index * USM__WIRE_PIECE;
    usm_status   st = USM_OK;
    usm__copies *c;

    usm__mutex_lock(&usm__ranks_all.lock);
    c = msg->index > 0 ? find_copies(l, from, msg->a)
                       : make_copies(l, from, msg->a, msg->b, msg->c);
    if (!c)
        st = msg->index > 0 ? USM_OK : USM_E_NO_MEMORY;
    else if (at > c->have || msg->size > c->size - at)
        st = USM_E_INVALID;
    else if (at == c->have) {
        memcpy(c->bytes + at, msg->bytes, msg->size);
        c->have += msg->size;
    }
    usm__mutex_unlock(&usm__ranks_all.lock);
    acknowledge(l, from, msg, st);
}

static void merge(usm__ranks_launch *l, const usm__copies *c)
{
    const usm_parallel_desc *d = &l->plan->desc;

    for (size_t i = 0; i < d->nargs; i++) {
        usm_status st;
        size_t     at;

        if (!l->home.trees[i])
            continue;
        (void)usm__plan_copies(l->plan, c->count, i, &at);
        st = usm__tree_add(l->home.trees[i], c->first, c->count, c->bytes + at);
        if (st != USM_OK)
            fail(l, st);
    }
}

static void take_counts(usm__ranks_launch *l, const usm__wire *msg)
{
    for (uint32_t i = 0; i < usm__wire_records(msg); i++) {
        usm__wire_record r;
        usm__copies     *c;

        usm__wire_get_record(msg->bytes + (size_t)i * USM__WIRE_RECORD, &r);
        usm__mutex_lock(&usm__ranks_all.lock);
        c = find_copies(l, r.member, r.id);
        if (c && c->have == c->size)
            usm_list_remove(&c->link);
        else
            c = NULL;
        usm__mutex_unlock(&usm__ranks_all.lock);
        if (c)
            merge(l, c);
        else
            fail(l, usm__fail(USM_E_SYSTEM, "the private copies of a chunk of rank %u are missing",
                              r.member));
        usm__heap_free(c);
    }
}

/* ---- the end ---------------------------------------------------------------------------- */

/* Takes the result of an argument to where the program expects it, and its beginning to all ranks. */
static usm_status finish(usm__ranks_launch *l, size_t arg, bool is_first)
{
    size_t     size  = l->plan->desc.args[arg].size;
    usm__piece piece = {0};
    usm_status st    = usm__bytes_local.open(l->plan, arg, 0, size, USM_READ_WRITE, &piece);

    if (st != USM_OK)
        return st;
    usm__tree_finish(l->home.trees[arg], piece.ptr);
    if (is_first)
        memcpy(&l->home.merged, piece.ptr,
               size < sizeof l->home.merged ? size : sizeof l->home.merged);
    return usm__bytes_local.close(l->plan, arg, 0, USM_READ_WRITE, &piece, USM_OK);
}

static void settle(usm__ranks_launch *l)
{
    usm__wire msg      = {.op = USM__WIRE_SETTLED};
    bool      is_first = true;

    for (size_t i = 0; l->home.status == USM_OK && i < l->plan->desc.nargs; i++)
        if (l->home.trees[i]) {
            usm_status st = finish(l, i, is_first);

            is_first = false;
            if (st != USM_OK)
                fail(l, st);
        }
    msg.status = l->home.status;
    msg.a      = l->home.merged;
    msg.bytes  = (const unsigned char *)l->home.reason;
    msg.size   = (uint32_t)strnlen(l->home.reason, sizeof l->home.reason - 1);
    usm__mutex_lock(&usm__ranks_all.lock);
    usm__ranks_launch_post(l, l->ranks->master, &msg);
    usm__mutex_unlock(&usm__ranks_all.lock);
}

void usm__ranks_home_receive(usm__ranks_launch *l, uint32_t from, const usm__wire *msg)
{
    bool is_master = from == l->ranks->master;

    if (msg->op == USM__WIRE_FETCH)
        serve_fetch(l, from, msg);
    else if (msg->op == USM__WIRE_STORE)
        serve_store(l, from, msg);
    else if (msg->op == USM__WIRE_COPIES)
        take_copies(l, from, msg);
    else if (msg->op == USM__WIRE_COUNTS && is_master)
        take_counts(l, msg);
    else if (msg->op == USM__WIRE_SETTLE && is_master)
        settle(l);
}
