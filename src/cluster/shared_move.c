/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Messages and bytes of shared buffers, sent and received.
 *
 * Messages ("letters" in the code) are sent in the order in which the state machine wrote them, by
 * one thread at a time, without the lock: a transport may call the listener from inside a send.
 * Whoever releases the lock while there are some, and nobody sends, sends all of them
 * (usm__shared_unlock()).  Those to one rank that follow each other are sent as one.  Messages of the
 * rank to itself are passed back to the state machine at once.
 *
 * Bytes are sent together with the messages if they are in memory, else by a job of the executor,
 * since loading them may wait for storage.  To a rank of the same host they go through a slot of
 * the outbox (shared_slots.c), else behind the message.  The listener makes a page of the slot, or
 * receives them into one of the heap.  The thread that accesses the block copies the page into the
 * local buffer (shared_access.c), which may wait as well. */
#include "cluster/shared.h"

#include "base/log.h"
#include "base/os.h"
#include "cluster/cluster.h"
#include "command/executor.h"

#include <string.h>

#define PART   (USM__JOB_MESSAGE_MAX - USM__SHARED_HEADER)
#define SPARE  64u  /* spare messages, for when there is no memory */
#define TRIES  400u /* attempts to get memory that accesses of this rank hold */
#define TRY_NS 5000000u

/* Bytes in slots whose messages wait for more: a message costs as much as copying some 16 KiB, and
 * the receiver should copy while this rank does. */
#define SLOTS_AT_ONCE ((size_t)128 << 10)

typedef enum packet_kind {
    LETTER = 0,
    BYTES, /* of `give` */
    END    /* the give has ended, which the state machine learns later */
} packet_kind;

typedef struct packet {
    usm_list            link;
    uint32_t            to;
    packet_kind         kind;
    usm__shared_message msg;
    usm__shared_give    give;
    usm__shared_page   *page; /* of BYTES; NULL: they are in the local buffer */
} packet;

/* Messages to one rank that are sent as one. */
typedef struct outgoing {
    unsigned char *part; /* room for USM__JOB_MESSAGE_MAX bytes */
    size_t         size;
    size_t         in_slots; /* bytes that they announce */
    uint32_t       to;
    usm_status     failed; /* a send, for another reason than the loss of its receiver */
} outgoing;

typedef struct transfer {
    usm__executor_job  job;
    usm_shared_buffer *s;
    usm__shared_give   give;
    unsigned char      part[USM__JOB_MESSAGE_MAX];
} transfer;

/* ---- messages ------------------------------------------------------------------------------ */

static packet *new_packet(usm_shared_buffer *s)
{
    packet   *l  = usm__heap_alloc(sizeof *l);
    usm_list *it = l ? NULL : usm_list_pop(&s->spare);

    if (it) {
        l = usm_container_of(it, packet, link);
        memset(l, 0, sizeof *l);
        s->spares--;
    }
    if (l)
        usm_list_append(&s->out, &l->link);
    else
        usm__shared_break(s, USM_E_NO_MEMORY);
    return l;
}

static void free_packet(usm_shared_buffer *s, packet *l)
{
    if (s->spares < SPARE) {
        s->spares++;
        usm_list_append(&s->spare, &l->link);
    } else {
        usm__heap_free(l);
    }
}

static void on_send(void *arg, uint32_t to, const usm__shared_message *msg)
{
    packet *l = new_packet(arg);

    if (!l)
        return;
    l->to  = to;
    l->msg = *msg;
}

/* ---- messages that are sent as one ----------------------------------------------------------- */

static void flush(outgoing *o)
{
    usm_status st = USM_OK;

    if (o->size > 0)
        st = usm__job_send(o->to, USM__JOB_SHARED, o->part, o->size);
    if (st != USM_OK && st != USM_E_PEER) /* the loss of a rank is reported separately */
        o->failed = st;
    o->size = o->in_slots = 0;
}

static void add(const usm_shared_buffer *s, outgoing *o, uint32_t to,
                const usm__shared_message *msg)
{
    if (o->to != to || o->size + USM__SHARED_HEADER > USM__JOB_MESSAGE_MAX)
        flush(o);
    o->to = to;
    usm__shared_encode(s->id, msg, o->part + o->size);
    o->size += USM__SHARED_HEADER;
}

