/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The ranks of a team: which members each rank has, which rank is the master, and to which launch a
 * message belongs.
 *
 * Teams are numbered in the order in which a process creates them, launches in the order in which a
 * team starts them.  Both operations are collective, so all ranks use the same numbers without
 * exchanging them.  A message for a launch that this rank has not started yet is kept in `early`.
 * One for a launch that is over is dropped: by then no rank waits for an answer. */
#include "offload/ranks.h"

#include "base/inline/bytes.h"
#include "base/log.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

#define CREATE_MS   60000u
#define AGREED_SIZE 4096u /* bytes of each rank: team, number of members, members */
#define AGREED_HEAD 8u
#define AGREED_EACH 64u /* the member's name */
#define MEMBERS_MAX ((AGREED_SIZE - AGREED_HEAD) / AGREED_EACH)
#define EARLY_MAX   4096u
#define ALL         UINT32_MAX /* launches of a team; no launch reaches that number */

usm__ranks_state usm__ranks_all = {.lock = USM__MUTEX_INIT(USM__RANK_RANKS, "ranks")};

/* ---- messages ------------------------------------------------------------------------------ */

usm__packet *usm__packet_make(uint32_t rank, const void *data, size_t size)
{
    usm__packet *packet = usm__heap_alloc(sizeof *packet + size);

    if (!packet)
        return NULL;
    packet->rank = rank;
    packet->size = size;
    if (size > 0)
        memcpy(packet->bytes, data, size);
    return packet;
}

static usm__ranks *find_team(uint32_t id)
{
    USM_LIST_FOREACH (it, &usm__ranks_all.teams) {
        usm__ranks *ranks = usm_container_of(it, usm__ranks, link);

        if (ranks->id == id)
            return ranks;
    }
    return NULL;
}

static usm__ranks_launch *find_launch(usm__ranks *ranks, uint32_t number)
{
    USM_LIST_FOREACH (it, &ranks->launches) {
        usm__ranks_launch *l = usm_container_of(it, usm__ranks_launch, link);

        if (l->number == number)
            return l;
    }
    return NULL;
}

/* ranks: NULL if this rank has not created the team yet. */
static void keep_early(usm__ranks *ranks, uint32_t launch, uint32_t from, const void *data,
                       size_t size)
{
    usm__packet *packet =
        usm__ranks_all.nearly < EARLY_MAX ? usm__packet_make(from, data, size) : NULL;

    if (!packet) {
        usm__log(USM_LOG_ERROR, "a message of rank %u for a future launch is lost: no memory",
                 from);
        if (ranks && launch >= ranks->deaf_until)
            ranks->deaf_until = launch + 1;
        return;
    }
    usm__ranks_all.nearly++;
    usm_list_append(&usm__ranks_all.early, &packet->link);
}

static void hear(void *arg, uint32_t from, const void *data, size_t size)
{
    usm__wire          msg;
    usm__ranks        *ranks;
    usm__ranks_launch *l;

    (void)arg;
    if (!usm__wire_decode(data, size, &msg)) {
        usm__log(USM_LOG_ERROR,
                 "rank %u sent a message of %zu bytes that does not belong to a launch", from,
                 size);
        return;
    }
    usm__mutex_lock(&usm__ranks_all.lock);
    ranks = find_team(msg.team);
    l     = ranks ? find_launch(ranks, msg.launch) : NULL;
    if (l && (msg.op == USM__WIRE_DATA || msg.op == USM__WIRE_ACK))
        usm__ranks_bytes_came(l, from, &msg);
    else if (l)
        usm__ranks_launch_came(l, from, data, size);
    else if (ranks ? msg.launch >= ranks->next : msg.team >= usm__ranks_all.next)
        keep_early(ranks, msg.launch, from, data, size);
    usm__mutex_unlock(&usm__ranks_all.lock);
}

static void watch(void *arg, uint32_t rank, usm_place_state state)
{
    (void)arg;
    if (state != USM_PLACE_LOST)
        return;
    usm__mutex_lock(&usm__ranks_all.lock);
    USM_LIST_FOREACH (it, &usm__ranks_all.teams) {
        const usm__ranks *ranks = usm_container_of(it, usm__ranks, link);

        USM_LIST_FOREACH (at, &ranks->launches)
            usm__ranks_launch_lost(usm_container_of(at, usm__ranks_launch, link), rank);
    }
    usm__mutex_unlock(&usm__ranks_all.lock);
}

static bool is_of(const usm__packet *packet, const usm__ranks *ranks, uint32_t launch)
{
    usm__wire msg;

    return usm__wire_decode(packet->bytes, packet->size, &msg) && msg.team == ranks->id &&
           (launch == ALL || msg.launch == launch);
}

void usm__ranks_register(usm__ranks *ranks, usm__ranks_launch *l)
{
    l->number = ranks->next++;
    if (l->number < ranks->deaf_until) /* it would wait for the lost message */
        l->broken = USM_E_NO_MEMORY;
    usm_list_append(&ranks->launches, &l->link);
    USM_LIST_FOREACH_SAFE (it, next, &usm__ranks_all.early) {
        if (!is_of(usm_container_of(it, usm__packet, link), ranks, l->number))
            continue;
        usm_list_remove(it);
        usm__ranks_all.nearly--;
        usm_list_append(&l->in, it);
    }
    for (uint32_t r = 0; r < ranks->count; r++)
        if (usm__job_rank_is_lost(r))
            usm__ranks_launch_lost(l, r);
}

