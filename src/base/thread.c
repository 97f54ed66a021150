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

USM__THREAD_LOCAL usm__tls usm__self;

static struct {
    void (*on_end)(usm__thread *block); /* fixed at the start of the library */
    pthread_once_t once;
    pthread_key_t  key; /* fixed after `once`, as the next */
    bool           key_made;
    usm__mutex     lock;
    /* guarded by lock */
    usm__thread *free_blocks;
    usm__thread *chunk_at, *chunk_last; /* blocks that were never used, [at, last) */
} threads = {.once = PTHREAD_ONCE_INIT, .lock = USM__MUTEX_INIT(USM__RANK_THREAD, "thread blocks")};

static void give_back(usm__thread *block)
{
    usm__mutex_lock(&threads.lock);
    block->next_free    = threads.free_blocks;
    threads.free_blocks = block;
    usm__mutex_unlock(&threads.lock);
}

/* Called when the thread ends.  A destructor of other code may still call libusm afterwards: then a
 * new block is made, and this function is called again. */
static void on_thread_end(void *p)
{
    usm__thread *block = p;

    if (threads.on_end)
        threads.on_end(block);
    usm__parts_thread_ended();
    if (block->trace != NULL)
        usm__tracer_now->thread_end(block->trace);
    block->trace    = NULL;
    usm__self.block = NULL;
    give_back(block);
}

static void make_key(void)
{
    threads.key_made = pthread_key_create(&threads.key, on_thread_end) == 0;
}

/* pre: lock is held. */
static usm__thread *cut_block(void)
{
    usm__thread *chunk;

    if (threads.chunk_at == threads.chunk_last) {
        chunk = usm__os_map_for_life(CHUNK_SIZE);
        if (chunk == NULL)
            return NULL;
        threads.chunk_at   = chunk;
        threads.chunk_last = chunk + CHUNK_SIZE / sizeof(*chunk);
    }
    return threads.chunk_at++;
}

static usm__thread *take_block(void)
{
    usm__thread *block;

    usm__mutex_lock(&threads.lock);
    block = threads.free_blocks;
    if (block != NULL)
        threads.free_blocks = block->next_free;
    else
        block = cut_block();
    usm__mutex_unlock(&threads.lock);
    return block;
}

static usm__thread *make_block(void)
{
    usm__thread *block;

    (void)pthread_once(&threads.once, make_key);
    if (!threads.key_made) /* without the key, every ending thread would leak its block */
        return NULL;
    block = take_block();
    if (block == NULL)
        return NULL;
    if (pthread_setspecific(threads.key, block) != 0) {
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

void usm__thread_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&threads.lock, phase);
}
