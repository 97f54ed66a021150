/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Observation as a part of the library (base/part.h). */
#include "observe/part.h"

#include "base/mutex.h"
#include "base/settings.h"
#include "base/trace.h"
#include "observe/debug.h"
#include "observe/hooks.h"
#include "observe/observe.h"
#include "observe/order_check.h"
#include "observe/tag.h"

static void start(void)
{
    usm__setting_set_check("hooks", usm__hooks_check);
    usm__setting_set_check("debug", usm__debug_check);
    usm__setting_set_check("trace", usm__trace_check_name);
    usm__setting_set_check("trace_stacks", usm__trace_check_stacks);
}

const usm_part usm__observe_part = {.name         = "observe",
                                    .start        = start,
                                    .observe      = usm__observe_start,
                                    .thread_ended = usm__tag_thread_ended,
                                    .fork         = {{USM__RANK_TRACKED, usm__tracked_fork},
                                                     {USM__RANK_META, usm__tag_fork},
                                                     {USM__RANK_ORDER_CHECK, usm__order_fork}}};
