/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Who takes memory at once, beside who is deferred and whose event begins to be awaited (src/buffer/grant.c,
 * src/core/outside.c): a command that has taken memory never stands behind a place that is held, nor
 * behind an event of the program.
 *
 * One queue; its places are given in the order of a counter.
 *
 * -DPLANTED: who is deferred does not wait for those that are taking. */
byte place;           /* the last that was given                                              */
byte deferred, awaited, taking;
byte held = 255;      /* the place that is held, without memory                               */
byte behind = 255;    /* the place that waits for the event                                   */

#ifdef PLANTED
#define AWAIT_TAKING skip
#else
#define AWAIT_TAKING (taking == 0)
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
    AWAIT_TAKING;
    d_step { place++; held = place }
}

proctype awaits_event()
{
    awaited++;
    AWAIT_TAKING;
    d_step { place++; behind = place }
}

init {
    atomic {
        run at_once();
        run at_once();
        run defers();
        run awaits_event()
    }
}
