/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How the ranks of a job over transports/socket come together: who is missing, who comes twice or
 * late, deaths, strangers, and what usm_job_join() does not take.  The meeting itself is tested by
 * tests/group/test_meet.c. */
#include "cluster/socket_ranks.h"

#include "base/os_ipc.h"
#include "device/registry.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

/* ---- coming together ------------------------------------------------------------------------- */

static void come_alone(uint32_t rank, uint32_t count, rank_fn *fn)
{
    uint64_t begun = vclock_now_ms();

    CHECK_INT(join(rank, count, ",wait=600000"), USM_E_PEER);
    CHECK(vclock_now_ms() - begun >= 600000);
    CHECK_IN("did not meet within 600000 ms: rank 0, 2 of 3 did not come", usm_last_error());
    CHECK_IN(folder, usm_last_error());
    CHECK_INT(join(0, 1, ""), USM_OK); /* another job may be tried */
    fn(0, 1);
    usm_job_leave();
}

static void a_missing_rank_is_named(void)
{
    begin();
    CHECK_INT(end_in(vclock_wait_pid(start(come_alone, 1, 3, agree_often), STEP_MS)), 0);
    CHECK(!is_bound(name_of_folder())); /* nothing is left */
    CHECK_INT(rmdir(folder), 0);
}

static void come_with_size(uint32_t rank, uint32_t count, rank_fn *fn)
{
    (void)fn;
    if (rank == 1) {
        wait_for_host();
        CHECK_INT(join(rank, count, ""), USM_E_INVALID);
    } else {
        CHECK_INT(join(rank, count, ",wait=600000"), USM_E_PEER);
    }
    CHECK_IN("rank 1 came with size 3, not 2", usm_last_error());
}

static void different_sizes_are_told_to_both(void)
{
    pid_t a, b;

    begin();
    a = start(come_with_size, 0, 2, NULL);
    b = start(come_with_size, 1, 3, NULL);
    CHECK_INT(end_of(b), 0);
    CHECK_INT(end_in(vclock_wait_pid(a, STEP_MS)), 0);
}

static void stay_for_others(uint32_t rank, uint32_t count)
{
    (void)rank;
    (void)count;
    atomic_fetch_add(&board->met, 1);
    wait_for(&board->step, 1);
    barrier();
}

static void come_too_late(uint32_t rank, uint32_t count, rank_fn *fn)
{
    (void)fn;
    CHECK_INT(join(rank, count, ""), USM_E_BUSY);
    CHECK_IN("is complete; another group takes another folder", usm_last_error());
}

static void a_complete_job_lets_nobody_in(void)
{
    pid_t pids[2];

    begin();
    start_all(2, stay_for_others, pids);
    wait_for(&board->met, 2);
    CHECK_INT(end_of(start(come_too_late, 1, 2, NULL)), 0);
    CHECK_INT(end_of(start(come_too_late, 2, 3, NULL)), 0);
    atomic_store(&board->step, 1);
    CHECK_INT(end_of(pids[0]), 0);
    CHECK_INT(end_of(pids[1]), 0);
    CHECK(!is_bound(name_of_folder()));
}

/* The first that comes is the host. */
static uint32_t host;

static void stay_without_host(uint32_t rank, uint32_t count)
{
    (void)rank;
    (void)count;
    atomic_fetch_add(&board->met, 1);
    wait_for(&board->step, 1);
    wait_until_lost(host);
    barrier();
}

static void a_complete_job_stays_complete_when_its_host_has_ended(void)
{
    pid_t pids[3];

    for (host = 0; host < 3; host++) {
        begin();
        pids[host] = start(be_rank, host, 3, stay_without_host);
        wait_for_host();
        for (uint32_t r = 0; r < 3; r++)
            if (r != host)
                pids[r] = start(be_rank, r, 3, stay_without_host);
        wait_for(&board->met, 3);
        CHECK_INT(kill(pids[host], SIGKILL), 0);
        CHECK_INT(end_of(pids[host]), SIGKILL);
        CHECK_INT(end_of(start(come_too_late, host, 3, NULL)), 0);
        CHECK(is_bound(name_of_folder()));
        atomic_store(&board->step, 1);
        for (uint32_t r = 0; r < 3; r++)
            if (r != host)
                CHECK_INT(end_of(pids[r]), 0);
        CHECK(!is_bound(name_of_folder()));
    }
}

