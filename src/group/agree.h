/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How the ranks of a job agree: every rank gets every rank's bytes, and all live ranks that get a
 * result get the same one, whichever ranks die.  A state machine of one rank; it has no thread, no
 * clock and no lock.  Its owner (src/cluster/agree.c) passes what happens, sends what
 * usm__group_agree_next() returns, and calls one function at a time.
 *
 * The rule.  Calls are numbered.  In each call the root is the lowest live rank; as far as a rank
 * knows, it only ever rises.
 *
 *     rank                          root
 *      |-- GIVE: my bytes ---------->|  when each live rank has given: decides
 *      |<----------------- RESULT ---|
 *
 *     root is lost                  next lowest rank
 *      |<-------------------- ASK ---|
 *      |-- RESULT, if I have it ---->|  takes it, sends it to all
 *      |-- GIVE, if I do not ------->|  when each live rank has given: decides
 *
 *  R1  A rank that gives to a root, because it counts all below as lost or because the root asked,
 *      takes no result from an earlier root any more.
 *  R2  A rank takes a result from its root alone; a root from any rank.
 *  R3  A rank that is counted as lost is not heard any more, whatever of it is still on its way.
 *  R4  A root decides only when each rank that it counts as live has given to it, in this call.
 *  R5  A root that has a result sends it to all; another rank to those that have given to it, for
 *      they count it as the root, and it has not noticed.
 *  R6  A rank keeps a decision until the next decision.
 *
 * Why there is one result.  Say that root a decided v, and root b > a decides: b counts a as lost,
 * so a has ended.  Each rank c that is live has given to b (R4).  If it did so before it took a
 * result, it will not take a's (R1, R2).  If it had taken v before, it would have answered with v,
 * not given.  So when b decides, no live rank has a result, and none will take another than b's:
 * what b decides is the one result.  And if some live rank has v, b cannot decide, but waits for
 * that rank, and takes v.  What b takes is the result of a live rank: it comes from a rank above b
 * (those below are lost, R3), as an answer to b's question, which b asked when all roots before it
 * had ended; so that rank was live after them, and had v then.  Which root dies, and when, does not
 * matter: the argument is about whether a live rank has a result, and is the same for each root
 * that follows.  What dead ranks had taken may be another result; nobody learns of it.
 *
 * Why each live rank gets it.  A root that has a result sends it to all (R5), or answers GIVE with
 * it.  If it is lost before, the next root asks.
 *
 * Two calls in a row.  A rank may be in call s while others are in s + 1.  A decision for s + 1
 * needs bytes for s + 1 of each live rank, and none gives them before it has left s.  So whoever
 * has the decision of s keeps it (R6) for as long as a live rank may ask for it.  Contributions
 * to s + 1 are kept as well.
 *
 * Time over.  A rank whose owner loses patience gives the call up.  That is not a result: it fails
 * alone.  A root that gives up says so to all (LATE), which give up too if they have no result; a
 * rank that is asked for a call that it gave up says LATE as well.  No decision is made of silence,
 * because a rank that is late may have the result of an earlier root.
 *
 * Ranks that the deciding root counted as lost when it began the call are absent: zeros.  If a rank
 * is lost later without having given, the decision is USM_E_PEER; if sizes differ, USM_E_INVALID.
 *
 * What is not promised.  "Lost" stands for "has ended".  A rank that others count as lost while it
 * lives may decide by itself.  The others agree all the same, but not if another rank dies in that
 * call as well: the next root may not have noticed, and take what the first one has.
 *
 * Rejected: every rank sends to every rank (if one dies halfway, there are two opinions), and
 * dissemination (the same, and a dead rank cuts off many).
 *
 * tests/group/agree_model.c tries to break this. */
#ifndef USM_GROUP_AGREE_H
#define USM_GROUP_AGREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <usm/status.h>

#define USM__GROUP_AGREE_BYTES   4096u         /* at most, of each rank */
#define USM__GROUP_AGREE_MESSAGE (24u + 32768) /* bytes of a message, at most */

typedef struct usm__group_agree usm__group_agree;

/* Where its memory comes from; static. */
typedef struct usm__group_heap {
    void *(*alloc)(size_t size); /* zeroed; NULL: there is none */
    void (*free)(void *p);
} usm__group_heap;

/* Of rank `self` of `count`.  NULL: no memory. */
usm__group_agree *usm__group_agree_create(const usm__group_heap *heap, uint32_t self,
                                          uint32_t count);
void              usm__group_agree_destroy(usm__group_agree *a); /* NULL is fine */

/* What happens.  begin: this rank calls; pre: it is in no call, size is at most
 * USM__GROUP_AGREE_BYTES.  lost: again is fine.  give_up: time is over; without a call nothing. */
void usm__group_agree_begin(usm__group_agree *a, const void *mine, size_t size);
void usm__group_agree_message(usm__group_agree *a, uint32_t from, const void *text, size_t size);
void usm__group_agree_lost(usm__group_agree *a, uint32_t rank);
void usm__group_agree_give_up(usm__group_agree *a);

/* What follows.  next: a message that is to be sent, in order; 0: there is none. */
size_t usm__group_agree_next(usm__group_agree *a, uint32_t *to, unsigned char *text);
bool   usm__group_agree_is_open(const usm__group_agree *a); /* this rank's call has no end yet */
bool   usm__group_agree_is_root(const usm__group_agree *a);
/* Of the last call; pre: it has ended.  all: `size` bytes of each rank.
 *   USM_E_PEER       rank *which was lost meanwhile, or has not come (this rank may fail alone)
 *   USM_E_INVALID    rank *which came with another size
 *   USM_E_NO_MEMORY  on rank *which */
usm_status usm__group_agree_result(const usm__group_agree *a, void *all, uint32_t *which);

#endif
