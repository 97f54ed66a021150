/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of the rendezvous: the one service of the process.  rendezvous.c shares and
 * fetches, service.c has the thread and answers other processes, watch.c is notified when they
 * end. */
#ifndef USM_IPC_SERVICE_H
#define USM_IPC_SERVICE_H

#include "base/mutex.h"
#include "ipc/rendezvous.h"

#define USM__IPC_SHARE_LISTS 256
#define USM__IPC_TOLD        256
#define USM__IPC_DEADLINE_MS 5000u /* an owner that is stopped does not stop its importers    */

typedef enum usm__ipc_op { USM__IPC_OP_FETCH = 1, USM__IPC_OP_WORD = 2 } usm__ipc_op;

/* Packets.  Both ends are libusm on one machine and of one version: the magic number includes the
 * version. */
#define USM__IPC_PACKET_MAGIC 0x31435049u /* "IPC1" */
typedef struct usm__ipc_request {
    uint32_t magic, op;
    uint64_t exchange; /* repeated in the answer, so that late answers are recognised        */
    uint64_t id, nonce;
    uint32_t size;      /* of the message                */
    uint32_t is_asking; /* the message is to be answered */
    uint8_t  word[USM__IPC_EXTRA_SIZE];
} usm__ipc_request;
typedef struct usm__ipc_answer {
    uint32_t magic;
    int32_t  status;
    uint64_t exchange; /* 0: an answer to any request, before the connection is closed        */
    uint8_t  extra[USM__IPC_EXTRA_SIZE];
} usm__ipc_answer;

typedef struct usm__ipc_shared {
    usm_list link;
    uint64_t id, nonce;
    int      fd;
    int      entry; /* in the directory of pidfd.c; -1: none                              */
    bool     is_aside;
    uint8_t  extra[USM__IPC_EXTRA_SIZE];
} usm__ipc_shared;

/* Another process that connected to this one. */
typedef struct usm__ipc_caller {
    usm_list       link;
    usm__ipc_watch watch; /* its process; fn NULL: it has ended                           */
    int            fd;    /* -1: it has disconnected                                      */
    bool           is_importer;
} usm__ipc_caller;

/* Another process that this one connected to. */
typedef struct usm__ipc_owner {
    usm_list         link; /* points to itself: the other process has closed the connection */
    usm__ipc_process process;
    unsigned         refs; /* guarded by the service's lock: one for being in the list       */
    usm__mutex       lock; /* one exchange at a time; guards what follows                    */
    int              fd;   /* written under both locks                                       */
    uint64_t         exchange;
    uint64_t         connection; /* written under both locks                                 */
} usm__ipc_owner;

typedef struct usm__ipc_service {
    usm__mutex     lock;
    pthread_cond_t changed; /* of `calling` and `telling`                                   */
    /* all guarded by lock */
    bool                is_up;
    usm__ipc_process    self;
    int                 epoll, listener;
    int                 spare; /* closed to accept and refuse a process when no other is free     */
    bool                has_thread;
    pthread_t           thread;
    uint64_t            last_id, last_connection;
    usm_list            shares[USM__IPC_SHARE_LISTS]; /* by id                                    */
    usm_list            callers, owners, watches;
    void               *directory; /* pidfd.c; NULL: none yet                              */
    int                 directory_fd;
    usm__ipc_watch     *calling; /* the one whose fn runs                                        */
    const usm__ipc_ear *ear;
    usm_ipc_loss_fn     loss;
    void               *loss_user;
    unsigned notifying; /* number of running calls of usm_ipc_on_loss()                 */
    struct {
        uint64_t     start;
        int32_t      pid;
        usm_ipc_role role;
    } notified[USM__IPC_TOLD];
    unsigned ntold;
} usm__ipc_service;

extern usm__ipc_service usm__ipc;

/* service.c.  Starts the service at the first call. */
usm_status usm__ipc_start(void);
/* What poll() looks at; `what` is passed back with the kind.  Under the lock. */
typedef enum usm__ipc_kind {
    USM__IPC_LISTENER = 0,
    USM__IPC_CALLER   = 1,
    USM__IPC_OWNER    = 2,
    USM__IPC_WATCH    = 3
} usm__ipc_kind;
int  usm__ipc_poll_add(int fd, usm__ipc_kind kind, void *what);
void usm__ipc_poll_remove(int fd);
bool usm__ipc_on_service(void); /* under the lock */
void usm__ipc_socket_name(const usm__ipc_process *p, char *name, size_t size);
bool usm__ipc_is_same(const usm__ipc_process *a, const usm__ipc_process *b);

/* rendezvous.c.  Under the lock; NULL: not shared (any more). */
usm__ipc_shared *usm__ipc_shared_find(uint64_t id, uint64_t nonce);
/* The other process has closed the connection. */
void usm__ipc_owner_closed(usm__ipc_owner *o);

/* pidfd.c.  Under the lock. */
void usm__ipc_directory_enter(usm__ipc_shared *s);
void usm__ipc_directory_leave(const usm__ipc_shared *s);
/* As usm__ipc_fetch(), from another process of this user. */
usm_status usm__ipc_fetch_by_pidfd(const usm__ipc_name *name, int *fd, uint8_t *extra);

/* watch.c.  A pidfd of that very process; or -1, and the status. */
int usm__ipc_open_process(const usm__ipc_process *p, usm_status *st);
/* watch.c, on the service's thread: the pidfd of a monitored process can be read. */
void usm__ipc_watch_ready(usm__ipc_watch *w);

#endif
