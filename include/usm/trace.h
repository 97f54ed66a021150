/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Commands of other runtimes in the trace of USM_TRACE.
 *
 * A layer that sees the commands of a program which does not use libusm's
 * queues records them here: usm-prof then shows each queue's kernels and copies
 * in one timeline with memory. */
#ifndef USM_TRACE_H
#define USM_TRACE_H

#include <usm/types.h>

#include <stdbool.h>

USM_BEGIN_DECLS

/** What a command does.  Unmapping counts as USM_COMMAND_MAP. */
typedef enum usm_command_kind {
    USM_COMMAND_KERNEL = 0,
    USM_COMMAND_COPY   = 1,
    USM_COMMAND_FILL   = 2,
    USM_COMMAND_MAP    = 3
} usm_command_kind;

/** A command that has ended.  Times are ns of CLOCK_MONOTONIC. */
typedef struct usm_command_record {
    size_t           struct_size;
    usm_command_kind kind;
    const char      *queue;  /**< of up to 63 bytes; up to 255 different ones, those of
                                  members of teams included */
    const char      *kernel; /**< or NULL */
    uint64_t         begin_ns, end_ns;
    uint64_t         size;        /**< bytes; of a kernel its work-items */
    bool             is_in_order; /**< the queue's commands never overlap */
} usm_command_record;
#define USM_COMMAND_RECORD_INIT                                                                    \
    {                                                                                              \
        sizeof(usm_command_record), USM_COMMAND_KERNEL, NULL, NULL, 0, 0, 0, false                 \
    }

/** Whether a trace is written.  Opens its file, if that is not open yet: what a program does before
 * lies before the trace's beginning, and its time is cut. */
USM_API bool usm_trace_is_on(void);

/** Writes the command to the trace.  While no trace is written it does nothing.
 *   USM_E_INVALID  no such kind, no queue, or it ended before it began */
USM_API usm_status usm_trace_command(const usm_command_record *command);

USM_END_DECLS
#endif
