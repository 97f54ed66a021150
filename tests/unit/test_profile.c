/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* src/profile: reading, joining and analysing traces.  The traces are made here, byte by byte, so
 * that every figure is known. */
#include "base/trace_work.h"
#include "plain.h"
#include "profile/analyse.h"
#include "profile/export.h"
#include "profile/trace.h"

#include <inttypes.h>

/* --- a trace under construction ------------------------------------------------ */

typedef struct maker {
    unsigned char     data[1 << 20];
    size_t            size;
    usm__trace_packed events[4096];
    size_t            nevents;
} maker;

static maker made, made_too;

static void put(maker *m, const void *data, size_t size)
{
    CHECK(m->size + size <= sizeof(m->data));
    memcpy(m->data + m->size, data, size);
    m->size += size;
}

static void put_chunk(maker *m, usm__trace_kind kind, uint32_t thread, const void *data,
                      size_t size)
{
    usm__trace_chunk c = {(uint32_t)kind, thread, (uint32_t)size, usm__trace_check(data, size)};

    put(m, &c, sizeof(c));
    put(m, data, size);
}

static void begin(maker *m, uint32_t pid, uint64_t start_real_ns)
{
    usm__trace_header h = {.version       = USM__TRACE_VERSION,
                           .header_size   = sizeof(h),
                           .byte_order    = USM__TRACE_BYTE_ORDER,
                           .pid           = pid,
                           .rank          = (int32_t)pid - 1,
                           .start_real_ns = start_real_ns,
                           .host          = "node",
                           .command       = "./app"};

    memcpy(h.magic, USM__TRACE_MAGIC, sizeof(h.magic));
    m->size = m->nevents = 0;
    put(m, &h, sizeof(h));
}

static void put_pool(maker *m, uint32_t id, const char *name)
{
    struct {
        uint32_t id, kind;
        char     name[32], device[64];
    } pool = {.id = id, .kind = 2};

    (void)snprintf(pool.name, sizeof(pool.name), "%s", name);
    (void)snprintf(pool.device, sizeof(pool.device), "host:0");
    put_chunk(m, USM__CHUNK_POOL, 0, &pool, sizeof(pool));
}

static void put_tag(maker *m, uint32_t id, const char *name)
{
    struct {
        uint32_t id;
        char     name[64];
    } tag = {.id = id};

    (void)snprintf(tag.name, sizeof(tag.name), "%s", name);
    put_chunk(m, USM__CHUNK_TAG, 0, &tag, sizeof(tag));
}

static void put_space(maker *m, uint32_t id, const char *name)
{
    struct {
        uint32_t id, zero;
        uint64_t block_size, blocks;
        char     name[48];
    } space = {.id = id, .block_size = 1 << 20, .blocks = 64};

    (void)snprintf(space.name, sizeof(space.name), "%s", name);
    put_chunk(m, USM__CHUNK_SPACE, 0, &space, sizeof(space));
}

static void put_tier(maker *m, uint32_t id, const char *name)
{
    struct {
        uint32_t id, zero;
        char     name[64];
    } tier = {.id = id};

    (void)snprintf(tier.name, sizeof(tier.name), "%s", name);
    put_chunk(m, USM__CHUNK_TIER, 0, &tier, sizeof(tier));
}

static void put_name(maker *m, usm__trace_kind kind, uint32_t id, const char *name)
{
    struct {
        uint32_t id, zero;
        char     name[64];
    } named = {.id = id};

    (void)snprintf(named.name, sizeof(named.name), "%s", name);
    put_chunk(m, kind, 0, &named, sizeof(named));
}

static void put_stack(maker *m, uint32_t id, uint64_t address)
{
    struct {
        uint32_t id, n;
        uint64_t frames[2];
    } stack = {id, 2, {address, 0x1000}};

    put_chunk(m, USM__CHUNK_STACK, 0, &stack, sizeof(stack));
}

static void event(maker *m, usm__trace_type type, uint64_t time, uint64_t address, uint64_t size)
{
    CHECK(m->nevents < sizeof(m->events) / sizeof(m->events[0]));
    m->events[m->nevents++] = (usm__trace_packed){
        .time = time, .address = address, .size = size, .pool = 1, .type = (uint8_t)type};
}

static usm__trace_packed *last(maker *m)
{
    return &m->events[m->nevents - 1];
}

/* Of space `space`, tier 1, block 7. */
static void spill(maker *m, usm__trace_spill_kind kind, uint64_t time, uint32_t space,
                  uint64_t bytes)
{
    event(m, USM__EVENT_ALLOC, time, 7 | (uint64_t)3 << 32, bytes);
    last(m)->type  = (uint8_t)(USM__EVENT_SPILL + (unsigned)kind);
    last(m)->tag   = (uint16_t)space;
    last(m)->extra = usm__ns_pack(time / 2);
}

/* Of member `member`, kernel 1.  first: of a part, how long ago it ended. */
static void did(maker *m, usm__trace_work_kind kind, uint64_t time, uint32_t member, uint64_t ns,
                uint64_t first, uint64_t n)
{
    event(m, USM__EVENT_ALLOC, time, first, n);
    last(m)->type  = (uint8_t)(USM__EVENT_WORK + (unsigned)kind);
    last(m)->tag   = 1;
    last(m)->pool  = (uint8_t)member;
    last(m)->extra = usm__ns_pack(ns);
}

