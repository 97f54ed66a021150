/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Decides when a command over buffers gets its memory: at once, or from one line, by a rule under
 * which commands never wait for each other's memory in a circle (grant.c).
 *
 *     command ---> at once: memory, place in the queue
 *        |
 *        +-------> deferred: place in the queue, line ---> granted: memory, launched behind it
 *
 * Called by command.c, defer.c, enter.c, task.c. */
#ifndef USM_BUFFER_GRANT_H
#define USM_BUFFER_GRANT_H

#include "buffer/track.h"

struct usm__command;

/* Under the lock of track.c: whether a command that has nothing before it may take its memory now.
 * If so, the caller calls usm__grant_placed() when the command has its place in its queue, or goes
 * without: no lock held. */
bool usm__grant_at_once(void);
void usm__grant_placed(void);

/* Called before and after a deferred command is queued; only then is it in the line: no lock
 * held. */
void usm__grant_hold_begin(void);
void usm__grant_hold_end(struct usm__command *c, bool is_held);

/* No command that it knows of is before it any more. */
void usm__grant_ready(usm__waiter *w);

/* For stall.c, under the lock: the line; whether a command that has left it is getting its memory;
 * the access of the host that c waits for with u, among those that is_meant accepts (NULL: any), or
 * NULL. */
const usm_list *usm__grant_line(void);
bool            usm__grant_under_way(void);
struct usm__use;
const usm__access_entry *usm__grant_access_before(const struct usm__command *c,
                                                  const struct usm__use     *u,
                                                  bool (*is_meant)(const usm__access_entry *h));
/* No lock is held: whether nothing is deferred; a number that grows when a command is granted or
 * ends. */
bool     usm__grant_is_idle(void);
uint64_t usm__grant_moves(void);

/* Hooks of the part: a thread is about to wait for q, perhaps behind an access of its own; returns
 * when commands that take memory are in their queues. */
void usm__grant_warn_of_own_access(usm_queue *q);
void usm__grant_drain(void);
void usm__grant_fork(usm_fork_phase phase);

#endif
