/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The ranks of shared_ranks.h: what is written on one is read on another, one writes at a time, and
 * who dies takes with it what it owned and nothing else. */
#include "cluster/shared_ranks.h"

#include "plain.h"

#include "base/fault.h"
#include "base/os.h"
#include "cluster/cluster.h"
#include "cluster/shared.h"

#include <usm/usm.h>

#include <signal.h>

#define BLOCK     ((size_t)65536)
#define RANKS_MAX 64

/* ---- helpers ---------------------------------------------------------------------------- */

static usm_shared_buffer *create(size_t size, size_t block_size)
{
    usm_shared_buffer_desc d = USM_SHARED_BUFFER_DESC_INIT;
    usm_shared_buffer     *s = NULL;

    d.size       = size;
    d.block_size = block_size;
    d.name       = "test";
    if (usm_shared_buffer_create(NULL, &d, &s) != USM_OK)
        plain_fail(__FILE__, __LINE__, usm_last_error());
    return s;
}

static void begin(usm_shared_buffer *s, size_t offset, size_t size, usm_access_mode mode,
                  usm_shared_access *acc)
{
    if (usm_shared_access_begin(s, offset, size, mode, acc) != USM_OK)
        plain_fail(__FILE__, __LINE__, usm_last_error());
}

static void put(usm_shared_buffer *s, size_t offset, uint64_t value)
{
    usm_shared_access acc;

    begin(s, offset, sizeof value, USM_WRITE, &acc);
    memcpy(acc.ptr, &value, sizeof value);
    usm_shared_access_end(&acc);
}

static uint64_t get(usm_shared_buffer *s, size_t offset)
{
    usm_shared_access acc;
    uint64_t          value;

    begin(s, offset, sizeof value, USM_READ, &acc);
    memcpy(&value, acc.ptr, sizeof value);
    usm_shared_access_end(&acc);
    return value;
}

/* All that live come. */
static void meet(void)
{
    char one = 1, all[RANKS_MAX];

    if (usm__job_agree(&one, 1, all, 20000, NULL) != USM_OK)
        plain_fail(__FILE__, __LINE__, usm_last_error());
}

static usm_shared_buffer_stats stats_of(usm_shared_buffer *s)
{
    usm_shared_buffer_stats st = {.struct_size = sizeof st};

    CHECK_INT(usm_shared_buffer_get_stats(s, &st), USM_OK);
    return st;
}

static void wait_until_lost(uint32_t rank)
{
    while (!usm__job_rank_is_lost(rank)) /* the alarm ends it otherwise */
        usm__os_sleep_ns(1000000);
}

_Noreturn static void die(void)
{
    (void)raise(SIGKILL);
    for (;;)
        (void)pause();
}

/* ---- what is written is read ----------------------------------------------------------------- */

void rank_reads_and_writes(uint32_t rank, uint32_t count)
{
    usm_shared_buffer      *s = create(5 * BLOCK + 1000, 0);
    usm_shared_buffer_stats st;

    CHECK_INT(get(s, 3 * BLOCK), 0);
    meet();
    for (uint32_t round = 0; round < 3 * count; round++) {
        if (round % count == rank)
            for (size_t b = 0; b < 6; b++)
                put(s, b * BLOCK + (size_t)8 * rank, (uint64_t)100 * round + b);
        meet();
        for (size_t b = 0; b < 6; b++)
            for (uint32_t r = 0; r < count; r++)
                CHECK_INT(get(s, b * BLOCK + 8 * (size_t)r),
                          r <= round % count ? (uint64_t)100 * (round - round % count + r) + b
                          : round >= count ? (uint64_t)100 * (round - round % count - count + r) + b
                                           : 0);
        meet();
    }
    st = stats_of(s);
    CHECK_INT(st.blocks, 6);
    CHECK(st.hits > 0);
    CHECK(count == 1 || (st.misses > 0 && st.received > 0));
    CHECK_INT(st.owned, rank == count - 1 ? 6 : 0);
    usm_shared_buffer_destroy(s);
}

