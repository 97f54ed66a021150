/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The rules of fault points.  The core parses their text form (USM_HOOKS).
 *
 * A fault point may be reached with any lock held, so this lock is the last in the order, and
 * nothing is called while it is held. */
#include "base/fault.h"

#include "base/fork.h"
#include "base/mutex.h"
#include "base/thread.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef usm__fault_rule rule;

usm__fault_state usm__faults = {.lock = USM__MUTEX_INIT(USM__RANK_FAULT, "fault rules")};

__attribute__((noinline)) void usm__fault_breakpoint(void)
{
    __asm__ volatile("" ::: "memory"); /* keeps the compiler from removing the call */
}

static bool matches(const rule *r, const char *name)
{
    size_t n = strlen(r->name);

    if (n > 0 && r->name[n - 1] == '*')
        return strncmp(r->name, name, n - 1) == 0 && (n > 1 || strncmp(name, "die.", 4) != 0);
    return strcmp(r->name, name) == 0;
}

/* Counts one call; true if it must fail.  pre: lock is held. */
static bool count_call(rule *r)
{
    r->count++;
    return r->n != 0 && (r->count == r->n || (r->onwards && r->count > r->n));
}

bool usm__fault_hit_slow(const char *name, usm_status *status)
{
    usm_status wanted = USM_OK;
    bool       hit    = false;

    if (usm__self.fault_benign > 0)
        return false;
    usm__mutex_lock(&usm__faults.lock);
    for (int i = 0; i < usm__faults.nrules; i++) {
        if (!matches(&usm__faults.rules[i], name) || !count_call(&usm__faults.rules[i]))
            continue;
        hit = true;
        if (wanted == USM_OK)
            wanted = usm__faults.rules[i].status;
    }
    usm__faults.fired += hit;
    usm__faults.first_count =
        usm__faults.nrules > 0 ? usm__faults.rules[0].count : usm__faults.first_count;
    usm__mutex_unlock(&usm__faults.lock);
    if (!hit)
        return false;
    usm__fault_breakpoint();
    if (status != NULL && wanted != USM_OK)
        *status = wanted;
    return true;
}

/* The errno value for the status that a rule names. */
int usm__fault_errno_of(usm_status status, int usual)
{
    switch ((int)status) {
    case USM_E_SPILL_FULL:
        return ENOSPC;
    case USM_E_BUSY:
        return EAGAIN;
    case USM_E_AGAIN:
        return EINTR;
    case USM_E_NOT_SUPPORTED:
        return EOPNOTSUPP;
    case USM_E_IO:
        return EIO;
    default:
        return usual;
    }
}

bool usm__fault_arm(const char *name, uint64_t n, bool onwards, usm_status status)
{
    usm__fault_armed_fn *fn;
    bool                 room;

    usm__mutex_lock(&usm__faults.lock);
    room =
        usm__faults.nrules < USM__FAULT_RULES && strlen(name) < sizeof(usm__faults.rules[0].name);
    if (room) {
        rule *r = &usm__faults.rules[usm__faults.nrules];

        *r = (rule){.n = n, .onwards = onwards, .status = status};
        memcpy(r->name, name, strlen(name) + 1);
        if (usm__faults.nrules++ == 0)
            usm__faults.fired = usm__faults.first_count = 0;
        atomic_store_explicit(&usm__faults.armed, usm__faults.nrules, memory_order_relaxed);
    }
    usm__mutex_unlock(&usm__faults.lock);
    fn = atomic_load(&usm__faults.on_arm);
    if (room && fn)
        fn();
    return room;
}

void usm__fault_on_arm(usm__fault_armed_fn *fn)
{
    atomic_store(&usm__faults.on_arm, fn);
    if (atomic_load(&usm__faults.armed))
        fn();
}

void usm__fault_disarm_all(void)
{
    usm__mutex_lock(&usm__faults.lock);
    usm__faults.nrules = 0;
    atomic_store_explicit(&usm__faults.armed, 0, memory_order_relaxed);
    usm__mutex_unlock(&usm__faults.lock);
}

static uint64_t read_locked(const uint64_t *counter)
{
    uint64_t value;

    usm__mutex_lock(&usm__faults.lock);
    value = *counter;
    usm__mutex_unlock(&usm__faults.lock);
    return value;
}

uint64_t usm__fault_fired(void)
{
    return read_locked(&usm__faults.fired);
}

uint64_t usm__fault_counted(void)
{
    return read_locked(&usm__faults.first_count);
}

void usm__fault_benign_begin(void)
{
    usm__self.fault_benign++;
}

void usm__fault_benign_end(void)
{
    usm__self.fault_benign--;
}

void usm__fault_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&usm__faults.lock, phase);
}
