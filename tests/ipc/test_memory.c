/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory between two processes: usm_ipc_get(), open, close, put. */
#include "ipc/handle.h"
#include "two.h"

#include <errno.h>
#include <sys/mman.h>

#include <usm/usm.h>

#define SIZE ((size_t)256 << 10)

/* ---- the peer: does what it is told to --------------------------------------------------- */

typedef enum op {
    OP_END,
    OP_ALLOC,  /* kind, mode, size: a pool, a block filled with a pattern, its handle         */
    OP_HANDLE, /* another handle, of the byte at `a` of the block                              */
    OP_PUT,    /* the last handle                                                              */
    OP_FREE,
    OP_ASYNC_FREE,
    OP_STATS, /* `a`: which                                                                    */
    OP_POOL_DESTROY,
    OP_READ,  /* byte `a` of the block                                                          */
    OP_OPEN,  /* the handle that comes behind: a pointer, its byte `a`                          */
    OP_WRITE, /* byte `a` of what was opened                                                    */
    OP_CLOSE,
    OP_FORK, /* a child that uses what was opened, and libusm                                   */
    OP_LIVE, /* blocks of the pool                                                             */
    OP_USER  /* becomes another one                                                            */
} op;

typedef struct order {
    op             op;
    int            kind, mode;
    uint64_t       a;
    usm_ipc_handle handle;
} order;

typedef struct answer {
    int64_t        status;
    uint64_t       value;
    usm_ipc_handle handle;
} answer;

enum { STAT_HANDLES, STAT_DEFERRED, STAT_IMPORTERS };

static struct {
    usm_pool      *pool;
    unsigned char *block;
    void          *opened;
    usm_ipc_handle handle;
} peer;

static unsigned char pattern(size_t i)
{
    return (unsigned char)(i * 7 + i / 251);
}

static usm_pool *make_pool(int kind, int mode)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;
    usm_context  *ctx  = usm_default_context();

    CHECK(ctx != NULL);
    desc.export_mode = (uint32_t)mode;
    CHECK_INT(usm_pool_create(ctx, NULL, (usm_kind)kind, &desc, &pool), USM_OK);
    return pool;
}

static void fill(void *block, size_t size)
{
    unsigned char *text = malloc(size);

    for (size_t i = 0; i < size; i++)
        text[i] = pattern(i);
    CHECK_INT(usm_copy(block, text, size), USM_OK);
    free(text);
}

static unsigned char byte_at(const void *p, size_t i)
{
    unsigned char c = 0;

    CHECK_INT(usm_copy(&c, (const char *)p + i, 1), USM_OK);
    return c;
}

static void do_alloc(const order *o, answer *a)
{
    peer.pool  = make_pool(o->kind, o->mode);
    peer.block = usm_pool_malloc(peer.pool, o->a);
    if (peer.block == NULL) {
        a->status = usm_last_status();
        return;
    }
    fill(peer.block, o->a);
    a->status = usm_ipc_get(peer.block, NULL, &peer.handle);
    a->handle = peer.handle;
    a->value  = (uint64_t)(uintptr_t)peer.block;
}

static uint64_t stat_of(uint64_t which)
{
    usm_ipc_stats s = USM_IPC_STATS_INIT;

    CHECK_INT(usm_ipc_get_stats(&s), USM_OK);
    return which == STAT_HANDLES ? s.handles : which == STAT_DEFERRED ? s.deferred : s.importers;
}

static void in_child_of_importer(void)
{
    usm_ipc_info info = USM_IPC_INFO_INIT;

    CHECK_INT(usm_ipc_query(peer.opened, &info), USM_E_FORKED);
    CHECK_INT(usm_ipc_close(peer.opened, NULL), USM_E_FORKED);
}

static void do_open(const order *o, answer *a)
{
    a->status = usm_ipc_open(&o->handle, NULL, NULL, &peer.opened);
    if (a->status == USM_OK)
        a->value = byte_at(peer.opened, o->a);
}

