/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tiers as objects: parsing USM_SPILL, opening transports at the first write, statistics.
 *
 *     usm__tiers_write/read   tier_io.c      retries, the next tier, checksums
 *     slots                   tier_place.c   reserving and forgetting; tier_slots.c: allocation
 *     codecs                  tier_codec.c   bounce buffers
 *     copies, targets         replica.h
 *     statistics              tier_stats.c
 *
 * One lock guards all of it; it is never held over a call of a transport, a codec or the owner.  A
 * transfer takes it twice, for some tens of nanoseconds. */
#include "spill/tier_private.h"

#include "base/fork.h"
#include "base/inline/bits.h"
#include "base/log.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/trace_spill.h"
#include "device/registry.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_GUESS 16u
#define SENTENCE    640
#define PROGRESS_MS 1000u

/* ---- the spec ---------------------------------------------------------------------- */

/* "file:/var/tmp" of "file:/var/tmp,quota=20G". */
static void name_tier(usm__tier *tier)
{
    int n = (int)strcspn(tier->config, ",");

    (void)snprintf(tier->name, sizeof tier->name, "%s%s%.*s", tier->transport, n ? ":" : "", n,
                   tier->config);
    (void)snprintf(tier->title, sizeof tier->title, "tier %s", tier->name);
}

static void cut_tier(usm__tier *tier, char *text)
{
    char *colon = strchr(text, ':');

    tier->config = colon ? colon + 1 : "";
    if (colon)
        *colon = '\0';
    (void)snprintf(tier->transport, sizeof tier->transport, "%s", text);
    name_tier(tier);
}

/* pre: the text is valid. */
static usm_status parse(usm__tiers *t, const char *spec)
{
    usm__span rest = usm__span_of(spec), field;
    char     *at;

    t->spec = at = usm__heap_alloc(2 * strlen(spec) + 2); /* each field ends with a 0 */
    t->list      = usm__heap_alloc(USM__SPILL_TIERS_MAX * sizeof *t->list);
    if (!t->spec || !t->list)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the tiers of USM_SPILL");
    if (usm__span_is(usm__span_trimmed(rest), "off"))
        return USM_OK;
    while (usm__span_next(&rest, ';', &field)) {
        usm__tier *tier = &t->list[t->n];

        tier->tiers = t;
        tier->index = t->n++;
        usm__slots_init(&tier->slots);
        memcpy(at, field.at, field.len);
        at[field.len] = '\0';
        cut_tier(tier, at);
        at += field.len + 1;
    }
    return USM_OK;
}

/* ---- creation ------------------------------------------------------------------------ */

static void free_tiers(usm__tiers *t)
{
    usm__codecs_destroy(t);
    for (unsigned i = 0; i < t->n; i++) {
        usm__tier *tier = &t->list[i];

        if (tier->state == USM__TIER_OPEN && !t->is_forked) {
            if ((tier->ops->caps & USM_TRANSPORT_CAP_REGISTER) && t->arena)
                tier->ops->unregister_memory(tier->store);
            tier->ops->close(tier->store);
        }
        usm__slots_fini(&tier->slots);
    }
    usm__replicas_destroy(t);
    usm__heap_free(t->list);
    usm__heap_free(t->spec);
    if (!t->is_forked) { /* the child initialises it again      */
        pthread_cond_destroy(&t->changed);
        usm__mutex_fini(&t->lock);
    }
    usm__heap_free(t);
}

usm_status usm__tiers_create(const usm__tiers_params *params, usm__tiers **tiers)
{
    const char *spec = params->spec ? params->spec : usm__setting_text("spill");
    usm__tiers *t;
    char        why[256];
    usm_status  st;

    if (!usm__settings_check_spill(spec, why, sizeof why))
        return usm__fail(USM_E_SETTING, "USM_SPILL cannot be \"%.128s\"; allowed: %s", spec, why);
    t = usm__heap_alloc(sizeof *t);
    if (!t)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the tiers of USM_SPILL");
    usm__mutex_init(&t->lock, USM__RANK_TIER, "tiers");
    (void)pthread_cond_init(&t->changed, NULL);
    t->block_size  = params->block_size;
    t->sector_size = params->sector_size;
    t->sectors     = (uint32_t)(params->block_size / params->sector_size);
    t->arena       = params->arena;
    t->arena_size  = params->arena_size;
    t->limit       = params->limit;
    t->event       = params->event;
    t->user        = params->user;
    t->depth       = DEPTH_GUESS;
    st             = parse(t, spec);
    if (st == USM_OK && t->n > 0)
        st = usm__codecs_create(t, usm__setting_text("spill_codec"));
    if (st == USM_OK && t->n > 0)
        st = usm__replicas_create(t);
    if (st != USM_OK) {
        free_tiers(t);
        return st;
    }
    *tiers = t;
    return USM_OK;
}