void rank_has_the_only_copy(uint32_t rank, uint32_t count)
{
    usm_shared_buffer      *s = create(2 * BLOCK, 0);
    usm_shared_buffer_stats st;

    (void)count;
    if (rank == 1)
        (void)get(s, 0);
    meet();
    st = stats_of(s);
    CHECK_INT(st.owned, 1);
    CHECK_INT(st.copies, rank == 0 ? 0 : 1);
    meet();
    if (rank == 1)
        put(s, 0, 7);
    meet();
    st = stats_of(s);
    CHECK_INT(st.owned, rank == 1 ? 2 : 0);
    CHECK_INT(st.copies, 0);
    CHECK_INT(st.received, 0); /* nobody had ever written it: zeros are not sent */
    meet();
    CHECK_INT(get(s, 0), 7);
    st = stats_of(s);
    CHECK_INT(rank == 0 ? st.received : BLOCK, BLOCK);
    meet();
    if (rank == 0)
        put(s, 0, 8);
    meet();
    st = stats_of(s);
    CHECK_INT(st.owned, 1);
    CHECK_INT(rank == 0 ? st.received : BLOCK, BLOCK); /* its copy was good: nothing came again */
    usm_shared_buffer_destroy(s);
}

static size_t part_at(uint32_t rank, uint32_t count)
{
    return 4 * BLOCK * rank / count;
}

/* One block, which goes in several messages. */
void rank_writes_a_part(uint32_t rank, uint32_t count)
{
    usm_shared_buffer *s = create(4 * BLOCK, 4 * BLOCK);
    usm_shared_access  acc;

    begin(s, part_at(rank, count), part_at(rank + 1, count) - part_at(rank, count),
          USM_WRITE_NO_INIT, &acc);
    memset(acc.ptr, (int)rank + 1, acc.size);
    usm_shared_access_end(&acc);
    meet();
    begin(s, 0, 4 * BLOCK, USM_READ, &acc);
    for (uint32_t r = 0; r < count; r++)
        for (size_t i = part_at(r, count); i < part_at(r + 1, count); i++)
            if (((const unsigned char *)acc.ptr)[i] != r + 1)
                plain_fail(__FILE__, __LINE__, "a part that another rank wrote has gone");
    usm_shared_access_end(&acc);
    usm_shared_buffer_destroy(s);
}

/* ---- a pass over a matrix
 * ------------------------------------------------------------------------ */

enum { ROWS = 60, COLS = 1000, PASSES = 6 };

static float first_value(size_t row, size_t col)
{
    return (float)((row * 7919 + col * 104729) % 1000) / 7.0f;
}

static void relax(const float *above, const float *at, const float *below, float *to)
{
    for (size_t c = 0; c < COLS; c++) {
        float left = c > 0 ? at[c - 1] : 0, right = c + 1 < COLS ? at[c + 1] : 0;

        to[c] = 0.2f * (at[c] + left + right + (above ? above[c] : 0) + (below ? below[c] : 0));
    }
}

static const float *serial(void)
{
    static float m[2][ROWS][COLS];

    for (size_t r = 0; r < ROWS; r++)
        for (size_t c = 0; c < COLS; c++)
            m[0][r][c] = first_value(r, c);
    for (size_t p = 0; p < PASSES; p++)
        for (size_t r = 0; r < ROWS; r++)
            relax(r > 0 ? m[p % 2][r - 1] : NULL, m[p % 2][r],
                  r + 1 < ROWS ? m[p % 2][r + 1] : NULL, m[(p + 1) % 2][r]);
    return m[PASSES % 2][0];
}

static size_t row_at(size_t row)
{
    return row * COLS * sizeof(float);
}

static void pass_over_row(usm_shared_buffer *from, usm_shared_buffer *to, size_t r)
{
    size_t            first = r > 0 ? r - 1 : 0, last = r + 1 < ROWS ? r + 1 : r;
    usm_shared_access in, out;
    const float      *rows;

    begin(from, row_at(first), row_at(last - first + 1), USM_READ, &in);
    begin(to, row_at(r), row_at(1), USM_WRITE_NO_INIT, &out);
    rows = in.ptr;
    relax(r > 0 ? rows : NULL, rows + (r - first) * COLS,
          r + 1 < ROWS ? rows + (r - first + 1) * COLS : NULL, out.ptr);
    usm_shared_access_end(&out);
    usm_shared_access_end(&in);
}

