/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The page map's readers and writers; pages.h has the picture and the invariant.
 *
 * Who writes what.  Entries for areas are written under `lock`.  Entries for spans are written
 * without it, by the pool that has the area: nobody else writes the entries of these pages, because
 * an area of slab's consists of whole pages, which it shares with no other area.  Leaves are made
 * by both: if two threads need the same one, both map one, and the slower thread unmaps its own.
 *
 * Why readers need no lock.  Leaves, spans and area descriptors are type-stable (never unmapped),
 * so a walk that loses a race reads outdated words at worst.  A thread that asks for a block that
 * is live has learned its address from the thread that allocated it, hence sees the entries that
 * were written before.  Until the block is freed nothing replaces an entry that leads to it:
 *
 *   - a span's entries and those in `mega` and `giga` belong to that span's or area's addresses
 *     alone;
 *   - an entry of an area in `page` may be shared, see below.
 *
 * So the first entry that is not 0, one load each, is the answer, and no counter is read.
 *
 * Pages with several areas.  Drivers that use malloc (PoCL) put several areas into one page.  Areas
 * that share their first or last page are chained through next_first / next_last.  An area shares
 * at most these two pages, so two links are enough.  A chain changes while one of its areas is in
 * use, and an area that left it may be in another chain a moment later.  Readers of a chain
 * therefore repeat the walk if `sequence` was odd or has changed: a writer changes links, lo and hi
 * only while it is odd.  A chain is walked for a bounded number of steps, because one that changes
 * may be circular for a moment. */
#include "heap/pages.h"

#include "base/fork.h"
#include "base/inline/bits.h"
#include "base/os.h"
#include "base/status.h"

#define PAGE       ((uintptr_t)1 << USM__PAGE_SHIFT)
#define MEGA       ((uintptr_t)1 << USM__MEGA_SHIFT)
#define GIGA       ((uintptr_t)1 << 30)
#define LEAF_PAGES ((size_t)1 << USM__LEAF_BITS)
#define LEAF_MEGAS (GIGA / MEGA)
#define ROOT_SIZE  ((size_t)1 << USM__ROOT_BITS)
#define HIGH_HALF  ((uintptr_t)0x1ffff) /* all bits from 47 on are set                       */
#define STEPS_MAX  4096 /* more than the number of areas that can begin in one page */

usm__page_half usm__page_low; /* atomic, each entry */

static struct {
    usm__mutex                lock;
    _Atomic(unsigned)         sequence;
    _Atomic(usm__page_half *) high; /* mapped at its first use */
} map = {.lock = USM__MUTEX_INIT(USM__RANK_MAP, "page map")};

/* ---- entries ------------------------------------------------------------------------ */

/* NULL: outside both halves, or the high half was never used. */
static usm__page_half *half_of(uintptr_t addr)
{
    if (addr >> 47 == 0)
        return &usm__page_low;
    return addr >> 47 == HIGH_HALF ? usm_load_acquire(&map.high) : NULL; /* pairs with make_high */
}

static _Atomic(usm__page_leaf *) *leaf_slot(usm__page_half *half, uintptr_t addr)
{
    return &half->leaf[(addr >> 30) & (ROOT_SIZE - 1)];
}

static usm__page_leaf *leaf_of(uintptr_t addr)
{
    usm__page_half *half = half_of(addr);

    return half ? usm_load_acquire(leaf_slot(half, addr)) : NULL;
}

static usm__page_entry *page_in(usm__page_leaf *leaf, uintptr_t addr)
{
    return &leaf->page[(addr >> USM__PAGE_SHIFT) & (LEAF_PAGES - 1)];
}

static size_t mega_index(uintptr_t addr)
{
    return (addr >> USM__MEGA_SHIFT) & (LEAF_MEGAS - 1);
}

static usm__page_entry *giga_in(usm__page_half *half, uintptr_t addr)
{
    return &half->giga[(addr >> 30) & (ROOT_SIZE - 1)];
}

/* NULL: the entry is 0. */
static usm__area *area_of(uintptr_t entry)
{
    usm_span *span = usm__page_span(entry);

    return span ? usm__page_area(span) : (usm__area *)(entry & ~USM__AREA_TAG);
}

static uintptr_t entry_of(const usm__area *a)
{
    return a ? (uintptr_t)a | USM__AREA_TAG : 0;
}

usm_span *usm__page_find_high(const void *p)
{
    usm__page_leaf *leaf = leaf_of((uintptr_t)p);

    return leaf ? usm__page_span(usm_load_acquire(page_in(leaf, (uintptr_t)p))) : NULL;
}

/* ---- readers of areas ----------------------------------------------------------------- */

