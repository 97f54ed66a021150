/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Two or three nodes of far memory over a link in memory, whose messages a test can drop, double
 * and hold back, and whose sends it can leave without an end.  The clock stands still until a case
 * moves it.  Node 0 borrows, node 1 lends, as a rule. */
#ifndef FAR_FIXTURE_H
#define FAR_FIXTURE_H

#include "far/far.h"
#include "far/wire.h"

#include "../unit/module_api.h"

enum { NODES = 3, PIECE = 64 << 10, BLOCK = 256 << 10, MESSAGES = 4096 };

#define MS 1000000u

/* ---- the link ------------------------------------------------------------------------------- */

typedef enum verdict { PASS, DROP, DOUBLE, HOLD } verdict;

typedef struct packet {
    struct packet *next;
    uint32_t       from, to, tag;
    size_t         size;
    unsigned char  bytes[];
} packet;

typedef struct test_link {
    far_link base;
    uint32_t self;
    far_op  *receives;  /* by opaque[0], in the order they were posted                         */
    far_op  *sends;     /* to be ended by the next poll                                         */
    bool     is_silent; /* nothing of it is sent any more                                       */
    bool     is_stuck;  /* its sends of bytes never end                                         */
} test_link;

static struct {
    test_link links[NODES];
    packet   *packets, *held;
    uint64_t  now;
    verdict (*judge)(const packet *l);
} net;

static far_op *op_next(const far_op *op)
{
    return (far_op *)(uintptr_t)op->opaque[0];
}

static inline void op_append(far_op **list, far_op *op)
{
    op->opaque[0] = 0;
    while (*list != NULL)
        list = (far_op **)(void *)&(*list)->opaque[0];
    *list = op;
}

static inline void letter_append(packet **list, packet *l)
{
    while (*list != NULL)
        list = &(*list)->next;
    l->next = NULL;
    *list   = l;
}

/* What was held back comes now. */
static inline void release(void)
{
    packet *l;

    while ((l = net.held) != NULL) {
        net.held = l->next;
        letter_append(&net.packets, l);
    }
}

static packet *letter_of(const far_op *op, uint32_t from)
{
    packet *l = malloc(sizeof(*l) + op->size);

    CHECK(l != NULL);
    *l = (packet){.from = from, .to = op->peer, .tag = op->tag, .size = op->size};
    memcpy(l->bytes, op->buffer, op->size);
    return l;
}

static uint32_t link_self(far_link *l)
{
    return ((test_link *)(void *)l)->self;
}

static uint32_t link_count(far_link *l)
{
    (void)l;
    return NODES;
}

static inline void link_send(far_link *base, far_op *op)
{
    test_link *l = (test_link *)(void *)base;
    packet    *t = letter_of(op, l->self);
    verdict    v = net.judge != NULL ? net.judge(t) : PASS;

    if (v == DOUBLE)
        letter_append(&net.packets, letter_of(op, l->self));
    if (l->is_silent || v == DROP)
        free(t);
    else
        letter_append(v == HOLD ? &net.held : &net.packets, t);
    op_append(&l->sends, op);
}

static inline void link_receive(far_link *base, far_op *op)
{
    op_append(&((test_link *)(void *)base)->receives, op);
}

static far_op **receive_for(test_link *l, const packet *t)
{
    far_op **at = &l->receives;

    for (; *at != NULL; at = (far_op **)(void *)&(*at)->opaque[0])
        if ((*at)->tag == t->tag && ((*at)->peer == FAR_ANY || (*at)->peer == t->from))
            return at;
    return NULL;
}

static inline bool deliver_one(test_link *l)
{
    for (packet **at = &net.packets; *at != NULL; at = &(*at)->next) {
        packet  *t = *at;
        far_op **r = t->to == l->self ? receive_for(l, t) : NULL;
        far_op  *op;
        size_t   n;

        if (r == NULL)
            continue;
        op       = *r;
        *r       = op_next(op);
        *at      = t->next;
        n        = t->size < op->size ? t->size : op->size;
        op->peer = t->from;
        memcpy(op->buffer, t->bytes, n);
        op->done(op, t->size > op->size ? FAR_TRUNCATED : (op->size = n, FAR_OK));
        free(t);
        return true;
    }
    return false;
}

static unsigned link_poll(far_link *base)
{
    test_link *l     = (test_link *)(void *)base;
    far_op    *sends = l->sends;
    unsigned   n     = 0;

    l->sends = NULL;
    while (sends != NULL) {
        far_op *op = sends;

        sends = op_next(op);
        if (l->is_stuck && op->tag >= FAR_TAG_STORE) {
            op_append(&l->sends, op);
            continue;
        }
        op->done(op, FAR_OK);
        n++;
    }
    while (deliver_one(l))
        n++;
    return n;
}

static uint64_t link_now(far_link *l)
{
    (void)l;
    return net.now;
}

static const far_link_ops link_ops = {link_self,    link_count, link_send,
                                      link_receive, link_poll,  link_now};

/* ---- nodes ---------------------------------------------------------------------------------- */

static struct {
    far_node        *node;
    far_member_state state[NODES];
    bool             refused[NODES];
    int              lost;      /* how often anybody was, for good                                */
    char             text[256]; /* messages, one behind the other                               */
} at[NODES];

static far_store *store;

static inline void member_changed(void *user, const far_member *m)
{
    size_t self = (size_t)(uintptr_t)user;

    at[self].state[m->peer] = m->state;
    at[self].lost += m->state == FAR_LOST && !m->may_return;
    at[self].refused[m->peer] = m->refused;
}

