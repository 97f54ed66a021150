/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The monitor page of this process: made with its first context, sampled while somebody reads. */
#ifndef USM_MONITOR_MONITOR_H
#define USM_MONITOR_MONITOR_H

#include "base/part.h"
#include "monitor/page.h"

extern const usm_part usm__monitor_part;

/* Writes all sampled figures.  One thread at a time. */
void usm__monitor_sample(usm__monitor_page *page);

#endif