/* The lock is held. */
static void drop_early(const usm__ranks *ranks, uint32_t launch)
{
    USM_LIST_FOREACH_SAFE (it, next, &usm__ranks_all.early) {
        usm__packet *packet = usm_container_of(it, usm__packet, link);

        if (!is_of(packet, ranks, launch))
            continue;
        usm_list_remove(it);
        usm__ranks_all.nearly--;
        usm__heap_free(packet);
    }
}

uint32_t usm__ranks_skip(usm__ranks *ranks)
{
    drop_early(ranks, ranks->next);
    return ranks->next++;
}

/* ---- teams ------------------------------------------------------------------------------ */

static void enter(usm__ranks *ranks)
{
    bool listens;

    usm__mutex_lock(&usm__ranks_all.lock);
    if (!usm__ranks_all.is_ready) {
        usm_list_init(&usm__ranks_all.teams);
        usm_list_init(&usm__ranks_all.early);
        usm__ranks_all.is_ready = true;
    }
    ranks->id = usm__ranks_all.next++;
    usm_list_init(&ranks->launches);
    usm_list_append(&usm__ranks_all.teams, &ranks->link);
    listens                = usm__ranks_all.listens;
    usm__ranks_all.listens = true;
    usm__mutex_unlock(&usm__ranks_all.lock);
    if (listens)
        return;
    usm__job_listen(USM__JOB_TEAMS, hear, NULL);
    usm__job_watch(watch, NULL);
}

void usm__ranks_destroy(usm__ranks *ranks)
{
    if (!ranks)
        return;
    usm__mutex_lock(&usm__ranks_all.lock);
    usm_list_remove(&ranks->link);
    drop_early(ranks, ALL);
    usm__mutex_unlock(&usm__ranks_all.lock);
    usm__heap_free(ranks->nmembers);
    usm__heap_free(ranks->first);
    usm__heap_free(ranks->names);
    usm__heap_free(ranks->figures);
    usm__heap_free(ranks);
}

static void describe(const usm__ranks *ranks, unsigned char *bytes)
{
    uint32_t n = ranks->team->nmembers < MEMBERS_MAX ? ranks->team->nmembers : MEMBERS_MAX;

    usm_put_le(bytes, ranks->id, 4);
    usm_put_le(bytes + 4, n, 4);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = ranks->team->members[i].name;

        memcpy(bytes + AGREED_HEAD + (size_t)i * AGREED_EACH, name, strnlen(name, AGREED_EACH - 1));
    }
}

/* pre: the table of members was allocated. */
static void read_members(usm__ranks *ranks, const unsigned char *bytes)
{
    for (uint32_t r = 0; r < ranks->count; r++)
        for (uint32_t i = 0; i < ranks->nmembers[r]; i++) {
            const unsigned char *name =
                bytes + (size_t)r * AGREED_SIZE + AGREED_HEAD + (size_t)i * AGREED_EACH;

            (void)snprintf(ranks->names[ranks->first[r] + i], sizeof *ranks->names, "%u/%.50s", r,
                           (const char *)name);
        }
}

/* Reads what all ranks have sent. */
static usm_status read_all(usm__ranks *ranks, const unsigned char *bytes)
{
    ranks->nmembers = usm__heap_alloc(ranks->count * sizeof *ranks->nmembers);
    ranks->first    = usm__heap_alloc(ranks->count * sizeof *ranks->first);
    if (!ranks->nmembers || !ranks->first)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a team of %u ranks", ranks->count);
    ranks->master = ranks->count;
    for (uint32_t r = 0; r < ranks->count; r++) {
        const unsigned char *at = bytes + (size_t)r * AGREED_SIZE;
        uint32_t             n  = (uint32_t)usm_get_le(at + 4, 4);

        ranks->first[r]    = ranks->total;
        ranks->nmembers[r] = n < MEMBERS_MAX ? n : MEMBERS_MAX; /* 0: the rank was lost before */
        ranks->total += ranks->nmembers[r];
        if (n > 0 && usm_get_le(at, 4) != ranks->id)
            return usm__fail(
                USM_E_INVALID,
                "rank %u makes its team %u where rank %u makes its team %u: teams with "
                "`ranks` are made in the same order everywhere",
                r, (uint32_t)usm_get_le(at, 4), ranks->self, ranks->id);
        if (n > 0 && ranks->master == ranks->count)
            ranks->master = r;
    }
    ranks->names   = usm__heap_alloc(ranks->total * sizeof *ranks->names);
    ranks->figures = usm__heap_alloc(ranks->total * sizeof *ranks->figures);
    if (!ranks->names || !ranks->figures)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a team of %u members", ranks->total);
    read_members(ranks, bytes);
    return USM_OK;
}