/* ---- sending bytes ------------------------------------------------------------------------- */

/* Bytes of a block, msg->size of them at most; sets msg->size to their number. */
static usm_status send_piece(usm_shared_buffer *s, outgoing *o, uint32_t to,
                             usm__shared_message *msg, const char *bytes)
{
    usm__shared_slot slot;

    if (usm__shared_slot_take(s, to, &slot)) {
        if (msg->size > s->slots.size)
            msg->size = (uint32_t)s->slots.size;
        if (o->to != to || msg->size >= SLOTS_AT_ONCE)
            flush(o); /* the others' messages do not wait for the copy */
        memcpy(slot.bytes, bytes, msg->size);
        msg->slot   = slot.number;
        msg->serial = slot.serial;
        add(s, o, to, msg);
        o->in_slots += msg->size;
        if (o->in_slots >= SLOTS_AT_ONCE)
            flush(o);
        return o->failed;
    }
    flush(o);
    if (msg->size > PART)
        msg->size = PART;
    msg->slot = msg->serial = 0;
    usm__shared_encode(s->id, msg, o->part);
    memcpy(o->part + USM__SHARED_HEADER, bytes, msg->size);
    return usm__job_send(to, USM__JOB_SHARED, o->part, USM__SHARED_HEADER + msg->size);
}

static usm_status send_bytes(usm_shared_buffer *s, const usm__shared_give *give, const char *bytes,
                             outgoing *o)
{
    size_t              size = usm__shared_block_size(s, give->block);
    usm__shared_message msg  = {.op      = USM__SHARED_DATA,
                                .flags   = give->flags,
                                .block   = give->block,
                                .request = give->request,
                                .txn     = give->txn};
    usm_status          st   = USM_OK;

    if (usm__job_rank_is_lost(give->to))
        return USM_E_PEER;
    for (size_t at = 0; st == USM_OK && at < size; at += msg.size) {
        msg.offset = (uint32_t)at;
        msg.size   = (uint32_t)(size - at);
        st         = send_piece(s, o, give->to, &msg, bytes + at);
        if (st == USM_OK)
            usm_add_relaxed(&s->sent, msg.size);
    }
    return st;
}

/* USM_E_NOT_READY: it would have to wait. */
static usm_status send_local(usm_shared_buffer *s, const usm__shared_give *give, outgoing *o,
                             bool may_wait)
{
    size_t          offset = (size_t)usm__shared_block_offset(s, give->block);
    size_t          size   = usm__shared_block_size(s, give->block);
    usm_access_mode mode   = may_wait ? USM_READ : (usm_access_mode)(USM_READ | USM_NO_WAIT);
    usm_access      acc;
    usm_status      st = USM_E_AGAIN;

    for (unsigned i = 0; st == USM_E_AGAIN && i < (may_wait ? TRIES : 1); i++) {
        if (i > 0)
            usm__os_sleep_ns(TRY_NS);
        st = usm_access_begin(s->local, offset, size, mode, &acc);
    }
    if (st != USM_OK)
        return may_wait ? st : USM_E_NOT_READY;
    st = send_bytes(s, give, acc.ptr, o);
    usm_access_end(&acc);
    return st;
}

void usm__shared_page_drop(usm_shared_buffer *s, usm__shared_page *page)
{
    if (!page || --page->refs > 0)
        return;
    if (page->slot.state) {
        usm__shared_slot_release(&page->slot);
        s->slots.held[page->slot.owner]--;
        usm__heap_free(page);
        return;
    }
    if (s->nidle >= USM__SHARED_AHEAD || s->nidle >= USM__SHARED_AHEAD_MAX >> s->shift) {
        usm__heap_free(page);
        return;
    }
    page->next = s->idle;
    s->idle    = page;
    s->nidle++;
}

/* A page for any block. */
static usm__shared_page *new_page(usm_shared_buffer *s)
{
    usm__shared_page *page = s->idle;

    if (page) {
        s->idle = page->next;
        s->nidle--;
    } else {
        page = usm__heap_alloc(sizeof *page + (s->size < s->block_size ? s->size : s->block_size));
    }
    if (page) {
        page->refs  = 1;
        page->bytes = page->own;
    }
    return page;
}

