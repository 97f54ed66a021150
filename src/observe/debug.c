/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* USM_DEBUG: red zones, poison, lists of blocks that were not freed.
 *
 *     |....front....|the program's bytes|...back...|       zones hold ZONE, 64 bytes at least
 *
 * Memory that the host can access is filled and compared by the host.  Device memory is filled by
 * the device, and its zones are copied to the host for comparison.  These commands use the queue of
 * blocking copies, so that they do not wait behind the commands of a queue of the program.  Of each
 * zone only the ZONE_MOST bytes next to the program's are checked.
 *
 * Where this is impossible (no memory, a device that moves no data, a context inherited through
 * fork()) the block has no zones and no poison, and one warning is logged.
 *
 * Not here: the records of blocks (observe/tracked.c), and the moments at which all this happens
 * (observe/observe.c). */
#include "observe/debug.h"

#include "base/inline/bits.h"
#include "base/inline/plural.h"
#include "base/log.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/text.h"
#include "command/command.h"
#include "device/init.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZONE_LEAST ((size_t)64)
#define ZONE_MOST  ((size_t)4096)
#define ZONE       0xfb
#define FRESH      0xa5 /* allocated, and not yet written */
#define FREED      0xdf

static const char *const kind_names[] = {"unknown", "host", "device", "shared"};

/* ---- the setting ------------------------------------------------------------------- */

static bool parse(const char *text, unsigned *checks)
{
    static const struct {
        const char *name;
        unsigned    check;
    } names[]      = {{"redzone", USM__DEBUG_REDZONE},
                      {"poison", USM__DEBUG_POISON},
                      {"leaks", USM__DEBUG_LEAKS}};
    usm__span rest = usm__span_of(text), word;

    *checks = 0;
    while (usm__span_next(&rest, ',', &word)) {
        size_t i = 0;

        while (i < 3 && !usm__span_is(word, names[i].name))
            i++;
        if (i == 3)
            return false;
        *checks |= names[i].check;
    }
    return true;
}

bool usm__debug_check(const char *text, char *why, size_t why_size)
{
    unsigned checks;

    (void)snprintf(why, why_size, "redzone, poison, leaks, separated by commas");
    return parse(text, &checks);
}

/* Fixed when it is first read, and atomic. */
static struct {
    unsigned    checks;
    atomic_flag refused; /* it was said that a device's memory goes without them */
} debug = {.refused = ATOMIC_FLAG_INIT};

static void read_setting(void)
{
    if (!parse(usm__setting_text("debug"), &debug.checks))
        debug.checks = 0;
}

unsigned usm__debug_checks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, read_setting);
    return debug.checks;
}

/* ---- a device's memory ---------------------------------------------------------------- */

/* The callers save the error message of the allocation or free, and restore it afterwards. */
static void cannot(const usm__record *r, const char *what)
{
    if (!atomic_flag_test_and_set(&debug.refused))
        usm__warn("USM_DEBUG: device memory of %s cannot be %s, and goes without: %s", r->dev->term,
                  what, usm_last_error());
}

static usm_queue *queue_of(const usm__record *r)
{
    usm_context *ctx = r->pool->ctx;

    if (usm__context_is_inert(ctx)) {
        (void)usm__fail(USM_E_FORKED, "its context was made before fork()");
        return NULL;
    }
    if (usm__queue_probe_device(ctx, r->pool->index) != USM_OK)
        return NULL;
    return usm__queue_own(ctx, r->pool->index, USM__QUEUE_BLOCKING);
}

/* Not usm_memcpy(), which rejects the zones: they are not memory of the program's. */
static usm_status copy_and_wait(usm_queue *q, void *dst, const void *src, size_t n)
{
    usm_event  *ev = NULL;
    usm__submit s;
    usm_status  st = usm__submit_begin(&s, q, 0, NULL, &ev);

    if (st == USM_OK)
        st = usm__submit_end(&s, usm__be_copy(q->be, q->native, dst, src, n, USM__SUBMIT_ARGS(&s)));
    return usm__event_await(st, ev);
}

static usm_status fill_and_wait(usm_queue *q, void *dst, unsigned char byte, size_t n)
{
    usm_event  *ev = NULL;
    usm__submit s;
    usm_status  st = usm__submit_begin(&s, q, 0, NULL, &ev);

    if (st == USM_OK)
        st = usm__submit_end(
            &s, usm__be_fill(q->be, q->native, dst, &byte, 1, n, USM__SUBMIT_ARGS(&s)));
    return usm__event_await(st, ev);
}

/* For drivers without a fill. */
static usm_status fill_by_copies(usm_queue *q, char *dst, unsigned char byte, size_t n)
{
    unsigned char piece[ZONE_MOST];
    usm_status    st = USM_OK;

    memset(piece, byte, sizeof piece);
    for (size_t at = 0; st == USM_OK && at < n; at += sizeof piece)
        st = copy_and_wait(q, dst + at, piece, usm_min_size(sizeof piece, n - at));
    return st;
}

/* ---- both kinds of memory ------------------------------------------------------------- */