static void obey(const order *o, answer *a)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;
    unsigned char  c     = (unsigned char)o->kind;

    switch (o->op) {
    case OP_ALLOC:
        do_alloc(o, a);
        break;
    case OP_HANDLE:
        a->status = usm_ipc_get(peer.block + o->a, NULL, &peer.handle);
        a->handle = peer.handle;
        break;
    case OP_PUT:
        a->status = usm_ipc_put(&peer.handle, NULL);
        break;
    case OP_FREE:
        a->status = usm_free_ctx(peer.block, NULL);
        break;
    case OP_ASYNC_FREE:
        a->status = usm_async_free(usm_default_queue(), peer.block);
        CHECK_INT(usm_queue_wait(usm_default_queue()), USM_OK);
        break;
    case OP_STATS:
        a->value = stat_of(o->a);
        break;
    case OP_POOL_DESTROY:
        usm_pool_destroy(peer.pool);
        break;
    case OP_READ:
        a->value = byte_at(peer.block, o->a);
        break;
    case OP_OPEN:
        do_open(o, a);
        break;
    case OP_WRITE:
        a->status = usm_copy((char *)peer.opened + o->a, &c, 1);
        break;
    case OP_CLOSE:
        a->status = usm_ipc_close(peer.opened, NULL);
        break;
    case OP_FORK:
        a->status = plain_child(in_child_of_importer, NULL);
        break;
    case OP_LIVE:
        a->status = usm_pool_get_stats(peer.pool, &stats);
        a->value  = stats.blocks;
        break;
    case OP_USER:
        a->status = setgid(65534) == 0 && setuid(65534) == 0 ? USM_OK : USM_E_SYSTEM;
        break;
    case OP_END:
        break;
    }
}

static void servant(void)
{
    for (;;) {
        order  o;
        answer a;

        memset(&a, 0, sizeof a);
        two_receive(TWO_FD, &o, sizeof o);
        if (o.op == OP_END)
            return;
        obey(&o, &a);
        two_send(TWO_FD, &a, sizeof a);
    }
}

static void churn(void);

static const two_role roles[] = {ROLE(servant), ROLE(churn), {NULL, NULL}};

/* ---- telling it ----------------------------------------------------------------------------- */

static answer notify(const two_peer *p, order o)
{
    answer a;

    two_send(p->fd, &o, sizeof o);
    two_receive(p->fd, &a, sizeof a);
    return a;
}

static void end(two_peer *p)
{
    order o = {.op = OP_END};

    two_send(p->fd, &o, sizeof o);
    CHECK_INT(two_end(p), 0);
}

/* An owner with a block, and the block's handle. */
static two_peer owner(usm_ipc_handle *handle, int kind, int mode)
{
    two_peer p = two_start("servant", NULL);
    answer   a = notify(&p, (order){.op = OP_ALLOC, .kind = kind, .mode = mode, .a = SIZE});

    CHECK_INT(a.status, USM_OK);
    *handle = a.handle;
    return p;
}

static uint64_t count_of(const two_peer *p, uint64_t which)
{
    return notify(p, (order){.op = OP_STATS, .a = which}).value;
}

static bool stat_becomes(const two_peer *p, uint64_t which, uint64_t value)
{
    for (int i = 0; i < 500; i++) {
        if (count_of(p, which) == value)
            return true;
        (void)usleep(2000);
    }
    return false;
}

static uint64_t opened_here(void)
{
    usm_ipc_stats s = USM_IPC_STATS_INIT;

    CHECK_INT(usm_ipc_get_stats(&s), USM_OK);
    return s.opened;
}

static bool has_pattern(const void *p, size_t offset, size_t size)
{
    unsigned char *text = malloc(size);
    bool           same = true;

    CHECK_INT(usm_copy(text, p, size), USM_OK);
    for (size_t i = 0; i < size; i++)
        same = same && text[i] == pattern(offset + i);
    free(text);
    return same;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void round_trip(int kind)
{
    usm_ipc_handle handle;
    two_peer       p    = owner(&handle, kind, USM_POOL_EXPORT_RW);
    usm_ipc_info   info = USM_IPC_INFO_INIT;
    unsigned char  c    = 0x5a;
    void          *q = NULL, *again = NULL, *base = NULL;
    size_t         size = 0;

    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &q), USM_OK);
    CHECK(has_pattern(q, 0, SIZE));
    CHECK_INT(usm_copy((char *)q + 100, &c, 1), USM_OK);
    CHECK_INT(notify(&p, (order){.op = OP_READ, .a = 100}).value, 0x5a);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &again), USM_OK);
    CHECK(again == q);
    CHECK_INT(usm_ipc_query(q, &info), USM_OK);
    CHECK_INT(info.owner, p.pid);
    CHECK_INT(info.opens, 2);
    CHECK_INT(info.size, SIZE);
    CHECK(info.is_alive && info.is_writable && !info.is_ours);
    CHECK_INT(usm_get_pointer_type((char *)q + 5, NULL), kind);
    CHECK_INT(usm_get_address_range((char *)q + 5, NULL, &base, &size), USM_OK);
    CHECK(base == q);
    CHECK_INT(size, SIZE);
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    CHECK_INT(usm_ipc_close(q, NULL), USM_E_INVALID_POINTER);
    CHECK_INT(usm_get_pointer_type(q, NULL), USM_UNKNOWN);
    CHECK_INT(opened_here(), 0);
    end(&p);
}

