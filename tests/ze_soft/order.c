/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which command is next.  Called by engine.c.
 *
 * Commands of a list without the in-order flag may be done in any order between barriers, and this
 * driver does them in the order of their appends, as most do.  ZE_SOFT_REORDER=1 finds programs
 * that rely on it: then any command is next whose events are signalled and that depends on none
 * before it. ZE_SOFT_SEED picks among them: the same seed, the same order; 0: always the last.
 *
 * B, appended after A, must come after A when one of them is a barrier, when A is a wait of the
 * list for events, or when both use an event that one of them signals, resets or reads. */
#include "exec.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool           is_random;
static uint64_t       seed;

static void read_knobs(void)
{
    is_random = soft_knob("REORDER", 0) != 0;
    seed      = soft_knob("SEED", 1);
}

bool exec_order_is_random(void)
{
    pthread_once(&once, read_knobs);
    return is_random;
}

static bool uses(const exec_cmd *cmd, const exec_cell *cell)
{
    for (uint32_t i = 0; i < cmd->nwaits + cmd->nothers; i++)
        if (cmd->points[i].cell == cell)
            return true;
    return cmd->signal.cell == cell;
}

/* Whether b uses an event that a signals, resets or reads. */
static bool touches(const exec_cmd *a, const exec_cmd *b)
{
    for (uint32_t i = a->nwaits; i < a->nwaits + a->nothers; i++)
        if (uses(b, a->points[i].cell))
            return true;
    return a->signal.store && uses(b, a->signal.cell);
}

static bool depends(const exec_cmd *later, const exec_cmd *earlier)
{
    return later->kind->is_fence || earlier->kind->is_fence || earlier->kind->holds ||
           touches(earlier, later) || touches(later, earlier);
}

static bool may_be_next(exec_cmd *const *cmds, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (depends(cmds[i], cmds[j]))
            return false;
    return exec_cmd_is_ready(cmds[i]);
}

/* xorshift64 */
static uint64_t draw(uint64_t *rng)
{
    uint64_t x = *rng ? *rng : seed * 0x9e3779b97f4a7c15u + 1;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *rng = x;
    return x;
}

size_t exec_order_next(exec_cmd *const *cmds, size_t n, uint64_t *rng)
{
    size_t next = 0, seen = 0;

    if (!exec_order_is_random())
        return 0;
    /* One of those seen so far, each as likely as the others. */
    for (size_t i = 0; i < n; i++)
        if (may_be_next(cmds, i) && (++seen == 1 || !seed || draw(rng) % seen == 0))
            next = i;
    return next;
}
