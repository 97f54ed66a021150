/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The address map: from any pointer to the area it lies in, without a lock.
 *
 * A radix tree over the low 48 bits of an address:
 *
 *     root[addr >> 30] -> area that covers all of the GiB
 *                      or giga[(addr >> 21) & 511] -> area that covers all 2 MiB
 *                                                  or mega[(addr >> 12) & 511] -> area
 *
 * A reserved range of 64 GiB therefore takes only some hundred stores.
 *
 * Drivers that use malloc (PoCL) put several areas into one page: areas that share their first or
 * last page are chained through next_first / next_last.  An area shares at most these two pages, so
 * two links are enough.
 *
 * Readers take no lock: they read `sequence`, walk the tree, and repeat if it was odd or has
 * changed.  Tables and area descriptors are type-stable (never unmapped), so a walk that loses a
 * race reads outdated words at worst; chains are walked for a bounded number of steps for the same
 * reason.  A writer changes links only while the sequence is odd.
 *
 * The high half of the address space (bit 47 set, as in the addresses of some GPUs) has entries of
 * its own; an address whose top 17 bits are not all equal is refused.
 *
 * Invariant: area in the map <=> every page of [lo, hi) reaches it. */
#include "heap/area.h"

#include "base/fork.h"
#include "base/meta.h"
#include "base/os.h"

#define ROOT_BITS 18
#define SLOTS     512
#define PAGE      ((uintptr_t)4096)
#define MEGA      ((uintptr_t)2 << 20)
#define GIGA      ((uintptr_t)1 << 30)
#define STEPS_MAX 4096 /* more than the number of areas that can begin in one page */
#define TABLE_TAG ((uintptr_t)1)

typedef _Atomic(uintptr_t) slot_t; /* 0, an area, or TABLE_TAG | a table */

typedef struct table {
    slot_t slot[SLOTS];
} table;

static usm__meta_type table_type = USM__META_TYPE(table, 0, "address map");

static struct {
    usm__mutex        lock;
    _Atomic(unsigned) sequence;
    _Atomic(slot_t *) root; /* 2^18 entries, mapped at the first insertion     */
} map = {.lock = USM__MUTEX_INIT(USM__RANK_MAP, "address map")};

static bool is_mappable(uintptr_t lo, uintptr_t last)
{
    uintptr_t top = lo >> 47;

    return (top == 0 || top == 0x1ffff) && last >> 47 == top;
}

static slot_t *root_slot(uintptr_t addr)
{
    slot_t *root = usm_load_acquire(&map.root);

    return root ? &root[(addr >> 30) & (((uintptr_t)1 << ROOT_BITS) - 1)] : NULL;
}

static slot_t *slot_in(uintptr_t entry, uintptr_t addr, unsigned shift)
{
    return &((table *)(entry & ~TABLE_TAG))->slot[(addr >> shift) & (SLOTS - 1)];
}

static usm__area *first_at(uintptr_t addr)
{
    slot_t   *root = root_slot(addr);
    uintptr_t e    = root ? usm_load_acquire(root) : 0;

    if (e & TABLE_TAG)
        e = usm_load_acquire(slot_in(e, addr, 21));
    if (e & TABLE_TAG)
        e = usm_load_acquire(slot_in(e, addr, 12));
    return (usm__area *)e;
}

static usm__area *next_in_page(usm__area *a, uintptr_t page)
{
    uintptr_t lo = usm_load_relaxed(&a->lo);

    return usm_load_acquire((lo & ~(PAGE - 1)) == page ? &a->next_first : &a->next_last);
}

static usm__area *walk(uintptr_t addr)
{
    usm__area *a = first_at(addr);

    for (int i = 0; a && i < STEPS_MAX; i++) {
        if (addr >= usm_load_relaxed(&a->lo) && addr < usm_load_relaxed(&a->hi))
            return a;
        a = next_in_page(a, addr & ~(PAGE - 1));
    }
    return NULL;
}

usm__area *usm__map_find(const void *p)
{
    uintptr_t  addr = (uintptr_t)p;
    unsigned   before, after;
    usm__area *a;

    if (!is_mappable(addr, addr))
        return NULL;
    do {
        before = usm_load_acquire(&map.sequence); /* pairs with the stores in change_* */
        a      = walk(addr);
        atomic_thread_fence(memory_order_acquire);
        after = usm_load_relaxed(&map.sequence);
    } while ((before & 1) != 0 || before != after);
    return a;
}

/* ---- writers: one at a time -------------------------------------------------- */

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

static bool make_root(void)
{
    void *p;

    if (usm_load_relaxed(&map.root))
        return true;
    p = usm__os_map_noreserve(sizeof(slot_t) << ROOT_BITS);
    if (!p)
        return false;
    usm_store_release(&map.root, (slot_t *)p);
    return true;
}

typedef struct range {
    uintptr_t lo, last; /* first and last byte */
} range;

/* Iterates over the slots of [lo, hi): of 1 GiB or 2 MiB where the range covers all of it and the
 * slot is not split, otherwise of a page. */
typedef struct cursor {
    uintptr_t at, end; /* end: the last byte */
    slot_t   *slot;
    uintptr_t step;
} cursor;

