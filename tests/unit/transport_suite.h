/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What every transport must do, whatever it stores in: cases over a store that the includer opens,
 * `suite_open()`.  Each takes the number of the configuration that it is run with. */
#ifndef TRANSPORT_SUITE_H
#define TRANSPORT_SUITE_H

#include "transport_fixture.h"

enum { SUITE_BLOCKS = 24, SUITE_THREADS = 4 };

static void *suite_open(size_t configuration);

static void suite_blocks_come_back(size_t c)
{
    void *store = suite_open(c);
    char *data = pages(BLOCK), *back = pages(BLOCK);

    CHECK_INT(ops->reserve(store, 0, SUITE_BLOCKS), USM_OK);
    for (uint64_t turn = 0; turn < 2; turn++) {
        for (uint64_t b = 0; b < SUITE_BLOCKS; b++) {
            fill(data, b, turn, 0, BLOCK);
            store_block(store, b, data);
        }
        for (uint64_t b = SUITE_BLOCKS; b-- > 0;) {
            memset(back, 0xa5, BLOCK);
            fetch_block(store, b, back);
            CHECK(is_filled(back, b, turn, 0, BLOCK));
        }
    }
    ops->close(store);
    munmap(data, BLOCK);
    munmap(back, BLOCK);
}

static void suite_parts_change_nothing_else(size_t c)
{
    static const struct {
        size_t offset, size;
    } parts[]   = {{0, PAGE}, {BLOCK - PAGE, PAGE}, {PAGE, 3 * PAGE}, {PAGE, BLOCK - PAGE}};
    void *store = suite_open(c);
    char *data = pages(BLOCK), *back = pages(BLOCK);

    CHECK_INT(ops->reserve(store, 0, 3), USM_OK);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const size_t offset = parts[i].offset, size = parts[i].size;
        job          j;

        for (uint64_t b = 0; b < 3; b++) {
            fill(data, b, i, 0, BLOCK);
            store_block(store, b, data);
        }
        job_set(&j, USM_TRANSFER_STORE, 1, data);
        fill(data, 77, i, 0, size);
        j.t.offset = offset;
        j.t.size   = size;
        CHECK_INT(job_run(store, &j), USM_OK);
        fetch_block(store, 1, back);
        CHECK(is_filled(back, 1, i, 0, offset));
        CHECK(memcmp(back + offset, data, size) == 0);
        CHECK(is_filled(back + offset + size, 1, i, offset + size, BLOCK - offset - size));
        memset(back, 0, BLOCK);
        job_set(&j, USM_TRANSFER_FETCH, 1, back);
        j.t.offset = offset;
        j.t.size   = size;
        CHECK_INT(job_run(store, &j), USM_OK);
        CHECK(memcmp(back, data, size) == 0);
        CHECK(size == BLOCK || back[size] == 0); /* no more than was asked for */
        for (uint64_t b = 0; b < 3; b += 2) {
            fetch_block(store, b, back);
            CHECK(is_filled(back, b, i, 0, BLOCK));
        }
    }
    ops->close(store);
    munmap(data, BLOCK);
    munmap(back, BLOCK);
}

/* More than any depth, with and without one that is awaited. */
static void suite_lists_end_wholly(size_t c)
{
    enum { N = 100 };
    static job jobs[N];
    void      *store = suite_open(c);
    char      *data  = pages(N * BLOCK);

    CHECK_INT(ops->reserve(store, 0, N), USM_OK);
    for (int awaited = 0; awaited < 3; awaited++) {
        for (int way = 0; way < 2; way++) {
            for (size_t i = 0; i < N; i++) {
                char *at = data + i * BLOCK;

                job_set(&jobs[i], way ? USM_TRANSFER_FETCH : USM_TRANSFER_STORE, i, at);
                jobs[i].t.is_awaited = awaited == 2 || (awaited == 1 && i == N - 1);
                if (way)
                    memset(at, 0, BLOCK);
                else
                    fill(at, i, (uint64_t)awaited, 0, BLOCK);
            }
            jobs_submit(store, jobs, N);
            for (size_t i = 0; i < N; i++)
                CHECK_INT(job_await(&jobs[i]), USM_OK);
        }
        for (size_t i = 0; i < N; i++)
            CHECK(is_filled(data + i * BLOCK, i, (uint64_t)awaited, 0, BLOCK));
    }
    ops->close(store);
    munmap(data, N * BLOCK);
}

/* done() starts the next one. */
typedef struct chain {
    job   j;
    void *store;
    int   left;
} chain;

static void chain_done(usm_transfer *t, usm_status status)
{
    chain *ch = (chain *)(void *)t;

    if (status == USM_OK && ch->left-- > 0) {
        t->block = (t->block + 1) % SUITE_BLOCKS;
        ops->submit(ch->store, t);
        return;
    }
    job_done(t, status);
}

