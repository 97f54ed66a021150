/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tags: usm_tag_push() and usm_tag_pop(), the names and their statistics.
 *
 * Names are found without a lock: buckets and the list of all tags only grow, under `lock`, and an
 * entry is complete before it is published.  A push costs one hash and one comparison.
 *
 * Not here: the allocations themselves (observe/observe.c), printing (heap/pool_text.c). */
#include "observe/tag.h"

#include "base/fork.h"
#include "base/meta.h"
#include "base/mutex.h"
#include "base/os.h"
#include "base/status.h"
#include "base/trace.h"
#include "heap/magazine.h"
#include "observe/observe.h"

#include <string.h>

#define BUCKETS 256

static struct {
    usm__mutex        lock; /* for threads that make a tag */
    usm__tag *_Atomic buckets[BUCKETS];
    usm__tag *_Atomic first;
    usm__tag         *last;  /* guarded by lock                                                */
    unsigned          count; /* guarded by lock                                                */
} tags = {.lock = USM__MUTEX_INIT(USM__RANK_META, "tags")};

/* The tags that a thread has pushed, innermost last.  Allocated at its first push. */
typedef struct tag_stack {
    unsigned  depth;
    usm__tag *tags[USM__TAG_DEPTH];
} tag_stack;

static usm__meta_type      stack_type = USM__META_TYPE(tag_stack, 0, "stacks of tags");
static __thread tag_stack *pushed __attribute__((tls_model("initial-exec"))); /* may be NULL */

/* ---- names ------------------------------------------------------------------- */

/* Writes the text, shortened to its stored length, and returns its bucket: FNV-1a, 32 bits. */
static unsigned cut(const char *name, char text[USM__TAG_NAME])
{
    uint32_t hash = 2166136261u;
    size_t   n    = strnlen(name, USM__TAG_NAME - 1);

    memcpy(text, name, n);
    text[n] = '\0';
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return (hash ^ hash >> 16) % BUCKETS;
}

static usm__tag *find(unsigned bucket, const char *text)
{
    usm__tag *tag = usm_load_acquire(&tags.buckets[bucket]);

    while (tag && strcmp(tag->name, text) != 0)
        tag = usm_load_acquire(&tag->next);
    return tag;
}

/* pre: lock is held. */
static usm__tag *make(unsigned bucket, const char *text)
{
    usm__tag *tag = tags.count < UINT16_MAX ? usm__heap_alloc(sizeof *tag) : NULL;

    if (!tag)
        return NULL;
    memcpy(tag->name, text, USM__TAG_NAME);
    tag->id = (uint16_t)++tags.count;
    usm_store_relaxed(&tag->next, usm_load_relaxed(&tags.buckets[bucket]));
    usm_store_release(&tags.buckets[bucket], tag);
    usm_store_release(tags.last ? &tags.last->next_all : &tags.first, tag);
    tags.last = tag;
    return tag;
}

static usm__tag *find_or_make(const char *name)
{
    char      text[USM__TAG_NAME] = "";
    unsigned  bucket              = cut(name, text);
    usm__tag *tag                 = find(bucket, text);

    if (tag)
        return tag;
    usm__mutex_lock(&tags.lock);
    tag = find(bucket, text);
    if (!tag)
        tag = make(bucket, text);
    usm__mutex_unlock(&tags.lock);
    return tag;
}

/* ---- figures ------------------------------------------------------------------- */

static void grow(usm__tag *tag, size_t size)
{
    uint64_t now  = usm_add_relaxed(&tag->live, (uint64_t)size) + size;
    uint64_t peak = usm_load_relaxed(&tag->live_peak);

    while (now > peak && !usm_cas_acq_rel(&tag->live_peak, &peak, now))
        ;
    (void)usm_add_relaxed(&tag->blocks, (uint64_t)1);
}

void usm__tag_add(usm__tag *tag, size_t size)
{
    if (!tag)
        return;
    grow(tag, size);
    (void)usm_add_relaxed(&tag->allocations, (uint64_t)1);
}

