/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Progress of whatever takes long. */
#ifndef SAMPLES_PROGRESS_H
#define SAMPLES_PROGRESS_H

#include <stdint.h>

/* `rate_factor` turns things done a second into what `rate_unit` says. */
void progress_begin(const char *what, double rate_factor, const char *rate_unit);
/* `done` of `total` are there; `start_s`, of clock_now_s(), is when the first was begun. */
void progress_show(uint64_t done, uint64_t total, double start_s);
/* What stands at the end of the line until the next progress_begin(). */
#define PROGRESS_TAIL 160
void progress_set_tail(const char *text);
/* Takes the line away again, for what ends before all is done. */
void progress_end(void);

#endif
