/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The rule of src/buffer/grant.c: commands get memory in the order of their places, and none waits in a
 * circle.
 *
 * COMMANDS (3, at most 4) commands, in the order of their places, each of which waits for any of those before it (by a
 * queue, a barrier, an event: how does not matter) and perhaps for an event of the program, and needs any
 * part of MEMORY.  The program waits for any command that does not wait for its event, before it signals
 * that.  All of this is chosen at the start; Spin tries every choice and every interleaving.  Every run
 * must end with all commands done: one in which nobody can go on is an invalid end state.
 *
 * -DPLANTED=1: a command is granted memory although one before it, which it waits for only through
 * another's place, has none.  Spin must find the circle. */
#ifndef COMMANDS
#define COMMANDS 3
#endif
#define MEMORY 2

byte waits[4];   /* a bit for each command before it                                          */
bool outside[4]; /* waits for the program's event                                             */
byte needs[4];
bool granted[4], done[4]; /* of those that are not there: true                                */
byte submitted;
bool signalled;
byte memory = MEMORY;
byte awaited = COMMANDS; /* the command that the program waits for; COMMANDS: none               */

inline choose()
{
    byte hangs = 0; /* those that wait for the event, also through others                        */

    i = 0;
    do
    :: i < COMMANDS ->
        if
        :: needs[i] = 1
        :: needs[i] = 2
        fi;
        if
        :: outside[i] = true; hangs = hangs | (1 << i)
        :: skip
        fi;
        j = 0;
        do
        :: j < i ->
            if
            :: waits[i] = waits[i] | (1 << j)
            :: skip
            fi;
            j++
        :: else -> break
        od;
        if
        :: (waits[i] & hangs) != 0 -> hangs = hangs | (1 << i)
        :: else -> skip
        fi;
        if
        :: (hangs & (1 << i)) == 0 -> awaited = i
        :: skip
        fi;
        i++
    :: else -> break
    od
}

#define ENDED(c)    (((waits[c] & 1) == 0 || done[0]) && ((waits[c] & 2) == 0 || done[1]) && \
                     ((waits[c] & 4) == 0 || done[2]) && (!outside[c] || signalled))
#define HELD_UP     (!signalled && ((outside[0] && submitted > 0) || (outside[1] && submitted > 1) || \
                     (outside[2] && submitted > 2) || (outside[3] && submitted > 3)))
#ifdef PLANTED
#define FIRST(c)    (true)
#else
#define FIRST(c)    ((c < 1 || granted[0]) && (c < 2 || granted[1]) && (c < 3 || granted[2]))
#endif
#define GRANT       (memory >= needs[c]) -> atomic { memory = memory - needs[c]; granted[c] = true }
#define MAY_GO(c)   (submitted > c && !granted[c] && (ENDED(c) || (FIRST(c) && !HELD_UP)))

/* Gets one command at a time its memory, and waits for that with nothing in hand; of those that may go, any. */
proctype line()
{
    byte c;

    do
    :: MAY_GO(0) -> c = 0; GRANT
    :: MAY_GO(1) -> c = 1; GRANT
    :: MAY_GO(2) -> c = 2; GRANT
    :: MAY_GO(3) -> c = 3; GRANT
    :: granted[0] && granted[1] && granted[2] && granted[3] -> break
    od
}

proctype command(byte c)
{
    (granted[c] && ENDED(c));
    atomic { memory = memory + needs[c]; done[c] = true }
}

proctype program()
{
    do
    :: submitted < COMMANDS -> submitted++
    :: else -> break
    od;
    (awaited == COMMANDS || done[awaited]);
    signalled = true;
    (done[0] && done[1] && done[2] && done[3])
}

init {
    byte i, j;

    atomic {
        i = COMMANDS;
        do
        :: i < 4 -> granted[i] = true; done[i] = true; i++
        :: else -> break
        od;
        choose();
        run line();
        run program();
        i = 0;
        do
        :: i < COMMANDS -> run command(i); i++
        :: else -> break
        od
    }
}