static bool cursor_next(cursor *c)
{
    uintptr_t e;

    if (c->slot) {
        uintptr_t base = c->at & ~(c->step - 1);

        if (base + (c->step - 1) >= c->end)
            return false;
        c->at = base + c->step;
    }
    c->slot = root_slot(c->at);
    c->step = GIGA;
    e       = usm_load_relaxed(c->slot);
    if (e & TABLE_TAG) {
        c->slot = slot_in(e, c->at, 21);
        c->step = MEGA;
        e       = usm_load_relaxed(c->slot);
    }
    if (e & TABLE_TAG) {
        c->slot = slot_in(e, c->at, 12);
        c->step = PAGE;
    }
    return true;
}

/* Splits the slot of `step` bytes at `at` into a table, unless `all` covers it.  An occupied slot
 * stays as it is: find_overlap() reports it later. */
static bool split(slot_t *slot, uintptr_t at, uintptr_t step, range all)
{
    uintptr_t base = at & ~(step - 1);
    table    *made;

    if (usm_load_relaxed(slot) != 0 || (base >= all.lo && base + (step - 1) <= all.last))
        return true;
    made = usm__meta_alloc(&table_type);
    if (!made)
        return false;
    usm_store_release(slot, (uintptr_t)made | TABLE_TAG);
    return true;
}

/* If it fails, the tables made so far stay. */
static bool make_tables(range all)
{
    for (uintptr_t at = all.lo, step;; at = (at & ~(step - 1)) + step) {
        slot_t *slot = root_slot(at);

        step = GIGA;
        if (!split(slot, at, step, all))
            return false;
        if (usm_load_relaxed(slot) & TABLE_TAG) {
            step = MEGA;
            if (!split(slot_in(usm_load_relaxed(slot), at, 21), at, step, all))
                return false;
        }
        if ((at & ~(step - 1)) + (step - 1) >= all.last)
            return true;
    }
}

static usm__area *find_overlap(uintptr_t lo, uintptr_t last)
{
    cursor c = {lo, last, NULL, 0};

    while (cursor_next(&c)) {
        usm__area *a = (usm__area *)usm_load_relaxed(c.slot);

        for (; a; a = next_in_page(a, c.at & ~(PAGE - 1)))
            if (usm_load_relaxed(&a->lo) <= last && usm_load_relaxed(&a->hi) > lo)
                return a;
    }
    return NULL;
}

/* The link through which `a` continues the chain of `page`. */
static _Atomic(usm__area *) *link_in(usm__area *a, uintptr_t page)
{
    return (usm_load_relaxed(&a->lo) & ~(PAGE - 1)) == page ? &a->next_first : &a->next_last;
}

static void link_area(usm__area *a, uintptr_t lo, uintptr_t last)
{
    cursor c = {lo, last, NULL, 0};

    while (cursor_next(&c)) {
        usm__area *head = (usm__area *)usm_load_relaxed(c.slot);

        /* Pages in the middle belong to a alone: only its first and last page may have a chain. */
        if (head)
            usm_store_release(link_in(a, c.at & ~(PAGE - 1)), head);
        usm_store_release(c.slot, (uintptr_t)a);
    }
}

static void unlink_from_page(usm__area *a, slot_t *slot, uintptr_t page)
{
    usm__area *it   = (usm__area *)usm_load_relaxed(slot);
    usm__area *next = usm_load_relaxed(link_in(a, page));

    if (it == a) {
        usm_store_release(slot, (uintptr_t)next);
        return;
    }
    for (; it; it = usm_load_relaxed(link_in(it, page)))
        if (usm_load_relaxed(link_in(it, page)) == a) {
            usm_store_release(link_in(it, page), next);
            return;
        }
}

static void unlink_area(usm__area *a, uintptr_t lo, uintptr_t last)
{
    cursor c = {lo, last, NULL, 0};

    while (cursor_next(&c)) {
        uintptr_t page = c.at & ~(PAGE - 1);
        bool      edge = page == (lo & ~(PAGE - 1)) || page == (last & ~(PAGE - 1));

        if (c.step == PAGE && edge)
            unlink_from_page(a, c.slot, page);
        else
            usm_store_release(c.slot, (uintptr_t)0);
    }
}

usm_status usm__map_insert(usm__area *a, const usm__area **other)
{
    uintptr_t  lo = (uintptr_t)a->view.base, last = lo + (a->view.size - 1);
    usm_status st = USM_OK;

    if (last < lo || !is_mappable(lo, last))
        return usm__fail(USM_E_DEVICE, "the driver returned %p, beyond 48 bits of address",
                         a->view.base);
    usm__mutex_lock(&map.lock);
    if (!make_root() || !make_tables((range){lo, last}))
        st = usm__fail(USM_E_NO_MEMORY, "no host memory for the address map");
    else if ((*other = find_overlap(lo, last)) != NULL)
        st =
            usm__fail(USM_E_ADDRESS_TAKEN, "the driver returned %p, which is in use", a->view.base);
    if (st == USM_OK) {
        change_begin();
        usm_store_relaxed(&a->lo, lo);
        usm_store_relaxed(&a->hi, last + 1);
        usm_store_relaxed(&a->next_first, NULL);
        usm_store_relaxed(&a->next_last, NULL);
        link_area(a, lo, last);
        change_end();
    }
    usm__mutex_unlock(&map.lock);
    return st;
}

void usm__map_remove(usm__area *a)
{
    usm__mutex_lock(&map.lock);
    change_begin();
    unlink_area(a, usm_load_relaxed(&a->lo), usm_load_relaxed(&a->hi) - 1);
    usm_store_relaxed(&a->lo, (uintptr_t)0);
    usm_store_relaxed(&a->hi, (uintptr_t)0);
    change_end();
    usm__mutex_unlock(&map.lock);
}

void usm__map_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&map.lock, (int)phase);
}
