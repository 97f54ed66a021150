/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where processes meet: file descriptors that others may ask for, and whether others still live.
 *
 * A process that shares something serves a listening socket (abstract name, of its number, start
 * time and a random word), on the one thread of src/ipc, which sleeps in poll().  A process that
 * fetches connects once to each other one, and keeps the connection; SO_PEERCRED decides who is
 * served: the same user.  The thread also holds a pidfd of each process that is watched.
 *
 * Called by memory.c (areas, pages of numbers), event.c and channel.c.  No lock is held while
 * callbacks run. */
#ifndef USM_IPC_RENDEZVOUS_H
#define USM_IPC_RENDEZVOUS_H

#define USM__IPC_EXTRA_SIZE 64

#include "base/inline/list.h"
#include "base/status.h"

#include <usm/ipc.h>

/* A process, for good: its number may be another's later, its start time not. */
typedef struct usm__ipc_process {
    uint64_t start;  /* clock ticks after boot (/proc/PID/stat, field 22)                 */
    uint64_t secret; /* part of its socket's name; 0: it serves none                      */
    int32_t  pid;
    uint32_t uid;
} usm__ipc_process;

/* Something a process shares, in its own counting. */
typedef struct usm__ipc_name {
    usm__ipc_process owner;
    uint64_t         id;    /* never 0, never given twice by a process                     */
    uint64_t         nonce; /* random                                                     */
} usm__ipc_name;

/* This process as others name it; starts the service at the first call. */
usm_status usm__ipc_self(usm__ipc_process *self);
bool       usm__ipc_is_self(const usm__ipc_process *p);

/* Others of the same user may have `fd` (duplicated; the caller keeps his) under *name, with up to
 * 64 bytes of `extra` beside it. */
usm_status usm__ipc_share(int fd, const void *extra, size_t extra_size, usm__ipc_name *name);
void       usm__ipc_unshare(const usm__ipc_name *name);
/* Who fetches it is no importer: nothing is told when he ends.  For what channels share. */
void usm__ipc_share_aside(const usm__ipc_name *name);
/* The caller owns *fd (close-on-exec).  `extra` gets extra_size bytes.
 *   USM_E_OWNER_GONE, USM_E_PERMISSION, USM_E_STALE (not shared any more), USM_E_SYSTEM */
usm_status usm__ipc_fetch(const usm__ipc_name *name, int *fd, void *extra, size_t extra_size);

/* Words: what an importer tells an owner over the connection that fetches go through, in that
 * order. At most 64 bytes; `fd` goes along, or -1.  Nobody answers; an owner that does not listen
 * to them for seconds is USM_E_SYSTEM, others as usm__ipc_fetch(). */
/* usm__ipc_ask(): the owner has done what the word says when it returns, else USM_E_SYSTEM. */
usm_status usm__ipc_ask(const usm__ipc_process *to, const void *word, size_t size, int fd);
usm_status usm__ipc_say(const usm__ipc_process *to, const void *word, size_t size, int fd);
/* Changes when the connection to that process is another one, which knows of no word yet; 0: there
 * is none. */
uint64_t usm__ipc_connection(const usm__ipc_process *to);
/* What an owner does about them, on the service's thread, no lock held.  One listener, for good. */
typedef struct usm__ipc_ear {
    /* fd: the listener's from now on, or -1.  False: nonsense, the connection is cut. */
    bool (*word)(const usm__ipc_process *from, const void *word, size_t size, int fd);
    /* It has ended, or started another program: what it said holds no more. */
    void (*left)(const usm__ipc_process *from);
} usm__ipc_ear;
void usm__ipc_listen(const usm__ipc_ear *ear);
/* How many processes are connected to this one. */
size_t usm__ipc_callers(void);

/* A call when a process ends; embedded in its user's struct.  At once (on the service's thread)
 * when it has ended. */
typedef struct usm__ipc_watch {
    usm_list link;
    void (*fn)(struct usm__ipc_watch *w); /* on the service's thread; w is its owner's again */
    usm__ipc_process process;
    int              pidfd;
} usm__ipc_watch;
/*   USM_E_OWNER_GONE  it has ended; fn is not called;  USM_E_SYSTEM  no pidfd */
usm_status usm__ipc_watch_start(usm__ipc_watch *w);
/* fn has returned, or will not be called. */
void usm__ipc_watch_stop(usm__ipc_watch *w);
/* Whether it runs: never a wait, no system call for one that is watched. */
bool usm__ipc_is_alive(const usm__ipc_process *p);

/* Tells the program's usm_ipc_on_loss(), the first time for that process and role.  IMPORTER is
 * told by the service itself: of those who fetched something that is not aside. */
void usm__ipc_tell_loss(const usm__ipc_process *p, usm_ipc_role role);

/* Hook of core/init.h. */
void usm__ipc_fork(usm_fork_phase phase);

#endif