bool usm__shared_busy_begin(usm_shared_buffer *s, uint64_t block, usm__shared_page **page)
{
    usm__shared_block *b = &s->blocks[block];

    if (b->kind == USM__SHARED_KIND_NONE)
        return false;
    b->is_busy = true;
    *page      = b->kind == USM__SHARED_KIND_PAGE ? b->page : NULL;
    if (*page)
        (*page)->refs++;
    return true;
}

void usm__shared_busy_end(usm_shared_buffer *s, uint64_t block, usm__shared_page *page)
{
    s->blocks[block].is_busy = false;
    usm__shared_page_drop(s, page);
    (void)pthread_cond_broadcast(&s->changed);
}

/* Sends a block's bytes from where they are.  pre: the thread has made it busy. */
static usm_status send_block(usm_shared_buffer *s, const usm__shared_give *give,
                             const usm__shared_page *page, outgoing *o, bool may_wait)
{
    return page ? send_bytes(s, give, page->bytes, o) : send_local(s, give, o, may_wait);
}

static usm_status send_block_now(transfer *t, const usm__shared_page *page)
{
    outgoing   o  = {.part = t->part};
    usm_status st = send_block(t->s, &t->give, page, &o, true);

    flush(&o);
    return st == USM_OK ? o.failed : st;
}

static void run_transfer(usm__executor_job *job)
{
    transfer          *t    = usm_container_of(job, transfer, job);
    usm_shared_buffer *s    = t->s;
    usm__shared_page  *page = NULL;
    usm_status         st   = USM_E_PEER; /* the block's owner has ended meanwhile */
    bool               has_bytes;

    usm__mutex_lock(&s->lock);
    while (s->blocks[t->give.block].is_busy)
        (void)usm__mutex_wait(&s->lock, &s->changed, NULL);
    has_bytes = usm__shared_busy_begin(s, t->give.block, &page);
    usm__mutex_unlock(&s->lock);
    if (has_bytes)
        st = send_block_now(t, page);
    usm__mutex_lock(&s->lock);
    if (has_bytes)
        usm__shared_busy_end(s, t->give.block, page);
    usm__shared_sent(&s->machine, &t->give, st);
    (void)usm__shared_unlock(s);
    usm__mutex_lock(&s->lock);
    s->transfers--;
    (void)pthread_cond_broadcast(&s->changed);
    usm__mutex_unlock(&s->lock);
    usm__heap_free(t);
}

/* For blocks that must wait for memory, or until the block is no longer busy. */
static void post_transfer(usm_shared_buffer *s, const usm__shared_give *give)
{
    transfer *t = usm__heap_alloc(sizeof *t);

    if (!t) {
        usm__shared_sent(&s->machine, give, USM_E_NO_MEMORY);
        return;
    }
    t->job.run = run_transfer;
    t->s       = s;
    t->give    = *give;
    s->transfers++;
    usm__executor_post(&t->job);
}

/* ---- sending, in order --------------------------------------------------------------------- */

/* The lock is held.  True: the packet is to be sent without it. */
static bool begin_packet(usm_shared_buffer *s, packet *l)
{
    if (l->kind == BYTES && s->blocks[l->give.block].is_busy)
        post_transfer(s, &l->give);
    else if (l->kind == BYTES && !usm__shared_busy_begin(s, l->give.block, &l->page))
        usm__shared_sent(&s->machine, &l->give, USM_E_PEER); /* its owner has ended meanwhile */
    else if (l->kind == END)
        usm__shared_sent(&s->machine, &l->give, USM_OK);
    else if (l->kind == LETTER && l->to == s->machine.self)
        usm__shared_receive(&s->machine, l->to, &l->msg);
    else
        return true;
    return false;
}

static usm_status send_packet(usm_shared_buffer *s, const packet *l, outgoing *o)
{
    if (l->kind == BYTES)
        return send_block(s, &l->give, l->page, o, false);
    add(s, o, l->to, &l->msg);
    return USM_OK;
}

/* The lock is held. */
static void end_packet(usm_shared_buffer *s, const packet *l, usm_status st)
{
    if (l->kind != BYTES)
        return;
    usm__shared_busy_end(s, l->give.block, l->page);
    if (st == USM_E_NOT_READY)
        post_transfer(s, &l->give);
    else
        usm__shared_sent(&s->machine, &l->give, st);
}

