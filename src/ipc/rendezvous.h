/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where processes meet: file descriptors that others may fetch, and whether others are still alive.
 *
 * A process that shares something serves a listening socket (abstract name, made of its number,
 * start time and a random word), on the one thread of src/ipc, which sleeps in poll().  A process
 * that fetches connects once to each other one, and keeps the connection; SO_PEERCRED decides which
 * processes are served: those of the same user.  The thread also holds a pidfd of each process that
 * is monitored.
 *
 * Called by memory.c (areas, pages of numbers), event.c and channel.c.  No lock is held while
 * callbacks run. */
#ifndef USM_IPC_RENDEZVOUS_H
#define USM_IPC_RENDEZVOUS_H

#define USM__IPC_EXTRA_SIZE 64

#include "base/inline/list.h"
#include "base/part.h"
#include "base/status.h"

#include <usm/ipc.h>
#include <usm/pool_ops.h>

/* Identifies a process for good: its number may be reused later, together with the start time it is
 * unique. */
typedef struct usm__ipc_process {
    uint64_t start;  /* clock ticks after boot (/proc/PID/stat, field 22)                 */
    uint64_t secret; /* part of its socket's name; 0: it has none                         */
    int32_t  pid;
    uint32_t uid;
} usm__ipc_process;

/* Something that a process shares, in its own numbering. */
typedef struct usm__ipc_name {
    usm__ipc_process owner;
    uint64_t         id;    /* never 0, never used twice by a process */
    uint64_t         nonce; /* random                                 */
} usm__ipc_name;

/* The identity of this process; starts the service at the first call. */
usm_status usm__ipc_self(usm__ipc_process *self);
bool       usm__ipc_is_self(const usm__ipc_process *p);

/* Makes `fd` (duplicated; the caller keeps its own) available to other processes of the same user
 * under *name, with up to 64 bytes of `extra` beside it. */
usm_status usm__ipc_share(int fd, const void *extra, size_t extra_size, usm__ipc_name *name);
void       usm__ipc_unshare(const usm__ipc_name *name);
/* A process that fetches it is no importer: its end is not reported.  For what channels share. */
void usm__ipc_share_aside(const usm__ipc_name *name);
/* The caller owns *fd (close-on-exec).  `extra` gets extra_size bytes.
 *
 *     USM_E_OWNER_GONE, USM_E_PERMISSION, USM_E_STALE (not shared any more), USM_E_SYSTEM */
usm_status usm__ipc_fetch(const usm__ipc_name *name, int *fd, void *extra, size_t extra_size);

/* Messages ("words") of an importer to an owner, in order, over the connection that is also used
 * for fetches.  At most 64 bytes; `fd` is passed with it, or -1.  There is no answer.  USM_E_SYSTEM
 * if the owner does not read them for seconds; other errors as usm__ipc_fetch(). */
/* usm__ipc_ask(): when it returns, the owner has handled the message, else USM_E_SYSTEM. */
usm_status usm__ipc_ask(const usm__ipc_process *to, const void *word, size_t size, int fd);
usm_status usm__ipc_say(const usm__ipc_process *to, const void *word, size_t size, int fd);
/* Changes when the connection to that process is a new one, over which no message was sent yet; 0:
 * there is none. */
uint64_t usm__ipc_connection(const usm__ipc_process *to);
/* What an owner does with messages, on the service's thread, no lock held.  There is one listener,
 * which stays. */
typedef struct usm__ipc_ear {
    /* fd: owned by the listener from now on, or -1.  False: the message is invalid, the connection
     * is closed. */
    bool (*word)(const usm__ipc_process *from, const void *word, size_t size, int fd);
    /* The process has ended, or executed another program: its messages are void. */
    void (*left)(const usm__ipc_process *from);
} usm__ipc_ear;
void usm__ipc_listen(const usm__ipc_ear *ear);
/* How many processes are connected to this one. */
size_t usm__ipc_callers(void);

/* Monitors a process and calls fn when it ends; embedded in its user's struct.  If the process has
 * ended already, fn is called at once (on the service's thread). */
typedef struct usm__ipc_watch {
    usm_list link;
    void (*fn)(struct usm__ipc_watch *w); /* on the service's thread; w is its owner's again */
    usm__ipc_process process;
    int              pidfd;
} usm__ipc_watch;
/* USM_E_OWNER_GONE  it has ended; fn is not called;  USM_E_SYSTEM  no pidfd */
usm_status usm__ipc_watch_start(usm__ipc_watch *w);
/* When it returns, fn has returned, or will not be called. */
void usm__ipc_watch_stop(usm__ipc_watch *w);
/* Whether the process runs: never waits; no system call for one that is monitored. */
bool usm__ipc_is_alive(const usm__ipc_process *p);

/* Calls the program's usm_ipc_on_loss(), the first time for that process and role.  The service
 * itself reports the role IMPORTER: for processes that fetched something that is not aside. */
void usm__ipc_notify_loss(const usm__ipc_process *p, usm_ipc_role role);

/* For src/usm.c. */
extern const usm_part usm__ipc_part;

#endif
