/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Advice in words: each rule looks at the counts of analyse.c and says in one sentence what was
 * seen and what to do.  A rule that does not apply adds nothing.  Called by analyse.c. */
#include "profile/analyse.h"

#include "base/inline/plural.h"
#include "base/os.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FEW      100u                /* fewer allocations than this are not worth advice */
#define LITTLE   ((uint64_t)1 << 20) /* bytes */
#define BYTES(n) usm__format_bytes((n), (char[32]){0}, 32)

/* Appends a sentence; false when out of memory. */
static bool say(usm__analysis *a, const char *format, ...) USM_PRINTF(2, 3);
static bool say(usm__analysis *a, const char *format, ...)
{
    char    text[640];
    char  **more = usm__heap_realloc(a->advice, (a->nadvice + 1) * sizeof(*more));
    va_list args;

    if (more == NULL)
        return false;
    a->advice = more;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    a->advice[a->nadvice] = usm__heap_strdup(text);
    return a->advice[a->nadvice] != NULL && ++a->nadvice;
}

/* "1.5 ms"; returns buf. */
static const char *time_text(double ns, char *buf, size_t size)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    int                      u       = 0;

    for (; ns >= 1000 && u < 3; u++)
        ns /= 1000;
    (void)snprintf(buf, size, u ? "%.3g %s" : "%.0f %s", ns, units[u]);
    return buf;
}
#define TIME(ns) time_text((double)(ns), (char[32]){0}, 32)

static bool about_trace(const usm__profile *t, usm__analysis *a)
{
    bool fine = true;

    if (t->damage[0] != '\0')
        fine = say(a, "The file is cut or damaged (%s): all figures are of what comes before.",
                   t->damage);
    else if (!t->ended)
        fine = say(a, "The process did not end in order (killed, crashed, _exit): up to the last "
                      "200 ms are missing, and blocks that look unfreed may not be leaks.");
    if (fine && t->lost > 0)
        fine = say(a,
                   "%llu %s lost because rings were full: all figures are too low, and "
                   "blocks may seem unfreed; record again with a larger USM_TRACE_RING, such as "
                   "16M.",
                   (unsigned long long)t->lost, usm__plural(t->lost, "event was", "events were"));
    return fine;
}

static bool is_direct(const usm__profile_pool *p)
{
    return strcmp(p->pool, "direct") == 0;
}

/* What pools that ask their driver for each block would have saved by keeping blocks. */
static bool about_direct(usm__analysis *a)
{
    uint64_t allocations = 0, repeats = 0;
    size_t   n = 0;

    for (size_t i = 0; i < a->npools; i++) {
        if (!is_direct(&a->pools[i]) || a->pools[i].repeats < FEW)
            continue;
        n++;
        allocations += a->pools[i].u.allocations;
        repeats += a->pools[i].repeats;
    }
    if (n == 0)
        return true;
    return say(a,
               "%zu %s of the kind direct asked the driver for each of %llu %s%llu of them "
               "had a size that had been freed before: the pool slab would have saved about %s of "
               "driver calls (USM_POOL=slab, or no name at all).",
               n, n == 1 ? "pool" : "pools", (unsigned long long)allocations,
               usm__plural(allocations, "allocation; ", "allocations; "),
               (unsigned long long)repeats, TIME(repeats * (a->take_ns + a->give_ns)));
}

/* `retain` does not reach what lies in caches. */
static bool about_reserve(usm__analysis *a, const usm__profile_pool *p)
{
    double times = (double)p->reserved_peak / (double)(p->u.live_peak ? p->u.live_peak : 1);

    if (p->reserved_peak < 16 * LITTLE || p->reserved_peak < 3 * p->u.live_peak)
        return true;
    if (p->caches_peak > p->reserved_peak / 2)
        return say(a,
                   "Pool %s held up to %s, %.1f x the most that was live in it (%s), and caches of "
                   "threads could hold %s of it: limit them with thread_cache "
                   "(USM_POOL=%s,thread_cache=%s), or call usm_pool_trim_to() between phases.",
                   p->u.name, BYTES(p->reserved_peak), times, BYTES(p->u.live_peak),
                   BYTES(p->caches_peak), p->pool, p->u.live_peak >= 64 * LITTLE ? "16M" : "1M");
    return say(a,
               "Pool %s held up to %s, %.1f x the most that was live in it (%s): limit what it "
               "keeps with retain and retain_ms (USM_POOL=%s,retain=%s), or call "
               "usm_pool_trim_to() between phases.",
               p->u.name, BYTES(p->reserved_peak), times, BYTES(p->u.live_peak), p->pool,
               p->u.live_peak >= LITTLE ? "64M" : "1M");
}

/* A pool that returns areas and takes them again: it takes far more than its peak needs. */
static bool about_churn(usm__analysis *a, const usm__profile_pool *p)
{
    if (is_direct(p) || p->takes < FEW || p->gives < p->takes / 2 ||
        p->takes < p->u.allocations / 10)
        return true;
    return say(a,
               "Pool %s took areas %llu %s and gave %llu back, %s in the driver: it gives up "
               "what it soon needs again; let it keep more (USM_POOL=%s,retain=%s).",
               p->u.name, (unsigned long long)p->takes, usm__plural(p->takes, "time", "times"),
               (unsigned long long)p->gives, TIME(p->driver_ns), p->pool, "all");
}

