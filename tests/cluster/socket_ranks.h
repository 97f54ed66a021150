/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranks of jobs over transports/socket, for tests: processes that this one starts; it never starts
 * libusm itself.  Each case begins with begin(), and has a folder of its own.  Time is vclock.h's.
 */
#ifndef SOCKET_RANKS_H
#define SOCKET_RANKS_H

#include "plain.h"
#include "vclock.h"

#include "cluster/cluster.h"

#include <usm/usm.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define RANKS      16
#define LARGEST    65600u
#define LONGEST_MS 120000u  /* real time of a rank, and of whoever waits for one              */
#define LEASE_MS   1000000u /* longer than LONGEST_MS: real time ends none                    */
#define STEP_MS    40000u   /* less than a quarter of LEASE_MS / 4, the period of signs of life */

typedef void rank_fn(uint32_t rank, uint32_t count);

static char folder[400];
/* Seen by all processes of a case. */
static struct {
    _Atomic int step, refused, met;
} * board;

static inline void begin(void)
{
    static int n;
    char       name[16];

    (void)snprintf(name, sizeof name, "job%d", n++);
    (void)snprintf(folder, sizeof folder, "%s", plain_path(name));
    if (!board)
        board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    atomic_store(&board->step, 0);
    atomic_store(&board->refused, 0);
    atomic_store(&board->met, 0);
    vclock_start();
}

/* Who should have come on may have died. */
static inline void wait_a_while(unsigned *naps)
{
    CHECK(++*naps < LONGEST_MS);
    (void)usleep(1000);
}

static inline void wait_for(_Atomic int *number, int value)
{
    unsigned naps = 0;

    while (atomic_load(number) < value)
        wait_a_while(&naps);
}

/* Until that child stands still. */
static inline void wait_until_stopped(pid_t pid)
{
    int status = 0;

    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    CHECK(WIFSTOPPED(status));
}

/* The name under which the processes of the folder meet, once there is the folder. */
static inline const char *name_of_folder(void)
{
    static char name[64];
    struct stat st;
    unsigned    naps = 0;

    while (stat(folder, &st) != 0)
        wait_a_while(&naps);
    (void)snprintf(name, sizeof name, "usm-job-%llx-%llx", (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino);
    return name;
}

static inline bool is_bound(const char *name)
{
    static char text[1 << 20];
    char        line[80];

    (void)snprintf(line, sizeof line, "@%s\n", name);
    return strstr(plain_read("/proc/net/unix", text, sizeof text), line) != NULL;
}

/* Until a process listens for the others. */
static inline void wait_for_host(void)
{
    unsigned naps = 0;

    while (!is_bound(name_of_folder()))
        wait_a_while(&naps);
}

/* ---- ranks --------------------------------------------------------------------------------- */

static inline pid_t start(void (*fn)(uint32_t, uint32_t, rank_fn *), uint32_t rank, uint32_t count,
                          rank_fn *arg)
{
    char  lease[16];
    pid_t pid;

    (void)fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid > 0)
        return pid;
    plain.in_child = true;
    (void)alarm(LONGEST_MS / 1000);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* one that stands still hears no alarm */
    (void)snprintf(lease, sizeof lease, "%u", LEASE_MS);
    CHECK_INT(usm_config_set("job_lease", lease), USM_OK);
    fn(rank, count, arg);
    (void)fflush(NULL);
    exit(0); /* and leaks are looked for */
}

static inline usm_status join(uint32_t rank, uint32_t count, const char *more)
{
    char where[512];

    (void)snprintf(where, sizeof where, "socket:%s,rank=%u,size=%u%s", folder, rank, count,
                   *more ? more : ",wait=120000");
    return usm_job_join(where);
}

static inline void be_rank(uint32_t rank, uint32_t count, rank_fn *fn)
{
    if (join(rank, count, "") != USM_OK)
        plain_fail(__FILE__, __LINE__, usm_last_error());
    fn(rank, count);
    usm_job_leave();
}

