/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tree of lifetimes: see order_block.h.  A treap of ranges that do not overlap.  If a range is
 * allocated again in other parts, its rest stays as a range of its own with the same uses.
 * order_check.c decides which command may use a block. */
#include "observe/order_block.h"

#include "base/fault.h"
#include "base/os.h"
#include "observe/order_state.h"

#include <string.h>

/* ---- uses ------------------------------------------------------------------------- */

void usm__order_uses_prune(usm__order_uses *u)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < u->n; i++)
        if (!usm__order_host_knows(u->use[i].tick))
            u->use[n++] = u->use[i];
    u->n = n;
}

bool usm__order_uses_add(usm__order_uses *u, usm__order_use use)
{
    if (usm__order_host_knows(use.tick))
        return true;
    for (uint32_t i = 0; i < u->n; i++)
        if (u->use[i].tick.chain == use.tick.chain) {
            if (u->use[i].tick.at < use.tick.at)
                u->use[i] = use;
            return true;
        }
    usm__order_uses_prune(u);
    if (!usm__order_grow(&u->use, &u->cap, u->n, sizeof *u->use))
        return false;
    u->use[u->n++] = use;
    return true;
}

static bool add_all(usm__order_uses *u, const usm__order_uses *more)
{
    for (uint32_t i = 0; i < more->n; i++)
        if (!usm__order_uses_add(u, more->use[i]))
            return false;
    return true;
}

/* ---- the tree --------------------------------------------------------------------- */

/* *less gets the ranges that begin below `at`. */
static void split(usm__life *t, uintptr_t at, usm__life **less, usm__life **rest)
{
    while (t) {
        if (t->lo < at) {
            *less = t;
            less  = &t->right;
            t     = t->right;
        } else {
            *rest = t;
            rest  = &t->left;
            t     = t->left;
        }
    }
    *less = *rest = NULL;
}

static usm__life *merge(usm__life *a, usm__life *b)
{
    usm__life *top = NULL, **at = &top;

    while (a && b) {
        if (a->order > b->order) {
            *at = a;
            at  = &a->right;
            a   = a->right;
        } else {
            *at = b;
            at  = &b->left;
            b   = b->left;
        }
    }
    *at = a ? a : b;
    return top;
}

static void insert(usm__life *life)
{
    usm__life *less, *rest;

    split(usm__order.lives, life->lo, &less, &rest);
    life->left = life->right = NULL;
    usm__order.lives         = merge(merge(less, life), rest);
}

static void remove_life(usm__life *life)
{
    usm__life *less, *rest, *one;

    split(usm__order.lives, life->lo, &less, &rest);
    split(rest, life->lo + 1, &one, &rest);
    usm__order.lives = merge(less, rest);
}

usm__life *usm__life_from(uintptr_t p)
{
    usm__life *best = NULL;

    for (usm__life *t = usm__order.lives; t;) {
        if (t->hi > p) {
            best = t;
            t    = t->left;
        } else {
            t = t->right;
        }
    }
    return best;
}

usm__life *usm__life_at(uintptr_t p)
{
    usm__life *life = usm__life_from(p);

    return life && life->lo <= p ? life : NULL;
}

/* ---- lives ------------------------------------------------------------------------ */

static usm__life *new_life(uintptr_t lo, uintptr_t hi)
{
    uint32_t   random = usm__order.random;
    usm__life *life;

    usm__fault_benign_begin();
    life = usm__heap_alloc(sizeof *life);
    usm__fault_benign_end();
    if (!life)
        return NULL;
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    usm__order.random = random;
    life->order       = random;
    life->lo          = lo;
    life->hi          = hi;
    usm_list_init(&life->freed);
    return life;
}

static void free_life(usm__life *life)
{
    usm_list_remove(&life->freed);
    usm__heap_free(life->uses.use);
    usm__heap_free(life->before.use);
    usm__heap_free(life);
}

/* The part [lo, hi) of a lifetime stays as it was. */
static bool keep_rest(const usm__life *of, uintptr_t lo, uintptr_t hi)
{
    usm__life *rest;

    if (lo >= hi)
        return true;
    rest = new_life(lo, hi);
    if (!rest)
        return false;
    rest->state = of->state == USM__LIFE_LIVE ? USM__LIFE_LIVE : USM__LIFE_OVER;
    rest->born  = of->born;
    if (!add_all(&rest->uses, &of->uses) || !add_all(&rest->before, &of->before)) {
        free_life(rest);
        return false;
    }
    insert(rest);
    return true;
}

/* Removes [lo, hi) from the ranges there; their uses go to `heir`, which may be NULL. */
static bool clear(uintptr_t lo, uintptr_t hi, usm__order_uses *heir)
{
    usm__life *life;
    bool       ok = true;

    while (ok && (life = usm__life_from(lo)) != NULL && life->lo < hi) {
        remove_life(life);
        usm__order_uses_prune(&life->uses);
        usm__order_uses_prune(&life->before);
        if (heir)
            ok = add_all(heir, &life->before) && add_all(heir, &life->uses);
        if (life->state == USM__LIFE_LIVE || life->uses.n + life->before.n > 0)
            ok = ok && keep_rest(life, life->lo, lo) && keep_rest(life, hi, life->hi);
        free_life(life);
    }
    return ok;
}

usm__life *usm__life_begin(uintptr_t lo, uintptr_t hi)
{
    usm__life *life = new_life(lo, hi);

    if (!life)
        return NULL;
    if (!clear(lo, hi, &life->before)) {
        free_life(life);
        return NULL;
    }
    insert(life);
    return life;
}

bool usm__life_forget(uintptr_t lo, uintptr_t hi)
{
    return clear(lo, hi, NULL);
}

static void settle(usm__life *t)
{
    while (t) {
        t->uses.n = t->before.n = 0;
        settle(t->left); /* recursion as deep as the treap is high */
        t = t->right;
    }
}

void usm__lives_settle(void)
{
    settle(usm__order.lives);
}
