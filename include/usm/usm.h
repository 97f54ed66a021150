/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * libusm: unified shared memory for C.  The umbrella header.
 *
 *     float *x = usm_alloc_shared(n * sizeof *x);     instead of malloc
 *     ...
 *     usm_free(x);                                    instead of free
 *
 * USM_DEVICE_SELECTOR chooses the device at run time. */
#ifndef USM_USM_H
#define USM_USM_H

#include <usm/async.h>
#include <usm/buffer.h>
#include <usm/command.h>
#include <usm/context.h>
#include <usm/device.h>
#include <usm/event.h>
#include <usm/graph.h>
#include <usm/init.h>
#include <usm/ipc.h>
#include <usm/job.h>
#include <usm/managed.h>
#include <usm/memory.h>
#include <usm/mpi.h>
#include <usm/parallel.h>
#include <usm/pool.h>
#include <usm/program.h>
#include <usm/queue.h>
#include <usm/shared_buffer.h>
#include <usm/status.h>
#include <usm/tag.h>
#include <usm/team.h>
#include <usm/template.h>
#include <usm/trace.h>
#include <usm/types.h>
#include <usm/version.h>

#endif
