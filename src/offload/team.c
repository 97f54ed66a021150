/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Teams: their members, a context for each, and their statistics.
 *
 * The contexts belong to the team, so that neither usm_shutdown() nor the settings of another
 * context affect a launch.  Which of the members that share cores takes part is decided for each
 * program, when it is known whether the program has native code (kernel.c). */
#include "offload/meter.h"
#include "offload/ranks.h"
#include "offload/run.h"

#include "base/inline/plural.h"
#include "base/json.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "base/trace_work.h"
#include "device/context.h"
#include "heap/pool.h"

#include <stdio.h>
#include <string.h>

#define DEPTH     2
#define DEPTH_MAX 16

static usm__meta_type team_type = USM__META_TYPE(struct usm_team, sizeof(usm__magic_word), "teams");

usm_status usm__team_check_fork(const usm_team *team)
{
    if (team->nmembers && usm__context_is_inert(team->members[0].context))
        return usm__fail(USM_E_FORKED, "the team was made before fork(); make one in the child");
    return USM_OK;
}

usm_status usm__team_check(usm_team *team)
{
    usm_status st = usm__handle_check(team, USM__MAGIC_TEAM);

    return st == USM_OK ? usm__team_check_fork(team) : st;
}

/* ---- members --------------------------------------------------------------------------------- */

/* Opens one queue for all slots of a processor on which a driver computes.  It copies with the same
 * cores that compute, so several queues would gain nothing; chunks wait for each other in one as
 * well.  And PoCL before version 6 may abort when launches of one kernel run at the same time, one
 * of them without an offset: it releases the wrong one of the kernel's two forms
 * (pocl_release_dlhandle_cache). */
static usm_status open_queue(usm__member *m)
{
    usm_queue_desc desc = USM_QUEUE_DESC_INIT;

    if (m->device->desc.type != USM_DEVICE_TYPE_CPU)
        return USM_OK;
    if (usm_device_has(m->device, USM_ASPECT_QUEUE_PROFILING))
        desc.flags |= USM_QUEUE_PROFILING;
    return usm_queue_create(m->context, m->device, &desc, &m->queue);
}

/* Memory for chunks.  On a processor it is shared, so that the host's threads copy small pieces
 * (lane.c). */
static usm_status open_pool(usm__member *m)
{
    bool     is_processor = m->device->desc.type == USM_DEVICE_TYPE_CPU;
    usm_kind kind         = USM_DEVICE;

    if (!usm_device_has(m->device, USM_ASPECT_USM_DEVICE_ALLOCATIONS) ||
        (is_processor && usm_device_has(m->device, USM_ASPECT_USM_SHARED_ALLOCATIONS)))
        kind = USM_SHARED;
    m->pool = usm_pool_default(m->context, m->device, kind);
    if (!m->pool)
        return usm_last_status();
    m->is_in_reach = is_processor && usm__pool_host_may_touch(m->pool);
    return USM_OK;
}

static usm_status open_member(usm__member *m, uint32_t index, usm_device *dev)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_status       st;

    m->index  = index;
    m->device = dev;
    m->state  = USM_MEMBER_WELL;
    (void)snprintf(m->name, sizeof m->name, "%s", dev->term);
    m->trace            = usm__trace_member(m->name);
    m->is_native        = strncmp(m->name, "host", 4) == 0;
    desc.ndevices       = 1;
    desc.devices        = &dev;
    m->uses_host_memory = usm_device_has(dev, USM_ASPECT_USM_SYSTEM_ALLOCATIONS);
    st                  = usm_context_create(&desc, &m->context);
    if (st != USM_OK || m->uses_host_memory)
        return st;
    st = open_pool(m);
    return st == USM_OK ? open_queue(m) : st;
}

static void close_members(usm_team *team)
{
    for (uint32_t i = 0; i < team->nmembers; i++) {
        usm__lanes_destroy(team->members[i].spare);
        usm_queue_destroy(team->members[i].queue);
        usm_context_destroy(team->members[i].context);
    }
    usm__heap_free(team->members);
}

