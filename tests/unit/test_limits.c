/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Limits and accounts (src/core/account.c): the process's and a context's own, memory of
 * processors, which is the host's, frames of buffers, and who is asked when memory is full.  Over
 * each runtime. */
#include "plain.h"

#include "base/fault.h"
#include "base/mutex.h"
#include "base/os.h"
#include "buffer/places.h"
#include "core/area.h"
#include "core/pool.h"

#include <usm/usm.h>

#include <errno.h>

#define MIB ((size_t)1 << 20)

static usm_context           *ctx;
static usm_queue             *q;
static usm_device            *dev;
static usm__out_of_memory_fn *buffers_give; /* the hook as src/usm.c fills it              */

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
    usm__area_out_of_memory = buffers_give;
    usm__fault_disarm_all();
    usm_queue_destroy(q);
    usm_context_destroy(ctx);
    for (int i = 0; i < 5000 && usm__account_host_reserved(); i++)
        usleep(1000); /* after commands contexts end on another thread */
    CHECK_INT(usm__account_host_reserved(), 0);
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
    CHECK_INT(usm__account_host_reserved(), 5 * MIB);
    refused(usm_malloc_host(4 * MIB, q), USM_E_BUDGET, "limit of 8388608 for host memory",
            "USM_MEMORY_LIMIT");
    usm_free(p);
    CHECK_INT(usm__account_host_reserved(), 0);
    end();
}

static void a_processors_memory_is_the_hosts(void)
{
    void *p;
    bool  is_host;

    begin("host:8M");
    is_host = usm__device_is_host_memory(dev);
    CHECK_INT(is_host, usm_device_has(dev, USM_ASPECT_CPU));
    p = usm_malloc_device(5 * MIB, q);
    CHECK(p != NULL);
    CHECK_INT(usm__account_host_reserved(), is_host ? 5 * MIB : 0);
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
    CHECK_INT(usm__account_host_reserved(), usm__device_is_host_memory(dev) ? 3 * MIB : 0);
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
    CHECK(usm__account_host_reserved() <= 5 * MIB);
    while (n > 0)
        usm_free(p[--n]);
    CHECK_INT(usm__account_host_reserved(), 0);
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
    CHECK(usm__account_is_own(ctx));
    CHECK_INT(usm_context_create(NULL, &other), USM_OK);
    CHECK_INT(usm_queue_create(other, NULL, NULL, &on), USM_OK);
    CHECK(!usm__account_is_own(other));
    p = usm_malloc_host(7 * MIB, q);
    r = usm_malloc_host(20 * MIB, on);
    CHECK(p && r);
    CHECK_INT(usm__account_host_reserved(), 27 * MIB);
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
    CHECK_INT(usm__account_buffer_limit(ctx), 4 * MIB);
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
    CHECK(!usm__account_is_own(old));
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
    CHECK_INT(usm__account_buffer_limit(ctx), usm__os_memory_total() / 10 * 8);
    end();
    begin("host:100M");
    CHECK_INT(usm__account_buffer_limit(ctx), 100 * MIB);
    end();
    begin_with("host:100M", 50 * MIB, 0);
    CHECK_INT(usm__account_buffer_limit(ctx), 50 * MIB);
    end();
    begin_with("", 50 * MIB, 0);
    CHECK_INT(usm__account_buffer_limit(ctx), 50 * MIB);
    end();
}

static void frames_and_pools_share_one_account(void)
{
    void *p;

    begin("host:8M");
    CHECK_INT(usm__account_add_host(NULL, 6 * MIB), USM_OK);
    refused(usm_malloc_host(3 * MIB, q), USM_E_BUDGET, "limit", "6291456 are taken");
    p = usm_malloc_host(MIB, q);
    CHECK(p != NULL);
    CHECK_INT(usm__account_add_host(NULL, 2 * MIB), USM_E_BUDGET);
    usm_free(p);
    CHECK_INT(usm__account_add_host(NULL, 2 * MIB), USM_OK);
    usm__account_sub_host(NULL, 8 * MIB);
    end();
    begin_with("host:8M", 4 * MIB, 0);
    CHECK_INT(usm__account_add_host(ctx, 4 * MIB), USM_OK);
    CHECK_INT(usm__account_add_host(ctx, 1), USM_E_BUDGET);
    CHECK_INT(usm__account_add_host(NULL, 4 * MIB), USM_OK);
    CHECK_INT(usm__account_add_host(NULL, 1), USM_E_BUDGET);
    usm__account_sub_host(ctx, 4 * MIB);
    usm__account_sub_host(NULL, 4 * MIB);
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
    usm__account_sub_host(NULL, asked.held);
    asked.held = 0;
    if (asked.block)
        given = MIB;
    usm_free(asked.block); /* of the very pool that asks: none of its locks is held */
    asked.block = NULL;
    CHECK(!usm_malloc_host(2000 * MIB, q)); /* not asked again meanwhile */
    return given;
}

static void begin_asking(const char *limit, size_t frames)
{
    begin(limit);
    memset(&asked, 0, sizeof asked);
    asked.held = frames;
    if (frames)
        CHECK_INT(usm__account_add_host(NULL, frames), USM_OK);
    usm__area_out_of_memory = give;
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
    usm__account_sub_host(NULL, asked.held);
    usm_pool_destroy(pool);
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
    CHECK(usm__account_host_reserved() >= 12 * MIB);
    p = usm_malloc_host(8 * MIB, q);
    CHECK(p != NULL);
    CHECK(usm__account_host_reserved() <= 16 * MIB);
    check_filled(b, 7); /* through the frames that are left */
    CHECK(usm__account_host_reserved() <= 16 * MIB);
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
    usm__places_force_copies(true);
    b          = usm_buffer_new(ctx, 6 * MIB);
    all.buffer = b;
    CHECK(b != NULL);
    CHECK_INT(usm_buffer_fill(q, &all, &five, 1, 0, NULL, &ev), USM_OK);
    CHECK_INT(usm_event_wait(ev), USM_OK);
    usm_event_release(ev);
    CHECK_INT(usm__places_device_bytes(), 6 * MIB);
    for (int i = 0; i < 5000 && !(p = usm_malloc_device(5 * MIB, q)); i++)
        usleep(1000); /* the command has ended, and is counted as ended a moment later */
    CHECK(p != NULL);
    CHECK_INT(usm__places_device_bytes(), 0);
    check_filled(b, 5);
    usm_free(p);
    usm_buffer_destroy(b);
    usm__places_force_copies(false);
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
    CASE(buffers_make_room_for_host_memory),
    CASE(buffers_make_room_for_device_memory),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    CHECK_INT(usm_config_set("memory_limit", "auto"), USM_OK); /* starts the library */
    buffers_give = usm__area_out_of_memory;
    return plain_main(argc, argv, cases);
}
