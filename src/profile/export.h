/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Exporters: write a trace in a form that other programs read. Called by usm-prof. */
#ifndef USM_PROFILE_EXPORT_H
#define USM_PROFILE_EXPORT_H

#include "profile/trace.h"

/* Each writes the file `path` ("-" is standard output) and returns 0, or an errno value if the file
 * could not be written (ENOMEM included). A trace with damage or lost events is exported as far as
 * possible; the caller has warned. */
int usm__export_perfetto(const usm__profile *t, const char *path);
int usm__export_html(const usm__profile *t, const char *path);
/* A snapshot for PyTorch's memory viewer. */
int usm__export_pytorch(const usm__profile *t, const char *path);
/* One line per event: time_ns,source,thread,event,pool,tag,address,size,usable,duration_ns,stack.
 */
int usm__export_csv(const usm__profile *t, const char *path);

#endif