static usm_status fill(const usm__record *r, char *dst, unsigned char byte, size_t n)
{
    usm_queue *q;

    if (n == 0)
        return USM_OK;
    if (usm__record_on_host(r)) {
        memset(dst, byte, n);
        return USM_OK;
    }
    q = queue_of(r);
    if (!q)
        return usm_last_status();
    return q->dev->desc.max_fill_pattern ? fill_and_wait(q, dst, byte, n)
                                         : fill_by_copies(q, dst, byte, n);
}

/* Copies n <= ZONE_MOST bytes of a block to memory that the host can read. */
static usm_status read_back(const usm__record *r, const char *src, unsigned char *to, size_t n)
{
    usm_queue *q;

    if (usm__record_on_host(r)) {
        memcpy(to, src, n);
        return USM_OK;
    }
    q = queue_of(r);
    return q ? copy_and_wait(q, to, src, n) : usm_last_status();
}

/* ---- red zones --------------------------------------------------------------------------- */

typedef struct zone {
    char  *at;
    size_t n;
} zone;

static zone front_zone(const usm__record *r)
{
    size_t n = usm_min_size((size_t)(r->user - (char *)r->block.base), ZONE_MOST);

    return (zone){r->user - n, n};
}

static zone back_zone(const usm__record *r)
{
    char *at = r->user + r->usable;

    return (zone){at,
                  usm_min_size((size_t)((char *)r->block.base + r->block.size - at), ZONE_MOST)};
}

void usm__debug_plan_for(const usm_pool *pool, size_t align, size_t size, usm__debug_plan *plan)
{
    size_t front = usm_max_size(usm_max_size(align, pool->min_align), ZONE_LEAST), all;

    *plan = (usm__debug_plan){align, size, 0};
    if (!(usm__debug_checks() & USM__DEBUG_REDZONE) || !usm_is_pow2(front))
        return;
    if (__builtin_add_overflow(usm_max_size(size, 1), front + ZONE_LEAST, &all))
        return; /* the pool will refuse the size anyway */
    *plan = (usm__debug_plan){front, all, front};
}

static usm_status paint(usm__record *r)
{
    zone       front = front_zone(r), back = back_zone(r);
    usm_status st = USM_OK;

    if (r->user != r->block.base) {
        st = fill(r, front.at, ZONE, front.n);
        if (st == USM_OK)
            st = fill(r, back.at, ZONE, back.n);
        r->has_zones = st == USM_OK;
    }
    if (st == USM_OK && usm__debug_checks() & USM__DEBUG_POISON && !r->pool->zero_init)
        st = fill(r, r->user, FRESH, r->usable);
    return st;
}

void usm__debug_paint(usm__record *r)
{
    usm__message message;

    usm__message_save(&message);
    if (paint(r) != USM_OK)
        cannot(r, "filled");
    usm__message_restore(&message);
}

/* "1000 bytes of device memory of host:0, tag "solver"" */
static const char *describe(const usm__record *r, char *text, size_t size)
{
    (void)snprintf(text, size, "%zu %s of %s memory of %s%s%s%s", r->asked,
                   usm__plural(r->asked, "byte", "bytes"), kind_names[r->kind & 3], r->dev->term,
                   r->tag ? ", tag \"" : "", r->tag ? r->tag->name : "", r->tag ? "\"" : "");
    return text;
}

/* pre: bytes[first] and bytes[last] are the outermost changed bytes. */
static void report(const usm__record *r, const zone *z, const unsigned char *bytes, size_t first,
                   size_t last)
{
    bool   is_front = z->at < r->user;
    size_t changed = 0, shown         = usm_min_size(last - first + 1, 16);
    char   what[256], hex[16 * 3 + 1] = "";

    for (size_t i = first; i <= last; i++)
        changed += bytes[i] != ZONE;
    for (size_t i = 0; i < shown; i++)
        (void)snprintf(hex + i * 3, 4, " %02x", bytes[first + i]);
    usm__log(USM_LOG_ERROR,
             "USM_DEBUG: the block at %p (%s) was written %s: %zu byte%s changed, from offset %td "
             "on:%s%s",
             (void *)r->user, describe(r, what, sizeof what),
             is_front ? "before its start" : "past its end", changed, changed == 1 ? "" : "s",
             z->at + first - r->user, hex, last - first + 1 > shown ? " ..." : "");
}

static usm_status inspect(const usm__record *r, zone z)
{
    unsigned char bytes[ZONE_MOST] = {0};
    size_t        first = 0, last = z.n;
    usm_status    st;

    if (z.n == 0)
        return USM_OK;
    st = read_back(r, z.at, bytes, z.n);
    if (st != USM_OK)
        return st;
    while (first < z.n && bytes[first] == ZONE)
        first++;
    while (last > first && bytes[last - 1] == ZONE)
        last--;
    if (first < last)
        report(r, &z, bytes, first, last - 1);
    return USM_OK;
}

