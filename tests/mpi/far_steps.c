/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* far_steps lend FIRST COUNT [PASS] | borrow [PASS] | join STEP | end STEP: processes that die at
 * each step of the protocol of far memory (transports/far), over a real MPI.
 *
 *   lend    ranks 1 to COUNT die one after the other, each at the PASS-th time it comes by its step
 * of lend_steps, while rank 0 writes, reads and forgets blocks; two copies of each, and two lenders
 * more than die.  After each death everything is read, and the next one is told its step only when
 * all blocks have two copies again borrow  each rank but the first and the last dies at its step of
 * borrow_steps; the first one lends to all and must have all of its memory back, but for what the
 * last one has, and keeps join    rank 1 dies at that step while all of them attach end     rank 1
 * dies at that step while rank 0 gives back what it has, and leaves
 *
 * The verdict is one line, "ok ...: N cases, nothing lost".  Started by launch.sh --recovery, for
 * the launcher must outlive its ranks. */
#include "far_cases.h"

#include "base/fault.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHUNK     ((size_t)128 << 10)
#define CHUNKS    128
#define LIMIT     ((size_t)4 << 20)
#define WORDS     (CHUNK / sizeof(uint64_t))
#define PATIENCE  20.0 /* seconds that something takes at most, on a busy machine               */
#define PASS_BITS 8

/* Of a lender, in the order in which a block meets them. */
static const char *const lend_steps[] = {
    "die.lend.reserve",      "die.lend.reserved",  "die.lend.answered",  "die.lend.announced",
    "die.lend.posted",       "die.lend.receiving", "die.lend.bytes",     "die.lend.stored",
    "die.lend.acknowledged", "die.lend.fetch",     "die.lend.sent",      "die.lend.serving",
    "die.lend.served",       "die.lend.forget",    "die.lend.forgotten",
};
static const char *const borrow_steps[] = {
    "die.borrow.reserve", "die.borrow.answered", "die.borrow.store",        "die.borrow.announced",
    "die.borrow.sent",    "die.borrow.waiting",  "die.borrow.acknowledged", "die.borrow.posted",
    "die.borrow.fetch",   "die.borrow.arrived",  "die.borrow.forget",
};
#define LEND_STEPS   (sizeof lend_steps / sizeof *lend_steps)
#define BORROW_STEPS (sizeof borrow_steps / sizeof *borrow_steps)

static uint64_t turns[CHUNKS]; /* of each chunk of the buffer, as it was last written; 0: never */
static uint64_t last_turn, draws, accesses;
static bool     is_patient;

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t draw(void)
{
    uint64_t x = (job.seed << 32 | (uint64_t)job.rank << 24) + ++draws;

    x ^= x >> 31;
    x *= UINT64_C(0x9E3779B97F4A7C15);
    x ^= x >> 29;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    return x >> 16;
}

/* ---- content ------------------------------------------------------------------------- */

/* Where there is one lender only, it is asked again when it did not answer: a machine with more
 * ranks than processors may leave it out for longer than a lease, and nothing is lost by that. */
static usm_status begin_access(usm_buffer *b, size_t c, usm_access_mode mode, usm_access *a)
{
    double     until = seconds() + PATIENCE;
    usm_status st;

    do {
        st = usm_access_begin(b, c * CHUNK, CHUNK, mode, a);
        if (st != USM_OK && is_patient)
            sleep_ms(100);
    } while (st != USM_OK && is_patient && seconds() < until);
    return st;
}

static void fill(usm_buffer *b, size_t c, uint64_t turn)
{
    usm_access a;
    usm_status st = begin_access(b, c, USM_WRITE_NO_INIT, &a);

    NEED(st == USM_OK, "rank %d: write of chunk %zu: %s", job.rank, c, usm_last_error());
    for (size_t i = 0; i < WORDS; i++)
        ((uint64_t *)a.ptr)[i] = (turn << 40 | c << 16) ^ i * UINT64_C(0x9E3779B97F4A7C15);
    usm_access_end(&a);
    accesses++;
}

static void look(usm_buffer *b, size_t c, uint64_t turn)
{
    usm_access a;
    usm_status st = begin_access(b, c, USM_READ, &a);

    NEED(st == USM_OK, "rank %d: read of chunk %zu: %s", job.rank, c, usm_last_error());
    for (size_t i = 0; i < WORDS; i++)
        NEED(((const uint64_t *)a.ptr)[i] ==
                 ((turn << 40 | c << 16) ^ i * UINT64_C(0x9E3779B97F4A7C15)),
             "rank %d: word %zu of chunk %zu is %llx, in turn %llu", job.rank, i, c,
             (unsigned long long)((const uint64_t *)a.ptr)[i], (unsigned long long)turn);
    usm_access_end(&a);
    accesses++;
}

static void write_all(usm_buffer *b)
{
    for (size_t c = 0; c < CHUNKS; c++)
        fill(b, c, turns[c] = ++last_turn);
}

static void read_all(usm_buffer *b)
{
    for (size_t k = 0; k < CHUNKS; k++)
        look(b, k * 37 % CHUNKS, turns[k * 37 % CHUNKS]);
}

