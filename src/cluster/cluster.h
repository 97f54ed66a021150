/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The job as the parts of libusm above src/buffer see it: ranks that send each other messages.
 *
 * Ranks are the program's processes, 0 to count - 1 in the order of the communicator that was
 * attached; servers (usm-memd) are members of the job and no ranks.  Everything is thread-safe
 * unless it says otherwise. */
#ifndef USM_CLUSTER_CLUSTER_H
#define USM_CLUSTER_CLUSTER_H

#include <usm/job.h>
#include <usm/transport.h>

/* Tags of messages, one listener each. */
typedef enum usm__job_tag {
    USM__JOB_AGREE  = 1, /* agree.c                                                              */
    USM__JOB_SHARED = 2, /* shared buffers                                                        */
    USM__JOB_TEAMS  = 3, /* src/offload                                                           */
    USM__JOB_TAGS   = 16
} usm__job_tag;

#define USM__JOB_MESSAGE_MAX 65600u /* 64 KiB and a header */

typedef void usm__job_listener(void *arg, uint32_t from, const void *data, size_t size);
/* A rank's state has changed (USM_PLACE_LOST: for good). */
typedef void usm__job_watcher(void *arg, uint32_t rank, usm_place_state state);

bool usm__job_is_attached(void);
/* USM_E_MPI and a story: the process is not attached. */
usm_status usm__job_ranks(uint32_t *self, uint32_t *count);
bool       usm__job_rank_is_lost(uint32_t rank);
/* To one rank, in order for one receiver, at most USM__JOB_MESSAGE_MAX bytes, copied; to oneself as
 * well.  USM_E_PEER: it is lost. */
usm_status usm__job_send(uint32_t rank, uint32_t tag, const void *data, size_t size);
/* What comes may lie for that long until its listener is called (0: not at all, as at first): who
 * has enough to do meanwhile spares the transport looking for it. */
void usm__job_set_patience(uint64_t ns);
/* Calls come one after the other from one thread of the transport, no lock held: they may send, and
 * must not wait for messages.  What came before somebody listened is kept for him.  fn NULL ends
 * it and returns once no call is under way. */
void usm__job_listen(usm__job_tag tag, usm__job_listener *fn, void *arg);
/* Up to 4; as above.  Nobody is told of what was before: ask usm__job_rank_is_lost() afterwards. */
void usm__job_watch(usm__job_watcher *fn, void *arg);
void usm__job_unwatch(usm__job_watcher *fn, void *arg);
/* Collective over the living ranks, one call at a time, in the same order everywhere: everybody's
 * `size` bytes (4 KiB at most), all[rank * size]; what those had that were lost before is zeros.
 * Waits timeout_ms, and half as long again for a slow answer.
 *   USM_E_PEER     a rank ended meanwhile or did not come: *which (may be NULL)
 *   USM_E_INVALID  ranks came with different sizes */
usm_status usm__job_agree(const void *mine, size_t size, void *all, uint32_t timeout_ms,
                          uint32_t *which);

#endif
