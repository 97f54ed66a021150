/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Limits and accounts (src/heap/quota.c): the process's and a context's own, memory of
 * processors, which is the host's, frames of buffers, and who is asked when memory is full.  Over
 * each runtime. */
#include "plain.h"

#include "base/fault.h"
#include "base/mutex.h"
#include "base/os.h"
#include "buffer/locations.h"
#include "heap/area.h"
#include "heap/pool.h"

#include <usm/usm.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define MIB ((size_t)1 << 20)

static usm_context *ctx;
static usm_queue   *q;
static usm_device  *dev;
static bool         is_asking; /* the part of this test has memory to give */

static void begin_with(const char *limit, uint64_t host, uint64_t device)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;

    usm__fault_disarm_all();
    desc.host_limit   = host;
    desc.device_limit = device;
    CHECK_INT(usm_config_set("memory_limit", limit), USM_OK);
    CHECK_INT(usm_config_set("pool", "direct"), USM_OK); /* takes what is asked for */
    CHECK_INT(usm_context_create(&desc, &ctx), USM_OK);
    CHECK_INT(usm_queue_create(ctx, NULL, NULL, &q), USM_OK);
    dev = usm_queue_get_device(q);
}

static void begin(const char *limit)
{
    begin_with(limit, 0, 0);
}

static void end(void)
{
    is_asking = false;
    usm__fault_disarm_all();
    usm_queue_destroy(q);
    usm_context_destroy(ctx);
    for (int i = 0; i < 5000 && usm__quota_host_reserved(); i++)
        usleep(1000); /* after commands contexts end on another thread */
    CHECK_INT(usm__quota_host_reserved(), 0);
}

/* A failure with this status, that names all of that. */
static void refused(const void *p, usm_status status, const char *a, const char *b)
{
    CHECK(!p);
    CHECK_INT(usm_last_status(), status);
    CHECK_IN(a, usm_last_error());
    CHECK_IN(b, usm_last_error());
}

/* --- whose memory counts where
 * --------------------------------------------------------------------- */

static void host_memory_counts_for_the_host(void)
{
    void *p;

    begin("host:8M");
    p = usm_malloc_host(5 * MIB, q);
    CHECK(p != NULL);
    CHECK_INT(usm__quota_host_reserved(), 5 * MIB);
    refused(usm_malloc_host(4 * MIB, q), USM_E_BUDGET, "limit of 8388608 for host memory",
            "USM_MEMORY_LIMIT");
    usm_free(p);
    CHECK_INT(usm__quota_host_reserved(), 0);
    end();
}

static void a_processors_memory_is_the_hosts(void)
{
    void *p;
    bool  is_host;

    begin("host:8M");
    is_host = usm__quota_is_host_memory(dev);
    CHECK_INT(is_host, usm_device_has(dev, USM_ASPECT_CPU));
    p = usm_malloc_device(5 * MIB, q);
    CHECK(p != NULL);
    CHECK_INT(usm__quota_host_reserved(), is_host ? 5 * MIB : 0);
    if (is_host)
        refused(usm_malloc_host(4 * MIB, q), USM_E_BUDGET, "limit", "host memory");
    usm_free(p);
    if (is_host)
        refused(usm_malloc_device(9 * MIB, q), USM_E_BUDGET, "limit", "host memory");
    end();
}

static void both_limits_hold_for_a_processor(void)
{
    void *p;

    begin("host:16M,device:4M");
    p = usm_malloc_device(3 * MIB, q);
    CHECK(p != NULL);
    refused(usm_malloc_device(2 * MIB, q), USM_E_BUDGET, "limit of 4194304", dev->term);
    /* What was refused by one account was taken back from the others. */
    CHECK_INT(usm__quota_host_reserved(), usm__quota_is_host_memory(dev) ? 3 * MIB : 0);
    usm_free(p);
    end();
}

