/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport over MPI by its own table, without the parts above it: blocks go to every other
 * rank and come back, alone and many at a time, messages arrive in order, and the end comes by
 * detach() or, as in a program that does not include <usm/mpi.h>, by MPI_Finalize().
 *
 *     mpirun -n 4 mpi_basic_openmpi blocks|messages|finalize|idle|speed
 *     mpirun -n 2 mpi_basic_openmpi memd|orphans : -n 2 usm-memd --lend 64M
 *
 * USM_MPI names the module (openmpi, mpich, ...).  One rank prints "ok ..." or "not ok ...". */
#include "cluster/attach.h"
#include "device/registry.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <usm/init.h>

#define BLOCK    ((size_t)256 << 10)
#define NBLOCKS  16u /* a lender and borrower                                              */
#define LEND     (UINT64_C(64) << 20)
#define MESSAGES 200u

static const usm_transport_ops *ops;
static void                    *job;
static MPI_Comm                 world; /* the program's                                       */
static int                      rank, nranks, failures, nlenders;

#define CHECK(expr) ((expr) ? (void)0 : fail(#expr, __LINE__))

static void fail(const char *what, int line)
{
    failures++;
    (void)printf("# rank %d, line %d: %s: %s\n", rank, line, what, usm_last_error());
    (void)fflush(stdout);
}

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- messages ------------------------------------------------------------------------- */

static _Atomic uint32_t *received; /* by sender: how many, in order                          */
static _Atomic uint32_t  out_of_order;

static void on_message(void *user, uint32_t from, uint32_t tag, const void *data, size_t size)
{
    uint32_t number = UINT32_MAX;

    (void)user;
    if (size >= sizeof(number))
        memcpy(&number, data, sizeof(number));
    if (tag != 7 || number != received[from] || size != 4 + (number * 331) % 60000)
        out_of_order++;
    received[from]++;
}

typedef struct bells {
    bool     is_there;
    unsigned ringers, others, sent;
} bells;

static bells read_bells(void)
{
    bells b = {.is_there = false};
    char  text[2048];

    ops->job_describe(job, text, sizeof(text));
    for (const char *line = text; line && !b.is_there; line = line ? line + 1 : NULL) {
        b.is_there = sscanf(line, "%u of %u other %*s wake its thread when they send, for %u",
                            &b.ringers, &b.others, &b.sent) == 3;
        line       = strchr(line, '\n');
    }
    return b;
}

/* Each member of this host counts its messages here, and rings for them, after MPI has taken them: the
 * last ones may have arrived before.  With USM_MPI_NEAR=0 none can. */
static void check_bells(double end)
{
    const char *near = getenv("USM_MPI_NEAR"); /* NOLINT(concurrency-mt-unsafe): nobody sets it */
    bells       b    = read_bells();

    CHECK(b.is_there && b.others == (unsigned)nranks - 1);
    if (near && strcmp(near, "0") == 0) {
        CHECK(b.ringers == 0 && b.sent == 0);
        return;
    }
    while (b.sent < b.others * MESSAGES && seconds() < end)
        b = read_bells();
    CHECK(b.ringers == b.others && b.sent >= b.others * MESSAGES);
}

static void send_messages(void)
{
    static char text[65536];
    uint32_t    self = 0, count = 0;
    double      end = seconds() + 20;

    for (uint32_t i = 0; i < MESSAGES; i++)
        for (int to = 0; to < nranks; to++) {
            memcpy(text, &i, sizeof(i));
            CHECK(ops->send(job, (uint32_t)to, 7, text, 4 + (i * 331) % 60000) == USM_OK);
        }
    for (int from = 0; from < nranks; from++)
        while (received[from] < MESSAGES && seconds() < end)
            CHECK(ops->members(job, &self, &count) == USM_OK);
    for (int from = 0; from < nranks; from++)
        CHECK(received[from] == MESSAGES);
    CHECK(out_of_order == 0);
    check_bells(end);
    CHECK(self == (uint32_t)rank && count == (uint32_t)nranks);
}

/* ---- blocks ----------------------------------------------------------------------------- */

static _Atomic uint32_t pending;

static void on_done(usm_transfer *t, usm_status status)
{
    (void)t;
    if (status != USM_OK)
        fail(usm_status_string(status), __LINE__);
    pending--;
}

static void fill(uint32_t *p, uint32_t place, uint32_t block)
{
    for (size_t i = 0; i < BLOCK / 4; i++)
        p[i] = (uint32_t)i * 2654435761u + place * 977u + block * 31u + (uint32_t)rank;
}

static char *memory, *expected;

