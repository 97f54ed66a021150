/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What ranks agree about, also when some end meanwhile: the same at all that live. */
#include "cluster/job_fixture.h"
#include "vclock.h"

#include "cluster/cluster.h"

#include <usm/usm.h>

#include <stdatomic.h>
#include <sys/mman.h>

static void barrier(void)
{
    char one = 1, ones[JOB_RANKS_MAX];

    CHECK_INT(usm__job_agree(&one, 1, ones, 20000, NULL), USM_OK);
}

typedef struct page {
    unsigned char bytes[4096];
} page;

static page mine, all[JOB_RANKS_MAX];

static unsigned char byte_of(uint32_t rank, uint32_t round, size_t at)
{
    return (unsigned char)(1 + (rank * 31 + round * 7 + at) % 255);
}

static usm_status agree_about(size_t size, uint32_t rank, uint32_t round, uint32_t *which)
{
    for (size_t i = 0; i < size; i++)
        mine.bytes[i] = byte_of(rank, round, i);
    memset(all, 0xee, sizeof all);
    return usm__job_agree(mine.bytes, size, all, 20000, which);
}

static void check_all(size_t size, uint32_t round, uint32_t count, uint32_t absent)
{
    const unsigned char *at = all[0].bytes;

    for (uint32_t rank = 0; rank < count; rank++)
        for (size_t i = 0; i < size; i++)
            CHECK_INT(*at++, rank == absent ? 0 : byte_of(rank, round, i));
    CHECK_INT(*at, 0xee);
}

static void agree_often(uint32_t rank, uint32_t count)
{
    for (uint32_t round = 0; round < 50; round++) {
        size_t size = round == 0 ? 4095 : 1 + round * 3;

        CHECK_INT(agree_about(size, rank, round, NULL), USM_OK);
        check_all(size, round, count, count);
    }
    CHECK_INT(usm__job_agree(mine.bytes, 4097, all, 1000, NULL), USM_E_INVALID);
    CHECK_INT(usm__job_agree(mine.bytes, 0, all, 1000, NULL), USM_E_INVALID);
}

static void all_get_everybodys_bytes(void)
{
    job_run(1, agree_often);
    job_run(2, agree_often);
    job_run(12, agree_often); /* the first result comes in two parts */
}

static void agree_without_threads(void)
{
    job_plan_now.by_calls = true;
    job_run(3, agree_often);
    job_plan_now.by_calls = false;
}

static void agree_after_a_death(uint32_t rank, uint32_t count)
{
    barrier();
    if (rank == 0) /* it would have been the root */
        (void)raise(SIGKILL);
    while (!usm__job_rank_is_lost(0))
        (void)usleep(1000);
    CHECK_INT(agree_about(10, rank, 1, NULL), USM_OK);
    check_all(10, 1, count, 0);
    CHECK_INT(agree_about(10, rank, 2, NULL), USM_OK);
}

static void what_the_dead_had_is_zeros(void)
{
    int status[4];

    job_run_some(4, agree_after_a_death, status);
    for (int rank = 0; rank < 4; rank++)
        CHECK_INT(status[rank], rank == 0 ? SIGKILL : 0);
}

static uint32_t who_dies;

/* Whether the others had begun when it died decides what they hear; all hear the same. */
static void die_meanwhile(uint32_t rank, uint32_t count)
{
    uint32_t   which = 99;
    usm_status st;

    barrier();
    if (rank == who_dies) {
        (void)usleep(200000); /* most often they had */
        (void)raise(SIGKILL);
    }
    st = agree_about(10, rank, 1, &which);
    if (st == USM_E_PEER) {
        CHECK_INT(which, who_dies);
        CHECK_IN("did not come to a call of all ranks", usm_last_error());
    } else {
        CHECK_INT(st, USM_OK);
        check_all(10, 1, count, who_dies);
    }
    CHECK_INT(agree_about(10, rank, st == USM_OK ? 2 : 3, NULL), USM_OK);
    check_all(10, st == USM_OK ? 2 : 3, count, who_dies);
}

static void what_a_rank_that_ends_meanwhile_does_is_the_same_for_all(void)
{
    int status[4];

    for (who_dies = 0; who_dies < 4; who_dies += 3) {
        job_run_some(4, die_meanwhile, status);
        for (uint32_t rank = 0; rank < 4; rank++)
            CHECK_INT(status[rank], rank == who_dies ? SIGKILL : 0);
    }
}

/* Seen by all ranks. */
static struct {
    _Atomic int   notified, cut;
    _Atomic pid_t pids[3];
} * board;

static void make_board(void)
{
    board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
}

static void wait_on_board(_Atomic int *number, int value)
{
    while (atomic_load(number) < value)
        (void)usleep(1000);
}

