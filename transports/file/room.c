/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Room for the blocks of scratch files: reservations, what the disk has allocated, the quota, and
 * what is freed.  Backing stores (home.c) have their room, or get it as a whole.  Called through
 * the table: reserve, forget, capacity.
 *
 *     backed   the file system has allocated room (fallocate)
 *     used     reserved by the caller; used is a part of backed, the rest of it is idle
 *
 * Files grow in steps, in advance: a call for each block would cost more than the block's write on
 * a fast disk.  A forgotten block stays backed, because the next reserve is likely to want it, and
 * allocating again would make its next write slower.  When idle room exceeds 64 MiB and an eighth
 * of the used room, or room is short, holes are punched for all idle blocks.
 *
 * The lock is held during fallocate(): threads that reserve at the same time would have to wait for
 * the file system's lock anyway.  No transfer needs the lock. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>

#define IDLE_MIN (UINT64_C(64) << 20)
#define STEP_MIN (UINT64_C(16) << 20)
#define STEP_MAX (UINT64_C(1) << 30)

static bool has(const uint64_t *bits, uint64_t i)
{
    return bits[i / 64] >> (i % 64) & 1u;
}

static void put(uint64_t *bits, uint64_t i, bool on)
{
    const uint64_t bit = UINT64_C(1) << (i % 64);

    bits[i / 64] = on ? bits[i / 64] | bit : bits[i / 64] & ~bit;
}

/* Makes bits for blocks [0, n). */
static bool cover(usm_file_store *s, uint64_t n)
{
    usm_file_room *r    = &s->room;
    uint64_t       more = r->nbits ? r->nbits : 1024;
    uint64_t      *backed, *used;

    if (n <= r->nbits)
        return true;
    if (n > UINT64_MAX / 2 / s->block_size)
        return false;
    while (more < n)
        more *= 2;
    backed = s->api->heap_alloc(more / 8);
    used   = s->api->heap_alloc(more / 8);
    if (!backed || !used) {
        s->api->heap_free(backed);
        s->api->heap_free(used);
        return false;
    }
    if (r->nbits) {
        memcpy(backed, r->backed, r->nbits / 8);
        memcpy(used, r->used, r->nbits / 8);
    }
    s->api->heap_free(r->backed);
    s->api->heap_free(r->used);
    r->backed = backed;
    r->used   = used;
    r->nbits  = more;
    return true;
}

static void set(uint64_t *bits, _Atomic(uint64_t) *count, uint64_t block, bool on)
{
    if (has(bits, block) == on)
        return;
    put(bits, block, on);
    if (on)
        (void)usm_add_relaxed(count, 1u);
    else
        (void)usm_sub_relaxed(count, 1u);
}

static void set_backed(usm_file_room *r, uint64_t block, bool on)
{
    set(r->backed, &r->nbacked, block, on);
}

static void set_used(usm_file_room *r, uint64_t block, bool on)
{
    set(r->used, &r->nused, block, on);
}

/* ---- files ---------------------------------------------------------------------- */

/* A run of blocks of one file; `first` and `n` count in the file, not in the store. */
typedef struct run {
    uint32_t place;
    uint64_t first, n;
} run;

static uint64_t block_of(const usm_file_store *s, const run *r, uint64_t i)
{
    return (r->first + i) * s->nplaces + r->place;
}

static int descriptor(const usm_file_store *s, uint32_t place)
{
    const usm_file_place *p = &s->places[place];

    return p->direct >= 0 ? p->direct : p->buffered;
}

/* If the file system cannot allocate room, the file at least gets its length. */
static int lengthen(usm_file_store *s, const run *r)
{
    usm_file_room *room = &s->room;

    if (!room->uncertain)
        s->api->log(USM_LOG_INFO, "%s cannot reserve room: it may turn out to be full later",
                    s->places[r->place].path);
    room->uncertain = true;
    if (r->first + r->n <= room->ends[r->place])
        return 0;
    return s->api->os->truncate(descriptor(s, r->place), (r->first + r->n) * s->block_size);
}

