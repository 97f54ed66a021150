/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* USM_HOOKS: trace, fault, slow and order, over any backend.
 *
 * `trace` logs one line for each call.  `fault:NAME@N` makes the N-th call of NAME fail (`@N+`: and
 * all after it; `=STATUS`: with that status), where NAME is a backend function, "os.mmap",
 * "heap.alloc" ... or `*`.  With "die.STEP" no call fails; the process exits at a step of the
 * protocol for remote memory (transports/far).  `slow:NAME=TIME` sleeps before the call.  `order`
 * checks stream order (observe/order_check.h).  Calls that must not fail are entered with a "!" at
 * the end of their name: they are traced and slowed, but never made to fail.  Called by
 * decorate.c, and at the start of the library. */
#include "observe/hooks.h"
#include "device/observer.h"

#include "base/log.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/text.h"
#include "observe/decorate.h"
#include "observe/order_check.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

usm__hooks_state usm__hooks; /* fixed at the start, see hooks.h */

typedef struct parsed {
    char       name[32];
    uint64_t   n, ns;
    bool       onwards;
    usm_status status;
} parsed;

static bool copy_name(usm__span s, char *out, size_t size)
{
    if (s.len == 0 || s.len >= size)
        return false;
    memcpy(out, s.at, s.len);
    out[s.len] = 0;
    return true;
}

static bool status_by_name(usm__span s, usm_status *status)
{
#define TRY(name, number, meaning)                                                                 \
    if (usm__span_is(s, #name)) {                                                                  \
        *status = name;                                                                            \
        return true;                                                                               \
    }
    USM_STATUS_LIST(TRY)
#undef TRY
    return false;
}

/* Rejects misspelled names, whose hooks would never fire. */
static bool is_call(const char *name)
{
    static const char *const calls[] = {
#define CALL(cap, group, fn, size, params, args) #fn,
#define SURE(cap, group, fn, size, params, args)
#define VOID(cap, group, fn) #fn,
#include "device/backend_ops.inc"
    };

    if (strcmp(name, "*") == 0 || strncmp(name, "os.", 3) == 0 || strncmp(name, "die.", 4) == 0 ||
        strcmp(name, "heap.alloc") == 0)
        return true;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(name, calls[i]) == 0)
            return true;
    return false;
}

/* NAME@N[+][=STATUS] */
static bool parse_fault(usm__span text, parsed *p)
{
    usm__span name, count, status;

    if (!usm__span_next(&text, '@', &name) || !copy_name(name, p->name, sizeof p->name) ||
        !is_call(p->name) || !usm__span_next(&text, '=', &count) || count.len == 0)
        return false;
    p->onwards = count.at[count.len - 1] == '+';
    count.len -= p->onwards;
    if (!usm__span_number(count, &p->n) || p->n == 0)
        return false;
    return !usm__span_next(&text, '=', &status) || status_by_name(status, &p->status);
}

/* NAME=TIME */
static bool parse_slow(usm__span text, parsed *p)
{
    usm__span name, time;

    return usm__span_next(&text, '=', &name) && copy_name(name, p->name, sizeof p->name) &&
           is_call(p->name) && usm__span_next(&text, '=', &time) &&
           usm__span_duration_ns(time, &p->ns);
}

static bool take(usm__span hook, bool apply)
{
    parsed    p = {.status = USM_OK};
    usm__span kind;

    if (!usm__span_next(&hook, ':', &kind))
        return true;
    if (kind.len == 0 || usm__span_is(kind, "trace")) {
        usm__hooks.trace |= apply && kind.len != 0;
        return hook.len == 0;
    }
    if (usm__span_is(kind, "order")) {
        usm__hooks.order |= apply;
        return hook.len == 0;
    }
    if (usm__span_is(kind, "fault"))
        return parse_fault(hook, &p) &&
               (!apply || usm__fault_arm(p.name, p.n, p.onwards, p.status));
    if (!usm__span_is(kind, "slow") || !parse_slow(hook, &p))
        return false;
    if (apply && usm__hooks.nslow < USM__HOOKS_SLOW) {
        memcpy(usm__hooks.slow[usm__hooks.nslow].name, p.name, sizeof p.name);
        usm__hooks.slow[usm__hooks.nslow++].ns = p.ns;
    }
    return true;
}

static bool take_all(const char *text, bool apply)
{
    usm__span rest = usm__span_of(text), hook;

    while (usm__span_next(&rest, ';', &hook))
        if (!take(hook, apply))
            return false;
    return true;
}

bool usm__hooks_check(const char *text, char *why, size_t why_size)
{
    if (take_all(text, false))
        return true;
    snprintf(
        why, why_size,
        "trace; order; fault:NAME@N[+][=STATUS]; slow:NAME=TIME, separated by ';', where NAME is a "
        "backend's function (mem_alloc, copy, launch, ...), os.CALL, heap.alloc or *");
    return false;
}

/* Called by a test that arms a fault after the start. */
static void decorate(void)
{
    if (!atomic_load(&usm__observers.decorators))
        usm__decorate(false);
}

static void start(void)
{
    const char *text = usm__setting_text("hooks");
    bool        ok   = *text && take_all(text, true);

    usm__order_start(ok && usm__hooks.order);
    if ((ok && (usm__hooks.trace || usm__hooks.nslow > 0)) || usm__observer_order_on())
        usm__decorate(usm__observer_order_on());
    usm__fault_on_arm(decorate);
}

void usm__hooks_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, start);
}

bool usm__hooks_trace(void)
{
    return usm__hooks.trace;
}

static void sleep_for(const char *call)
{
    size_t len = strcspn(call, "!");

    for (size_t i = 0; i < usm__hooks.nslow; i++)
        if (strncmp(usm__hooks.slow[i].name, call, len) == 0 && usm__hooks.slow[i].name[len] == 0)
            usm__os_sleep_ns(usm__hooks.slow[i].ns);
}

/* The status of an injected failure if the rule names none. */
static usm_status usual_failure(const char *call)
{
    static const char *const takers[] = {"alloc", "create", "vmem_reserve", "vmem_map"};

    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
        if (strstr(call, takers[i]))
            return USM_E_NO_MEMORY;
    return USM_E_DEVICE;
}

usm_status usm__hook_enter(const char *backend, const char *call, uint64_t *start_ns)
{
    usm_status status = usual_failure(call);

    *start_ns = usm__hooks.trace ? usm__os_now_ns() : 0;
    if (usm__hooks.nslow)
        sleep_for(call);
    if (strchr(call, '!') || !usm__fault_hit(call, &status))
        return USM_OK;
    return usm__fail(status, "%s of backend %s was made to fail by a fault hook", call, backend);
}

void usm__hook_leave(const char *backend, const char *call, uint64_t start_ns, size_t size,
                     usm_status status)
{
    if (!usm__hooks.trace)
        return;
    usm__log(USM__LOG_HOOK, "%s.%s size=%zu %s %.1f us", backend, call, size,
             usm_status_name(status),
             start_ns ? (double)(usm__os_now_ns() - start_ns) / 1000.0 : 0.0);
}

void usm__hook_block(const char *call, const void *p, size_t size)
{
    if (usm__hooks.trace)
        usm__log(USM__LOG_HOOK, "%s %p size=%zu", call, p, size);
}