/* A driver that does not align by itself is asked for more than the block. */
static void alignment_counts_within_the_limit(void)
{
    void *p[8];
    int   n = 0;

    begin("host:5M");
    while (n < 8 && (p[n] = usm_aligned_alloc_host(2 * MIB, MIB, q)))
        n++;
    CHECK(n > 0);
    refused(n < 8 ? NULL : p[7], USM_E_BUDGET, "limit of 5242880", "USM_MEMORY_LIMIT");
    CHECK(usm__quota_host_reserved() <= 5 * MIB);
    while (n > 0)
        usm_free(p[--n]);
    CHECK_INT(usm__quota_host_reserved(), 0);
    end();
}

/* --- a context's own
 * ---------------------------------------------------------------------------------- */

static void a_context_has_limits_of_its_own(void)
{
    usm_context *other = NULL;
    usm_queue   *on    = NULL;
    void        *p, *r;

    begin_with("host:64M", 8 * MIB, 4 * MIB);
    CHECK(usm__quota_is_own(ctx));
    CHECK_INT(usm_context_create(NULL, &other), USM_OK);
    CHECK_INT(usm_queue_create(other, NULL, NULL, &on), USM_OK);
    CHECK(!usm__quota_is_own(other));
    p = usm_malloc_host(7 * MIB, q);
    r = usm_malloc_host(20 * MIB, on);
    CHECK(p && r);
    CHECK_INT(usm__quota_host_reserved(), 27 * MIB);
    refused(usm_malloc_host(2 * MIB, q), USM_E_BUDGET, "context's limit of 8388608", "host_limit");
    refused(usm_malloc_device(5 * MIB, q), USM_E_BUDGET, "context's limit of 4194304",
            "device_limit");
    refused(usm_malloc_host(40 * MIB, on), USM_E_BUDGET, "limit of 67108864", "USM_MEMORY_LIMIT");
    usm_free(p);
    usm_free(r);
    usm_queue_destroy(on);
    usm_context_destroy(other);
    end();
}

static void the_process_limit_holds_for_it_as_well(void)
{
    begin_with("host:4M", 8 * MIB, 0);
    refused(usm_malloc_host(5 * MIB, q), USM_E_BUDGET, "limit of 4194304", "USM_MEMORY_LIMIT");
    CHECK_INT(usm__quota_buffer_limit(ctx), 4 * MIB);
    end();
}

static void programs_of_the_version_before_have_none(void)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_context     *old  = NULL;

    begin("auto");
    desc.struct_size = offsetof(usm_context_desc, host_limit);
    desc.host_limit  = 1; /* not theirs: what lies behind the descriptor */
    CHECK_INT(usm_context_create(&desc, &old), USM_OK);
    CHECK(!usm__quota_is_own(old));
    usm_context_destroy(old);
    desc.struct_size--;
    CHECK_INT(usm_context_create(&desc, &old), USM_E_ABI);
    end();
}

/* --- buffers
 * --------------------------------------------------------------------------------------------- */

static void buffers_get_a_part_of_what_there_is_or_the_limit(void)
{
    begin("auto");
    CHECK_INT(usm__quota_buffer_limit(ctx), usm__os_memory_total() / 10 * 8);
    end();
    begin("host:100M");
    CHECK_INT(usm__quota_buffer_limit(ctx), 100 * MIB);
    end();
    begin_with("host:100M", 50 * MIB, 0);
    CHECK_INT(usm__quota_buffer_limit(ctx), 50 * MIB);
    end();
    begin_with("", 50 * MIB, 0);
    CHECK_INT(usm__quota_buffer_limit(ctx), 50 * MIB);
    end();
}

