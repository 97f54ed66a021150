/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How the ranks of a job over transports/socket come together: who is missing, who comes twice,
 * dead ones' sockets, strangers, and what usm_job_join() does not take. */
#include "cluster/socket_ranks.h"

#include "device/registry.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- coming together ------------------------------------------------------------------------- */

static void come_alone(uint32_t rank, uint32_t count, rank_fn *fn)
{
    uint64_t begun = vclock_now_ms();

    CHECK_INT(join(rank, count, ",wait=600000"), USM_E_PEER);
    CHECK(vclock_now_ms() - begun >= 600000);
    CHECK_IN("rank 0 has not come to ", usm_last_error());
    CHECK_IN("within 600000 ms (1 of 3 processes are there)", usm_last_error());
    CHECK_INT(join(0, 1, ""), USM_OK); /* another job may be tried */
    fn(0, 1);
    usm_job_leave();
}

static void a_missing_rank_is_named(void)
{
    char path[512];

    begin();
    CHECK_INT(end_in(vclock_wait_pid(start(come_alone, 1, 3, agree_often), STEP_MS)), 0);
    (void)snprintf(path, sizeof path, "%s/1.sock", folder);
    CHECK(access(path, F_OK) != 0); /* nothing is left */
    CHECK_INT(rmdir(folder), 0);
}

static void come_with_size(uint32_t rank, uint32_t count, rank_fn *fn)
{
    (void)fn;
    if (rank == 1) {
        wait_for_file("0.sock");
        CHECK_INT(join(rank, count, ""), USM_E_INVALID);
        CHECK_IN("has size=2, this process size=3", usm_last_error());
    } else {
        CHECK_INT(join(rank, count, ",wait=600000"), USM_E_PEER);
        CHECK_IN("rank 1 came with size=3, not 2", usm_last_error());
    }
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
    CHECK_IN(rank == 2 ? "is complete" : "another process is rank 1", usm_last_error());
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
}

