/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Seconds, for samples that say how long things took. */
#ifndef SAMPLES_CLOCK_H
#define SAMPLES_CLOCK_H

/* Since some moment in the past. */
double clock_now_s(void);

#endif
