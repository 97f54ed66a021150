/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranks that attach, send each other messages, agree, and lose each other. */
#include "cluster/job_fixture.h"

#include "base/fault.h"
#include "cluster/cluster.h"
#include "device/registry.h"

#include <usm/usm.h>

#include <stdatomic.h>
#include <sys/stat.h>

/* ---- messages ------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    unsigned        n[JOB_RANKS_MAX]; /* messages, by sender                                 */
    unsigned        wrong;
    size_t          last_size;
    unsigned        lost[JOB_RANKS_MAX];
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static void count_message(void *arg, uint32_t from, const void *data, size_t size)
{
    unsigned number = 0;

    CHECK(arg == &seen);
    memcpy(&number, data, sizeof number);
    (void)pthread_mutex_lock(&seen.lock);
    if (number != seen.n[from]++)
        seen.wrong++;
    seen.last_size = size;
    (void)pthread_cond_broadcast(&seen.wake);
    (void)pthread_mutex_unlock(&seen.lock);
}

/* Until the counter has that value; a test that waits in vain is killed. */
static void wait_for(const unsigned *counter, unsigned value)
{
    (void)pthread_mutex_lock(&seen.lock);
    while (*counter < value)
        (void)pthread_cond_wait(&seen.wake, &seen.lock);
    (void)pthread_mutex_unlock(&seen.lock);
}

static void send_number(uint32_t to, unsigned number, size_t size)
{
    static char bytes[USM__JOB_MESSAGE_MAX];

    memcpy(bytes, &number, sizeof number);
    CHECK_INT(usm__job_send(to, USM__JOB_TEAMS, bytes, size), USM_OK);
}

static void barrier(void)
{
    char one = 1, all[JOB_RANKS_MAX];

    CHECK_INT(usm__job_agree(&one, 1, all, 20000, NULL), USM_OK);
}

static void send_to_all(uint32_t rank, uint32_t count)
{
    uint32_t self = 99, n = 0;

    CHECK_INT(usm__job_ranks(&self, &n), USM_OK);
    CHECK_INT(self, rank);
    CHECK_INT(n, count);
    CHECK(usm__job_is_attached());
    for (unsigned i = 0; i < 100; i++)
        for (uint32_t to = 0; to < count; to++)
            send_number(to, i, 4 + i);
    usm__job_listen(USM__JOB_TEAMS, count_message, &seen); /* later than some of them */
    for (uint32_t from = 0; from < count; from++)
        wait_for(&seen.n[from], 100);
    CHECK_INT(seen.wrong, 0);
    barrier();
}

static void ranks_send_each_other_messages_in_order(void)
{
    job_run(4, send_to_all);
}

/* A message that was kept, and one that comes as the listener does: before it is called for the
 * kept one, which is a matter of microseconds, hence so many. */
static void send_as_listeners_come(uint32_t rank, uint32_t count)
{
    uint32_t to = (rank + 1) % count, from = (rank + count - 1) % count;

    for (unsigned i = 0; i < 600; i += 2) {
        usm__job_listen(USM__JOB_TEAMS, NULL, NULL);
        barrier();
        send_number(to, i, 4);
        barrier(); /* it has come */
        send_number(to, i + 1, 4);
        usm__job_listen(USM__JOB_TEAMS, count_message, &seen);
        wait_for(&seen.n[from], i + 2);
    }
    CHECK_INT(seen.wrong, 0);
    barrier();
}

static void a_message_does_not_overtake_those_that_were_kept(void)
{
    job_run(2, send_as_listeners_come);
}

