/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Accesses to buffers that wait for each other: the order of each tracked buffer (order.h), and the
 * notification of those who wait.
 *
 * There is one lock for all buffers.  It is held for moments, never over a driver's call, a pin or
 * a wait.  A command enters the orders of all its buffers in one step, so that two commands never
 * wait for each other.  The lock guards everything here that does not say otherwise.
 *
 *     command   entered --> launched (it has the driver's event) --> done
 *     host      entered --------------------------------------------> ended
 *
 * A command behind one that is launched depends on its event.  A command behind one that is not
 * launched yet, or behind an open access of the host, is notified through an edge.  Tasks of one
 * in-order queue need neither (task.c). */
#ifndef USM_BUFFER_TRACK_H
#define USM_BUFFER_TRACK_H

#include "buffer/buffer.h"
#include "buffer/locations.h"
#include "buffer/order.h"
#include "buffer/slot.h"

struct usm__access_entry;

typedef struct usm__track {
    /* guarded by the lock of track.c */
    usm__track_order order;
    usm__failures    failures;
    unsigned         nadopted; /* entries of adopted slots                                        */
    bool is_complete;          /* all slots have been adopted since it is tracked                 */
    bool is_mixed;             /* an access from elsewhere has waited for a task without an event */
    struct usm__access_entry *spare; /* for the next slot that is adopted; NULL                 */
    /* guards the records of `locations`; taken before the lock of track.c */
    usm__mutex lock;
    _Atomic(usm__locations *)
        locations; /* NULL: no device without access in place has used the buffer */
} usm__track;

/* Notified when `waits` accesses have ended or were launched. */
typedef struct usm__waiter {
    usm_list link;
    uint32_t waits;
    void (*ready)(struct usm__waiter *w); /* called once, no lock held                           */
} usm__waiter;

struct usm__command;

typedef struct usm__edge {
    struct usm__edge *next;
    usm__waiter      *who;
    struct usm__command
        *after; /* the command that gets a dependency on the one it waited for; NULL */
} usm__edge;

/* An access of the host in a buffer's order. */
typedef struct usm__access_entry {
    usm__track_order_entry entry;
    usm_buffer            *root;
    usm__edge             *waiters;
    usm__slot  *slot;   /* the slot of an adopted access; NULL                                 */
    const void *opener; /* identity of the thread that opened it; NULL: the slot tells       */
    uint32_t    serial;
} usm__access_entry;

/* What all commands and accesses share. */
typedef struct usm__track_state {
    usm__mutex lock;
    /* guarded by lock */
    pthread_cond_t changed;
    unsigned       sleepers;
    usm_list       ready; /* waiters whose wait is over, not yet notified */
    /* enter.c: commands that may be coming; tasks without an event count until they end */
    size_t ncoming;
    /* command.c */
    usm_list to_watch;         /* each with a reference                                 */
    uint64_t under_way, ended; /* commands that were launched and whose end is reported */
    unsigned awaited;          /* threads that sleep until any of them ends             */

    /* to_watch is not empty: set under the lock, read without it by the thread that may have set
     * it */
    _Atomic(bool)              has_wanted;
    _Atomic(bool)              has_stall_thread; /* stall.c                           */
    _Atomic(usm__open_table *) tables;           /* slot.c: they are never removed    */
    usm__mutex                 kept;             /* guards usm_buffer.kept: keep.c    */
} usm__track_state;
extern usm__track_state usm__tracking __attribute__((visibility("hidden")));

void usm__track_lock(void);
void usm__track_unlock(void); /* and calls ready() of the waiters whose wait is over              */
void usm__track_fork(usm_fork_phase phase);

/* Sleeps until anything changes: a command was launched or ended. */
void usm__track_sleep(void);
void usm__track_wake(void);

/* Created at the first call; NULL with an error message. */
usm__track *usm__track_get(usm_buffer *root);
/* With or without the lock: NULL if the buffer has no record of commands. */
static inline usm__track *usm__track_of(usm_buffer *root)
{
    return usm_load_acquire(&root->track);
}
void usm__track_free(usm_buffer *root); /* pre: it has no entries; no lock held */

/* Closes the hit path; the accesses that are open through it enter the order.  USM_E_NO_MEMORY */
usm_status usm__track_start(usm_buffer *root);
/* Opens the hit path again if there is nothing to wait for. */
void usm__track_stop(usm_buffer *root);
/* The same for a buffer that devices have used; no lock held. */
void usm__track_stop_placed(usm_buffer *root);

/* Whether the newest bytes of [begin, end) of the space are in host memory for an access in that
 * mode, which is in the order; no lock held.  A write makes the content of a fresh buffer worth
 * keeping.  The code that creates `locations` checks for that under the same lock: so either it
 * knows of the write, or this function knows of `locations`. */
bool usm__track_is_on_host(usm_buffer *root, size_t begin, size_t end, usm_access_mode mode);

/* `who` waits for one more.  false: no memory. */
bool usm__edge_add(usm__edge **list, usm__waiter *who, struct usm__command *after);
/* Notifies all waiters of the list; those that asked for it get the dependency. */
void usm__edges_fire(usm__edge **list, usm_event *dep, usm_status status);
void usm__edges_forget(void); /* as usm__commands_forget() */
void usm__waiter_notify(usm__waiter *who);

/* The access with that slot ended: removes its entry, if it was adopted.  No lock held. */
void usm__access_slot_ended(usm_buffer *root, const usm__slot *slot, uint32_t serial);
/* Removes the entry and notifies the waiters. */
void usm__access_leave(usm__access_entry *h);

#endif
