/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The bytes of arguments on a rank of a launch.  A rank fetches and stores them by the address
 * {data's rank, argument, offset, length}, without going through the master.
 *
 *     fetch   FETCH of up to BATCH bytes; the next one is sent when all but BATCH of the requested
 *             bytes have arrived.  The answer is DATA of 64 KiB each
 *     store   STORE of 64 KiB each, at most WINDOW of them without an ACK.  If a single one is
 *             enough, it needs no ACK where the data's rank is the master: it is sent together with
 *             the end of the chunk
 *
 * On the rank that provides the data ("home" in the code), the members use the arguments in place,
 * unless another rank may be working on the same chunk: its stores would arrive while a kernel here
 * writes the same bytes.  So these members work on copies of what they write if the chunk was
 * handed out before.  The scheduler does not hand out a chunk again while they have it at the first
 * attempt (schedule.h).  Of what is read and written they always have copies, and the rank keeps
 * the original bytes (ranks_home.c).
 *
 * The thread that waits for bytes is a member's.  The end of the launch wakes it, so that it does
 * not wait for a rank that has died. */
#include "offload/ranks.h"

#include "base/os.h"

#include <stdio.h>
#include <string.h>

#define BATCH   ((uint64_t)1 << 20)
#define WINDOW  16u
#define MESSAGE (USM__WIRE_HEADER + (size_t)USM__WIRE_PIECE)
#define ALIGN   ((size_t)64)

/* ---- messages --------------------------------------------------------------------------- */

/* The lock is not held. */
static usm_status send_home(usm__ranks_launch *l, const usm__wire *msg, unsigned char *room)
{
    usm__wire  w = *msg;
    usm_status st;

    w.team   = l->ranks->id;
    w.launch = l->number;
    usm__wire_encode(&w, room);
    if (w.size > 0)
        memcpy(room + USM__WIRE_HEADER, w.bytes, w.size);
    if (!l->is_home)
        return usm__job_send(l->plan->desc.home, USM__JOB_TEAMS, room, USM__WIRE_HEADER + w.size);
    usm__mutex_lock(&usm__ranks_all.lock);
    usm__ranks_launch_came(l, l->ranks->self, room, USM__WIRE_HEADER + w.size);
    st = l->broken;
    usm__mutex_unlock(&usm__ranks_all.lock);
    return st;
}

static void begin(usm__ranks_launch *l, usm__ranks_transfer *t)
{
    t->request = ++l->next_request;
    usm_list_append(&l->transfers, &t->link);
}

/* Nothing more will arrive for the transfer that matters. */
static bool has_stopped(const usm__ranks_launch *l, const usm__ranks_transfer *t)
{
    return t->status != USM_OK || l->worker.is_over || l->broken != USM_OK;
}

/* Why a transfer is not complete.  A failure of this rank is reported as itself, because the
 * chunk's failure may reach the master before the launch's. */
static usm_status why_not_whole(const usm__ranks_launch *l, const usm__ranks_transfer *t,
                                const char **reason)
{
    *reason = "the launch is over";
    if (t->status != USM_OK) {
        *reason = "the rank that has the data could not read or write them";
        return t->status;
    }
    if (l->worker.is_over && l->worker.status != USM_OK)
        return l->worker.status;
    if (l->broken == USM_OK)
        return USM_E_CANCELLED;
    *reason = "nothing can be sent or stored any more";
    return l->broken;
}

/* Ends a transfer; if it is not complete, with an error message that says why. */
static usm_status end(usm__ranks_launch *l, usm__ranks_transfer *t, bool is_whole)
{
    const char *reason;
    usm_status  st;

    usm_list_remove(&t->link);
    if (is_whole && t->status == USM_OK) {
        usm__mutex_unlock(&usm__ranks_all.lock);
        return USM_OK;
    }
    st = why_not_whole(l, t, &reason);
    usm__mutex_unlock(&usm__ranks_all.lock);
    return usm__fail(st, "bytes of a launch, between rank %u and rank %u, which has the data: %s",
                     l->ranks->self, l->plan->desc.home, reason);
}

static void wait_for_bytes(usm__ranks_launch *l)
{
    (void)usm__mutex_wait(&usm__ranks_all.lock, &l->moved, NULL);
}

/* ---- fetch ------------------------------------------------------------------------------ */

static usm_status fetch(usm__ranks_launch *l, size_t arg, size_t offset, size_t size, void *to)
{
    usm__ranks_transfer t = {.to = to, .offset = offset, .size = size};
    unsigned char       room[USM__WIRE_HEADER];

    usm__mutex_lock(&usm__ranks_all.lock);
    begin(l, &t);
    while (t.got < size && !has_stopped(l, &t)) {
        uint64_t   left = size - t.asked, n = left < BATCH ? left : BATCH;
        usm__wire  msg = {.op      = USM__WIRE_FETCH,
                          .index   = (uint32_t)arg,
                          .request = t.request,
                          .a       = offset + t.asked,
                          .b       = n};
        usm_status st;

        if (n == 0 || t.asked - t.got > BATCH) {
            wait_for_bytes(l);
            continue;
        }
        t.asked += n;
        usm__mutex_unlock(&usm__ranks_all.lock);
        st = send_home(l, &msg, room);
        usm__mutex_lock(&usm__ranks_all.lock);
        if (st != USM_OK)
            t.status = st;
    }
    return end(l, &t, t.got == size);
}

static void data_came(usm__ranks_launch *l, usm__ranks_transfer *t, const usm__wire *msg)
{
    uint64_t before = t->asked - t->got, after;

    if (msg->status != 0 || msg->a != t->offset + t->got || msg->size > before)
        t->status = msg->status < 0 ? (usm_status)msg->status : USM_E_INVALID;
    else {
        memcpy(t->to + t->got, msg->bytes, msg->size);
        t->got += msg->size;
    }
    after = t->asked - t->got;
    if (t->status != USM_OK || after == 0 || (before > BATCH && after <= BATCH))
        (void)pthread_cond_broadcast(&l->moved);
}

/* ---- store ------------------------------------------------------------------------------ */

/* True: the bytes are sent together with the end of the chunk.  Both go to the same rank, which
 * receives the bytes first. */
static bool is_kept(usm__ranks_launch *l, usm__wire *msg, const void *from, size_t size)
{
    bool kept;

    if (l->is_home || l->plan->desc.home != l->ranks->master || size > USM__WIRE_PIECE)
        return false;
    msg->bytes = from;
    msg->size  = (uint32_t)size;
    usm__mutex_lock(&usm__ranks_all.lock);
    kept = usm__ranks_launch_keep(l, msg);
    usm__mutex_unlock(&usm__ranks_all.lock);
    return kept;
}

/* Sends all of `from` in messages of kind `op`; msg: what the messages have in common. */
static usm_status store(usm__ranks_launch *l, usm__wire *msg, const void *from, size_t size)
{
    usm__ranks_transfer t  = {.size = size};
    size_t              at = 0;
    unsigned char      *room;
    usm_status          st;

    if (is_kept(l, msg, from, size))
        return USM_OK;
    room = usm__heap_alloc(MESSAGE);
    if (!room)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a message of a launch's bytes");
    usm__mutex_lock(&usm__ranks_all.lock);
    begin(l, &t);
    msg->request = t.request;
    while ((at < size || t.flying > 0) && !has_stopped(l, &t)) {
        if (at == size || t.flying == WINDOW) {
            wait_for_bytes(l);
            continue;
        }
        t.flying++;
        usm__mutex_unlock(&usm__ranks_all.lock);
        msg->bytes = (const unsigned char *)from + at;
        msg->size  = (uint32_t)(size - at < USM__WIRE_PIECE ? size - at : USM__WIRE_PIECE);
        st         = send_home(l, msg, room);
        at += msg->size;
        if (msg->op == USM__WIRE_STORE)
            msg->a += msg->size;
        else
            msg->index++;
        usm__mutex_lock(&usm__ranks_all.lock);
        if (st != USM_OK)
            t.status = st;
    }
    st = end(l, &t, at == size && t.flying == 0);
    usm__heap_free(room);
    return st;
}

static void ack_came(usm__ranks_launch *l, usm__ranks_transfer *t, const usm__wire *msg)
{
    if (t->flying == 0)
        return;
    t->flying--;
    if (msg->status != 0)
        t->status = msg->status < 0 ? (usm_status)msg->status : USM_E_INVALID;
    if (t->flying == 0 || t->flying == WINDOW / 2 || t->status != USM_OK)
        (void)pthread_cond_broadcast(&l->moved);
}

void usm__ranks_bytes_came(usm__ranks_launch *l, uint32_t from, const usm__wire *msg)
{
    if (from != l->plan->desc.home)
        return;
    USM_LIST_FOREACH (it, &l->transfers) {
        usm__ranks_transfer *t = usm_container_of(it, usm__ranks_transfer, link);

        if (t->request != msg->request)
            continue;
        if (msg->op == USM__WIRE_DATA && t->to)
            data_came(l, t, msg);
        else if (msg->op == USM__WIRE_ACK && !t->to)
            ack_came(l, t, msg);
        return;
    }
}

usm_status usm__ranks_send_copies(usm__ranks_launch *l, const usm__chunk_end *e)
{
    usm__wire msg = {
        .op = USM__WIRE_COPIES, .a = e->chunk.id, .b = e->chunk.first, .c = e->chunk.count};

    return l->is_home ? usm__ranks_home_keep(l, e) : store(l, &msg, e->copies, e->copies_size);
}

/* ---- memory for pieces --------------------------------------------------------------------- */

/* Returns the smallest spare block that is large enough, and at most four times too large. */
static void *take_spare(usm__ranks_launch *l, size_t *size)
{
    unsigned best = USM__RANKS_SPARES;
    void    *ptr  = NULL;

    usm__mutex_lock(&usm__ranks_all.lock);
    for (unsigned i = 0; i < USM__RANKS_SPARES; i++)
        if (l->spares[i].ptr && l->spares[i].size >= *size && l->spares[i].size / 4 <= *size &&
            (best == USM__RANKS_SPARES || l->spares[i].size < l->spares[best].size))
            best = i;
    if (best < USM__RANKS_SPARES) {
        ptr                 = l->spares[best].ptr;
        *size               = l->spares[best].size;
        l->spares[best].ptr = NULL;
    }
    usm__mutex_unlock(&usm__ranks_all.lock);
    return ptr;
}

/* The first bytes of a block hold its size; the part that is used follows. */
static void *take_block(usm__ranks_launch *l, size_t size, void **own)
{
    size_t    room  = size + 2 * ALIGN;
    void     *block = take_spare(l, &room);
    uintptr_t at;

    if (!block)
        block = usm__heap_alloc(room);
    if (!block)
        return NULL;
    memcpy(block, &room, sizeof room);
    *own = block;
    at   = ((uintptr_t)block + sizeof room + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1);
    return (void *)at; /* NOLINT(performance-no-int-to-ptr): aligned within the block */
}

static void give_block(usm__ranks_launch *l, void *block)
{
    size_t size;

    memcpy(&size, block, sizeof size);
    usm__mutex_lock(&usm__ranks_all.lock);
    for (unsigned i = 0; block && i < USM__RANKS_SPARES; i++)
        if (!l->spares[i].ptr) {
            l->spares[i].ptr  = block;
            l->spares[i].size = size;
            block             = NULL;
        }
    usm__mutex_unlock(&usm__ranks_all.lock);
    usm__heap_free(block);
}

void usm__ranks_bytes_end(usm__ranks_launch *l)
{
    for (unsigned i = 0; i < USM__RANKS_SPARES; i++)
        usm__heap_free(l->spares[i].ptr);
}

/* ---- pieces ----------------------------------------------------------------------------- */

static bool is_in_place(const usm__ranks_launch *l, usm_access_mode mode, uint32_t attempt)
{
    return l->is_home && mode != USM_READ_WRITE && (attempt == 0 || !(mode & USM_WRITE));
}

static usm_status open_piece(void *from, size_t arg, size_t offset, size_t size,
                             usm_access_mode mode, usm__piece *piece)
{
    usm__ranks_launch *l  = from;
    usm_status         st = USM_OK;

    piece->own = NULL;
    if (is_in_place(l, mode, piece->attempt))
        return usm__bytes_local.open(l->plan, arg, offset, size, mode, piece);
    piece->size          = size;
    piece->access.buffer = NULL;
    piece->ptr           = take_block(l, size, &piece->own);
    if (!piece->ptr)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for %zu bytes of argument %zu", size,
                         arg);
    if (!(mode & USM_NO_INIT) && size > 0)
        st = fetch(l, arg, offset, size, piece->ptr);
    if (st != USM_OK) {
        give_block(l, piece->own);
        piece->ptr = piece->own = NULL;
    }
    return st;
}

static usm_status close_piece(void *from, size_t arg, size_t offset, usm_access_mode mode,
                              usm__piece *piece, usm_status status)
{
    usm__ranks_launch *l   = from;
    usm__wire          msg = {.op = USM__WIRE_STORE, .index = (uint32_t)arg, .a = offset};
    usm_status         st  = USM_OK;

    if (!piece->own)
        return usm__bytes_local.close(l->plan, arg, offset, mode, piece, status);
    if (status == USM_OK && (mode & USM_WRITE) && piece->size > 0)
        st = store(l, &msg, piece->ptr, piece->size);
    give_block(l, piece->own);
    piece->ptr = piece->own = NULL;
    return st;
}

const usm__bytes_ops usm__bytes_ranks = {open_piece, close_piece};