static usm_status agree(usm__ranks *ranks)
{
    unsigned char *bytes = usm__heap_alloc((size_t)(ranks->count + 1) * AGREED_SIZE);
    unsigned char *mine  = bytes + (size_t)ranks->count * AGREED_SIZE;
    usm_status     st;

    if (!bytes)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a team of %u ranks", ranks->count);
    describe(ranks, mine);
    st = usm__job_agree(mine, AGREED_SIZE, bytes, CREATE_MS, NULL);
    if (st == USM_OK)
        st = read_all(ranks, bytes);
    usm__heap_free(bytes);
    return st;
}

usm_status usm__ranks_create(usm_team *team, usm__ranks **out)
{
    usm__ranks *ranks;
    uint32_t    self, count;
    usm_status  st = usm__job_ranks(&self, &count);

    if (st != USM_OK)
        return st;
    ranks = usm__heap_alloc(sizeof *ranks);
    if (!ranks)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a team of ranks");
    ranks->team  = team;
    ranks->self  = self;
    ranks->count = count;
    enter(ranks);
    st = agree(ranks);
    if (st == USM_OK) {
        *out = ranks;
        return USM_OK;
    }
    usm__quietly(usm__ranks_destroy(ranks));
    return st;
}

void usm__ranks_add(usm__ranks *ranks, const usm__wire *end)
{
    for (uint32_t i = 0; i < end->index && i < ranks->total; i++) {
        usm__wire_member *m = &ranks->figures[i], notified;

        usm__wire_get_member(end->bytes + USM__WIRE_FIGURES + (size_t)i * USM__WIRE_MEMBER,
                             &notified);
        m->chunks += notified.chunks;
        m->items += notified.items;
        m->busy_ns += notified.busy_ns;
        m->speed = notified.speed > 0 ? notified.speed : m->speed;
        if (notified.state > m->state &&
            notified.state <= USM_MEMBER_LOST) /* a state never improves */
            m->state = notified.state;
    }
}

uint32_t usm__ranks_size(const usm__ranks *ranks)
{
    return ranks->total;
}

bool usm__ranks_is_home(const usm__ranks *ranks, uint32_t home)
{
    return ranks->self == home;
}

static usm_member_state state_of(uint32_t rank, uint32_t notified)
{
    if (usm__job_rank_is_lost(rank))
        return USM_MEMBER_LOST;
    return notified > USM_MEMBER_WELL ? (usm_member_state)notified : USM_MEMBER_WELL;
}

usm_status usm__ranks_get_member(usm__ranks *ranks, uint32_t index, usm_team_member *info)
{
    usm__wire_member notified;
    uint32_t         r = 0;

    if (index >= ranks->total)
        return usm__fail(USM_E_INVALID, "there is no member %u; the team has %u", index,
                         ranks->total);
    while (index >= ranks->first[r] + ranks->nmembers[r])
        r++;
    usm__mutex_lock(&usm__ranks_all.lock);
    notified = ranks->figures[index];
    usm__mutex_unlock(&usm__ranks_all.lock);
    info->rank    = r;
    info->device  = NULL;
    info->state   = state_of(r, notified.state);
    info->chunks  = notified.chunks;
    info->items   = notified.items;
    info->busy_ns = notified.busy_ns;
    info->speed   = notified.speed;
    info->joules  = 0; /* each rank counts those of its own */
    (void)snprintf(info->name, sizeof info->name, "%s", ranks->names[index]);
    if (r == ranks->self) {
        const usm__member *m = &ranks->team->members[index - ranks->first[r]];
        usm__joules_source source;

        info->joules = usm__meter_member(ranks->team->meter, m->index, &source);
        usm__mutex_lock(&ranks->team->lock);
        info->device  = m->device;
        info->state   = m->state;
        info->chunks  = m->chunks;
        info->items   = m->items;
        info->busy_ns = m->busy_ns;
        info->speed   = m->speed;
        usm__mutex_unlock(&ranks->team->lock);
    }
    return USM_OK;
}

/* ---- figures ------------------------------------------------------------------------------- */

static usm__ranks_figures figures_of(const usm__master_member *m, const char *name)
{
    return (usm__ranks_figures){.name      = name,
                                .chunks    = m->chunks,
                                .items     = m->done,
                                .busy_ns   = m->busy_ns,
                                .under_way = m->nflights,
                                .state     = m->state};
}

uint32_t usm__ranks_get_figures(usm__ranks_launch *l, usm__ranks_figures *members, uint32_t cap,
                                usm__schedule_stats *stats)
{
    uint32_t n = 0;

    usm__mutex_lock(&usm__ranks_all.lock);
    if (l->is_master && l->master.ledger) {
        usm__schedule_get_stats(l->master.ledger, stats);
        for (uint32_t r = 0; r < l->master.params.nranks; r++)
            for (uint32_t i = 0; i < l->master.ranks[r].nmembers && n < cap; i++, n++)
                members[n] = figures_of(&l->master.ranks[r].members[i], l->ranks->names[n]);
    }
    usm__mutex_unlock(&usm__ranks_all.lock);
    return n;
}
