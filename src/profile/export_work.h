/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The data of the page's timeline of launches over teams.  Called by export_html.c. */
#ifndef USM_PROFILE_EXPORT_WORK_H
#define USM_PROFILE_EXPORT_WORK_H

#include "base/json.h"
#include "profile/trace.h"

/* Writes the member "work"; nothing if the trace has no such launch.  0 or ENOMEM. */
int usm__export_work(usm__json *j, const usm__profile *t);

#endif