static void hold_back_the_queue(uint32_t rank, uint32_t count)
{
    uint32_t to = (rank + 1) % count, from = (rank + count - 1) % count;

    usm__job_listen(USM__JOB_TEAMS, count_message, &seen);
    job_hold(true); /* more than sockets take */
    for (unsigned i = 0; i < 300; i++)
        send_number(to, i, USM__JOB_MESSAGE_MAX);
    job_hold(false);
    wait_for(&seen.n[from], 300);
    CHECK_INT(seen.wrong, 0);
    CHECK_INT(seen.last_size, USM__JOB_MESSAGE_MAX);
    CHECK_INT(usm__job_send(to, USM__JOB_TEAMS, seen.n, USM__JOB_MESSAGE_MAX + 1), USM_E_INVALID);
    CHECK_INT(usm__job_send(count, USM__JOB_TEAMS, seen.n, 4), USM_E_INVALID);
    CHECK_INT(usm__job_send(to, USM__JOB_TAGS, seen.n, 4), USM_E_INVALID);
    barrier();
}

static void a_message_has_64_kib_and_waits_for_its_receiver(void)
{
    job_run(2, hold_back_the_queue);
}

static void answer(void *arg, uint32_t from, const void *data, size_t size)
{
    (void)arg;
    CHECK_INT(usm__job_send(from, USM__JOB_TEAMS, data, size), USM_OK);
}

static void ask_and_be_answered(uint32_t rank, uint32_t count)
{
    usm__job_listen(USM__JOB_SHARED, answer, NULL); /* listeners may send, to themselves too */
    usm__job_listen(USM__JOB_TEAMS, count_message, &seen);
    for (unsigned i = 0; i < 200; i++)
        for (uint32_t to = 0; to < count; to++)
            CHECK_INT(usm__job_send(to, USM__JOB_SHARED, &i, sizeof i), USM_OK);
    for (uint32_t from = 0; from < count; from++)
        wait_for(&seen.n[from], 200);
    CHECK_INT(seen.wrong, 0);
    barrier();
    (void)rank;
}

static void listeners_may_send(void)
{
    job_run(3, ask_and_be_answered);
}

static _Atomic int slow_calls, slow_is_in;

static void take_time(void *arg, uint32_t from, const void *data, size_t size)
{
    (void)arg;
    (void)from;
    (void)data;
    (void)size;
    atomic_store(&slow_is_in, 1);
    (void)usleep(100000);
    atomic_store(&slow_is_in, 0);
    atomic_fetch_add(&slow_calls, 1);
}

static void stop_listening(uint32_t rank, uint32_t count)
{
    (void)count;
    usm__job_listen(USM__JOB_SHARED, take_time, NULL);
    CHECK_INT(usm__job_send(rank, USM__JOB_SHARED, "x", 1), USM_OK);
    while (!atomic_load(&slow_is_in))
        (void)usleep(100);
    usm__job_listen(USM__JOB_SHARED, NULL, NULL);
    CHECK_INT(atomic_load(&slow_is_in), 0);
    CHECK_INT(atomic_load(&slow_calls), 1);
    CHECK_INT(usm__job_send(rank, USM__JOB_SHARED, "y", 1), USM_OK); /* for the next who listens */
    usm__job_listen(USM__JOB_SHARED, take_time, NULL);
    while (atomic_load(&slow_calls) < 2)
        (void)usleep(100);
}

static void who_stops_listening_is_not_called_any_more(void)
{
    job_run(1, stop_listening);
}

/* ---- losing ranks ---------------------------------------------------------------------------- */

static unsigned slow[JOB_RANKS_MAX];

static void count_change(void *arg, uint32_t rank, usm_place_state state)
{
    CHECK(arg == &seen);
    (void)pthread_mutex_lock(&seen.lock);
    if (state == USM_PLACE_LOST)
        seen.lost[rank]++;
    else if (state == USM_PLACE_SLOW)
        slow[rank]++;
    (void)pthread_cond_broadcast(&seen.wake);
    (void)pthread_mutex_unlock(&seen.lock);
}