/* Frees the run's room; false: it stays. */
static bool drop(usm_file_store *s, const run *r)
{
    usm_file_room *room = &s->room;

    if (s->api->os->fallocate(descriptor(s, r->place), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              r->first * s->block_size, r->n * s->block_size) == 0)
        return true;
    room->cannot_punch = room->cannot_punch || errno == EOPNOTSUPP || errno == ENOSYS;
    return false;
}

/* Allocates room for the run; returns 0 or an errno value. */
static int back(usm_file_store *s, const run *r)
{
    usm_file_room *room = &s->room;
    const uint64_t end  = (r->first + r->n) * s->block_size;
    int            rc;

    if (end > s->api->os->limit(USM_OS_LIMIT_FILE_SIZE)) /* trying would end the process */
        return EFBIG;
    do
        rc = s->api->os->fallocate(descriptor(s, r->place), 0, r->first * s->block_size,
                                   r->n * s->block_size);
    while (rc != 0 && errno == EINTR);
    if (rc != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        rc = lengthen(s, r);
    if (rc != 0) {
        const int error = errno;

        drop(s, r); /* frees what the file system allocated before it failed */
        return error;
    }
    for (uint64_t i = 0; i < r->n; i++)
        set_backed(room, block_of(s, r, i), true);
    if (room->ends[r->place] < r->first + r->n)
        room->ends[r->place] = r->first + r->n;
    return 0;
}

/* Finds the next run of idle blocks of a file at or after r->first; false: there is none. */
static bool next_idle(const usm_file_store *s, run *r)
{
    const usm_file_room *room = &s->room;
    const uint64_t       end  = room->ends[r->place];

    r->n = 0;
    for (; r->first < end; r->first++)
        if (has(room->backed, block_of(s, r, 0)) && !has(room->used, block_of(s, r, 0)))
            break;
    while (r->first + r->n < end && has(room->backed, block_of(s, r, r->n)) &&
           !has(room->used, block_of(s, r, r->n)))
        r->n++;
    return r->n > 0;
}

/* Frees all idle room. */
static void punch(usm_file_store *s)
{
    usm_file_room *room = &s->room;

    for (uint32_t place = 0; place < s->nplaces && !room->cannot_punch; place++)
        for (run r = {.place = place}; next_idle(s, &r); r.first += r.n) {
            if (!drop(s, &r))
                continue; /* it stays idle */
            for (uint64_t i = 0; i < r.n; i++)
                set_backed(room, block_of(s, &r, i), false);
            if (r.first + r.n == room->ends[place])
                room->ends[place] = r.first; /* the file grows in steps from there again */
        }
}

/* ---- reserve ---------------------------------------------------------------------- */

static uint64_t quota_in_blocks(const usm_file_store *s)
{
    return s->config.quota / s->block_size;
}

/* By how many blocks more than the run asks for the file should grow. */
static uint64_t ahead(const usm_file_store *s, const run *r)
{
    const uint64_t backed = usm_load_relaxed(&s->room.nbacked);
    uint64_t       step   = backed * s->block_size / 8 / s->nplaces;
    uint64_t       quota  = quota_in_blocks(s);
    uint64_t       more;

    step = step < STEP_MIN ? STEP_MIN : step > STEP_MAX ? STEP_MAX : step;
    more = step / s->block_size > r->n ? step / s->block_size - r->n : 0;
    if (backed + r->n + more > quota)
        more = backed + r->n < quota ? quota - backed - r->n : 0;
    return more / s->nplaces;
}

/* Backs a run of which no block is backed. */
static int back_run(usm_file_store *s, const run *r)
{
    run      longer = *r;
    uint64_t more   = r->first + r->n > s->room.ends[r->place] ? ahead(s, r) : 0;
    int      error;

    longer.n += more;
    if (more > 0 && cover(s, block_of(s, &longer, longer.n)) && back(s, &longer) == 0)
        return 0;
    error = back(s, r);
    if (error != ENOSPC && error != EDQUOT)
        return error;
    punch(s);
    return back(s, r);
}

/* Backs all of [first, first + n); returns 0 or an errno value. */
static int back_all(usm_file_store *s, uint64_t first, uint64_t n)
{
    const usm_file_room *room = &s->room;

    for (uint32_t place = 0; place < s->nplaces; place++) {
        /* The file's blocks within the range. */
        uint64_t begin = (first + s->nplaces - 1 - place) / s->nplaces;
        uint64_t end   = (first + n + s->nplaces - 1 - place) / s->nplaces;

        for (run r = {place, begin, 0}; r.first < end; r.first += r.n ? r.n : 1) {
            int error;

            r.n = 0;
            while (r.first + r.n < end && !has(room->backed, block_of(s, &r, r.n)))
                r.n++;
            error = r.n ? back_run(s, &r) : 0;
            if (error)
                return error;
        }
    }
    return 0;
}

static uint64_t count_missing(const usm_file_room *r, uint64_t first, uint64_t n)
{
    uint64_t missing = 0;

    for (uint64_t i = first; i < first + n; i++)
        missing += !has(r->backed, i);
    return missing;
}

static usm_status explain(const usm_file_store *s, uint64_t n, int error)
{
    const usm_file_place *place = &s->places[0];
    char                  room[128];
    const char           *text = strerror_r(error, room, sizeof(room));

    if (error == ENOMEM)
        return s->api->report(USM_E_NO_MEMORY, "no memory to reserve room in %s", place->path);
    if (error == EFBIG)
        return s->api->report(USM_E_SPILL_FULL,
                              "the file in %s may not grow: the limit on the size of files (ulimit "
                              "-f) is reached",
                              place->path);
    if (error == ENOSPC || error == EDQUOT)
        return s->api->report(
            USM_E_SPILL_FULL,
            "%s has no room for %llu MiB more: %s; free some, or name another "
            "folder in USM_SPILL",
            place->path, (unsigned long long)((n * s->block_size + (1u << 20) - 1) >> 20), text);
    return s->api->report(USM_E_IO, "no room could be had in %s: %s", place->path, text);
}

static usm_status reserve(usm_file_store *s, uint64_t first, uint64_t n)
{
    usm_file_room *r = &s->room;
    uint64_t       missing;
    int            error;

    if (!cover(s, first + n))
        return explain(s, n, ENOMEM);
    missing = count_missing(r, first, n);
    if (usm_load_relaxed(&r->nbacked) + missing > quota_in_blocks(s)) {
        punch(s);
        missing = count_missing(r, first, n);
    }
    if (usm_load_relaxed(&r->nbacked) + missing > quota_in_blocks(s))
        return s->api->report(USM_E_SPILL_FULL,
                              "the quota of %llu bytes of the files in %s is used up; raise quota= "
                              "in USM_SPILL",
                              (unsigned long long)s->config.quota, s->places[0].path);
    error = missing ? back_all(s, first, n) : 0;
    if (error)
        return explain(s, missing, error);
    for (uint64_t i = 0; i < n; i++)
        set_used(r, first + i, true);
    return USM_OK;
}

usm_status usm_file_room_reserve(usm_file_store *s, uint64_t first, uint64_t n)
{
    usm_status st;

    if (first + n < first)
        return s->api->report(USM_E_INVALID, "there are no %llu blocks from %llu on",
                              (unsigned long long)n, (unsigned long long)first);
    (void)pthread_mutex_lock(&s->room.lock);
    st = reserve(s, first, n);
    (void)pthread_mutex_unlock(&s->room.lock);
    return st;
}

void usm_file_room_forget(usm_file_store *s, uint64_t first, uint64_t n)
{
    usm_file_room *r = &s->room;
    uint64_t       used, idle;

    (void)pthread_mutex_lock(&r->lock);
    for (uint64_t i = first; i < first + n && i < r->nbits; i++)
        set_used(r, i, false);
    used = usm_load_relaxed(&r->nused);
    idle = usm_load_relaxed(&r->nbacked) - used;
    if (idle * s->block_size > IDLE_MIN && idle > used / 8)
        punch(s);
    (void)pthread_mutex_unlock(&r->lock);
}

usm_status usm_file_room_init(usm_file_store *s)
{
    int error = pthread_mutex_init(&s->room.lock, NULL);

    return error ? s->api->report(USM_E_SYSTEM, "no lock could be made: error %d", error) : USM_OK;
}

void usm_file_room_fini(usm_file_store *s)
{
    s->api->heap_free(s->room.backed);
    s->api->heap_free(s->room.used);
    (void)pthread_mutex_destroy(&s->room.lock);
}