/* Rank 1 has the result by then.  What rank 0 said is thrown away with its socket. */
static void *cut_later(void *arg)
{
    wait_on_board(&board->notified, 1);
    job_cut(0);
    job_hold(false);
    atomic_store(&board->cut, 1);
    return arg;
}

/* Rank 0 decides, rank 1 hears of it, rank 2 does not; then rank 0 ends. */
static void lose_a_decision(uint32_t rank, uint32_t count)
{
    pthread_t cutter;

    barrier();
    if (rank == 2) {
        job_hold(true);
        CHECK_INT(pthread_create(&cutter, NULL, cut_later, NULL), 0);
    }
    CHECK_INT(agree_about(10, rank, 1, NULL), USM_OK);
    check_all(10, 1, count, count);
    if (rank == 1)
        atomic_store(&board->notified, 1);
    wait_on_board(&board->cut, 1);
    if (rank == 0)
        (void)raise(SIGKILL);
    if (rank == 2)
        CHECK_INT(pthread_join(cutter, NULL), 0);
    while (!usm__job_rank_is_lost(0))
        (void)usleep(1000);
    CHECK_INT(agree_about(10, rank, 2, NULL), USM_OK);
    check_all(10, 2, count, 0);
}

static void a_decision_outlives_who_made_it(void)
{
    int status[3];

    make_board();
    job_run_some(3, lose_a_decision, status);
    CHECK_INT(status[0], SIGKILL);
    CHECK_INT(status[1], 0);
    CHECK_INT(status[2], 0);
}

#define PATIENCE_MS 1000000 /* no real time of a test is as long                              */

/* The time of the others goes by once both are in the call, and in steps, between which the threads
 * of their transports look for messages. */
static void let_others_wait_in_vain(void)
{
    for (int rank = 0; rank < 2; rank++) {
        while (!atomic_load(&board->pids[rank]))
            (void)usleep(1000);
        CHECK(vclock_wait_until_waiting(atomic_load(&board->pids[rank])));
    }
    vclock_pass(PATIENCE_MS, PATIENCE_MS / 10);
    wait_on_board(&board->notified, 2);
}

static void come_late(uint32_t rank, uint32_t count)
{
    uint32_t which = 99;

    (void)count;
    barrier();
    if (rank == 2)
        let_others_wait_in_vain();
    else
        atomic_store(&board->pids[rank], getpid());
    mine.bytes[0] = 1;
    CHECK_INT(usm__job_agree(mine.bytes, 1, all, PATIENCE_MS, &which), USM_E_PEER);
    CHECK_INT(which, 2); /* rank 1 waits longer than rank 0, and hears it */
    atomic_fetch_add(&board->notified, 1);
    CHECK_INT(agree_about(10, rank, 2, NULL), USM_OK);
    check_all(10, 2, count, count);
}

static void who_comes_too_late_is_told_so(void)
{
    vclock_start();
    make_board();
    job_run(3, come_late);
}

static void disagree_about_sizes(uint32_t rank, uint32_t count)
{
    CHECK_INT(agree_about(rank == 1 ? 9 : 10, rank, 1, NULL), USM_E_INVALID);
    CHECK_IN("with other sizes", usm_last_error());
    CHECK_INT(agree_about(10, rank, 2, NULL), USM_OK);
    check_all(10, 2, count, count);
}

static void different_sizes_are_refused_everywhere(void)
{
    job_run(3, disagree_about_sizes);
}

/* A result as agree.c writes it, with status 0 and no bytes: of every call that may be under way.
 */
static void send_empty_success(uint32_t to)
{
    for (unsigned char seq = 1; seq < 8; seq++) {
        unsigned char text[24] = {2 /* RESULT */, [4] = seq};

        CHECK_INT(usm__job_send(to, USM__JOB_AGREE, text, sizeof text), USM_OK);
    }
}

/* Rank 1 is faulty: it sends a success without bytes until long after rank 0 has come. */
static void lie_about_success(uint32_t rank, uint32_t count)
{
    barrier();
    if (rank == 0)
        atomic_store(&board->notified, 1);
    for (int after = 0; rank == 1 && after < 50; after += atomic_load(&board->notified)) {
        send_empty_success(0);
        (void)usleep(2000);
    }
    CHECK_INT(agree_about(10, rank, 1, NULL), USM_OK);
    check_all(10, 1, count, count);
}

static void a_success_without_bytes_is_not_believed(void)
{
    make_board();
    job_run(2, lie_about_success);
}

static const plain_case cases[] = {
    CASE(all_get_everybodys_bytes),
    CASE(agree_without_threads),
    CASE(what_the_dead_had_is_zeros),
    CASE(what_a_rank_that_ends_meanwhile_does_is_the_same_for_all),
    CASE(a_decision_outlives_who_made_it),
    CASE(who_comes_too_late_is_told_so),
    CASE(different_sizes_are_refused_everywhere),
    CASE(a_success_without_bytes_is_not_believed),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
