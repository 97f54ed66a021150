/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A crew of processes, for samples that need several: started, waited for, none left over.  A real
 * program has mpirun or a service manager for this. */
#ifndef CREW_H
#define CREW_H

#include <stdbool.h>

#define CREW_MAX 64

/* What a member does; its exit status. */
typedef int crew_fn(int rank, void *user);

/* Runs fn(0) .. fn(n - 1) in n processes and waits for them.  Those that run for more than
 * `seconds` are killed, and all when this process ends.  Call it before libusm is used: after a
 * fork the child's device memory is gone (docs/threading.md).  status[rank]: exit status, or minus
 * the signal that killed it.  false: not all could be started, and none runs. */
bool crew_run(int n, unsigned seconds, crew_fn *fn, void *user, int *status);

#endif
