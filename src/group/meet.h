/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How processes of one user and one machine meet under a name: usm__group_meet().  Called by
 * ipc/channel.c and transports/socket.
 *
 * Each process has a rank, the size of the group, and a few bytes for the others (its hello).  The
 * process that can bind the name is the host, the others are its clients:
 *
 *     client                          host
 *       COME rank, size, hello ---->    same user, release and size?  Is the rank free?
 *       <---- WELCOME + the page, or REFUSED and why
 *                                     ... until all ranks have come; then
 *       <---- LINK + a connection to rank r, for each r      (if the group wants connections)
 *       <---- ASK  + the listener                            (likewise)
 *       VOTE ---------------------->    all have voted: the word becomes COMPLETE
 *       <---- end of the connection
 *
 * The page is a memory file that the host makes.  It has the hello of each rank, bytes that the
 * group shares afterwards, and the word, which decides whether the group exists:
 *
 *     OPEN ---> COMPLETE     set by the host, when every rank has voted
 *          \--> ABANDONED    set by a client whose time is over after its vote
 *
 * The rules.
 *  1. The word leaves OPEN once.  Only the host sets COMPLETE, and before that it ends no
 *     connection of a client that has voted, unless it has given the page up for good.
 *  2. A client that has not voted may leave, or start again: without its vote the word cannot
 *     become COMPLETE.  Until the host asks, the rank of a client that left is free again.
 *  3. A client that has voted obeys the word alone.  It reads the word when its connection has
 *     ended; if its time is over before, it first tries to set ABANDONED.
 *  4. Once the host has asked, it gives no rank to a second process: if it loses a client, it gives
 *     the page up.
 *
 * Why exactly one group exists: COMPLETE means that one process of each rank has voted (4), and
 * that none of them has given up (3).  A process that was killed meanwhile counts as a member that
 * was killed afterwards.  Why nobody is in a group that others have left to start again: a client
 * that has voted starts again only if its connection has ended and the word is not COMPLETE.  Then
 * the host has ended or has given the page up (1), and nobody else ever sets COMPLETE.
 *
 * So one exchange of one word decides.  If the host is killed before it, all start again with the
 * rest of their time, and one of them is the next host.  If it is killed after it, all others are
 * members, and learn of its end as of any other member's: they have all that they need by then.
 *
 * The name is that of an abstract socket: one process binds it, and it is free when the last
 * descriptor of the listener is closed; nothing is in the file system, so nothing is left over.  A
 * group without connections closes its listener when it is complete: the name is free for the next
 * one.  In a group with connections each member has the listener, so as long as one of them lives,
 * processes that come late learn that the group is complete (usm__group_turn_away()).
 *
 * tests/group/test_meet.c kills each process at each of its steps. */
#ifndef USM_GROUP_MEET_H
#define USM_GROUP_MEET_H

#include <usm/module.h>

#include <stddef.h>

#define USM__GROUP_HELLO_MAX 120

/* How to meet.  All members have the same name, release, size, sizes of hello and shared bytes. */
typedef struct usm__group_meeting {
    const usm_host_api *api;
    const char         *name;    /* at most 100 bytes                                           */
    const char         *what;    /* in error messages: "the group \"x\""                        */
    const char         *place;   /* likewise: "name"; another group takes another one           */
    uint32_t            release; /* of what members send each other, and of this protocol       */
    uint32_t            rank, size;
    uint32_t            timeout_ms; /* UINT32_MAX: none                                         */
    usm_status          other_size; /* when a group of another size meets under the name        */
    const void         *hello;
    size_t              hello_size;  /* at most USM__GROUP_HELLO_MAX                            */
    size_t              shared_size; /* zeroed                                                  */
    /* Gives the process its connection to `rank` (SOCK_SEQPACKET, non-blocking), or, with its own
     * rank, the listener.  It closes the one that it was given before; -1: and has none.  NULL: the
     * group wants no connections. */
    void (*link)(void *user, uint32_t rank, int fd);
    void *user;
} usm__group_meeting;

typedef struct usm__group_page usm__group_page;

/* A page, mapped. */
typedef struct usm__group {
    usm__group_page *page;
    size_t           page_size;
} usm__group;

/* Waits until all members have come.  On success the caller unmaps the page.  On failure no
 * connections are left.
 *   USM_E_PEER        a rank did not come in time; or something else listens at the name
 *   USM_E_BUSY        the rank is taken, or the group is complete;  other_size
 *   USM_E_ABI         another release;  USM_E_PERMISSION  another user holds the name
 *   USM_E_NO_MEMORY;  USM_E_SYSTEM */
usm_status usm__group_meet(const usm__group_meeting *m, usm__group *g);
/* pre: the group has met. */
const void *usm__group_hello(const usm__group *g, uint32_t rank);
/* The shared bytes; aligned to 64. */
void *usm__group_shared(const usm__group *g);
/* Tells one process that connects late that the group is complete.  False: there is no descriptor
 * for it, and poll() will report it for ever. */
bool usm__group_turn_away(const usm__group_meeting *m, int listener);

#endif
