/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Stores whose servers are replica targets, for tests: what the transport tells of their states, and the
 * numbers of blocks. */
#ifndef VALKEY_NEWS_H
#define VALKEY_NEWS_H

#include "transport_fixture.h"

enum { NEWS_MAX = 32 };
static struct {
    pthread_mutex_t lock;
    unsigned        n;
    uint32_t        place[NEWS_MAX];
    usm_place_state state[NEWS_MAX];
} news = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_place(void *arg, uint32_t place, usm_place_state state)
{
    CHECK(arg == &news);
    (void)pthread_mutex_lock(&news.lock);
    CHECK(news.n < NEWS_MAX);
    news.place[news.n]   = place;
    news.state[news.n++] = state;
    (void)pthread_mutex_unlock(&news.lock);
}

/* The i-th change of a state, when it comes. */
static inline void await_news(unsigned i, uint32_t place, usm_place_state state)
{
    bool there = false;

    for (int turn = 0; turn < 20000 && !there; turn++) {
        (void)pthread_mutex_lock(&news.lock);
        there = news.n > i;
        (void)pthread_mutex_unlock(&news.lock);
        if (!there)
            module_sleep_ms(1);
    }
    CHECK(there);
    CHECK_INT(news.place[i], place);
    CHECK_INT(news.state[i], state);
}

static inline usm_place_state state_of(void *store, uint32_t place)
{
    usm_transport_place info;

    CHECK_INT(ops->place(store, place, &info), USM_OK);
    return info.state;
}

static inline void *open_places(const char *text)
{
    const usm_transport_params params = {.struct_size   = sizeof(params),
                                         .api           = &module_api,
                                         .config        = text,
                                         .block_size    = BLOCK,
                                         .place_changed = on_place,
                                         .user          = &news};
    void                      *store  = NULL;

    news.n = 0;
    CHECK_INT(ops->open(&params, &store), USM_OK);
    return store;
}

static inline uint64_t in_place(uint64_t place, uint64_t slot)
{
    return place << 48 | slot;
}

#endif