static void frames_and_pools_share_one_account(void)
{
    void *p;

    begin("host:8M");
    CHECK_INT(usm__quota_add_host(NULL, 6 * MIB), USM_OK);
    refused(usm_malloc_host(3 * MIB, q), USM_E_BUDGET, "limit", "6291456 are taken");
    p = usm_malloc_host(MIB, q);
    CHECK(p != NULL);
    CHECK_INT(usm__quota_add_host(NULL, 2 * MIB), USM_E_BUDGET);
    usm_free(p);
    CHECK_INT(usm__quota_add_host(NULL, 2 * MIB), USM_OK);
    usm__quota_sub_host(NULL, 8 * MIB);
    end();
    begin_with("host:8M", 4 * MIB, 0);
    CHECK_INT(usm__quota_add_host(ctx, 4 * MIB), USM_OK);
    CHECK_INT(usm__quota_add_host(ctx, 1), USM_E_BUDGET);
    CHECK_INT(usm__quota_add_host(NULL, 4 * MIB), USM_OK);
    CHECK_INT(usm__quota_add_host(NULL, 1), USM_E_BUDGET);
    usm__quota_sub_host(ctx, 4 * MIB);
    usm__quota_sub_host(NULL, 4 * MIB);
    end();
}

/* --- who is asked when memory is full
 * --------------------------------------------------------------------- */

static struct {
    int      calls;
    usm_kind kind;
    size_t   size;
    size_t   held; /* of the account, to be given back */
    void    *block;
} asked;

static size_t give(usm_context *c, usm_device *d, usm_kind kind, size_t size)
{
    size_t given = asked.held;

    CHECK(c == ctx && d == dev);
    CHECK(usm__mutex_none_held());
    asked.calls++;
    asked.kind = kind;
    asked.size = size;
    usm__quota_sub_host(NULL, asked.held);
    asked.held = 0;
    if (asked.block)
        given = MIB;
    usm_free(asked.block); /* of the very pool that asks: none of its locks is held */
    asked.block = NULL;
    CHECK(!usm_malloc_host(2000 * MIB, q)); /* not asked again meanwhile */
    return given;
}

static size_t give_if_asked(usm_context *owner, usm_device *device, usm_kind kind, size_t size)
{
    return is_asking ? give(owner, device, kind, size) : 0;
}

static const usm_part part = {.name = "test", .out_of_memory = give_if_asked};

static void begin_asking(const char *limit, size_t frames)
{
    begin(limit);
    memset(&asked, 0, sizeof asked);
    asked.held = frames;
    if (frames)
        CHECK_INT(usm__quota_add_host(NULL, frames), USM_OK);
    is_asking = true;
}

static void frames_make_room_for_pools(void)
{
    void *p;

    begin_asking("host:8M", 6 * MIB);
    p = usm_malloc_host(5 * MIB, q);
    CHECK(p != NULL);
    CHECK_INT(asked.calls, 1);
    CHECK(asked.kind == USM_HOST && asked.size == 6 * MIB); /* whole pieces of what pools take */
    refused(usm_malloc_host(5 * MIB, q), USM_E_BUDGET, "limit", "USM_MEMORY_LIMIT");
    CHECK_INT(asked.calls, 2); /* nothing was given: nothing was tried again */
    usm_free(p);
    end();
}

static void blocks_of_the_same_pool_can_be_given(void)
{
    void *p;

    begin_asking("device:8M,host:1G", 0);
    asked.block = usm_malloc_device(6 * MIB, q);
    CHECK(asked.block != NULL);
    p = usm_malloc_device(5 * MIB, q);
    CHECK(p != NULL);
    CHECK(asked.calls == 1 && asked.kind == USM_DEVICE);
    usm_free(p);
    end();
}

static void a_full_driver_is_a_reason_too(void)
{
    void *p;

    begin_asking("host:1G", MIB);
    CHECK(usm__fault_arm("mem_alloc", 1, false, USM_E_NO_MEMORY));
    p = usm_malloc_host(MIB, q);
    CHECK(p != NULL);
    CHECK_INT(asked.calls, 1);
    usm_free(p);
    end();
}

static void what_others_cannot_help_they_are_not_asked(void)
{
    volatile size_t negative = (size_t)PTRDIFF_MAX + 1; /* the compiler would see it, too */
    usm_pool_desc   desc     = USM_POOL_DESC_INIT;
    usm_pool       *pool     = NULL;
    void           *p        = NULL;

    begin_asking("host:1G", MIB);
    desc.name         = "direct";
    desc.maximum_size = 2 * MIB;
    CHECK_INT(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool), USM_OK);
    refused(usm_pool_malloc(pool, 3 * MIB), USM_E_BUDGET, "maximum_size", "2097152");
    refused(usm_malloc_host(negative, q), USM_E_SIZE, "exceed", "");
    CHECK_INT(usm__pool_try(usm__pool_of(ctx, 0, USM_HOST), (size_t)2 << 30, &p), USM_E_BUDGET);
    CHECK_INT(asked.calls, 0);
    usm__quota_sub_host(NULL, asked.held);
    usm_pool_destroy(pool);
    end();
}

