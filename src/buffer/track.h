/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Accesses to buffers that wait for each other: the order of each tracked buffer (order.h), and who
 * is told when what he waits for has come.
 *
 * One lock for all buffers, held for moments and never over a driver's call, a pin or a wait: a
 * command enters the orders of all its buffers in one step, so that two commands never wait for
 * each other.  Everything here is guarded by it unless told otherwise.
 *
 *     command   entered --> launched (it has the driver's event) --> done
 *     host      entered --------------------------------------------> ended
 *
 * A command behind one that is launched depends on its event.  A command behind one that is not
 * launched yet, or behind an open access of the host, is told by an edge.  Tasks of one in-order
 * queue need neither (task.c). */
#ifndef USM_BUFFER_TRACK_H
#define USM_BUFFER_TRACK_H

#include "buffer/buffer.h"
#include "buffer/order.h"
#include "buffer/places.h"
#include "buffer/slot.h"

struct usm__host_entry;

typedef struct usm__track {
    /* guarded by the lock of track.c */
    usm__order    order;
    usm__failures failures;
    unsigned      nadopted;    /* entries of slots                                              */
    bool          is_complete; /* all slots were adopted since it is tracked                  */
    bool          is_mixed;    /* somebody else waited for a task without an event             */
    struct usm__host_entry *spare; /* for the next slot that is adopted; or NULL              */
    /* guards what places say; taken before the lock of track.c */
    usm__mutex             lock;
    _Atomic(usm__places *) places; /* NULL: no device without access in place used the buffer    */
} usm__track;

/* Somebody who is told when `waits` things have come. */
typedef struct usm__waiter {
    usm_list link;
    uint32_t waits;
    void (*ready)(struct usm__waiter *w); /* once, no lock held                                  */
} usm__waiter;

struct usm__command;

typedef struct usm__edge {
    struct usm__edge *next;
    usm__waiter      *who;
    struct usm__command
        *after; /* the command that gets a dependency on the one it waited for; NULL */
} usm__edge;

/* An access of the host in a buffer's order. */
typedef struct usm__host_entry {
    usm__order_entry entry;
    usm_buffer      *root;
    usm__edge       *waiters;
    usm__slot       *slot; /* whose access it is if it was adopted; NULL                          */
    const void      *opener; /* identity of the thread that opened it; NULL: that of the slot     */
    uint32_t         serial;
} usm__host_entry;

void usm__track_lock(void);
void usm__track_unlock(void); /* and tells those who became ready                                 */
void usm__track_fork(usm_fork_phase phase);

/* Sleeps until anything changes: a command was launched or ended. */
void usm__track_sleep(void);
void usm__track_wake(void);

/* Makes it at the first call; NULL and a story. */
usm__track *usm__track_get(usm_buffer *root);
/* Lock or not: NULL when nothing is tracked. */
static inline usm__track *usm__track_of(usm_buffer *root)
{
    return usm_load_acquire(&root->track);
}
void usm__track_free(usm__track *t); /* nothing is in it; no lock held */

/* The hit path is closed, and what is open through it has entered the order.   USM_E_NO_MEMORY */
usm_status usm__track_start(usm_buffer *root);
/* Opens it again if nothing needs to be waited for. */
void usm__track_stop(usm_buffer *root);
/* The same where devices have had the buffer; no lock held. */
void usm__track_stop_placed(usm_buffer *root);

/* Whether [begin, end) of the space is newest in host memory for an access in that mode, which is
 * in the order; no lock held.  A write makes a fresh buffer's content worth keeping: who makes
 * places asks for that under the same lock, so that either it knows of the write or this knows of
 * places. */
bool usm__track_is_on_host(usm_buffer *root, size_t begin, size_t end, usm_access_mode mode);

/* `who` waits for one thing more.  false: no memory. */
bool usm__edge_add(usm__edge **list, usm__waiter *who, struct usm__command *after);
/* All of the list are told; the dependency goes to those that asked for it. */
void usm__edges_fire(usm__edge **list, usm_event *dep, usm_status status);
void usm__edges_forget(void); /* as usm__commands_forget() */
void usm__waiter_tell(usm__waiter *who);

/* The access with that slot ended: takes its entry out, if it was adopted.  No lock held. */
void usm__host_slot_ended(usm_buffer *root, const usm__slot *slot, uint32_t serial);
/* Takes the entry out; who waited is told. */
void usm__host_leave(usm__host_entry *h);

#endif
