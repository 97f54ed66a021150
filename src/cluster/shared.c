/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared buffers: all ranks together create and destroy them; received messages find them by
 * number.
 *
 * A rank sends all others BYE when it destroys a buffer, and frees it when all live ranks have sent
 * theirs: after that no rank requests anything.  Messages that arrive later find no buffer, and are
 * dropped. */
#include "cluster/shared.h"

#include "base/inline/bytes.h"
#include "base/inline/clock.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "cluster/cluster.h"
#include "device/init.h"

#include <stdio.h>
#include <string.h>

#define BLOCK_SIZE     65536u
#define BLOCK_SIZE_MIN 4096u
#define BLOCK_SIZE_MAX ((size_t)1 << 30)
#define CREATE_MS      60000u
#define RECORD         56u

static usm__meta_type buffer_type =
    USM__META_TYPE(struct usm_shared_buffer, sizeof(usm__magic_word), "shared buffers");

static struct {
    usm__mutex     lock;
    pthread_cond_t unused;
    usm_list       list;
    uint64_t       calls; /* calls of usm_shared_buffer_create(): the same number on all ranks */
    bool           listens;
} all = {USM__MUTEX_INIT(USM__RANK_SHARED, "shared buffers"),
         PTHREAD_COND_INITIALIZER,
         {&all.list, &all.list},
         0,
         false};

/* A rank's message to the others about the buffer that it creates. */
typedef struct record {
    uint64_t          id, size, block_size;
    usm_status        status;
    bool              is_there; /* false: the rank has ended */
    usm__shared_where outbox;
} record;

/* ---- finding ---------------------------------------------------------------------------- */

/* Finds the buffer with the lowest number that is at least `id`, and counts it as used; NULL:
 * none. */
static usm_shared_buffer *find_from(uint64_t id)
{
    usm_shared_buffer *best = NULL;

    usm__mutex_lock(&all.lock);
    USM_LIST_FOREACH (it, &all.list) {
        usm_shared_buffer *s = usm_container_of(it, usm_shared_buffer, link);

        if (s->id >= id && (!best || s->id < best->id))
            best = s;
    }
    if (best)
        best->users++;
    usm__mutex_unlock(&all.lock);
    return best;
}

static void unuse(usm_shared_buffer *s)
{
    usm__mutex_lock(&all.lock);
    if (--s->users == 0)
        (void)pthread_cond_broadcast(&all.unused);
    usm__mutex_unlock(&all.lock);
}

/* The lock is held. */
static void take(usm_shared_buffer *s, uint32_t from, const usm__shared_message *msg,
                 const char *bytes)
{
    if (s->broken != USM_OK || from >= s->machine.ranks)
        return;
    if (msg->op == USM__SHARED_BYE)
        s->has_left[from] = true;
    else if (msg->op == USM__SHARED_MAPPED)
        usm__shared_slots_reach(s, from);
    else if (msg->op == USM__SHARED_DATA)
        usm__shared_take_data(s, from, msg, bytes);
    else
        usm__shared_receive(&s->machine, from, msg);
    if (msg->op == USM__SHARED_BYE || msg->op == USM__SHARED_ABSENT)
        (void)pthread_cond_broadcast(&s->changed);
}

/* Several messages that came as one are of one buffer.  Their answers are sent as one, too. */
static void came(void *arg, uint32_t from, const void *data, size_t size)
{
    const char         *at = data;
    usm__shared_message msg;
    uint64_t            id, of;
    usm_shared_buffer  *s;

    (void)arg;
    if (!usm__shared_decode(data, size, &id, &msg))
        return;
    s = find_from(id);
    if (!s)
        return;
    usm__mutex_lock(&s->lock);
    while (s->id == id && usm__shared_decode(at, size, &of, &msg) && of == id) {
        take(s, from, &msg, at + USM__SHARED_HEADER);
        at += usm__shared_length(&msg);
        size -= usm__shared_length(&msg);
    }
    (void)usm__shared_unlock(s);
    unuse(s);
}

static void rank_lost(usm_shared_buffer *s, uint32_t rank)
{
    usm__mutex_lock(&s->lock);
    if (s->broken == USM_OK)
        usm__shared_rank_lost(&s->machine, rank);
    (void)pthread_cond_broadcast(&s->changed);
    (void)usm__shared_unlock(s);
}

static void rank_changed(void *arg, uint32_t rank, usm_place_state state)
{
    usm_shared_buffer *s;

    (void)arg;
    for (uint64_t id = 0; state == USM_PLACE_LOST && (s = find_from(id)) != NULL;) {
        id = s->id + 1;
        rank_lost(s, rank);
        unuse(s);
    }
}

/* ---- creating ------------------------------------------------------------------------------ */

