/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a trace shows about launches over teams: by device what it did, and when it had nothing to
 * do.  Called by analyse.c; printed by usm-prof and the exporters. */
#ifndef USM_PROFILE_WORK_H
#define USM_PROFILE_WORK_H

#include "profile/trace.h"

typedef struct usm__profile_work_span {
    uint64_t from, to; /* ns */
} usm__profile_work_span;

/* A member of teams in one process.  It is idle while a launch is under way and it neither computes
 * nor copies. */
typedef struct usm__profile_work_device {
    char     name[64];
    uint32_t member, source;
    uint64_t chunks, failed, items;
    uint64_t commands; /* of a queue of another runtime: what it moved is in bytes_in */
    uint64_t bytes_in, bytes_out;
    uint64_t launched_ns; /* while a launch was under way                                 */
    uint64_t kernel_ns;   /* while a kernel ran                                           */
    uint64_t copy_ns;     /* while a copy was under way                                   */
    uint64_t hidden_ns;   /* of copy_ns, while a kernel ran as well                       */
    uint64_t idle_ns, longest_ns;
    size_t   ngaps;
    usm__profile_work_span
        *gaps; /* in order                                                            */
} usm__profile_work_device;

typedef struct usm__profile_work_usages {
    size_t   nevents;
    uint64_t launches;
    size_t   ndevices, nqueues; /* nqueues: those of them that had a command */
    usm__profile_work_device
        *devices; /* those that had a chunk or a command, in the order in which they were named  */
} usm__profile_work_usages;

/* false: no memory. */
bool usm__profile_work_count(const usm__profile *t, usm__profile_work_usages *u);
void usm__profile_work_usages_free(usm__profile_work_usages *u);

/* usm__trace_work_kind in a word: "chunk". */
const char *usm__profile_work_kind_name(uint32_t kind);
/* "" if it has none; never NULL. */
const char *usm__profile_work_kernel_name(const usm__profile *t, uint32_t kernel);
const char *usm__profile_work_member_name(const usm__profile *t, uint32_t member);
/* The time at which it began. */
uint64_t usm__profile_work_from(const usm__profile_work_record *r);

#endif
