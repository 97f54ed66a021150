/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* System calls that concern other processes, with their fault points.  Called by src/ipc and
 * src/group. */
#include "base/os_ipc.h"

#include "base/fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

static int close_failed(int fd)
{
    int error = errno;

    (void)close(fd);
    errno = error;
    return -1;
}

/* ---- processes --------------------------------------------------------------------- */

uint64_t usm__os_process_start(int pid)
{
    char     path[40], text[1024];
    char    *at;
    ssize_t  n;
    int      fd;
    unsigned field = 2;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    do
        n = read(fd, text, sizeof text - 1);
    while (n < 0 && errno == EINTR);
    (void)close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    /* Field 2 is the program's name in parentheses, and may itself contain blanks and
     * parentheses. */
    at = strrchr(text, ')');
    while (at != NULL && field < 22) {
        at = strchr(at + 1, ' ');
        field++;
    }
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

uint32_t usm__os_process_user(int pid)
{
    char        path[40];
    struct stat st;

    (void)snprintf(path, sizeof path, "/proc/%d", pid);
    return stat(path, &st) == 0 ? st.st_uid : UINT32_MAX;
}

int usm__os_pidfd(int pid)
{
    return usm__fault_errno("os.pidfd", EMFILE) ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
}

bool usm__os_pidfd_ended(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN, .revents = 0};

    return poll(&p, 1, 0) > 0 && (p.revents & (POLLIN | POLLHUP));
}

int usm__os_pidfd_take(int pidfd, int fd)
{
    return usm__fault_errno("os.pidfd_take", EPERM) ? -1
                                                    : (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
}

int usm__os_find_memfd(int pid, const char *name)
{
    char                 path[40], link[128], want[128];
    DIR                 *folder;
    const struct dirent *d;
    int                  found = -1;

    (void)snprintf(path, sizeof path, "/proc/%d/fd", pid);
    (void)snprintf(want, sizeof want, "/memfd:%s (deleted)", name);
    folder = opendir(path);
    if (folder == NULL)
        return -1;
    while (found < 0 && (d = readdir(folder)) != NULL) { /* NOLINT(concurrency-mt-unsafe) */
        ssize_t n = readlinkat(dirfd(folder), d->d_name, link, sizeof link - 1);

        link[n > 0 ? n : 0] = '\0';
        if (strcmp(link, want) == 0)
            found = atoi(d->d_name); /* NOLINT(cert-err34-c): names in /proc are numbers */
    }
    (void)closedir(folder);
    errno = found < 0 ? ENOENT : 0;
    return found;
}

/* ---- sockets ----------------------------------------------------------------------- */

static socklen_t address_of(const char *name, struct sockaddr_un *address)
{
    size_t n = strnlen(name, sizeof(address->sun_path) - 1);

    *address             = (struct sockaddr_un){.sun_family = AF_UNIX};
    address->sun_path[0] = '\0'; /* abstract: there is no file, and it ends with its last
                                    descriptor */
    memcpy(address->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static int make_socket(int flags)
{
    return usm__fault_errno("os.socket", EMFILE)
               ? -1
               : socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
}

int usm__os_listen(const char *name)
{
    struct sockaddr_un address;
    socklen_t          size = address_of(name, &address);
    int                fd   = make_socket(SOCK_NONBLOCK);

    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)(void *)&address, size) != 0 || listen(fd, 128) != 0)
        return close_failed(fd);
    return fd;
}

int usm__os_connect(const char *name, unsigned timeout_ms)
{
    struct sockaddr_un address;
    struct timeval     within = {(time_t)(timeout_ms / 1000), (long)(timeout_ms % 1000) * 1000};
    socklen_t          size   = address_of(name, &address);
    int                fd     = make_socket(0);
    int                done;

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &within, sizeof within);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &within, sizeof within);
    if (usm__fault_errno("os.connect", ECONNREFUSED))
        return close_failed(fd);
    do
        done = connect(fd, (struct sockaddr *)(void *)&address, size);
    while (done != 0 && errno == EINTR);
    return done == 0 ? fd : close_failed(fd);
}

int usm__os_accept(int fd)
{
    int got;

    if (usm__fault_errno("os.accept", EMFILE))
        return -1;
    do
        got = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (got < 0 && errno == EINTR);
    return got;
}

int usm__os_socket_pair(int pair[2])
{
    return usm__fault_errno("os.socket", EMFILE)
               ? -1
               : socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair);
}

