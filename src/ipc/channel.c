/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Channels: opening and closing them, barriers and gathers, which members are alive.
 * group/meet.h has how members meet, barrier.c how they agree, channel.h the page that they share.
 *
 * Each member monitors all others (rendezvous.h): when one ends, the kernel notifies this process,
 * which wakes all that sleep at the page, here and in other processes. */
#include "ipc/channel.h"

#include "base/meta.h"
#include "base/os.h"
#include "device/init.h"
#include "device/registry.h"

#include <stdio.h>
#include <string.h>

static usm__meta_type channel_type =
    USM__META_TYPE(struct usm_ipc_channel, sizeof(usm__magic_word), "channels");

/* ---- ranks --------------------------------------------------------------------------- */

bool usm__channel_ranks_any(const usm__channel_ranks *r)
{
    uint64_t any = 0;

    for (unsigned i = 0; i < sizeof(r->bits) / sizeof(r->bits[0]); i++)
        any |= r->bits[i];
    return any != 0;
}

static unsigned count_of(const usm__channel_ranks *r)
{
    unsigned n = 0;

    for (unsigned i = 0; i < sizeof(r->bits) / sizeof(r->bits[0]); i++)
        n += (unsigned)__builtin_popcountll(r->bits[i]);
    return n;
}

const char *usm__channel_ranks_text(const usm__channel_ranks *r, char *text, size_t size)
{
    const unsigned count    = count_of(r);
    unsigned       notified = 0;
    size_t         used     = 0;

    text[0] = '\0';
    for (uint32_t rank = 0; rank < USM__CHANNEL_SIZE_MAX && notified < 12; rank++) {
        const char *before = notified == 0 ? "" : notified + 1 == count ? " and " : ", ";

        if (!usm__channel_ranks_have(r, rank))
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%u", before, rank);
        if (used >= size)
            return text;
        notified++;
    }
    if (notified < count)
        (void)snprintf(text + used, size - used, " and %u more", count - notified);
    return text;
}

/* ---- the page ---------------------------------------------------------------------------- */

static size_t contributions_at(uint32_t size)
{
    const size_t n = sizeof(usm__channel_page) + size * sizeof(usm__channel_member);

    return (n + 4095) & ~(size_t)4095;
}

/* The contribution of `rank` in calls of that parity. */
static char *contribution(const usm_ipc_channel *ch, uint64_t call, uint32_t rank)
{
    const size_t slot = (size_t)(call & 1) * ch->size + rank;

    return (char *)ch->page + contributions_at(ch->size) + slot * USM__CHANNEL_BYTES;
}

/* ---- meeting ----------------------------------------------------------------------------- */

#define RELEASE 1u /* of the page and of what group/meet.c sends */

typedef struct hello {
    usm__ipc_process process;
    uint32_t         has_across;
} hello;

/* Waits until all members have come; then ch has the page, and knows their processes. */
static usm_status meet(usm_ipc_channel *ch, const usm_ipc_channel_desc *desc)
{
    hello              own = {.has_across = desc->across != NULL};
    char               name[100], what[USM__CHANNEL_NAME_MAX + 16];
    usm_status         st = usm__ipc_self(&own.process);
    usm__group_meeting m  = {.api         = &usm__registry_api,
                             .name        = name,
                             .what        = what,
                             .place       = "name",
                             .release     = RELEASE,
                             .rank        = ch->rank,
                             .size        = ch->size,
                             .timeout_ms  = desc->timeout_ms,
                             .other_size  = USM_E_BUSY,
                             .hello       = &own,
                             .hello_size  = sizeof own,
                             .shared_size = contributions_at(ch->size) +
                                            (size_t)2 * ch->size * USM__CHANNEL_BYTES};

    if (st != USM_OK)
        return st;
    (void)snprintf(name, sizeof name, "usm-channel-%u-%s", own.process.uid, desc->name);
    (void)snprintf(what, sizeof what, "the group \"%s\"", desc->name);
    st = usm__group_meet(&m, &ch->group);
    if (st != USM_OK)
        return st;
    ch->page = usm__group_shared(&ch->group);
    for (uint32_t r = 0; r < ch->size; r++) {
        const hello *h = usm__group_hello(&ch->group, r);

        ch->peers[r].watch.process = h->process;
        ch->peers[r].has_across    = h->has_across;
    }
    return USM_OK;
}

/* ---- the others ---------------------------------------------------------------------------- */

static void notify_loss(const usm__channel_peer *peer)
{
    const usm_ipc_channel *ch   = peer->ch;
    const uint32_t         rank = (uint32_t)(peer - ch->peers);

    if (!usm_load_acquire(&ch->page->members[rank].has_closed))
        usm__ipc_notify_loss(&peer->watch.process, USM_IPC_MEMBER);
}

