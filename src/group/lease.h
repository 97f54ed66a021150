/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Signs of life between processes that know of each other: which peer has been silent for too long,
 * when this process must send a sign of life itself, and when it must look again.
 *
 *             it was heard              it was heard
 *             +---------+               +---------+
 *             v         |               v         |
 *     begin  UP --------+------------> SLOW ------+----------> LOST
 *                  half a lease                a lease
 *                  of silence                  of silence
 *
 * A state is not stored: it follows from the time at which the peer was last heard.  LOST is final
 * because its owner does not ask again.  Nothing here reads a clock, takes a lock or sends: the
 * owner passes the time, in nanoseconds of a clock that continues while the process is stopped.
 *
 * A stopped process must not declare its peers lost when it goes on: it could not hear them.  So
 * silence counts only while this process looks.  It promises to look at least every `pause_ns`; of
 * a longer gap between two looks the rest is time in which it did not run, and that time is
 * subtracted from the silence of every peer (usm__group_look(), usm__group_lease_forgive()).  What
 * the peers sent meanwhile waits in the transport, and is read before they are judged.
 *
 * Not all of the gap is subtracted: a process that is scheduled so badly that each gap is too long
 * still counts `pause_ns` of every one, and notices the loss of a peer at last. */
#ifndef USM_GROUP_LEASE_H
#define USM_GROUP_LEASE_H

#include "base/inline/atomic.h"

#include <stdbool.h>
#include <stdint.h>
#include <usm/transport.h>

/* Of this process, for all of its peers.  Fixed, except `looked`. */
typedef struct usm__group_clock {
    uint64_t lease_ns; /* a peer that is silent for so long is lost                 */
    uint64_t sign_ns;  /* each peer gets a sign of life this often, or a message    */
    uint64_t pause_ns; /* most time between two looks while this process runs       */
    uint64_t looked;   /* when it last looked; used by the thread that looks, alone */
} usm__group_clock;

/* Of one peer. */
typedef struct usm__group_lease {
    _Atomic uint64_t heard; /* written by one thread at a time, read by any */
    uint64_t         sent;  /* when something was last sent to it           */
} usm__group_lease;

/* This process looks after its peers now.  Returns the time in which it did not run. */
uint64_t usm__group_look(usm__group_clock *c, uint64_t now);
void     usm__group_lease_heard(usm__group_lease *l, uint64_t now);
void     usm__group_lease_forgive(usm__group_lease *l, uint64_t absent, uint64_t now);
uint64_t usm__group_lease_silence(const usm__group_lease *l, uint64_t now);
/* USM_PLACE_UP, _SLOW or _LOST. */
usm_place_state usm__group_lease_state(const usm__group_lease *l, const usm__group_clock *c,
                                       uint64_t now);
/* Whether a sign of life is due at `when`. */
bool usm__group_lease_owes(const usm__group_lease *l, const usm__group_clock *c, uint64_t when);
/* When the peer's state may change or, if may_sign, a sign of life will be due; within sign_ns. */
uint64_t usm__group_lease_next(const usm__group_lease *l, const usm__group_clock *c, uint64_t now,
                               bool may_sign);

#endif