static void put_events(maker *m, uint32_t thread)
{
    put_chunk(m, USM__CHUNK_EVENTS, thread, m->events, m->nevents * sizeof(m->events[0]));
    m->nevents = 0;
}

static void end(maker *m)
{
    put_chunk(m, USM__CHUNK_END, 0, "", 0);
}

static usm__profile *parse(const maker *m)
{
    usm__profile *t = NULL;

    CHECK_INT(usm__profile_parse(m->data, m->size, "made", &t), USM_OK);
    return t;
}

/* One of each chunk. */
static void make_small(maker *m, uint32_t pid, uint64_t start_real_ns)
{
    uint64_t lost = 3;

    begin(m, pid, start_real_ns);
    put_pool(m, 1, "slab");
    put_tag(m, 5, "solver");
    put_stack(m, 9, 0x5555);
    event(m, USM__EVENT_TAKE, 10, 0x100000, 1 << 20);
    last(m)->extra = 500;
    event(m, USM__EVENT_ALLOC, 20, 0x100000, 100);
    last(m)->extra = 9 | usm__slack_pack(28) << 16;
    last(m)->tag   = 5;
    put_events(m, 1);
    event(m, USM__EVENT_FREE, 15, 0x200000, 0);
    event(m, USM__EVENT_FREE, 30, 0x100000, 0);
    put_events(m, 2);
    put_chunk(m, USM__CHUNK_MAP, 0, "5000-6000 r-xp 0 0:0 1 /nowhere/app\n", 36);
    put_chunk(m, USM__CHUNK_LOST, 2, &lost, sizeof(lost));
    put_chunk(m, (usm__trace_kind)77, 0, "of the future", 13);
    end(m);
}

/* --- reading ------------------------------------------------------------------------ */

static void a_whole_trace_is_read(void)
{
    static const uint64_t times[] = {10, 15, 20, 30};
    usm__profile         *t;

    make_small(&made, 1, 1000);
    t = parse(&made);
    CHECK_STR(t->damage, "");
    CHECK(t->ended);
    CHECK_INT(t->lost, 3);
    CHECK_INT(t->nrecords, 4);
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(t->records[i].e.time_ns, times[i]);
    CHECK_INT(t->records[2].e.usable, 128);
    CHECK_INT(t->records[2].e.extra, 1);
    CHECK_INT(t->stacks[0].depth, 2);
    CHECK_INT(t->stacks[0].frames[0], 0x5555);
    CHECK_STR(t->tags[t->records[2].e.tag], "solver");
    CHECK_INT(t->records[1].thread, 2);
    CHECK_STR(usm__profile_find_pool(t, 1)->name, "slab");
    CHECK(usm__profile_find_pool(t, 0) == NULL);
    CHECK(usm__profile_find_stack(t, 2) == NULL);
    CHECK_IN("/nowhere/app", t->sources[0].maps);
    usm__profile_close(t);
    usm__profile_close(NULL);
}

/* A copy of exactly that size, so that a sanitizer sees every byte read beyond. */
static usm_status parse_copy(const unsigned char *data, size_t size, usm__profile **t)
{
    unsigned char *copy = malloc(size ? size : 1);
    usm_status     st;

    CHECK(copy != NULL);
    memcpy(copy, data, size);
    st = usm__profile_parse(copy, size, "made", t);
    free(copy);
    return st;
}

static void a_trace_cut_anywhere_gives_what_comes_before(void)
{
    size_t records = 0;

    make_small(&made, 1, 1000);
    for (size_t size = 0; size < made.size; size++) {
        usm__profile *t  = NULL;
        usm_status    st = parse_copy(made.data, size, &t);

        if (size < sizeof(usm__trace_header)) {
            CHECK_INT(st, USM_E_FORMAT);
            CHECK(t == NULL);
            continue;
        }
        CHECK_INT(st, USM_OK);
        CHECK(!t->ended);
        CHECK(t->nrecords >= records);
        records = t->nrecords;
        if (t->damage[0] != '\0')
            CHECK_IN("the file ends within it", t->damage);
        usm__profile_close(t);
    }
    CHECK_INT(records, 4);
}

static void a_byte_changed_anywhere_is_noticed_or_harmless(void)
{
    usm__profile *whole;

    make_small(&made, 1, 1000);
    whole = parse(&made);
    for (size_t at = 0; at < made.size; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            usm__profile *t   = NULL;
            unsigned char was = made.data[at];
            usm_status    st;

            made.data[at] ^= (unsigned char)(1u << bit);
            st            = parse_copy(made.data, made.size, &t);
            made.data[at] = was;
            CHECK(st == USM_OK || st == USM_E_FORMAT);
            if (st != USM_OK)
                continue;
            CHECK(t->nrecords <= whole->nrecords);
            /* Events are behind checksums: those that are read are right. */
            for (size_t i = 0; i < t->nrecords && t->nrecords == whole->nrecords; i++)
                CHECK_INT(t->records[i].e.address, whole->records[i].e.address);
            usm__profile_close(t);
        }
    }
    usm__profile_close(whole);
}

