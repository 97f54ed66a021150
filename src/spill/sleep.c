/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pools that sleep: usm_pool_sleep() and usm_pool_wake().
 *
 * A pool that grows in ranges of addresses into which memory is mapped piece by piece (`slab`,
 * where the backend has USM_CAP_VMEM) can lose that memory and keep the addresses:
 *
 *     sleep    1  close the gate, empty the caches, return idle memory      heap/sleep.c
 *              2  store the contents of all pieces                          sleep_io.c
 *              3  unmap all pieces: their memory is the driver's again      heap/area.c
 *     wake     4  map new memory behind all pieces
 *              5  load the contents
 *              6  open the gate, and drop the copies on another thread
 *
 * Nothing is lost on the way: until 3 all memory is there, until 6 all copies are.  A failure
 * before 3 leaves the pool awake; one in 3 wakes it at once.  A failure in 4 or 5 unmaps what was
 * mapped, and the pool stays asleep with its copies, to be woken later.  A piece that the driver
 * then does not unmap keeps its memory meanwhile; its contents are loaded again.
 *
 * Contents go through the tiers of the engine, with their checksums, codecs, copies and quotas, but
 * not through its frames: the pool is not part of what may be in memory.  Free memory inside a piece
 * is stored like the rest.
 *
 * Refused: default pools, because libusm itself has blocks there (those of buffers); pools that
 * export, because other processes may have their memory mapped; memory that one call of the driver
 * both made and gave its address.
 *
 * Rejected: to move blocks rather than pieces.  A driver unmaps what it mapped, and blocks of
 * different fate share a piece.  Who wants a group of blocks to sleep makes a pool for them. */
#include "spill/sleep.h"

#include "base/log.h"
#include "device/init.h"
#include "heap/export.h"

#include <string.h>

/* --- the record ------------------------------------------------------------------------------ */

static usm__sleep *sleep_of(usm__sleeper *s)
{
    return usm_container_of(s, usm__sleep, sleeper);
}

static void piece_gone(usm__sleeper *sleeper, const void *p)
{
    usm__sleep *s = sleep_of(sleeper);

    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].p == p && s->list[i].at.area) {
            usm__slept_forget(s, &s->list[i]);
            s->list[i].at.area = NULL;
            return;
        }
}

static void drop(usm__sleep *s)
{
    for (size_t i = 0; s && i < s->n; i++)
        usm__slept_forget(s, &s->list[i]);
    usm__heap_free(s);
}

static void drop_job(usm__executor_job *job)
{
    usm__sleep *s     = usm_container_of(job, usm__sleep, job);
    usm__spill *spill = s->spill;

    drop(s);
    usm__mutex_lock(&spill->lock);
    if (--spill->drops == 0)
        pthread_cond_broadcast(&spill->dropped);
    usm__mutex_unlock(&spill->lock);
}

/* A file system takes a quarter of the time of a wake-up to free the blocks. */
static void drop_later(usm__sleep *s)
{
    if (!s->spill || usm__executor_reserve() != USM_OK) {
        drop(s);
        return;
    }
    usm__mutex_lock(&s->spill->lock);
    s->spill->drops++;
    usm__mutex_unlock(&s->spill->lock);
    s->job.run = drop_job;
    usm__executor_post(&s->job);
}

/* Until the tiers have all room that pools which have woken had. */
static void await_drops(usm__spill *spill)
{
    usm__mutex_lock(&spill->lock);
    while (spill->drops > 0)
        (void)usm__mutex_wait(&spill->lock, &spill->dropped, NULL);
    usm__mutex_unlock(&spill->lock);
}

static void pool_ended(usm__sleeper *sleeper)
{
    drop(sleep_of(sleeper));
}

/* Room for a copy of each block, and keys. */
static usm_status prepare(usm__sleep *s)
{
    uint64_t blocks = 0;

    await_drops(s->spill);
    for (size_t i = 0; i < s->n; i++) {
        usm__slept *piece = &s->list[i];
        uint32_t    n     = usm__slept_blocks(s, piece);

        piece->key    = blocks;
        piece->copies = usm__heap_alloc(n * usm__tiers_copy_size(s->spill->tiers));
        blocks += n;
        if (!piece->copies)
            return usm__fail(USM_E_NO_MEMORY, "no host memory for the records of a pool's blocks");
    }
    usm__mutex_lock(&s->spill->lock);
    for (size_t i = 0; i < s->n; i++)
        s->list[i].key += s->spill->next_key;
    s->spill->next_key += blocks + 1;
    usm__mutex_unlock(&s->spill->lock);
    return USM_OK;
}

