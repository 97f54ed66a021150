/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The folder in which the processes of a job meet.  Rank R listens at R.sock.
 *
 * A file of that name may be left over from a process that was killed: no process answers there,
 * and the file is replaced.  Two processes that find it so at the same time must not replace each
 * other's socket, so they check and replace under a lock of the folder.  A socket gets its name by
 * rename(), when it listens already: a process that waits for it is notified once, by the folder
 * (meet.c). */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_TRIES 1000 /* of a millisecond each */
#define SEND_SPACE (1 << 20)

static const char *words(int error)
{
    static _Thread_local char room[128];

    return strerror_r(error, room, sizeof(room));
}

static void name_of(uint32_t rank, const char *ending, char name[16])
{
    (void)snprintf(name, 16, "%u.%s", rank, ending);
}

/* The address fits: config.c has checked that. */
static struct sockaddr_un address_of(const usm_socket_job *j, uint32_t rank, const char *ending)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char               name[16];
    size_t             n = strlen(j->config.folder);

    name_of(rank, ending, name);
    memcpy(a.sun_path, j->config.folder, n);
    a.sun_path[n] = '/';
    memcpy(a.sun_path + n + 1, name, strlen(name) + 1);
    return a;
}

static int make_socket(const usm_socket_job *j)
{
    int fd, size = SEND_SPACE;

    if (j->api->fault("socket.open", NULL)) {
        errno = EMFILE;
        return -1;
    }
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) /* as much as the system's limit allows */
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    return fd;
}

bool usm_socket_is_ours(int fd)
{
    struct ucred who;
    socklen_t    size = sizeof(who);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid();
}

int usm_socket_connect(const usm_socket_job *j, uint32_t rank)
{
    const struct sockaddr_un a  = address_of(j, rank, "sock");
    int                      fd = make_socket(j), error;

    if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0)
        return fd;
    error = errno;
    (void)close(fd);
    errno = error;
    return -1;
}

int usm_socket_accept(const usm_socket_job *j)
{
    int fd = accept4(j->door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), size = SEND_SPACE;

    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    return fd;
}

usm_status usm_socket_folder_open(usm_socket_job *j)
{
    const char *path = j->config.folder;

    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return j->api->report(USM_E_IO, "socket: the folder %s cannot be made: %s", path,
                              words(errno));
    j->folder = j->api->os->open(path, O_RDONLY | O_DIRECTORY, 0);
    if (j->folder < 0)
        return j->api->report(USM_E_IO, "socket: the folder %s cannot be used: %s", path,
                              words(errno));
    return USM_OK;
}

/* Other processes hold the lock only briefly. */
static usm_status lock_folder(const usm_socket_job *j)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(j->folder, LOCK_EX | LOCK_NB) == 0)
            return USM_OK;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return j->api->report(USM_E_IO, "socket: the folder %s cannot be locked: %s",
                                  j->config.folder, words(errno));
        (void)poll(NULL, 0, 1);
    }
    return j->api->report(USM_E_BUSY,
                          "socket: the folder %s is locked by another process for a second now",
                          j->config.folder);
}

/* Whether R.sock may be replaced. */
static usm_status check_name(const usm_socket_job *j)
{
    char        name[16];
    struct stat st;
    int         fd;

    name_of(j->config.rank, "sock", name);
    if (fstatat(j->folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISSOCK(st.st_mode))
        return j->api->report(USM_E_INVALID, "socket: %s/%s is there, and is not a socket",
                              j->config.folder, name);
    fd = usm_socket_connect(j, j->config.rank);
    if (fd < 0 && (errno == ENOENT || errno == ECONNREFUSED))
        return USM_OK;
    if (fd < 0 && errno != EAGAIN) /* EAGAIN: that process has not accepted others yet */
        return j->api->report(USM_E_IO, "socket: %s/%s does not answer: %s", j->config.folder, name,
                              words(errno));
    if (fd >= 0)
        (void)close(fd);
    return j->api->report(USM_E_BUSY,
                          "socket: another process is rank %u in %s: each rank comes once",
                          j->config.rank, j->config.folder);
}

/* The lock of the folder is held. */
static usm_status take_name(usm_socket_job *j)
{
    const struct sockaddr_un a = address_of(j, j->config.rank, "new");
    char                     name[16], made[16];
    struct stat              st;

    name_of(j->config.rank, "sock", name);
    name_of(j->config.rank, "new", made);
    (void)unlinkat(j->folder, made, 0); /* left over from a process that was killed at this point */
    j->door = make_socket(j);
    if (j->door < 0)
        return j->api->report(USM_E_SYSTEM, "socket: no socket can be had: %s", words(errno));
    if (bind(j->door, (const struct sockaddr *)&a, sizeof(a)) != 0 ||
        chmod(a.sun_path, 0600) != 0 || listen(j->door, (int)j->config.size + 16) != 0 ||
        renameat(j->folder, made, j->folder, name) != 0 ||
        fstatat(j->folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return j->api->report(USM_E_IO, "socket: nobody can listen at %s/%s: %s", j->config.folder,
                              name, words(errno));
    j->door_device = (uint64_t)st.st_dev;
    j->door_file   = (uint64_t)st.st_ino;
    return USM_OK;
}

usm_status usm_socket_listen(usm_socket_job *j)
{
    usm_status st = lock_folder(j);

    if (st != USM_OK)
        return st;
    st = check_name(j);
    if (st == USM_OK)
        st = take_name(j);
    (void)flock(j->folder, LOCK_UN);
    return st;
}

void usm_socket_folder_close(usm_socket_job *j)
{
    char        name[16];
    struct stat st;

    name_of(j->config.rank, "sock", name);
    if (j->door_file && fstatat(j->folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        (uint64_t)st.st_dev == j->door_device && (uint64_t)st.st_ino == j->door_file)
        (void)unlinkat(j->folder, name, 0);
    if (j->door >= 0)
        (void)close(j->door);
    if (j->folder >= 0)
        (void)j->api->os->close(j->folder);
    j->door = j->folder = -1;
}
