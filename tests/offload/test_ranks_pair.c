/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Launches over ranks that have two members each, PoCL's and the host's: what becomes of a chunk
 * that both members of one rank do.
 *
 *     member   0 rank 0, PoCL   1 rank 0, host   2 rank 1, PoCL   3 rank 1, host
 *
 * Rank 0 is the master and home.  The policies say who takes what, and the host's kernels wait for
 * each other where the order matters; so the policies are no pure functions. */
#include "cluster/job_fixture.h"

#include "pair_kernels.h" /* made by usm_add_kernels() */

#include <usm/parallel.h>
#include <usm/usm.h>

#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

enum { CHUNKS = 8, CHUNK = 1 << 15, TOTAL = CHUNKS * CHUNK };

/* Of all ranks. */
static struct shared {
    atomic_bool is_doubled; /* or is about to be                                                */
    atomic_bool are_given;  /* all chunks, once                                                 */
} * shared;

/* This rank's. */
static struct {
    usm_team *team;
    uint32_t  rank;
    bool      dies;
    pthread_t release;
} here;

static void must(usm_status st)
{
    if (st != USM_OK)
        printf("# rank %u: %s: %s\n", here.rank, usm_status_name(st), usm_last_error());
    CHECK_INT(st, USM_OK);
}

static void sleep_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    (void)nanosleep(&t, NULL);
}

/* Ten seconds at most: who waits for nothing fails by another check. */
static void wait_for(atomic_bool *what)
{
    for (int i = 0; i < 2000 && !atomic_load(what); i++)
        sleep_ms(5);
}

/* ---- kernels -------------------------------------------------------------------------------- */

/* The part of the chunk that takes its time. */
static bool is_first(const usm_range *r)
{
    return r->begin[0] == r->offset[0];
}

/* Rank 1 ends while home holds all messages back, rank 0 long after that. */
static void ones(const usm_range *r, void *const *args)
{
    uint32_t *copies = *(uint32_t **)args[0];

    if (is_first(r)) {
        wait_for(&shared->is_doubled);
        sleep_ms(here.rank == 0 ? 2500 : 300);
    }
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        copies[i - r->offset[0]] += (uint32_t)i | 1u;
}

/* Adds up where it writes: somebody else's result must not come in between. */
static void fours(const usm_range *r, void *const *args)
{
    uint32_t *out = *(uint32_t **)args[0];

    if (here.dies) {
        wait_for(&shared->are_given);
        (void)raise(SIGKILL);
    }
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        out[i - r->offset[0]] = 0;
    for (int k = 0; k < 4; k++) {
        if (is_first(r))
            sleep_ms(250);
        for (size_t i = r->begin[0]; i < r->end[0]; i++)
            out[i - r->offset[0]]++;
    }
}

static const usm_native_kernel native[] = {{"ones", ones, 1, NULL}, {"fours", fours, 1, NULL}};

static usm_team_kernel *begin(uint32_t rank, const char *name)
{
    const usm_image  images[] = {{USM_IMAGE_BUNDLE, pair_kernels, pair_kernels_size},
                                 {USM_IMAGE_NATIVE, native, sizeof native}};
    usm_program_desc program  = USM_PROGRAM_DESC_INIT;
    usm_team_desc    desc     = USM_TEAM_DESC_INIT;
    usm_device      *list[2];
    usm_team_kernel *k;
    size_t           n;

    here.rank       = rank;
    program.nimages = 2;
    program.images  = images;
    must(usm_select_devices("opencl:*", &list[0], 1, &n));
    must(usm_select_devices("host:*", &list[1], 1, &n));
    desc.ndevices = 2;
    desc.devices  = list;
    desc.ranks    = true;
    must(usm_team_create(&desc, &here.team));
    CHECK_INT(usm_team_size(here.team), 4);
    must(usm_team_kernel_create(here.team, &program, name, &k));
    return k;
}

static usm_status launch(usm_team_kernel *k, const usm_split_arg *arg, usm_policy_fn policy,
                         usm_parallel_stats *stats)
{
    usm_parallel_desc d = USM_PARALLEL_DESC_INIT;

    d.kernel    = k;
    d.global[0] = TOTAL;
    d.args      = arg;
    d.nargs     = 1;
    d.policy.fn = policy;
    return usm_parallel(here.team, &d, stats);
}

static void end(usm_team_kernel *k)
{
    usm_team_kernel_destroy(k);
    usm_team_destroy(here.team);
}

static uint64_t once(const usm_policy_state *s, uint32_t member)
{
    return s->members[member].chunks == 0 && s->members[member].flying == 0 ? CHUNK : 0;
}

/* ---- private copies ------------------------------------------------------------------------- */

static void *let_messages_go(void *unused)
{
    (void)unused;
    sleep_ms(1500);
    job_hold(false);
    return NULL;
}