static usm_status list_pieces(usm_pool *pool, usm__sleep **out)
{
    size_t              n    = usm__area_pieces(pool, NULL, 0);
    usm__area_piece_at *list = NULL;
    usm__sleep         *s;

    if (n == SIZE_MAX)
        return usm__fail(USM_E_NOT_SUPPORTED,
                         "%s could not reserve addresses for this pool, so its memory cannot leave "
                         "them",
                         pool->ctx->devices[pool->index].dev->term);
    list = usm__heap_alloc(n * sizeof *list);
    s    = usm__heap_alloc(sizeof *s + n * sizeof *s->list);
    if (!list || !s) {
        usm__heap_free(list);
        usm__heap_free(s);
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the records of a pool that sleeps");
    }
    (void)usm__area_pieces(pool, list, n);
    s->sleeper = (usm__sleeper){piece_gone, pool_ended};
    s->pool    = pool;
    s->n       = n;
    for (size_t i = 0; i < n; i++) {
        s->list[i].at = list[i];
        s->list[i].p  = (char *)list[i].area->view.base + list[i].offset;
    }
    usm__heap_free(list);
    *out = s;
    return USM_OK;
}

/* --- the moves ----------------------------------------------------------------------------- */

static usm_status rouse(const usm__slept *piece)
{
    usm_status st = usm__area_rouse(&piece->at);

    for (int i = 0;
         i < 4 && st != USM_OK && usm__pool_make_room(piece->at.area->pool, piece->at.size); i++)
        st = usm__area_rouse(&piece->at);
    return st;
}

/* Takes the memory of the first n pieces again, as far as the driver lets go of it. */
static void rest_again(usm__sleep *s, size_t n)
{
    size_t       kept = 0;
    usm__message message;

    usm__message_save(&message);
    for (size_t i = 0; i < n; i++)
        if (s->list[i].at.area && usm__area_rest(&s->list[i].at) != USM_OK)
            kept += s->list[i].at.size;
    if (kept)
        usm__warn("a pool that stays asleep keeps %zu bytes: %s", kept, usm_last_error());
    usm__message_restore(&message);
}

static usm_status wake(usm__sleep *s)
{
    usm_status st = USM_OK;
    size_t     n;

    for (n = 0; n < s->n && st == USM_OK; n++)
        if (s->list[n].at.area)
            st = rouse(&s->list[n]);
    if (st == USM_OK)
        st = usm__sleep_load(s);
    else
        n--; /* the last one has no memory */
    if (st != USM_OK)
        rest_again(s, n);
    return st;
}

static usm_status rest(usm__sleep *s)
{
    usm_status st = USM_OK;

    for (size_t i = 0; i < s->n && st == USM_OK; i++)
        st = usm__area_rest(&s->list[i].at);
    return st;
}

/* Ends with the pool asleep, or awake with all its contents; if the driver refuses both, asleep with
 * a failure. */
static usm_status put_to_sleep(usm_pool *pool, bool keeps)
{
    usm__sleep  *s  = NULL;
    usm_status   st = list_pieces(pool, &s);
    usm__message message;

    if (st == USM_OK && keeps)
        st = usm__spill_of(pool->ctx, &s->spill);
    if (st == USM_OK && keeps)
        st = prepare(s);
    if (st == USM_OK)
        st = usm__sleep_store(s);
    if (st != USM_OK) {
        drop(s);
        usm__pool_move_end(pool, USM__POOL_AWAKE);
        return st;
    }
    st = rest(s);
    usm__message_save(&message);
    if (st != USM_OK && wake(s) == USM_OK) {
        drop(s);
        s = NULL;
    }
    usm__message_restore(&message);
    pool->sleeper = s ? &s->sleeper : NULL;
    usm__pool_move_end(pool, s ? USM__POOL_ASLEEP : USM__POOL_AWAKE);
    return st;
}

/* --- the public functions -------------------------------------------------------------------- */

static usm_status check_may_sleep(usm_pool *pool)
{
    const char *term = pool->ctx->devices[pool->index].dev->term;

    if (usm__context_is_inert(pool->ctx))
        return usm__fail(USM_E_FORKED, "a pool of before fork() cannot sleep or wake in the child");
    if (pool->is_default)
        return usm__fail(USM_E_NOT_SUPPORTED,
                         "a default pool cannot sleep, because libusm's own blocks are in it: make "
                         "one by usm_pool_create()");
    if (pool->export_mode != USM_POOL_PRIVATE)
        return usm__fail(USM_E_NOT_SUPPORTED, "a pool that exports cannot sleep: other processes "
                                              "may have its memory open");
    if (strcmp(pool->ops->name, "slab") != 0)
        return usm__fail(USM_E_NOT_SUPPORTED,
                         "a pool \"%s\" cannot sleep: only \"slab\" reserves addresses and maps "
                         "memory into them",
                         pool->ops->name);
    if (usm__area_granularity(pool) == 0)
        return usm__fail(USM_E_NOT_SUPPORTED,
                         "%s memory of %s cannot sleep: its driver does not map memory into "
                         "reserved addresses",
                         usm__kind_name(pool->kind), term);
    return USM_OK;
}

