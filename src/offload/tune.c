/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finds the best local size by measuring: chunks of launches with USM_PARALLEL_TUNE run with one
 * size after the other, as often as necessary, over several launches if need be.
 *
 *     sizes    usual, driver's, m, 2m, 4m, ...   up to what device and kernel allow, where m is
 *                                                the multiple that the kernel prefers
 *     chunk 0  usual, not measured: it may compile, and touch memory first
 *     then     up the list, down, up             so that a cost that grows or shrinks along the
 *                                                range favours no size
 *
 * Only the kernel is measured, by the device's clock, as time per work-item.  The median of three
 * measurements counts, so that one during which the kernel was compiled for its size does not.  The
 * usual size stays unless another is better by GAIN.  While sizes are tried the member uses one
 * slot, so that no kernel runs beside another, and chunks are so small that the launch has as many
 * as the measurements need.
 *
 * The team's kernel keeps the result, and so does a file in the folder of compiled programs, from
 * which another process starts.  A file that is damaged, or lists other sizes, is ignored and
 * overwritten.
 *
 * A size must divide the chunk: sizes are tried that divide the launch's multiple (plan.c).  The
 * last chunk, which may not be a multiple, runs with the usual size. */
#include "offload/tune.h"
#include "offload/run.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/os.h"
#include "program/disk_cache.h"
#include "program/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GAIN        0.98 /* of the usual size's time: a smaller gain is noise */
#define MISSES_MOST 64u  /* after so many trials that took no time, the clock is of no use */
#define SIZE_LEAST  8u   /* smaller ones are good on no device */
#define SIZE_MOST   1024u

static _Atomic(bool) includes_processors;

void usm__tune_include_processors(bool yes)
{
    usm_store_relaxed(&includes_processors, yes);
}

static const char *member_name(const usm__tune *t)
{
    return t->kernel->team->members[t->member].name;
}

/* ---- local sizes --------------------------------------------------------------------------- */

/* Finds a work-group of so many items: along the first dimension as far as it divides that one, the
 * rest along the second.  False: there is none. */
static bool shape(const usm__plan *plan, uint64_t count, size_t items, size_t local[3])
{
    const usm_parallel_desc *d    = &plan->desc;
    uint64_t                 x    = plan->dim == 0 ? count : d->global[0];
    uint64_t                 y    = plan->dim == 1 ? count : d->global[1];
    size_t                   left = items;

    if (items == USM__TUNE_USUAL) {
        usm__plan_local(plan, count, local);
        return true;
    }
    local[0] = local[1] = local[2] = items == USM__TUNE_DRIVER ? 0 : 1;
    if (items == USM__TUNE_DRIVER)
        return true;
    local[0] = (size_t)usm__gcd(x, items);
    left /= local[0];
    if (left > 1 && d->dims > 1)
        local[1] = (size_t)usm__gcd(y, left);
    return local[0] * local[1] == items;
}

/* A size that equals the usual one is not tried again. */
static bool is_worth_trying(const usm__plan *plan, size_t items)
{
    size_t local[3], usual[3];

    (void)shape(plan, plan->multiple, USM__TUNE_USUAL, usual);
    return shape(plan, plan->multiple, items, local) && memcmp(local, usual, sizeof local) != 0;
}

static void list_sizes(usm__tune *t, const usm__plan *plan, const usm_backend_groups *groups,
                       size_t most)
{
    size_t items = groups->multiple ? groups->multiple : 1;

    while (items < SIZE_LEAST)
        items *= 2;
    if (most == 0 || most > SIZE_MOST)
        most = SIZE_MOST;
    if (groups->max_size && groups->max_size < most)
        most = groups->max_size;
    t->sizes[t->nsizes++].items = USM__TUNE_USUAL;
    t->sizes[t->nsizes++].items = USM__TUNE_DRIVER;
    for (; items <= most && t->nsizes < USM__TUNE_SIZES; items *= 2)
        if (is_worth_trying(plan, items))
            t->sizes[t->nsizes++].items = items;
}

static const char *name_size(size_t items, char text[32])
{
    if (items == USM__TUNE_USUAL)
        return "of the usual size";
    if (items == USM__TUNE_DRIVER)
        return "as the driver chooses";
    (void)snprintf(text, 32, "of %zu items", items);
    return text;
}

/* ---- the choice ---------------------------------------------------------------------------- */

