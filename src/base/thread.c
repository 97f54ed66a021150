/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The per-thread blocks.  status.c writes error messages into them; only this file makes them.
 *
 * Blocks are cut from chunks of their own, not taken from meta.c: a block may be needed with any
 * lock held, and reporting its absence must not need a block.  When a thread ends, its block
 * returns to the free list; chunks are never freed. */
#include "base/thread.h"

#include "base/fork.h"
#include "base/mutex.h"
#include "base/os.h"
#include "base/part.h"
#include "base/trace.h"

#define CHUNK_SIZE ((size_t)64 << 10)

USM__THREAD_LOCAL usm__tls usm__self = {.caches = usm__closed_caches};

static void (*on_end)(usm__thread *block); /* fixed at the start of the library */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t  key;
static bool           key_made; /* fixed after `once` */

static usm__mutex   lock = USM__MUTEX_INIT(USM__RANK_THREAD, "thread blocks");
static usm__thread *free_blocks;           /* guarded by lock */
static usm__thread *chunk_at, *chunk_last; /* guarded by lock: blocks that were never used, [at,
                                              last) */

static void give_back(usm__thread *block)
{
    usm__mutex_lock(&lock);
    block->next_free = free_blocks;
    free_blocks      = block;
    usm__mutex_unlock(&lock);
}

/* Called when the thread ends.  A destructor of other code may still call libusm afterwards: then a
 * new block is made, and this function is called again. */
static void on_thread_end(void *p)
{
    usm__thread *block = p;

    if (on_end)
        on_end(block);
    usm__parts_thread_ended();
    if (block->trace != NULL)
        usm__trace_thread_end(block->trace);
    block->trace    = NULL;
    usm__self.block = NULL;
    give_back(block);
}

static void make_key(void)
{
    key_made = pthread_key_create(&key, on_thread_end) == 0;
}

/* pre: lock is held. */
static usm__thread *cut_block(void)
{
    usm__thread *chunk;

    if (chunk_at == chunk_last) {
        chunk = usm__os_map_for_life(CHUNK_SIZE);
        if (chunk == NULL)
            return NULL;
        chunk_at   = chunk;
        chunk_last = chunk + CHUNK_SIZE / sizeof(*chunk);
    }
    return chunk_at++;
}

static usm__thread *take_block(void)
{
    usm__thread *block;

    usm__mutex_lock(&lock);
    block = free_blocks;
    if (block != NULL)
        free_blocks = block->next_free;
    else
        block = cut_block();
    usm__mutex_unlock(&lock);
    return block;
}

static usm__thread *make_block(void)
{
    usm__thread *block;

    (void)pthread_once(&once, make_key);
    if (!key_made) /* without the key, every ending thread would leak its block */
        return NULL;
    block = take_block();
    if (block == NULL)
        return NULL;
    if (pthread_setspecific(key, block) != 0) {
        give_back(block);
        return NULL;
    }
    block->next_free  = NULL;
    block->status     = USM_OK;
    block->message[0] = '\0';
    usm__self.block   = block;
    return block;
}

usm__thread *usm__thread_self(void)
{
    return usm__self.block != NULL ? usm__self.block : make_block();
}

void usm__thread_on_end(void (*fn)(usm__thread *block))
{
    on_end = fn;
}

void usm__thread_fork(int phase)
{
    usm__mutex_fork(&lock, phase);
}
