/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The report when memory is full: which pools hold how much, and what helps.  First the state is
 * collected, which takes the locks of the lists of contexts and pools; then it is written, with no
 * lock held.  A program that spills runs out of memory often and on purpose.  The report is
 * therefore only made on request (USM_LOG=info), and for each pool at most once a second.  Without
 * a request it is made, shorter, where the program may not know of usm_last_error(), or where
 * somebody is looking for what it holds: is_due().  Called by heap/recover.c. */
#include "heap/pool_report.h"

#include "base/inline/plural.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "base/trace.h"
#include "device/observer.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define EVERY_NS 1000000000ull
#define LARGEST  5
#define BRIEF    3 /* of each list in a report that nobody requested: 12 lines at most */

/* Room for a size such as "1023.9 MiB". */
typedef char size_text[16];

#define TEXT_OF(bytes) usm__format_bytes((bytes), (size_text){0}, sizeof(size_text))

/* One of the largest holders of memory: a class, another pool, a tag. */
typedef struct holder {
    char     name[64];
    uint64_t rank; /* the value by which they are ordered; 0: an empty entry */
    uint64_t live, held, blocks;
} holder;

typedef struct report {
    usm_pool       *pool;
    size_t          size, align;
    usm_status      status;
    usm_log_level   level;
    bool            is_brief;
    usm_pool_stats  stats;
    usm__quota_view quota;         /* the one with the least room              */
    uint64_t        others_unused; /* free bytes in other pools of that memory */
    holder          classes[LARGEST], pools[LARGEST], tags[LARGEST];
} report;

/* ---- collecting ---------------------------------------------------------------- */

/* `list` stays in descending order. */
static void enter(holder list[LARGEST], const holder *h)
{
    size_t i = LARGEST;

    while (i > 0 && list[i - 1].rank < h->rank)
        i--;
    if (i == LARGEST)
        return;
    memmove(&list[i + 1], &list[i], (LARGEST - 1 - i) * sizeof *list);
    list[i] = *h;
}

static void look_at_classes(report *r)
{
    usm_pool_class list[USM__POOL_CLASSES];
    size_t         n = usm__pool_classes(r->pool, list, USM__POOL_CLASSES);

    for (size_t i = 0; i < n; i++) {
        const usm_pool_class *c = &list[i];
        holder                h = {.live = c->live_bytes, .held = c->held, .blocks = c->live};

        /* Large blocks have no slabs that hold them. */
        if (h.held < h.live)
            h.held = h.live;
        h.rank = h.held;
        if (c->size)
            (void)snprintf(h.name, sizeof h.name, "blocks of %s", TEXT_OF(c->size));
        else
            (void)snprintf(h.name, sizeof h.name, "large blocks");
        enter(r->classes, &h);
    }
}

static bool is_same_memory(const usm_pool *a, const usm_pool *b)
{
    if (a->kind == USM_HOST || b->kind == USM_HOST)
        return a->kind == b->kind;
    return a->ctx->devices[a->index].dev == b->ctx->devices[b->index].dev;
}

static void look_at_pool(usm_pool *pool, void *arg)
{
    report        *r     = arg;
    usm_pool_stats stats = USM_POOL_STATS_INIT;
    holder         h     = {.rank = 0};

    if (pool == r->pool || !is_same_memory(pool, r->pool))
        return;
    usm__pool_stats(pool, &stats);
    h.rank = h.held = stats.reserved;
    h.live          = stats.live;
    h.blocks        = stats.blocks;
    (void)snprintf(h.name, sizeof h.name, "%s%s pool %s",
                   pool->ctx == r->pool->ctx ? "" : "another context's ",
                   usm__kind_name(pool->kind), pool->ops->name);
    enter(r->pools, &h);
    r->others_unused += stats.reserved > stats.live ? stats.reserved - stats.live : 0;
}

static void look_at_tag(const usm_tag_stats *tag, void *arg)
{
    report *r = arg;
    holder  h = {
         .rank = tag->live, .live = tag->live, .held = tag->live_peak, .blocks = tag->blocks};

    (void)snprintf(h.name, sizeof h.name, "%s", tag->name);
    enter(r->tags, &h);
}

