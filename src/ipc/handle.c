/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Handles of memory and of events as bytes:
 *
 *     0  magic "usm-ipcm", "usm-ipce"     8  version     12  size of what follows
 *     16 usm__ipc_memory, usm__ipc_event_name   ...      zeros
 *     176 checksum of the 176 bytes before it, 128 bits
 *
 * All processes of a machine have one byte order and one layout of these fields; another version of
 * libusm has another version number here.  The checksum finds accidents: bytes that were cut short
 * or changed, or never were a handle.  It does not stop forgers of the same user, but the owner
 * checks all that they can forge. */
#include "ipc/handle.h"

#include "base/hash.h"
#include "ipc/event.h"

#include <string.h>

#define MAGIC   "usm-ipc" /* then 'm' or 'e' */
#define VERSION 1u

typedef struct layout {
    char     magic[8];
    uint32_t version, size;
    uint8_t  content[176 - 16]; /* then zeros */
    uint64_t sum[2];
} layout;

_Static_assert(sizeof(layout) == USM_IPC_HANDLE_SIZE, "a handle has no holes");
_Static_assert(sizeof(usm__ipc_memory) == 16 + 24 + 80 + 8, "its memory has none either");

static void sum_up(const layout *l, uint64_t sum[2])
{
    usm__hash h = USM__HASH_INIT;

    usm__hash_add(&h, l, offsetof(layout, sum));
    sum[0] = h.hi;
    sum[1] = h.lo;
}

static void seal(char kind, const void *content, size_t size, usm_ipc_handle *handle)
{
    layout l = {.magic = MAGIC, .version = VERSION, .size = (uint32_t)size};

    l.magic[7] = kind;
    memcpy(l.content, content, size);
    sum_up(&l, l.sum);
    memcpy(handle->bytes, &l, sizeof l);
}

static usm_status fail_changed(void)
{
    return usm__fail(USM_E_HANDLE,
                     "the handle was changed or cut short on its way: send all %d bytes",
                     USM_IPC_HANDLE_SIZE);
}

/* `other`: what is said of a handle of the other kind. */
static usm_status unseal(char kind, const char *other, const usm_ipc_handle *handle, void *content,
                         size_t size)
{
    layout   l;
    uint64_t sum[2];

    memcpy(&l, handle->bytes, sizeof l);
    if (memcmp(l.magic, MAGIC, 7) != 0)
        return usm__fail(USM_E_HANDLE, "these bytes are not a handle of libusm");
    if (l.magic[7] != kind)
        return usm__fail(USM_E_HANDLE, "this is not a handle of %s", other);
    if (l.version != VERSION || l.size != size)
        return usm__fail(USM_E_HANDLE,
                         "the handle is of version %u, and this libusm knows version %u: both "
                         "processes need one version",
                         l.version, VERSION);
    sum_up(&l, sum);
    if (sum[0] != l.sum[0] || sum[1] != l.sum[1])
        return fail_changed();
    memcpy(content, l.content, size);
    return USM_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

void usm__ipc_handle_encode(const usm__ipc_memory *m, usm_ipc_handle *handle)
{
    seal('m', m, sizeof *m, handle);
}

/* Refuses values that no owner writes, whatever the checksum says: so no later sum can overflow. */
static bool is_sane(const usm__ipc_memory *m)
{
    uint64_t end;

    return m->owner.pid > 0 && m->owner.secret != 0 && m->area_id != 0 && m->page_id != 0 &&
           m->number != 0 && m->kind >= USM_HOST && m->kind <= USM_SHARED && m->size > 0 &&
           m->offset < m->size && !__builtin_add_overflow(m->block, m->size, &end) &&
           end <= m->area_size && m->area_size <= (uint64_t)1 << 56 &&
           memchr(m->backend, 0, sizeof m->backend) != NULL && m->backend[0] != '\0';
}

usm_status usm__ipc_handle_decode(const usm_ipc_handle *handle, usm__ipc_memory *m)
{
    usm__ipc_memory found;
    usm_status      st = unseal('m', "memory; events are opened with usm_ipc_event_open()", handle,
                                &found, sizeof found);

    if (st == USM_OK && !is_sane(&found))
        st = fail_changed();
    if (st == USM_OK)
        *m = found;
    return st;
}

/* ---- events ---------------------------------------------------------------------------------- */

void usm__ipc_event_handle_encode(const usm__ipc_event_name *name, usm_ipc_handle *handle)
{
    seal('e', name, sizeof *name, handle);
}

usm_status usm__ipc_event_handle_decode(const usm_ipc_handle *handle, usm__ipc_event_name *name)
{
    usm__ipc_event_name found;
    usm_status          st =
        unseal('e', "an event; memory is opened with usm_ipc_open()", handle, &found, sizeof found);

    if (st == USM_OK && (found.page.owner.pid <= 0 || found.page.id == 0 || found.generation == 0 ||
                         found.index >= USM__IPC_EVENT_SLOTS))
        st = fail_changed();
    if (st == USM_OK)
        *name = found;
    return st;
}
