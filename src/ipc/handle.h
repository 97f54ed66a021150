/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The content of the 192 bytes of a handle of memory, and the check that they are complete.  Pure
 * functions; export.c and import.c find out whether the content is still valid. */
#ifndef USM_IPC_HANDLE_H
#define USM_IPC_HANDLE_H

#include "ipc/rendezvous.h"

typedef enum usm__ipc_handle_flag {
    USM__IPC_WRITABLE = 1u << 0,
    USM__IPC_NO_FD    = 1u << 1 /* only the driver's bytes name the area                    */
} usm__ipc_handle_flag;

/* Everything is of one owner, whose process is therefore stored once. */
typedef struct usm__ipc_memory {
    char             backend[16]; /* followed by zeros                                    */
    usm__ipc_process owner;
    uint64_t         area_id, area_nonce; /* usm__ipc_name of the driver's allocation        */
    uint64_t         area_size;
    uint64_t         page_id, page_nonce; /* of the page of numbers             */
    uint64_t         number;              /* the number that the slot must have */
    uint64_t         generation;          /* of the slot: how often it was used */
    uint64_t         block;               /* the block's offset in the area     */
    uint64_t         size;                /* the block's                        */
    uint64_t         offset;              /* offset of p in the block           */
    uint32_t         slot;
    uint16_t         kind;  /* usm_kind                                                      */
    uint16_t         flags; /* usm__ipc_handle_flag                                          */
} usm__ipc_memory;

void usm__ipc_handle_encode(const usm__ipc_memory *m, usm_ipc_handle *handle);
/* The number in bytes that need not be a handle: finds handles that were seen before. */
static inline uint64_t usm__ipc_handle_number(const usm_ipc_handle *handle)
{
    uint64_t number;

    __builtin_memcpy(&number, handle->bytes + 16 + offsetof(usm__ipc_memory, number),
                     sizeof number);
    return number;
}
/* USM_E_HANDLE: incomplete, of another version, or not a handle of memory. */
usm_status usm__ipc_handle_decode(const usm_ipc_handle *handle, usm__ipc_memory *m);

#endif