static void lose_rank_1(uint32_t rank, uint32_t count)
{
    usm__job_watch(count_change, &seen);
    barrier();
    if (rank == 1)
        (void)raise(SIGKILL);
    wait_for(&seen.lost[1], 1);
    CHECK(usm__job_rank_is_lost(1));
    CHECK(!usm__job_rank_is_lost(rank));
    CHECK(!usm__job_rank_is_lost(count));
    CHECK_INT(usm__job_send(1, USM__JOB_TEAMS, "x", 1), USM_E_PEER);
    CHECK_IN("rank 1 has ended", usm_last_error());
    barrier();
    CHECK_INT(seen.lost[1], 1);
    usm__job_unwatch(count_change, &seen);
}

static void all_others_are_told_of_a_rank_that_ends(void)
{
    int status[4];

    job_run_some(4, lose_rank_1, status);
    for (int rank = 0; rank < 4; rank++)
        CHECK_INT(status[rank], rank == 1 ? SIGKILL : 0);
}

static void tell_of_states(uint32_t rank, uint32_t count)
{
    uint32_t other = 1;

    (void)count;
    usm__job_watch(count_change, &seen);
    if (rank == 1) {
        while (!usm__job_rank_is_lost(0)) /* its end */
            (void)usleep(1000);
        return;
    }
    job_tell(other, USM_PLACE_SLOW);
    wait_for(&slow[other], 1);
    CHECK(!usm__job_rank_is_lost(other));
    job_tell(other, USM_PLACE_UP);
    job_tell(other, USM_PLACE_LOST);
    wait_for(&seen.lost[other], 1);
    job_tell(other, USM_PLACE_UP); /* once lost always lost */
    CHECK(usm__job_rank_is_lost(other));
}

static void who_is_lost_stays_lost(void)
{
    job_run(2, tell_of_states);
}

/* ---- coming and going
 * ---------------------------------------------------------------------------- */

static void be_alone(void)
{
    uint32_t self, count;
    char     byte = 0;

    CHECK_INT(usm_init(), USM_OK);
    CHECK(!usm__job_is_attached());
    CHECK_INT(usm__job_ranks(&self, &count), USM_E_MPI);
    CHECK_IN("call usm_mpi_attach()", usm_last_error());
    CHECK_INT(usm__job_send(0, USM__JOB_TEAMS, &byte, 1), USM_E_MPI);
    CHECK_INT(usm__job_agree(&byte, 1, &byte, 1, NULL), USM_E_MPI);
    CHECK(!usm__job_rank_is_lost(0));
    CHECK(usm__registry_transport("mpi") == NULL);
    CHECK_INT(usm_last_status(), USM_E_MPI);
    CHECK_IN("call usm_mpi_attach()", usm_last_error());
    usm_mpi_detach(); /* nothing to leave */
    CHECK_INT(usm_mpi_attach(NULL, 4), USM_E_INVALID);
    CHECK_INT(usm_mpi_attach(&byte, 0), USM_E_INVALID);
    CHECK_INT(usm_mpi_app_comm(NULL, 4), USM_E_INVALID);
}

static void without_a_job_there_is_nobody(void)
{
    CHECK_INT(plain_child(be_alone, NULL), 0);
}

static void come_and_go(uint32_t rank, uint32_t count)
{
    int      comm = 0;
    uint32_t self;

    CHECK_INT(USM_MPI_ATTACH(rank), USM_E_MPI); /* another communicator */
    CHECK_IN("no communicator of the fixture", usm_last_error());
    CHECK_INT(usm_mpi_app_comm(&comm, sizeof comm), USM_OK);
    CHECK_INT(comm, 4711);
    CHECK_INT(job_attach(), USM_OK);
    CHECK_INT(job_attach(), USM_E_BUSY);
    CHECK_INT(usm_mpi_app_comm(&comm, sizeof comm), USM_E_BUSY);
    barrier();
    usm_mpi_detach();
    usm_mpi_detach();
    CHECK(!usm__job_is_attached());
    CHECK_INT(usm__job_ranks(&self, &count), USM_E_MPI);
    CHECK_IN("usm_mpi_detach() or MPI_Finalize() was called", usm_last_error());
    CHECK_INT(job_attach(), USM_E_MPI); /* once a process */
}

