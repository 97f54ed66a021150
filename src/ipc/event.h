/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events across processes: shared by event.c, event_queue.c and handle.c. */
#ifndef USM_IPC_EVENT_H
#define USM_IPC_EVENT_H

#include "device/context.h"
#include "device/handle.h"
#include "ipc/event_slot.h"

struct usm_ipc_event {
    usm__magic_word      magic;
    unsigned             fork_generation; /* of the process that has the event                  */
    usm_context         *ctx;             /* counted by refs                                    */
    usm__ipc_event_slot *slot;            /* one reference                                      */
    bool                 is_creator;
};

usm_status usm__ipc_event_check(usm_ipc_event *ev);

/* handle.c.  The content of a handle of an event. */
typedef struct usm__ipc_event_name {
    usm__ipc_name page;
    uint64_t      generation;
    uint32_t      index;
    uint32_t      pad;
} usm__ipc_event_name;

void usm__ipc_event_handle_encode(const usm__ipc_event_name *name, usm_ipc_handle *handle);
/* USM_E_HANDLE: incomplete, of another version, or a handle of memory. */
usm_status usm__ipc_event_handle_decode(const usm_ipc_handle *handle, usm__ipc_event_name *name);

#endif