/* Two come as rank 0: one is refused, the other is in the job. */
static void compete(uint32_t rank, uint32_t count, rank_fn *fn)
{
    usm_status st;

    (void)fn;
    wait_for(&board->step, 1);
    st = join(rank, count, "");
    if (st == USM_E_BUSY) {
        CHECK_IN("each rank comes once", usm_last_error());
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

static void the_socket_of_a_dead_process_is_replaced(void)
{
    char path[512];

    begin();
    CHECK_INT(end_of(start(be_rank, 0, 1, die_alone)), SIGKILL);
    CHECK_INT(end_of(start(be_rank, 0, 1, agree_often)), 0);
    CHECK_INT(end_of(start(be_rank, 0, 1, die_alone)), SIGKILL);
    (void)snprintf(path, sizeof path, "%s/0.sock", folder);
    CHECK_INT(access(path, F_OK), 0);
    run(3, talk); /* the others find the dead one's first */
}

/* Another comes in the place of one that dies while the rest is missing. */
static void come_in_the_place_of_the_dead(void)
{
    pid_t first, others[2];

    begin();
    first     = start(be_rank, 1, 3, talk);
    others[0] = start(be_rank, 0, 3, talk);
    wait_for_file("1.sock");
    wait_for_file("0.sock");
    (void)usleep(100000); /* most often they have met by then */
    CHECK_INT(kill(first, SIGKILL), 0);
    CHECK_INT(end_of(first), SIGKILL);
    first     = start(be_rank, 1, 3, talk);
    others[1] = start(be_rank, 2, 3, talk);
    CHECK_INT(end_of(first), 0);
    CHECK_INT(end_of(others[0]), 0);
    CHECK_INT(end_of(others[1]), 0);
}

/* ---- strangers ------------------------------------------------------------------------------- */

static int connect_to(const char *name)
{
    struct sockaddr_un a    = {.sun_family = AF_UNIX};
    int                fd   = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    unsigned           naps = 0;

    CHECK(fd >= 0);
    CHECK(snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", folder, name) < (int)sizeof a.sun_path);
    while (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        CHECK(errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN);
        wait_a_while(&naps);
    }
    return fd;
}

static void put32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

/* As wire.c writes it; what follows comes from `packet` + 24. */
static void put_head(unsigned char *packet, uint32_t version, uint32_t kind, uint32_t from,
                     uint32_t tag, uint32_t size)
{
    memcpy(packet, "usmS", 4);
    put32(packet + 4, version | kind << 16);
    put32(packet + 8, from);
    put32(packet + 12, tag);
    put32(packet + 16, size);
    put32(packet + 20, 0);
}

/* A hello of 24 + 8 + 64 bytes. */
static void say_hello(int fd, uint32_t version, uint32_t rank, uint32_t size)
{
    unsigned char packet[96] = {0};

    put_head(packet, version, 1, rank, 0, 72);
    put32(packet + 24, size);
    put32(packet + 28, 60000);
    CHECK_INT(send(fd, packet, sizeof packet, MSG_NOSIGNAL), sizeof packet);
}

static int kind_of_answer(int fd, uint32_t *tag)
{
    unsigned char packet[256];
    ssize_t       n = recv(fd, packet, sizeof packet, 0);

    if (n < 24 || memcmp(packet, "usmS", 4) != 0)
        return 0; /* the end */
    if (tag)
        *tag = packet[12];
    return packet[6];
}

static void send_garbage(const char *name, unsigned seed)
{
    unsigned char bytes[4096];
    int           fd = connect_to(name);

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)((seed = seed * 1103515245 + 12345) >> 16);
    if (seed & 0x10000)
        memcpy(bytes, "usmS\1\0\1\0", 8);
    (void)send(fd, bytes, seed % sizeof bytes, MSG_NOSIGNAL);
    if (seed & 0x20000)
        CHECK_INT(kind_of_answer(fd, NULL), 0);
    (void)close(fd);
}

static void expect_refusal(uint32_t version, uint32_t rank, uint32_t size, uint32_t expected)
{
    uint32_t why = 0;
    int      fd  = connect_to("0.sock");

    say_hello(fd, version, rank, size);
    CHECK_INT(kind_of_answer(fd, &why), expected ? 2 : 0);
    CHECK_INT(why, expected);
    (void)close(fd);
}

/* The first rank 1 is let in, the second is not; then the first goes. */
static void a_rank_that_has_come_is_let_in_once(void)
{
    pid_t pids[3];
    int   first;

    begin();
    pids[0] = start(be_rank, 0, 3, talk);
    first   = connect_to("0.sock");
    say_hello(first, 1, 1, 3);
    CHECK_INT(kind_of_answer(first, NULL), 1);
    expect_refusal(1, 1, 3, 3);
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
        send_garbage("0.sock", seed);
    expect_refusal(2, 1, count, 1);  /* another release */
    expect_refusal(1, 1, 9, 2);      /* another size */
    expect_refusal(1, 0, count, 0);  /* rank 0 comes to rank 0 */
    expect_refusal(1, 77, count, 0); /* there is none */
    for (size_t i = 0; i < 100; i++) /* they stay, and say nothing */
        silent[i] = connect_to("0.sock");
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
        int fd = connect_to(seed % 2 ? "1.sock" : "0.sock");

        (void)send(fd, &seed, sizeof seed, MSG_NOSIGNAL);
        CHECK(kind_of_answer(fd, NULL) != 1);
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

/* A rank 1 that is none of libusm's, and goes wrong in the way of this number. */
static uint32_t fault;

static void be_faulty(uint32_t rank, uint32_t count, rank_fn *fn)
{
    static unsigned char packet[70000];
    int                  fd = connect_to("0.sock");

    (void)fn;
    say_hello(fd, 1, rank, count);
    CHECK_INT(kind_of_answer(fd, NULL), 1);
    put_head(packet, 1, 3, rank, USM__JOB_TEAMS, size_of(0));
    CHECK_INT(send(fd, packet, 24 + size_of(0), MSG_NOSIGNAL), 24 + size_of(0));
    put_head(packet, 1, 3, rank, 4711, 10); /* a tag that nobody has */
    CHECK_INT(send(fd, packet, 34, MSG_NOSIGNAL), 34);
    put_head(packet, fault == 1 ? 2 : 1, 3, fault == 2 ? 0 : rank, USM__JOB_TEAMS,
             fault == 3 ? 11 : 10);
    if (fault == 4)
        put_head(packet, 1, 3, rank, USM__JOB_TEAMS, sizeof packet - 24);
    if (fault == 5)
        packet[0] = 0;
    (void)send(fd, packet, fault == 4 ? sizeof packet : fault == 6 ? 7 : 34, MSG_NOSIGNAL);
    while (kind_of_answer(fd, NULL) != 0)
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
    for (fault = 1; fault <= 6; fault++) {
        pid_t good, bad;

        begin();
        good = start(be_rank, 0, 2, survive_the_faulty);
        bad  = start(be_faulty, 1, 2, NULL);
        CHECK_INT(end_of(good), 0);
        CHECK_INT(end_of(bad), 0);
    }
}

/* What listens there is no member. */
static void come_to_no_member(uint32_t rank, uint32_t count, rank_fn *fn)
{
    (void)fn;
    CHECK_INT(join(rank, count, ""), USM_E_PEER);
    CHECK_IN("0.sock is not a member of a job", usm_last_error());
}

static void what_is_no_member_is_named(void)
{
    struct sockaddr_un a  = {.sun_family = AF_UNIX};
    int                fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), guest;
    pid_t              pid;

    begin();
    CHECK_INT(mkdir(folder, 0700), 0);
    (void)snprintf(a.sun_path, sizeof a.sun_path, "%.80s/0.sock", folder);
    CHECK_INT(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    CHECK_INT(listen(fd, 4), 0);
    pid   = start(come_to_no_member, 1, 2, NULL);
    guest = accept(fd, NULL, NULL);
    CHECK(guest >= 0);
    CHECK_INT(send(guest, "good day", 8, MSG_NOSIGNAL), 8);
    CHECK_INT(end_of(pid), 0);
    (void)close(guest);
    (void)close(fd);
}

static void come_as_another_user(uint32_t rank, uint32_t count, rank_fn *fn)
{
    (void)fn;
    CHECK(usm__registry_transport("socket")); /* the other user may not read where it lies */
    if (rank == 0)
        CHECK_INT(seteuid(65534), 0);
    CHECK_INT(join(rank, count, ",wait=600000"), rank == 0 ? USM_E_PEER : USM_E_PERMISSION);
    if (rank == 1)
        CHECK_IN("0.sock is another user's", usm_last_error());
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
    wait_for_file("0.sock");
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
    char where[300];

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
    (void)snprintf(where, sizeof where, "socket:/tmp/%0200d,rank=0,size=1", 0);
    expect(USM_E_INVALID, "take a shorter one", where);
    expect_config(USM_E_IO, "cannot be made: No such file", "/no/such,rank=0,size=1");
    CHECK(access(folder, F_OK) != 0); /* nobody has come as far as that */
}

static void what_does_not_parse_is_named(void)
{
    begin();
    CHECK_INT(end_of(start(ask_for_nonsense, 0, 1, NULL)), 0);
}

static void come_to_files(uint32_t rank, uint32_t count, rank_fn *fn)
{
    (void)rank;
    (void)count;
    (void)fn;
    expect_config(USM_E_INVALID, "0.sock is there, and is not a socket", ",rank=0,size=1");
    expect_config(USM_E_IO, "0.sock cannot be used: Not a directory", "/0.sock,rank=0,size=1");
}

static void a_file_of_the_user_is_left_alone(void)
{
    char path[512], text[16];

    begin();
    CHECK_INT(mkdir(folder, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/0.sock", folder);
    plain_write(path, "precious");
    CHECK_INT(end_of(start(come_to_files, 0, 1, NULL)), 0);
    CHECK_STR(plain_read(path, text, sizeof text), "precious");
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
    CASE(of_two_processes_of_a_rank_one_is_refused),
    CASE(the_socket_of_a_dead_process_is_replaced),
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
