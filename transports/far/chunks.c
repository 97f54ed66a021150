/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A lender's memory: chunks of 2^n bytes and a header, cut from slabs of about 8 MiB.  A chunk that
 * a send reads is never written and never handed out again: dropping it waits for the send.  Free
 * chunks are reused last-in first-out, because fresh pages cost more than the copy of a block.
 * Some slabs are kept idle as long as anything is lent, none otherwise. */
#include "internal.h"

#include <string.h>

enum { SLAB = 8 << 20, IDLE_KEPT = 32 << 20 };

static size_t stride_of(uint8_t shift)
{
    return ((size_t)1 << shift) + FAR_HEADER;
}

static bool slab_make(far_node *node, uint8_t shift)
{
    uint32_t  n = shift >= 23 ? 1 : (uint32_t)SLAB >> shift;
    far_slab *s = far_alloc(node, sizeof(*s) + n * sizeof(far_chunk));

    if (s == NULL)
        return false;
    s->memory = far_alloc(node, FAR_ASIDE + n * stride_of(shift));
    if (s->memory == NULL) {
        far_free(node, s);
        return false;
    }
    s->count = n;
    s->shift = shift;
    for (uint32_t i = n; i-- > 0;) {
        far_chunk *c = &s->chunks[i];

        c->slab  = s;
        c->bytes = (unsigned char *)s->memory + FAR_ASIDE + i * stride_of(shift);
        usm_list_append(&node->chunks[shift], &c->link);
    }
    usm_list_append(&node->slabs, &s->link);
    node->chunks_idle += n * stride_of(shift);
    return true;
}

static void slab_drop(far_node *node, far_slab *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        usm_list_remove(&s->chunks[i].link);
    usm_list_remove(&s->link);
    node->chunks_idle -= s->count * stride_of(s->shift);
    far_free(node, s->memory);
    far_free(node, s);
}

/* The last in the list was freed last. */
far_chunk *far_chunk_take(far_node *node, uint8_t shift)
{
    usm_list  *free = &node->chunks[shift];
    far_chunk *c;

    if (usm_list_is_empty(free) && !slab_make(node, shift))
        return NULL;
    c = usm_container_of(free->prev, far_chunk, link);
    usm_list_remove(&c->link);
    c->slab->used++;
    c->is_dropped = false;
    node->chunks_idle -= stride_of(shift);
    return c;
}

void far_chunk_drop(far_node *node, far_chunk *c)
{
    if (c == NULL)
        return;
    if (c->sends > 0) {
        c->is_dropped = true;
        return;
    }
    if (c->is_quarantined)
        usm_sub_relaxed(&node->quarantined, (uint64_t)1 << c->slab->shift);
    c->is_dropped = c->is_quarantined = false;
    c->slab->used--;
    node->chunks_idle += stride_of(c->slab->shift);
    usm_list_append(&node->chunks[c->slab->shift], &c->link);
}

void far_chunks_trim(far_node *node)
{
    uint64_t keep = IDLE_KEPT + usm_load_relaxed(&node->kept) / 8;

    if (node->lent == 0)
        keep = 0;
    if (node->chunks_idle <= keep)
        return;
    USM_LIST_FOREACH_SAFE (it, next, &node->slabs) {
        far_slab *s = usm_container_of(it, far_slab, link);

        if (node->chunks_idle <= keep)
            return;
        if (s->used == 0)
            slab_drop(node, s);
    }
}