static void host_memory_goes_there_and_back(void)
{
    round_trip(USM_HOST);
}

static void device_memory_goes_there_and_back(void)
{
    round_trip(USM_DEVICE);
}

static bool on_level_zero(void)
{
    usm_device_info info = USM_DEVICE_INFO_INIT;
    usm_device     *dev  = NULL;
    size_t          n    = 0;

    CHECK_INT(usm_get_devices(&dev, 1, &n), USM_OK);
    CHECK_INT(usm_device_get_info(dev, &info), USM_OK);
    return strcmp(info.backend, "level_zero") == 0;
}

static void shared_memory_goes_there_and_back(void)
{
    if (!on_level_zero()) /* which has no handles of it: the next case */
        round_trip(USM_SHARED);
}

static void memory_that_a_driver_does_not_share_says_so(void)
{
    usm_pool      *pool = make_pool(USM_SHARED, USM_POOL_EXPORT_RW);
    void          *p    = usm_pool_malloc(pool, 100);
    usm_ipc_handle handle;

    CHECK(p != NULL);
    CHECK_INT(usm_ipc_get(p, NULL, &handle), on_level_zero() ? USM_E_NOT_EXPORTABLE : USM_OK);
    usm_free(p);
    usm_pool_destroy(pool);
}

static void an_interior_pointer_opens_to_the_same_byte(void)
{
    usm_ipc_handle handle;
    two_peer       p    = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    answer         a    = notify(&p, (order){.op = OP_HANDLE, .a = 4321});
    usm_ipc_info   info = USM_IPC_INFO_INIT;
    void          *q = NULL, *first = NULL;

    CHECK_INT(a.status, USM_OK);
    CHECK_INT(usm_ipc_open(&a.handle, NULL, NULL, &q), USM_OK);
    CHECK(has_pattern(q, 4321, 1000));
    CHECK_INT(usm_ipc_query(q, &info), USM_OK);
    CHECK_INT(info.size, SIZE - 4321);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &first), USM_OK);
    CHECK((char *)q - (char *)first == 4321);
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    CHECK_INT(usm_ipc_close(first, NULL), USM_OK);
    end(&p);
}

static void what_is_only_to_be_read_cannot_be_written(void)
{
    usm_ipc_handle handle;
    two_peer       p    = owner(&handle, USM_HOST, USM_POOL_EXPORT_RO);
    usm_ipc_info   info = USM_IPC_INFO_INIT;
    void          *q    = NULL;

    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &q), USM_OK);
    CHECK(has_pattern(q, 0, SIZE));
    CHECK_INT(usm_ipc_query(q, &info), USM_OK);
    CHECK(!info.is_writable);
    if (!on_level_zero()) {
        void *page = (void *)((uintptr_t)q & ~(uintptr_t)4095);

        CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0);
        CHECK_INT(errno, EACCES);
    }
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    end(&p);
}

static void an_imported_pointer_is_not_freed(void)
{
    usm_ipc_handle handle, other;
    two_peer       p = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    void          *q = NULL;

    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &q), USM_OK);
    CHECK_INT(usm_free_ctx(q, NULL), USM_E_IMPORTED);
    CHECK_IN("usm_ipc_close", usm_last_error());
    CHECK(usm_realloc(q, 10, USM_UNKNOWN) == NULL);
    CHECK_INT(usm_last_status(), USM_E_IMPORTED);
    CHECK_INT(usm_ipc_get(q, NULL, &other), USM_E_IMPORTED);
    CHECK(has_pattern(q, 0, 100));
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    end(&p);
}

