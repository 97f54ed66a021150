/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pages that owner and importers of memory read of each other, without a request.
 *
 *     owner's page of numbers      slot -> number       written by the owner, read by all
 *     importer's page of claims    slot -> count        written by that importer, read by the owner
 *
 * A handle can be opened while its slot holds its number.  An importer claims the slot, then reads
 * the number; an owner that frees takes the number away, then reads the claims.  Whichever came
 * first, at least one sees the other: either the importer finds the number gone, and withdraws, or
 * the owner finds the claim, and postpones the free.  All four accesses are sequentially
 * consistent.  An importer that withdraws a claim and then finds the number gone sends the message
 * LOOK, because the owner may be waiting for that. */
#ifndef USM_IPC_PAGE_H
#define USM_IPC_PAGE_H

#include "base/os_ipc.h"

#include <stdatomic.h>

#define USM__IPC_SLOTS 4096

typedef struct usm__ipc_slot {
    _Atomic(uint64_t) number; /* 0: cannot be opened                                         */
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