/* The host of each rank gets one chunk, PoCL on rank 1 the others, and then that of its host. */
static uint64_t rank_1_does_it_twice(const usm_policy_state *s, uint32_t member)
{
    if (member == 0)
        return 0;
    if (member != 2)
        return once(s, member);
    if (s->given >= CHUNKS && !atomic_exchange(&shared->is_doubled, true)) {
        job_hold(true);
        CHECK(pthread_create(&here.release, NULL, let_messages_go, NULL) == 0);
    }
    return CHUNK;
}

static void rank_counts_copies_once(uint32_t rank, uint32_t count)
{
    usm_team_kernel    *k     = begin(rank, "ones");
    usm_parallel_stats  stats = USM_PARALLEL_STATS_INIT;
    uint32_t            sum = 0, want = 0;
    const usm_split_arg arg = USM_SPLIT_SUM(rank == 0 ? &sum : NULL, 4, USM_ELEMENT_U32, 1);

    (void)count;
    must(launch(k, &arg, rank_1_does_it_twice, &stats));
    CHECK(atomic_load(&shared->is_doubled));
    CHECK(stats.duplicated + stats.rescheduled >= 1);
    for (uint32_t i = 0; i < TOTAL; i++)
        want += i | 1u;
    if (rank == 0) {
        CHECK_INT(sum, want);
        CHECK(pthread_join(here.release, NULL) == 0);
    }
    end(k);
}

/* Their copies are in messages that home finds one behind the other. */
static void private_copies_of_both_members_count_once(void)
{
    job_run(2, rank_counts_copies_once);
}

/* ---- in place, at home ---------------------------------------------------------------------- */

/* Home's host gets one chunk, PoCL there the others, and both PoCLs could do that one sooner. */
static uint64_t home_is_slow(const usm_policy_state *s, uint32_t member)
{
    if (member == 1)
        return once(s, 1);
    return member == 0 || (member == 2 && s->given >= CHUNKS) ? CHUNK : 0;
}

static void check_fours(const uint32_t *out)
{
    for (size_t i = 0; out && i < TOTAL; i++)
        if (out[i] != 4)
            plain_fail(__FILE__, __LINE__, "two members wrote an index at the same time");
}

static void rank_leaves_home_alone(uint32_t rank, uint32_t count)
{
    usm_team_kernel    *k     = begin(rank, "fours");
    usm_parallel_stats  stats = USM_PARALLEL_STATS_INIT;
    uint32_t           *out   = rank == 0 ? calloc(TOTAL, sizeof *out) : NULL;
    const usm_split_arg arg   = USM_SPLIT_OUT(out, sizeof *out);

    (void)count;
    must(launch(k, &arg, home_is_slow, &stats));
    CHECK_INT(stats.duplicated, 0);
    check_fours(out);
    free(out);
    end(k);
}

static void what_home_writes_in_place_is_done_by_nobody_else(void)
{
    job_run(2, rank_leaves_home_alone);
}

/* Rank 1's host gets one chunk, and dies once nothing else is left; then home's host gets it, and
 * while it has it, PoCL there. */
static uint64_t home_does_it_twice(const usm_policy_state *s, uint32_t member)
{
    if (s->given >= CHUNKS)
        atomic_store(&shared->are_given, true);
    if (member == 0)
        return s->given < CHUNKS || s->members[1].flying > 0 ? CHUNK : 0;
    if (member == 1)
        return s->given >= CHUNKS && s->members[3].flying == 0 ? CHUNK : 0;
    return member == 3 ? once(s, 3) : 0;
}

static void rank_1_dies(uint32_t rank, uint32_t count)
{
    usm_team_kernel    *k     = begin(rank, "fours");
    usm_parallel_stats  stats = USM_PARALLEL_STATS_INIT;
    uint32_t           *out   = rank == 0 ? calloc(TOTAL, sizeof *out) : NULL;
    const usm_split_arg arg   = USM_SPLIT_OUT(out, sizeof *out);

    (void)count;
    here.dies = rank == 1;
    must(launch(k, &arg, home_does_it_twice, &stats));
    CHECK_INT(stats.rescheduled, 1);
    CHECK_INT(stats.duplicated, 1);
    check_fours(out);
    free(out);
    end(k);
}

static void what_both_members_of_home_do_again_is_done_on_copies(void)
{
    int status[2];

    job_run_some(2, rank_1_dies, status);
    CHECK_INT(status[0], 0);
    CHECK_INT(status[1], SIGKILL);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(private_copies_of_both_members_count_once),
        CASE(what_home_writes_in_place_is_done_by_nobody_else),
        CASE(what_both_members_of_home_do_again_is_done_on_copies),
        {NULL, NULL},
    };

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    job_plan_now.seconds = 100;
    return plain_main(argc, argv, cases);
}