static void refuse(size_t offset, uint32_t value, const char *why)
{
    usm__profile *t = NULL;

    make_small(&made, 1, 1000);
    memcpy(made.data + offset, &value, sizeof(value));
    CHECK_INT(usm__profile_parse(made.data, made.size, "made", &t), USM_E_FORMAT);
    CHECK_IN(why, usm_last_error());
}

static void what_is_no_trace_is_refused_with_the_reason(void)
{
    usm__profile *t = NULL;

    refuse(0, 0x464c457f, "not a trace of libusm");
    refuse(offsetof(usm__trace_header, version), 99, "version");
    refuse(offsetof(usm__trace_header, byte_order), 0x04030201, "byte order");
    CHECK_INT(usm__profile_open(plain_path("absent"), &t), USM_E_SYSTEM);
    CHECK_IN("No such file", usm_last_error());
    plain_write(plain_path("text"), "hello");
    CHECK_INT(usm__profile_open(plain_path("text"), &t), USM_E_FORMAT);
    CHECK_IN("too short", usm_last_error());
}

static void chunks_that_lie_with_a_right_checksum_are_damage(void)
{
    static const struct {
        usm__trace_kind kind;
        size_t          size;
    } lies[] = {{USM__CHUNK_POOL, 104},  {USM__CHUNK_POOL, 4},    {USM__CHUNK_TAG, 68},
                {USM__CHUNK_TAG, 1},     {USM__CHUNK_STACK, 8},   {USM__CHUNK_STACK, 16},
                {USM__CHUNK_STACK, 3},   {USM__CHUNK_LOST, 4},    {USM__CHUNK_EVENTS, 32},
                {USM__CHUNK_EVENTS, 31}, {USM__CHUNK_SOURCE, 10}, {USM__CHUNK_SOURCE, 376}};
    unsigned char zeros[512] = {0};

    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        usm__profile *t;

        begin(&made, 1, 0);
        put_chunk(&made, lies[i].kind, 1, zeros, lies[i].size);
        t = parse(&made);
        CHECK_IN("cannot be read", t->damage);
        usm__profile_close(t);
    }
}

/* --- joining -------------------------------------------------------------------------- */

static const char *save(const maker *m, const char *name)
{
    const char *path = plain_path(name);
    FILE       *file = fopen(path, "we");

    CHECK(file != NULL);
    CHECK(fwrite(m->data, 1, m->size, file) == m->size);
    CHECK(fclose(file) == 0);
    return path;
}

static usm__profile *join(size_t n, char *const *paths)
{
    usm__profile *t = NULL;
    char          out[512];

    (void)snprintf(out, sizeof(out), "%s", plain_path("joined"));
    if (usm__profile_merge(n, paths, out) != USM_OK)
        printf("# %s\n", usm_last_error());
    CHECK_INT(usm__profile_open(out, &t), USM_OK);
    return t;
}

static void traces_are_joined_by_real_time(void)
{
    static const uint64_t times[] = {10, 12, 15, 17, 20, 22, 30, 32};
    char                  a[512], b[512], c[512];
    usm__profile         *t;

    make_small(&made, 1, 5000);
    make_small(&made_too, 2, 5002); /* two ns later */
    (void)snprintf(a, sizeof(a), "%s", save(&made, "a"));
    (void)snprintf(b, sizeof(b), "%s", save(&made_too, "b"));
    t = join(2, (char *[]){b, a});
    CHECK_STR(t->damage, "");
    CHECK(t->ended);
    CHECK_INT(t->nrecords, 8);
    for (size_t i = 0; i < 8; i++) {
        CHECK_INT(t->records[i].e.time_ns, times[i]);
        CHECK_INT(t->records[i].source, i % 2 == 0); /* b came first */
    }
    CHECK_INT(t->nsources, 2);
    CHECK_INT(t->sources[0].header.rank, 1);
    CHECK_INT(t->sources[1].header.rank, 0);
    CHECK_STR(t->sources[1].header.host, "node");
    CHECK_INT(t->npools, 2);
    CHECK_INT(t->records[0].e.pool, 2);
    CHECK_INT(t->records[1].e.pool, 1);
    CHECK_INT(t->ntags, 2); /* one name in both */
    CHECK_INT(t->nstacks, 2);
    CHECK(t->records[4].e.extra != t->records[5].e.extra);
    CHECK(t->records[0].thread != t->records[1].thread);
    CHECK_INT(t->lost, 6);
    usm__profile_close(t);
    (void)snprintf(c, sizeof(c), "%s", plain_path("joined-before"));
    CHECK(rename(plain_path("joined"), c) == 0);
    made.size -= 20; /* cut in its last chunks: the end is missing */
    (void)snprintf(a, sizeof(a), "%s", save(&made, "a"));
    t = join(2, (char *[]){c, a}); /* a joined one is joined again */
    CHECK_STR(t->damage, "");
    CHECK(!t->ended);
    CHECK_INT(t->nsources, 3);
    CHECK_INT(t->nrecords, 12);
    usm__profile_close(t);
    make_small(&made, 1, 5000);
    made.data[made.size - sizeof(usm__trace_chunk) - 1] ^= 1; /* in what lies before its end */
    (void)snprintf(a, sizeof(a), "%s", save(&made, "a"));
    t = join(2, (char *[]){a, b}); /* what is damaged stays out, and hides nothing behind it */
    CHECK_STR(t->damage, "");
    CHECK_INT(t->nsources, 2);
    CHECK(t->nrecords >= 4);
    usm__profile_close(t);
}

