/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Chains, clocks and the knowledge of the host: see order_clock.h.  The objects that are ordered,
 * commands and blocks, are in order_check.c and order_block.c. */
#include "observe/order_clock.h"

#include "base/fault.h"
#include "base/os.h"
#include "observe/order_state.h"

bool usm__order_grow(void *list, size_t *cap, size_t n, size_t size)
{
    bool has_room;

    usm__fault_benign_begin(); /* faults are not injected into the checker */
    has_room = usm__heap_room(list, n, cap, size);
    usm__fault_benign_end();
    return has_room;
}

/* ---- chains ----------------------------------------------------------------------- */

static bool is_free(const usm__chain *c)
{
    return !c->is_owned && c->known >= c->last;
}

/* Finds a chain without unfinished ticks; examines only a few at each call. */
static bool find_free(uint32_t *found)
{
    for (uint32_t i = 0; i < 8 && i < usm__order.chains.n; i++) {
        uint32_t at = (usm__order.chains.hand + i) % usm__order.chains.n;

        if (is_free(&usm__order.chains.list[at])) {
            usm__order.chains.hand = at + 1;
            *found                 = at;
            return true;
        }
    }
    usm__order.chains.hand += 8;
    return false;
}

bool usm__chain_new(bool is_user, uint32_t *made)
{
    if (!find_free(made)) {
        if (!usm__order_grow(&usm__order.chains.list, &usm__order.chains.cap, usm__order.chains.n,
                             sizeof *usm__order.chains.list))
            return false;
        *made                         = usm__order.chains.n++;
        usm__order.chains.list[*made] = (usm__chain){0};
    }
    usm__order.chains.list[*made].is_owned = true;
    usm__order.chains.list[*made].is_user  = is_user;
    return true;
}

void usm__chain_drop(uint32_t c)
{
    usm__order.chains.list[c].is_owned = false;
}

usm__tick usm__chain_next(uint32_t c)
{
    return (usm__tick){c, ++usm__order.chains.list[c].last};
}

usm__tick usm__chain_last(uint32_t c)
{
    return (usm__tick){c, usm__order.chains.list[c].last};
}

/* ---- the host --------------------------------------------------------------------- */

bool usm__order_host_knows(usm__tick t)
{
    return t.at == 0 || usm__order.chains.list[t.chain].known >= t.at;
}

void usm__order_host_learns_tick(usm__tick t)
{
    if (!usm__order_host_knows(t))
        usm__order.chains.list[t.chain].known = t.at;
}

void usm__order_host_learns(const usm__clock *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        usm__order_host_learns_tick(c->tick[i]);
}

void usm__order_host_knows_all(void)
{
    for (uint32_t i = 0; i < usm__order.chains.n; i++)
        usm__order.chains.list[i].known = usm__order.chains.list[i].last;
}

/* ---- clocks ----------------------------------------------------------------------- */

/* Removes the ticks that the host knows to have ended. */
static void prune(usm__clock *c)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n; i++)
        if (!usm__order_host_knows(c->tick[i]))
            c->tick[n++] = c->tick[i];
    c->n = n;
}

bool usm__clock_raise(usm__clock *c, usm__tick t)
{
    if (usm__order_host_knows(t))
        return true;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->tick[i].chain == t.chain) {
            if (c->tick[i].at < t.at)
                c->tick[i].at = t.at;
            return true;
        }
    if (!usm__order_grow(&c->tick, &c->cap, c->n, sizeof *c->tick))
        return false;
    c->tick[c->n++] = t;
    return true;
}

bool usm__clock_join(usm__clock *c, const usm__clock *other)
{
    prune(c);
    c->is_foreign |= other->is_foreign;
    for (uint32_t i = 0; i < other->n; i++)
        if (!usm__clock_raise(c, other->tick[i]))
            return false;
    return true;
}

bool usm__clock_set(usm__clock *c, const usm__clock *other)
{
    c->n          = 0;
    c->is_foreign = false;
    return usm__clock_join(c, other);
}

bool usm__clock_has(const usm__clock *c, usm__tick t)
{
    if (usm__order_host_knows(t))
        return true;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->tick[i].chain == t.chain)
            return c->tick[i].at >= t.at;
    return false;
}

bool usm__clock_is_open(const usm__clock *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (usm__order.chains.list[c->tick[i].chain].is_user && !usm__order_host_knows(c->tick[i]))
            return true;
    return false;
}

void usm__clock_fini(usm__clock *c)
{
    usm__heap_free(c->tick);
    *c = (usm__clock){0};
}