static void a_handle_that_was_put_is_stale(void)
{
    usm_ipc_handle handle;
    two_peer       p = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    void          *q = NULL, *again = NULL;

    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &q), USM_OK);
    CHECK_INT(usm_ipc_put(&handle, NULL), USM_E_HANDLE);
    CHECK_INT(notify(&p, (order){.op = OP_PUT}).status, USM_OK);
    CHECK_INT(notify(&p, (order){.op = OP_PUT}).status, USM_E_STALE);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &again), USM_E_STALE);
    CHECK(has_pattern(q, 0, SIZE)); /* what is open stays */
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &again), USM_E_STALE);
    CHECK_INT(count_of(&p, STAT_HANDLES), 0);
    end(&p);
}

static void a_handle_of_a_freed_block_is_stale(void)
{
    usm_ipc_handle handle;
    two_peer       p = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    void          *q = NULL;

    CHECK_INT(notify(&p, (order){.op = OP_FREE}).status, USM_OK);
    CHECK_INT(count_of(&p, STAT_DEFERRED), 0);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &q), USM_E_STALE);
    CHECK(q == NULL);
    end(&p);
}

static void a_free_waits_for_those_who_have_the_block_open(void)
{
    usm_ipc_handle handle;
    two_peer       p = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    void          *q = NULL, *again = NULL;

    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &q), USM_OK);
    CHECK_INT(notify(&p, (order){.op = OP_FREE}).status, USM_OK);
    CHECK_INT(count_of(&p, STAT_DEFERRED), 1);
    CHECK_INT(notify(&p, (order){.op = OP_LIVE}).value, 1);
    CHECK_INT(notify(&p, (order){.op = OP_FREE}).status, USM_E_DOUBLE_FREE);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &again), USM_E_STALE);
    CHECK(has_pattern(q, 0, SIZE));
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    CHECK(stat_becomes(&p, STAT_DEFERRED, 0));
    CHECK_INT(notify(&p, (order){.op = OP_LIVE}).value, 0);
    end(&p);
}

static void a_free_waits_no_longer_than_the_importer_lives(void)
{
    usm_ipc_handle handle;
    two_peer       p = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    two_peer       i = two_start("servant", NULL);

    CHECK_INT(notify(&i, (order){.op = OP_OPEN, .handle = handle}).status, USM_OK);
    CHECK_INT(notify(&p, (order){.op = OP_FREE}).status, USM_OK);
    CHECK_INT(count_of(&p, STAT_DEFERRED), 1);
    two_kill(&i);
    CHECK(stat_becomes(&p, STAT_DEFERRED, 0));
    CHECK_INT(notify(&p, (order){.op = OP_LIVE}).value, 0);
    end(&p);
}

static void the_memory_outlives_the_owners_pool(void)
{
    usm_ipc_handle handle;
    two_peer       p = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    void          *q = NULL, *again = NULL;

    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &q), USM_OK);
    (void)notify(&p, (order){.op = OP_POOL_DESTROY});
    CHECK(has_pattern(q, 0, SIZE));
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &again), USM_E_STALE);
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    end(&p);
}

static struct {
    _Atomic(int) losses;
    _Atomic(int) pid, role;
} seen;

static void note_loss(int pid, usm_ipc_role role, void *user)
{
    (void)user;
    seen.pid  = pid;
    seen.role = (int)role;
    atomic_fetch_add(&seen.losses, 1);
}

static void what_is_open_of_an_owner_that_ended_stays_readable(void)
{
    usm_ipc_handle handle;
    two_peer       p    = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    usm_ipc_info   info = USM_IPC_INFO_INIT;
    pid_t          pid  = p.pid;
    void          *q = NULL, *again = NULL;

    usm_ipc_on_loss(note_loss, NULL);
    atomic_store(&seen.losses, 0);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &q), USM_OK);
    two_kill(&p);
    CHECK(two_wait_for(&seen.losses, 1, TWO_WAIT_MS));
    CHECK_INT(seen.pid, pid);
    CHECK_INT(seen.role, USM_IPC_OWNER);
    CHECK(has_pattern(q, 0, SIZE));
    CHECK_INT(usm_ipc_query(q, &info), USM_OK);
    CHECK(!info.is_alive);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &again), USM_E_OWNER_GONE);
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &again), USM_E_OWNER_GONE);
    (void)usleep(20000);
    CHECK_INT(atomic_load(&seen.losses), 1);
    usm_ipc_on_loss(NULL, NULL);
}