void usm__tag_sub(usm__tag *tag, size_t size)
{
    if (!tag)
        return;
    (void)usm_sub_relaxed(&tag->live, (uint64_t)size);
    (void)usm_sub_relaxed(&tag->blocks, (uint64_t)1);
}

void usm__tag_restore(usm__tag *tag, size_t size)
{
    if (tag)
        grow(tag, size);
}

uint32_t usm__tag_trace_id(usm__tag *tag)
{
    uint32_t known = tag ? usm_load_relaxed(&tag->trace_id) : 0;

    if (known || !tag)
        return known;
    known = usm__trace_tag(tag->name);
    usm_store_relaxed(&tag->trace_id, known);
    return known;
}

static void get_stats(const usm__tag *tag, usm_tag_stats *stats)
{
    stats->name        = tag->name;
    stats->live        = usm_load_relaxed(&tag->live);
    stats->live_peak   = usm_load_relaxed(&tag->live_peak);
    stats->blocks      = usm_load_relaxed(&tag->blocks);
    stats->allocations = usm_load_relaxed(&tag->allocations);
}

void usm__tags_each(usm__observer_tag_fn *fn, void *arg)
{
    for (const usm__tag *tag = usm_load_acquire(&tags.first); tag;
         tag                 = usm_load_acquire(&tag->next_all)) {
        usm_tag_stats stats = USM_TAG_STATS_INIT;

        get_stats(tag, &stats);
        if (stats.allocations)
            fn(&stats, arg);
    }
}

void usm__tag_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&tags.lock, phase);
}

/* ---- the stack of a thread ------------------------------------------------------------------ */

usm__tag *usm__tag_current(void)
{
    return usm__tagged ? pushed->tags[pushed->depth - 1] : NULL;
}

const char *usm__tag_name(void)
{
    return usm__tag_current()->name;
}

/* The thread has a block from here on, so that usm__tag_thread_ended() is called. */
static tag_stack *own_stack(void)
{
    if (!pushed && usm__thread_self())
        pushed = usm__meta_alloc(&stack_type);
    return pushed;
}

void usm__tag_thread_ended(void)
{
    if (pushed)
        usm__meta_free(&stack_type, pushed);
    pushed      = NULL;
    usm__tagged = false;
}

/* ---- public ---------------------------------------------------------------------- */

usm_status usm_tag_push(const char *name)
{
    tag_stack *s;
    usm__tag  *tag;

    if (!name || !*name)
        return usm__fail(USM_E_INVALID, "usm_tag_push: the name is %s", name ? "empty" : "NULL");
    s = own_stack();
    if (!s)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for this thread's tags");
    if (s->depth == USM__TAG_DEPTH)
        return usm__fail(
            USM_E_INVALID,
            "usm_tag_push: this thread has pushed %d tags already; does each push have "
            "its usm_tag_pop()?",
            USM__TAG_DEPTH);
    tag = find_or_make(name);
    if (!tag)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the tag \"%.63s\"", name);
    usm__observe_install();
    s->tags[s->depth++] = tag;
    usm__tagged         = true;
    if (s->depth == 1)
        usm__magazine_close_self();
    return USM_OK;
}

usm_status usm_tag_pop(void)
{
    if (!usm__tagged)
        return usm__fail(USM_E_INVALID, "usm_tag_pop: no tag is pushed on this thread");
    usm__tagged = --pushed->depth > 0;
    if (!usm__tagged)
        usm__magazine_open_self();
    return USM_OK;
}

usm_status usm_tag_get_stats(const char *name, usm_tag_stats *stats)
{
    char            text[USM__TAG_NAME] = "";
    const usm__tag *tag;

    usm_status st =
        usm__struct_check("usm_tag_get_stats", "stats", stats, sizeof *stats, "USM_TAG_STATS_INIT");

    if (st != USM_OK)
        return st;
    if (!name)
        return usm__fail(USM_E_INVALID, "usm_tag_get_stats: name is NULL");
    tag = find(cut(name, text), text);
    if (!tag || usm_load_relaxed(&tag->allocations) == 0)
        return usm__fail(USM_E_INVALID, "nothing was ever allocated under the tag \"%.63s\"", name);
    get_stats(tag, stats);
    return USM_OK;
}
