/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What usm_spill_describe() writes: text or JSON made of figures that the caller has collected. */
#ifndef USM_SPILL_DESCRIBE_H
#define USM_SPILL_DESCRIBE_H

#include "base/out.h"

#include <usm/buffer.h>

/* A buffer whose pinned blocks keep memory from being used for something else. */
typedef struct usm__spill_holder {
    const char *name;    /* of the buffer; "" or NULL: it has no name                   */
    uint64_t    bytes;   /* pinned                                                      */
    uint64_t    pins;    /* accesses and commands that pin them, summed over all blocks */
    bool        is_kept; /* USM_BUFFER_PIN is set                                       */
} usm__spill_holder;

void usm__spill_text(const usm_spill_stats *s, const usm__spill_holder *holders, size_t nholders,
                     usm_text_format format, usm__out *out);

#endif