/* Without the lock.  pre: this thread has set is_sending. */
static void send_all(usm_shared_buffer *s)
{
    outgoing  o = {.part = s->part};
    usm_list *it;

    usm__mutex_lock(&s->lock);
    do {
        while ((it = usm_list_pop(&s->out))) {
            packet *l = usm_container_of(it, packet, link);

            if (begin_packet(s, l)) {
                usm_status st;

                usm__mutex_unlock(&s->lock);
                st = send_packet(s, l, &o);
                usm__mutex_lock(&s->lock);
                end_packet(s, l, st);
            }
            free_packet(s, l);
        }
        usm__mutex_unlock(&s->lock);
        flush(&o);
        usm__mutex_lock(&s->lock);
        if (o.failed != USM_OK)
            usm__shared_break(s, o.failed);
    } while (!usm_list_is_empty(&s->out));
    s->is_sending = false;
    (void)pthread_cond_broadcast(&s->changed);
    usm__mutex_unlock(&s->lock);
}

bool usm__shared_unlock(usm_shared_buffer *s)
{
    bool sends = !s->is_sending && !usm_list_is_empty(&s->out);

    if (sends)
        s->is_sending = true;
    usm__mutex_unlock(&s->lock);
    if (sends)
        send_all(s);
    return sends;
}

void usm__shared_notify(usm_shared_buffer *s, uint32_t rank, usm__shared_op op)
{
    const usm__shared_message msg = {.op = (uint8_t)op};

    on_send(s, rank, &msg);
}

void usm__shared_notify_all(usm_shared_buffer *s, usm__shared_op op)
{
    for (uint32_t r = 0; r < s->machine.ranks; r++)
        if (r != s->machine.self && !s->machine.lost[r])
            usm__shared_notify(s, r, op);
}

void usm__shared_break(usm_shared_buffer *s, usm_status st)
{
    if (s->broken != USM_OK)
        return;
    s->broken = st;
    if (st != USM_E_MPI)
        usm__log(USM_LOG_ERROR, "the shared buffer %s cannot be used by this rank any more: %s",
                 s->name, usm_status_string(st));
    usm__shared_notify_all(s, USM__SHARED_ABSENT);
    (void)pthread_cond_broadcast(&s->changed);
}

/* ---- actions of the state machine: give ---------------------------------------------------- */

/* Queued with the messages, not done from inside the state machine. */
static void give_packet(usm_shared_buffer *s, const usm__shared_give *give, packet_kind kind)
{
    packet *l = new_packet(s);

    if (!l)
        return;
    l->kind = kind;
    l->give = *give;
}

static void on_give(void *arg, const usm__shared_give *give)
{
    usm_shared_buffer        *s   = arg;
    const usm__shared_message msg = {.op      = USM__SHARED_DATA,
                                     .flags   = (uint8_t)(give->flags | USM__SHARED_ZERO),
                                     .block   = give->block,
                                     .request = give->request,
                                     .txn     = give->txn};

    if (s->blocks[give->block].kind != USM__SHARED_KIND_ZERO) {
        give_packet(s, give, BYTES);
        return;
    }
    on_send(s, give->to, &msg);
    give_packet(s, give, END);
}

/* ---- receiving bytes ----------------------------------------------------------------------- */

static void set_content(usm_shared_buffer *s, uint64_t block, usm__shared_kind kind,
                        usm__shared_page *page)
{
    usm__shared_block *b = &s->blocks[block];

    usm__shared_page_drop(s, b->page);
    b->page = page;
    b->kind = (uint8_t)kind;
}

/* If it was given, it is lost; ranks that ask its directory learn that. */
static void refuse_data(usm_shared_buffer *s, uint32_t from, const usm__shared_message *msg)
{
    usm__shared_message refusal = *msg;

    refusal.op     = USM__SHARED_REFUSE;
    refusal.status = USM_E_NO_MEMORY;
    usm__shared_receive(&s->machine, from, &refusal);
}

