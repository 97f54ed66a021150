/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events across processes consist of event slots in pages that processes share.
 *
 * A page is a memory file of one process, its owner, with 64 slots; other processes fetch it by its
 * name (rendezvous.h).  For each process that records in it a slot counts how many records were
 * made, how many are complete, and how many are complete without an incomplete one before them.
 * Waits compare the last number: a waiting process notes how many records each process has made,
 * and waits until the third count of each has reached that.  So a wait is for exactly the records
 * made before it, in whatever order they complete.
 *
 * Each recorder writes its own counts only, so a process may end at any moment: the records that it
 * made and did not complete stay open forever, and processes that wait for them learn from the
 * kernel that it has ended.
 *
 * event_slot.c has pages and slots and their openers, event_slot_wait.c counts and waits.  Called
 * by event.c and event_queue.c.  Locks: the lock in event_slot.c (IPC) guards lists and references
 * of all slots; each slot's own lock (EVENT, never taken inside the former) guards its records
 * under way and its queues' waits. */
#ifndef USM_IPC_EVENT_SLOT_H
#define USM_IPC_EVENT_SLOT_H

#include "base/mutex.h"
#include "ipc/bell.h"
#include "ipc/rendezvous.h"
#include "ipc/spin.h"

#define USM__IPC_EVENT_SLOTS          64 /* event slots in a page                                    */
#define USM__IPC_EVENT_SLOT_SIZE      4096
#define USM__IPC_EVENT_SLOT_RECORDERS 24
#define USM__IPC_EVENT_SLOT_OPENERS   256

/* ---- shared --------------------------------------------------------------------------- */

/* A process in one word: its number and its start. */
typedef uint64_t usm__process_key;

/* Written only by the process `key`.  low <= complete <= made, at any moment. */
typedef struct usm__recorder {
    _Atomic(uint64_t) key; /* 0: no process; the counts stay for the next one           */
    _Atomic(uint64_t) made, complete;
    _Atomic(uint64_t) low;       /* the first `low` records are complete                        */
    _Atomic(uint64_t) failed_at; /* number of the first record that failed (the first has 1); 0 */
    _Atomic(int32_t)  failure;   /* written before failed_at                                    */
    uint32_t          pad[5];
} usm__recorder;

typedef struct usm__ipc_event_slot_shared {
    _Atomic(uint64_t) generation; /* of the event in the slot; 0: none, or destroyed         */
    usm__bell         bell;
    _Atomic(uint32_t) nrecorders; /* number of entries ever used: the others are 0          */
    _Alignas(64) usm__recorder recorders[USM__IPC_EVENT_SLOT_RECORDERS];
    _Atomic(uint64_t)
        openers[USM__IPC_EVENT_SLOT_OPENERS]; /* keys of other processes that have it open */
} usm__ipc_event_slot_shared;

/* ---- of this process ---------------------------------------------------------------------- */

typedef struct usm__ipc_event_slot_page {
    usm_list      link;
    usm__ipc_name name;
    char         *base;
    usm_list      slots;
    bool          is_own;
    bool          may_spin;                    /* there is a second processor                     */
    usm__spin     spin;                        /* of waits for events in this page; atomic        */
    uint8_t       state[USM__IPC_EVENT_SLOTS]; /* of our own slots: usm__cell_state           */
} usm__ipc_event_slot_page;

/* An event slot that is open in this process: one record, however often it was opened. */
typedef struct usm__ipc_event_slot {
    usm_list                    link;
    usm__ipc_event_slot_page   *page;
    usm__ipc_event_slot_shared *shared;
    uint32_t                    index;
    uint64_t                    generation;
    unsigned                    refs;   /* guarded by the lock in event_slot.c, as are the links */
    int                         opener; /* our index in openers; -1: our own slot          */
    usm__mutex                  lock;
    usm__recorder *recorder; /* our entry; NULL until the first record; guarded by lock */
    usm_list       records;  /* under way, oldest first                                 */
    usm_list       waits;    /* waits of queues that the waiting job has not taken yet  */
    bool           has_waiter;
} usm__ipc_event_slot;

/* A record of a command that is not complete yet, or has an incomplete one before it. */
typedef struct usm__ipc_event_slot_record {
    usm_list link;
    uint64_t number; /* in our recorder's counting      */
    uint64_t after;  /* signals that directly follow it */
    bool     is_done;
} usm__ipc_event_slot_record;

/* The records that a wait is for. */
typedef struct usm__awaited {
    uint64_t count; /* > 0: so many records, of any process; 0: those below                 */
    uint32_t n;
    uint64_t made[USM__IPC_EVENT_SLOT_RECORDERS];
} usm__awaited;

/* event_slot.c: each takes or releases one reference. */
usm_status usm__ipc_event_slot_create(usm__ipc_event_slot **slot);
usm_status usm__ipc_event_slot_open(const usm__ipc_name *page, uint32_t index, uint64_t generation,
                                    usm__ipc_event_slot **slot);
void       usm__ipc_event_slot_ref(usm__ipc_event_slot *slot);
void       usm__ipc_event_slot_unref(usm__ipc_event_slot *slot);
/* The slot can be opened no more: its creator destroys it. */
void usm__ipc_event_slot_retire(usm__ipc_event_slot *slot);
/* Takes an entry among those that record in it.  USM_E_BUSY  there is none */
usm_status usm__ipc_event_slot_claim(usm__ipc_event_slot *slot);

/* Whether a process that recorded or opened has ended; from now on its end rings all bells. */
usm_status       usm__ipc_event_slot_has_ended(usm__process_key key, bool *has_ended);
usm__process_key usm__ipc_event_slot_owner(const usm__ipc_event_slot *slot);
usm__process_key usm__process_self(void);
void             usm__ipc_event_slots_fork(usm_fork_phase phase);

/* event_slot_wait.c. pre: the entry is claimed.  The record is its maker's until
 * usm__ipc_event_slot_complete(). */
void usm__ipc_event_slot_made(usm__ipc_event_slot *slot, usm__ipc_event_slot_record *r);
/* Frees r with the heap, now or later. */
void usm__ipc_event_slot_complete(usm__ipc_event_slot *slot, usm__ipc_event_slot_record *r,
                                  usm_status status);
void usm__ipc_event_slot_signal(usm__ipc_event_slot *slot);
void usm__ipc_event_slot_count(const usm__ipc_event_slot *slot, uint64_t *made, uint64_t *complete);

void usm__ipc_event_slot_awaited(const usm__ipc_event_slot *slot, usm__awaited *awaited);
/* Looks at the counts only: no lock, no system call. */
bool usm__ipc_event_slot_is_pending(const usm__ipc_event_slot *slot, const usm__awaited *awaited);
/* USM_OK, USM_E_NOT_READY, USM_E_DEPENDENCY, USM_E_OWNER_GONE; with an error message, except
 * NOT_READY. */
usm_status usm__ipc_event_slot_judge(const usm__ipc_event_slot *slot, const usm__awaited *awaited);
/* USM_E_NOT_READY at the deadline. */
usm_status usm__ipc_event_slot_wait(usm__ipc_event_slot *slot, const usm__awaited *awaited,
                                    uint64_t deadline);

#endif