static void an_owner_that_started_again_is_gone(void)
{
    usm_ipc_handle  handle, forged;
    usm__ipc_memory m;
    two_peer        p = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    void           *q = NULL;

    CHECK_INT(usm__ipc_handle_decode(&handle, &m), USM_OK);
    m.owner.start--; /* as if the number were another process's now */
    usm__ipc_handle_encode(&m, &forged);
    CHECK_INT(usm_ipc_open(&forged, NULL, NULL, &q), USM_E_OWNER_GONE);
    end(&p);
}

static void another_users_memory_is_refused(void)
{
    usm_ipc_handle  handle;
    usm__ipc_memory m;
    two_peer        p, i;

    if (getuid() != 0)
        SKIP("needs root, to become another user");
    p = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    i = two_start("servant", NULL);
    CHECK_INT(notify(&i, (order){.op = OP_USER}).status, USM_OK);
    CHECK_INT(notify(&i, (order){.op = OP_OPEN, .handle = handle}).status, USM_E_PERMISSION);
    CHECK_INT(usm__ipc_handle_decode(&handle, &m), USM_OK);
    m.owner.uid = 65534;
    usm__ipc_handle_encode(&m, &handle);
    CHECK_INT(notify(&i, (order){.op = OP_OPEN, .handle = handle}).status, USM_E_PERMISSION);
    end(&i);
    end(&p);
}

static void a_private_pools_memory_is_not_exported(void)
{
    usm_pool      *pool = make_pool(USM_HOST, USM_POOL_PRIVATE);
    void          *p    = usm_pool_malloc(pool, 100);
    usm_ipc_handle handle;
    int            local = 0;

    CHECK(p != NULL);
    CHECK_INT(usm_ipc_get(p, NULL, &handle), USM_E_NOT_EXPORTABLE);
    CHECK_IN("export_mode", usm_last_error());
    usm_free(p);
    CHECK_INT(usm_ipc_get(&local, NULL, &handle), USM_E_INVALID_POINTER);
    usm_pool_destroy(pool);
}

static void opened_by_its_owner_it_is_the_block_itself(void)
{
    usm_pool      *pool  = make_pool(USM_HOST, USM_POOL_EXPORT_RW);
    char          *p     = usm_pool_malloc(pool, 1000);
    usm_ipc_info   info  = USM_IPC_INFO_INIT;
    usm_pool_stats stats = USM_POOL_STATS_INIT;
    usm_ipc_handle handle;
    void          *q = NULL;

    CHECK_INT(usm_ipc_get(p + 10, NULL, &handle), USM_OK);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &q), USM_OK);
    CHECK(q == p + 10);
    CHECK_INT(usm_ipc_query(q, &info), USM_OK);
    CHECK(info.is_ours && info.is_alive);
    CHECK_INT(info.owner, getpid());
    CHECK_INT(usm_free_ctx(p, NULL), USM_OK); /* put off */
    CHECK_INT(usm_pool_get_stats(pool, &stats), USM_OK);
    CHECK_INT(stats.blocks, 1);
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    CHECK_INT(usm_pool_get_stats(pool, &stats), USM_OK);
    CHECK_INT(stats.blocks, 0);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &q), USM_E_STALE);
    usm_pool_destroy(pool);
}

/* Of a sound handle: bytes changed, cut short, of another version; then whole ones that lie. */
static void a_thousand_wrong_handles_are_refused(void)
{
    usm_ipc_handle  good, bad;
    usm__ipc_memory m;
    two_peer        p    = owner(&good, USM_HOST, USM_POOL_EXPORT_RW);
    void           *q    = NULL;
    unsigned        seed = 12345;

    for (int i = 0; i < 600; i++) {
        bad  = good;
        seed = seed * 1103515245u + 12345u;
        if (i % 3 == 2)
            memset(bad.bytes + seed % 191, 0, 192 - seed % 191);
        else
            bad.bytes[seed / 7 % 192] ^= (uint8_t)(1u + seed / 65536 % 255);
        if (memcmp(&bad, &good, sizeof bad) != 0)
            CHECK_INT(usm_ipc_open(&bad, NULL, NULL, &q), USM_E_HANDLE);
    }
    CHECK_INT(usm__ipc_handle_decode(&good, &m), USM_OK);
    for (int i = 0; i < 400; i++) {
        usm__ipc_memory f    = m;
        usm_status      want = USM_E_STALE;

        switch (i % 5) {
        case 0:
            f.number += (uint64_t)i + 1;
            break;
        case 1:
            f.slot = (uint32_t)(i + 1) % 4096;
            break;
        case 2:
            f.page_nonce += (uint64_t)i + 1;
            break;
        case 3:
            f.owner.start += (uint64_t)i + 1;
            want = USM_E_OWNER_GONE;
            break;
        default:
            f.owner.secret += (uint64_t)i + 1;
            want = USM_E_OWNER_GONE;
            break;
        }
        usm__ipc_handle_encode(&f, &bad);
        CHECK_INT(usm_ipc_open(&bad, NULL, NULL, &q), want);
    }
    CHECK(q == NULL);
    CHECK_INT(usm_ipc_open(&good, NULL, NULL, &q), USM_OK);
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    end(&p);
}

