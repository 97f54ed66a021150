/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tables of open accesses, and the search in those of all threads (buffer/slot.h).  Called by
 * access.c and track.c. */
#include "buffer/slot.h"

#include "base/meta.h"
#include "buffer/track.h"

static usm__meta_type table_type = USM__META_TYPE(usm__open_table, 0, "tables of open accesses");

USM__THREAD_LOCAL usm__open_table *usm__open_here;

static usm__open_table *take_free(void)
{
    for (usm__open_table *t = usm_load_acquire(&usm__tracking.tables); t; t = t->next) {
        bool is_free = true;

        if (usm_load_relaxed(&t->is_free) && usm_cas_acq_rel(&t->is_free, &is_free, false))
            return t;
    }
    return NULL;
}

static usm__open_table *make_table(void)
{
    usm__open_table *table = usm__meta_alloc(&table_type);

    if (!table)
        return NULL;
    table->next = usm_load_relaxed(&usm__tracking.tables);
    while (!usm_cas_acq_rel(&usm__tracking.tables, &table->next, table))
        ;
    return table;
}

usm__open_table *usm__slot_table(void)
{
    /* With a block, so that usm__slot_thread_ended() is called. */
    if (!usm__open_here && usm__thread_self())
        usm__open_here = take_free();
    if (!usm__open_here && usm__self.block)
        usm__open_here = make_table();
    return usm__open_here;
}

void usm__slot_thread_ended(void)
{
    if (usm__open_here)
        usm_store_release(&usm__open_here->is_free, true);
    usm__open_here = NULL;
}

usm__slot *usm__slot_get(void)
{
    usm__slot *slot = usm__slot_find();

    return slot || !usm__slot_table() ? slot : usm__slot_find();
}

/* If the owner ended the access meanwhile and wrote the slot again, the mark is gone, and the
 * values are discarded.  The loads in between come before the last one, as in a seqlock. */
static bool adopt(usm__slot *slot, uintptr_t root, usm__slot_seen *seen)
{
    uintptr_t was = root;

    if (!usm_cas_acq_rel(&slot->buffer, &was, root | USM__SLOT_ADOPTED))
        return false;
    seen->slot   = slot;
    seen->begin  = usm_load_acquire(&slot->begin);
    seen->end    = usm_load_acquire(&slot->end);
    seen->mode   = (usm_access_mode)usm_load_acquire(&slot->mode);
    seen->serial = usm_load_acquire(&slot->serial);
    return usm_load_acquire(&slot->buffer) == (root | USM__SLOT_ADOPTED);
}

bool usm__slot_adopt_next(const void *root, size_t *at, usm__slot_seen *seen)
{
    size_t i = 0;

    for (usm__open_table *t = atomic_load(&usm__tracking.tables); t; t = t->next)
        for (size_t k = 0; k < USM__OPEN_MAX; k++, i++) {
            if (i < *at || atomic_load(&t->slots[k].buffer) != (uintptr_t)root)
                continue;
            *at = i + 1;
            if (adopt(&t->slots[k], (uintptr_t)root, seen))
                return true;
        }
    return false;
}

bool usm__slot_is_open_here(const void *root)
{
    const usm__open_table *table = usm__open_here;

    for (int i = 0; table && i < USM__OPEN_MAX; i++)
        if ((usm_load_relaxed(&table->slots[i].buffer) & ~USM__SLOT_ADOPTED) == (uintptr_t)root)
            return true;
    return false;
}

bool usm__slot_is_own(const usm__slot *slot)
{
    const usm__open_table *table = usm__open_here;

    return table && slot >= table->slots && slot < table->slots + USM__OPEN_MAX;
}
