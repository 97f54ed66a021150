/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzzes the reader of handles of memory.  Called by libFuzzer.
 *
 * The input is the handle's bytes, zeros behind it.  Read as they come, they are as good as never a
 * handle; so they are read a second time as what a handle says, with a checksum that is right. What
 * is checked beyond "no sanitizer speaks": a refusal tells a story; what is accepted can be added
 * up without wrapping, and written down again it is the same. */
#include "ipc/handle.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void read_one(const usm_ipc_handle *handle)
{
    usm__ipc_memory m;
    usm_ipc_handle  again;

    if (usm__ipc_handle_decode(handle, &m) != USM_OK) {
        must(usm_last_status() == USM_E_HANDLE && usm_last_error()[0] != '\0');
        return;
    }
    must(m.size > 0 && m.offset < m.size && m.block <= m.area_size &&
         m.size <= m.area_size - m.block);
    must(memchr(m.backend, 0, sizeof m.backend) != NULL);
    usm__ipc_handle_encode(&m, &again);
    must(memcmp(handle, &again, sizeof again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usm_ipc_handle  handle;
    usm__ipc_memory m;

    memset(&handle, 0, sizeof handle);
    memset(&m, 0, sizeof m);
    if (size > 0) {
        memcpy(&handle, data, size < sizeof handle ? size : sizeof handle);
        memcpy(&m, data, size < sizeof m ? size : sizeof m);
    }
    read_one(&handle);
    usm__ipc_handle_encode(&m, &handle);
    read_one(&handle);
    return 0;
}
