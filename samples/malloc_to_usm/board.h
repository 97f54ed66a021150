/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The problem that before.c and after.c solve, and what is the same in both.
 *
 * A board of aluminium, 256 x 256 x 1.6 mm, carries two chips of 50 and 20 watts.  Its rim is held
 * at 25 degrees C.  How warm is it 2.5 seconds after it was switched on?  The board is cut into
 * cells of half a millimetre; in a step of 0.83 ms a cell takes a share of what its four neighbours
 * are warmer, and what its chip puts in. */
#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>

#define SIDE  512        /* cells, without the rim               */
#define PITCH (SIDE + 2) /* cells from row to row, with the rim  */
#define CELLS ((size_t)PITCH * PITCH)
#define STEPS 3000
#define SHARE 0.2f /* diffusivity * step / cell^2, 6e-5 m2/s    */

/* All at 25 degrees; `input` is what the chips add to each cell in each step, in degrees. */
void board_begin(float *now, float *next, float *input);
/* The hottest cell, the mean, and a checksum over every bit of every cell. */
void board_print(const float *now);

#endif