static void fork_with_things_open(void)
{
    usm_ipc_handle handle;
    two_peer       p = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    two_peer       i;

    if (TWO_TSAN)
        return;
    i = two_start("servant", NULL);
    CHECK_INT(notify(&i, (order){.op = OP_OPEN, .a = 9, .handle = handle}).value, pattern(9));
    CHECK_INT(notify(&i, (order){.op = OP_FORK}).status, 0);
    CHECK_INT(notify(&p, (order){.op = OP_FREE}).status, USM_OK);
    CHECK_INT(count_of(&p, STAT_DEFERRED), 1); /* the child's end ended nothing */
    CHECK_INT(notify(&i, (order){.op = OP_CLOSE}).status, USM_OK);
    CHECK(stat_becomes(&p, STAT_DEFERRED, 0));
    end(&i);
    end(&p);
}

static void a_block_freed_in_a_queue_waits_as_well(void)
{
    usm_ipc_handle handle;
    two_peer       p = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    void          *q = NULL, *again = NULL;

    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &q), USM_OK);
    CHECK_INT(usm_async_free(usm_default_queue(), q), USM_E_IMPORTED);
    CHECK_INT(notify(&p, (order){.op = OP_ASYNC_FREE}).status, USM_OK);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &again), USM_E_STALE);
    CHECK(stat_becomes(&p, STAT_DEFERRED, 1));
    CHECK(has_pattern(q, 0, SIZE));
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    CHECK(stat_becomes(&p, STAT_DEFERRED, 0));
    end(&p);
}

static void a_pool_is_not_reset_while_others_have_it_open(void)
{
    usm_pool_desc  desc = USM_POOL_DESC_INIT;
    usm_pool      *pool = NULL;
    two_peer       i    = two_start("servant", NULL);
    usm_ipc_handle handle, kept;
    usm_pool_mark  mark;
    void          *p, *q = NULL;

    desc.name        = "arena";
    desc.export_mode = USM_POOL_EXPORT_RW;
    CHECK_INT(usm_pool_create(usm_default_context(), NULL, USM_HOST, &desc, &pool), USM_OK);
    CHECK_INT(usm_ipc_get(usm_pool_malloc(pool, 100), NULL, &kept), USM_OK);
    CHECK_INT(usm_pool_set_mark(pool, &mark), USM_OK);
    p = usm_pool_malloc(pool, 1000);
    fill(p, 1000);
    CHECK_INT(usm_ipc_get(p, NULL, &handle), USM_OK);
    CHECK_INT(notify(&i, (order){.op = OP_OPEN, .a = 3, .handle = handle}).value, pattern(3));
    CHECK_INT(usm_pool_reset(pool), USM_E_BUSY);
    CHECK_INT(usm_pool_reset_to(pool, &mark), USM_E_BUSY);
    CHECK_INT(notify(&i, (order){.op = OP_OPEN, .handle = handle}).status, USM_OK); /* still */
    CHECK_INT(notify(&i, (order){.op = OP_CLOSE}).status, USM_OK);
    CHECK_INT(notify(&i, (order){.op = OP_CLOSE}).status, USM_OK);
    CHECK_INT(usm_pool_reset_to(pool, &mark), USM_OK);
    CHECK_INT(notify(&i, (order){.op = OP_OPEN, .handle = handle}).status, USM_E_STALE);
    CHECK_INT(usm_ipc_open(&kept, NULL, NULL, &q), USM_OK); /* older than the mark */
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    CHECK_INT(usm_pool_reset(pool), USM_OK);
    CHECK_INT(usm_ipc_open(&kept, NULL, NULL, &q), USM_E_STALE);
    usm_pool_destroy(pool);
    end(&i);
}

static usm_pool    *inherited;
static usm_context *inherited_context;
static void        *inherited_block;