/* --- free memory of other pools
 * -------------------------------------------------------------------------------- */

/* As begin(), with pools that keep all that was ever theirs. */
static void begin_keeping_with(const char *limit, uint64_t host)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;

    begin(limit);
    usm_queue_destroy(q);
    usm_context_destroy(ctx);
    desc.host_limit = host;
    CHECK_INT(usm_config_set("pool", "slab,retain=all"), USM_OK);
    CHECK_INT(usm_context_create(&desc, &ctx), USM_OK);
    CHECK_INT(usm_queue_create(ctx, NULL, NULL, &q), USM_OK);
}

static void begin_keeping(const char *limit)
{
    begin_keeping_with(limit, 0);
}

static uint64_t reserved_by(usm_kind kind)
{
    usm_pool_stats s = USM_POOL_STATS_INIT;

    CHECK_INT(usm_pool_get_stats(usm_pool_default(ctx, dev, kind), &s), USM_OK);
    return s.reserved;
}

/* In blocks of 64 KiB, so that threads' caches have some of them. */
static void use_and_free(usm_queue *on, usm_kind kind, size_t size)
{
    void  *p[1024];
    size_t n = size / (64 << 10);

    for (size_t i = 0; i < n; i++)
        CHECK((p[i] = usm_malloc(64 << 10, on, kind)) != NULL);
    for (size_t i = 0; i < n; i++)
        usm_free(p[i]);
}

static void free_memory_of_other_kinds_makes_room(void)
{
    usm_kind from;
    void    *p;

    begin_keeping("host:32M,device:32M");
    from = usm_device_has(dev, USM_ASPECT_CPU) ? USM_HOST : USM_DEVICE;
    use_and_free(q, from, 24 * MIB);
    CHECK(reserved_by(from) >= 24 * MIB);
    p = usm_malloc_shared(24 * MIB, q);
    CHECK(p != NULL);
    CHECK(reserved_by(from) < 8 * MIB);
    usm_free(p);
    CHECK((p = usm_malloc(24 * MIB, q, from)) != NULL); /* and the other way round */
    usm_free(p);
    end();
}

static void free_memory_of_other_contexts_and_pools_makes_room(void)
{
    usm_pool_desc desc  = USM_POOL_DESC_INIT;
    usm_context  *other = NULL;
    usm_queue    *on    = NULL;
    usm_pool     *pool  = NULL;
    void         *p;

    begin_keeping("host:32M,device:32M");
    CHECK_INT(usm_context_create(NULL, &other), USM_OK);
    CHECK_INT(usm_queue_create(other, NULL, NULL, &on), USM_OK);
    desc.name = "arena";
    CHECK_INT(usm_pool_create(ctx, NULL, USM_SHARED, &desc, &pool), USM_OK);
    use_and_free(q, USM_SHARED, 24 * MIB);
    CHECK((p = usm_malloc_shared(24 * MIB, on)) != NULL);
    usm_free(p);
    CHECK((p = usm_pool_malloc(pool, 24 * MIB)) != NULL);
    CHECK_INT(usm_pool_reset(pool), USM_OK);
    CHECK((p = usm_malloc_shared(24 * MIB, q)) != NULL);
    refused(usm_malloc_shared(24 * MIB, on), USM_E_BUDGET, "limit", "USM_MEMORY_LIMIT");
    usm_free(p);
    usm_pool_destroy(pool);
    usm_queue_destroy(on);
    usm_context_destroy(other);
    end();
}