static usm__area *next_in_page(usm__area *a, uintptr_t page)
{
    uintptr_t lo = usm_load_relaxed(&a->lo);

    return usm_load_acquire((lo & ~(PAGE - 1)) == page ? &a->next_first : &a->next_last);
}

static usm__area *walk_chain(usm__area *a, uintptr_t addr)
{
    for (int i = 0; a && i < STEPS_MAX; i++) {
        if (addr >= usm_load_relaxed(&a->lo) && addr < usm_load_relaxed(&a->hi))
            return a;
        a = next_in_page(a, addr & ~(PAGE - 1));
    }
    return NULL;
}

/* The page had the entry of an area, which may be the first of several; meanwhile it may have got a
 * span. */
static usm__area *find_in_page(const usm__page_entry *page, uintptr_t addr)
{
    unsigned   before, after;
    uintptr_t  entry;
    usm__area *a;

    do {
        before = usm_load_acquire(&map.sequence); /* pairs with the stores in change_* */
        entry  = usm_load_acquire(page);
        a      = usm__page_span(entry) ? area_of(entry) : walk_chain(area_of(entry), addr);
        atomic_thread_fence(memory_order_acquire);
        after = usm_load_relaxed(&map.sequence);
    } while ((before & 1) != 0 || before != after);
    return a;
}

usm__area *usm__map_find(const void *p)
{
    uintptr_t       addr = (uintptr_t)p, entry;
    usm__page_half *half = half_of(addr);
    usm__page_leaf *leaf = half ? usm_load_acquire(leaf_slot(half, addr)) : NULL;

    if (leaf) {
        entry = usm_load_acquire(page_in(leaf, addr));
        if (usm__page_span(entry))
            return area_of(entry);
        if (entry)
            return find_in_page(page_in(leaf, addr), addr);
        entry = usm_load_acquire(&leaf->mega[mega_index(addr)]);
        if (entry)
            return area_of(entry);
    }
    return half ? area_of(usm_load_acquire(giga_in(half, addr))) : NULL;
}

/* ---- tables -------------------------------------------------------------------------- */

static void make_high(void)
{
    usm__page_half *none = NULL, *half;

    if (usm_load_acquire(&map.high))
        return;
    half = usm__os_map_noreserve(sizeof *half);
    if (half && !usm_cas_acq_rel(&map.high, &none, half))
        (void)usm__os_unmap(half, sizeof *half);
}

static usm__page_half *make_half(uintptr_t addr)
{
    if (addr >> 47 != 0)
        make_high();
    return half_of(addr);
}

/* Returns the leaf of an address, which is made if necessary; NULL: no memory. */
static usm__page_leaf *make_leaf(uintptr_t addr)
{
    usm__page_half *half = make_half(addr);
    usm__page_leaf *leaf = half ? usm_load_acquire(leaf_slot(half, addr)) : NULL;
    usm__page_leaf *mine;

    if (leaf || !half)
        return leaf;
    mine = usm__os_map_noreserve(sizeof *mine);
    if (!mine)
        return leaf_of(addr); /* another thread may have succeeded */
    if (usm_cas_acq_rel(leaf_slot(half, addr), &leaf, mine))
        return mine;
    (void)usm__os_unmap(mine, sizeof *mine);
    return leaf;
}

static usm_status no_table_for(uintptr_t addr)
{
    return usm__fail(USM_E_NO_MEMORY,
                     "no host memory for the page map, in which libusm finds the block of %p",
                     (void *)addr);
}

typedef struct range {
    uintptr_t lo, last; /* first and last byte */
} range;

static bool covers(range r, uintptr_t addr, uintptr_t step)
{
    uintptr_t base = addr & ~(step - 1);

    return base >= r.lo && base + (step - 1) <= r.last;
}

/* ---- writers of areas: one at a time ------------------------------------------------------ */

static void change_begin(void)
{
    unsigned s = usm_load_relaxed(&map.sequence);

    usm_store_relaxed(&map.sequence, s + 1);
    atomic_thread_fence(memory_order_release);
}

static void change_end(void)
{
    unsigned s = usm_load_relaxed(&map.sequence);

    usm_store_release(&map.sequence, s + 1);
}

/* Iterates over the entries of a range: of 1 GiB or 2 MiB where the range covers all of it,
 * otherwise of a page.  The tables exist. */
typedef struct cursor {
    range            r;
    uintptr_t        at, step;
    usm__page_entry *entry; /* NULL: before the first */
} cursor;

