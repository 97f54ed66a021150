/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* When a command over buffers gets its memory: at once, or from one line, by a rule that leaves no
 * circle of commands that wait for each other's memory (grant.c).
 *
 *     command ---> at once: memory, place in the queue
 *        |
 *        +-------> deferred: held place, line ---> granted: memory, launched behind its place
 *
 * Called by command.c, defer.c, enter.c, task.c. */
#ifndef USM_BUFFER_GRANT_H
#define USM_BUFFER_GRANT_H

#include "buffer/track.h"

struct usm__command;

/* Under the lock of track.c: whether a command that nothing is before may take its memory now.  If
 * so, usm__grant_placed() is to follow when it has its place in its queue, or does without: no lock
 * held. */
bool usm__grant_at_once(void);
void usm__grant_placed(void);

/* Around getting a held place, without which the command is not in line: no lock held. */
void usm__grant_hold_begin(struct usm__command *c);
void usm__grant_hold_end(struct usm__command *c, bool is_held);

/* Nothing that the command knows of is before it any more. */
void usm__grant_ready(usm__waiter *w);

/* For stall.c.  Under the lock: the line; whether one that has left it is getting its memory; the
 * access of the host that c waits for with u, of those that are meant (NULL: any), or NULL. */
const usm_list *usm__grant_line(void);
bool            usm__grant_under_way(void);
struct usm__use;
const usm__host_entry *usm__grant_access_before(const struct usm__command *c,
                                                const struct usm__use     *u,
                                                bool (*is_meant)(const usm__host_entry *h));
/* No lock is held: nothing is deferred; grows whenever a command was granted or ended. */
bool     usm__grant_is_idle(void);
uint64_t usm__grant_moves(void);

void usm__grant_start(void);
void usm__grant_fork(usm_fork_phase phase);

#endif
