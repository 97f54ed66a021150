/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The interface between the files of the importer's side of shared memory: import.c opens and
 * closes, import_owner.c has the other processes and their pages. */
#ifndef USM_IPC_IMPORT_H
#define USM_IPC_IMPORT_H

#include "ipc/memory.h"
#include "ipc/page.h"

#define USM__IMPORT_BUCKETS 1024

typedef struct usm__import_page {
    usm_list             link;
    uint64_t             id, nonce;
    const usm__ipc_slot *slots;
    usm__ipc_claim      *claims;
    int                  fd; /* of claims                                              */
} usm__import_page;

typedef struct usm__import_owner {
    usm_list         link;
    usm__ipc_process process;
    usm__ipc_watch   watch;
    usm_list         pages;
    uint64_t         connection; /* the one that knows of our claims                      */
    size_t           nareas;
    size_t           waiting; /* threads that wait to set is_busy                         */
    bool             is_busy, is_watched, is_gone;
    bool             is_leaving; /* out of the list, to be freed                          */
} usm__import_owner;

/* Type-stable: a thread that looks up a pointer may find it just freed. */
typedef struct usm__import_area {
    usm_list           link; /* in the list of all; when doomed in the caller's list             */
    usm_list           idle; /* in imports.idle while nothing is open                            */
    usm_list           records;
    usm__import_owner *owner;
    usm_context       *ctx;
    size_t             index;
    uint64_t           id, nonce;
    char              *base;
    usm__area         *mapped;
    uint64_t           opens; /* sum over its records                                            */
} usm__import_area;

typedef struct usm__import_record {
    usm_list          of_area, by_number, by_pointer;
    usm_list          idle; /* in imports.idle_records while count is 0                        */
    usm_ipc_handle    bytes;
    usm__ipc_memory   m;
    usm__import_area *area;
    usm__import_page *page;
    char             *p;
    uint32_t          count;
} usm__import_record;

/* Objects to be freed once the lock is released. */
typedef struct usm__import_doomed {
    usm_list areas, owners;
} usm__import_doomed;

typedef struct usm__import_state {
    usm__mutex     lock;
    pthread_cond_t changed; /* is_busy was cleared                                       */
    usm_list       owners, areas, idle, idle_records;
    size_t         nidle, nidle_records;
    usm_list       by_number[USM__IMPORT_BUCKETS], by_pointer[USM__IMPORT_BUCKETS];
    uint64_t       opened; /* records that are open                                         */
    uint64_t       opens, hits;
} usm__import_state;
extern usm__import_state usm__imports;

/* import.c.  Under the lock: removes it from all lists; true: the owner must be told to look. */
bool usm__import_area_doom(usm__import_area *a, usm__import_doomed *d);
/* Under the lock: the same for the owner if nothing of it is left. */
void usm__import_owner_doom(usm__import_owner *o, usm__import_doomed *d);
void usm__import_doomed_init(usm__import_doomed *d);
/* No lock held.  Owners of unmapped areas may be freed too; all: even those that are alive. */
void       usm__import_bury(usm__import_doomed *d, bool all);
usm_status usm__import_gone(const usm__ipc_process *p);

/* import_owner.c.  When it returns, the calling thread has set is_busy.  NULL with an error
 * message: out of memory. */
usm__import_owner *usm__import_owner_enter(const usm__ipc_process *p);
/* Clears is_busy; an owner of which nothing could be opened is freed. */
void usm__import_owner_leave(usm__import_owner *o);
/* is_busy set: checks that it is of our user and alive; its end will be noticed. */
usm_status usm__import_owner_watch(usm__import_owner *o);
void       usm__import_owner_free(usm__import_owner *o);
/* is_busy set: the page with the handle's number; the owner knows our claims over it. */
usm_status usm__import_page_get(usm__import_owner *o, const usm__ipc_memory *m,
                                usm__import_page **out);

#endif
