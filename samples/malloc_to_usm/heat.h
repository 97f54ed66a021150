/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The step of before.c as a kernel; for after.c. */
#ifndef HEAT_H
#define HEAT_H

#include <usm/usm.h>

/* Built for the default device: heat(now, next, input) over the cells of the board.  NULL on
 * failure, usm_last_error() tells why.  The caller destroys it. */
usm_kernel *heat_kernel_create(void);

#endif