/* One that outgrows memory too, is read, and goes: its blocks are reserved and forgotten. */
static void passing_buffer(void)
{
    usm_buffer *b = buffer_new(2 * LIMIT);

    for (size_t c = 0; c < 2 * LIMIT / CHUNK; c++)
        fill(b, c, 77);
    for (size_t c = 0; c < 2 * LIMIT / CHUNK; c += 5)
        look(b, c, 77);
    usm_buffer_destroy(b);
}

static void work(usm_buffer *b)
{
    for (unsigned i = 0; i < 40; i++) {
        size_t c = (size_t)draw() % CHUNKS;

        if (draw() % 2)
            fill(b, c, turns[c] = ++last_turn);
        else
            look(b, c, turns[c]);
    }
    if (draw() % 4 == 0)
        passing_buffer();
}

/* ---- ranks ----------------------------------------------------------------------------- */

static bool is_dead(int rank)
{
    char  name[64], text[256] = "";
    FILE *f;

    snprintf(name, sizeof name, "/proc/%d/stat", (int)job.pid[rank]);
    f = fopen(name, "re");
    if (!f)
        return true;
    (void)!fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    return strstr(text, ") Z ") != NULL || strstr(text, ") X ") != NULL;
}

static void await_death(int rank, const char *step)
{
    double until = seconds() + PATIENCE;

    while (!is_dead(rank)) {
        NEED(seconds() < until, "rank %d has not come by %s", rank, step);
        sleep_ms(20);
    }
}

static void arm(const char *step, unsigned pass)
{
    NEED(usm__fault_arm(step, pass, false, USM_OK), "no room for a rule about %s", step);
}

/* An order to a lender: which step, and how often it passes. */
static void obey_arm(int what)
{
    arm(lend_steps[what >> PASS_BITS], (unsigned)what & ((1u << PASS_BITS) - 1));
}

/* Blocks go out over the link, not into memory that is mapped. */
static void begin(const char *replicas)
{
    char text[32];

    job_begin(MPI_THREAD_MULTIPLE);
    job_set("USM_MPI_NEAR", "0");
    job_borrows(replicas);
    snprintf(text, sizeof text, "host:%zu", LIMIT);
    job_set("USM_MEMORY_LIMIT", text);
    snprintf(text, sizeof text, "%zu", CHUNK);
    job_set("USM_SPILL_BLOCK", text);
}

/* ---- lenders die ----------------------------------------------------------------------- */

static void await_copies(void)
{
    double          until = seconds() + PATIENCE;
    usm_spill_stats stats = {.struct_size = sizeof stats};

    do {
        sleep_ms(20);
        NEED_STATUS(usm_spill_get_stats(NULL, &stats), USM_OK);
        NEED(seconds() < until, "%llu blocks have not got their second copy back",
             (unsigned long long)stats.copies_missing);
    } while (stats.copies_missing > 0);
    NEED(stats.blocks_lost == 0, "%llu blocks are lost", (unsigned long long)stats.blocks_lost);
}

static void lend_one(usm_buffer *b, int rank, size_t step, unsigned pass)
{
    double until = seconds() + PATIENCE, died;

    job_order(rank, (int)(step << PASS_BITS | pass));
    while (!is_dead(rank)) {
        work(b);
        NEED(seconds() < until, "lender %d has not come by %s for the %uth time", rank,
             lend_steps[step], pass);
    }
    died = seconds();
    read_all(b);
    work(b);
    while (seconds() < died + 1.2e-3 * LEASE_MS) /* it is noticed by then */
        work(b);
    await_copies();
    read_all(b);
}

static void lend(size_t first, size_t count, unsigned pass)
{
    usm_buffer *b;
    char        text[160];

    begin("2");
    if (job.rank != 0)
        job_lends();
    NEED(job.size >= (int)count + 3, "%zu lenders die: %zu ranks are needed", count, count + 3);
    NEED(first + count <= LEND_STEPS && pass < 1u << PASS_BITS, "there are %zu steps", LEND_STEPS);
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_OK);
    job.obey = obey_arm;
    job_serve();
    b = buffer_new(CHUNKS * CHUNK);
    write_all(b);
    for (size_t i = 0; i < count; i++)
        lend_one(b, (int)i + 1, first + i, pass);
    usm_buffer_destroy(b);
    snprintf(text, sizeof text,
             "lenders killed at %s to %s, the %uth time, %llu accesses: %zu cases, nothing lost",
             lend_steps[first] + 9, lend_steps[first + count - 1] + 9, pass,
             (unsigned long long)accesses, count);
    job_end_hard(text);
}

/* ---- borrowers die --------------------------------------------------------------------- */

static usm_buffer *kept;

/* The survivor: all that it has is there; then it gives it back. */
static void obey_give_back(int what)
{
    (void)what;
    read_all(kept);
    usm_buffer_destroy(kept);
    kept = NULL;
    MPI_Send(NULL, 0, MPI_BYTE, 0, 1, job.comm);
}