static void a_process_attaches_once(void)
{
    job_plan_now.is_manual = true;
    job_run(3, come_and_go);
    job_plan_now.is_manual = false;
}

static void be_refused(uint32_t rank, uint32_t count)
{
    (void)rank;
    (void)count;
    job_plan_now.attach = USM_E_MPI_THREADS;
    CHECK_INT(job_attach(), USM_E_MPI_THREADS);
    CHECK_IN("told to refuse", usm_last_error());
    job_plan_now.attach = USM_OK;
    CHECK_INT(usm_config_set("spill_lend", "3M"), USM_OK);
    CHECK_INT(usm_config_set("job_lease", "777"), USM_OK);
    CHECK_INT(usm_config_set("job_orphan", "8888"), USM_OK);
    CHECK_INT(usm_config_set("spill_domain", "rack 7"), USM_OK);
    CHECK_INT(usm_config_set("job_key",
                             "000102030405060708090a0b0c0d0e0fF0F1F2F3F4F5F6F7F8F9FaFbFcFdFeFf"),
              USM_OK);
    CHECK_INT(job_attach(), USM_OK);
    CHECK_INT(job_params()->lend, 3 << 20);
    CHECK_INT(job_params()->lease_ms, 777);
    CHECK_INT(job_params()->orphan_ms, 8888);
    CHECK_STR(job_params()->domain, "rack 7");
    CHECK_INT(job_params()->key_size, 32);
    CHECK_INT(((const unsigned char *)job_params()->key)[15], 0x0f);
    CHECK_INT(((const unsigned char *)job_params()->key)[31], 0xff);
}

static void settings_reach_the_module(void)
{
    job_plan_now.is_manual = true;
    job_run(1, be_refused);
    job_plan_now.is_manual = false;
}

static void read_key_file(uint32_t rank, uint32_t count)
{
    const char *path = plain_path("key");

    (void)rank;
    (void)count;
    CHECK_INT(usm_config_set("job_key_file", path), USM_OK);
    CHECK_INT(job_attach(), USM_E_KEY);
    CHECK_IN("cannot be read", usm_last_error());
    plain_write(path, "deadbeef\n");
    CHECK_INT(chmod(path, 0644), 0);
    CHECK_INT(job_attach(), USM_E_KEY);
    CHECK_IN("others may read it", usm_last_error());
    CHECK_INT(chmod(path, 0600), 0);
    CHECK_INT(job_attach(), USM_E_KEY);
    CHECK_IN("does not hold 32 or 64", usm_last_error());
    plain_write(path, "00112233445566778899aabbccddeeff\n");
    CHECK_INT(job_attach(), USM_OK);
    CHECK_INT(job_params()->key_size, 16);
    CHECK_INT(((const unsigned char *)job_params()->key)[15], 0xff);
}

static void the_key_may_lie_in_a_file(void)
{
    (void)plain_path("key"); /* the folder is the parent's */
    job_plan_now.is_manual = true;
    job_run(1, read_key_file);
    job_plan_now.is_manual = false;
}

static unsigned fault_nth;

/* Exit status 3: the fault did not come, there are no so many calls. */
static void attach_with_a_fault(uint32_t rank, uint32_t count)
{
    usm_status st;
    bool       fired;

    /* Without memory for its own part of an agreement, attaching waits for two of these. */
    CHECK_INT(usm_config_set("job_lease", "100"), USM_OK);
    CHECK(usm__fault_arm("heap.alloc", fault_nth, false, USM_OK));
    st    = job_attach();
    fired = usm__fault_fired() > 0;
    usm__fault_disarm_all();
    if (st != USM_OK) {
        CHECK_INT(st, USM_E_NO_MEMORY);
        CHECK(!usm__job_is_attached());
        CHECK(usm__job_ranks(&rank, &count) == USM_E_MPI);
        CHECK_INT(job_attach(), USM_OK); /* nothing is left behind */
    }
    barrier();
    usm_mpi_detach();
    _exit(fired ? 0 : 3);
}

