/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Who takes memory at once, beside who is deferred and whose event begins to be awaited (src/buffer/grant.c,
 * src/command/outside.c): a command that has taken memory never stands behind a place that is held, nor
 * behind an event of the program.
 *
 * One queue; its places are given in the order of a counter.  Two threads give the queue commands that
 * wait for the same event, which is counted once.
 *
 * -DPLANTED=1: who is deferred does not wait for those that are taking.
 * -DPLANTED=2: of the threads that find the event counted, none does. */
byte place;           /* the last that was given                                              */
byte deferred, awaited, taking;
byte held = 255;      /* the place that is held, without memory                               */
byte behind = 255;    /* the first place that waits for the event                             */
bool counted;         /* the event                                                            */

#ifndef PLANTED
#define PLANTED 0
#endif

proctype at_once()
{
    byte own;
    bool may;

    atomic { /* under the lock of track.c */
        may = deferred == 0;
        if
        :: may -> taking++
        :: else -> skip
        fi
    }
    if
    :: may ->
        if
        :: awaited > 0 -> taking--; may = false
        :: else -> skip
        fi
    :: else -> skip
    fi;
    if
    :: may -> /* memory is taken */
        d_step { place++; own = place };
        assert(own < held && own < behind);
        taking--
    :: else -> skip /* deferred, in its turn */
    fi
}

proctype defers()
{
    deferred++;
#if PLANTED == 1
    skip;
#else
    (taking == 0);
#endif
    d_step { place++; held = place }
}

proctype awaits_event()
{
    bool was;

    was = counted;
    if
    :: !was ->
        awaited++;
        atomic { was = counted; counted = true };
        if
        :: was -> awaited--
        :: else -> skip
        fi
    :: else -> skip
    fi;
#if PLANTED == 2
    if
    :: was -> skip
    :: else -> (taking == 0)
    fi;
#else
    (taking == 0);
#endif
    d_step { place++; behind = (place < behind -> place : behind) }
}

init {
    atomic {
        run at_once();
        run at_once();
        run defers();
        run awaits_event();
        run awaits_event()
    }
}
