/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The states of a command over buffers (buffer/command.h), and which may follow which.
 *
 *                        NEW ------------------------------+------------------> POSTING <-> NEW
 *                         |                                |                       |    \
 *            +------------+-----------+                    |                       |   EXPECTED
 *            v                        v                    v                       v    /
 *   DONE <- TAKING -- no memory --> DEFERRING -- failed --> WITHDRAWN             POSTED
 *            |                        | its place in the queue                     |
 *            |                        v                                            |
 *            |                     BLOCKED                                         |
 *            |                        | nothing is before it in its orders         |
 *            |                        v                                            |
 *            |                      READY -----> ARMED ----> REACHED               |
 *            |                        |            |            |                  |
 *            |                        +------------+------------+                  |
 *            |                        v                                            |
 *            |                     GRANTED -- failed --+                           |
 *            v                        v                |                           |
 *         LAUNCHED -- somebody --> WATCHED             |                           |
 *            |        waits           |                |                           |
 *            +------------------------+----------------+---------------------------+--> DONE
 *
 * TAKING, DEFERRING, POSTING and EXPECTED are the states in which it is "coming" (enter.c),
 * BLOCKED to REACHED those in which it is in the line (grant.c).  GRANTED may be reached from READY
 * and ARMED by the first in the line alone.  A command with an edge for a later one to wait for its
 * end is WATCHED at once.  TAKING to DONE: its submitter does a small fill or copy itself
 * (command.c).  POSTING to DONE: the thread that runs the task was faster than its
 * submitter.  POSTING to NEW: the queue did not take it, and it goes the usual way.
 *
 * All states change under the lock of track.c, but POSTED, which the hit path of tasks sets. */
#include "buffer/command.h"

#define TO(state) (1u << USM__COMMAND_##state)

static const uint16_t allowed[] = {
    [USM__COMMAND_NEW]       = TO(TAKING) | TO(DEFERRING) | TO(POSTING) | TO(WITHDRAWN),
    [USM__COMMAND_TAKING]    = TO(DEFERRING) | TO(LAUNCHED) | TO(WATCHED) | TO(DONE),
    [USM__COMMAND_DEFERRING] = TO(BLOCKED) | TO(WITHDRAWN),
    [USM__COMMAND_BLOCKED]   = TO(READY),
    [USM__COMMAND_READY]     = TO(ARMED) | TO(GRANTED),
    [USM__COMMAND_ARMED]     = TO(REACHED) | TO(GRANTED),
    [USM__COMMAND_REACHED]   = TO(GRANTED),
    [USM__COMMAND_GRANTED]   = TO(WATCHED) | TO(DONE),
    [USM__COMMAND_POSTING]   = TO(EXPECTED) | TO(POSTED) | TO(DONE) | TO(NEW),
    [USM__COMMAND_EXPECTED]  = TO(POSTED) | TO(DONE) | TO(NEW),
    [USM__COMMAND_POSTED]    = TO(DONE),
    [USM__COMMAND_LAUNCHED]  = TO(WATCHED) | TO(DONE),
    [USM__COMMAND_WATCHED]   = TO(DONE),
    [USM__COMMAND_DONE]      = 0,
    [USM__COMMAND_WITHDRAWN] = 0,
};

static bool is_between(usm__command_state s, usm__command_state first, usm__command_state last)
{
    return s >= first && s <= last;
}

bool usm__command_is_valid(const usm__command *c, usm__command_state from, usm__command_state to)
{
    bool is_in_line  = is_between(to, USM__COMMAND_BLOCKED, USM__COMMAND_REACHED);
    bool is_posted   = is_between(to, USM__COMMAND_POSTING, USM__COMMAND_POSTED);
    bool is_launched = is_between(to, USM__COMMAND_LAUNCHED, USM__COMMAND_WATCHED);
    bool is_over     = to >= USM__COMMAND_DONE;

    return (allowed[from] >> to & 1) && !usm_list_is_empty(&c->in_line) == is_in_line &&
           (!(is_in_line || to == USM__COMMAND_GRANTED) || (c->kept && c->deferral && c->start)) &&
           (!is_posted || (c->is_native && c->lane != 0 && !c->wants_event && !c->kept)) &&
           (to == USM__COMMAND_DONE || is_launched == (c->event != NULL)) &&
           (!is_over || (!c->on_launch && !c->on_done));
}
