/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a copy between host memory and a device costs: for usm-info --machine, and for usm-run
 * --simulate, which takes such copies off what it has measured. */
#ifndef USM_TOOLS_COPIES_H
#define USM_TOOLS_COPIES_H

#include "offload/offload.h"

typedef struct tool_copies {
    double latency_us, mib_s;
} tool_copies;

/* Takes a tenth of a second or so.  False, and usm_last_error() is the reason. */
bool tool_measure_copies(const usm__member *m, tool_copies *found);

#endif
