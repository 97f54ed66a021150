/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pools over an area source: contexts from functions of the program (usm/source.h). */
#include "plain.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <usm/source.h>
#include <usm/usm.h>

#define MIB ((size_t)1 << 20)

/* A source of mappings, with a limit. */
typedef struct source {
    usm_area_source table;
    atomic_size_t   taken, allocs;
    size_t          limit;
    usm_status      failure; /* of alloc() and free(); USM_OK: none */
    usm_kind        last_kind;
} source;

static usm_status take(void *user, usm_kind kind, size_t size, size_t align, void **p)
{
    source *s = user;
    char   *base;

    if (s->failure != USM_OK)
        return s->failure;
    if (atomic_fetch_add(&s->taken, size) + size > s->limit) {
        atomic_fetch_sub(&s->taken, size);
        return USM_E_NO_MEMORY;
    }
    CHECK(align <= 4096);
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(base != MAP_FAILED);
    atomic_fetch_add(&s->allocs, 1);
    s->last_kind = kind;
    *p           = base;
    return USM_OK;
}

static usm_status give(void *user, usm_kind kind, void *p, size_t size)
{
    source *s = user;

    (void)kind;
    if (s->failure != USM_OK)
        return s->failure;
    CHECK_INT(munmap(p, size), 0);
    atomic_fetch_sub(&s->taken, size);
    return USM_OK;
}

static void source_init(source *s, size_t limit)
{
    *s             = (source){.table = USM_AREA_SOURCE_INIT, .limit = limit};
    s->table.user  = s;
    s->table.alloc = take;
    s->table.free  = give;
}

static usm_status open_context(source *s, usm_context **ctx)
{
    usm_native_desc desc = USM_NATIVE_DESC_INIT;

    desc.backend = "source";
    desc.handle  = &s->table;
    return usm_context_from_native(&desc, ctx);
}

static usm_pool *open_pool(usm_context *ctx, usm_kind kind)
{
    usm_pool *pool = NULL;

    CHECK_INT(usm_pool_create(ctx, NULL, kind, NULL, &pool), USM_OK);
    return pool;
}

static void blocks_lie_in_areas_of_the_source(void)
{
    source       s;
    usm_context *ctx = NULL;
    usm_pool    *pool;
    void        *p[1000];

    source_init(&s, 64 * MIB);
    CHECK_INT(open_context(&s, &ctx), USM_OK);
    pool = open_pool(ctx, USM_DEVICE);
    for (size_t i = 0; i < 1000; i++)
        CHECK((p[i] = usm_pool_malloc(pool, 1 + i * 7)) != NULL);
    CHECK(atomic_load(&s.allocs) >= 1 && atomic_load(&s.allocs) <= 4);
    CHECK_INT(s.last_kind, USM_DEVICE);
    CHECK_INT(usm_get_pointer_type(p[500], ctx), USM_DEVICE);
    for (size_t i = 0; i < 1000; i++)
        usm_pool_free(pool, p[i]);
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
    CHECK_INT(atomic_load(&s.taken), 0);
}

static void each_kind_is_what_the_source_says(void)
{
    static const struct {
        uint32_t kinds;
        usm_kind kind;
    } all[]           = {{USM_SOURCE_HOST, USM_HOST},
                         {USM_SOURCE_DEVICE, USM_DEVICE},
                         {USM_SOURCE_SHARED, USM_SHARED}};
    usm_pool *refused = NULL;

    for (size_t i = 0; i < 3; i++) {
        source       s;
        usm_context *ctx = NULL;
        void        *p;

        source_init(&s, 64 * MIB);
        s.table.kinds = all[i].kinds;
        CHECK_INT(open_context(&s, &ctx), USM_OK);
        p = usm_pool_malloc(open_pool(ctx, all[i].kind), 100);
        CHECK(p != NULL);
        CHECK_INT(s.last_kind, all[i].kind);
        if (all[i].kind == USM_DEVICE) /* contexts of every backend can have host memory */
            CHECK_INT(usm_pool_create(ctx, NULL, USM_SHARED, NULL, &refused), USM_E_NOT_SUPPORTED);
        usm_context_destroy(ctx);
        CHECK_INT(atomic_load(&s.taken), 0);
    }
}

