/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The page's timeline of launches over teams: its data.  Called by export_html.c. */
#ifndef USM_PROFILE_EXPORT_WORK_H
#define USM_PROFILE_EXPORT_WORK_H

#include "profile/trace.h"

#include <stdio.h>

/* ,"work":{...}; nothing where the trace has no such launch.  0 or ENOMEM. */
int usm__export_work(FILE *out, const usm__trace *t);

#endif