static inline void start_all(uint32_t count, rank_fn *fn, pid_t *pids)
{
    for (uint32_t r = count; r-- > 0;) /* the highest is the first that looks for the others */
        pids[r] = start(be_rank, r, count, fn);
}

static inline int end_in(int status)
{
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) << 8;
}

static inline int end_of(pid_t pid)
{
    int status = -1;

    CHECK(waitpid(pid, &status, 0) == pid);
    return end_in(status);
}

static inline void run(uint32_t count, rank_fn *fn)
{
    pid_t pids[RANKS];

    start_all(count, fn, pids);
    for (uint32_t r = 0; r < count; r++)
        CHECK_INT(end_of(pids[r]), 0);
}

static inline void barrier(void)
{
    char one = 1, ones[RANKS];

    CHECK_INT(usm__job_agree(&one, 1, ones, LONGEST_MS, NULL), USM_OK);
}

static inline void wait_until_lost(uint32_t rank)
{
    while (!usm__job_rank_is_lost(rank))
        (void)usleep(1000);
}

/* ---- messages ------------------------------------------------------------------------------ */

/* What has come from each, in its order: message i is size_of(i) bytes of pattern i. */
static _Atomic uint32_t came[RANKS];
static _Atomic bool     is_wrong;

static inline size_t size_of(uint32_t i)
{
    static const uint32_t sizes[] = {0, 1, 7, 64, 1000, 4096, 65536, LARGEST};

    return sizes[i % 8];
}

static inline unsigned char byte_of(uint32_t from, uint32_t i, size_t at)
{
    return (unsigned char)(from * 41 + i * 7 + at % 251);
}

static inline void take(void *arg, uint32_t from, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    uint32_t             i     = atomic_load(&came[from]);

    (void)arg;
    if (size != size_of(i))
        atomic_store(&is_wrong, true);
    for (size_t at = 0; at < size; at++)
        if (bytes[at] != byte_of(from, i, at))
            atomic_store(&is_wrong, true);
    atomic_store(&came[from], i + 1);
}

static inline usm_status notify(uint32_t self, uint32_t to, uint32_t i)
{
    static unsigned char bytes[LARGEST];

    for (size_t at = 0; at < size_of(i); at++)
        bytes[at] = byte_of(self, i, at);
    return usm__job_send(to, USM__JOB_TEAMS, bytes, size_of(i));
}

static inline void wait_for_messages(uint32_t from, uint32_t n)
{
    while (atomic_load(&came[from]) < n)
        (void)usleep(1000);
    CHECK(!atomic_load(&is_wrong));
}

static inline void talk(uint32_t rank, uint32_t count)
{
    usm__job_listen(USM__JOB_TEAMS, take, NULL);
    for (uint32_t i = 0; i < 200; i++)
        for (uint32_t to = 0; to < count; to++)
            CHECK_INT(notify(rank, to, i), USM_OK); /* to itself as well */
    for (uint32_t from = 0; from < count; from++)
        wait_for_messages(from, 200);
    CHECK_INT(usm__job_send(0, USM__JOB_TEAMS, folder, LARGEST + 1), USM_E_INVALID);
    CHECK_INT(usm__job_send(count, USM__JOB_TEAMS, folder, 1), USM_E_INVALID);
    barrier();
    for (uint32_t from = 0; from < count; from++)
        CHECK_INT(atomic_load(&came[from]), 200);
    usm__job_listen(USM__JOB_TEAMS, NULL, NULL);
}

static inline void agree_often(uint32_t rank, uint32_t count)
{
    static unsigned char mine[4096], all[RANKS * 4096];

    for (uint32_t round = 0; round < 50; round++) {
        size_t size = round == 0 ? sizeof mine : 1 + round;

        for (size_t i = 0; i < size; i++)
            mine[i] = byte_of(rank, round, i);
        CHECK_INT(usm__job_agree(mine, size, all, LONGEST_MS, NULL), USM_OK);
        for (uint32_t r = 0; r < count; r++)
            for (size_t i = 0; i < size; i++)
                CHECK_INT(all[r * size + i], byte_of(r, round, i));
    }
}

#endif
