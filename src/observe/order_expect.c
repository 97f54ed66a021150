/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The expected orders, and the log: see order_expect.h. */
#include "observe/order_expect.h"

#include "base/inline/atomic.h"
#include "base/log.h"
#include "observe/order_check.h"
#include "observe/order_state.h"

#include <stdio.h>

uint64_t usm__order_violations(void)
{
    return usm_load_relaxed(&usm__order.violations);
}

static bool is_checking(void)
{
    return (atomic_load(&usm__order.active) & USM__ORDER_CHECK) != 0;
}

void usm__order_count(void)
{
    if (is_checking())
        usm_add_relaxed(&usm__order.violations, (uint64_t)1);
}

/* ---- violations ------------------------------------------------------------------- */

const char *usm__order_use_name(const usm__order_use *u, char *text, size_t size)
{
    if (u->queue == 0)
        (void)snprintf(text, size, "the host");
    else if (u->number == 0)
        (void)snprintf(text, size, "the %s in queue %llu", u->what, (unsigned long long)u->queue);
    else
        (void)snprintf(text, size, "%s %llu of queue %llu", u->what, (unsigned long long)u->number,
                       (unsigned long long)u->queue);
    return text;
}

void usm__order_report(const char *why, uintptr_t p, const usm__order_use *by,
                       const usm__order_use *former)
{
    char             a[96], b[96];
    const usm__life *life = usm__life_at(p);
    unsigned long    size = life ? (unsigned long)(life->hi - life->lo) : 0;

    if (!is_checking())
        return;
    usm__order_count();
    usm__log(USM_LOG_ERROR, "USM_HOOKS=order: %s: %s%s%s (block %p, %lu bytes)", why,
             usm__order_use_name(by, a, sizeof a), former ? ", not ordered behind " : "",
             former ? usm__order_use_name(former, b, sizeof b) : "", (void *)(life ? life->lo : p),
             size);
}

static void free_one(usm__expected *e)
{
    usm__clock_fini(&e->clock);
}

static bool put_off(const usm__expected *p, const usm__clock *clock)
{
    usm__expected *made;

    if (!usm__order_grow(&usm__order.expected.list, &usm__order.expected.cap, usm__order.expected.n,
                         sizeof *usm__order.expected.list))
        return false;
    made        = &usm__order.expected.list[usm__order.expected.n];
    *made       = *p;
    made->clock = (usm__clock){0};
    if (!usm__clock_set(&made->clock, clock))
        return false;
    usm__order.expected.n++;
    return true;
}

bool usm__expect(const usm__clock *clock, const usm__expected *what)
{
    if (usm__clock_has(clock, what->former.tick) || clock->is_foreign)
        return true;
    if (usm__clock_is_open(clock))
        return put_off(what, clock);
    usm__order_report(what->why, what->p, &what->by, &what->former);
    return true;
}

bool usm__expect_all(const usm__clock *clock, const usm__order_uses *former, usm__expected what)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < former->n; i++) {
        what.former = former->use[i];
        ok          = usm__expect(clock, &what);
    }
    return ok;
}

void usm__expect_known(usm__order_uses *former, uintptr_t p, const char *why)
{
    usm__order_use host = {{0, 0}, "", 0, 0};

    usm__order_uses_prune(former);
    for (uint32_t i = 0; i < former->n; i++)
        usm__order_report(why, p, &host, &former->use[i]);
}

void usm__expect_look(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < usm__order.expected.n; i++) {
        usm__expected *p    = &usm__order.expected.list[i];
        bool           done = usm__order_host_knows(p->former.tick);

        if (!done && usm__clock_is_open(&p->clock)) {
            usm__order.expected.list[n++] = *p;
            continue;
        }
        if (!done)
            usm__order_report(p->why, p->p, &p->by, &p->former);
        free_one(p);
    }
    usm__order.expected.n = n;
}

void usm__expect_forget(usm__tick user)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < usm__order.expected.n; i++) {
        if (usm__clock_has(&usm__order.expected.list[i].clock, user))
            free_one(&usm__order.expected.list[i]);
        else
            usm__order.expected.list[n++] = usm__order.expected.list[i];
    }
    usm__order.expected.n = n;
}

void usm__expect_drop_all(void)
{
    for (uint32_t i = 0; i < usm__order.expected.n; i++)
        free_one(&usm__order.expected.list[i]);
    usm__order.expected.n = 0;
}
