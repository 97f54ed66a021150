/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What tests may ask of the software Level Zero driver, and its knobs.
 *
 * Knobs are environment variables, read at the driver's first call:
 *   ZE_SOFT_MEMORY=bytes   memory of each device (default 1 GiB); suffixes K, M, G
 *   ZE_SOFT_CALL_NS=n      busy time added to each driver call (default 0)
 *   ZE_SOFT_COPY_MBS=n     bandwidth of copies and fills in MB/s (default 0: no limit)
 *   ZE_SOFT_GUARD=0|1      device memory is closed to the host (default 1)
 *   ZE_SOFT_DRIVER=number  the driver's version, as zeDriverGetProperties tells it
 *   ZE_SOFT_FAIL=n[:code]  the n-th call fails (default 0x70000003, out of device memory)
 *   ZE_SOFT_FAIL_INIT=code zeInit answers it
 *   ZE_SOFT_IPC=1|2        handles of memory for other processes name a descriptor by its number in
 *                          the opener, or by the exporter's and its process (ipc.c)
 *   ZE_SOFT_LOSE=n         the first device is lost at the n-th command
 *   ZE_SOFT_REORDER=1      commands that may pass one another do (in lists without the in-order
 *                          flag, between barriers), as drawn by ZE_SOFT_SEED=n (default 1; 0: the
 *                          last first)
 *   ZE_SOFT_LENIENT=1      what Intel's driver lets pass, passes: appends to closed lists are
 *                          dropped, two events may have one index in a pool, unknown list flags,
 *                          a value larger or smaller than its parameter, an allocation's ordinal
 *                          and an alignment that is no power of two
 *   ZE_SOFT_MIGRATE=1      shared memory moves between host and device by whole allocations, and
 *                          no concurrent access is reported (moving.c)
 *   ZE_SOFT_MISALIGN=bytes every allocation is off its alignment by so many bytes
 *   ZE_SOFT_OVERLAP=1      every second device allocation gets the address of the one before,
 *                          while that lives and is large enough
 *   ZE_SOFT_SPIRV=path     the OpenCL runtime for SPIR-V: a library (default: found, see README)
 *   ZE_SOFT_SYSTEM=1       devices say that they take any memory of the host (which they do)
 *   ZE_SOFT_TRACE=1        each call on stderr
 *
 * In one process with the driver, a test finds these functions with dlsym(dlopen(path,
 * RTLD_NOLOAD)). All are thread-safe. */
#ifndef ZE_SOFT_H
#define ZE_SOFT_H

#include <stdint.h>

/* Calls of API functions that can fail (frees and destroys cannot), since the start or the last
 * ze_soft_reset. */
typedef uint64_t ze_soft_calls_fn(void);
typedef void     ze_soft_reset_fn(void);
/* Call number `nth` from now on (1 = the next) fails with `code` (a ze_result_t), and when `from`
 * is not 0 all after it, too; nth 0: none any more.  Code 0x70000001 loses the first device with
 * it, as ze_soft_lose does. */
typedef void ze_soft_fail_at_fn(uint64_t nth, uint32_t code, int from);
/* From now on each call asks before it does anything, by its function's name, and answers `code`
 * when `ask` says so; NULL: none asks any more.  It is called by the thread of the call, without
 * locks of the driver's knobs. */
typedef int  ze_soft_ask_fn(const char *function);
typedef void ze_soft_fail_if_fn(ze_soft_ask_fn *ask, uint32_t code);
/* Whether the armed failure has happened. */
typedef int ze_soft_has_failed_fn(void);
/* The function that was the first to fail since then, "zeMemAllocDevice"; "" when none was. */
typedef const char *ze_soft_failed_call_fn(void);
/* The device (0 or 1) is lost from now on. */
typedef void ze_soft_lose_fn(uint32_t device);
/* How often shared memory went from host to device, with ZE_SOFT_MIGRATE=1. */
typedef uint64_t ze_soft_moves_fn(void);
/* Allocations that were freed while resident. */
typedef uint64_t ze_soft_resident_frees_fn(void);
/* Whether the driver was advised of the allocation that p lies in. */
typedef int ze_soft_is_advised_fn(const void *p);
/* Immediate lists created with the hint that copies may go to copy engines. */
typedef uint64_t ze_soft_copy_offloads_fn(void);
/* Objects and allocations that were created and not destroyed. */
typedef uint64_t ze_soft_live_fn(void);

#endif
