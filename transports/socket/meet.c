/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How the processes of a job meet: as group/meet.h says, each with a connection to every other,
 * under a name that is made of the folder's number.  As long as the folder is open, no other folder
 * has that number.  The folder has no other use: nothing is written into it. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEND_SPACE (1 << 20)

typedef struct hello {
    uint32_t lease_ms;
    char     domain[DOMAIN_SIZE];
} hello;

static usm_status fail(const usm_socket_job *j, const char *what)
{
    char room[128];

    return j->api->report(USM_E_IO, "socket: the folder %s cannot be %s: %s", j->config.folder,
                          what, strerror_r(errno, room, sizeof(room)));
}

static usm_status open_folder(usm_socket_job *j)
{
    const char *path = j->config.folder;
    struct stat st;

    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return fail(j, "made");
    j->folder = j->api->os->open(path, O_RDONLY | O_DIRECTORY, 0);
    if (j->folder < 0 || fstat(j->folder, &st) != 0)
        return fail(j, "used");
    (void)snprintf(j->name, sizeof(j->name), "usm-job-%llx-%llx", (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino);
    return USM_OK;
}

/* With the lock, because the child of a fork closes all descriptors that it finds. */
static void set_link(void *user, uint32_t rank, int fd)
{
    usm_socket_job *j    = user;
    int            *link = rank == j->config.rank ? &j->listener : &j->peers[rank].fd;
    int             before, size = SEND_SPACE;

    if (fd >= 0) /* as much as the system's limit allows */
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    usm_socket_lock(j);
    before = *link;
    *link  = fd;
    usm_socket_unlock(j);
    if (before >= 0)
        (void)close(before);
}

static void take_hello(usm_socket_job *j, usm_socket_peer *p, const hello *h)
{
    memcpy(p->domain, h->domain, sizeof(p->domain) - 1);
    if (h->lease_ms / 4 < j->beat_ms)
        j->beat_ms = h->lease_ms / 4 > 0 ? h->lease_ms / 4 : 1;
}

usm_status usm_socket_meet(usm_socket_job *j)
{
    hello      own = {.lease_ms = j->lease_ms};
    usm__group group;
    usm_status st = open_folder(j);

    if (st != USM_OK)
        return st;
    (void)snprintf(own.domain, sizeof(own.domain), "%s", j->params.domain ? j->params.domain : "");
    (void)snprintf(j->what, sizeof(j->what), "the job in %s", j->config.folder);
    j->meeting       = (usm__group_meeting){.api        = j->api,
                                            .name       = j->name,
                                            .what       = j->what,
                                            .place      = "folder",
                                            .release    = USM_SOCKET_VERSION,
                                            .rank       = j->config.rank,
                                            .size       = j->config.size,
                                            .timeout_ms = j->config.wait_ms,
                                            .other_size = USM_E_INVALID,
                                            .hello      = &own,
                                            .hello_size = sizeof(own),
                                            .link       = set_link,
                                            .user       = j};
    st               = usm__group_meet(&j->meeting, &group);
    j->meeting.hello = NULL; /* others need it no more */
    if (st != USM_OK)
        return st;
    for (uint32_t r = 0; r < j->config.size; r++)
        take_hello(j, &j->peers[r], usm__group_hello(&group, r));
    (void)j->api->os->unmap(group.page, group.page_size);
    return USM_OK;
}