static void in_child_of_owner(void)
{
    usm_pool_desc  desc  = USM_POOL_DESC_INIT;
    usm_pool      *fresh = NULL;
    usm_ipc_handle handle;

    CHECK(usm_pool_malloc(inherited, 10) == NULL);
    CHECK_INT(usm_last_status(), USM_E_FORKED);
    CHECK_INT(usm_free_ctx(inherited_block, NULL), USM_OK); /* does nothing */
    CHECK_INT(usm_ipc_get(inherited_block, NULL, &handle), USM_E_FORKED);
    desc.export_mode = USM_POOL_EXPORT_RW;
    CHECK_INT(usm_pool_create(inherited_context, NULL, USM_HOST, &desc, &fresh), USM_E_FORKED);
}

static void pools_that_export_are_inert_in_a_forked_child(void)
{
    usm_ipc_handle handle;
    void          *q = NULL;

    inherited         = make_pool(USM_HOST, USM_POOL_EXPORT_RW);
    inherited_context = usm_default_context();
    inherited_block   = usm_pool_malloc(inherited, 100);
    fill(inherited_block, 100);
    CHECK_INT(usm_ipc_get(inherited_block, NULL, &handle), USM_OK);
    CHECK_INT(plain_child(in_child_of_owner, NULL), 0);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &q), USM_OK);
    CHECK(has_pattern(q, 0, 100));
    CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    usm_free(inherited_block);
    usm_pool_destroy(inherited);
}

/* The owner frees and allocates again as fast as it can: what is open here must not change. */
static void churn(void)
{
    usm_pool *pool = make_pool(USM_HOST, USM_POOL_EXPORT_RW);

    for (int64_t turn = 1;; turn++) {
        unsigned char *p = usm_pool_malloc(pool, 4096);
        usm_ipc_handle handle;

        CHECK(p != NULL);
        memset(p, (int)(turn % 251), 4096);
        CHECK_INT(usm_ipc_get(p, NULL, &handle), USM_OK);
        if (send(TWO_FD, &handle, sizeof handle, MSG_NOSIGNAL) < 0)
            return;
        if (two_hear(TWO_FD) != turn) /* it is being opened now */
            return;
        for (volatile int i = 0; i < (int)(turn * 7919 % 9000); i++)
            ;
        CHECK_INT(usm_free_ctx(p, NULL), USM_OK);
    }
}

static void what_is_open_is_never_used_again_by_its_owner(void)
{
    two_peer p      = two_start("churn", NULL);
    int      opened = 0;

    for (int turn = 1; turn <= 2000; turn++) {
        usm_ipc_handle handle;
        unsigned char *q = NULL;
        usm_status     st;

        two_receive(p.fd, &handle, sizeof handle);
        two_tell(p.fd, turn);
        st = usm_ipc_open(&handle, NULL, NULL, (void **)&q);
        if (st == USM_E_STALE)
            continue;
        CHECK_INT(st, USM_OK);
        opened++;
        for (int i = 0; i < 4096; i++)
            CHECK_INT(((volatile unsigned char *)q)[i], turn % 251);
        CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    }
    CHECK(opened > 0);
    two_kill(&p);
}

/* As handles of many blocks come: threads open and close what others do at the same moment. */
#define THREADS 4
static struct {
    usm_ipc_handle handles[8];
} shared_by_threads;

static void *open_and_close(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;

    for (int i = 0; i < 2000; i++) {
        unsigned      k;
        unsigned char c = 0;
        void         *q = NULL;

        seed = seed * 1103515245u + 12345u;
        k    = seed / 65536 % 8;
        CHECK_INT(usm_ipc_open(&shared_by_threads.handles[k], NULL, NULL, &q), USM_OK);
        memcpy(&c, q, 1);
        CHECK_INT(c, pattern(k * 100));
        if (i % 100 == 0)
            usm_ipc_trim();
        CHECK_INT(usm_ipc_close(q, NULL), USM_OK);
    }
    return NULL;
}

static void threads_open_and_close_at_once(void)
{
    usm_ipc_handle handle;
    two_peer       p = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    pthread_t      thread[THREADS];

    for (unsigned k = 0; k < 8; k++)
        shared_by_threads.handles[k] = notify(&p, (order){.op = OP_HANDLE, .a = k * 100}).handle;
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, open_and_close, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK_INT(opened_here(), 0);
    CHECK_INT(notify(&p, (order){.op = OP_FREE}).status, USM_OK);
    CHECK_INT(count_of(&p, STAT_DEFERRED), 0);
    end(&p);
}