/* Two come as rank 0: one is refused, the other is in the job. */
static void compete(uint32_t rank, uint32_t count, rank_fn *fn)
{
    usm_status st;

    (void)fn;
    wait_for(&board->step, 1);
    st = join(rank, count, "");
    if (st == USM_E_BUSY) { /* the other one may have met rank 1 by then */
        CHECK(strstr(usm_last_error(), "rank 0 has come before") ||
              strstr(usm_last_error(), "is complete"));
        atomic_fetch_add(&board->refused, 1);
        return;
    }
    CHECK_INT(st, USM_OK);
    wait_for(&board->refused, 1);
    barrier();
    usm_job_leave();
}

static void of_two_processes_of_a_rank_one_is_refused(void)
{
    for (int round = 0; round < 5; round++) {
        pid_t pids[3];

        begin();
        for (uint32_t i = 0; i < 3; i++)
            pids[i] = start(compete, i / 2, 2, NULL);
        atomic_store(&board->step, 1);
        for (uint32_t i = 0; i < 3; i++)
            CHECK_INT(end_of(pids[i]), 0);
        CHECK_INT(atomic_load(&board->refused), 1);
    }
}

static void die_alone(uint32_t rank, uint32_t count)
{
    (void)rank;
    (void)count;
    (void)raise(SIGKILL);
}

static void a_folder_is_used_again_after_deaths(void)
{
    begin();
    CHECK_INT(end_of(start(be_rank, 0, 1, die_alone)), SIGKILL);
    CHECK_INT(end_of(start(be_rank, 0, 1, agree_often)), 0);
    CHECK_INT(end_of(start(be_rank, 0, 1, die_alone)), SIGKILL);
    run(3, talk);
    CHECK_INT(rmdir(folder), 0);
}

/* Another comes in the place of one that dies while the rest is missing. */
static void come_in_the_place_of_the_dead(void)
{
    pid_t first, others[2];

    begin();
    first     = start(be_rank, 1, 3, talk);
    others[0] = start(be_rank, 0, 3, talk);
    wait_for_host();
    (void)usleep(100000); /* most often both have come by then */
    CHECK_INT(kill(first, SIGKILL), 0);
    CHECK_INT(end_of(first), SIGKILL);
    first     = start(be_rank, 1, 3, talk);
    others[1] = start(be_rank, 2, 3, talk);
    CHECK_INT(end_of(first), 0);
    CHECK_INT(end_of(others[0]), 0);
    CHECK_INT(end_of(others[1]), 0);
}

/* ---- strangers ------------------------------------------------------------------------------- */

/* What processes say when they meet: as in src/group/meet.c. */
enum { COME = 1, WELCOME, REFUSED, LINK, ASK, VOTE };

typedef struct packet {
    uint32_t magic, release, kind, rank, size;
    char     hello[120]; /* of COME: the lease and the domain; of REFUSED: why */
} packet;

static int connect_to_host(void)
{
    const char *name = name_of_folder();
    unsigned    naps = 0;
    int         fd;

    while ((fd = usm__os_connect(name, LONGEST_MS)) < 0) {
        CHECK(errno == ECONNREFUSED || errno == EAGAIN);
        wait_a_while(&naps);
    }
    return fd;
}

static void say(int fd, uint32_t release, uint32_t kind, uint32_t rank, uint32_t size)
{
    const uint32_t lease_ms = 60000;
    packet         p        = {0x476d7375, release, kind, rank, size, ""};

    memcpy(p.hello, &lease_ms, sizeof lease_ms);
    CHECK_INT(usm__os_send(fd, &p, sizeof p, -1), 0);
}

/* 0: the end. */
static uint32_t hear(int fd, packet *p, int *passed)
{
    int n = -1;

    *p = (packet){.kind = 0};
    if (usm__os_receive(fd, p, sizeof *p, &n) != (ssize_t)sizeof *p || p->magic != 0x476d7375)
        p->kind = 0;
    if (passed)
        *passed = n;
    else if (n >= 0)
        (void)close(n);
    return p->kind;
}

static void send_garbage(unsigned seed)
{
    unsigned char bytes[4096];
    packet        p;
    int           fd = connect_to_host();

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)((seed = seed * 1103515245 + 12345) >> 16);
    if (seed & 0x10000)
        memcpy(bytes, "usmG\1\0\0\0", 8);
    (void)send(fd, bytes, seed % sizeof bytes, MSG_NOSIGNAL);
    if (seed & 0x20000)
        CHECK_INT(hear(fd, &p, NULL), 0);
    (void)close(fd);
}