/* The tiers without a thread of their own that have transfers under way.  Lock held. */
static unsigned find_busy(usm__tiers *t, usm__tier **busy)
{
    unsigned n = 0;

    for (unsigned i = 0; i < t->n && !t->is_forked; i++) {
        usm__tier *tier = &t->list[i];

        if (tier->state == USM__TIER_OPEN && (tier->ops->caps & USM_TRANSPORT_CAP_PROGRESS) &&
            tier->reads.flying + tier->writes.flying > 0)
            busy[n++] = tier;
    }
    return n;
}

void usm__tiers_destroy(usm__tiers *t)
{
    usm__tier *busy[USM__SPILL_TIERS_MAX];

    if (!t)
        return;
    usm__mutex_lock(&t->lock);
    usm__replicas_quit(t);
    while (t->flying > 0 && !t->is_forked) {
        if (find_busy(t, busy) == 0) { /* submit() wakes this thread when that changes */
            (void)usm__mutex_wait(&t->lock, &t->changed, NULL);
            continue;
        }
        usm__mutex_unlock(&t->lock);
        (void)usm__tiers_progress(t, PROGRESS_MS);
        usm__mutex_lock(&t->lock);
    }
    usm__mutex_unlock(&t->lock);
    usm__replicas_stop(t);
    free_tiers(t);
}

/* ---- opening -------------------------------------------------------------------------- */

uint32_t usm__tiers_trace(const usm__tiers *t, unsigned tier)
{
    return tier > 0 && tier <= t->n ? t->list[usm__tier_index(tier)].trace : 0;
}

/* From here on its replica targets may call usm__target_changed(). */
static void enter_store(usm__tier *tier, const usm_transport_ops *ops, void *store)
{
    const bool may_drive = ops && (ops->caps & USM_TRANSPORT_CAP_PROGRESS);

    usm__mutex_lock(&tier->tiers->lock);
    tier->ops       = ops;
    tier->store     = store;
    tier->is_driven = may_drive && !(ops->has_thread && ops->has_thread(store));
    usm__mutex_unlock(&tier->tiers->lock);
}

static void leave_store(usm__tier *tier)
{
    const usm_transport_ops *ops   = tier->ops;
    void                    *store = tier->store;

    if ((ops->caps & USM_TRANSPORT_CAP_REGISTER) && tier->tiers->arena)
        ops->unregister_memory(store);
    ops->close(store); /* usm__target_changed(), which uses both, has returned by then */
    enter_store(tier, NULL, NULL);
    usm__targets_close(tier);
}

static usm_status open_store(usm__tier *tier)
{
    usm__tiers              *t          = tier->tiers;
    usm_transport_params     params     = {.struct_size   = sizeof params,
                                           .api           = &usm__registry_api,
                                           .config        = tier->config,
                                           .block_size    = t->block_size,
                                           .place_changed = t->replicas ? usm__target_changed : NULL,
                                           .user          = tier};
    usm_transport_capacity   room       = {.depth = DEPTH_GUESS};
    const usm_transport_ops *ops        = usm__registry_transport(tier->transport);
    size_t                   registered = 0;
    void                    *store      = NULL;
    usm_status               st;

    if (!ops)
        return usm_last_status();
    if ((ops->caps & USM_TRANSPORT_CAP_PLACES) && !(ops->caps & USM_TRANSPORT_CAP_SPREADS) &&
        !t->replicas)
        return usm__fail(USM_E_SETTING,
                         "tier %s has several replica targets, which was not known when its "
                         "buffers were created: set USM_SPILL_REPLICAS to 1 or 2",
                         tier->name);
    st = ops->open(&params, &store);
    if (st != USM_OK)
        return st;
    /* A limit that the user set is no failure, and neither is a figure that cannot be
     * determined. */
    if ((ops->caps & USM_TRANSPORT_CAP_REGISTER) && t->arena)
        (void)ops->register_memory(store, t->arena, t->arena_size, &registered);
    (void)ops->capacity(store, &room);
    enter_store(tier, ops, store);
    if (t->replicas) {
        st = usm__targets_open(tier);
        if (st != USM_OK) {
            leave_store(tier);
            return st;
        }
    }
    tier->depth = room.depth ? room.depth : 1;
    tier->trace = usm__trace_tier(tier->name);
    usm__info("tier %s is open; %zu bytes of memory are registered with it", tier->name,
              registered);
    return USM_OK;
}