static void with_the_context_goes_what_was_opened_in_it(void)
{
    usm_ipc_handle   handle;
    two_peer         p    = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_context     *ctx  = NULL;
    usm_device      *dev  = NULL;
    size_t           n    = 0;
    void            *q = NULL, *other = NULL;

    CHECK_INT(usm_get_devices(&dev, 1, &n), USM_OK);
    desc.ndevices = 1;
    desc.devices  = &dev;
    CHECK_INT(usm_context_create(&desc, &ctx), USM_OK);
    CHECK_INT(usm_ipc_open(&handle, ctx, dev, &q), USM_OK);
    CHECK_INT(usm_ipc_open(&handle, NULL, NULL, &other), USM_OK);
    CHECK(q != other);
    CHECK_INT(usm_ipc_close(q, usm_default_context()), USM_E_WRONG_CONTEXT);
    CHECK_INT(notify(&p, (order){.op = OP_FREE}).status, USM_OK);
    usm_context_destroy(ctx);
    CHECK_INT(usm_ipc_close(q, NULL), USM_E_INVALID_POINTER);
    CHECK_INT(count_of(&p, STAT_DEFERRED), 1);
    CHECK_INT(usm_ipc_close(other, NULL), USM_OK);
    CHECK(stat_becomes(&p, STAT_DEFERRED, 0));
    end(&p);
}

static int mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    int   n = 0;
    char  line[512];

    CHECK(f != NULL);
    while (fgets(line, sizeof line, f) != NULL)
        n += strstr(line, "memfd:usm-") != NULL;
    (void)fclose(f);
    return n;
}

static void descriptors_and_mappings_return_to_the_start(void)
{
    int fds, maps;

    usm_ipc_trim();
    fds  = two_settled_descriptors();
    maps = mappings();
    for (int i = 0; i < 3; i++) {
        host_memory_goes_there_and_back();
        a_free_waits_for_those_who_have_the_block_open();
        what_is_open_of_an_owner_that_ended_stays_readable();
    }
    usm_ipc_trim();
    for (int ms = 0; ms < 2000 && (two_descriptors() != fds || mappings() != maps); ms++)
        (void)usleep(1000);
    CHECK_INT(two_descriptors(), fds);
    CHECK_INT(mappings(), maps);
}

static void exit_with_memory_open(void)
{
    usm_ipc_handle handle;
    two_peer       p = owner(&handle, USM_HOST, USM_POOL_EXPORT_RW);
    two_peer       i = two_start("servant", NULL);

    CHECK_INT(notify(&i, (order){.op = OP_OPEN, .handle = handle}).status, USM_OK);
    end(&i);
    end(&p);
}

static const plain_case cases[] = {
    CASE(host_memory_goes_there_and_back),
    CASE(device_memory_goes_there_and_back),
    CASE(shared_memory_goes_there_and_back),
    CASE(memory_that_a_driver_does_not_share_says_so),
    CASE(an_interior_pointer_opens_to_the_same_byte),
    CASE(what_is_only_to_be_read_cannot_be_written),
    CASE(an_imported_pointer_is_not_freed),
    CASE(a_handle_that_was_put_is_stale),
    CASE(a_handle_of_a_freed_block_is_stale),
    CASE(a_free_waits_for_those_who_have_the_block_open),
    CASE(a_free_waits_no_longer_than_the_importer_lives),
    CASE(the_memory_outlives_the_owners_pool),
    CASE(what_is_open_of_an_owner_that_ended_stays_readable),
    CASE(an_owner_that_started_again_is_gone),
    CASE(another_users_memory_is_refused),
    CASE(a_private_pools_memory_is_not_exported),
    CASE(opened_by_its_owner_it_is_the_block_itself),
    CASE(a_thousand_wrong_handles_are_refused),
    CASE(fork_with_things_open),
    CASE(a_block_freed_in_a_queue_waits_as_well),
    CASE(a_pool_is_not_reset_while_others_have_it_open),
    CASE(pools_that_export_are_inert_in_a_forked_child),
    CASE(what_is_open_is_never_used_again_by_its_owner),
    CASE(threads_open_and_close_at_once),
    CASE(with_the_context_goes_what_was_opened_in_it),
    CASE(descriptors_and_mappings_return_to_the_start),
    CASE(exit_with_memory_open),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return two_main(argc, argv, cases, roles);
}
