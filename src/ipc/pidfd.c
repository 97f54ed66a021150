/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* USM_IPC=pidfd: an importer takes descriptors out of the owner's process, which need do nothing
 * for that: it may even be stopped.  Where the system restricts ptrace (Yama) this is refused; so
 * it is not the default.
 *
 * The owner lists what it shares in a directory, a memory file that it alone writes, whichever way
 * others fetch: id, nonce, the descriptor's number, the extra bytes.  Others find the directory
 * among the owner's descriptors by its name, which contains the owner's secret.
 *
 *     owner    writes all fields, then id        clears id, then closes the descriptor
 *     reader   id and nonce are right: takes the descriptor of that number: id is still right
 *
 * So a descriptor that was taken is the one that was meant.  Messages go through sockets in both
 * modes.  Called by rendezvous.c. */
#include "ipc/service.h"

#include "base/inline/atomic.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_ipc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define ENTRIES 4096

typedef struct entry {
    _Atomic(uint64_t) id; /* 0: none                                                        */
    uint64_t          nonce;
    int32_t           fd;
    uint8_t           extra[USM__IPC_EXTRA_SIZE];
} entry;

#define SIZE (ENTRIES * sizeof(entry))

static void name_of(const usm__ipc_process *p, char *name, size_t size)
{
    (void)snprintf(name, size, "usm-ipc-%016llx", (unsigned long long)p->secret);
}

/* ---- the owner's side, under the service's lock ---------------------------------------------- */

/* False: others cannot fetch in this way. */
static bool make_directory(void)
{
    char name[40];
    int  fd;

    if (usm__ipc.directory != NULL)
        return true;
    name_of(&usm__ipc.self, name, sizeof name);
    fd = usm__os_memfd_sealable(name, SIZE);
    if (fd < 0)
        return false;
    usm__ipc.directory = usm__os_map_fd(NULL, SIZE, PROT_READ | PROT_WRITE, fd);
    if (usm__ipc.directory == NULL || usm__os_seal(fd, true) != 0) {
        if (usm__ipc.directory != NULL)
            (void)usm__os_unmap(usm__ipc.directory, SIZE);
        usm__ipc.directory = NULL;
        (void)usm__os_close(fd);
        return false;
    }
    usm__os_keep_from_children(usm__ipc.directory, SIZE);
    usm__ipc.directory_fd = fd;
    return true;
}

void usm__ipc_directory_enter(usm__ipc_shared *s)
{
    entry *e;

    s->entry = -1;
    if (!make_directory())
        return;
    e = usm__ipc.directory;
    for (size_t i = 0; i < ENTRIES && s->entry < 0; i++)
        if (usm_load_relaxed(&e[(s->id + i) % ENTRIES].id) == 0)
            s->entry = (int)((s->id + i) % ENTRIES);
    if (s->entry < 0)
        return;
    e += s->entry;
    e->nonce = s->nonce;
    e->fd    = s->fd;
    memcpy(e->extra, s->extra, sizeof e->extra);
    usm_store_release(&e->id, s->id);
}

void usm__ipc_directory_leave(const usm__ipc_shared *s)
{
    entry *e = usm__ipc.directory;

    if (e != NULL && s->entry >= 0)
        atomic_store(&e[s->entry].id, (uint64_t)0);
}

/* ---- the other processes --------------------------------------------------------------------- */

static usm_status not_taken(const usm__ipc_process *p)
{
    int error = errno;

    if (!usm__ipc_is_alive(p))
        return usm__fail(USM_E_OWNER_GONE, "process %d, the owner, has ended", p->pid);
    if (usm__os_process_user(p->pid) != p->uid)
        return usm__fail(USM_E_PERMISSION, "process %d, the owner, is of another user", p->pid);
    if (error == EPERM || error == EACCES)
        return usm__fail(
            USM_E_SYSTEM,
            "the system does not let this process take descriptors of process %d "
            "(kernel.yama.ptrace_scope restricts it): unset USM_IPC, so that the owner "
            "sends them",
            p->pid);
    return usm__fail(USM_E_SYSTEM, "descriptors of process %d cannot be taken: %s%s", p->pid,
                     strerror(error), /* NOLINT(concurrency-mt-unsafe): glibc's is safe */
                     error == ENOSYS ? "; that needs Linux 5.6" : "");
}

/* A descriptor of the directory, in this process; or -1, and the status. */
static int open_directory(const usm__ipc_process *p, int pidfd, usm_status *st)
{
    char name[40];
    int  number, fd;

    name_of(p, name, sizeof name);
    number = usm__os_find_memfd(p->pid, name);
    if (number < 0 && errno == ENOENT) {
        *st = usm__fail(USM_E_OWNER_GONE,
                        "process %d runs but is not the owner any more: it has started another "
                        "program",
                        p->pid);
        return -1;
    }
    fd = number < 0 ? -1 : usm__os_pidfd_take(pidfd, number);
    if (fd < 0)
        *st = not_taken(p);
    return fd;
}

static usm_status take(const usm__ipc_name *name, int pidfd, entry *list, int *fd, uint8_t *extra)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        entry *e = &list[(name->id + i) % ENTRIES];
        int    taken;

        if (usm_load_acquire(&e->id) != name->id || e->nonce != name->nonce)
            continue;
        memcpy(extra, e->extra, sizeof e->extra);
        taken = usm__os_pidfd_take(pidfd, e->fd);
        if (atomic_load(&e->id) == name->id && taken >= 0) {
            *fd = taken;
            return USM_OK;
        }
        if (taken < 0)
            return not_taken(&name->owner);
        (void)usm__os_close(taken);
        break;
    }
    return usm__fail(USM_E_STALE, "process %d does not share it any more", name->owner.pid);
}

usm_status usm__ipc_fetch_by_pidfd(const usm__ipc_name *name, int *fd, uint8_t *extra)
{
    const usm__ipc_process *p     = &name->owner;
    usm_status              st    = USM_OK;
    int                     pidfd = usm__ipc_open_process(p, &st);
    int                     directory;
    entry                  *list;

    if (pidfd < 0)
        return st;
    directory = open_directory(p, pidfd, &st);
    if (directory < 0)
        goto err_pidfd;
    list = usm__os_is_fixed(directory, SIZE) ? usm__os_map_fd_read_only(SIZE, directory) : NULL;
    (void)usm__os_close(directory);
    if (list == NULL) {
        st = usm__fail(USM_E_SYSTEM, "what process %d shares cannot be read", p->pid);
        goto err_pidfd;
    }
    st = take(name, pidfd, list, fd, extra);
    (void)usm__os_unmap(list, SIZE);

err_pidfd:
    (void)usm__os_close(pidfd);
    return st;
}
