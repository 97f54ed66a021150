/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The job as the parts of libusm above src/buffer see it: ranks that send each other messages.
 *
 * Ranks are the program's processes, numbered 0 to count - 1 in the order of the communicator that
 * was attached.  Servers (usm-memd) are members of the job, but not ranks.  Everything is
 * thread-safe unless it says otherwise. */
#ifndef USM_CLUSTER_CLUSTER_H
#define USM_CLUSTER_CLUSTER_H

#include <usm/job.h>
#include <usm/transport.h>

/* Tags of messages.  Each has one listener. */
typedef enum usm__job_tag {
    USM__JOB_AGREE  = 1, /* agree.c */
    USM__JOB_SHARED = 2, /* shared buffers */
    USM__JOB_TEAMS  = 3, /* src/offload */
    USM__JOB_UNITS  = 4, /* usm-run --unit (tools/units/ranks.c) */
    USM__JOB_TAGS   = 16
} usm__job_tag;

#define USM__JOB_MESSAGE_MAX 65600u /* 64 KiB and a header */

typedef void usm__job_listener(void *arg, uint32_t from, const void *data, size_t size);
/* A rank's state has changed (USM_PLACE_LOST is final). */
typedef void usm__job_watcher(void *arg, uint32_t rank, usm_place_state state);

bool usm__job_is_attached(void);
/* USM_E_MPI with an error message: the process is not attached. */
usm_status usm__job_ranks(uint32_t *self, uint32_t *count);
bool       usm__job_rank_is_lost(uint32_t rank);
/* Sends a message of at most USM__JOB_MESSAGE_MAX bytes, which are copied, to one rank, possibly
 * the caller's own.  Messages to one receiver stay in order.  USM_E_PEER: the rank is lost. */
usm_status usm__job_send(uint32_t rank, uint32_t tag, const void *data, size_t size);
/* How long a received message may wait until its listener is called (0: not at all, the default).
 * A caller that has enough to do meanwhile saves the transport from polling. */
void usm__job_set_patience(uint64_t ns);
/* Registers a listener.  Calls come one after the other from one thread of the transport, with no
 * lock held: a listener may send, and must not wait for messages.  Messages that arrive before
 * there is a listener are kept for it.  fn NULL removes the listener, and returns once no call is
 * in progress. */
void usm__job_listen(usm__job_tag tag, usm__job_listener *fn, void *arg);
/* Registers a watcher, of at most 4; calls as above.  Earlier changes are not reported: call
 * usm__job_rank_is_lost() afterwards. */
void usm__job_watch(usm__job_watcher *fn, void *arg);
void usm__job_unwatch(usm__job_watcher *fn, void *arg);
/* Collective over the live ranks, one call at a time, in the same order everywhere.  Gives every
 * rank the `size` bytes (4 KiB at most) of every rank: all[rank * size]; those of ranks that were
 * lost before are zeros.  Waits timeout_ms, and half as long again for a slow answer.
 *   USM_E_PEER     a rank ended meanwhile or did not call: *which (may be NULL)
 *   USM_E_INVALID  ranks called with different sizes */
usm_status usm__job_agree(const void *mine, size_t size, void *all, uint32_t timeout_ms,
                          uint32_t *which);

#endif