static double median_of(const usm__tune_size *s)
{
    const double *a = s->ns;
    double        low, high;

    if (s->n < USM__TUNE_TRIES)
        return 0;
    low  = a[0] < a[1] ? a[0] : a[1];
    high = a[0] < a[1] ? a[1] : a[0];
    return a[2] < low ? low : a[2] > high ? high : a[2];
}

static bool is_done(const usm__tune_size *s)
{
    return s->is_refused || s->n == USM__TUNE_TRIES;
}

/* The best of the known sizes; -1: some must still be tried.  The lock is held. */
static int find_best(usm__tune *t)
{
    const usm__tune_size *s    = t->sizes;
    unsigned              best = 0;

    if (t->misses > MISSES_MOST)
        return 0;
    for (unsigned i = 0; i < t->nsizes; i++)
        if (!is_done(&s[i]))
            return -1;
    for (unsigned i = 1; i < t->nsizes; i++)
        if (!s[i].is_refused && s[i].median < GAIN * s[0].median &&
            (best == 0 || s[i].median < s[best].median))
            best = i;
    return (int)best;
}

static void notify(const usm__tune *t, bool has_clock)
{
    const usm__tune_size *s = &t->sizes[usm_load_relaxed(&t->chosen)];
    char                  text[32];

    if (!has_clock) {
        usm__info("team: kernel \"%s\" on %s: work-groups of the usual size, because the device's "
                  "clock gives no times",
                  t->kernel->name, member_name(t));
        return;
    }
    usm__info("team: kernel \"%s\" on %s: work-groups %s, %s: %.4g ns an item, %.4g with the "
              "usual size; %u sizes",
              t->kernel->name, member_name(t), name_size(s->items, text),
              t->is_from_cache ? "from the cache" : "as measured", s->median, t->sizes[0].median,
              t->nsizes);
}

/* ---- the file ------------------------------------------------------------------------------ */

typedef struct record {
    char     magic[8];
    uint64_t n;
    struct {
        uint64_t items;
        double   median; /* 0: refused */
    } sizes[USM__TUNE_SIZES];
} record;

static const char record_magic[8] = "USMWG1";

static size_t size_of(unsigned nsizes)
{
    return offsetof(record, sizes) + nsizes * sizeof((record *)0)->sizes[0];
}

static bool fits(const usm__tune *t, const record *r, size_t size)
{
    if (size != size_of(t->nsizes) || memcmp(r->magic, record_magic, sizeof record_magic) != 0 ||
        r->n != t->nsizes || !(r->sizes[0].median > 0))
        return false;
    for (unsigned i = 0; i < t->nsizes; i++)
        if (r->sizes[i].items != t->sizes[i].items || !isfinite(r->sizes[i].median) ||
            r->sizes[i].median < 0)
            return false;
    return true;
}

/* No other thread has `t` yet. */
static void load(usm__tune *t)
{
    size_t  size = 0;
    record *r;

    usm__fault_benign_begin();
    r = usm__disk_cache_read(&t->key, &size);
    if (r && fits(t, r, size)) {
        for (unsigned i = 0; i < t->nsizes; i++) {
            usm__tune_size *s = &t->sizes[i];

            s->median     = r->sizes[i].median;
            s->is_refused = !(s->median > 0);
            s->given = s->n = USM__TUNE_TRIES;
        }
        t->is_from_cache = true;
        usm_store_relaxed(&t->chosen, find_best(t));
    } else if (r) {
        usm__debug("team: what the cache has of kernel \"%s\" is of another format",
                   t->kernel->name);
    }
    usm__heap_free(r);
    usm__fault_benign_end();
}

static void keep(usm__tune *t)
{
    record r = {.n = t->nsizes};

    memcpy(r.magic, record_magic, sizeof record_magic);
    usm__mutex_lock(&t->kernel->team->lock);
    for (unsigned i = 0; i < t->nsizes; i++) {
        r.sizes[i].items  = t->sizes[i].items;
        r.sizes[i].median = t->sizes[i].is_refused ? 0 : t->sizes[i].median;
    }
    usm__mutex_unlock(&t->kernel->team->lock);
    if (!(r.sizes[0].median > 0))
        return;
    usm__fault_benign_begin();
    usm__disk_cache_write(&t->key, &r, size_of(t->nsizes));
    usm__fault_benign_end();
}

/* ---- one kernel on one member -------------------------------------------------------------- */

