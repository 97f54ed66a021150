/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Progress of whatever takes long; main.c's own. */
#ifndef IDW_PROGRESS_H
#define IDW_PROGRESS_H

#include <stdint.h>

/* `rate_factor` turns pixels a second into what `rate_unit` says. */
void progress_begin(const char *what, double rate_factor, const char *rate_unit);
/* An idw_progress_fn. */
void progress_show(uint64_t done, uint64_t total, double start_s);

#endif