static bool cursor_next(cursor *c)
{
    if (c->entry) {
        uintptr_t last = (c->at & ~(c->step - 1)) + (c->step - 1);

        if (last >= c->r.last)
            return false;
        c->at = last + 1;
    }
    c->step = covers(c->r, c->at, GIGA) ? GIGA : covers(c->r, c->at, MEGA) ? MEGA : PAGE;
    if (c->step == GIGA)
        c->entry = giga_in(half_of(c->at), c->at);
    else if (c->step == MEGA)
        c->entry = &leaf_of(c->at)->mega[mega_index(c->at)];
    else
        c->entry = page_in(leaf_of(c->at), c->at);
    return true;
}

static cursor cursor_over(range r)
{
    return (cursor){.r = r, .at = r.lo};
}

/* Only the first and the last GiB of a range can need a leaf. */
static bool make_tables(range r)
{
    return make_half(r.lo) && (covers(r, r.lo, GIGA) || make_leaf(r.lo)) &&
           (covers(r, r.last, GIGA) || make_leaf(r.last));
}

static usm__area *overlap_in_page(uintptr_t entry, uintptr_t page, range r)
{
    for (usm__area *a = area_of(entry); a; a = next_in_page(a, page))
        if (usm_load_relaxed(&a->lo) <= r.last && usm_load_relaxed(&a->hi) > r.lo)
            return a;
    return NULL;
}

/* Of the 2 MiB at `addr`. */
static usm__area *overlap_in_mega(usm__page_leaf *leaf, uintptr_t addr, range r)
{
    uintptr_t  last  = usm_min_size(r.last, addr | (MEGA - 1)) & ~(PAGE - 1);
    usm__area *found = area_of(usm_load_relaxed(&leaf->mega[mega_index(addr)]));

    if (leaf->parts[mega_index(addr)] == 0)
        return found;
    for (uintptr_t page = usm_max_size(r.lo, addr) & ~(PAGE - 1); !found; page += PAGE) {
        found = overlap_in_page(usm_load_relaxed(page_in(leaf, page)), page, r);
        if (page == last)
            break;
    }
    return found;
}

/* Of the GiB at `addr`. */
static usm__area *overlap_in_giga(uintptr_t addr, range r)
{
    usm__area      *found = area_of(usm_load_relaxed(giga_in(half_of(addr), addr)));
    usm__page_leaf *leaf  = leaf_of(addr);
    uintptr_t       last  = usm_min_size(r.last, addr | (GIGA - 1)) & ~(MEGA - 1);

    for (uintptr_t at = usm_max_size(r.lo, addr) & ~(MEGA - 1); leaf && !found; at += MEGA) {
        found = overlap_in_mega(leaf, at, r);
        if (at == last)
            break;
    }
    return found;
}

static usm__area *find_overlap(range r)
{
    usm__area *found = NULL;

    for (uintptr_t at = r.lo & ~(GIGA - 1); !found; at += GIGA) {
        found = overlap_in_giga(at, r);
        if (at == (r.last & ~(GIGA - 1)))
            break;
    }
    return found;
}

/* The link through which `a` continues the chain of `page`. */
static _Atomic(usm__area *) *link_in(usm__area *a, uintptr_t page)
{
    return (usm_load_relaxed(&a->lo) & ~(PAGE - 1)) == page ? &a->next_first : &a->next_last;
}

/* Counts an area that comes (1) or goes (-1), once for each 2 MiB. */
static void count_part(const cursor *c, int n)
{
    if (c->at == c->r.lo || (c->at & (MEGA - 1)) == 0)
        leaf_of(c->at)->parts[mega_index(c->at)] += (uint32_t)n;
}

static void link_area(usm__area *a, range r)
{
    cursor c = cursor_over(r);

    while (cursor_next(&c)) {
        usm__area *head = c.step == PAGE ? area_of(usm_load_relaxed(c.entry)) : NULL;

        if (c.step == PAGE)
            count_part(&c, 1);
        /* Pages in the middle belong to a alone: only its first and last page may have a chain. */
        if (head)
            usm_store_release(link_in(a, c.at & ~(PAGE - 1)), head);
        usm_store_release(c.entry, entry_of(a));
    }
}

static void unlink_from_page(usm__area *a, usm__page_entry *entry, uintptr_t page)
{
    usm__area *it   = area_of(usm_load_relaxed(entry));
    usm__area *next = usm_load_relaxed(link_in(a, page));

    if (it == a) {
        usm_store_release(entry, entry_of(next));
        return;
    }
    for (; it; it = usm_load_relaxed(link_in(it, page)))
        if (usm_load_relaxed(link_in(it, page)) == a) {
            usm_store_release(link_in(it, page), next);
            return;
        }
}