/* Returns the page of the block's bytes once it is complete; else NULL. */
static usm__shared_page *take_piece(usm_shared_buffer *s, uint32_t from,
                                    const usm__shared_message *msg, const char *bytes)
{
    usm__shared_block *b    = &s->blocks[msg->block];
    size_t             size = usm__shared_block_size(s, msg->block);
    usm__shared_page  *page;

    if (!b->coming || b->request != msg->request) {
        usm__shared_page_drop(s, b->coming);
        b->coming  = new_page(s);
        b->have    = 0;
        b->request = msg->request;
        if (!b->coming) {
            refuse_data(s, from, msg);
            return NULL;
        }
    }
    if (msg->offset != b->have || msg->size > size - b->have)
        return NULL; /* it came before */
    memcpy(b->coming->bytes + b->have, bytes, msg->size);
    b->have += msg->size;
    if (b->have < size)
        return NULL;
    page      = b->coming;
    b->coming = NULL;
    return page;
}

/* Makes a page of a slot with a whole block; NULL: it has to be copied now. */
static usm__shared_page *keep_slot(usm_shared_buffer *s, const usm__shared_message *msg,
                                   const usm__shared_slot *slot)
{
    usm__shared_page *page = NULL;

    if (msg->size == usm__shared_block_size(s, msg->block) &&
        s->slots.held[slot->owner] < s->slots.most_held)
        page = usm__heap_alloc(sizeof *page);
    if (!page)
        return NULL;
    page->refs  = 1;
    page->bytes = slot->bytes;
    page->slot  = *slot;
    s->slots.held[slot->owner]++;
    return page;
}

static usm__shared_page *take_slot(usm_shared_buffer *s, uint32_t from,
                                   const usm__shared_message *msg, const usm__shared_slot *slot)
{
    usm__shared_page *page = keep_slot(s, msg, slot);

    if (page)
        return page;
    page = take_piece(s, from, msg, slot->bytes);
    usm__shared_slot_release(slot);
    return page;
}

void usm__shared_take_data(usm_shared_buffer *s, uint32_t from, const usm__shared_message *msg,
                           const char *bytes)
{
    usm__shared_slot slot = {.state = NULL};

    if (msg->serial && !usm__shared_slot_find(s, from, msg, &slot))
        return;
    if (msg->block >= s->machine.blocks ||
        !usm__shared_expects(&s->machine, msg->block, msg->request)) {
        if (slot.state)
            usm__shared_slot_release(&slot);
        return;
    }
    if (msg->flags & USM__SHARED_ZERO) {
        set_content(s, msg->block, USM__SHARED_KIND_ZERO, NULL);
    } else if (!(msg->flags & USM__SHARED_NO_BYTES)) {
        usm__shared_page *page =
            slot.state ? take_slot(s, from, msg, &slot) : take_piece(s, from, msg, bytes);

        usm_add_relaxed(&s->received, msg->size);
        if (!page)
            return;
        set_content(s, msg->block, USM__SHARED_KIND_PAGE, page);
    }
    usm__shared_receive(&s->machine, from, msg);
}

static void on_content(void *arg, uint64_t block, bool is_blank)
{
    usm_shared_buffer *s = arg;

    set_content(s, block, is_blank ? USM__SHARED_KIND_BLANK : USM__SHARED_KIND_NONE, NULL);
}

static void on_wake(void *arg, usm__shared_waiter *waiter)
{
    usm_shared_buffer *s = arg;

    (void)waiter;
    (void)pthread_cond_broadcast(&s->changed);
}

const usm__shared_ops usm__shared_moves = {on_send, on_give, on_wake, on_content};

/* ---- start and end ------------------------------------------------------------------------ */

usm_status usm__shared_moves_init(usm_shared_buffer *s)
{
    usm_list_init(&s->out);
    usm_list_init(&s->spare);
    s->part = usm__heap_alloc(USM__JOB_MESSAGE_MAX);
    if (!s->part)
        return USM_E_NO_MEMORY;
    for (unsigned i = 0; i < SPARE; i++) {
        packet *l = usm__heap_alloc(sizeof *l);

        if (!l)
            return USM_E_NO_MEMORY;
        usm_list_append(&s->spare, &l->link);
        s->spares++;
    }
    return usm__executor_reserve();
}

void usm__shared_moves_fini(usm_shared_buffer *s)
{
    usm_list *it;

    while ((it = usm_list_pop(&s->out)) || (it = usm_list_pop(&s->spare)))
        usm__heap_free(usm_container_of(it, packet, link));
    for (usm__shared_page *next, *page = s->idle; page; page = next) {
        next = page->next;
        usm__heap_free(page);
    }
    usm__heap_free(s->part);
    s->idle = NULL;
    s->part = NULL;
}