static void a_context_at_its_own_limit_leaves_others_alone(void)
{
    usm_context_desc desc  = USM_CONTEXT_DESC_INIT;
    usm_context     *other = NULL;

    begin_keeping("host:1G");
    desc.host_limit = 4 * MIB;
    CHECK_INT(usm_context_create(&desc, &other), USM_OK);
    use_and_free(q, USM_HOST, 24 * MIB);
    refused(usm_malloc_ctx(8 * MIB, NULL, other, USM_HOST), USM_E_BUDGET, "context's limit",
            "host_limit");
    CHECK(reserved_by(USM_HOST) >= 24 * MIB);
    usm_context_destroy(other);
    end();
}

static pthread_barrier_t barrier;

static void *use_and_stay(void *arg)
{
    use_and_free(q, USM_SHARED, 6 * MIB);
    (void)pthread_barrier_wait(&barrier); /* it is free, some of it in this thread's caches */
    (void)pthread_barrier_wait(&barrier);
    return arg;
}

static void caches_of_idle_threads_make_room_in_other_pools(void)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;
    pthread_t     t;
    void         *p;

    begin_keeping("host:8M,device:8M");
    CHECK_INT(usm_pool_create(ctx, NULL, USM_SHARED, &desc, &pool), USM_OK);
    CHECK_INT(pthread_barrier_init(&barrier, NULL, 2), 0);
    CHECK_INT(pthread_create(&t, NULL, use_and_stay, NULL), 0);
    (void)pthread_barrier_wait(&barrier);
    CHECK((p = usm_pool_malloc(pool, 7 * MIB)) != NULL);
    (void)pthread_barrier_wait(&barrier);
    CHECK_INT(pthread_join(t, NULL), 0);
    CHECK_INT(pthread_barrier_destroy(&barrier), 0);
    usm_pool_free(pool, p);
    usm_pool_destroy(pool);
    end();
}

static void free_memory_of_pools_makes_room_for_buffers(void)
{
    usm_buffer *b;
    usm_access  a;

    CHECK_INT(usm_config_set("spill", "off"), USM_OK);
    begin_keeping_with("auto", 16 * MIB); /* frames of its own end with it */
    use_and_free(q, USM_HOST, 14 * MIB);
    b = usm_buffer_new(ctx, 8 * MIB);
    CHECK(b != NULL);
    CHECK_INT(usm_access_begin(b, 0, 8 * MIB, USM_WRITE_NO_INIT, &a), USM_OK);
    usm_access_end(&a);
    usm_buffer_destroy(b);
    end();
    CHECK_INT(usm_config_set("spill", NULL), USM_OK);
}

static _Atomic(bool) stop;

static void *pools_come_and_go(void *arg)
{
    while (!atomic_load(&stop)) {
        usm_pool_desc desc = USM_POOL_DESC_INIT;
        usm_pool     *pool = NULL;

        CHECK_INT(usm_pool_create(ctx, NULL, USM_SHARED, &desc, &pool), USM_OK);
        for (int i = 0; i < 4; i++)
            usm_pool_free(pool, usm_pool_malloc(pool, 2 * MIB)); /* NULL is fine */
        usm_pool_destroy(pool);
    }
    return arg;
}

/* A pool ends while another thread asks it for memory. */
static void pools_that_end_are_asked_no_more(void)
{
    pthread_t t[2];
    void     *p;

    begin_keeping("host:8M,device:8M");
    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_create(&t[i], NULL, pools_come_and_go, NULL), 0);
    for (int i = 0; i < 300; i++) {
        usm_free(usm_malloc_shared(5 * MIB, q)); /* the others may have all there is */
        CHECK_INT(usm_pool_trim_to(usm_pool_default(ctx, dev, USM_SHARED), 0), USM_OK);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_join(t[i], NULL), 0);
    p = usm_malloc_shared(5 * MIB, q);
    CHECK(p != NULL);
    usm_free(p);
    end();
}

/* --- buffers as they are
 * -------------------------------------------------------------------------------- */