static inline void message(void *user, uint32_t from, uint32_t tag, const void *data, size_t size)
{
    size_t self = (size_t)(uintptr_t)user;
    char   one[64];

    (void)snprintf(one, sizeof(one), "%u/%u:%.*s ", from, tag, (int)size, (const char *)data);
    CHECK(strlen(at[self].text) + strlen(one) < sizeof(at[self].text));
    strcat(at[self].text, one); /* NOLINT: it fits */
}

/* Not one for use: a sum that depends on all of both. */
static inline bool sum(const void *key, size_t key_size, const void *data, size_t size,
                       unsigned char mac[32])
{
    uint64_t h = 1;

    for (size_t i = 0; i < key_size; i++)
        h = (h ^ ((const unsigned char *)key)[i]) * 0x100000001b3u;
    for (size_t i = 0; i < size; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    for (size_t i = 0; i < 32; i++)
        mac[i] = (unsigned char)(h >> (i % 8 * 8)) ^ (unsigned char)i;
    return true;
}

static inline far_params params_of(uint32_t i, uint64_t lend)
{
    static const char *const domains[NODES] = {"here", "there", "elsewhere"};

    return (far_params){.struct_size    = sizeof(far_params),
                        .api            = &module_api,
                        .link           = &net.links[i].base,
                        .domain         = domains[i],
                        .lend           = lend,
                        .seed           = 7 + i,
                        .lease_ns       = 3000u * MS,
                        .deadline_ns    = 1000u * MS,
                        .orphan_ns      = (uint64_t)10000 * MS,
                        .piece          = PIECE,
                        .depth          = 4,
                        .member_changed = member_changed,
                        .message        = message,
                        .user           = (void *)(uintptr_t)i};
}

static inline void start(uint32_t i, const far_params *p)
{
    CHECK_INT(far_node_create(p, &at[i].node), USM_OK);
}

static inline void step_all(void)
{
    for (int round = 0; round < 20; round++)
        for (uint32_t i = 0; i < NODES; i++)
            if (at[i].node != NULL)
                (void)far_step(at[i].node, NULL);
}

/* Time goes by in small steps, as for a stepper that is called when it asks. */
static inline void pass_ms(unsigned ms)
{
    for (unsigned i = 0; i < ms; i += 20) {
        net.now += (uint64_t)20 * MS;
        step_all();
    }
}

static inline void world_clear(void)
{
    module_start();
    memset(&net, 0, sizeof(net));
    memset(at, 0, sizeof(at));
    net.now = 1000u * MS;
    for (uint32_t i = 0; i < NODES; i++)
        net.links[i] = (test_link){.base = {&link_ops}, .self = i};
}

/* Node 0 borrows, node 1 lends `lend` bytes, both are up. */
static inline void world_begin(uint64_t lend)
{
    far_params p0, p1;

    world_clear();
    p0 = params_of(0, 0);
    p1 = params_of(1, lend);
    start(0, &p0);
    start(1, &p1);
    pass_ms(100);
    CHECK_INT(at[0].state[1], FAR_UP);
    CHECK_INT(at[1].state[0], FAR_UP);
    CHECK_INT(far_store_open(at[0].node, BLOCK, &store), USM_OK);
}

static inline void letters_free(packet **list)
{
    while (*list != NULL) {
        packet *l = *list;

        *list = l->next;
        free(l);
    }
}

static inline void world_end(void)
{
    far_store_close(store);
    store = NULL;
    for (uint32_t i = 0; i < NODES; i++)
        far_node_destroy_closed(at[i].node);
    letters_free(&net.packets);
    letters_free(&net.held);
    module_clean();
}

/* ---- transfers ------------------------------------------------------------------------------ */

typedef struct job {
    usm_transfer t;
    int          ended;
    usm_status   status;
} job;

static inline void job_done(usm_transfer *t, usm_status status)
{
    job *j = (job *)(void *)t;

    j->ended++;
    j->status = status;
}

static inline void job_start(job *j, usm_transfer_op op, uint64_t block, void *data)
{
    size_t offset = j->t.offset, size = j->t.size;

    *j = (job){.t = {.op         = op,
                     .block      = block,
                     .offset     = offset,
                     .size       = size != 0 ? size : BLOCK,
                     .data       = data,
                     .registered = SIZE_MAX,
                     .done       = job_done}};
    far_submit(store, 1, &j->t);
}

static inline usm_status job_run(usm_transfer_op op, uint64_t block, void *data)
{
    job j = {0};

    job_start(&j, op, block, data);
    step_all();
    for (int i = 0; i < 500 && j.ended == 0; i++)
        pass_ms(20);
    CHECK_INT(j.ended, 1);
    return j.status;
}

static unsigned char data[4][BLOCK];

static inline void fill(unsigned char *p, unsigned seed)
{
    for (size_t i = 0; i < BLOCK; i++)
        p[i] = (unsigned char)(seed * 31 + i * 7 + (i >> 12));
}

static inline void reserved(void *arg, usm_status status)
{
    *(usm_status *)arg = status;
}

static inline usm_status reserve(uint64_t first, uint64_t n)
{
    usm_status s = USM_E_NOT_READY;

    far_reserve_start(store, 1, first, n, reserved, &s);
    for (int i = 0; i < 500 && s == USM_E_NOT_READY; i++)
        pass_ms(20);
    return s;
}

static inline far_stats stats(uint32_t i)
{
    far_stats s;

    far_get_stats(at[i].node, &s);
    return s;
}

#endif