static void end_opening(usm__tier *tier, usm_status st)
{
    usm__tiers *t = tier->tiers;

    usm__mutex_lock(&t->lock);
    if (st == USM_OK && (!t->is_open || tier->depth > usm_load_relaxed(&t->depth)))
        usm_store_relaxed(&t->depth, tier->depth);
    t->is_open |= st == USM_OK;
    tier->status = st;
    tier->state  = st == USM_OK            ? USM__TIER_OPEN
                   : st == USM_E_NO_MEMORY ? USM__TIER_CLOSED /* memory may be there next time */
                                           : USM__TIER_REFUSED;
    if (st != USM_OK)
        (void)snprintf(tier->reason, sizeof tier->reason, "%.399s", usm_last_error());
    pthread_cond_broadcast(&t->changed);
    usm__mutex_unlock(&t->lock);
    if (st != USM_OK && st != USM_E_NO_MEMORY) /* `reason` does not change any more   */
        usm__tier_notify(tier, USM__TOLD_FAILING, st, "tier %s cannot be used: %s", tier->name,
                         tier->reason);
}

usm_status usm__tier_open(usm__tier *tier)
{
    usm__tiers     *t = tier->tiers;
    usm__tier_state state;
    usm_status      st;

    usm__mutex_lock(&t->lock);
    while (tier->state == USM__TIER_OPENING)
        (void)usm__mutex_wait(&t->lock, &t->changed, NULL);
    state = tier->state;
    if (state == USM__TIER_CLOSED)
        tier->state = USM__TIER_OPENING;
    usm__mutex_unlock(&t->lock);
    if (state != USM__TIER_CLOSED)
        return state == USM__TIER_OPEN ? USM_OK : usm__fail(tier->status, "%s", tier->reason);
    st = open_store(tier);
    end_opening(tier, st);
    return st;
}

/* ---- reports -------------------------------------------------------------------------- */

USM_PRINTF(3, 0)
static void notify(usm__tiers *t, usm_status status, const char *format, va_list args)
{
    char sentence[SENTENCE];

    (void)vsnprintf(sentence, sizeof sentence, format, args);
    t->event(t->user, status, sentence);
}

void usm__tiers_notify(usm__tiers *t, usm_status status, const char *format, ...)
{
    va_list args;

    if (!t->event)
        return;
    va_start(args, format);
    notify(t, status, format, args);
    va_end(args);
}

void usm__tier_notify(usm__tier *tier, unsigned notified, usm_status status, const char *format,
                      ...)
{
    usm__tiers *t = tier->tiers;
    bool        is_news;
    va_list     args;

    usm__mutex_lock(&t->lock);
    is_news = !(tier->notified & notified);
    tier->notified |= notified;
    usm__mutex_unlock(&t->lock);
    if (!is_news || !t->event)
        return;
    va_start(args, format);
    notify(t, status, format, args);
    va_end(args);
}

/* ---- progress -------------------------------------------------------------------------- */

bool usm__tiers_progress(usm__tiers *t, uint32_t timeout_ms)
{
    usm__tier *busy[USM__SPILL_TIERS_MAX];
    bool       repairs = t->replicas && usm__replicas_progress(t);
    unsigned   n;

    usm__mutex_lock(&t->lock);
    n = find_busy(t, busy);
    usm__mutex_unlock(&t->lock);
    /* Several tiers share the time: each is polled before the wait for the first. */
    for (unsigned i = 0; n > 1 && i < n; i++)
        (void)busy[i]->ops->progress(busy[i]->store, 0);
    for (unsigned i = 0; i < n; i++)
        (void)busy[i]->ops->progress(busy[i]->store, repairs ? 0 : timeout_ms / n);
    return n > 0 || repairs;
}

bool usm__tiers_may_need_progress(usm__tiers *t)
{
    bool may = false;

    usm__mutex_lock(&t->lock);
    for (unsigned i = 0; i < t->n; i++) {
        const usm__tier *tier = &t->list[i];

        may |= tier->state == USM__TIER_OPEN ? tier->is_driven
                                             : tier->state != USM__TIER_REFUSED; /* opened later */
    }
    usm__mutex_unlock(&t->lock);
    return may;
}

