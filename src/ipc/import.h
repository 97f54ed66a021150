/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the importer's side of shared memory know of each other: import.c opens and
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
    uint64_t         connection; /* that knows of our claims                              */
    size_t           nareas;
    size_t           waiting; /* threads that want to be the busy one                     */
    bool             is_busy, is_watched, is_gone;
    bool             is_leaving; /* out of the list, to be buried                         */
} usm__import_owner;

/* Type-stable: who looks a pointer up may come when it has just gone. */
typedef struct usm__import_area {
    usm_list           link; /* of all; when doomed in the caller's list                         */
    usm_list           idle; /* in imports.idle while nothing is open                            */
    usm_list           records;
    usm__import_owner *owner;
    usm_context       *ctx;
    size_t             index;
    uint64_t           id, nonce;
    char              *base;
    usm__area         *mapped;
    uint64_t           opens; /* over its records                                                */
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

/* What is to be buried once the lock is given back. */
typedef struct usm__import_doomed {
    usm_list areas, owners;
} usm__import_doomed;

typedef struct usm__import_state {
    usm__mutex     lock;
    pthread_cond_t changed; /* is_busy                                                   */
    usm_list       owners, areas, idle, idle_records;
    size_t         nidle, nidle_records;
    usm_list       by_number[USM__IMPORT_BUCKETS], by_pointer[USM__IMPORT_BUCKETS];
    uint64_t       opened; /* records that are open                                         */
    uint64_t       opens, hits;
} usm__import_state;
extern usm__import_state usm__imports;

/* import.c.  Under the lock: out of all lists; true: the owner must be told to look. */
bool usm__import_area_doom(usm__import_area *a, usm__import_doomed *d);
/* Under the lock: if nothing is left of it. */
void usm__import_owner_doom(usm__import_owner *o, usm__import_doomed *d);
void usm__import_doomed_init(usm__import_doomed *d);
/* No lock held.  Owners of what is unmapped may go with it; all: even those that live. */
void       usm__import_bury(usm__import_doomed *d, bool all);
usm_status usm__import_gone(const usm__ipc_process *p);

/* import_owner.c.  The calling thread is the busy one when it returns.  NULL and a story: out of
 * memory. */
usm__import_owner *usm__import_owner_enter(const usm__ipc_process *p);
/* One of which nothing could be opened goes again. */
void usm__import_owner_leave(usm__import_owner *o);
/* Busy: it is of our user, and lives; its end will be noticed. */
usm_status usm__import_owner_watch(usm__import_owner *o);
void       usm__import_owner_free(usm__import_owner *o);
/* Busy: the page that the handle's number stands in, over which the owner knows our claims. */
usm_status usm__import_page_get(usm__import_owner *o, const usm__ipc_memory *m,
                                usm__import_page **out);

#endif