void usm__debug_inspect(const usm__record *r)
{
    usm__message message;

    if (!r->has_zones || !usm__pool_is_awake(r->pool)) /* nothing can be read while it sleeps */
        return;
    usm__message_save(&message);
    if (inspect(r, front_zone(r)) != USM_OK || inspect(r, back_zone(r)) != USM_OK)
        cannot(r, "looked at");
    usm__message_restore(&message);
}

void usm__debug_wipe(const usm__record *r)
{
    usm__message message;

    if (!(usm__debug_checks() & USM__DEBUG_POISON) || !usm__pool_is_awake(r->pool))
        return;
    usm__message_save(&message);
    if (fill(r, r->user, FREED, r->usable) != USM_OK)
        cannot(r, "filled");
    usm__message_restore(&message);
}

/* ---- blocks that were not freed ------------------------------------------------------------- */

#define LINES 20 /* of a list; the remaining groups are counted */

/* Blocks with equal tag, device, kind and size: one line. */
typedef struct group {
    const usm_device *dev;
    const usm__tag   *tag;
    usm_kind          kind;
    size_t            asked;
    const void       *first;
    size_t            count;
} group;

typedef struct collection {
    const usm_pool *pool; /* NULL: all */
    group          *groups;
    size_t          n, cap;
    size_t          count;
    uint64_t        bytes;
} collection;

static bool is_meant(const usm__record *r, const collection *c)
{
    return c->pool ? r->pool == c->pool : r->generation == usm__fork_generation();
}

static bool collect(const usm__record *r, void *arg)
{
    collection *c = arg;

    if (!is_meant(r, c))
        return false;
    c->count++;
    c->bytes += r->asked;
    if (c->n < c->cap)
        c->groups[c->n++] = (group){r->dev, r->tag, r->kind, r->asked, r->user, 1};
    return false;
}

static int compare_words(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_likeness(const void *x, const void *y)
{
    const group *a = x, *b = y;
    int          d = compare_words(a->tag ? a->tag->id : 0, b->tag ? b->tag->id : 0);

    if (d == 0)
        d = compare_words((uintptr_t)a->dev, (uintptr_t)b->dev);
    if (d == 0)
        d = compare_words((uint64_t)a->kind, (uint64_t)b->kind);
    if (d == 0)
        d = compare_words(a->asked, b->asked);
    return d ? d : compare_words((uintptr_t)a->first, (uintptr_t)b->first);
}

/* Largest total size first. */
static int by_bytes(const void *x, const void *y)
{
    const group *a = x, *b = y;
    int          d = compare_words(b->asked * b->count, a->asked * a->count);

    return d ? d : by_likeness(x, y);
}

static bool are_alike(const group *a, const group *b)
{
    return a->tag == b->tag && a->dev == b->dev && a->kind == b->kind && a->asked == b->asked;
}

static void merge(collection *c)
{
    size_t n = 0;

    qsort(c->groups, c->n, sizeof *c->groups, by_likeness);
    for (size_t i = 0; i < c->n; i++)
        if (n > 0 && are_alike(&c->groups[n - 1], &c->groups[i]))
            c->groups[n - 1].count++;
        else
            c->groups[n++] = c->groups[i];
    c->n = n;
    qsort(c->groups, n, sizeof *c->groups, by_bytes);
}

static void print(const collection *c)
{
    size_t rest = 0;

    for (size_t i = 0; i < c->n && i < LINES; i++) {
        const group *g = &c->groups[i];

        usm__warn("  %zu block%s of %zu bytes, %s memory of %s%s%s%s, %s at %p", g->count,
                  g->count == 1 ? "" : "s", g->asked, kind_names[g->kind & 3], g->dev->term,
                  g->tag ? ", tag \"" : "", g->tag ? g->tag->name : "", g->tag ? "\"" : "",
                  g->count == 1 ? "it is" : "the first", g->first);
    }
    for (size_t i = LINES; i < c->n; i++)
        rest += c->groups[i].count;
    if (rest > 0)
        usm__warn("  and %zu %s more", rest, usm__plural(rest, "block", "blocks"));
}

size_t usm__debug_list(const usm_pool *pool)
{
    collection c = {.pool = pool};

    usm__tracked_each(collect, &c);
    if (c.count == 0)
        return 0;
    c.cap    = c.count + 64; /* other threads may be allocating */
    c.groups = usm__heap_alloc(c.cap * sizeof *c.groups);
    c.count = c.bytes = 0;
    if (!c.groups)
        c.cap = 0; /* only the sum is reported */
    usm__tracked_each(collect, &c);
    if (c.count == 0)
        goto out;
    if (pool)
        usm__warn("a pool of %s (%s memory) ends with %zu block%s (%llu bytes) still out:",
                  pool->ctx->devices[pool->index].dev->term, kind_names[pool->kind & 3], c.count,
                  c.count == 1 ? "" : "s", (unsigned long long)c.bytes);
    else
        usm__warn("%zu block%s (%llu bytes) %s never freed:", c.count, c.count == 1 ? "" : "s",
                  (unsigned long long)c.bytes, c.count == 1 ? "was" : "were");
    merge(&c);
    print(&c);
out:
    usm__heap_free(c.groups);
    return c.count;
}