/* ---- the rest -------------------------------------------------------------------------- */

size_t usm__tiers_copy_size(const usm__tiers *t)
{
    size_t words = t->sectors;

    if (t->codecs.n > 0)
        words = usm_max_size(words, USM__COPY_WORDS);
    if (t->replicas)
        return usm__replicas_copy_size(t);
    return sizeof(usm__copy) + words * sizeof(uint32_t);
}

bool usm__tiers_needs_whole(usm__tiers *t)
{
    return t->codecs.n > 0;
}

bool usm__tiers_are_off(const usm__tiers *t)
{
    return t->n == 0;
}

size_t usm__tiers_memory(const usm__tiers *t)
{
    size_t mender = t->replicas ? t->block_size + USM__PAGE : 0;

    return mender + t->codecs.nmax * t->codecs.room * (t->codecs.n > 1 ? 2 : 1);
}

uint32_t usm__tiers_depth(const usm__tiers *t)
{
    return usm_load_relaxed(&t->depth);
}

void usm__tiers_forget(usm__tiers *t, usm__copy *copy)
{
    if (t->replicas && !t->is_forked)
        usm__replicas_forget(t, copy);
    else if (copy->tier && !t->is_forked)
        usm__tier_give(usm__tier_of(t, copy->tier), copy->slot);
    memset(copy, 0, sizeof *copy);
}

static void fill_stats(usm__tier *tier, uint64_t now, usm_tier_stats *s)
{
    memset(s, 0, sizeof *s);
    (void)snprintf(s->name, sizeof s->name, "%s", tier->name);
    s->used         = (tier->slots.used + usm__targets_used(tier)) * tier->tiers->block_size;
    s->capacity     = UINT64_MAX;
    s->read         = tier->reads.bytes;
    s->written      = tier->writes.bytes;
    s->reads        = tier->reads.transfers;
    s->writes       = tier->writes.transfers;
    s->read_ns      = usm__flow_busy(&tier->reads, now);
    s->write_ns     = usm__flow_busy(&tier->writes, now);
    s->read_p50_ns  = usm__times_quantile(&tier->reads.times, 0.5);
    s->read_p99_ns  = usm__times_quantile(&tier->reads.times, 0.99);
    s->write_p50_ns = usm__times_quantile(&tier->writes.times, 0.5);
    s->write_p99_ns = usm__times_quantile(&tier->writes.times, 0.99);
    s->errors       = tier->errors;
    s->corrupt      = tier->corrupt;
    s->encoded_in   = tier->encoded_in;
    s->encoded_out  = tier->encoded_out;
}

size_t usm__tiers_get_stats(usm__tiers *t, usm_tier_stats *list, size_t cap)
{
    for (unsigned i = 0; i < t->n && i < cap; i++) {
        usm__tier             *tier = &t->list[i];
        usm_transport_capacity room = {.total = UINT64_MAX};
        bool                   is_open;

        usm__mutex_lock(&t->lock);
        fill_stats(tier, usm__os_now_ns(), &list[i]);
        is_open = tier->state == USM__TIER_OPEN && !t->is_forked;
        usm__mutex_unlock(&t->lock);
        if (is_open && tier->ops->capacity(tier->store, &room) == USM_OK)
            list[i].capacity = room.total;
    }
    return t->n;
}

void usm__tiers_describe(usm__tiers *t, size_t index, char *text, size_t cap)
{
    usm__tier *tier = index < t->n ? &t->list[index] : NULL;
    bool       is_open;

    if (cap == 0)
        return;
    text[0] = '\0';
    if (!tier)
        return;
    usm__mutex_lock(&t->lock);
    is_open = tier->state == USM__TIER_OPEN && !t->is_forked;
    (void)snprintf(text, cap, "%s",
                   tier->state == USM__TIER_REFUSED ? tier->reason : "nothing was spilled yet");
    usm__mutex_unlock(&t->lock);
    if (is_open)
        tier->ops->describe(tier->store, text, cap);
}

void usm__tiers_fork(usm__tiers *t, usm_fork_phase phase)
{
    usm__mutex_fork(&t->lock, phase);
    if (phase == USM_FORK_CHILD) {
        t->is_forked = true;
        t->flying    = 0;
        t->changed   = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
        usm__replicas_fork_child(t);
    }
}
