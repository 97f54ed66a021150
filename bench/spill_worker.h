/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A worker of `usm-bench spill`: this program again, with a memory limit of its own in its
 * environment, so that each measurement has a fresh engine and memory of its own to be counted.
 *
 * `usm-bench --worker spill` reads commands from its standard input, a line each, and answers each
 * with a line: "ok ..." or "error TEXT".
 *   join PATH                     enters the control group whose cgroup.procs that is
 *   open FORM CHUNK N HINT [PATH] chunks of one buffer (one), buffers (many), chunks of managed
 *                                 memory (managed), of malloc() (array) or of a new file without
 *                                 a name (mapped; PATH is free)                ok
 *   map PATH CHUNK N              chunks of a file, read only                    ok
 *   fill PATH CHUNK N             makes such a file, without libusm              ok
 *   run NAME ACCESSES             a workload of spill_load.h                     ok SECONDS BYTES
 *   close                         the buffers                                    ok
 *   settle                        waits until nothing is being written           ok
 *   touch                         accesses to loaded blocks of managed memory    ok MICROSECONDS
 *   memory                        bytes over those at the first `open`           ok PEAK NOW
 *   written                       bytes of the process, to storage               ok BYTES
 *   cost NAME                     of spill_cost.h                                ok OURS THEIRS
 *   device N SIZE                 fills N buffers on the device, reads them      ok SECONDS
 *   sleep KIND BYTES              a pool of host or device memory sleeps, wakes  ok SLEPT WOKEN (seconds)
 * `usm-bench --worker spill-plugin:FILE` knows `cost` alone.  Run by worker.c, spoken to by
 * spill.c. */
#ifndef USM_BENCH_SPILL_WORKER_H
#define USM_BENCH_SPILL_WORKER_H

int bench_spill_worker(const char *allocator);

#endif