static bool about_failures(usm__analysis *a, const usm__profile_pool *p)
{
    if (p->u.failed == 0)
        return true;
    return say(a,
               "Pool %s refused %llu %s, %llu of them after the driver had "
               "refused: it held %s at most, of which %s were live; raise its maximum_size or "
               "USM_MEMORY_LIMIT if one is set, else free or spill earlier.",
               p->u.name, (unsigned long long)p->u.failed,
               usm__plural(p->u.failed, "allocation", "allocations"),
               (unsigned long long)p->refused, BYTES(p->reserved_peak), BYTES(p->u.live_peak));
}

/* Blocks with brief lives that often asked the driver, though their pool keeps blocks. */
static bool about_class(usm__analysis *a, const usm__usage *u)
{
    if (u->allocations < FEW || u->brief < u->allocations / 2 || u->hits > u->allocations / 2)
        return true;
    return say(
        a,
        "Sizes of %s: %llu %s lived %s on average, and %.0f %% of them waited for "
        "the driver: let their pool keep more (retain), or allocate once outside of the loop.",
        u->name, (unsigned long long)u->allocations,
        usm__plural(u->allocations, "allocation", "allocations"),
        TIME(u->life_ns / (double)u->ended), 100 - usm__percent(u->hits, u->allocations));
}

static bool about_classes(usm__analysis *a)
{
    uint64_t misses = a->all.allocations - a->all.hits;
    bool     fine   = true;

    for (size_t i = 0; i < a->npools; i++) /* about_direct() covers these pools  */
        if (is_direct(&a->pools[i]))
            misses -= a->pools[i].u.allocations - a->pools[i].u.hits;
    for (size_t i = 0; i < a->classes.n && fine && misses >= FEW; i++)
        fine = about_class(a, &a->classes.rows[i]);
    return fine;
}

static bool about_tag(const usm__profile *t, usm__analysis *a, const usm__usage *u)
{
    if (!t->ended || t->lost > 0 || u->blocks == 0)
        return true;
    if (strcmp(u->name, "(no tag)") == 0)
        return say(a,
                   "%llu %s (%s) not freed when the process ended; record with --stacks to see "
                   "who allocated them.",
                   (unsigned long long)u->blocks,
                   usm__plural(u->blocks, "block without a tag was", "blocks without a tag were"),
                   BYTES(u->live));
    return say(a, "Tag %s leaks %llu %s (%s): not freed when the process ended.", u->name,
               (unsigned long long)u->blocks, usm__plural(u->blocks, "block", "blocks"),
               BYTES(u->live));
}

static bool about_drivers(usm__analysis *a)
{
    if (a->driver_ns < 10ull * USM__BRIEF_NS || a->driver_ns < a->duration_ns / 20)
        return true;
    return say(a,
               "%s were spent in memory calls of drivers, %.0f %% of the %s that the trace covers "
               "(summed over threads).",
               TIME(a->driver_ns), usm__percent(a->driver_ns, a->duration_ns),
               TIME(a->duration_ns));
}

static bool about_spilling(usm__analysis *a)
{
    const usm__profile_spill_usages *u    = &a->spill;
    bool                             fine = true;

    if (u->all.waits.sum_ns > a->duration_ns / 20 && u->all.waits.n > 0)
        fine = say(a,
                   "Accesses waited %s for memory and storage, %.0f %% of the %s that the trace "
                   "covers (summed over threads), most of it for %s: more memory "
                   "(USM_MEMORY_LIMIT), usm_announce() or usm_buffer_advise() help.",
                   TIME(u->all.waits.sum_ns), usm__percent(u->all.waits.sum_ns, a->duration_ns),
                   TIME(a->duration_ns), u->buffers[0].name);
    for (size_t i = 0; i < u->nbuffers && fine; i++) {
        const usm__profile_spill_buffer *b = &u->buffers[i];

        if (b->wasted >= FEW && b->wasted > b->used)
            fine = say(a,
                       "Of %s more guesses were useless than used (%llu, %llu): say so with "
                       "usm_buffer_advise(USM_BUFFER_RANDOM).",
                       b->name, (unsigned long long)b->wasted, (unsigned long long)b->used);
        if (fine && b->pinned_ns > a->duration_ns / 20)
            fine = say(a,
                       "%s kept up to %s pinned while others waited %s for memory: end its "
                       "accesses sooner, or make them smaller.",
                       b->name, BYTES(b->pinned), TIME(b->pinned_ns));
    }
    return fine;
}

bool usm__advise(const usm__profile *t, usm__analysis *a)
{
    bool fine = about_trace(t, a) && about_drivers(a) && about_direct(a) && about_classes(a);

    for (size_t i = 0; i < a->npools && fine; i++)
        fine = about_reserve(a, &a->pools[i]) && about_churn(a, &a->pools[i]) &&
               about_failures(a, &a->pools[i]);
    for (size_t i = 0; i < a->tags.n && fine; i++)
        fine = about_tag(t, a, &a->tags.rows[i]);
    return fine && about_spilling(a);
}
