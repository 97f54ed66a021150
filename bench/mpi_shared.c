/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A buffer that ranks 0 and 1 share, in `usm-bench mpi`: rank 1 writes all of it, rank 0 reads it,
 * or writes it in its turn, and every block changes hands.  Called by mpi_worker.c. */
#include "mpi_worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <usm/shared_buffer.h>

#define ACCESS  ((size_t)1 << 20)
#define FETCHES 256

typedef enum shared_order { OPEN, WRITE, CLOSE } shared_order;

static usm_shared_buffer *buffer;

static bool open_buffer(size_t block_size)
{
    usm_shared_buffer_desc d = USM_SHARED_BUFFER_DESC_INIT;

    d.size       = run.bytes;
    d.block_size = block_size;
    d.name       = "bench";
    return usm_shared_buffer_create(NULL, &d, &buffer) == USM_OK;
}

static uint64_t word_of(size_t offset, uint64_t round)
{
    return (offset + 1) * 0x9e3779b97f4a7c15u + round;
}

/* All of it; each MiB begins with a word that tells it from others. */
static bool write_all(uint64_t round)
{
    usm_shared_access acc;

    for (size_t at = 0; at < run.bytes; at += ACCESS) {
        const uint64_t word = word_of(at, round);

        if (usm_shared_access_begin(buffer, at, ACCESS, USM_WRITE_NO_INIT, &acc) != USM_OK)
            return false;
        memset(acc.ptr, (int)round, ACCESS);
        memcpy(acc.ptr, &word, sizeof word);
        usm_shared_access_end(&acc);
    }
    return true;
}

/* MiB/s of accesses of a MiB each; 0: one failed, or found other bytes than were written. */
static double pass(usm_access_mode mode, uint64_t round)
{
    uint64_t          began = bench_now_ns();
    usm_shared_access acc;

    for (size_t at = 0; at < run.bytes; at += ACCESS) {
        const uint64_t word = word_of(at, round);
        bool           is_right;

        if (usm_shared_access_begin(buffer, at, ACCESS, mode, &acc) != USM_OK)
            return 0;
        is_right = memcmp(acc.ptr, &word, sizeof word) == 0 &&
                   ((char *)acc.ptr)[ACCESS - 1] == (char)round;
        usm_shared_access_end(&acc);
        if (!is_right)
            return 0;
    }
    return (double)run.bytes / (double)MIB_BYTES / ((double)(bench_now_ns() - began) * 1e-9);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* us of one block that is not here; a median. */
static double latency(size_t block_size)
{
    static double us[FETCHES];

    for (size_t i = 0; i < FETCHES; i++) {
        const size_t      at    = i * 7919 % (run.bytes / block_size) * block_size;
        const uint64_t    began = bench_now_ns();
        usm_shared_access acc;

        if (usm_shared_access_begin(buffer, at, block_size, USM_READ, &acc) != USM_OK)
            return 0;
        usm_shared_access_end(&acc);
        us[i] = (double)(bench_now_ns() - began) * 1e-3;
    }
    qsort(us, FETCHES, sizeof *us, compare_doubles);
    return us[FETCHES / 2];
}

/* The other rank's part. */
int64_t shared_obey(int64_t what, int64_t argument)
{
    switch ((shared_order)what) {
    case OPEN:
        return open_buffer((size_t)argument);
    case WRITE:
        return write_all((uint64_t)argument);
    case CLOSE:
        usm_shared_buffer_destroy(buffer);
        buffer = NULL;
        return 1;
    }
    return 0;
}

static bool ask(shared_order what, uint64_t argument)
{
    mpi_ask(1, ASK_SHARED, (int64_t)what, (int64_t)argument);
    return what == OPEN || what == CLOSE || mpi_answer(1) == 1;
}

static bool give_up(const char *key)
{
    mpi_why("shared", "%s: %.400s", key, usm_last_error());
    return false;
}

static bool measure(const char *key, usm_access_mode mode, uint64_t round)
{
    double value = ask(WRITE, round) ? pass(mode, round) : 0;

    if (value == 0)
        return give_up(key);
    mpi_figure(key, value);
    return true;
}

/* With blocks of one size, figures shared<suffix>.read, .write and .latency. */
bool shared_round(const char *suffix, size_t block_size, uint64_t round)
{
    char   key[64];
    double value;
    bool   ok, has;

    ok  = ask(OPEN, block_size);
    ok  = open_buffer(block_size) && ok; /* collective */
    has = mpi_answer(1) == 1;
    if (!ok || !has)
        return give_up("create");
    snprintf(key, sizeof key, "shared%s.read", suffix);
    ok = measure(key, USM_READ, 3 * round + 1);
    snprintf(key, sizeof key, "shared%s.write", suffix);
    ok    = ok && measure(key, USM_READ_WRITE, 3 * round + 2);
    value = ok && ask(WRITE, 3 * round + 3) ? latency(block_size) : 0;
    snprintf(key, sizeof key, "shared%s.latency", suffix);
    if (value > 0)
        mpi_figure(key, value);
    (void)ask(CLOSE, 0);
    usm_shared_buffer_destroy(buffer);
    buffer = NULL;
    return mpi_answer(1) == 1 && ok;
}