static void fill(usm_buffer *b, int value)
{
    usm_access a;

    CHECK_INT(usm_access_begin(b, 0, usm_buffer_size(b), USM_WRITE_NO_INIT, &a), USM_OK);
    memset(a.ptr, value, a.size);
    usm_access_end(&a);
}

/* A part at a time: it need not be in memory as a whole. */
static void check_filled(usm_buffer *b, int value)
{
    for (size_t at = 0; at < usm_buffer_size(b); at += MIB) {
        usm_access a;

        CHECK_INT(usm_access_begin(b, at, MIB, USM_READ, &a), USM_OK);
        for (size_t i = 0; i < a.size; i += 1000)
            CHECK_INT(((const char *)a.ptr)[i], value);
        usm_access_end(&a);
    }
}

static void buffers_make_room_for_host_memory(void)
{
    usm_buffer *b;
    void       *p;

    begin_with("auto", 16 * MIB, 0);
    b = usm_buffer_new(ctx, 12 * MIB);
    CHECK(b != NULL);
    fill(b, 7);
    CHECK(usm__quota_host_reserved() >= 12 * MIB);
    p = usm_malloc_host(8 * MIB, q);
    CHECK(p != NULL);
    CHECK(usm__quota_host_reserved() <= 16 * MIB);
    check_filled(b, 7); /* through the frames that are left */
    CHECK(usm__quota_host_reserved() <= 16 * MIB);
    usm_free(p);
    usm_buffer_destroy(b);
    end();
}

static void buffers_make_room_for_device_memory(void)
{
    usm_accessor all = {NULL, 0, 6 * MIB, USM_WRITE_NO_INIT};
    usm_event   *ev  = NULL;
    usm_buffer  *b;
    char         five = 5;
    void        *p    = NULL;

    begin_with("device:8M", 64 * MIB, 0); /* frames of its own end with it */
    usm__locations_force_copies(true);
    b          = usm_buffer_new(ctx, 6 * MIB);
    all.buffer = b;
    CHECK(b != NULL);
    CHECK_INT(usm_buffer_fill(q, &all, &five, 1, 0, NULL, &ev), USM_OK);
    CHECK_INT(usm_event_wait(ev), USM_OK);
    usm_event_release(ev);
    CHECK_INT(usm__locations_device_bytes(), 6 * MIB);
    for (int i = 0; i < 5000 && !(p = usm_malloc_device(5 * MIB, q)); i++)
        usleep(1000); /* the command has ended, and is counted as ended a moment later */
    CHECK(p != NULL);
    CHECK_INT(usm__locations_device_bytes(), 0);
    check_filled(b, 5);
    usm_free(p);
    usm_buffer_destroy(b);
    usm__locations_force_copies(false);
    end();
}

static const plain_case cases[] = {
    CASE(host_memory_counts_for_the_host),
    CASE(a_processors_memory_is_the_hosts),
    CASE(both_limits_hold_for_a_processor),
    CASE(alignment_counts_within_the_limit),
    CASE(a_context_has_limits_of_its_own),
    CASE(the_process_limit_holds_for_it_as_well),
    CASE(programs_of_the_version_before_have_none),
    CASE(buffers_get_a_part_of_what_there_is_or_the_limit),
    CASE(frames_and_pools_share_one_account),
    CASE(frames_make_room_for_pools),
    CASE(blocks_of_the_same_pool_can_be_given),
    CASE(a_full_driver_is_a_reason_too),
    CASE(what_others_cannot_help_they_are_not_asked),
    CASE(free_memory_of_other_kinds_makes_room),
    CASE(free_memory_of_other_contexts_and_pools_makes_room),
    CASE(a_context_at_its_own_limit_leaves_others_alone),
    CASE(caches_of_idle_threads_make_room_in_other_pools),
    CASE(free_memory_of_pools_makes_room_for_buffers),
    CASE(pools_that_end_are_asked_no_more),
    CASE(buffers_make_room_for_host_memory),
    CASE(buffers_make_room_for_device_memory),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    CHECK_INT(usm_config_set("memory_limit", "auto"), USM_OK); /* starts the library */
    usm__part_add(&part);
    return plain_main(argc, argv, cases);
}
