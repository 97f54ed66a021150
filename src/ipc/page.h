/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What owner and importers of memory read of each other without asking.
 *
 *     owner's page of numbers      slot -> number       written by the owner, read by all
 *     importer's page of claims    slot -> count        written by that importer, read by the owner
 *
 * A handle opens while its slot holds its number.  An importer claims, then reads the number; the
 * owner who frees takes the number away, then reads the claims.  Whichever of the two came first,
 * one sees the other: either the importer finds the number gone, and withdraws, or the owner finds
 * the claim, and puts the free off.  All four are sequentially consistent.  An importer that lets a
 * claim go and then finds the number gone sends the word LOOK, for the owner may be waiting for it.
 */
#ifndef USM_IPC_PAGE_H
#define USM_IPC_PAGE_H

#include "base/os_ipc.h"

#include <stdatomic.h>

#define USM__IPC_SLOTS 4096

typedef struct usm__ipc_slot {
    _Atomic(uint64_t) number; /* 0: opens nothing                                            */
    _Atomic(uint64_t) generation;
} usm__ipc_slot;
typedef _Atomic(uint32_t) usm__ipc_claim;

#define USM__IPC_NUMBERS_SIZE (USM__IPC_SLOTS * sizeof(usm__ipc_slot))
#define USM__IPC_CLAIMS_SIZE  (USM__IPC_SLOTS * sizeof(usm__ipc_claim))

enum {
    USM__IPC_WORD_CLAIMS = 1, /* with the descriptor of a page of claims, for `page`          */
    USM__IPC_WORD_LOOK   = 2  /* a claim on something freed has gone                          */
};
typedef struct usm__ipc_word {
    uint32_t what, zero;
    uint64_t page; /* usm__ipc_name.id                                                       */
} usm__ipc_word;

#endif