static usm__hash key_of(const usm__tune *t, const usm__plan *plan)
{
    static const char what[] = "local size";
    usm__hash         h      = t->kernel->kernels[t->member]->built[0]->key;

    usm__hash_add(&h, what, sizeof what);
    usm__hash_add(&h, t->kernel->name, strlen(t->kernel->name) + 1);
    usm__hash_number(&h, plan->desc.dims);
    usm__hash_number(&h, plan->dim);
    for (unsigned i = 0; i < t->nsizes; i++)
        usm__hash_number(&h, t->sizes[i].items);
    return h;
}

/* Why nothing is tuned; NULL: it is, and *t has the sizes and the key. */
static const char *why_not(usm__tune *t, const usm__plan *plan)
{
    const usm__member *m      = &t->kernel->team->members[t->member];
    const usm_kernel  *k      = t->kernel->kernels[t->member];
    usm_device_info    info   = USM_DEVICE_INFO_INIT;
    usm_backend_groups groups = {0};

    if (m->is_native)
        return "native code has no work-groups to choose";
    if (usm_device_get_info(m->device, &info) != USM_OK ||
        (info.type == USM_DEVICE_TYPE_CPU && !usm_load_relaxed(&includes_processors)))
        return "it is a CPU, whose work-groups are not tuned";
    if (plan->state_arg != USM__NO_ARG)
        return "the launch's chunks have several rounds";
    if (!usm_device_has(m->device, USM_ASPECT_QUEUE_PROFILING))
        return "it does not report how long commands take";
    if (!usm__backend_can(k->ctx->be, USM_CAP_GROUPS) ||
        usm__be_kernel_groups(k->ctx->be, k->native[0], &groups) != USM_OK)
        return "its driver does not report which work-groups it supports";
    if (groups.required[0])
        return "the kernel was compiled for work-groups of one size";
    list_sizes(t, plan, &groups, info.max_work_group_size);
    t->key = key_of(t, plan);
    return NULL;
}

static usm__tune *find(const usm__tune *like)
{
    usm_team  *team = like->kernel->team;
    usm__tune *t;

    usm__mutex_lock(&team->lock);
    for (t = like->kernel->tunes; t; t = t->next)
        if (t->member == like->member && t->key.hi == like->key.hi && t->key.lo == like->key.lo)
            break;
    usm__mutex_unlock(&team->lock);
    return t;
}

/* If two launches begin at once, the list has the same entry twice, and the later one is found. */
static usm__tune *add(const usm__tune *like)
{
    usm_team  *team = like->kernel->team;
    usm__tune *t    = usm__heap_alloc(sizeof *t);

    if (!t)
        return NULL;
    *t = *like;
    if (t->nsizes)
        load(t);
    usm__mutex_lock(&team->lock);
    t->next          = t->kernel->tunes;
    t->kernel->tunes = t;
    usm__mutex_unlock(&team->lock);
    return t;
}

usm__tune *usm__tune_find(usm_team_kernel *k, uint32_t member, const usm__plan *plan)
{
    usm__tune   mine = {.kernel = k, .member = member, .chosen = -1};
    const char *why;
    usm__tune  *t;

    if (!(plan->desc.flags & USM_PARALLEL_TUNE) || !k->kernels[member])
        return NULL;
    why = why_not(&mine, plan);
    t   = find(&mine);
    if (!t) {
        t = add(&mine);
        if (t && why)
            usm__info("team: USM_PARALLEL_TUNE changes nothing for kernel \"%s\" on %s: %s",
                      k->name, member_name(t), why);
        else if (t && t->is_from_cache)
            notify(t, true);
    }
    return why ? NULL : t;
}

void usm__tunes_destroy(usm__tune *list)
{
    while (list) {
        usm__tune *next = list->next;

        usm__heap_free(list);
        list = next;
    }
}

uint64_t usm__tune_max_chunk(const usm__plan *plan)
{
    usm_team_kernel *k     = plan->desc.kernel;
    uint64_t         tries = 0, most;

    for (uint32_t i = 0; i < k->nmembers; i++) {
        usm__tune *t = usm__tune_find(k, i, plan);

        if (usm__tune_explores(t))
            tries += 1 + t->nsizes * USM__TUNE_TRIES;
    }
    if (tries == 0)
        return plan->max_chunk;
    most = plan->total / (2 * tries);
    most = most > plan->desc.min_chunk ? most : plan->desc.min_chunk;
    most = most > plan->multiple ? most - most % plan->multiple : plan->multiple;
    return plan->max_chunk && plan->max_chunk < most ? plan->max_chunk : most;
}