static void free_buffer(usm_shared_buffer *s)
{
    for (uint64_t b = 0; s->blocks && b < s->machine.blocks; b++) {
        usm__shared_page_drop(s, s->blocks[b].page);
        usm__shared_page_drop(s, s->blocks[b].coming);
    }
    usm__shared_moves_fini(s);
    usm__shared_slots_fini(s);
    usm__shared_fini(&s->machine);
    usm_buffer_destroy(s->local);
    usm__heap_free(s->blocks);
    usm__heap_free(s->has_left);
    (void)pthread_cond_destroy(&s->changed);
    usm__mutex_fini(&s->lock);
    usm__meta_free(&buffer_type, s);
}

static usm_status check_desc(const usm_shared_buffer_desc *d, usm_shared_buffer *const *buf)
{
    usm_status st = usm__struct_check("usm_shared_buffer_create", "desc", d, sizeof *d,
                                      "USM_SHARED_BUFFER_DESC_INIT");

    if (st != USM_OK)
        return st;
    if (!buf)
        return usm__fail(USM_E_INVALID, "usm_shared_buffer_create: buf is NULL");
    if (d->size == 0)
        return usm__fail(USM_E_INVALID, "usm_shared_buffer_create: size is 0");
    if (d->block_size != 0 && (d->block_size < BLOCK_SIZE_MIN || d->block_size > BLOCK_SIZE_MAX ||
                               (d->block_size & (d->block_size - 1)) != 0))
        return usm__fail(USM_E_INVALID,
                         "usm_shared_buffer_create: block_size %zu; a power of two from 4 KiB to "
                         "1 GiB, or 0 for 64 KiB",
                         d->block_size);
    return USM_OK;
}

/* Everything that may fail. */
static usm_status make_parts(usm_shared_buffer *s, usm_context *ctx)
{
    usm_buffer_desc local = USM_BUFFER_DESC_INIT;
    usm_status      st;

    local.size = s->size;
    local.name = s->name;
    st         = usm_buffer_create(ctx, &local, &s->local);
    if (st != USM_OK)
        return st;
    s->blocks   = usm__heap_alloc(s->machine.blocks * sizeof *s->blocks);
    s->has_left = usm__heap_alloc(s->machine.ranks * sizeof *s->has_left);
    st          = s->blocks && s->has_left ? usm__shared_init(&s->machine) : USM_E_NO_MEMORY;
    if (st == USM_OK)
        st = usm__shared_moves_init(s);
    if (st == USM_OK)
        st = usm__shared_slots_init(s);
    if (st == USM_E_NO_MEMORY)
        return usm__fail(st, "no host memory for the %llu blocks of a shared buffer",
                         (unsigned long long)s->machine.blocks);
    for (uint64_t b = 0; st == USM_OK && b < s->machine.blocks; b++)
        if (usm__shared_home(&s->machine, b) == s->machine.self)
            s->blocks[b].kind = USM__SHARED_KIND_ZERO;
    return st;
}

static usm_status make(usm_context *ctx, const usm_shared_buffer_desc *d, record *own,
                       usm_shared_buffer **out)
{
    usm_shared_buffer *s = usm__meta_alloc(&buffer_type);
    usm_status         st;

    if (!s)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a shared buffer");
    s->fork_generation = usm__fork_generation();
    s->id              = own->id;
    s->size            = d->size;
    s->block_size      = d->block_size ? d->block_size : BLOCK_SIZE;
    s->shift           = (unsigned)__builtin_ctzll(s->block_size);
    (void)snprintf(s->name, sizeof s->name, "%s", d->name ? d->name : "without a name");
    usm__mutex_init(&s->lock, USM__RANK_SHARED, "shared buffer");
    (void)usm_cond_init_monotonic(&s->changed);
    usm_list_init(&s->out);
    usm_list_init(&s->spare);
    s->machine.ops    = &usm__shared_moves;
    s->machine.arg    = s;
    s->machine.blocks = ((s->size - 1) >> s->shift) + 1;
    own->size         = s->size;
    own->block_size   = s->block_size;
    st                = usm__job_ranks(&s->machine.self, &s->machine.ranks);
    if (st == USM_OK)
        st = make_parts(s, ctx);
    if (st != USM_OK) {
        free_buffer(s);
        return st;
    }
    own->outbox = s->slots.where;
    *out        = s;
    return USM_OK;
}

/* From now on messages find the buffer. */
static void enter(usm_shared_buffer *s)
{
    usm__mutex_lock(&all.lock);
    usm_list_append(&all.list, &s->link);
    usm__mutex_unlock(&all.lock);
    for (uint32_t r = 0; r < s->machine.ranks; r++)
        if (usm__job_rank_is_lost(r))
            rank_lost(s, r);
}