static void expect_refusal(uint32_t release, uint32_t rank, uint32_t size, const char *why)
{
    packet p;
    int    fd = connect_to_host();

    say(fd, release, COME, rank, size);
    CHECK_INT(hear(fd, &p, NULL), REFUSED);
    CHECK_INT(p.release, 1);
    CHECK_IN(why, p.hello);
    CHECK_INT(hear(fd, &p, NULL), 0);
    (void)close(fd);
}

/* The first rank 1 is let in, the second is not; then the first goes. */
static void a_rank_that_has_come_is_let_in_once(void)
{
    pid_t  pids[3];
    packet p;
    int    first;

    begin();
    pids[0] = start(be_rank, 0, 3, talk);
    first   = connect_to_host();
    say(first, 1, COME, 1, 3);
    CHECK_INT(hear(first, &p, NULL), WELCOME);
    expect_refusal(1, 1, 3, "rank 1 has come before");
    (void)close(first);
    for (uint32_t r = 1; r < 3; r++)
        pids[r] = start(be_rank, r, 3, talk);
    for (uint32_t r = 0; r < 3; r++)
        CHECK_INT(end_of(pids[r]), 0);
}

static void be_strange(uint32_t rank, uint32_t count, rank_fn *fn)
{
    int silent[100];

    (void)rank;
    (void)fn;
    for (unsigned seed = 1; seed < 40; seed++)
        send_garbage(seed);
    expect_refusal(2, 1, count, "another release of libusm came (version 2, not 1)");
    expect_refusal(1, 1, 9, "rank 1 came with size 9, not 2");
    expect_refusal(1, 0, count, "rank 0 has come before"); /* the host */
    expect_refusal(1, 77, count, "rank 77");               /* there is none */
    for (size_t i = 0; i < 100; i++)                       /* they stay, and say nothing */
        silent[i] = connect_to_host();
    atomic_store(&board->step, 1);
    wait_for(&board->step, 2);
    for (size_t i = 0; i < 100; i++)
        (void)close(silent[i]);
}

static void be_strange_later(uint32_t rank, uint32_t count, rank_fn *fn)
{
    (void)rank;
    (void)count;
    (void)fn;
    for (unsigned seed = 1; seed < 40; seed++) {
        packet p;
        int    fd = connect_to_host();

        (void)send(fd, &seed, sizeof seed, MSG_NOSIGNAL);
        CHECK_INT(hear(fd, &p, NULL), REFUSED);
        CHECK_STR(p.hello, "it is complete");
        (void)close(fd);
    }
}

static void talk_among_strangers(uint32_t rank, uint32_t count)
{
    talk(rank, count);
    atomic_fetch_add(&board->met, 1);
    wait_for(&board->step, 2);
    barrier();
}

static void strangers_are_sent_away(void)
{
    pid_t ranks[2], stranger;

    begin();
    ranks[0] = start(be_rank, 0, 2, talk_among_strangers);
    stranger = start(be_strange, 0, 2, NULL);
    wait_for(&board->step, 1);
    ranks[1] = start(be_rank, 1, 2, talk_among_strangers);
    wait_for(&board->met, 2);
    CHECK_INT(end_of(start(be_strange_later, 0, 2, NULL)), 0);
    atomic_store(&board->step, 2);
    CHECK_INT(end_of(stranger), 0);
    CHECK_INT(end_of(ranks[0]), 0);
    CHECK_INT(end_of(ranks[1]), 0);
}

/* Meets as libusm does, and gives the connection to rank 0. */
static int meet_by_hand(uint32_t rank, uint32_t count)
{
    int    fd = connect_to_host(), link = -1, listener = -1;
    packet p;

    say(fd, 1, COME, rank, count);
    CHECK_INT(hear(fd, &p, NULL), WELCOME);
    CHECK_INT(hear(fd, &p, &link), LINK);
    CHECK_INT(p.rank, 0);
    CHECK_INT(hear(fd, &p, &listener), ASK);
    CHECK_INT(p.rank, rank);
    say(fd, 1, VOTE, rank, count);
    CHECK_INT(hear(fd, &p, NULL), 0);
    CHECK(link >= 0 && listener >= 0);
    (void)close(listener);
    (void)close(fd);
    CHECK_INT(fcntl(link, F_SETFL, 0), 0);
    return link;
}

/* A rank 1 that is none of libusm's, and goes wrong in the way of this number. */
static uint32_t fault;

