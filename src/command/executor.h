/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The threads that run completions, callbacks and host tasks.
 *
 * A job that may block gets a thread of its own: whenever a job is posted and no thread is idle,
 * another is started (up to 256).  Idle threads beyond two end after 2 s.  Nothing polls. */
#ifndef USM_COMMAND_EXECUTOR_H
#define USM_COMMAND_EXECUTOR_H

#include "base/inline/list.h"
#include "base/status.h"

#include <usm/pool_ops.h>

typedef struct usm__executor_job {
    usm_list link;
    void (*run)(struct usm__executor_job *job); /* owns the job from this call on */
} usm__executor_job;

/* Makes sure that a thread exists, so that posting cannot fail.
 *   USM_E_SYSTEM  no thread can be started */
usm_status usm__executor_reserve(void);
/* Never fails after a successful usm__executor_reserve(). */
void usm__executor_post(usm__executor_job *job);
/* Called before posting a job that waits for other jobs.  Makes sure that there is one thread more
 * than such jobs, so that they cannot occupy the last one.  _unhold is called when the job has
 * ended, or is not posted after all.
 *   USM_E_SYSTEM  no thread can be started */
usm_status usm__executor_hold(void);
void       usm__executor_unhold(void);
/* Announces a job that a driver will post, from a thread of its own and at a time of its own;
 * _unexpect is called when it has done so, or never will.  exit() waits for such jobs too: see
 * executor.c. */
void usm__executor_expect(void);
void usm__executor_unexpect(void);
/* Both usm__executor_post() and usm__executor_unexpect(). */
void usm__executor_post_expected(usm__executor_job *job);
void usm__executor_fork(usm_fork_phase phase);

#endif