static void attaching_survives_any_want_of_memory(void)
{
    int status = 0;

    job_plan_now.is_manual = true;
    for (fault_nth = 1; status == 0; fault_nth++)
        job_run_some(1, attach_with_a_fault, &status);
    job_plan_now.is_manual = false;
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 3);
    CHECK(fault_nth > 6);
}

static void attach_without_a_thread(uint32_t rank, uint32_t count)
{
    (void)rank;
    (void)count;
    CHECK(usm__fault_arm("os.thread", 1, false, USM_OK));
    CHECK_INT(job_attach(), USM_E_SYSTEM);
    CHECK_IN("no thread for messages of the job", usm_last_error());
    usm__fault_disarm_all();
    CHECK_INT(job_attach(), USM_OK);
}

static void without_threads_it_is_refused(void)
{
    job_plan_now.is_manual = true;
    job_run(1, attach_without_a_thread);
    job_plan_now.is_manual = false;
}

static void finalize(uint32_t rank, uint32_t count)
{
    uint32_t self;

    barrier();
    job_tell(rank, USM_PLACE_LOST);
    CHECK(!usm__job_is_attached());
    CHECK_INT(usm__job_ranks(&self, &count), USM_E_MPI);
    CHECK_IN("MPI_Finalize() was called", usm_last_error());
    CHECK_INT(usm__job_send(rank, USM__JOB_TEAMS, &self, 1), USM_E_MPI);
    usm_mpi_detach();
}

static void mpi_finalize_ends_it(void)
{
    job_run(2, finalize);
}

