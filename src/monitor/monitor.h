/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The monitor page of this process: made with its first context, sampled while somebody reads. */
#ifndef USM_MONITOR_MONITOR_H
#define USM_MONITOR_MONITOR_H

#include "base/part.h"
#include "command/executor.h"
#include "monitor/page.h"

extern const usm_part usm__monitor_part;

/* Writes all sampled figures.  One thread at a time. */
void usm__monitor_sample(usm__monitor_page *page);
/* Maps the pools that have a place in the page, for the thread of usm__monitor_sample(); false: the
 * last map is too young for what it cost, or there is no memory.  Writes nothing but *map. */
bool usm__monitor_take_map(usm__monitor_page *page, usm__monitor_map *map);

/* ---- progress.c */
typedef struct usm__monitor_progress {
    usm__executor_job job;   /* fixed while the executor asks */
    _Atomic(int)      state; /* progress_state                */
} usm__monitor_progress;

/* Lets the executor ask how far the queues have got that have commands in flight, unless it does so
 * already.  The answers are there a few milliseconds later. */
void usm__monitor_ask_queues(usm__monitor_progress *progress);
/* The process ends: waits, a second at most, until nobody asks, and nobody will. */
void usm__monitor_end_asking(usm__monitor_progress *progress);
/* In a child nobody asks yet. */
void usm__monitor_progress_in_child(usm__monitor_progress *progress);

#endif
