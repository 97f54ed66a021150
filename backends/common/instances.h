/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The native kernels of one kernel that no launch uses now.  Drivers store the arguments in the
 * native kernel, and setting them is not thread-safe, so each launch takes one for itself.  The few
 * that a program needs at the same time are taken without a lock.  Compiled into each backend over
 * a driver.  Not here: making them, and when one may be returned. */
#ifndef USM_BACKENDS_COMMON_INSTANCES_H
#define USM_BACKENDS_COMMON_INSTANCES_H

#include "base/inline/atomic.h"

#include <pthread.h>
#include <stdbool.h>

#define INSTANCES_FEW 8

/* The FIRST member of the backend's own struct. */
typedef struct instance_link {
    struct instance_link *next; /* in `more` */
} instance_link;

typedef struct instances {
    _Atomic(instance_link *) few[INSTANCES_FEW];
    pthread_mutex_t          lock;
    instance_link           *more; /* guarded by lock */
} instances;

void instances_init(instances *set);
void instances_fini(instances *set); /* of an empty set */
/* Returns one for the caller alone; NULL: there is none. */
void *instances_take(instances *set);
/* False if the slots have no room; keep() always has room. */
bool instances_put(instances *set, instance_link *link);
void instances_keep(instances *set, instance_link *link);

#endif
