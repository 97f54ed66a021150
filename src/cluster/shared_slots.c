/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory through which ranks of one host pass bytes of shared buffers.
 *
 * Each rank has an outbox for each buffer: a memory file of slots, which the other ranks of its host
 * open through its /proc/PID/fd and map.  To send bytes, a rank copies them into a free slot and
 * sends a message that names the slot; the receiver copies them out when an access needs them, and
 * releases the slot by clearing its state.  So bytes are copied twice, and no message system touches
 * them.
 *
 *     page 0     key; the state of each slot: 0 if it is free, else the serial of its use
 *     page 1 on  the slots
 *
 * - A rank uses slots for another one only after that one has said that it has mapped the outbox.
 * - If no slot is free, the bytes go in messages; so nobody waits for a slot.
 * - A receiver keeps a part of a sender's slots only (most_held); beyond that it copies the bytes to
 *   the heap at once.  So blocks that were requested ahead and never accessed do not block the rest.
 * - Slots of a rank that is lost stay taken: it may only have been stopped, and read them later.  The
 *   outbox of a rank that has ended stays mapped, with all that was sent.
 * - The file's pages exist before they are used, so that a full memory is noticed in time, and its
 *   size is sealed. */
#include "cluster/shared.h"

#include "base/inline/host.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_ipc.h"
#include "base/os_storage.h"
#include "base/settings.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define NAME      "usm-outbox"
#define PAGE      ((size_t)4096)
#define SLOT_MAX  ((size_t)1 << 20)
#define BYTES     ((size_t)8 << 20) /* of an outbox */
#define SLOTS_MAX 128u

typedef struct head {
    uint64_t          key;
    _Atomic(uint32_t) states[SLOTS_MAX];
} head;

struct usm__shared_outbox {
    head  *head;
    char  *slots;
    size_t size; /* bytes that are mapped */
    int    fd;   /* of the own one; else -1 */
};

_Static_assert(sizeof(head) <= PAGE, "the slots begin in page 1");

static usm__shared_outbox *map_outbox(const usm_shared_buffer *s, int fd)
{
    usm__shared_outbox *o = usm__heap_alloc(sizeof *o);

    if (!o)
        return NULL;
    o->size = PAGE + s->slots.count * s->slots.size;
    o->fd   = -1;
    o->head = usm__os_map_fd(NULL, o->size, PROT_READ | PROT_WRITE, fd);
    if (!o->head) {
        usm__heap_free(o);
        return NULL;
    }
    o->slots = (char *)o->head + PAGE;
    usm__os_keep_from_children(o->head, o->size);
    return o;
}

static void unmap_outbox(usm__shared_outbox *o)
{
    if (!o)
        return;
    (void)usm__os_unmap(o->head, o->size);
    if (o->fd >= 0)
        (void)usm__os_close(o->fd);
    usm__heap_free(o);
}

/* ---- this rank's outbox -------------------------------------------------------------------- */

/* The same on all ranks. */
static void set_sizes(usm_shared_buffer *s)
{
    usm__shared_slots *l     = &s->slots;
    uint64_t           count = s->machine.blocks;

    l->size = s->block_size < SLOT_MAX ? s->block_size : SLOT_MAX;
    if (count > BYTES / l->size)
        count = BYTES / l->size;
    l->count     = count < SLOTS_MAX ? (uint32_t)count : SLOTS_MAX;
    l->most_held = l->count / (2 * (s->machine.ranks - 1));
    if (l->most_held == 0)
        l->most_held = 1;
}

/* NULL: the system has no memory for it, or no such files. */
static usm__shared_outbox *make_outbox(const usm_shared_buffer *s, uint64_t key)
{
    const size_t        size = PAGE + s->slots.count * s->slots.size;
    int                 fd   = usm__os_memfd_sealable(NAME, size);
    usm__shared_outbox *o;

    if (fd < 0)
        return NULL;
    o = usm__os_seal(fd, false) == 0 ? map_outbox(s, fd) : NULL;
    if (!o) {
        (void)usm__os_close(fd);
        return NULL;
    }
    o->fd        = fd;
    o->head->key = key;
    return o;
}

usm_status usm__shared_slots_init(usm_shared_buffer *s)
{
    usm__shared_slots *l     = &s->slots;
    const uint32_t     ranks = s->machine.ranks;
    usm__shared_where  where = {0};

    l->others     = usm__heap_alloc(ranks * sizeof(usm__shared_outbox *));
    l->is_reached = usm__heap_alloc(ranks * sizeof *l->is_reached);
    l->held       = usm__heap_alloc(ranks * sizeof *l->held);
    if (!l->others || !l->is_reached || !l->held)
        return USM_E_NO_MEMORY;
    if (ranks == 1 || !usm__setting_bool("mpi_near"))
        return USM_OK;
    set_sizes(s);
    where.host = usm_host_number(&usm__os_api);
    if (where.host == 0 || usm__os_random(&where.key, sizeof where.key) != 0)
        return USM_OK;
    l->own = make_outbox(s, where.key);
    if (!l->own)
        return USM_OK;
    where.pid = (uint32_t)getpid();
    where.fd  = (uint32_t)l->own->fd;
    l->where  = where;
    return USM_OK;
}