static void what_cannot_be_joined_is_named(void)
{
    char text[512];

    plain_write(plain_path("letter"), "Dear reader");
    (void)snprintf(text, sizeof(text), "%s", plain_path("letter"));
    CHECK_INT(usm__profile_merge(1, (char *[]){text}, plain_path("out")), USM_E_FORMAT);
    CHECK_IN("letter", usm_last_error());
    CHECK(access(plain_path("out"), F_OK) != 0);
    CHECK_INT(usm__profile_merge(0, NULL, plain_path("out")), USM_E_INVALID);
}

/* --- analysing ---------------------------------------------------------------------------- */

static usm__analysis *analyse(const usm__profile *t)
{
    usm__analysis *a = NULL;

    CHECK_INT(usm__analyse(t, &a), USM_OK);
    return a;
}

static bool advises(const usm__analysis *a, const char *what)
{
    for (size_t i = 0; i < a->nadvice; i++)
        if (strstr(a->advice[i], what) != NULL)
            return true;
    return false;
}

/* 400 blocks of 4 KiB, one after the other at one address, each living 1 us; the driver is asked
 * `takes` times, 300 ns each. */
static void make_loop(maker *m, const char *pool, int takes)
{
    begin(m, 1, 0);
    put_pool(m, 1, pool);
    for (uint64_t i = 0; i < 400; i++) {
        if (i < (uint64_t)takes) {
            event(m, USM__EVENT_TAKE, i * 2000, 0x100000, 4096);
            last(m)->extra = 300;
        }
        event(m, USM__EVENT_ALLOC, i * 2000 + 1, 0x100000, 4096);
        event(m, USM__EVENT_FREE, i * 2000 + 1001, 0x100000, 0);
        if (i < (uint64_t)takes && takes > 1) {
            event(m, USM__EVENT_GIVE, i * 2000 + 1002, 0x100000, 4096);
            last(m)->extra = 100;
        }
    }
    put_events(m, 1);
    end(m);
}

static void reuse_is_what_needed_no_driver(void)
{
    usm__profile  *t;
    usm__analysis *a;

    make_loop(&made, "slab", 1);
    t = parse(&made);
    a = analyse(t);
    CHECK_INT(a->all.allocations, 400);
    CHECK_INT(a->all.hits, 399);
    CHECK_INT(a->take_ns, 300);
    CHECK_INT(a->npools, 1);
    CHECK_INT(a->pools[0].takes, 1);
    CHECK_INT(a->pools[0].avoided, 399 + 400);
    CHECK_INT(a->pools[0].avoided_ns, 399 * 300);
    CHECK_INT(a->pools[0].reserved_peak, 4096);
    CHECK_INT(a->pools[0].live_then, 4096);
    CHECK_INT(a->classes.n, 1);
    CHECK_STR(a->classes.rows[0].name, "2 KiB..4 KiB");
    CHECK_INT(a->classes.rows[0].brief, 400);
    CHECK((uint64_t)a->classes.rows[0].life_ns == UINT64_C(400) * 1000);
    CHECK_INT(a->all.live, 0);
    CHECK_INT(a->all.live_peak, 4096);
    CHECK_INT(a->nadvice, 0);
    usm__analysis_free(a);
    usm__profile_close(t);
}

static void a_direct_pool_is_told_what_slab_would_save(void)
{
    usm__profile  *t;
    usm__analysis *a;

    make_loop(&made, "direct", 400);
    t = parse(&made);
    a = analyse(t);
    CHECK_INT(a->all.hits, 0);
    CHECK_INT(a->pools[0].avoided, 0);
    CHECK_INT(a->pools[0].repeats, 399);
    CHECK(advises(a, "the pool slab would have saved about 160 us"));
    CHECK(!advises(a, "2 KiB..4 KiB"));
    usm__analysis_free(a);
    usm__profile_close(t);
}

static void a_pool_that_gives_up_too_soon_is_told(void)
{
    usm__profile  *t;
    usm__analysis *a;

    make_loop(&made, "slab", 400);
    t = parse(&made);
    a = analyse(t);
    CHECK(advises(a, "2 KiB..4 KiB: 400 allocations lived 1 us on average, and 100 %"));
    CHECK(advises(a, "took areas 400 times and gave 400 back"));
    CHECK(!advises(a, "the pool slab would have saved"));
    usm__analysis_free(a);
    usm__profile_close(t);
}