/* A device that cannot be opened is left out, unless the program listed it. */
static usm_status open_members(usm_team *team, usm_device *const *list, size_t n, bool by_hand)
{
    usm_status st = USM_OK;

    team->members = usm__heap_alloc(n * sizeof *team->members);
    if (!team->members)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a team of %zu devices", n);
    for (size_t i = 0; i < n; i++) {
        usm__member *m = &team->members[team->nmembers];

        if (!usm_device_has(list[i], USM_ASPECT_KERNELS))
            continue;
        st = open_member(m, team->nmembers, list[i]);
        if (st == USM_OK) {
            team->nmembers++;
            continue;
        }
        usm_queue_destroy(m->queue);
        usm_context_destroy(m->context);
        memset(m, 0, sizeof *m);
        if (by_hand)
            return st;
        usm__warn("team: %s is left out: %s", list[i]->term, usm_last_error());
    }
    if (team->nmembers > 0)
        return USM_OK;
    return st != USM_OK ? st
                        : usm__fail(USM_E_NO_DEVICE, "usm_team_create: none of %zu %s runs kernels",
                                    n, usm__plural(n, "device", "devices"));
}

/* Checks that no device of the list occurs twice. */
static usm_status check_list(const usm_team_desc *desc)
{
    if (!desc->devices)
        return usm__fail(USM_E_INVALID, "usm_team_create: ndevices is %zu, but devices is NULL",
                         desc->ndevices);
    for (size_t i = 0; i < desc->ndevices; i++) {
        usm_status st = usm__handle_check(desc->devices[i], USM__MAGIC_DEVICE);

        if (st != USM_OK)
            return st;
        for (size_t k = 0; k < i; k++)
            if (desc->devices[k] == desc->devices[i])
                return usm__fail(USM_E_INVALID, "usm_team_create: %s is listed twice",
                                 desc->devices[i]->term);
    }
    return USM_OK;
}

static usm_status find_devices(const usm_team_desc *desc, usm_device ***list, size_t *n)
{
    size_t     cap = 0;
    usm_status st;

    *list = NULL;
    for (;;) {
        st = desc->selector ? usm_select_devices(desc->selector, *list, cap, n)
                            : usm_get_devices(*list, cap, n);
        if (st != USM_OK || *n <= cap)
            return st;
        cap = *n;
        usm__heap_free(*list);
        *list = usm__heap_alloc(cap * sizeof(usm_device *));
        if (!*list)
            return usm__fail(USM_E_NO_MEMORY, "no host memory for a list of %zu devices", cap);
    }
}

static usm_status check_desc(const usm_team_desc *desc, usm_team **team)
{
    usm_status st;

    if (!team)
        return usm__fail(USM_E_INVALID, "usm_team_create: team is NULL");
    st = usm__struct_check("usm_team_create", "desc", desc, sizeof *desc, "USM_TEAM_DESC_INIT");
    if (st != USM_OK)
        return st;
    if (desc->depth > DEPTH_MAX)
        return usm__fail(USM_E_INVALID, "usm_team_create: depth is %u; at most %d", desc->depth,
                         DEPTH_MAX);
    return desc->ndevices ? check_list(desc) : USM_OK;
}

/* A trace does without energy where it cannot be told. */
static usm_status open_meter(usm_team *team, const usm_team_desc *desc)
{
    usm_status st;

    if (!desc->energy && !usm__trace_is_on())
        return USM_OK;
    st = usm__meter_create(team, &team->meter);
    if (st == USM_OK || desc->energy)
        return st;
    usm__warn("team: the trace has no energy: %s", usm_last_error());
    return USM_OK;
}

static void discard(usm_team *team)
{
    usm__meter_destroy(team->meter);
    usm__ranks_destroy(team->ranks);
    close_members(team);
    usm__mutex_fini(&team->lock);
    (void)pthread_cond_destroy(&team->quiescent);
    usm__meta_free(&team_type, team);
}