static void move_all(void *store, uint32_t place, usm_transfer_op op, bool is_awaited)
{
    static usm_transfer t[NBLOCKS];
    double              end = seconds() + 20;

    pending = NBLOCKS;
    for (uint32_t b = 0; b < NBLOCKS; b++)
        t[b] = (usm_transfer){.op         = op,
                              .block      = (uint64_t)place << 48 | b,
                              .size       = BLOCK,
                              .data       = memory + b * BLOCK,
                              .registered = SIZE_MAX,
                              .is_awaited = is_awaited,
                              .done       = on_done,
                              .next       = !is_awaited && b + 1 < NBLOCKS ? &t[b + 1] : NULL};
    for (uint32_t b = 0; b < (is_awaited ? NBLOCKS : 1); b++)
        ops->submit(store, &t[b]);
    while (pending && seconds() < end)
        CHECK(ops->progress(store, 1) == USM_OK);
    if (pending) { /* they are on this stack's memory */
        fail("transfers have not ended", __LINE__);
        abort();
    }
}

static void use_place(void *store, uint32_t place, bool is_awaited)
{
    CHECK(ops->reserve(store, (uint64_t)place << 48, NBLOCKS) == USM_OK);
    for (uint32_t b = 0; b < NBLOCKS; b++)
        fill((uint32_t *)(void *)(memory + b * BLOCK), place, b);
    move_all(store, place, USM_TRANSFER_STORE, is_awaited);
    memset(memory, 0xee, NBLOCKS * BLOCK);
    move_all(store, place, USM_TRANSFER_FETCH, is_awaited);
    for (uint32_t b = 0; b < NBLOCKS; b++) {
        fill((uint32_t *)(void *)expected, place, b);
        CHECK(memcmp(memory + b * BLOCK, expected, BLOCK) == 0);
    }
}

static void *use_blocks(bool forgets)
{
    usm_transport_params params = {.struct_size = sizeof(params),
                                   .api         = &usm__registry_api,
                                   .config      = "",
                                   .block_size  = BLOCK};
    void                *store  = NULL;

    memory   = aligned_alloc(4096, NBLOCKS * BLOCK);
    expected = aligned_alloc(4096, BLOCK);
    CHECK(memory && expected && ops->open(&params, &store) == USM_OK);
    if (!memory || !expected || !store)
        return NULL;
    CHECK(ops->places(store) == (uint32_t)nlenders);
    for (uint32_t p = 0; p < ops->places(store); p++) {
        usm_transport_place info;

        CHECK(ops->place(store, p, &info) == USM_OK && info.state == USM_PLACE_UP);
        CHECK(info.capacity == LEND);
        use_place(store, p, p % 2 == 0);
        use_place(store, p, p % 2 != 0); /* over what is there */
        if (forgets)
            ops->forget(store, (uint64_t)p << 48, NBLOCKS);
    }
    return store;
}

/* ---- orphans ------------------------------------------------------------------------------- */