static void leaks_failures_and_hoards_are_told(void)
{
    usm__profile  *t;
    usm__analysis *a;
    uint64_t       lost = 7;

    begin(&made, 1, 0);
    put_pool(&made, 1, "slab");
    put_tag(&made, 1, "solver");
    event(&made, USM__EVENT_TAKE, 1, 0x10000000, 64 << 20);
    for (uint64_t i = 0; i < 3; i++) {
        event(&made, USM__EVENT_ALLOC, 2 + i, 0x10000000 + i * 4096, 4096);
        last(&made)->tag = 1;
    }
    event(&made, USM__EVENT_TAKE, 8, 0, 1 << 30);
    event(&made, USM__EVENT_FAILED, 9, 0, 1 << 30);
    put_events(&made, 1);
    end(&made);
    t = parse(&made);
    a = analyse(t);
    CHECK(advises(a, "Tag solver leaks 3 blocks (12 KiB)"));
    CHECK(advises(a, "Pool 1 slab device host:0 refused 1 allocation, 1 of them after"));
    CHECK(advises(a, "held up to 64 MiB"));
    CHECK_INT(a->pools[0].refused, 1);
    CHECK_INT(a->pools[0].takes, 1);
    CHECK_INT(a->tags.rows[0].blocks, 3);
    usm__analysis_free(a);
    usm__profile_close(t);
    made.size -= sizeof(usm__trace_chunk); /* without its end, and with losses: no leak is told */
    put_chunk(&made, USM__CHUNK_LOST, 1, &lost, sizeof(lost));
    t = parse(&made);
    a = analyse(t);
    CHECK(!advises(a, "Tag solver"));
    CHECK(advises(a, "did not end in order"));
    CHECK(advises(a, "7 events were lost"));
    usm__analysis_free(a);
    usm__profile_close(t);
}

static void call_sites_are_scaled_from_their_samples(void)
{
    usm__profile     *t;
    usm__analysis    *a;
    usm__trace_header h;

    begin(&made, 1, 0);
    memcpy(&h, made.data, sizeof(h));
    h.stack_bytes = 1 << 20;
    memcpy(made.data, &h, sizeof(h));
    put_pool(&made, 1, "slab");
    put_stack(&made, 1, 0x5555);
    event(&made, USM__EVENT_ALLOC, 1, 0x1000, 1024); /* one in 1024.5 is sampled */
    last(&made)->extra = 1;
    event(&made, USM__EVENT_ALLOC, 2, 0x8000000, 64 << 20); /* always */
    last(&made)->extra = 1;
    event(&made, USM__EVENT_ALLOC, 3, 0x2000, 1024);
    put_events(&made, 1);
    end(&made);
    t = parse(&made);
    a = analyse(t);
    CHECK_INT(a->sites.n, 1);
    CHECK_INT(a->sites.rows[0].samples, 2);
    CHECK_INT(a->sites.rows[0].allocations, 1025 + 1); /* 1 / (1 - exp(-1/1024)) = 1024.5 */
    CHECK_STR(a->sites.rows[0].name, "0x5555 < 0x1000");
    usm__analysis_free(a);
    usm__profile_close(t);
}

static void an_empty_trace_is_analysed(void)
{
    usm__profile  *t;
    usm__analysis *a;

    begin(&made, 1, 0);
    end(&made);
    t = parse(&made);
    a = analyse(t);
    CHECK_INT(a->all.allocations, 0);
    CHECK_INT(a->npools, 0);
    usm__analysis_free(a);
    usm__analysis_free(NULL);
    usm__profile_close(t);
}

static void events_are_exported_as_lines(void)
{
    char          text[2048];
    const char   *out = plain_path("events.csv");
    usm__profile *t;

    make_small(&made, 1, 1000);
    t = parse(&made);
    CHECK_INT(usm__export_csv(t, out), 0);
    (void)plain_read(out, text, sizeof(text));
    CHECK_IN("time_ns,source,thread,event,pool,tag,address,size,usable,duration_ns,stack\n", text);
    CHECK_IN("10,0,1,take,1,,0x100000,1048576,0,500,0\n", text);
    CHECK_IN("20,0,1,alloc,1,solver,0x100000,100,128,0,1\n", text);
    CHECK(usm__export_csv(t, plain_path("no/such/folder")) != 0);
    usm__profile_close(t);
}

/* --- spilling -------------------------------------------------------------------- */

/* Two buffers, one tier; times in us: an event at time t took t / 2. */
static void make_spilling(maker *m)
{
    begin(m, 1, 1000);
    put_space(m, 3, "matrix");
    put_space(m, 4, "vector");
    put_tier(m, 1, "/scratch");
    spill(m, USM__SPILL_FIRST, 100, 3, 16 << 20);
    spill(m, USM__SPILL_STORE, 200, 3, 1 << 20);
    spill(m, USM__SPILL_EVICT_DIRTY, 250, 3, 1 << 20);
    spill(m, USM__SPILL_FETCH, 400, 3, 1 << 20);
    spill(m, USM__SPILL_FETCH_AHEAD, 600, 4, 2 << 20);
    spill(m, USM__SPILL_MISS, 1000, 3, 1 << 20);
    spill(m, USM__SPILL_MISS, 2000, 4, 1 << 20);
    spill(m, USM__SPILL_MISS, 4000, 4, 1 << 20);
    spill(m, USM__SPILL_GUESS_USED, 4100, 4, 1 << 20);
    last(m)->extra = 0; /* nobody waited for it */
    spill(m, USM__SPILL_GUESS_WASTED, 4200, 4, 1 << 20);
    spill(m, USM__SPILL_EVICT_CLEAN, 4300, 4, 1 << 20);
    spill(m, USM__SPILL_PINNED, 8000, 4, 5 << 20);
    spill(m, USM__SPILL_USED, 8100, 4, 0);
    put_events(m, 1);
    end(m);
}