/* The blocks are no multiple of rows: neighbours share them. */
void rank_passes_over_its_rows(uint32_t rank, uint32_t count)
{
    usm_shared_buffer *m[2]      = {create(row_at(ROWS), 8192), create(row_at(ROWS), 8192)};
    size_t             begin_row = ROWS * rank / count, end_row = ROWS * (rank + 1) / count;
    usm_shared_access  acc;

    begin(m[0], row_at(begin_row), row_at(end_row - begin_row), USM_WRITE, &acc);
    for (size_t r = begin_row; r < end_row; r++)
        for (size_t c = 0; c < COLS; c++)
            ((float *)acc.ptr)[(r - begin_row) * COLS + c] = first_value(r, c);
    usm_shared_access_end(&acc);
    for (size_t p = 0; p < PASSES; p++) {
        meet();
        for (size_t r = begin_row; r < end_row; r++)
            pass_over_row(m[p % 2], m[(p + 1) % 2], r);
    }
    meet();
    begin(m[PASSES % 2], 0, row_at(ROWS), USM_READ, &acc);
    CHECK(memcmp(acc.ptr, serial(), row_at(ROWS)) == 0);
    usm_shared_access_end(&acc);
    usm_shared_buffer_destroy(m[0]);
    usm_shared_buffer_destroy(m[1]);
}

/* ---- contention
 * -------------------------------------------------------------------------------------- */

enum { ADDS = 400, ADDERS = 3 };

static void add(usm_shared_buffer *s, size_t offset, size_t size)
{
    usm_shared_access acc;

    begin(s, offset, size, USM_READ_WRITE, &acc);
    for (size_t i = 0; i < size; i += BLOCK)
        ++*(uint64_t *)(void *)((char *)acc.ptr + i);
    usm_shared_access_end(&acc);
}

void rank_adds(uint32_t rank, uint32_t count)
{
    usm_shared_buffer *s = create(BLOCK, 0);

    (void)rank;
    for (unsigned i = 0; i < ADDS; i++) {
        uint64_t before = get(s, 0);

        add(s, 0, BLOCK);
        CHECK(get(s, 0) > before);
    }
    meet();
    CHECK_INT(get(s, 0), (uint64_t)ADDS * count);
    usm_shared_buffer_destroy(s);
}

/* Half of the ranks take both blocks, half take them the other way round, as far as one can. */
void rank_takes_neighbours(uint32_t rank, uint32_t count)
{
    usm_shared_buffer *s = create(4 * BLOCK, 0);

    for (unsigned i = 0; i < ADDS / 4; i++) {
        size_t first = (i + rank) % 3;

        add(s, first * BLOCK, 2 * BLOCK);
        add(s, (2 - first) * BLOCK, 2 * BLOCK);
    }
    meet();
    CHECK_INT(get(s, 0) + get(s, BLOCK) + get(s, 2 * BLOCK) + get(s, 3 * BLOCK),
              (uint64_t)(ADDS / 4) * 4 * count);
    usm_shared_buffer_destroy(s);
}

static struct {
    usm_shared_buffer *s;
    uint32_t           count;
} shared;

static void *thread_adds(void *arg)
{
    size_t slot = (size_t)(uintptr_t)arg;

    for (unsigned i = 0; i < ADDS / 4; i++) {
        usm_shared_access acc;

        begin(shared.s, slot * 8, 8, USM_WRITE, &acc);
        ++*(uint64_t *)acc.ptr;
        usm_shared_access_end(&acc);
        (void)get(shared.s, BLOCK);
    }
    return NULL;
}

