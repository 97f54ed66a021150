/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport "sim": places of a spill tier in the memory of the simulated lenders (world.h), as
 * one borrower of them sees it.  The world goes on only inside its calls and by places_run().
 *
 * Which place holds what of each block is kept beside it, so that a test knows which blocks must be
 * lost, and which must not. */
#ifndef TESTS_FAR_PLACES_H
#define TESTS_FAR_PLACES_H

#include "world.h"

/* Makes "sim" known to libusm; once. */
void places_register(void);
/* All stores from now on are this member's; after world_start(). */
void places_use(world *w, member *borrower);
/* From member_changed of the borrower. */
void places_changed(const far_member *f);
/* Lets the world go on for so long, and ends what ended. */
void places_run(uint64_t ns);
/* Places whose copy of the part [0, 4 KiB) begins with these 8 bytes: stored, and neither forgotten
 * nor lost.  Those that may return count if `away`. */
unsigned places_with(uint64_t word, bool away);
/* Planted: what is stored now is forgotten, and the engine does not know. */
void places_forget_behind(void);
/* No transfer, no request for room is under way. */
bool places_are_idle(void);

#endif
