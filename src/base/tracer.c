/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the core reads of the event rings, with or without them: see trace.h. */
#include "base/trace.h"

atomic_int usm__trace_on;

#ifdef USM_PART_OBSERVE
const usm__tracer *const usm__tracer_now = &usm__trace_table;
#else
const usm__tracer *const usm__tracer_now = NULL;
#endif