int usm__os_peer(int fd, int *pid, uint32_t *uid)
{
    struct ucred who;
    socklen_t    size = sizeof who;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
        return -1;
    *pid = who.pid;
    *uid = who.uid;
    return 0;
}

typedef union control {
    struct cmsghdr align;
    char           bytes[CMSG_SPACE(sizeof(int))];
} control;

int usm__os_send(int fd, const void *data, size_t size, int pass)
{
    control       c    = {.bytes = {0}};
    struct iovec  part = {(void *)(uintptr_t)data, size};
    struct msghdr m    = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t       n;

    if (usm__fault_errno("os.send", ENOBUFS))
        return -1;
    if (pass >= 0) {
        struct cmsghdr *head;

        m.msg_control    = c.bytes;
        m.msg_controllen = sizeof c.bytes;
        head             = CMSG_FIRSTHDR(&m);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type  = SCM_RIGHTS;
        head->cmsg_len   = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &pass, sizeof pass);
    }
    do
        n = sendmsg(fd, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)size ? 0 : -1;
}

int64_t usm__os_receive(int fd, void *data, size_t size, int *passed)
{
    control       c    = {.bytes = {0}};
    struct iovec  part = {data, size};
    struct msghdr m    = {.msg_iov        = &part,
                          .msg_iovlen     = 1,
                          .msg_control    = c.bytes,
                          .msg_controllen = sizeof c.bytes};
    ssize_t       n;

    *passed = -1;
    if (usm__fault_errno("os.receive", ECONNRESET))
        return -1;
    do
        n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    /* The other end was closed before it had read everything, which is reported once.  Data that it
     * sent before may still be readable. */
    if (n < 0 && errno == ECONNRESET)
        n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    if (n < 0)
        return -1;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&m); head != NULL; head = CMSG_NXTHDR(&m, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        if (head->cmsg_len == CMSG_LEN(sizeof(int)))
            memcpy(passed, CMSG_DATA(head), sizeof *passed);
    }
    return n;
}

/* ---- waiting ------------------------------------------------------------------------- */

int usm__os_epoll(void)
{
    return usm__fault_errno("os.epoll", EMFILE) ? -1 : epoll_create1(EPOLL_CLOEXEC);
}

int usm__os_epoll_add(int epoll, int fd, bool to_read, uint64_t data)
{
    struct epoll_event e = {.events = to_read ? EPOLLIN : 0u, .data = {.u64 = data}};

    return usm__fault_errno("os.epoll", ENOSPC) ? -1 : epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

void usm__os_epoll_remove(int epoll, int fd)
{
    struct epoll_event e = {.events = 0, .data = {.u64 = 0}};

    (void)epoll_ctl(epoll, EPOLL_CTL_DEL, fd, &e);
}

int usm__os_epoll_wait(int epoll, uint64_t *data)
{
    struct epoll_event e;
    int                n;

    do
        n = epoll_wait(epoll, &e, 1, -1);
    while (n < 0 && errno == EINTR);
    if (n != 1)
        return -1;
    *data = e.data.u64;
    return 0;
}

/* ---- descriptors and memory files --------------------------------------------------- */

int usm__os_dup(int fd)
{
    return usm__fault_errno("os.dup", EMFILE) ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

int usm__os_random(void *data, size_t size)
{
    char *at = data;

    if (usm__fault_errno("os.random", EIO))
        return -1;
    while (size > 0) {
        ssize_t n = getrandom(at, size, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

int usm__os_memfd_sealable(const char *name, size_t size)
{
    int fd;

    if (usm__fault_errno("os.memfd", EMFILE))
        return -1;
    if (size > INT64_MAX) {
        errno = EFBIG;
        return -1;
    }
    fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (usm__fault_errno("os.ftruncate", ENOSPC) || ftruncate(fd, (off_t)size) != 0)
        return close_failed(fd);
    return fd;
}

int usm__os_seal(int fd, bool is_read_only)
{
    const int size = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

    if (usm__fault_errno("os.seal", EPERM))
        return -1;
    return fcntl(fd, F_ADD_SEALS, is_read_only ? size | F_SEAL_FUTURE_WRITE : size);
}

bool usm__os_is_fixed(int fd, size_t size)
{
    struct stat st;
    int         seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &st) == 0 && st.st_size >= 0 &&
           (size_t)st.st_size >= size;
}

void *usm__os_map_fd_read_only(size_t size, int fd)
{
    void *p;

    if (usm__fault_errno("os.mmap", ENOMEM))
        return NULL;
    p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

void usm__os_keep_from_children(void *p, size_t size)
{
    (void)madvise(p, size, MADV_DONTFORK);
}