void usm__shared_slots_fini(usm_shared_buffer *s)
{
    usm__shared_slots *l = &s->slots;

    for (uint32_t r = 0; l->others && r < s->machine.ranks; r++)
        unmap_outbox(l->others[r]);
    unmap_outbox(l->own);
    usm__heap_free(l->others);
    usm__heap_free(l->is_reached);
    usm__heap_free(l->held);
    *l = (usm__shared_slots){.count = 0};
}

/* ---- those of others ----------------------------------------------------------------------- */

/* -1: it cannot be opened, or is something else: the number of a process may be another's by now. */
static int open_outbox(const usm__shared_where *where, size_t size)
{
    static const char begin[] = "/memfd:" NAME;
    char              path[64], name[64];
    int64_t           got;
    int               fd;

    (void)snprintf(path, sizeof path, "/proc/%u/fd/%u", where->pid, where->fd);
    got = readlink(path, name, sizeof name);
    if (got < (int64_t)sizeof begin - 1 || memcmp(name, begin, sizeof begin - 1) != 0)
        return -1;
    fd = usm__os_file_open(path, O_RDWR, 0);
    if (fd < 0 || usm__os_is_fixed(fd, size))
        return fd;
    (void)usm__os_close(fd);
    return -1;
}

bool usm__shared_slots_map(usm_shared_buffer *s, uint32_t rank, const usm__shared_where *where)
{
    usm__shared_slots  *l = &s->slots;
    usm__shared_outbox *o = NULL;
    int                 fd;

    if (l->where.host == 0 || where->host != l->where.host)
        return false;
    fd = open_outbox(where, PAGE + l->count * l->size);
    if (fd >= 0)
        o = map_outbox(s, fd);
    if (fd >= 0)
        (void)usm__os_close(fd);
    if (o && o->head->key != where->key) {
        unmap_outbox(o);
        o = NULL;
    }
    if (!o)
        usm__log(USM_LOG_INFO,
                 "bytes of the shared buffer %s from rank %u come in messages: its memory "
                 "(/proc/%u/fd/%u) cannot be mapped",
                 s->name, rank, where->pid, where->fd);
    l->others[rank] = o;
    return o != NULL;
}

void usm__shared_slots_fill(usm_shared_buffer *s)
{
    usm__shared_slots *l = &s->slots;

    if (l->own && usm__os_file_fallocate(l->own->fd, 0, 0, l->own->size) == 0)
        usm_store_release(&l->is_filled, true);
}

void usm__shared_slots_reach(usm_shared_buffer *s, uint32_t rank)
{
    if (s->slots.own)
        usm_store_release(&s->slots.is_reached[rank], true);
}

/* ---- slots --------------------------------------------------------------------------------- */

/* Threads of the owner compete here; a receiver only releases. */
bool usm__shared_slot_take(usm_shared_buffer *s, uint32_t to, usm__shared_slot *slot)
{
    usm__shared_slots *l = &s->slots;
    uint32_t           serial;

    if (!usm_load_acquire(&l->is_reached[to]) || !usm_load_acquire(&l->is_filled))
        return false;
    serial = usm_add_relaxed(&l->serial, 1u) + 1;
    if (serial == 0) /* that is a free slot's */
        serial = usm_add_relaxed(&l->serial, 1u) + 1;
    for (uint32_t at = 0; at < l->count; at++) { /* those used last: they are in the caches */
        uint32_t free = 0;

        *slot = (usm__shared_slot){.state  = &l->own->head->states[at],
                                   .bytes  = l->own->slots + at * l->size,
                                   .number = at,
                                   .serial = serial};
        /* Pairs with _release(): the receiver has read the bytes. */
        if (usm_load_relaxed(slot->state) == 0 &&
            atomic_compare_exchange_strong(slot->state, &free, serial))
            return true;
    }
    return false;
}

bool usm__shared_slot_find(const usm_shared_buffer *s, uint32_t from,
                           const usm__shared_message *msg, usm__shared_slot *slot)
{
    const usm__shared_slots  *l = &s->slots;
    const usm__shared_outbox *o = l->others[from];

    if (!o || msg->slot >= l->count || msg->size > l->size)
        return false;
    *slot = (usm__shared_slot){.state  = &o->head->states[msg->slot],
                               .bytes  = o->slots + msg->slot * l->size,
                               .number = msg->slot,
                               .serial = msg->serial,
                               .owner  = from};
    return usm_load_acquire(slot->state) == msg->serial;
}

void usm__shared_slot_release(const usm__shared_slot *slot)
{
    uint32_t taken = slot->serial;

    (void)atomic_compare_exchange_strong(slot->state, &taken, 0);
}