static void a_full_source_is_out_of_memory(void)
{
    source       s;
    usm_context *ctx = NULL;
    usm_pool    *pool;
    void        *p;

    source_init(&s, 8 * MIB);
    CHECK_INT(open_context(&s, &ctx), USM_OK);
    pool = open_pool(ctx, USM_DEVICE);
    CHECK(usm_pool_malloc(pool, 9 * MIB) == NULL);
    CHECK_INT(usm_last_status(), USM_E_NO_MEMORY);
    CHECK_IN("the area source has no", usm_last_error());
    p = usm_pool_malloc(pool, 6 * MIB);
    CHECK(p != NULL);
    usm_pool_free(pool, p);
    s.failure = USM_E_DEVICE;
    CHECK(usm_pool_malloc(pool, 7 * MIB) == NULL);
    s.failure = USM_OK;
    usm_context_destroy(ctx);
    CHECK_INT(atomic_load(&s.taken), 0);
}

static void tables_are_checked(void)
{
    source          s;
    usm_context    *ctx  = NULL;
    usm_native_desc desc = USM_NATIVE_DESC_INIT;

    source_init(&s, MIB);
    s.table.free = NULL;
    CHECK_INT(open_context(&s, &ctx), USM_E_INVALID);
    CHECK_IN("free is NULL", usm_last_error());
    s.table.free  = give;
    s.table.kinds = 0;
    CHECK_INT(open_context(&s, &ctx), USM_E_INVALID);
    s.table.kinds       = USM_SOURCE_DEVICE;
    s.table.struct_size = 8;
    CHECK_INT(open_context(&s, &ctx), USM_E_INVALID);
    CHECK_IN("USM_AREA_SOURCE_INIT", usm_last_error());
    s.table.struct_size = sizeof s.table;
    desc.backend        = "source";
    desc.handle         = &s.table;
    desc.ownership      = USM_TRANSFER;
    CHECK_INT(usm_context_from_native(&desc, &ctx), USM_E_INVALID);
    CHECK(ctx == NULL);
}

/* Queues of other contexts take such memory for what their driver may know. */
static void commands_of_others_reach_it(void)
{
    source        s;
    usm_context  *ctx = NULL;
    usm_queue    *q   = usm_default_queue();
    unsigned char out[100];
    char         *p;

    source_init(&s, 64 * MIB);
    s.table.kinds = USM_SOURCE_DEVICE | USM_SOURCE_HOST;
    CHECK_INT(open_context(&s, &ctx), USM_OK);
    p = usm_pool_malloc(open_pool(ctx, USM_DEVICE), sizeof out);
    CHECK(p != NULL && q != NULL);
    memset(p, 7, sizeof out); /* this source's device memory is the host's */
    CHECK_INT(usm_memcpy(q, out, p, sizeof out, 0, NULL, NULL), USM_OK);
    CHECK_INT(usm_queue_wait(q), USM_OK);
    CHECK(out[0] == 7 && out[99] == 7);
    CHECK_INT(usm_copy(out, p, sizeof out), USM_E_NOT_SUPPORTED); /* which queue would it be? */
    usm_free(p);
    p = usm_pool_malloc(open_pool(ctx, USM_HOST), sizeof out); /* for which none is needed */
    CHECK(p != NULL);
    CHECK_INT(usm_set(p, 5, sizeof out), USM_OK);
    CHECK_INT(usm_copy(out, p, sizeof out), USM_OK);
    CHECK(out[0] == 5 && out[99] == 5);
    usm_free(p);
    usm_context_destroy(ctx);
}

static const plain_case cases[] = {
    CASE(blocks_lie_in_areas_of_the_source), CASE(each_kind_is_what_the_source_says),
    CASE(a_full_source_is_out_of_memory),    CASE(tables_are_checked),
    CASE(commands_of_others_reach_it),       {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