static void look(report *r)
{
    usm__quota_get(r->pool->ctx, r->pool->index, r->pool->kind, &r->quota);
    look_at_classes(r);
    usm__pools_each(look_at_pool, r);
    usm__observer_each_tag(look_at_tag, r);
}

/* ---- writing ------------------------------------------------------------------- */

static void say_holders(const report *r, const holder list[LARGEST], const char *what,
                        const char *held)
{
    size_t most = r->is_brief ? BRIEF : LARGEST;

    for (size_t i = 0; i < most && list[i].rank; i++)
        usm__log(r->level, "  %s%s: live %s in %llu %s, %s %s", what, list[i].name,
                 TEXT_OF(list[i].live), (unsigned long long)list[i].blocks,
                 usm__plural(list[i].blocks, "block", "blocks"), held, TEXT_OF(list[i].held));
}

static void say_pool(const report *r)
{
    const usm_pool_stats *s = &r->stats;

    usm__log(r->level,
             "  this pool: live %s in %llu %s (peak %s), reserved %s (peak %s), largest free %s",
             TEXT_OF(s->live), (unsigned long long)s->blocks,
             usm__plural(s->blocks, "block", "blocks"), TEXT_OF(s->live_peak), TEXT_OF(s->reserved),
             TEXT_OF(s->reserved_peak), TEXT_OF(s->largest_free));
    if (!r->is_brief && s->thread_cached + s->depot_cached)
        usm__log(r->level, "  free in caches: %s of %llu %s, %s between threads",
                 TEXT_OF(s->thread_cached), (unsigned long long)s->threads,
                 usm__plural(s->threads, "thread", "threads"), TEXT_OF(s->depot_cached));
}

static uint64_t left(uint64_t limit, uint64_t held)
{
    return limit == 0 ? UINT64_MAX : held < limit ? limit - held : 0;
}

/* Each of these functions returns whether it applied. */
static bool say_limit(const report *r)
{
    const usm_pool *pool = r->pool;

    if (r->status != USM_E_BUDGET || (!pool->maximum_size && !r->quota.limit))
        return false;
    if (left(pool->maximum_size, r->stats.reserved) <= left(r->quota.limit, r->quota.reserved))
        usm__log(r->level,
                 "  remedy: the pool may hold %s: free some, or raise maximum_size in its "
                 "descriptor or in USM_POOL",
                 TEXT_OF(pool->maximum_size));
    else
        usm__log(
            r->level, "  remedy: %s allows %s for %s, and %s are taken: free some, or raise it",
            r->quota.is_own ? "the context's descriptor" : "USM_MEMORY_LIMIT (usm-exec --limit)",
            TEXT_OF(r->quota.limit), r->quota.whose, TEXT_OF(r->quota.reserved));
    return true;
}

static bool say_pieces(const report *r)
{
    const usm_pool_stats *s      = &r->stats;
    uint64_t              unused = s->reserved > s->live ? s->reserved - s->live : 0;

    if (unused < r->size || s->largest_free >= r->size)
        return false;
    usm__log(r->level,
             "  remedy: %s of the pool are free, but not in one piece: usm_pool_trim_to(pool, 0) "
             "gives back what is free as a whole; a larger area_size, or a pool of their own for "
             "blocks that live long, keeps pieces large",
             TEXT_OF(unused));
    return true;
}

static bool say_others(const report *r)
{
    if (r->others_unused < r->size || r->others_unused == 0)
        return false;
    usm__log(r->level,
             "  remedy: %s lie unused in other pools, in areas that have live blocks as well: a "
             "smaller area_size there, or a pool of their own for blocks that live long, lets "
             "them go back",
             TEXT_OF(r->others_unused));
    return true;
}

