/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events that commands wait for and that no command is known to complete: user events of the
 * program, events of other processes, launches that submit commands themselves, native events that
 * libusm did not make.  No command may hold memory while it waits for one (buffer/grant.h). */
#ifndef USM_COMMAND_OUTSIDE_H
#define USM_COMMAND_OUTSIDE_H

#include "command/event.h"

/* True if any command waits for such an event that has not completed. */
bool usm__outside_awaited(void);
/* Called before a command waits for `ev`: counts it, if it is such an event, until it completes.
 * Returns when every command that took memory before is in its queue; no lock is held. */
void               usm__outside_count(usm_event *ev);
static inline void usm__outside_await(usm_event *ev)
{
    if (ev->is_outside)
        usm__outside_count(ev);
}
/* The user event has completed, or will never do so. */
void usm__outside_ended(int was);
void usm__outside_fork(usm_fork_phase phase);

/* usm_event.signalled */
#define USM__EVENT_OPEN      0
#define USM__EVENT_AWAITED   1 /* and counted here */
#define USM__EVENT_SIGNALLED 2

#endif
