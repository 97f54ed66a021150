/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands as a part of the library (base/part.h). */
#include "command/part.h"

#include "base/mutex.h"
#include "command/executor.h"
#include "command/outside.h"
#include "command/queue.h"

const usm_part usm__command_part = {
    .name     = "command",
    .fork     = {{USM__RANK_EVENT, usm__outside_fork}, {USM__RANK_EXECUTOR, usm__executor_fork}},
    .shutdown = usm__queue_forget_default,
    .context_ended  = usm__queues_retire,
    .context_unused = usm__queues_end};
