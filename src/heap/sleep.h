/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the heap does for a pool that sleeps: its gate, and memory that leaves while its addresses
 * stay.  Where the contents go is not here (spill/sleep.c).
 *
 *                 begin               end
 *     AWAKE  ------------->  MOVING  ----->  ASLEEP
 *     ASLEEP ------------->  MOVING  ----->  AWAKE      a failed move ends where it began
 *
 * Threads that ask the driver for memory of the pool, or return some, enter the gate.  The mover
 * closes it in two steps, because a thread inside may return memory on its way out:
 *
 *     MOVING                nobody may take memory any more; the mover empties the caches of all
 *                           threads, returns idle memory, and waits until nobody is inside
 *     MOVING, is_settled    who returns memory waits for the end of the move as well
 *
 * From then on the pieces of the pool do not change but by the mover.  Blocks may be freed at any
 * time: the heap never touches the memory that it manages.  A piece that is freed as a whole while
 * it has no memory is reported to the pool's sleeper, which has its contents. */
#ifndef USM_HEAP_SLEEP_H
#define USM_HEAP_SLEEP_H

#include "heap/pool.h"

/* The contents of a pool that sleeps, for their keeper (spill/sleep.c).  No lock is held. */
struct usm__sleeper {
    /* The piece at p was freed: its contents are not needed.  Any thread; a piece once. */
    void (*piece_gone)(usm__sleeper *s, const void *p);
    /* The pool has ended, after all its pieces. */
    void (*pool_ended)(usm__sleeper *s);
};

/* Counts the caller among the threads inside; false, with USM_E_BUSY: the pool is not awake. */
bool usm__pool_enter(usm_pool *pool);
/* The same for a thread that returns memory, which cannot be refused: waits for the end of a move. */
void usm__pool_enter_to_give(usm_pool *pool);
void usm__pool_leave(usm_pool *pool);
/* USM_OK: the pool was in the state `from`, and only the caller moves its pieces now.
 *   USM_E_BUSY  another thread moves the pool, or one uses its cache and does not leave it
 *   USM_E_AGAIN, without a message  it is not in that state: there is nothing to do */
usm_status usm__pool_move_begin(usm_pool *pool, usm__pool_rest from);
void       usm__pool_move_end(usm_pool *pool, usm__pool_rest to);
void       usm__pool_sleep_fork_child(usm_pool *pool);

/* pre: the caller moves the pool. */
typedef struct usm__area_piece_at {
    usm__area *area;
    size_t     offset, size;
} usm__area_piece_at;
/* Writes the pieces of memory to `list`, at most cap; returns their number, or SIZE_MAX if the pool
 * has memory that is not mapped in pieces. */
size_t usm__area_pieces(usm_pool *pool, usm__area_piece_at *list, size_t cap);
/* Takes the memory of a piece from its addresses, and returns it to the driver. */
usm_status usm__area_rest(const usm__area_piece_at *piece);
/* Maps new memory there.  Fails as usm__area_map(). */
usm_status usm__area_rouse(const usm__area_piece_at *piece);

#endif
