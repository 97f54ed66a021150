/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The bytes of arguments in the process that made the launch.  The caller's memory is used as it
 * is.  Of a buffer exactly the range that a chunk needs is accessed, so that a launch holds no more
 * memory at a time than its chunks need. */
#include "offload/offload.h"

static usm_status open_local(void *from, size_t arg, size_t offset, size_t size,
                             usm_access_mode mode, usm__piece *piece)
{
    const usm__plan     *plan = from;
    const usm_split_arg *a    = &plan->desc.args[arg];
    usm_status           st;

    piece->size          = size;
    piece->access.buffer = NULL;
    if (!a->buffer) {
        piece->ptr = (char *)a->host + a->offset + offset;
        return USM_OK;
    }
    st = usm_access_begin(a->buffer, a->offset + offset, size, mode, &piece->access);
    if (st == USM_OK)
        piece->ptr = piece->access.ptr;
    else
        piece->access.buffer = NULL;
    return st;
}

static usm_status close_local(void *from, size_t arg, size_t offset, usm_access_mode mode,
                              usm__piece *piece, usm_status status)
{
    const usm__plan *plan = from;

    (void)offset;
    (void)mode;
    (void)status;
    if (plan->desc.args[arg].buffer && piece->access.buffer)
        usm_access_end(&piece->access);
    piece->access.buffer = NULL;
    piece->ptr           = NULL;
    return USM_OK;
}

const usm__bytes_ops usm__bytes_local = {open_local, close_local};