static void leave(usm_shared_buffer *s)
{
    usm__mutex_lock(&all.lock);
    usm_list_remove(&s->link);
    while (s->users > 0)
        (void)usm__mutex_wait(&all.lock, &all.unused, NULL);
    usm__mutex_unlock(&all.lock);
}

/* ---- comparing the ranks' records ---------------------------------------------------------- */

static void write_record(const record *r, unsigned char at[RECORD])
{
    usm_put_le(at, r->id, 8);
    usm_put_le(at + 8, r->size, 8);
    usm_put_le(at + 16, r->block_size, 8);
    usm_put_le(at + 24, (uint32_t)r->status, 4);
    usm_put_le(at + 28, 1, 4);
    usm_put_le(at + 32, r->outbox.host, 8);
    usm_put_le(at + 40, r->outbox.key, 8);
    usm_put_le(at + 48, r->outbox.pid, 4);
    usm_put_le(at + 52, r->outbox.fd, 4);
}

static record read_record(const unsigned char at[RECORD])
{
    record r = {usm_get_le(at, 8),
                usm_get_le(at + 8, 8),
                usm_get_le(at + 16, 8),
                (usm_status)(int32_t)(uint32_t)usm_get_le(at + 24, 4),
                usm_get_le(at + 28, 4) == 1,
                {usm_get_le(at + 32, 8), usm_get_le(at + 40, 8), (uint32_t)usm_get_le(at + 48, 4),
                 (uint32_t)usm_get_le(at + 52, 4)}};

    return r;
}

static usm_status compare(uint32_t rank, const record *own, const record *r)
{
    if (!r->is_there)
        return usm__fail(USM_E_PEER, "rank %u has ended: no shared buffer can be made any more",
                         rank);
    if (r->id != own->id)
        return usm__fail(
            USM_E_INVALID,
            "rank %u is at its shared buffer number %llu, this rank at %llu: all ranks "
            "make them in the same order",
            rank, (unsigned long long)r->id, (unsigned long long)own->id);
    if (r->status != USM_OK)
        return usm__fail(USM_E_PEER, "rank %u could not make its part of a shared buffer: %s", rank,
                         usm_status_string(r->status));
    if (r->size != own->size || r->block_size != own->block_size)
        return usm__fail(USM_E_INVALID,
                         "rank %u makes a shared buffer of %llu bytes in blocks of %llu, this rank "
                         "of %llu in %llu",
                         rank, (unsigned long long)r->size, (unsigned long long)r->block_size,
                         (unsigned long long)own->size, (unsigned long long)own->block_size);
    return USM_OK;
}

/* Maps the outboxes of the other ranks of this host. */
static void map_others(usm_shared_buffer *s, const unsigned char *records)
{
    bool any = false;

    for (uint32_t r = 0; r < s->machine.ranks; r++) {
        const record other = read_record(records + (size_t)r * RECORD);

        if (r == s->machine.self || !usm__shared_slots_map(s, r, &other.outbox))
            continue;
        any = true;
        usm__mutex_lock(&s->lock);
        usm__shared_notify(s, r, USM__SHARED_MAPPED);
        (void)usm__shared_unlock(s);
    }
    if (any)
        usm__shared_slots_fill(s);
}

/* s: NULL if this rank's part failed, which `own` says. */
static usm_status agree(usm_shared_buffer *s, const record *own, uint32_t ranks)
{
    unsigned char *bytes = usm__heap_alloc((size_t)ranks * RECORD);
    unsigned char  mine[RECORD];
    usm_status     st;

    if (!bytes)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for what %u ranks say", ranks);
    write_record(own, mine);
    st = usm__job_agree(mine, RECORD, bytes, CREATE_MS, NULL);
    for (uint32_t r = 0; st == USM_OK && r < ranks; r++) {
        record other = read_record(bytes + (size_t)r * RECORD);

        st = compare(r, own, &other);
    }
    if (st == USM_OK && s)
        map_others(s, bytes);
    usm__heap_free(bytes);
    return st;
}

static uint64_t next_call(void)
{
    uint64_t call;
    bool     listens;

    usm__mutex_lock(&all.lock);
    call        = ++all.calls;
    listens     = all.listens;
    all.listens = true;
    usm__mutex_unlock(&all.lock);
    if (!listens) {
        usm__job_watch(rank_changed, NULL);
        usm__job_listen(USM__JOB_SHARED, came, NULL);
    }
    return call;
}

/* Nothing of the buffer is in progress. */
static bool is_idle(const usm_shared_buffer *s)
{
    return s->transfers == 0 && !s->is_sending && usm_list_is_empty(&s->out);
}