/* A failed command has no work under way any more, and reports itself. */
static usm_status await_commands(usm_pool *pool)
{
    usm_status st = usm_context_wait(pool->ctx);

    return st == USM_E_BUSY || st == USM_E_INVALID_HANDLE ? st : USM_OK;
}

usm_status usm_pool_sleep(usm_pool *pool, usm_sleep_contents contents)
{
    usm_status st = usm__pool_check(pool);

    if (st == USM_OK && contents != USM_SLEEP_KEEP && contents != USM_SLEEP_DISCARD)
        st = usm__fail(USM_E_INVALID, "usm_pool_sleep: %d is none of usm_sleep_contents",
                       (int)contents);
    if (st == USM_OK)
        st = check_may_sleep(pool);
    if (st == USM_OK)
        st = await_commands(pool);
    if (st != USM_OK)
        return st;
    if (usm_load_acquire(&pool->async))
        (void)usm__parts_pool_collect(pool, false);
    st = usm__pool_move_begin(pool, USM__POOL_AWAKE);
    if (st != USM_OK)
        return st == USM_E_AGAIN ? USM_OK : st;
    return put_to_sleep(pool, contents == USM_SLEEP_KEEP &&
                                  !usm__backend_can(pool->ctx->be, USM_CAP_NO_ACCESS));
}

usm_status usm_pool_wake(usm_pool *pool)
{
    usm_status  st = usm__pool_check(pool);
    usm__sleep *s;

    if (st == USM_OK && !usm__pool_is_awake(pool))
        st = check_may_sleep(pool);
    if (st != USM_OK)
        return st;
    st = usm__pool_move_begin(pool, USM__POOL_ASLEEP);
    if (st != USM_OK)
        return st == USM_E_AGAIN ? USM_OK : st;
    s  = sleep_of(pool->sleeper);
    st = wake(s);
    if (st == USM_OK)
        pool->sleeper = NULL;
    usm__pool_move_end(pool, st == USM_OK ? USM__POOL_AWAKE : USM__POOL_ASLEEP);
    if (st == USM_OK)
        drop_later(s);
    return st;
}

/* --- tags ------------------------------------------------------------------------------------ */

/* Tags are cut off after so many bytes. */
#define TAG_MOST 63

static bool is_of_tag(usm_pool *pool, const void *name)
{
    return pool->tag && !pool->is_default && strncmp(pool->tag, name, TAG_MOST) == 0;
}

static usm_status find_tagged(const char *name, usm__pools_found *found)
{
    usm_status st = name && *name ? usm__pools_find(is_of_tag, name, found)
                                  : usm__fail(USM_E_INVALID, "a tag needs a name");

    if (st == USM_OK && found->n == 0)
        return usm__fail(USM_E_INVALID, "no pool was created under the tag \"%s\"", name);
    return st;
}

usm_status usm_tag_wake(const char *name)
{
    usm__pools_found found;
    usm_status       st = find_tagged(name, &found), first = st;
    usm__message     message;

    if (st != USM_OK)
        return st;
    for (size_t i = 0; i < found.n; i++) {
        st = usm_pool_wake(found.list[i]);
        if (st != USM_OK && first == USM_OK) {
            first = st;
            usm__message_save(&message);
        }
    }
    if (first != USM_OK)
        usm__message_restore(&message);
    usm__pools_dismiss(&found);
    return first;
}

usm_status usm_tag_sleep(const char *name, usm_sleep_contents contents)
{
    usm__pools_found found;
    usm_status       st    = find_tagged(name, &found);
    size_t           slept = 0; /* pools that this call has put to sleep: the first of the list */
    usm__message     message;

    if (st != USM_OK)
        return st;
    for (size_t i = 0; i < found.n && st == USM_OK; i++) {
        usm_pool *pool      = found.list[i];
        bool      was_awake = usm__pool_is_awake(pool);

        st = usm_pool_sleep(pool, contents);
        if (st == USM_OK && was_awake) {
            found.list[i]       = found.list[slept];
            found.list[slept++] = pool;
        }
    }
    usm__message_save(&message);
    for (size_t i = 0; st != USM_OK && i < slept; i++)
        if (usm_pool_wake(found.list[i]) != USM_OK)
            usm__warn("a pool of the tag \"%s\" stays asleep: %s", name, usm_last_error());
    usm__message_restore(&message);
    usm__pools_dismiss(&found);
    return st;
}

/* --- the end of an engine -------------------------------------------------------------------- */

void usm__sleep_context_unused(usm_context *ctx, usm__spill *spill)
{
    await_drops(spill);
    USM_LIST_FOREACH (it, &ctx->pools) { /* nobody else has the context any more */
        usm_pool   *pool = usm_container_of(it, usm_pool, link);
        usm__sleep *s    = pool->sleeper ? sleep_of(pool->sleeper) : NULL;

        for (size_t i = 0; s && i < s->n; i++)
            usm__slept_forget(s, &s->list[i]);
        if (s)
            s->spill = NULL;
    }
}