static void be_faulty(uint32_t rank, uint32_t count, rank_fn *fn)
{
    static uint32_t words[70000 / 4];
    const size_t    sizes[] = {0, 18, 18, 7, sizeof words, 0};
    const uint32_t  kinds[] = {0, 0, 4, 1, 1, 0};
    int             fd      = meet_by_hand(rank, count);

    (void)fn;
    words[0] = 1; /* a message */
    words[1] = USM__JOB_TEAMS;
    CHECK_INT(send(fd, words, 8 + size_of(0), MSG_NOSIGNAL), 8 + size_of(0));
    words[1] = 4711; /* a tag that nobody has */
    CHECK_INT(send(fd, words, 18, MSG_NOSIGNAL), 18);
    words[0] = kinds[fault];
    words[1] = USM__JOB_TEAMS;
    CHECK_INT(send(fd, words, sizes[fault], MSG_NOSIGNAL), sizes[fault]);
    while (recv(fd, words, sizeof words, 0) > 0)
        ; /* until it is cut off */
}

static void survive_the_faulty(uint32_t rank, uint32_t count)
{
    (void)rank;
    (void)count;
    usm__job_listen(USM__JOB_TEAMS, take, NULL);
    wait_until_lost(1);
    wait_for_messages(1, 1);
    usm__job_listen(USM__JOB_TEAMS, NULL, NULL);
}

/* usm_job_join() asks the others which node they are on, which it would answer in time only. */
static void who_sends_what_is_no_message_is_lost(void)
{
    for (fault = 1; fault <= 4; fault++) {
        pid_t good, bad;

        begin();
        good = start(be_rank, 0, 2, survive_the_faulty);
        bad  = start(be_faulty, 1, 2, NULL);
        CHECK_INT(end_of(good), 0);
        CHECK_INT(end_of(bad), 0);
    }
}

/* What listens there is not libusm. */
static void come_to_no_member(uint32_t rank, uint32_t count, rank_fn *fn)
{
    (void)fn;
    CHECK_INT(join(rank, count, ""), USM_E_PEER);
    CHECK_IN("what listens for the job in ", usm_last_error());
    CHECK_IN("is not libusm: take another folder", usm_last_error());
}

static void what_is_no_member_is_named(void)
{
    struct pollfd p = {.events = POLLIN};
    int           client;
    pid_t         pid;

    begin();
    CHECK_INT(mkdir(folder, 0700), 0);
    p.fd = usm__os_listen(name_of_folder());
    CHECK(p.fd >= 0);
    pid = start(come_to_no_member, 1, 2, NULL);
    CHECK_INT(poll(&p, 1, LONGEST_MS), 1);
    client = usm__os_accept(p.fd);
    CHECK(client >= 0);
    CHECK_INT(usm__os_send(client, "good day", 8, -1), 0);
    CHECK_INT(end_of(pid), 0);
    (void)close(client);
    (void)close(p.fd);
}

static void come_as_another_user(uint32_t rank, uint32_t count, rank_fn *fn)
{
    (void)fn;
    CHECK(usm__registry_transport("socket")); /* the other user may not read where it lies */
    if (rank == 0)
        CHECK_INT(seteuid(65534), 0);
    CHECK_INT(join(rank, count, ",wait=600000"), rank == 0 ? USM_E_PEER : USM_E_PERMISSION);
    if (rank == 1)
        CHECK_IN("is held by another user: take another folder", usm_last_error());
    CHECK_INT(seteuid(0), 0); /* who looks for leaks needs it */
}

/* Only root can be two users; the others have seen the rest. */
static void another_user_is_not_let_in(void)
{
    char  parent[512];
    pid_t pids[2];

    if (geteuid() != 0)
        return;
    begin();
    (void)snprintf(parent, sizeof parent, "%s", folder);
    *strrchr(parent, '/') = 0;
    CHECK_INT(chmod(parent, 0755), 0);
    CHECK_INT(mkdir(folder, 0700), 0);
    CHECK_INT(chmod(folder, 0777), 0);
    pids[0] = start(come_as_another_user, 0, 2, NULL);
    wait_for_host();
    pids[1] = start(come_as_another_user, 1, 2, NULL);
    CHECK_INT(end_of(pids[1]), 0);
    CHECK_INT(end_in(vclock_wait_pid(pids[0], STEP_MS)), 0);
}

/* ---- bad input ------------------------------------------------------------------------------- */

static void expect(usm_status status, const char *words, const char *where)
{
    CHECK_INT(usm_job_join(where), status);
    CHECK_IN(words, usm_last_error());
}

static void expect_config(usm_status status, const char *words, const char *config)
{
    char where[600];

    (void)snprintf(where, sizeof where, "socket:%s%s", folder, config);
    expect(status, words, where);
}