static void say_way_out(const report *r)
{
    bool said = say_limit(r);

    said |= say_pieces(r);
    said |= say_others(r);
    if (!said && r->stats.largest_free >= r->size && r->align <= 64)
        usm__log(r->level,
                 "  remedy: the pool has room: what is lacking is host memory for libusm's own "
                 "tables, or addresses (ulimit -v)");
    else if (!said)
        usm__log(r->level,
                 "  remedy: what is held is in use, here or outside of libusm: free some, make "
                 "the problem smaller, or use another device or kind of memory");
    if (!r->is_brief && !r->tags[0].rank)
        usm__log(r->level,
                 "  usm_tag_push() around parts of the program would show which part holds what");
}

/* A pool knows no call sites; a trace does. */
static void say_trace(const report *r)
{
    if (usm__trace_is_on())
        usm__log(r->level, "  the trace knows by call site who holds it: usm-prof report");
    else
        usm__log(r->level, "  by call site: usm-exec --report, or usm-prof record");
}

static void say(const report *r)
{
    usm__log(r->level, "out of memory (%s): %s", usm_status_name(r->status), usm_last_error());
    say_pool(r);
    if (!r->is_brief)
        say_holders(r, r->classes, "", "held");
    say_holders(r, r->pools, "other: ", "reserved");
    say_holders(r, r->tags, "tag ", "peak");
    say_way_out(r);
    say_trace(r);
}

/* ---- both ---------------------------------------------------------------------- */

/* The machine may have memory while the process lacks addresses, and a failed allocation does not
 * show that limit. */
static const char *address_limit(char *text, size_t size)
{
    struct rlimit l;

    text[0] = '\0';
    if (getrlimit(RLIMIT_AS, &l) == 0 && l.rlim_cur != RLIM_INFINITY &&
        !strstr(usm_last_error(), "ulimit -v"))
        (void)snprintf(text, size, "; the process may have %llu KiB of addresses (ulimit -v)",
                       (unsigned long long)l.rlim_cur >> 10);
    return text;
}

/* Rewrites the error message around the one that was left where the memory was refused. */
static void notify_anew(const report *r)
{
    const usm_pool *pool = r->pool;
    size_text       aligned;
    char            addresses[96];

    usm__note(r->status,
              "%s of %s memory on %s%s%s could not be allocated: %s%s (the %s pool: %s live, %s "
              "reserved, largest "
              "free %s)",
              TEXT_OF(r->size), usm__kind_name(pool->kind),
              pool->ctx->devices[pool->index].dev->term, r->align > 64 ? ", aligned to " : "",
              r->align > 64 ? usm__format_bytes(r->align, aligned, sizeof aligned) : "",
              usm_last_error(),
              r->status == USM_E_NO_MEMORY ? address_limit(addresses, sizeof addresses) : "",
              pool->ops->name, TEXT_OF(r->stats.live), TEXT_OF(r->stats.reserved),
              TEXT_OF(r->stats.largest_free));
}

/* Most programs are told by usm_last_error(), which is theirs to print.  Over an area source the
 * allocation is often another runtime's, whose caller knows of no libusm; and who has a trace
 * written is looking for what holds memory. */
static usm_log_level level_of(const usm_pool *pool)
{
    bool is_of_source = strcmp(pool->ctx->be->name, "source") == 0;

    return is_of_source || usm__trace_is_on() ? USM_LOG_WARN : USM_LOG_INFO;
}

/* True if this call is to report. */
static bool is_due(usm_pool *pool, usm_log_level level)
{
    uint64_t last = usm_load_relaxed(&pool->reported_ns);
    uint64_t now  = usm__os_now_ns();

    return usm__log_enabled(level) && (last == 0 || now - last >= EVERY_NS) &&
           usm_cas_acq_rel(&pool->reported_ns, &last, now);
}

void usm__pool_report_full(usm_pool *pool, size_t size, size_t align, usm_status status)
{
    report       r = {pool, size, align, status, level_of(pool), .stats = USM_POOL_STATS_INIT};
    usm__message message;

    if (status != USM_E_NO_MEMORY && status != USM_E_BUDGET)
        return;
    usm__pool_stats(pool, &r.stats);
    notify_anew(&r);
    if (!is_due(pool, r.level))
        return;
    r.is_brief = !usm__log_enabled(USM_LOG_INFO);
    usm__message_save(&message);
    look(&r);
    say(&r);
    usm__message_restore(&message);
}
