/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The interface between the files of the owner's side of shared memory:
 *
 *     block  one of which there are handles, by its address               in usm__own.blocks
 *     slot   of one handle: a number in a page that this process writes   in its block's list
 *
 * When a handle has ended, its slot is reused only when no importer claims it any more.  Until then
 * it stays with its block, or, when the block has gone, in usm__own.retired.
 *
 * export.c makes and ends handles; export_block.c has the pages, and blocks whose free is
 * postponed. */
#ifndef USM_IPC_EXPORT_H
#define USM_IPC_EXPORT_H

#include "ipc/memory.h"
#include "ipc/page.h"

#define USM__OWN_BUCKETS 1024

typedef struct usm__own_page {
    usm_list              link;
    usm__ipc_name         name;
    usm__ipc_slot        *slots;
    uint32_t              nfree;
    uint32_t              free[USM__IPC_SLOTS];
    struct usm__own_slot *of[USM__IPC_SLOTS];
} usm__own_page;

typedef struct usm__own_block usm__own_block;

typedef struct usm__own_slot {
    usm_list        link; /* in its block's list, or in `retired`                             */
    usm__own_page  *page;
    usm__own_block *block;  /* NULL: the block has gone             */
    uint64_t        number; /* while the handle is valid; else 0    */
    uint64_t        offset; /* of the handle's pointer in the block */
    uint32_t        index;
    uint32_t        opens; /* in this process                                                  */
} usm__own_slot;

struct usm__own_block {
    usm_list   link; /* in its bucket; in no list while it is being freed                 */
    usm_list   slots;
    usm_pool  *pool;
    usm__area *area;
    char      *base;
    size_t     size;
    bool       is_freed; /* it was freed, and its return to the pool is postponed          */
};

/* The claims of one importer, over the slots of one page. */
typedef struct usm__own_claims {
    usm_list              link;
    usm__ipc_process      from;
    uint64_t              page;
    const usm__ipc_claim *claim;
} usm__own_claims;

typedef struct usm__own_state {
    usm__mutex     lock;
    pthread_cond_t freed;
    usm_list       pages, claims, retired;
    usm_list       blocks[USM__OWN_BUCKETS];
    usm_list       freeing; /* blocks on their way to their pools                           */
    uint64_t       handles, deferred, opened;
} usm__own_state;
extern usm__own_state usm__own;

/* export_block.c.  Under the lock, except page_ready() and look(). */
/* Afterwards the first page of the list has a free slot. */
usm_status usm__own_page_ready(void);
/* The handle can be opened no more. */
void usm__own_slot_end(usm__own_slot *s);
/* Frees ended slots of the list that no importer claims any more. */
void            usm__own_slots_sweep(usm_list *list);
usm_list       *usm__own_bucket(const void *base);
usm__own_block *usm__own_block_find(const void *base);
/* Slots that are still claimed stay, without the block. */
void usm__own_block_drop(usm__own_block *b);
/* Frees blocks that were freed and that nobody has open any more; any thread, no lock held. */
void                      usm__own_look(void);
extern const usm__ipc_ear usm__own_ear;

/* export.c.  The hook point. */
void usm__own_area_gone(usm__area *area);

#endif
