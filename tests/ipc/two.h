/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests of two processes: a peer is this program started anew, so that neither inherits anything of
 * the other's library.  They talk through a socket of their own, in packets; every wait ends. */
#ifndef TWO_H
#define TWO_H

#include "plain.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

/* ThreadSanitizer lets no child of fork() start threads. */
#if defined(__SANITIZE_THREAD__)
#define TWO_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TWO_TSAN 1
#endif
#endif
#ifndef TWO_TSAN
#define TWO_TSAN 0
#endif

#define TWO_WAIT_MS 60000
#define TWO_FD      3 /* of the peer                                                   */

typedef struct two_role {
    const char *name;
    void (*run)(void);
} two_role;

typedef struct two_peer {
    pid_t pid;
    int   fd;
} two_peer;

static inline void two_send(int fd, const void *data, size_t size)
{
    CHECK(send(fd, data, size, MSG_NOSIGNAL) == (ssize_t)size);
}

static inline bool two_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN, .revents = 0};

    return poll(&p, 1, ms) == 1;
}

static inline void two_receive(int fd, void *data, size_t size)
{
    CHECK(two_readable(fd, TWO_WAIT_MS));
    CHECK(recv(fd, data, size, 0) == (ssize_t)size);
}

/* One number each way: steps, answers. */
static inline void two_tell(int fd, int64_t word)
{
    two_send(fd, &word, sizeof word);
}

static inline int64_t two_hear(int fd)
{
    int64_t word = 0;

    two_receive(fd, &word, sizeof word);
    return word;
}

/* `arg` NULL: none; the peer finds it in TWO_ARG. */
static inline two_peer two_start(const char *role, const char *arg)
{
    two_peer p = {.pid = -1, .fd = -1};
    int      pair[2];

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    (void)fflush(NULL);
    p.pid = fork();
    if (p.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (arg != NULL)
            (void)setenv("TWO_ARG", arg, 1);
        if (pair[1] == TWO_FD)
            (void)fcntl(TWO_FD, F_SETFD, 0);
        else if (dup2(pair[1], TWO_FD) < 0)
            _exit(1);
        (void)execl("/proc/self/exe", "/proc/self/exe", "--peer", role, (char *)NULL);
        _exit(127);
    }
    CHECK(p.pid > 0);
    (void)close(pair[1]);
    p.fd = pair[0];
    return p;
}

/* Its wait status; killed when it does not end by itself. */
static inline int two_end(two_peer *p)
{
    int status = -1;

    for (int ms = 0; ms < TWO_WAIT_MS && waitpid(p->pid, &status, WNOHANG) != p->pid; ms += 5) {
        struct timespec t = {0, 5000000};

        (void)nanosleep(&t, NULL);
        if (ms + 5 >= TWO_WAIT_MS) {
            (void)kill(p->pid, SIGKILL);
            (void)waitpid(p->pid, &status, 0);
            status = -1;
        }
    }
    (void)close(p->fd);
    p->fd = -1;
    return status;
}

static inline void two_kill(two_peer *p)
{
    CHECK(kill(p->pid, SIGKILL) == 0);
    CHECK(waitpid(p->pid, NULL, 0) == p->pid);
    (void)close(p->fd);
    p->fd = -1;
}

/* Until *flag is set by another thread; false: not within the time. */
static inline bool two_wait_for(const _Atomic(int) *flag, int value, int ms)
{
    for (; atomic_load(flag) < value && ms > 0; ms--) {
        struct timespec t = {0, 1000000};

        (void)nanosleep(&t, NULL);
    }
    return atomic_load(flag) >= value;
}

static inline int two_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int  n      = 0;

    CHECK(folder != NULL);
    while (readdir(folder) != NULL) /* NOLINT(concurrency-mt-unsafe) */
        n++;
    (void)closedir(folder);
    return n;
}

/* How many there are once the library's thread has closed what it was about to. */
static inline int two_settled_descriptors(void)
{
    int n = two_descriptors();

    for (int same = 0, ms = 0; same < 30 && ms < 3000; ms++) {
        struct timespec t   = {0, 1000000};
        int             now = (nanosleep(&t, NULL), two_descriptors());

        same = now == n ? same + 1 : 0;
        n    = now;
    }
    return n;
}

/* plain_main(), or the peer that the arguments name. */
static inline int two_main(int argc, char **argv, const plain_case *cases, const two_role *roles)
{
    if (argc != 3 || strcmp(argv[1], "--peer") != 0)
        return plain_main(argc, argv, cases);
    plain.in_child = true;
    (void)alarm(100);
    for (; roles->name != NULL; roles++)
        if (strcmp(roles->name, argv[2]) == 0) {
            roles->run();
            (void)fflush(NULL);
            return 0;
        }
    return 2;
}

#define ROLE(function)                                                                             \
    {                                                                                              \
#function, function                                                                        \
    }

#endif
