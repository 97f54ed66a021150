/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pins of several ranges, possibly of several engines, and waiting for memory that commands hold.
 * Called by host.c and command.c. */
#ifndef USM_BUFFER_PINS_H
#define USM_BUFFER_PINS_H

#include "spill/engine.h"

/* Pins all or none, as usm__spill_pin(). */
usm_status usm__pins_take(size_t n, const usm__pin *list);
/* The same, repeated whenever a command has ended and released memory. */
usm_status usm__pins_take_waiting(size_t n, const usm__pin *list);
void       usm__pins_give(size_t n, const usm__pin *list);

#endif