static void peer_ended(usm__ipc_watch *w)
{
    usm__channel_peer *peer = usm_container_of(w, usm__channel_peer, watch);

    usm_store_release(&peer->has_ended, true);
    usm__bell_ring(&peer->ch->page->bell);
    notify_loss(peer);
}

static usm_status watch_peer(usm_ipc_channel *ch, uint32_t rank)
{
    usm__channel_peer *peer = &ch->peers[rank];
    usm_status         st;

    peer->ch       = ch;
    peer->watch.fn = peer_ended;
    if (rank == ch->rank || usm__ipc_is_self(&peer->watch.process))
        return USM_OK;
    st = usm__ipc_watch_start(&peer->watch);
    if (st == USM_E_OWNER_GONE) { /* it ended since the meeting: the first call reports that */
        usm_store_release(&peer->has_ended, true);
        usm__bell_ring(&ch->page->bell);
        notify_loss(peer);
        return USM_OK;
    }
    peer->is_watched = st == USM_OK;
    return st;
}

static void unwatch(usm_ipc_channel *ch)
{
    for (uint32_t r = 0; r < ch->size; r++)
        if (ch->peers[r].is_watched)
            usm__ipc_watch_stop(&ch->peers[r].watch);
}

/* ---- open, close ----------------------------------------------------------------------------- */

static usm_status check_desc(const usm_ipc_channel_desc *desc, usm_ipc_channel **ch)
{
    usm_status st = usm__struct_check("usm_ipc_channel_open", "desc", desc, sizeof *desc,
                                      "USM_IPC_CHANNEL_DESC_INIT");

    if (st != USM_OK)
        return st;
    if (!ch)
        return usm__fail(USM_E_INVALID, "usm_ipc_channel_open: ch is NULL");
    if (!desc->name || !*desc->name || strlen(desc->name) > USM__CHANNEL_NAME_MAX)
        return usm__fail(USM_E_INVALID,
                         "usm_ipc_channel_open: a group needs a name of 1 to %d bytes",
                         USM__CHANNEL_NAME_MAX);
    if (desc->size == 0 || desc->size > USM__CHANNEL_SIZE_MAX)
        return usm__fail(USM_E_INVALID, "usm_ipc_channel_open: a group of %u; 1 to %d can meet",
                         desc->size, USM__CHANNEL_SIZE_MAX);
    if (desc->rank >= desc->size)
        return usm__fail(USM_E_INVALID,
                         "usm_ipc_channel_open: there is no rank %u in a group of %u", desc->rank,
                         desc->size);
    return USM_OK;
}

static usm_ipc_channel *new_channel(const usm_ipc_channel_desc *desc)
{
    usm_ipc_channel *ch = usm__meta_alloc(&channel_type);

    if (!ch)
        goto err_memory;
    ch->peers = usm__heap_alloc(desc->size * sizeof *ch->peers);
    if (!ch->peers)
        goto err_channel;
    ch->fork_generation = usm__fork_generation();
    ch->rank            = desc->rank;
    ch->size            = desc->size;
    ch->page            = NULL;
    ch->across          = desc->across;
    ch->user            = desc->user;
    ch->call            = 0;
    ch->agreed          = (usm__channel_ranks){{0}};
    /* With fewer processors than members, a spinning member keeps others from arriving. */
    ch->may_spin = usm__os_cpu_count() >= desc->size && desc->size > 1;
    ch->spin     = (usm__spin)USM__SPIN_INIT;
    return ch;

err_channel:
    usm__meta_free(&channel_type, ch);
err_memory:
    (void)usm__fail(USM_E_NO_MEMORY, "no host memory for a channel");
    return NULL;
}

static void free_channel(usm_ipc_channel *ch)
{
    if (ch->page)
        (void)usm__os_unmap(ch->group.page, ch->group.page_size);
    usm__heap_free(ch->peers);
    usm__meta_free(&channel_type, ch);
}

/* To the others this is like an end of the process. */
static void leave(usm_ipc_channel *ch)
{
    usm_store_release(&ch->page->members[ch->rank].has_closed, true);
    usm__bell_ring(&ch->page->bell);
    unwatch(ch);
}

