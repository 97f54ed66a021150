/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The order in which the locks of src/base are taken around fork().  The core registers the
 * handlers. */
#include "base/fork.h"

#include "base/mutex.h"
#include "base/trace.h"

static void fork_tracer(usm_fork_phase phase)
{
    if (usm__tracer_now)
        usm__tracer_now->fork(phase);
}

void usm__base_fork(usm_fork_phase phase)
{
    /* Locks are taken by rank, and released in the reverse order. */
    static void (*const part[])(usm_fork_phase) = {usm__meta_fork, usm__log_fork, fork_tracer,
                                                   usm__thread_fork, usm__fault_fork};
    const int n                                 = (int)(sizeof(part) / sizeof(part[0]));

    for (int i = 0; i < n; i++)
        part[phase == USM_FORK_PREPARE ? i : n - 1 - i](phase);
}

void usm__mutex_fork(usm__mutex *m, usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE)
        usm__mutex_lock_for_fork(m);
    else if (phase == USM_FORK_PARENT)
        usm__mutex_unlock_after_fork(m);
    else
        usm__mutex_reset_in_child(m);
}