static usm_status fill(usm_team *team, const usm_team_desc *desc)
{
    usm_device **list = NULL;
    size_t       n;
    usm_status   st;

    if (desc->ndevices)
        return open_members(team, desc->devices, desc->ndevices, true);
    st = find_devices(desc, &list, &n);
    if (st == USM_OK)
        st = open_members(team, list, n, false);
    usm__heap_free(list);
    return st;
}

usm_status usm_team_create(const usm_team_desc *desc, usm_team **out)
{
    const usm_team_desc defaults = USM_TEAM_DESC_INIT;
    usm_team           *team;
    usm_status          st;

    if (!desc)
        desc = &defaults;
    st = check_desc(desc, out);
    if (st != USM_OK)
        return st;
    team = usm__meta_alloc(&team_type);
    if (!team)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a team");
    usm__trace_start();
    usm__mutex_init(&team->lock, USM__RANK_TEAM, "team");
    (void)pthread_cond_init(&team->quiescent, NULL);
    team->depth   = desc->depth ? desc->depth : DEPTH;
    team->by_hand = desc->ndevices > 0;
    st            = fill(team, desc);
    if (st == USM_OK && desc->ranks)
        st = usm__ranks_create(team, &team->ranks);
    if (st == USM_OK)
        st = open_meter(team, desc);
    if (st != USM_OK) {
        discard(team);
        return st;
    }
    usm_store_release(&team->magic, (uint32_t)USM__MAGIC_TEAM);
    *out = team;
    return USM_OK;
}

void usm_team_destroy(usm_team *team)
{
    if (!team || usm__team_check(team) != USM_OK || !usm__handle_kill(team, USM__MAGIC_TEAM))
        return;
    usm__mutex_lock(&team->lock);
    while (team->launches > 0)
        (void)usm__mutex_wait(&team->lock, &team->quiescent, NULL);
    usm__mutex_unlock(&team->lock);
    discard(team);
}

void usm__team_enter(usm_team *team)
{
    usm__mutex_lock(&team->lock);
    team->launches++;
    usm__mutex_unlock(&team->lock);
}

void usm__team_leave(usm_team *team)
{
    usm__mutex_lock(&team->lock);
    if (--team->launches == 0)
        pthread_cond_broadcast(&team->quiescent);
    usm__mutex_unlock(&team->lock);
}

/* ---- states and statistics ----------------------------------------------------------------- */

void usm__team_set_why(usm_team *team, uint32_t member, const char *why)
{
    usm__mutex_lock(&team->lock);
    (void)snprintf(team->members[member].why, USM__TEAM_WHY, "%s", why);
    usm__mutex_unlock(&team->lock);
}

void usm__team_set_aside(usm_team *team, uint32_t member, usm_status why)
{
    usm__member *m      = &team->members[member];
    bool         is_new = false;

    usm__team_set_why(team, member, usm_last_error());
    usm__mutex_lock(&team->lock);
    if (m->state == USM_MEMBER_WELL) {
        m->state = why == USM_E_DEVICE_LOST ? USM_MEMBER_LOST : USM_MEMBER_ASIDE;
        is_new   = true;
    }
    usm__mutex_unlock(&team->lock);
    if (is_new)
        usm__warn("team: %s gets no more work: %s", m->name, usm_last_error());
}

bool usm__team_is_well(usm_team *team, uint32_t member)
{
    bool well;

    usm__mutex_lock(&team->lock);
    well = team->members[member].state == USM_MEMBER_WELL;
    usm__mutex_unlock(&team->lock);
    return well;
}

void usm__team_add(usm_team *team, uint32_t member, uint64_t chunks, uint64_t items,
                   uint64_t busy_ns, double speed)
{
    usm__member *m = &team->members[member];

    usm__mutex_lock(&team->lock);
    m->chunks += chunks;
    m->items += items;
    m->busy_ns += busy_ns;
    if (speed > 0)
        m->speed = speed;
    usm__mutex_unlock(&team->lock);
}