usm_status usm_ipc_channel_open(const usm_ipc_channel_desc *desc, usm_ipc_channel **out)
{
    usm_ipc_channel *ch = NULL;
    usm_status       st = check_desc(desc, out);

    if (st == USM_OK)
        st = usm__up();
    if (st != USM_OK)
        return st;
    ch = new_channel(desc);
    if (!ch)
        return USM_E_NO_MEMORY;
    st = meet(ch, desc);
    if (st != USM_OK)
        goto err_channel;
    for (uint32_t r = 0; r < ch->size && st == USM_OK; r++)
        st = watch_peer(ch, r);
    if (st != USM_OK)
        goto err_met;
    usm_store_release(&ch->magic, (uint32_t)USM__MAGIC_CHANNEL);
    *out = ch;
    return USM_OK;

err_met:
    leave(ch);
err_channel:
    free_channel(ch);
    return st;
}

void usm_ipc_channel_close(usm_ipc_channel *ch)
{
    if (!ch || usm__handle_check(ch, USM__MAGIC_CHANNEL) != USM_OK ||
        !usm__handle_kill(ch, USM__MAGIC_CHANNEL))
        return;
    if (ch->fork_generation == usm__fork_generation()) /* else it is the parent's membership */
        leave(ch);
    free_channel(ch);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static usm_status check(usm_ipc_channel *ch)
{
    usm_status st = usm__handle_check(ch, USM__MAGIC_CHANNEL);

    if (st == USM_OK && ch->fork_generation != usm__fork_generation())
        st = usm__fail(
            USM_E_FORKED,
            "the channel was opened before fork(); the child is not a member of the group");
    return st;
}

/* All members get the same result, because it depends only on the verdict and on what members wrote
 * before it. */
static usm_status same_call(const usm_ipc_channel *ch, uint32_t given)
{
    for (uint32_t r = 0; r < ch->size; r++) {
        const uint32_t theirs = ch->page->members[r].given[ch->call & 1];

        if (usm__channel_ranks_have(&ch->agreed, r) || theirs == given)
            continue;
        if (theirs == 0 || given == 0)
            return usm__fail(USM_E_INVALID, "rank %u called usm_ipc_channel_%s, rank %u _%s", r,
                             theirs ? "gather" : "barrier", ch->rank, given ? "gather" : "barrier");
        return usm__fail(USM_E_INVALID,
                         "usm_ipc_channel_gather: rank %u gave %u bytes, rank %u %u; all must give "
                         "the same",
                         r, theirs - 1, ch->rank, given - 1);
    }
    return USM_OK;
}

static usm_status call(usm_ipc_channel *ch, uint32_t given)
{
    usm__channel_ranks gone;
    usm_status         across, same;
    char               text[96];

    usm__channel_arrive(ch, given, &gone, &across);
    same = same_call(ch, given);
    if (same != USM_OK)
        return same;
    if (usm__channel_ranks_any(&gone))
        return usm__fail(USM_E_PEER, "rank %s of the group of %u ended or closed its channel%s%s",
                         usm__channel_ranks_text(&gone, text, sizeof text), ch->size,
                         across != USM_OK ? "; and the other machines: " : "",
                         across != USM_OK ? usm_status_name(across) : "");
    if (across != USM_OK)
        return usm__fail(across, "the barrier across machines failed with %s",
                         usm_status_name(across));
    return USM_OK;
}

usm_status usm_ipc_channel_barrier(usm_ipc_channel *ch)
{
    usm_status st = check(ch);

    return st == USM_OK ? call(ch, 0) : st;
}

usm_status usm_ipc_channel_gather(usm_ipc_channel *ch, const void *mine, size_t size, void *all)
{
    usm_status st = check(ch);

    if (st != USM_OK)
        return st;
    if (!mine || !all || size == 0 || size > USM__CHANNEL_BYTES)
        return usm__fail(USM_E_INVALID, "usm_ipc_channel_gather: %s",
                         !mine || !all ? "mine or all is NULL"
                                       : "each member gives 1 to 4096 bytes");
    memcpy(contribution(ch, ch->call + 1, ch->rank), mine, size);
    st = call(ch, (uint32_t)size + 1);
    if (st != USM_OK && st != USM_E_PEER)
        return st;
    for (uint32_t r = 0; r < ch->size; r++) {
        char *to = (char *)all + r * size;

        if (usm__channel_ranks_have(&ch->agreed, r))
            memset(to, 0, size);
        else
            memcpy(to, contribution(ch, ch->call, r), size);
    }
    return st;
}

bool usm_ipc_channel_is_alive(usm_ipc_channel *ch, uint32_t rank)
{
    if (check(ch) != USM_OK)
        return false;
    if (rank >= ch->size) {
        (void)usm__fail(USM_E_INVALID, "usm_ipc_channel_is_alive: no rank %u in a group of %u",
                        rank, ch->size);
        return false;
    }
    return !usm__channel_ranks_have(&ch->agreed, rank) &&
           !usm_load_acquire(&ch->peers[rank].has_ended) &&
           !usm_load_acquire(&ch->page->members[rank].has_closed);
}