static void spilling_is_read_and_counted(void)
{
    const usm__profile_spill_usages *u;
    usm__analysis                   *a = NULL;
    usm__profile                    *t;

    make_spilling(&made);
    t = parse(&made);
    CHECK_INT(t->nspills, 13);
    CHECK_INT(t->nrecords, 0);
    CHECK_INT(t->spills[1].kind, USM__SPILL_STORE);
    CHECK_INT(t->spills[1].block, 7);
    CHECK_INT(t->spills[1].mode, 3);
    CHECK_INT(t->spills[1].ns, 100);
    CHECK_STR(usm__profile_spill_space_name(t, t->spills[1].space), "matrix");
    CHECK_STR(usm__profile_spill_tier_name(t, t->spills[1].tier), "/scratch");
    CHECK_INT(usm__analyse(t, &a), USM_OK);
    u = &a->spill;
    CHECK(u->has_first && u->first_ns == 100 && u->first_limit == 16 << 20);
    CHECK_INT(u->nbuffers, 2);
    CHECK_STR(u->buffers[0].name, "vector"); /* it was waited for longer */
    CHECK_INT(u->buffers[0].waits.n, 2);
    CHECK_INT(u->buffers[0].waits.sum_ns, 3000);
    CHECK_INT(u->buffers[0].waits.p50_ns, 1000);
    CHECK_INT(u->buffers[0].waits.p99_ns, 2000);
    CHECK_INT(u->buffers[0].in, 2 << 20);
    CHECK_INT(u->buffers[0].in_ahead, 2 << 20);
    CHECK_INT(u->buffers[0].used, 1);
    CHECK_INT(u->buffers[0].wasted, 1);
    CHECK_INT(u->buffers[0].evicted_clean, 2);
    CHECK_INT(u->buffers[0].pinned_ns, 4000);
    CHECK_INT(u->buffers[0].pinned, 5 << 20);
    CHECK_INT(u->buffers[1].out, 1 << 20);
    CHECK_INT(u->buffers[1].evicted_dirty, 1);
    CHECK_INT(u->all.waits.n, 3);
    CHECK_INT(u->ntiers, 1);
    CHECK_STR(u->tiers[0].name, "/scratch");
    CHECK_INT(u->tiers[0].in, 3 << 20);
    CHECK_INT(u->tiers[0].reads.n, 2);
    CHECK_INT(u->tiers[0].reads.p99_ns, 300);
    CHECK_INT(u->tiers[0].writes.p50_ns, 100);
    usm__analysis_free(a);
    usm__profile_close(t);
}

static void old_and_newer_traces_are_read(void)
{
    uint32_t      version = 1;
    usm__profile *t;

    make_small(&made, 1, 1000);
    memcpy(made.data + offsetof(usm__trace_header, version), &version, sizeof(version));
    t = parse(&made);
    CHECK(t->damage[0] == '\0' && t->nrecords > 0 && t->nspills == 0);
    usm__profile_close(t);
    begin(&made, 1, 1000);
    spill(&made, (usm__trace_spill_kind)USM__SPILL_KINDS, 10, 9,
          1); /* of a kind to come, no space */
    spill(&made, USM__SPILL_MISS, 20, 9, 1);
    put_events(&made, 1);
    end(&made);
    t = parse(&made);
    CHECK(t->damage[0] == '\0' && t->nspills == 1 && t->spills[0].space == 0);
    usm__profile_close(t);
}

static void durations_are_packed_closely(void)
{
    for (uint64_t ns = 1; ns < (uint64_t)1 << 57; ns += ns / 3 + 1) {
        uint64_t back = usm__ns_unpack(usm__ns_pack(ns));

        CHECK(back <= ns && ns - back <= ns >> 26);
        CHECK(ns >= (uint64_t)1 << 27 || back == ns);
    }
    CHECK(usm__ns_unpack(usm__ns_pack(UINT64_MAX)) > (uint64_t)1 << 57);
}

static void spilling_is_exported(void)
{
    static char   text[1 << 16];
    const char   *out = plain_path("spill.out");
    usm__profile *t;

    make_spilling(&made);
    t = parse(&made);
    CHECK_INT(usm__export_csv(t, out), 0);
    (void)plain_read(out, text, sizeof(text));
    CHECK_IN("400,0,1,fetch,1,matrix,0x7,1048576,0,200,0\n", text);
    CHECK_IN("4200,0,1,guess wasted,1,vector,0x7,1048576,0,2100,0\n", text);
    CHECK_INT(usm__export_perfetto(t, out), 0);
    (void)plain_read(out, text, sizeof(text));
    CHECK_IN("\"fetch ahead /scratch\"", text);
    CHECK_IN("\"wait for memory\"", text);
    CHECK_INT(usm__export_html(t, out), 0);
    usm__profile_close(t);
}

/* --- launches over teams --------------------------------------------------------- */

/* A launch from 100 to 1100.  "gpu" computes from 200 to 500 and from 500 to 900, and copies from
 * 100 to 200, from 300 to 400 and from 900 to 1000; "cpu" computes from 100 to 800 and fails at
 * what it takes then. */
