/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What events across processes are made of: cells in pages that processes share.
 *
 * A page is a memory file of one process, its owner, with 64 cells; others fetch it by its name
 * (rendezvous.h).  A cell is an event: it counts, for each process that records in it, how many
 * records were made, how many are complete, and how many are complete without one before them that
 * is not. The last is what waits compare: who waits notes what was made by each, and waits until
 * each has come so far.  So a wait is for exactly the records made before it, in whatever order
 * they complete.
 *
 * Each recorder writes its own counts only, so that a process may end at any moment: what it made
 * and did not complete stays open for ever, and who waits for it learns from the kernel that it has
 * ended.
 *
 * cell.c has pages and cells and who opened them, turns.c counts and waits.  Called by event.c and
 * event_queue.c.  Locks: the lock in cell.c (IPC) guards lists and references of all cells; each
 * cell's own lock (EVENT, never inside the former) its records that are under way and its queues'
 * waits. */
#ifndef USM_IPC_CELL_H
#define USM_IPC_CELL_H

#include "base/mutex.h"
#include "ipc/bell.h"
#include "ipc/rendezvous.h"

#define USM__CELLS          64 /* in a page                                                */
#define USM__CELL_SIZE      4096
#define USM__CELL_RECORDERS 24
#define USM__CELL_OPENERS   256

/* ---- shared --------------------------------------------------------------------------- */

/* A process in one word: its number and its start. */
typedef uint64_t usm__process_key;

/* Written by the process `key` alone.  low <= complete <= made, at any moment. */
typedef struct usm__recorder {
    _Atomic(uint64_t) key; /* 0: nobody's; the counts stay for the next                 */
    _Atomic(uint64_t) made, complete;
    _Atomic(uint64_t) low;       /* the first `low` records are complete                   */
    _Atomic(uint64_t) failed_at; /* the number (1 is the first) of the first that failed; 0 */
    _Atomic(int32_t)  failure;   /* written before failed_at                             */
    uint32_t          pad[5];
} usm__recorder;

typedef struct usm__shared_cell {
    _Atomic(uint64_t) generation; /* of the event that has it; 0: none, or destroyed         */
    usm__bell         bell;
    _Atomic(uint32_t) nrecorders; /* how many were ever used: the others are 0              */
    _Alignas(64) usm__recorder recorders[USM__CELL_RECORDERS];
    _Atomic(uint64_t) openers[USM__CELL_OPENERS]; /* keys of others that have it open       */
} usm__shared_cell;

/* ---- of this process ---------------------------------------------------------------------- */

typedef struct usm__cell_page {
    usm_list      link;
    usm__ipc_name name;
    char         *base;
    usm_list      cells;
    bool          is_own;
    uint8_t       state[USM__CELLS]; /* own: usm__cell_state                        */
} usm__cell_page;

/* A cell that is open here: one, however often. */
typedef struct usm__cell {
    usm_list          link;
    usm__cell_page   *page;
    usm__shared_cell *shared;
    uint32_t          index;
    uint64_t          generation;
    unsigned          refs;   /* guarded by the lock of all, as are the links                */
    int               opener; /* our place in openers; -1: our own cell                     */
    usm__mutex        lock;
    usm__recorder    *recorder; /* ours; NULL until the first record; guarded by lock         */
    usm_list          records;  /* under way, oldest first                                  */
    usm_list          waits;    /* queues' that the waiter has not taken                       */
    bool              has_waiter;
} usm__cell;

/* A record of a command that has not been counted as complete with all before it. */
typedef struct usm__record {
    usm_list link;
    uint64_t number; /* in our recorder's counting                                       */
    uint64_t after;  /* signals that directly follow it                                   */
    bool     is_done;
} usm__record;

/* What a wait is for. */
typedef struct usm__turns {
    uint64_t count; /* > 0: so many records, whichever; 0: those below                      */
    uint32_t n;
    uint64_t made[USM__CELL_RECORDERS];
} usm__turns;

/* cell.c: all take or give one reference. */
usm_status usm__cell_create(usm__cell **cell);
usm_status usm__cell_open(const usm__ipc_name *page, uint32_t index, uint64_t generation,
                          usm__cell **cell);
void       usm__cell_ref(usm__cell *cell);
void       usm__cell_unref(usm__cell *cell);
/* It opens no more: its creator destroys it. */
void usm__cell_retire(usm__cell *cell);
/* A place among those that record in it.   USM_E_BUSY  there is none */
usm_status usm__cell_claim(usm__cell *cell);

/* Whether a process that recorded or opened has ended; from now on its end rings all bells. */
usm_status       usm__cell_has_ended(usm__process_key key, bool *has_ended);
usm__process_key usm__cell_owner(const usm__cell *cell);
usm__process_key usm__process_self(void);
void             usm__cells_fork(usm_fork_phase phase);

/* turns.c.  Pre: the place is claimed.  The record stays its maker's until usm__cell_complete(). */
void usm__cell_made(usm__cell *cell, usm__record *r);
/* Frees r with the heap, now or later. */
void usm__cell_complete(usm__cell *cell, usm__record *r, usm_status status);
void usm__cell_signal(usm__cell *cell);
void usm__cell_count(const usm__cell *cell, uint64_t *made, uint64_t *complete);

void usm__cell_turns(const usm__cell *cell, usm__turns *turns);
/* By the counts alone: no lock, no system call. */
bool usm__cell_is_pending(const usm__cell *cell, const usm__turns *turns);
/* USM_OK, USM_E_NOT_READY, USM_E_DEPENDENCY, USM_E_OWNER_GONE; with a story but for NOT_READY. */
usm_status usm__cell_judge(const usm__cell *cell, const usm__turns *turns);
/* USM_E_NOT_READY at the deadline. */
usm_status usm__cell_wait(usm__cell *cell, const usm__turns *turns, uint64_t deadline);

#endif