static void borrow_until_death(size_t step, unsigned pass)
{
    double      until = seconds() + PATIENCE;
    usm_buffer *b     = buffer_new(CHUNKS * CHUNK);

    write_all(b);
    MPI_Barrier(job.comm);
    arm(borrow_steps[step], pass);
    while (seconds() < until)
        work(b);
    job_fail("borrower %d has not come by %s for the %uth time", job.rank, borrow_steps[step],
             pass);
}

static void await_held(double bytes)
{
    double until = seconds() + PATIENCE;

    while (job_held() > bytes) {
        NEED(seconds() < until, "%.0f bytes are still kept", job_held());
        sleep_ms(50);
    }
}

static void borrow(unsigned pass)
{
    char   text[160];
    double all;

    begin("1");
    is_patient = true;
    NEED(job.size == (int)BORROW_STEPS + 2, "it needs %zu ranks", BORROW_STEPS + 2);
    if (job.rank == 0) /* it lends only, and enough for all */
        job_set("USM_SPILL_LEND", "1G");
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_OK);
    if (job.rank > 0 && job.rank < job.size - 1)
        borrow_until_death((size_t)job.rank - 1, pass);
    if (job.rank == job.size - 1) {
        kept = buffer_new(CHUNKS * CHUNK);
        write_all(kept);
    }
    MPI_Barrier(job.comm);
    job.obey = obey_give_back;
    job_serve();
    all = job_held();
    for (int i = 1; i < job.size - 1; i++)
        await_death(i, borrow_steps[i - 1]);
    await_held((double)(CHUNKS * CHUNK));
    NEED(job_held() > (double)(CHUNKS * CHUNK - LIMIT) / 2, "%.0f bytes are kept for who is alive",
         job_held());
    job_order(job.size - 1, 0);
    MPI_Recv(NULL, 0, MPI_BYTE, job.size - 1, 1, job.comm, MPI_STATUS_IGNORE);
    await_held(0);
    snprintf(text, sizeof text,
             "borrowers killed, the %uth time, %.0f MiB freed, one alive kept its own: %zu cases, "
             "nothing lost",
             pass, all / (1 << 20), BORROW_STEPS);
    job_end_hard(text);
}

/* ---- beginning and end ------------------------------------------------------------------- */

/* By the environment: nothing of libusm has run yet. */
static void set_hook(const char *step)
{
    char text[80];

    snprintf(text, sizeof text, "fault:die.%s@1", step);
    job_set("USM_HOOKS", text);
}

/* Attaching ends for the others, well or with one status that says why. */
static void join(const char *step)
{
    usm_buffer *b;
    usm_status  st;
    char        text[160];

    begin("2");
    if (job.rank != 0)
        job_lends();
    if (job.rank == 1)
        set_hook(step);
    st = USM_MPI_ATTACH(job.comm);
    NEED(st == USM_OK || st == USM_E_PEER, "rank %d: attaching is %s: %s", job.rank,
         usm_status_name(st), usm_last_error());
    NEED(job.rank != 1, "rank 1 has not come by %s", step);
    job_serve();
    await_death(1, step);
    if (st == USM_OK) {
        b = buffer_new(CHUNKS * CHUNK);
        write_all(b);
        read_all(b);
        usm_buffer_destroy(b);
    }
    snprintf(text, sizeof text, "a lender killed at %s, attaching was %s: 1 case, nothing lost",
             step, usm_status_name(st));
    job_end_hard(text);
}

static void end(const char *step)
{
    usm_context *context;
    usm_buffer  *b;
    char         text[160];
    double       began;

    begin("2");
    if (job.rank != 0)
        job_lends();
    if (job.rank == 1)
        set_hook(step);
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_OK);
    job_serve();
    NEED_STATUS(usm_context_create(NULL, &context), USM_OK);
    b = usm_buffer_new(context, CHUNKS * CHUNK);
    NEED(b != NULL, "no buffer: %s", usm_last_error());
    write_all(b);
    read_all(b);
    began = seconds();
    usm_buffer_destroy(b);
    usm_context_destroy(context); /* with it its store at the others */
    usm_mpi_detach();
    NEED(seconds() - began < PATIENCE, "leaving took %.1f s", seconds() - began);
    await_death(1, step);
    snprintf(text, sizeof text,
             "a lender killed at %s while its borrower left: 1 case, nothing lost", step);
    job_end_hard(text);
}

int main(int argc, char **argv)
{
    unsigned long n[3] = {0, 0, 1};

    job.name = argc > 1 ? argv[1] : "";
    job.seed = 1;
    for (int i = 2; i < argc && i < 5; i++)
        n[i - 2] = strtoul(argv[i], NULL, 10);
    if (strcmp(job.name, "lend") == 0 && argc >= 4)
        lend(n[0], n[1], (unsigned)n[2]);
    if (strcmp(job.name, "borrow") == 0)
        borrow(argc > 2 ? (unsigned)n[0] : 1);
    if (strcmp(job.name, "join") == 0 && argc == 3)
        join(argv[2]);
    if (strcmp(job.name, "end") == 0 && argc == 3)
        end(argv[2]);
    fprintf(stderr,
            "usage: far_steps lend FIRST COUNT [PASS] | borrow [PASS] | join STEP | end STEP\n");
    return 2;
}