static void make_launch(maker *m)
{
    begin(m, 1, 1000);
    put_name(m, USM__CHUNK_MEMBER, 2, "gpu");
    put_name(m, USM__CHUNK_MEMBER, 3, "cpu");
    put_name(m, USM__CHUNK_KERNEL, 1, "blend");
    put_name(m, USM__CHUNK_KERNEL, 2, "blend");
    did(m, USM__WORK_IN, 600, 2, 100, 400, 64);
    did(m, USM__WORK_KERNEL, 600, 2, 300, 100, 1000);
    did(m, USM__WORK_CHUNK, 600, 2, 500, 0, 1000);
    did(m, USM__WORK_KERNEL, 800, 3, 700, 0, 500);
    did(m, USM__WORK_CHUNK, 800, 3, 700, 1000, 500);
    did(m, USM__WORK_FAILED, 850, 3, 50, 1500, 500);
    did(m, USM__WORK_IN, 1000, 2, 100, 600, 32);
    did(m, USM__WORK_KERNEL, 1000, 2, 400, 100, 500);
    did(m, USM__WORK_OUT, 1000, 2, 100, 0, 16);
    did(m, USM__WORK_CHUNK, 1050, 2, 900, 1500, 500);
    did(m, USM__WORK_LAUNCH, 1100, 0, 1000, 0, 2000);
    did(m, USM__WORK_ENERGY, 1100, 3, 0, 0, 2000);
    did(m, USM__WORK_ENERGY_STATED, 1100, 2, 0, 0, 7000);
    did(m, USM__WORK_ENERGY, 1100, 3, 0, 0, 500); /* of another launch, and another team */
    last(m)->tag = 2;
    did(m, USM__WORK_ENERGY_STATED, 1100, 3, 0, 0, 60); /* its counter had gone */
    did(m, USM__WORK_ENERGY, 1100, 0, 0, 0, 40);
    last(m)->tag = 0;                                                /* idle */
    did(m, (usm__trace_work_kind)USM__WORK_KINDS, 1200, 2, 1, 0, 0); /* of a newer libusm */
    put_events(m, 1);
    end(m);
}

static void launches_are_read_and_counted_by_device(void)
{
    const usm__profile_work_device *d;
    usm__analysis                  *a = NULL;
    usm__profile                   *t;

    make_launch(&made);
    t = parse(&made);
    CHECK_STR(t->damage, "");
    CHECK_INT(t->nworks, 11);
    CHECK_INT(t->nrecords, 0);
    CHECK_INT(t->works[0].kind, USM__WORK_IN);
    CHECK_INT(t->works[0].time_ns, 200);
    CHECK_INT(usm__profile_work_from(&t->works[0]), 100);
    CHECK_STR(usm__profile_work_kernel_name(t, t->works[0].kernel), "blend");
    CHECK_INT(usm__analyse(t, &a), USM_OK);
    CHECK_INT(a->duration_ns, 1100);
    CHECK_INT(a->work.launches, 1);
    CHECK_INT(a->work.ndevices, 2);
    d = &a->work.devices[0];
    CHECK_STR(d->name, "gpu");
    CHECK_INT(d->chunks, 2);
    CHECK_INT(d->items, 1500);
    CHECK_INT(d->launched_ns, 1000);
    CHECK_INT(d->kernel_ns, 700);
    CHECK_INT(d->copy_ns, 300);
    CHECK_INT(d->hidden_ns, 100);
    CHECK_INT(d->bytes_in, 96);
    CHECK_INT(d->bytes_out, 16);
    CHECK_INT(d->idle_ns, 100);
    CHECK_INT(d->ngaps, 1);
    CHECK_INT(d->gaps[0].from, 1000);
    d = &a->work.devices[1];
    CHECK_STR(d->name, "cpu");
    CHECK_INT(d->chunks, 1);
    CHECK_INT(d->failed, 1);
    CHECK_INT(d->idle_ns, 300);
    CHECK_INT(d->longest_ns, 300);
    usm__analysis_free(a);
    usm__profile_close(t);
}

static void energy_is_summed_by_device_and_kernel(void)
{
    usm__analysis *a = NULL;
    usm__profile  *t;

    make_launch(&made);
    t = parse(&made);
    CHECK_INT(t->nenergies, 5);
    CHECK_INT(usm__analyse(t, &a), USM_OK);
    CHECK_INT(a->energy.all, 9560);
    CHECK_INT(a->energy.idle, 40);
    CHECK_INT(a->energy.n, 3);
    CHECK_STR(usm__profile_work_member_name(t, a->energy.rows[0].member), "gpu");
    CHECK_INT(a->energy.rows[0].microjoules, 7000);
    CHECK(a->energy.rows[0].is_stated);
    CHECK_STR(usm__profile_work_member_name(t, a->energy.rows[1].member), "cpu");
    CHECK_STR(usm__profile_work_kernel_name(t, a->energy.rows[1].kernel), "blend");
    CHECK_INT(a->energy.rows[1].microjoules, 2500);
    CHECK(!a->energy.rows[1].is_stated);
    usm__analysis_free(a);
    usm__profile_close(t);
}