/* ---- trials -------------------------------------------------------------------------------- */

/* Chooses the next size to try: up the list in the first round, down in the second.  -1: all that
 * fit the chunk are in progress.  The lock is held. */
static int next_trial(const usm__tune *t, const usm__plan *plan, uint64_t count)
{
    int    next = -1;
    size_t local[3];

    for (unsigned i = 0; i < t->nsizes; i++) {
        const usm__tune_size *s = &t->sizes[i];

        if (s->is_refused || s->given == USM__TUNE_TRIES || !shape(plan, count, s->items, local))
            continue;
        if (next < 0 || s->given < t->sizes[next].given ||
            (s->given == t->sizes[next].given && s->given % 2 == 1))
            next = (int)i;
    }
    return next;
}

unsigned usm__tune_choose(usm__tune *t, const usm__plan *plan, uint64_t count, size_t local[3],
                          bool *is_trial)
{
    int size = usm_load_acquire(&t->chosen), trial = -1;

    if (size < 0) {
        usm__mutex_lock(&t->kernel->team->lock);
        if (t->is_warm)
            trial = next_trial(t, plan, count);
        if (trial >= 0)
            t->sizes[trial].given++;
        t->is_warm = true;
        usm__mutex_unlock(&t->kernel->team->lock);
        size = trial >= 0 ? trial : 0;
    }
    *is_trial = trial >= 0;
    if (!shape(plan, count, t->sizes[size].items, local)) {
        size = 0;
        (void)shape(plan, count, USM__TUNE_USUAL, local);
    }
    return (unsigned)size;
}

/* The lock is held on entry, and is released. */
static void settle(usm__tune *t)
{
    int  was = usm_load_relaxed(&t->chosen), best = find_best(t);
    bool has_clock = t->misses <= MISSES_MOST;

    if (best >= 0)
        usm_store_release(&t->chosen, best);
    usm__mutex_unlock(&t->kernel->team->lock);
    if (best < 0 || best == was)
        return;
    t->is_from_cache = false;
    notify(t, has_clock);
    if (has_clock)
        keep(t);
}

void usm__tune_refused(usm__tune *t, unsigned size)
{
    usm__mutex_lock(&t->kernel->team->lock);
    t->sizes[size].is_refused = true;
    settle(t);
}

void usm__tune_ended(usm__tune *t, unsigned size, uint64_t items, uint64_t ns)
{
    usm__tune_size *s = &t->sizes[size];

    usm__mutex_lock(&t->kernel->team->lock);
    if (items == 0 || ns == 0) {
        s->given--;
        t->misses += items != 0;
    } else {
        s->ns[s->n++] = (double)ns / (double)items;
        s->median     = median_of(s);
    }
    settle(t);
}

/* ---- called by slots ----------------------------------------------------------------------- */

static usm__tune *tune_of(const usm__lane *s)
{
    return s->run->members[s->member->index].tune;
}

void usm__tune_lane_begin(usm__lane *s)
{
    usm__tune *t = tune_of(s);

    s->size     = 0;
    s->is_trial = false;
    if (t)
        s->size =
            usm__tune_choose(t, s->run->params.plan, s->chunk.count, s->launch.local, &s->is_trial);
}

void usm__tune_lane_queued(usm__lane *s, usm_event *ev)
{
    if (s->is_trial && ev->has_times && usm_event_retain(ev) == USM_OK)
        s->tried = ev;
}

bool usm__tune_lane_refused(usm__lane *s)
{
    if (s->size == 0)
        return false;
    usm__tune_refused(tune_of(s), s->size);
    usm__plan_local(s->run->params.plan, s->chunk.count, s->launch.local);
    s->size     = 0;
    s->is_trial = false;
    return true;
}

static uint64_t time_of(usm_event *ev)
{
    usm_profiling times = USM_PROFILING_INIT;

    return usm_event_profiling(ev, &times) == USM_OK && times.end_ns > times.start_ns
               ? times.end_ns - times.start_ns
               : 0;
}

void usm__tune_lane_over(usm__lane *s, usm_status status)
{
    const size_t *global = s->launch.global;

    if (s->is_trial)
        usm__tune_ended(tune_of(s), s->size,
                        status == USM_OK ? (uint64_t)global[0] * global[1] * global[2] : 0,
                        s->tried ? time_of(s->tried) : 0);
    usm_event_release(s->tried);
    s->tried    = NULL;
    s->is_trial = false;
}
