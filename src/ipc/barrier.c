/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The barrier of a channel: every living member leaves it with the same answer, even if members end
 * while they are in it.  Called by channel.c; the page is described in channel.h.
 *
 * Calls are counted, 1, 2, ...  A member arrives by writing the number into `arrived`.  The member
 * that then sees that all have arrived, except those that have gone, writes a verdict (which
 * members have gone so far) into its own part of the page, and tries to make it the valid one, by
 * one exchange of `decided`:
 *
 *     decided = call << 10 | stage << 8 | rank of the member whose verdict is valid
 *
 *     call c - 1, END  ---------------------------------------->  call c, END
 *                      \-->  call c, ACROSS (if there is one)  --/
 *
 * In ACROSS the lowest rank that has not gone runs across(), and then proposes the end.  If it ends
 * instead, the others propose an end that says so.
 *
 * Why one word is enough.  Nobody can propose for call c before every living member has arrived
 * there, and none arrives before it has read the verdict of c - 1: so a verdict is not overwritten
 * while somebody reads it.  A member that ends before its exchange has changed nothing; after the
 * exchange the verdict stays in the page.  If it ends between its exchange and waking the others,
 * they learn of its end from the kernel, and look again.
 *
 * A member counts as gone if the kernel reported its end to this process, if it wrote that it
 * closed, or if an earlier verdict says so: other members may learn of an end before this one. */
#include "base/os.h"
#include "ipc/channel.h"

enum { ACROSS = 1, END = 2 };

static uint64_t make_decided(uint64_t call, unsigned stage, uint32_t rank)
{
    return call << 10 | (uint64_t)stage << 8 | rank;
}

/* Comparable: later stages are larger. */
static uint64_t stage_of(uint64_t decided)
{
    return decided >> 8;
}

static const usm__channel_verdict *verdict_of(const usm_ipc_channel *ch, uint64_t decided)
{
    const unsigned stage = (unsigned)(decided >> 8 & 3);

    return &ch->page->members[decided & 255].verdict[stage - 1];
}

static bool has_gone(const usm_ipc_channel *ch, uint32_t rank)
{
    if (rank == ch->rank)
        return false;
    return usm__channel_ranks_have(&ch->agreed, rank) ||
           usm_load_acquire(&ch->peers[rank].has_ended) ||
           usm_load_acquire(&ch->page->members[rank].has_closed);
}

/* Whether all have arrived that have not gone.  If two arrive at the same time, at least one sees
 * the other: each writes its own `arrived` first, and all of these accesses are sequentially
 * consistent. */
static bool all_here(const usm_ipc_channel *ch, usm__channel_ranks *gone)
{
    *gone = (usm__channel_ranks){{0}};
    for (uint32_t r = 0; r < ch->size; r++) {
        if (has_gone(ch, r))
            usm__channel_ranks_add(gone, r);
        else if (atomic_load(&ch->page->members[r].arrived) < ch->call)
            return false;
    }
    return true;
}

static uint32_t lowest(const usm_ipc_channel *ch, const usm__channel_ranks *gone)
{
    uint32_t rank = 0;

    while (rank < ch->size && usm__channel_ranks_have(gone, rank))
        rank++;
    return rank;
}

/* False if another member was faster, with any verdict. */
static bool propose(usm_ipc_channel *ch, uint64_t seen, unsigned stage,
                    const usm__channel_verdict *v)
{
    ch->page->members[ch->rank].verdict[stage - 1] = *v;
    return usm_cas_acq_rel(&ch->page->decided, &seen, make_decided(ch->call, stage, ch->rank));
}

static void begin_end(usm_ipc_channel *ch, uint64_t seen)
{
    usm__channel_verdict v = {.across = USM_OK};
    uint32_t             first;

    if (!all_here(ch, &v.gone))
        return;
    first = lowest(ch, &v.gone);
    if (ch->peers[first].has_across)
        (void)propose(ch, seen, ACROSS, &v);
    else
        (void)propose(ch, seen, END, &v);
    usm__bell_ring(&ch->page->bell);
}

/* While across() runs: in this process, or in one that may have ended. */
static void end_across(usm_ipc_channel *ch, uint64_t seen)
{
    usm__channel_verdict v     = *verdict_of(ch, seen);
    const uint32_t       first = lowest(ch, &v.gone);

    if (first == ch->rank) {
        const usm_status st = ch->across(ch->user);

        v.across = st < 0 ? st : USM_OK;
    } else if (has_gone(ch, first)) {
        usm__channel_ranks_add(&v.gone, first);
        v.across = USM_OK;
    } else {
        return;
    }
    (void)propose(ch, seen, END, &v);
    usm__bell_ring(&ch->page->bell);
}

static void spin(usm_ipc_channel *ch, uint64_t seen)
{
    uint64_t until;
    bool     has_come = false;

    if (!ch->may_spin)
        return;
    until = usm__os_now_ns() + usm__spin_ns(&ch->spin);
    while (!has_come && usm__os_now_ns() < until)
        for (int i = 0; i < 8 && !has_come; i++) {
            usm_cpu_relax();
            has_come = usm_load_acquire(&ch->page->decided) != seen;
        }
    usm__spin_result(&ch->spin, has_come);
}

void usm__channel_arrive(usm_ipc_channel *ch, uint32_t given, usm__channel_ranks *gone,
                         usm_status *across)
{
    usm__channel_page   *page  = ch->page;
    usm__channel_member *me    = &page->members[ch->rank];
    const uint64_t       end   = stage_of(make_decided(++ch->call, END, 0));
    bool                 is_in = false; /* it has spun, and is counted in the bell         */
    uint64_t             seen;

    me->given[ch->call & 1] = given;
    atomic_store(&me->arrived, ch->call);
    for (;;) {
        const uint32_t word = usm__bell_word(&page->bell);

        seen = usm_load_acquire(&page->decided);
        if (stage_of(seen) >= end)
            break;
        if (stage_of(seen) == end - 1)
            end_across(ch, seen);
        else
            begin_end(ch, seen);
        if (usm_load_acquire(&page->decided) != seen)
            continue;
        if (is_in) {
            (void)usm__bell_wait(&page->bell, word, USM__OS_NO_DEADLINE);
        } else {
            spin(ch, seen);
            usm__bell_enter(&page->bell);
            is_in = true;
        }
    }
    if (is_in)
        usm__bell_leave(&page->bell);
    *across = (usm_status)verdict_of(ch, seen)->across;
    for (unsigned i = 0; i < sizeof(gone->bits) / sizeof(gone->bits[0]); i++) {
        const uint64_t now = verdict_of(ch, seen)->gone.bits[i];

        gone->bits[i] = now & ~ch->agreed.bits[i];
        ch->agreed.bits[i] |= now;
    }
}