/* Until each server has `least` to `most` bytes free. */
static bool await_room(void *store, uint64_t least, uint64_t most)
{
    const double end = seconds() + 20;
    bool         all = false;

    while (!all && seconds() < end) {
        all = true;
        for (uint32_t p = 0; p < ops->places(store); p++) {
            usm_transport_place info;

            CHECK(ops->place(store, p, &info) == USM_OK);
            all &= info.available >= least && info.available <= most;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return all;
}

/* Clients of usm-memd die: what the first ones had is free while rank 0 lives, and when it has died
 * as well the servers end, or the launcher would not (--recovery). */
_Noreturn static void die(void *store)
{
    const uint64_t own = NBLOCKS * BLOCK;

    MPI_Barrier(world);
    if (rank == 0)
        CHECK(await_room(store, 0, LEND - (uint64_t)nranks * own));
    MPI_Barrier(world);
    if (rank == 0) {
        CHECK(await_room(store, LEND - own, LEND));
        (void)printf("%s mpi_basic orphans: what the dead had is free\n",
                     failures ? "not ok" : "ok");
        (void)fflush(stdout);
        (void)nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* it is to be read */
    }
    (void)raise(SIGKILL);
    abort();
}

/* ---- idle ---------------------------------------------------------------------------------- */

/* Not judged: the machine is noisy.  For people. */
static void idle(void)
{
    const struct timespec ten = {.tv_sec = 10};
    struct rusage         a, b;
    double                used;

    (void)nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    (void)getrusage(RUSAGE_SELF, &a);
    (void)nanosleep(&ten, NULL);
    (void)getrusage(RUSAGE_SELF, &b);
    used = (double)(b.ru_utime.tv_sec - a.ru_utime.tv_sec + b.ru_stime.tv_sec - a.ru_stime.tv_sec) +
           1e-6 * (double)(b.ru_utime.tv_usec - a.ru_utime.tv_usec + b.ru_stime.tv_usec -
                           a.ru_stime.tv_usec);
    (void)printf("# rank %d used %.1f ms of processor in 10 s\n", rank, 1e3 * used);
}

/* ---- speed ---------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Not judged either: median of `n` transfers of `size`, one at a time. */
static double time_of(void *store, usm_transfer_op op, size_t size)
{
    enum { N = 201 };
    static double times[N];

    for (int i = 0; i < N; i++) {
        usm_transfer t     = {.op         = op,
                              .block      = (uint64_t)i % NBLOCKS,
                              .size       = size,
                              .data       = memory + ((size_t)i % NBLOCKS) * BLOCK,
                              .registered = SIZE_MAX,
                              .is_awaited = true,
                              .done       = on_done};
        double       start = seconds();

        pending = 1;
        ops->submit(store, &t);
        times[i] = seconds() - start;
    }
    qsort(times, N, sizeof(times[0]), by_size);
    return 1e6 * times[N / 2];
}

/* The others sleep: a rank that waits in MPI_Barrier() takes a processor from its lender's thread.
 */
static void wait_asleep(void)
{
    MPI_Request r;
    int         is_over = 0;

    MPI_Ibarrier(world, &r);
    while (!is_over) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        MPI_Test(&r, &is_over, MPI_STATUS_IGNORE);
    }
}

static void speed(void)
{
    void *store = use_blocks(false);

    wait_asleep();
    for (size_t size = 4096; rank == 0 && store && size <= BLOCK; size *= 8) {
        double kept = time_of(store, USM_TRANSFER_STORE, size);

        (void)printf("# %zu bytes: store %.1f us, fetch %.1f us\n", size, kept,
                     time_of(store, USM_TRANSFER_FETCH, size));
    }
    wait_asleep();
    if (store)
        ops->close(store);
}

/* ---- the program ----------------------------------------------------------------------------- */

/* With servers the program has a world of its own, and lends nothing. */
static bool find_world(bool has_servers)
{
    int all = 0;

    CHECK(usm__cluster_load(getenv("USM_MPI") ? getenv("USM_MPI") : MPI_BASIC_MODULE, &ops) ==
          USM_OK);
    if (!ops)
        return false;
    world = MPI_COMM_WORLD;
    MPI_Comm_size(world, &all);
    if (has_servers)
        CHECK(ops->app_comm(&world, sizeof(world)) == USM_OK);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &nranks);
    nlenders = has_servers ? all - nranks : nranks - 1;
    return true;
}

static bool attach(bool has_servers)
{
    usm_job_params params = {.struct_size = sizeof(params)};

    CHECK(usm__cluster_params(&params) == USM_OK);
    params.comm      = &world;
    params.comm_size = sizeof(world);
    params.lend      = has_servers ? 0 : LEND;
    params.message   = on_message;
    CHECK(ops->attach(&params, &job) == USM_OK);
    return job != NULL;
}

static void run(const char *what, void **store)
{
    if (strcmp(what, "messages") == 0)
        send_messages();
    else if (strcmp(what, "idle") == 0)
        idle();
    else if (strcmp(what, "speed") == 0)
        speed();
    else
        *store = use_blocks(strcmp(what, "memd") == 0 || strcmp(what, "blocks") == 0);
    if (strcmp(what, "orphans") == 0 && *store)
        die(*store);
}

int main(int argc, char **argv)
{
    const char *what  = argc > 1 ? argv[1] : "blocks";
    const bool  memd  = strcmp(what, "memd") == 0 || strcmp(what, "orphans") == 0;
    const bool  final = strcmp(what, "finalize") == 0;
    void       *store = NULL;
    char        text[2048];
    int         level = 0, all = 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    if (!find_world(memd))
        MPI_Abort(MPI_COMM_WORLD, 1);
    received = calloc((size_t)nranks, sizeof(*received));
    if (!received || !attach(memd))
        MPI_Abort(MPI_COMM_WORLD, 1);
    run(what, &store);
    ops->job_describe(job, text, sizeof(text));
    if (rank == 0)
        (void)printf("# %s\n", text);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, world);
    if (store && !final)
        ops->close(store);
    if (!final && !memd)
        ops->detach(job, false);
    MPI_Finalize();
    if (store && final)
        ops->close(store); /* late, and harmless */
    if (rank == 0)
        (void)printf("%s mpi_basic %s with %d ranks\n", all ? "not ok" : "ok", what, nranks);
    return all != 0;
}