static void ask_for_nonsense(uint32_t rank, uint32_t count, rank_fn *fn)
{
    char where[1200];

    (void)rank;
    (void)count;
    (void)fn;
    expect(USM_E_INVALID, "\"(null)\" does not begin with a transport's name", NULL);
    expect(USM_E_INVALID, "does not begin with a transport's name", "");
    expect(USM_E_INVALID, "does not begin with a transport's name", "socket");
    expect(USM_E_INVALID, "does not begin with a transport's name", ":/tmp");
    expect(USM_E_INVALID, "is joined by usm_mpi_attach()", "mpi:");
    expect(USM_E_INVALID, "is joined by usm_mpi_attach()", "mpi_openmpi:x");
    expect(USM_E_NO_BACKEND, "there is no transport \"pigeons\"", "pigeons:/tmp");
    expect(USM_E_INVALID, "a folder comes first", "socket:");
    expect(USM_E_INVALID, "a folder comes first", "socket:,rank=0,size=1");
    expect_config(USM_E_INVALID, "rank= is missing", "");
    expect_config(USM_E_INVALID, "rank= is missing", ",size=2");
    expect_config(USM_E_INVALID, "size=, or it is 0, is missing", ",rank=0");
    expect_config(USM_E_INVALID, "size=, or it is 0, is missing", ",rank=0,size=0");
    expect_config(USM_E_INVALID, "there is no rank 2 in a job of size 2", ",rank=2,size=2");
    expect_config(USM_E_INVALID, "\"ranks=2\" is not a setting", ",ranks=2,size=2");
    expect_config(USM_E_INVALID, "\"rank=-1\": rank is a number from 0 to 1023", ",rank=-1");
    expect_config(USM_E_INVALID, "\"rank=\"", ",rank=");
    expect_config(USM_E_INVALID, "size is a number from 0 to 1024", ",rank=0,size=1025");
    expect_config(USM_E_INVALID, "size is a number", ",rank=0,size=99999999999999999999");
    expect_config(USM_E_INVALID, "\"\" is not a setting", ",,rank=0,size=1");
    (void)snprintf(where, sizeof where, "socket:/tmp/%01100d,rank=0,size=1", 0);
    expect(USM_E_INVALID, "take a shorter one", where);
    expect_config(USM_E_IO, "cannot be made: No such file", "/no/such,rank=0,size=1");
    CHECK(access(folder, F_OK) != 0); /* nobody has come as far as that */
}

static void what_does_not_parse_is_named(void)
{
    begin();
    CHECK_INT(end_of(start(ask_for_nonsense, 0, 1, NULL)), 0);
}

static void come_to_a_file(uint32_t rank, uint32_t count, rank_fn *fn)
{
    (void)rank;
    (void)count;
    (void)fn;
    expect_config(USM_E_IO, "cannot be used: Not a directory", ",rank=0,size=1");
}

static void a_file_of_the_user_is_left_alone(void)
{
    char text[16];

    begin();
    plain_write(folder, "precious");
    CHECK_INT(end_of(start(come_to_a_file, 0, 1, NULL)), 0);
    CHECK_STR(plain_read(folder, text, sizeof text), "precious");
}

static void spill_to_sockets(uint32_t rank, uint32_t count)
{
    const usm_transport_ops *ops = usm__registry_transport("socket");
    void                    *store;

    (void)rank;
    (void)count;
    CHECK(ops != NULL);
    CHECK_INT(ops->open(&(usm_transport_params){.block_size = 4096}, &store), USM_E_NOT_SUPPORTED);
    CHECK_IN("keeps no blocks", usm_last_error());
}

static void it_keeps_no_blocks(void)
{
    begin();
    run(1, spill_to_sockets);
}

static const plain_case cases[] = {
    CASE(a_missing_rank_is_named),
    CASE(different_sizes_are_told_to_both),
    CASE(a_complete_job_lets_nobody_in),
    CASE(a_complete_job_stays_complete_when_its_host_has_ended),
    CASE(of_two_processes_of_a_rank_one_is_refused),
    CASE(a_folder_is_used_again_after_deaths),
    CASE(come_in_the_place_of_the_dead),
    CASE(a_rank_that_has_come_is_let_in_once),
    CASE(strangers_are_sent_away),
    CASE(who_sends_what_is_no_message_is_lost),
    CASE(what_is_no_member_is_named),
    CASE(another_user_is_not_let_in),
    CASE(what_does_not_parse_is_named),
    CASE(a_file_of_the_user_is_left_alone),
    CASE(it_keeps_no_blocks),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