uint32_t usm_team_size(usm_team *team)
{
    if (usm__team_check(team) != USM_OK)
        return 0;
    return team->ranks ? usm__ranks_size(team->ranks) : team->nmembers;
}

usm_status usm_team_get_member(usm_team *team, uint32_t index, usm_team_member *info)
{
    usm_status         st = usm__team_check(team);
    usm__joules_source source;
    usm__member       *m;

    if (st == USM_OK)
        st = usm__struct_check("usm_team_get_member", "info", info, sizeof *info,
                               "its struct_size, sizeof(usm_team_member)");
    if (st != USM_OK)
        return st;
    if (team->ranks)
        return usm__ranks_get_member(team->ranks, index, info);
    if (index >= team->nmembers)
        return usm__fail(USM_E_INVALID, "usm_team_get_member: there is no member %u of %u", index,
                         team->nmembers);
    m = &team->members[index];
    usm__mutex_lock(&team->lock);
    *info = (usm_team_member){.struct_size = info->struct_size,
                              .device      = m->device,
                              .state       = m->state,
                              .chunks      = m->chunks,
                              .items       = m->items,
                              .busy_ns     = m->busy_ns,
                              .speed       = m->speed};
    usm__mutex_unlock(&team->lock);
    info->joules = usm__meter_member(team->meter, index, &source);
    memcpy(info->name, m->name, sizeof info->name);
    return USM_OK;
}

static const char *name_of_state(usm_member_state state)
{
    return state == USM_MEMBER_WELL ? "well" : state == USM_MEMBER_ASIDE ? "aside" : "lost";
}

static void put_text_member(usm__out *o, const usm_team_member *m)
{
    usm__out_put(o, "  %-16s %-6s %10llu %14llu %14.0f\n", m->name, name_of_state(m->state),
                 (unsigned long long)m->chunks, (unsigned long long)m->items, m->speed);
}

static void put_json_member(usm__json *j, const usm_team_member *m)
{
    usm__json_object_begin(j, NULL);
    usm__json_text(j, "name", m->name);
    usm__json_text(j, "state", name_of_state(m->state));
    usm__json_number(j, "rank", m->rank);
    usm__json_number(j, "chunks", m->chunks);
    usm__json_number(j, "items", m->items);
    usm__json_number(j, "busy_ns", m->busy_ns);
    usm__json_number(j, "items_a_second", (uint64_t)m->speed);
    usm__json_object_end(j);
}

usm_status usm_team_describe(usm_team *team, usm_text_format format, char *text, size_t cap,
                             size_t *size)
{
    usm__json  j       = {.out = {.text = text, .cap = cap}};
    bool       is_json = format == USM_JSON;
    usm_status st      = usm__team_check(team);

    if (st != USM_OK)
        return st;
    if ((format != USM_TEXT && !is_json) || (!text && cap))
        return usm__fail(USM_E_INVALID, "usm_team_describe: %s",
                         !text && cap ? "text is NULL, but cap is not 0" : "no such format");
    if (is_json) {
        usm__json_object_begin(&j, NULL);
        usm__json_array_begin(&j, "members");
    } else
        usm__out_put(&j.out, "  %-16s %-6s %10s %14s %14s\n", "member", "state", "chunks", "items",
                     "items/s");
    for (uint32_t i = 0; i < usm_team_size(team); i++) {
        usm_team_member m = {.struct_size = sizeof m};

        if (usm_team_get_member(team, i, &m) != USM_OK)
            continue;
        if (is_json)
            put_json_member(&j, &m);
        else
            put_text_member(&j.out, &m);
    }
    if (is_json) {
        usm__json_array_end(&j);
        usm__json_object_end(&j);
    }
    if (size)
        *size = j.out.used;
    return USM_OK;
}