static void suite_done_may_submit(size_t c)
{
    enum { CHAINS = 8 };
    static chain chains[CHAINS];
    void        *store = suite_open(c);
    char        *data  = pages(CHAINS * BLOCK);

    CHECK_INT(ops->reserve(store, 0, SUITE_BLOCKS), USM_OK);
    for (uint64_t b = 0; b < SUITE_BLOCKS; b++) {
        fill(data, b, 0, 0, BLOCK);
        store_block(store, b, data);
    }
    for (size_t i = 0; i < CHAINS; i++) {
        job_set(&chains[i].j, USM_TRANSFER_FETCH, i, data + i * BLOCK);
        chains[i].j.t.done = chain_done;
        chains[i].store    = store;
        chains[i].left     = 50;
        ops->submit(store, &chains[i].j.t);
    }
    for (size_t i = 0; i < CHAINS; i++) {
        CHECK_INT(job_await(&chains[i].j), USM_OK);
        CHECK(is_filled(data + i * BLOCK, (i + 50) % SUITE_BLOCKS, 0, 0, BLOCK));
    }
    ops->close(store);
    munmap(data, CHAINS * BLOCK);
}

typedef struct user {
    void    *store;
    uint64_t self;
} user;

/* Blocks of its own, in random order, against what it knows of them. */
static void *use(void *arg)
{
    user    *u    = arg;
    uint64_t seed = 88172645463325252u + u->self;
    char    *data = pages(BLOCK);
    int      turns[SUITE_BLOCKS];

    memset(turns, -1, sizeof(turns));
    for (int i = 0; i < 300; i++) {
        uint64_t own, block;
        job      j;

        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        own   = seed % SUITE_BLOCKS;
        block = own * SUITE_THREADS + u->self;
        if (seed >> 32 & 1 || turns[own] < 0) {
            CHECK_INT(ops->reserve(u->store, block, 1), USM_OK);
            fill(data, block, (uint64_t)i, 0, BLOCK);
            job_set(&j, USM_TRANSFER_STORE, block, data);
            turns[own] = i;
        } else {
            job_set(&j, USM_TRANSFER_FETCH, block, data);
        }
        j.t.is_awaited = seed >> 33 & 1;
        CHECK_INT(job_run(u->store, &j), USM_OK);
        CHECK(is_filled(data, block, (uint64_t)turns[own], 0, BLOCK));
        if ((seed >> 40) % 8 == 0) {
            ops->forget(u->store, block, 1);
            turns[own] = -1;
        }
    }
    munmap(data, BLOCK);
    return NULL;
}

static void suite_threads_share_a_store(size_t c)
{
    void     *store = suite_open(c);
    pthread_t threads[SUITE_THREADS];
    user      users[SUITE_THREADS];

    for (uint64_t i = 0; i < SUITE_THREADS; i++) {
        users[i] = (user){store, i};
        CHECK(pthread_create(&threads[i], NULL, use, &users[i]) == 0);
    }
    for (size_t i = 0; i < SUITE_THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_INT(ops->sync(store), USM_OK);
    ops->close(store);
}

static void suite_capacity_counts(size_t c)
{
    usm_transport_capacity before, now;
    void                  *store = suite_open(c);

    CHECK_INT(ops->capacity(store, &before), USM_OK);
    CHECK_INT(before.used, 0);
    CHECK(before.depth > 0 && before.total > 0);
    CHECK_INT(ops->reserve(store, 3, 10), USM_OK);
    CHECK_INT(ops->reserve(store, 5, 3), USM_OK); /* it was certain already */
    CHECK_INT(ops->reserve(store, 0, 0), USM_OK);
    CHECK_INT(ops->capacity(store, &now), USM_OK);
    CHECK_INT(now.used, 10 * BLOCK);
    ops->forget(store, 3, 4);
    ops->forget(store, 3, 4);
    CHECK_INT(ops->capacity(store, &now), USM_OK);
    CHECK_INT(now.used, 6 * BLOCK);
    ops->forget(store, 0, 1000);
    CHECK_INT(ops->capacity(store, &now), USM_OK);
    CHECK_INT(now.used, 0);
    ops->close(store);
}

static void suite_unfit_transfers_are_told(size_t c)
{
    static const struct {
        size_t offset, size, shift;
    } unfit[] = {
        {0, 0, 0},         {0, 100, 0},      {100, PAGE, 0}, {BLOCK, PAGE, 0},
        {0, 2 * BLOCK, 0}, {PAGE, BLOCK, 0}, {0, PAGE, 8},   {SIZE_MAX - PAGE + 1, PAGE, 0}};
    void *store = suite_open(c);
    char *data  = pages(2 * BLOCK);
    job   j;

    CHECK_INT(ops->reserve(store, 0, 2), USM_OK);
    for (size_t i = 0; i < sizeof(unfit) / sizeof(unfit[0]); i++) {
        job_set(&j, USM_TRANSFER_STORE, 0, data + unfit[i].shift);
        j.t.offset = unfit[i].offset;
        j.t.size   = unfit[i].size;
        CHECK_INT(job_run(store, &j), USM_E_INVALID);
        CHECK_IN("whole pages", j.reason);
    }
    ops->close(store);
    munmap(data, 2 * BLOCK);
}

typedef void suite_case(size_t configuration);

static suite_case *const suite_cases[] = {
    suite_blocks_come_back,         suite_parts_change_nothing_else, suite_lists_end_wholly,
    suite_done_may_submit,          suite_threads_share_a_store,     suite_capacity_counts,
    suite_unfit_transfers_are_told,
};

/* All cases with one configuration, each leaving nothing behind. */
static inline void suite_run(size_t configuration)
{
    for (size_t i = 0; i < sizeof(suite_cases) / sizeof(suite_cases[0]); i++) {
        module_start();
        suite_cases[i](configuration);
        module_clean();
    }
}

#endif