void rank_adds_with_threads(uint32_t rank, uint32_t count)
{
    pthread_t threads[ADDERS];

    shared.s = create(2 * BLOCK, 0);
    for (size_t i = 0; i < ADDERS; i++)
        CHECK_INT(
            pthread_create(&threads[i], NULL, thread_adds, (void *)((uintptr_t)rank * ADDERS + i)),
            0);
    for (size_t i = 0; i < ADDERS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    meet();
    for (size_t i = 0; i < (size_t)ADDERS * count; i++)
        CHECK_INT(get(shared.s, i * 8), ADDS / 4);
    usm_shared_buffer_destroy(shared.s);
}

/* ---- many blocks at once --------------------------------------------------------------------- */

enum { SMALL = 4096, MANY = 200 }; /* more than are asked for ahead                           */

static void put_all(usm_shared_buffer *s, uint64_t value)
{
    usm_shared_access acc;

    begin(s, 0, (size_t)MANY * SMALL, USM_WRITE_NO_INIT, &acc);
    memset(acc.ptr, 0, acc.size);
    for (size_t b = 0; b < MANY; b++)
        ((uint64_t *)acc.ptr)[b * (SMALL / 8)] = value + b;
    usm_shared_access_end(&acc);
}

static void check_all(usm_shared_buffer *s, uint64_t value)
{
    usm_shared_access acc;

    begin(s, 0, (size_t)MANY * SMALL, USM_READ, &acc);
    for (size_t b = 0; b < MANY; b++)
        CHECK_INT(((const uint64_t *)acc.ptr)[b * (SMALL / 8)], value + b);
    usm_shared_access_end(&acc);
}

static void add_to_all(usm_shared_buffer *s)
{
    usm_shared_access acc;

    begin(s, 0, (size_t)MANY * SMALL, USM_READ_WRITE, &acc);
    for (size_t b = 0; b < MANY; b++)
        ((uint64_t *)acc.ptr)[b * (SMALL / 8)]++;
    usm_shared_access_end(&acc);
}

void rank_takes_all_at_once(uint32_t rank, uint32_t count)
{
    enum { ROUNDS = 3 };
    usm_shared_buffer *s = create((size_t)MANY * SMALL, SMALL);

    for (uint64_t round = 1; round <= ROUNDS; round++) {
        if (rank == 0)
            put_all(s, 1000 * round);
        meet();
        check_all(s, 1000 * round);
        meet();
    }
    if (rank != 0) { /* each block came for each round, whether it was waited for or not */
        CHECK_INT(stats_of(s).misses, ROUNDS * MANY);
        CHECK_INT(stats_of(s).received, (uint64_t)ROUNDS * MANY * SMALL);
    }
    meet();
    for (unsigned i = 0; i < 5; i++)
        add_to_all(s);
    meet();
    check_all(s, 1000 * ROUNDS + 5 * count);
    usm_shared_buffer_destroy(s);
}

/* ---- bytes through memory ------------------------------------------------------------------- */

static void write_words(usm_shared_buffer *s, size_t size, uint64_t value)
{
    usm_shared_access acc;

    begin(s, 0, size, USM_WRITE_NO_INIT, &acc);
    for (size_t i = 0; i < size / 8; i++)
        ((uint64_t *)acc.ptr)[i] = value + i;
    usm_shared_access_end(&acc);
}

static void check_words(usm_shared_buffer *s, size_t from, size_t behind, uint64_t value)
{
    usm_shared_access acc;
    bool              is_right = true;

    begin(s, from, behind - from, USM_READ, &acc);
    for (size_t i = from / 8; i < behind / 8; i++)
        is_right = is_right && ((uint64_t *)acc.ptr)[i - from / 8] == value + i;
    CHECK(is_right);
    usm_shared_access_end(&acc);
}

/* Waits until so many blocks are copies here, or are lost on the way: the alarm tells that. */
static void wait_for_copies(usm_shared_buffer *s, uint64_t count)
{
    while (stats_of(s).copies < count)
        usm__os_sleep_ns(100000);
}

/* How many slots can be taken for that rank. */
static uint32_t free_slots(usm_shared_buffer *s, uint32_t to)
{
    usm__shared_slot all[128 + 1];
    uint32_t         n = 0;

    while (n <= 128 && usm__shared_slot_take(s, to, &all[n]))
        n++;
    for (uint32_t i = 0; i < n; i++)
        usm__shared_slot_release(&all[i]);
    return n;
}

static void wait_until_reached(usm_shared_buffer *s, uint32_t rank)
{
    while (free_slots(s, rank) == 0)
        usm__os_sleep_ns(100000);
}

/* Rank 0 owns all; the last one holds more than it may keep slots. */
void rank_keeps_slots(uint32_t rank, uint32_t count)
{
    enum { BLOCKS = 256 };
    usm_shared_buffer        *s    = create((size_t)BLOCKS * SMALL, SMALL);
    uint32_t                  last = count - 1;
    const usm__shared_message old  = {.slot = 0, .serial = UINT32_MAX, .size = SMALL};
    usm__shared_slot          slot;

    if (rank == 0) {
        wait_until_reached(s, last);
        CHECK_INT(free_slots(s, last), s->slots.count);
        write_words(s, (size_t)BLOCKS * SMALL, 7);
    }
    meet();
    if (rank == last) { /* two streams, and what is requested behind them */
        for (size_t b = 0; b < 4; b++)
            check_words(s, b * SMALL, (b + 1) * SMALL, 7);
        wait_for_copies(s, 4 + 64 - 1);
        CHECK(s->slots.held[0] > 0);
        for (size_t b = 128; b < 132; b++)
            check_words(s, b * SMALL, (b + 1) * SMALL, 7);
        wait_for_copies(s, 2 * (4 + 64 - 1));
        CHECK(s->slots.held[0] <= s->slots.most_held);
        CHECK(!usm__shared_slot_find(s, 0, &old, &slot));
        check_words(s, 0, (size_t)BLOCKS * SMALL, 7);
        CHECK_INT(s->slots.held[0], 0);
    }
    meet();
    if (rank == 0)
        CHECK_INT(free_slots(s, last), s->slots.count);
    usm_shared_buffer_destroy(s);
}

/* Blocks larger than a slot come in pieces, and more of them than there are slots. */
void rank_moves_large_blocks(uint32_t rank, uint32_t count)
{
    const size_t       block = (size_t)4 << 20, size = 4 * block - 4096;
    usm_shared_buffer *s = create(size, block);

    for (uint32_t r = 0; r < count; r++) {
        if (rank == r)
            write_words(s, size, 1000 * r);
        meet();
        check_words(s, 0, size, 1000 * r);
        meet();
    }
    usm_shared_buffer_destroy(s);
}

/* The call of rank 0 fails that makes its outbox, or gives it memory: its bytes go in messages, those
 * of the others through theirs. */
static void go_without(const char *call, uint32_t rank, uint32_t count)
{
    usm_shared_buffer *s;

    if (rank == 0)
        CHECK(usm__fault_arm(call, 1, false, USM_OK));
    s = create((size_t)4 * BLOCK, 0);
    usm__fault_disarm_all();
    if (rank == 1)
        wait_until_reached(s, count - 1);
    for (uint32_t r = 0; r < count; r++) {
        if (rank == r)
            write_words(s, (size_t)4 * BLOCK, 1000 * r);
        meet();
        check_words(s, 0, (size_t)4 * BLOCK, 1000 * r);
        meet();
    }
    CHECK(rank != 0 || free_slots(s, 1) == 0);
    usm_shared_buffer_destroy(s);
}

void rank_has_no_outbox(uint32_t rank, uint32_t count)
{
    CHECK(count > 2);
    go_without("os.seal", rank, count);
    go_without("os.fallocate", rank, count);
}

/* A rank that ended with slots of rank 0 keeps them. */
void rank_dies_with_slots(uint32_t rank, uint32_t count)
{
    usm_shared_buffer *s    = create((size_t)8 * BLOCK, 0);
    uint32_t           last = count - 1, all = s->slots.count;

    if (rank == 0) {
        wait_until_reached(s, last);
        write_words(s, (size_t)8 * BLOCK, 5);
    }
    meet();
    if (rank == last) {
        for (size_t b = 0; b < 3; b++)
            check_words(s, b * BLOCK, (b + 1) * BLOCK, 5);
        wait_for_copies(s, 8); /* those behind them were read ahead */
        CHECK(s->slots.held[0] > 0);
        die();
    }
    wait_until_lost(last);
    check_words(s, 0, (size_t)8 * BLOCK, 5);
    CHECK(rank != 0 || free_slots(s, last) < all);
    usm_shared_buffer_destroy(s);
}

/* ---- readahead behind accesses ---------------------------------------------------------------- */

/* The first half of the blocks is rank 0's. */
void rank_goes_through_the_others(uint32_t rank, uint32_t count)
{
    enum { BLOCKS = 200, HALF = BLOCKS / 2 };
    usm_shared_buffer *s = create((size_t)BLOCKS * SMALL, SMALL);

    CHECK_INT(count, 2);
    if (rank == 1) { /* a block too few for a stream */
        (void)get(s, 0);
        (void)get(s, SMALL);
        CHECK_INT(stats_of(s).copies, 2);
        (void)get(s, 2 * SMALL); /* continues it: the 64 behind it come, unasked for */
        wait_for_copies(s, 3 + 64);
        put(s, 3 * SMALL, 9);
    }
    meet();
    if (rank == 0) { /* they stayed its own; those of its own do not lead it to its neighbour's */
        CHECK_INT(stats_of(s).owned, HALF - 1);
        for (size_t b = HALF - 8; b < HALF + 1; b++)
            (void)get(s, b * SMALL);
        CHECK_INT(stats_of(s).copies, 1);
        CHECK_INT(stats_of(s).misses, 1);
    }
    meet();
    CHECK_INT(get(s, 3 * SMALL), 9);
    usm_shared_buffer_destroy(s);
}

/* ---- larger than memory
 * ------------------------------------------------------------------------------ */

void rank_has_little_memory(uint32_t rank, uint32_t count)
{
    usm_shared_buffer *s = create(64 * BLOCK, 0);

    for (size_t b = rank; b < 64; b += count)
        put(s, b * BLOCK + 128, b + 1);
    meet();
    for (size_t b = 0; b < 64; b++)
        CHECK_INT(get(s, (63 - b) * BLOCK + 128), 64 - b);
    meet();
    for (size_t b = rank; b < 64; b += count)
        put(s, ((b + 1) % 64) * BLOCK + 128, b);
    meet();
    for (size_t b = 0; b < 64; b++)
        CHECK_INT(get(s, ((b + 1) % 64) * BLOCK + 128), b);
    usm_shared_buffer_destroy(s);
}

/* The n-th allocation of an access fails: the access says so, or does without; the next one works.
 * A buffer for each n, for what it has allocated it uses again.  true: the access has failed. */
static bool read_and_run_out(uint64_t n, bool is_reader, bool is_writer)
{
    usm_shared_buffer *s  = create(2 * BLOCK, 0);
    usm_status         st = USM_OK;
    usm_shared_access  acc;

    if (is_writer)
        put(s, 0, n + 1);
    meet();
    if (is_reader) {
        CHECK(usm__fault_arm("heap.alloc", n, false, USM_OK));
        st = usm_shared_access_begin(s, 0, 8, USM_READ, &acc);
        usm__fault_disarm_all();
        CHECK(st == USM_OK || st == USM_E_NO_MEMORY);
        if (st == USM_OK)
            usm_shared_access_end(&acc);
        CHECK_INT(get(s, 0), n + 1);
        put(s, 0, n + 2);
    }
    meet();
    CHECK_INT(get(s, 0), n + 2);
    usm_shared_buffer_destroy(s);
    return st != USM_OK;
}

void rank_runs_out_of_heap(uint32_t rank, uint32_t count)
{
    unsigned failed = 0;

    for (uint64_t n = 1; n < 12; n++)
        failed += read_and_run_out(n, rank == count - 1, rank == 0);
    CHECK(rank != count - 1 || count == 1 || failed > 0);
}

/* ---- who dies
 * ------------------------------------------------------------------------------------------ */

/* Block b is at home with rank b / 2. */
void rank_dies_while_it_owns(uint32_t rank, uint32_t count)
{
    usm_shared_buffer *s    = create(2 * BLOCK * count, 0);
    uint32_t           last = count - 1;
    usm_shared_access  acc;

    if (rank == last)
        put(s, 0, 5); /* of rank 0's home */
    meet();
    if (rank == 0)
        put(s, 2 * BLOCK * last, 6); /* of the home of who dies */
    meet();
    if (rank == last)
        die();
    wait_until_lost(last);
    meet();
    CHECK_INT(usm_shared_access_begin(s, 0, 8, USM_READ, &acc), USM_E_PEER);
    CHECK_IN("has ended", usm_last_error());
    CHECK_INT(usm_shared_access_begin(s, 0, 8, USM_WRITE_NO_INIT, &acc), USM_E_PEER);
    CHECK_INT(usm_shared_access_begin(s, BLOCK * (2 * last + 1), 8, USM_READ, &acc), USM_E_PEER);
    CHECK_INT(get(s, 2 * BLOCK * last), 6); /* its directory is another rank now */
    meet();
    for (unsigned i = 0; i < 50; i++) {
        add(s, 2 * BLOCK * last, BLOCK);
        add(s, BLOCK, BLOCK);
    }
    meet();
    CHECK_INT(get(s, 2 * BLOCK * last), 6 + 50 * (count - 1));
    CHECK_INT(get(s, BLOCK), 50 * (count - 1));
    usm_shared_buffer_destroy(s);
}

void rank_dies_in_an_access(uint32_t rank, uint32_t count)
{
    usm_shared_buffer *s = create(BLOCK, 0);
    usm_shared_access  acc;
    usm_status         st;

    if (rank == count - 1)
        begin(s, 0, 8, USM_WRITE, &acc);
    meet();
    if (rank == count - 1) {
        usm__os_sleep_ns(50000000); /* so that the others wait; they need not */
        die();
    }
    st = usm_shared_access_begin(s, 0, 8, rank % 2 ? USM_READ : USM_WRITE, &acc);
    CHECK_INT(st, USM_E_PEER);
    usm_shared_buffer_destroy(s);
}

/* Killed at any moment of a crowd: all others come to an end, by success or USM_E_PEER. */
static void be_in_a_crowd(uint32_t rank, uint32_t victim)
{
    usm_shared_buffer *s = create(8 * BLOCK, 0);

    for (unsigned i = 0; i < 300; i++) {
        usm_shared_access acc;
        size_t            b  = (i * 5 + rank) % 7;
        usm_status        st = usm_shared_access_begin(s, b * BLOCK, 2 * BLOCK,
                                                (i + rank) % 3 ? USM_READ : USM_READ_WRITE, &acc);

        CHECK(st == USM_OK || st == USM_E_PEER);
        if (st == USM_OK)
            usm_shared_access_end(&acc);
        if (rank == victim && i == 100)
            die();
    }
    usm_shared_buffer_destroy(s);
}

void rank_dies_in_a_crowd(uint32_t rank, uint32_t count)
{
    be_in_a_crowd(rank, count - 1);
}

void rank_0_dies_in_a_crowd(uint32_t rank, uint32_t count)
{
    (void)count;
    be_in_a_crowd(rank, 0);
}

/* ---- what is refused
 * -------------------------------------------------------------------------------------- */

void rank_makes_another_size(uint32_t rank, uint32_t count)
{
    usm_shared_buffer_desc d = USM_SHARED_BUFFER_DESC_INIT;
    usm_shared_buffer     *s = NULL;

    (void)count;
    d.size = (size_t)4096 * (1 + rank);
    CHECK_INT(usm_shared_buffer_create(NULL, &d, &s), USM_E_INVALID);
    CHECK_IN("bytes in blocks of", usm_last_error());
    d.size = rank == 0 ? 0 : 4096;
    CHECK_INT(usm_shared_buffer_create(NULL, &d, &s), rank == 0 ? USM_E_INVALID : USM_E_PEER);
    CHECK(s == NULL);
    d.size = 4096;
    CHECK_INT(usm_shared_buffer_create(NULL, &d, &s), USM_OK); /* all are in step again */
    usm_shared_buffer_destroy(s);
}

void rank_asks_for_nonsense(uint32_t rank, uint32_t count)
{
    usm_shared_buffer *s = create(BLOCK, 0);
    usm_shared_access  acc;

    (void)rank;
    (void)count;
    CHECK_INT(usm_shared_access_begin(s, 0, BLOCK + 1, USM_READ, &acc), USM_E_INVALID);
    CHECK_INT(usm_shared_access_begin(s, 0, 1, USM_READ | USM_NO_INIT, &acc), USM_E_INVALID);
    CHECK_INT(usm_shared_access_begin(s, 0, 1, USM_READ | USM_NO_WAIT, &acc), USM_E_INVALID);
    CHECK_INT(usm_shared_access_begin(NULL, 0, 1, USM_READ, &acc), USM_E_INVALID_HANDLE);
    CHECK_INT(usm_shared_access_begin(s, BLOCK, 0, USM_READ, &acc), USM_OK);
    usm_shared_access_end(&acc);
    usm_shared_buffer_destroy(s);
}

void rank_leaves_its_job(uint32_t rank, uint32_t count)
{
    usm_shared_buffer *s = create(2 * BLOCK * count, 0);
    usm_shared_access  acc;

    meet();
    if (rank == 0) {
        usm_mpi_detach();
        CHECK_INT(usm_shared_access_begin(s, BLOCK * (2 * count - 1), 8, USM_READ, &acc),
                  USM_E_MPI);
    } else {
        wait_until_lost(0);
        CHECK_INT(usm_shared_access_begin(s, 0, 8, USM_READ, &acc), USM_E_PEER);
    }
    usm_shared_buffer_destroy(s);
}