/* Without the lock.  Waits until it is so. */
static void wait_until(usm_shared_buffer *s, bool (*is_so)(const usm_shared_buffer *))
{
    usm__mutex_lock(&s->lock);
    for (unsigned turn = 1; !is_so(s); turn++) {
        if (usm__shared_wait(s, turn))
            continue;
        if (!usm__shared_unlock(s))
            usm__shared_step(s);
        usm__mutex_lock(&s->lock);
    }
    usm__mutex_unlock(&s->lock);
}

/* Sends all others the message, which is the rank's last one. */
static void say_last(usm_shared_buffer *s, usm__shared_op op)
{
    usm__mutex_lock(&s->lock);
    usm__shared_notify_all(s, op);
    (void)usm__shared_unlock(s);
}

static void end(usm_shared_buffer *s)
{
    wait_until(s, is_idle);
    leave(s);
    free_buffer(s);
}

static void give_up(usm_shared_buffer *s)
{
    say_last(s, USM__SHARED_ABSENT); /* others may take it to exist */
    end(s);
}

usm_status usm_shared_buffer_create(usm_context *ctx, const usm_shared_buffer_desc *desc,
                                    usm_shared_buffer **buf)
{
    usm_shared_buffer *s = NULL;
    uint32_t           self, ranks;
    record             own = {0};
    usm_status         st  = usm__job_ranks(&self, &ranks), st_own;
    usm__message       message;

    if (st != USM_OK)
        return st;
    /* A rank whose part fails joins the agreement all the same: the others wait for it. */
    own.id = next_call();
    st_own = check_desc(desc, buf);
    if (st_own == USM_OK)
        st_own = make(ctx, desc, &own, &s);
    own.status = st_own;
    usm__message_save(&message);
    if (s)
        enter(s);
    st = agree(s, &own, ranks);
    if (st == USM_OK) {
        atomic_store_explicit(&s->magic, (uint32_t)USM__MAGIC_SHARED_BUFFER, memory_order_release);
        *buf = s;
        return USM_OK;
    }
    if (st_own != USM_OK) {
        usm__message_restore(&message);
        return st_own;
    }
    usm__quietly(give_up(s));
    return st;
}

/* ---- destroying ---------------------------------------------------------------------------- */

static bool all_have_left(const usm_shared_buffer *s)
{
    for (uint32_t r = 0; s->broken == USM_OK && r < s->machine.ranks; r++)
        if (r != s->machine.self && !s->machine.lost[r] && !s->has_left[r])
            return false;
    return true;
}

void usm_shared_buffer_destroy(usm_shared_buffer *buf)
{
    if (!buf)
        return;
    if (!usm__handle_is(buf, USM__MAGIC_SHARED_BUFFER) ||
        !usm__handle_kill(buf, USM__MAGIC_SHARED_BUFFER)) {
        usm__warn("usm_shared_buffer_destroy: %p is not a shared buffer, or was destroyed before",
                  (void *)buf);
        return;
    }
    if (buf->fork_generation != usm__fork_generation())
        return; /* the buffer is the parent's */
    say_last(buf, USM__SHARED_BYE);
    wait_until(buf, all_have_left);
    end(buf);
}

/* ---- statistics ---------------------------------------------------------------------------- */

usm_status usm_shared_buffer_get_stats(usm_shared_buffer *buf, usm_shared_buffer_stats *stats)
{
    usm_shared_buffer_stats now = {.struct_size = sizeof now};
    usm_status              st  = usm__handle_check(buf, USM__MAGIC_SHARED_BUFFER);
    size_t                  size;

    if (st != USM_OK)
        return st;
    if (buf->fork_generation != usm__fork_generation())
        return usm__fail(USM_E_FORKED, "the shared buffer %s was made before fork()", buf->name);
    if (!stats || stats->struct_size < sizeof stats->struct_size)
        return usm__fail(USM_E_INVALID, "usm_shared_buffer_get_stats: stats is NULL, or its "
                                        "struct_size is not set");
    usm__mutex_lock(&buf->lock);
    now.blocks      = buf->machine.blocks;
    now.hits        = buf->machine.hits;
    now.misses      = buf->machine.misses;
    now.invalidated = buf->machine.invalidated;
    for (uint64_t b = 0; b < now.blocks; b++) {
        now.owned += buf->machine.local[b].hold >= USM__HOLD_OWNED;
        now.copies += buf->machine.local[b].hold == USM__HOLD_SHARED;
    }
    usm__mutex_unlock(&buf->lock);
    now.received    = usm_load_relaxed(&buf->received);
    now.sent        = usm_load_relaxed(&buf->sent);
    size            = stats->struct_size < sizeof now ? stats->struct_size : sizeof now;
    now.struct_size = stats->struct_size;
    memcpy(stats, &now, size);
    return USM_OK;
}