/* Of pool `pool`, budget 1 MiB. */
static void caches(maker *m, uint64_t time, uint8_t pool, uint64_t room)
{
    event(m, USM__EVENT_ALLOC, time, 1 << 20, room);
    last(m)->type = USM__EVENT_CACHES;
    last(m)->pool = pool;
}

static void what_caches_may_hold_is_read_and_exported(void)
{
    static char    text[1 << 17];
    const char    *out = plain_path("caches.out");
    usm__analysis *a   = NULL;
    usm__profile  *t;

    begin(&made, 1, 1000);
    put_pool(&made, 1, "slab");
    event(&made, USM__EVENT_TAKE, 5, 0x100000, 64 << 20);
    caches(&made, 10, 1, 4096);
    event(&made, USM__EVENT_ALLOC, 20, 0x100000, 100);
    caches(&made, 40, 1, 1024);
    put_events(&made, 1);
    caches(&made, 30, 1, 40 << 20);
    caches(&made, 35, 7, 512); /* of a pool whose definition is missing */
    caches(&made, 36, 0, 512); /* of none */
    put_events(&made, 2);
    end(&made);
    t = parse(&made);
    CHECK_STR(t->damage, "");
    CHECK_INT(t->nrecords, 2);
    CHECK_INT(t->ncaches, 4);
    CHECK_INT(t->caches[1].room, 40 << 20);
    CHECK_INT(t->caches[1].thread, 2);
    CHECK_INT(t->caches[1].limit, 1 << 20);
    CHECK_INT(t->caches[2].pool, 2);
    CHECK_STR(t->pools[1].name, "pool 7");
    CHECK_INT(usm__analyse(t, &a), USM_OK);
    CHECK_INT(a->pools[0].caches_peak, 40 << 20);
    CHECK_INT(a->pools[0].caches_limit, 1 << 20);
    CHECK_INT(a->pools[0].u.allocations, 1);
    CHECK(advises(a, "could hold 40 MiB of it"));
    CHECK(advises(a, "USM_POOL=slab,thread_cache=1M"));
    CHECK_INT(usm__export_csv(t, out), 0);
    (void)plain_read(out, text, sizeof(text));
    CHECK_IN("\n10,0,1,caches,1,,0x0,4096,1048576,0,0\n20,0,1,alloc,", text);
    usm__analysis_free(a);
    usm__profile_close(t);
}

static void launches_are_exported(void)
{
    static char   text[1 << 17];
    const char   *out = plain_path("work.out");
    usm__profile *t;

    make_launch(&made);
    t = parse(&made);
    CHECK_INT(usm__export_csv(t, out), 0);
    (void)plain_read(out, text, sizeof(text));
    CHECK_IN("1050,0,1,chunk,1,blend,0x5dc,500,0,900,0\n", text);
    CHECK_IN("200,0,1,copy in,1,blend,0x0,64,0,100,0\n", text);
    CHECK_IN("1100,0,1,energy,2,blend,0x0,2000,0,0,0\n", text);
    CHECK_IN("1100,0,1,energy stated,1,blend,0x0,7000,0,0,0\n", text);
    CHECK_INT(usm__export_perfetto(t, out), 0);
    (void)plain_read(out, text, sizeof(text));
    CHECK_IN("\"gpu kernel\"", text);
    CHECK_IN("\"cpu failed chunk\"", text);
    CHECK_IN("\"cpu idle\"", text);
    CHECK_IN("\"energy of gpu\",\"args\":{\"joules\":0.007000}", text);
    CHECK_IN("\"energy of idle processors\"", text);
    CHECK_IN("\"energy of cpu\",\"args\":{\"joules\":0.002000}", text);
    CHECK_IN("{\"joules\":0.002500}", text);
    CHECK_INT(usm__export_html(t, out), 0);
    (void)plain_read(out, text, sizeof(text));
    CHECK_IN("\"gaps\":[[1000,100]]", text);
    CHECK_IN("blend on gpu\",null,7]", text);
    CHECK_IN("blend on cpu\",2.5,null]", text);
    usm__profile_close(t);
}

static const plain_case cases[] = {
    CASE(a_whole_trace_is_read),
    CASE(a_trace_cut_anywhere_gives_what_comes_before),
    CASE(a_byte_changed_anywhere_is_noticed_or_harmless),
    CASE(what_is_no_trace_is_refused_with_the_reason),
    CASE(chunks_that_lie_with_a_right_checksum_are_damage),
    CASE(traces_are_joined_by_real_time),
    CASE(what_cannot_be_joined_is_named),
    CASE(reuse_is_what_needed_no_driver),
    CASE(a_direct_pool_is_told_what_slab_would_save),
    CASE(a_pool_that_gives_up_too_soon_is_told),
    CASE(leaks_failures_and_hoards_are_told),
    CASE(call_sites_are_scaled_from_their_samples),
    CASE(an_empty_trace_is_analysed),
    CASE(events_are_exported_as_lines),
    CASE(spilling_is_read_and_counted),
    CASE(old_and_newer_traces_are_read),
    CASE(durations_are_packed_closely),
    CASE(spilling_is_exported),
    CASE(launches_are_read_and_counted_by_device),
    CASE(energy_is_summed_by_device_and_kernel),
    CASE(launches_are_exported),
    CASE(what_caches_may_hold_is_read_and_exported),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