static void unlink_area(usm__area *a, range r)
{
    cursor c = cursor_over(r);

    while (cursor_next(&c)) {
        uintptr_t page = c.at & ~(PAGE - 1);
        bool      edge = page == (r.lo & ~(PAGE - 1)) || page == (r.last & ~(PAGE - 1));

        if (c.step == PAGE)
            count_part(&c, -1);
        if (c.step == PAGE && edge)
            unlink_from_page(a, c.entry, page);
        else
            usm_store_release(c.entry, (uintptr_t)0);
    }
}

static bool is_mappable(range r)
{
    uintptr_t top = r.lo >> 47;

    return r.last >= r.lo && (top == 0 || top == HIGH_HALF) && r.last >> 47 == top;
}

usm_status usm__map_insert(usm__area *a, const usm__area **other)
{
    uintptr_t  lo = (uintptr_t)a->view.base;
    range      r  = {lo, lo + (a->view.size - 1)};
    usm_status st = USM_OK;

    if (!is_mappable(r))
        return usm__fail(USM_E_DEVICE, "the driver returned %p, beyond 48 bits of address",
                         a->view.base);
    usm__mutex_lock(&map.lock);
    if (!make_tables(r))
        st = no_table_for(r.lo);
    else if ((*other = find_overlap(r)) != NULL)
        st =
            usm__fail(USM_E_ADDRESS_TAKEN, "the driver returned %p, which is in use", a->view.base);
    if (st == USM_OK) {
        change_begin();
        usm_store_relaxed(&a->lo, r.lo);
        usm_store_relaxed(&a->hi, r.last + 1);
        usm_store_relaxed(&a->next_first, NULL);
        usm_store_relaxed(&a->next_last, NULL);
        link_area(a, r);
        change_end();
    }
    usm__mutex_unlock(&map.lock);
    return st;
}

void usm__map_remove(usm__area *a)
{
    usm__mutex_lock(&map.lock);
    change_begin();
    unlink_area(a, (range){usm_load_relaxed(&a->lo), usm_load_relaxed(&a->hi) - 1});
    usm_store_relaxed(&a->lo, (uintptr_t)0);
    usm_store_relaxed(&a->hi, (uintptr_t)0);
    change_end();
    usm__mutex_unlock(&map.lock);
}

void usm__map_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&map.lock, phase);
}

/* ---- writers of spans: without the lock ---------------------------------------------------- */

/* Of the n pages from `at` on, those in its leaf. */
static size_t pages_in_leaf(uintptr_t at, size_t n)
{
    return usm_min_size(n, LEAF_PAGES - ((at >> USM__PAGE_SHIFT) & (LEAF_PAGES - 1)));
}

/* All or none: no page is changed unless every leaf exists. */
static bool make_leaves(uintptr_t at, size_t n)
{
    for (size_t step; n > 0; at += step << USM__PAGE_SHIFT, n -= step) {
        step = pages_in_leaf(at, n);
        if (!make_leaf(at))
            return false;
    }
    return true;
}

/* The entry of a page of the area without a span. */
static uintptr_t bare_entry(const usm__area *a, uintptr_t at)
{
    range r = {usm_load_relaxed(&a->lo), usm_load_relaxed(&a->hi) - 1};

    return covers(r, at, MEGA) ? 0 : entry_of(a);
}

static __attribute__((noinline)) usm_status set_pages(usm_area *area, uintptr_t at, size_t n,
                                                      usm_span *span)
{
    const usm__area *a = usm_container_of(area, usm__area, view);

    if (span && !make_leaves(at, n))
        return no_table_for(at);
    for (; n > 0; at += PAGE, n--) {
        usm__page_leaf *leaf = leaf_of(at);

        if (leaf)
            usm_store_release(page_in(leaf, at), span ? (uintptr_t)span : bare_entry(a, at));
    }
    return USM_OK;
}

/* One page of user space is what a large block needs; the rest is apart, so that this saves no
 * registers. */
usm_status usm__pages_set(usm_area *area, uintptr_t at, size_t n, usm_span *span)
{
    const usm__area *a = usm_container_of(area, usm__area, view);
    usm__page_leaf  *leaf;

    if (n > 1 || at >> 47 || !(leaf = usm_load_acquire(leaf_slot(&usm__page_low, at))))
        return set_pages(area, at, n, span);
    usm_store_release(page_in(leaf, at), span ? (uintptr_t)span : bare_entry(a, at));
    return USM_OK;
}

void usm__pages_discard(uintptr_t at, size_t size)
{
    for (size_t n = size >> USM__PAGE_SHIFT, step; n > 0;
         at += step << USM__PAGE_SHIFT, n -= step) {
        usm__page_leaf *leaf = leaf_of(at);

        step = pages_in_leaf(at, n);
        if (leaf)
            usm__os_discard(page_in(leaf, at), step * sizeof leaf->page[0]);
    }
}
