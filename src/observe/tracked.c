/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Records of tracked blocks: see tracked.h.  A shard grows if it can; without memory its chains
 * become longer instead, so that adding a record never fails. */
#include "observe/tracked.h"

#include "base/fork.h"
#include "base/log.h"
#include "base/os.h"

#include <pthread.h>

#define SHARD_BITS  3 /* few: fork() takes all their locks, and lock checkers have limits */
#define SHARDS      (1u << SHARD_BITS)
#define FIRST_SIZE  8 /* initial number of buckets; a power of two                       */
#define CHAIN_LIMIT 2 /* records in a bucket, on average, before their number is doubled */

/* All fields are guarded by lock. */
typedef struct shard {
    usm__mutex    lock;
    usm__record  *first[FIRST_SIZE]; /* the initial buckets */
    usm__record **buckets;
    size_t        n, count;
} shard;

static struct {
    shard       shards[SHARDS]; /* each has its lock inside */
    atomic_flag lacked;         /* it was said that there was no memory for a record */
} tracked                         = {.lacked = ATOMIC_FLAG_INIT};
static pthread_once_t shards_once = PTHREAD_ONCE_INIT;

static void make_shards(void)
{
    for (size_t i = 0; i < SHARDS; i++) {
        usm__mutex_init(&tracked.shards[i].lock, USM__RANK_TRACKED, "tracked blocks");
        tracked.shards[i].buckets = tracked.shards[i].first;
        tracked.shards[i].n       = FIRST_SIZE;
    }
}

static uint64_t hash(const void *base)
{
    return (uint64_t)(uintptr_t)base * 0x9e3779b97f4a7c15ull;
}

static shard *lock_shard(const void *base)
{
    shard *s;

    (void)pthread_once(&shards_once, make_shards);
    s = &tracked.shards[hash(base) >> (64 - SHARD_BITS)];
    usm__mutex_lock(&s->lock);
    return s;
}

static usm__record **bucket_of(const shard *s, const void *base)
{
    return &s->buckets[(hash(base) >> 24) & (s->n - 1)];
}

/* Returns the link to the record of `base`; *result is NULL if there is none. */
static usm__record **find_link(const shard *s, const void *base)
{
    usm__record **link = bucket_of(s, base);

    while (*link && (*link)->block.base != base)
        link = &(*link)->next;
    return link;
}

static usm__record *unlink_at(shard *s, usm__record **link)
{
    usm__record *r = *link;

    if (!r)
        return NULL;
    *link = r->next;
    if (--s->count == 0)
        usm_sub_relaxed(&usm__observers.tracking, 1u);
    return r;
}

static void push(shard *s, usm__record *r)
{
    usm__record **bucket = bucket_of(s, r->block.base);

    r->next = *bucket;
    *bucket = r;
}

/* Doubles the number of buckets, if there is memory. */
static void grow(shard *s)
{
    size_t        old_n = s->n, n = old_n * 2;
    usm__record **old     = s->buckets;
    usm__record **buckets = usm__heap_alloc(n * sizeof *buckets);

    if (!buckets)
        return;
    s->buckets = buckets;
    s->n       = n;
    for (size_t i = 0; i < old_n; i++)
        for (usm__record *r = old[i], *next; r; r = next) {
            next = r->next;
            push(s, r);
        }
    if (old != s->first)
        usm__heap_free(old);
}

usm__record *usm__record_new(void)
{
    usm__record *r = usm__heap_alloc(sizeof *r);

    if (!r && !atomic_flag_test_and_set(&tracked.lacked))
        usm__warn("no host memory to watch a block: it has no tag and no red zones, and is in no "
                  "list of leaks");
    return r;
}

void usm__record_free(usm__record *r)
{
    usm__heap_free(r);
}

usm__record *usm__tracked_enter(usm__record *r)
{
    shard       *s   = lock_shard(r->block.base);
    usm__record *old = unlink_at(s, find_link(s, r->block.base));

    if (s->count >= s->n * CHAIN_LIMIT)
        grow(s);
    push(s, r);
    if (s->count++ == 0)
        usm_add_relaxed(&usm__observers.tracking, 1u);
    usm__mutex_unlock(&s->lock);
    return old;
}

/* No lock is taken while nothing is tracked: a thread that has the address of a tracked block has
 * got it from the thread that entered the record, and so sees that its shard is not empty. */
usm__record *usm__tracked_take(const void *base, const void *user)
{
    usm__record **link, *r;
    shard        *s;

    if (!usm__tracked_any())
        return NULL;
    s    = lock_shard(base);
    link = find_link(s, base);
    r    = *link && (*link)->user == user ? unlink_at(s, link) : NULL;
    usm__mutex_unlock(&s->lock);
    return r;
}

bool usm__tracked_find(const void *base, usm__record *copy)
{
    const usm__record *r;
    shard             *s;

    if (!usm__tracked_any())
        return false;
    s = lock_shard(base);
    r = *find_link(s, base);
    if (r)
        *copy = *r;
    usm__mutex_unlock(&s->lock);
    return r != NULL;
}

bool usm__tracked_any(void)
{
    return usm_load_relaxed(&usm__observers.tracking) > 0;
}

void usm__tracked_each(usm__tracked_fn *fn, void *arg)
{
    (void)pthread_once(&shards_once, make_shards);
    for (size_t i = 0; i < SHARDS; i++) {
        shard *s = &tracked.shards[i];

        usm__mutex_lock(&s->lock);
        for (size_t k = 0; k < s->n; k++)
            for (const usm__record *r = s->buckets[k]; r; r = r->next)
                (void)fn(r, arg);
        usm__mutex_unlock(&s->lock);
    }
}

static usm__record *sweep_bucket(shard *s, usm__record **link, usm__tracked_fn *fn, void *arg)
{
    usm__record *gone = NULL;

    while (*link) {
        usm__record *r;

        if (!fn(*link, arg)) {
            link = &(*link)->next;
            continue;
        }
        r       = unlink_at(s, link);
        r->next = gone;
        gone    = r;
    }
    return gone;
}

usm__record *usm__tracked_sweep(usm__tracked_fn *fn, void *arg)
{
    usm__record *all = NULL;

    if (!usm__tracked_any())
        return NULL;
    for (size_t i = 0; i < SHARDS; i++) {
        shard *s = &tracked.shards[i];

        usm__mutex_lock(&s->lock);
        for (size_t k = 0; k < s->n; k++)
            for (usm__record *r = sweep_bucket(s, &s->buckets[k], fn, arg), *next; r; r = next) {
                next    = r->next;
                r->next = all;
                all     = r;
            }
        usm__mutex_unlock(&s->lock);
    }
    return all;
}

void usm__tracked_fork(usm_fork_phase phase)
{
    (void)pthread_once(&shards_once, make_shards);
    for (size_t i = 0; i < SHARDS; i++)
        usm__mutex_fork(&tracked.shards[i].lock, phase);
}