static void fork_once(uint32_t rank, uint32_t count)
{
    int   status = -1;
    pid_t pid;

    usm__job_listen(USM__JOB_TEAMS, count_message, &seen);
    pid = fork();
    if (pid == 0) {
        uint32_t self;

        (void)alarm(20);
        CHECK(!usm__job_is_attached());
        CHECK_INT(usm__job_ranks(&self, &count), USM_E_MPI);
        CHECK_IN("is a fork of a member", usm_last_error());
        CHECK_INT(job_attach(), USM_E_MPI);
        usm_mpi_detach();
        _exit(0);
    }
    CHECK(pid > 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    for (uint32_t to = 0; to < count; to++)
        send_number(to, 0, 4);
    for (uint32_t from = 0; from < count; from++)
        wait_for(&seen.n[from], 1);
    barrier();
    (void)rank;
}

static void a_forked_child_is_in_no_job(void)
{
    job_run(2, fork_once);
}

/* ---- what others see
 * ------------------------------------------------------------------------------- */

static void look_around(uint32_t rank, uint32_t count)
{
    usm_job_info info = USM_JOB_INFO_INIT;
    char         text[8192], expected[64];
    size_t       size = 0;

    barrier();
    CHECK_INT(usm_job_get_info(&info), USM_OK);
    CHECK_INT(info.rank, rank);
    CHECK_INT(info.size, count);
    CHECK_INT(info.local_rank, rank); /* all are here, and have told each other so */
    CHECK_INT(info.local_size, count);
    CHECK(info.is_job && info.is_attached);
    CHECK_STR(info.source, "mpi");
    CHECK_STR(info.mpi, "fixture 1.0, sockets");
    CHECK_INT(usm_job_describe(USM_TEXT, text, sizeof text, &size), USM_OK);
    CHECK_INT(size, strlen(text));
    (void)snprintf(expected, sizeof expected, "rank %u of %u, as MPI says\n", rank, count);
    CHECK_IN(expected, text);
    (void)snprintf(expected, sizeof expected, "  rank %u *     up       node0", rank);
    CHECK_IN(expected, text);
    CHECK_IN("  server       up       node1                     1 GiB        0 B\n", text);
    CHECK_IN("this launch survives the death of any rank\n", text);
    CHECK_INT(usm_job_describe(USM_JSON, text, sizeof text, NULL), USM_OK);
    CHECK_IN("{\"member\":2,\"rank\":null,\"server\":true,\"self\":false,\"state\":\"up\","
             "\"domain\":\"node1\",\"lends\":1073741824,\"available\":1073741824,\"held\":0,"
             "\"mapped\":false}",
             text);
    CHECK_IN(
        "\"describe\":[\"fixture 1.0, sockets\",\"this launch survives the death of any rank\"]}",
        text);
    CHECK_INT(usm_job_describe(USM_TEXT, text, 5, &size), USM_OK);
    CHECK_INT(strlen(text), 4);
    CHECK_INT(usm_job_describe(USM_TEXT, NULL, 5, &size), USM_E_INVALID);
    CHECK_INT(usm_job_describe((usm_text_format)9, text, 5, &size), USM_E_INVALID);
    barrier();
}

static void the_job_describes_itself(void)
{
    job_plan_now.servers = 1;
    job_run(2, look_around);
    job_plan_now.servers = 0;
}

static const char *said; /* by all ranks, in a file */

static void hear_of_survival(uint32_t rank, uint32_t count)
{
    (void)rank;
    (void)count;
    CHECK_INT(usm_config_set("spill_lend", "1M"), USM_OK);
    CHECK(dup2(open(said, O_WRONLY | O_APPEND), STDERR_FILENO) >= 0);
    CHECK_INT(job_attach(), USM_OK);
    barrier();
}

static void rank_0_says_what_a_launch_that_survives_nothing_needs(void)
{
    char text[4096];

    said = plain_path("said");
    plain_write(said, "");
    job_plan_now.is_manual = job_plan_now.is_frail = true;
    job_run(3, hear_of_survival);
    CHECK_STR(
        plain_read(said, text, sizeof text),
        "usm: warning: this launch survives no death: it is a test; to survive more: be lucky\n");
    job_plan_now.is_frail = false;
    plain_write(said, "");
    job_run(3, hear_of_survival);
    CHECK_STR(plain_read(said, text, sizeof text), "");
    job_plan_now.is_manual = false;
}

static void open_tier(uint32_t rank, uint32_t count)
{
    const usm_transport_ops *ops    = usm__registry_transport("mpi");
    usm_transport_params     params = {
            .struct_size = sizeof params, .api = &usm__registry_api, .config = "", .block_size = 65536};
    void *store;

    (void)rank;
    (void)count;
    CHECK(ops != NULL);
    CHECK_STR(ops->name, "mpi");
    CHECK_INT(ops->caps, USM_TRANSPORT_CAP_PLACES);
    CHECK_INT(ops->open(&params, &store), USM_OK);
    ops->close(store);
    usm_mpi_detach();
    CHECK_INT(ops->open(&params, &store), USM_E_MPI);
    CHECK_IN("has left its job", usm_last_error());
}

static void the_tier_mpi_is_the_module_that_was_attached(void)
{
    job_run(1, open_tier);
}

static const plain_case cases[] = {
    CASE(ranks_send_each_other_messages_in_order),
    CASE(a_message_does_not_overtake_those_that_were_kept),
    CASE(a_message_has_64_kib_and_waits_for_its_receiver),
    CASE(listeners_may_send),
    CASE(who_stops_listening_is_not_called_any_more),
    CASE(all_others_are_told_of_a_rank_that_ends),
    CASE(who_is_lost_stays_lost),
    CASE(without_a_job_there_is_nobody),
    CASE(a_process_attaches_once),
    CASE(settings_reach_the_module),
    CASE(the_key_may_lie_in_a_file),
    CASE(attaching_survives_any_want_of_memory),
    CASE(without_threads_it_is_refused),
    CASE(mpi_finalize_ends_it),
    CASE(a_forked_child_is_in_no_job),
    CASE(the_job_describes_itself),
    CASE(rank_0_says_what_a_launch_that_survives_nothing_needs),
    CASE(the_tier_mpi_is_the_module_that_was_attached),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
