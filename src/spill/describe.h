/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What usm_spill_describe() writes: figures that somebody else has collected, as text or JSON. */
#ifndef USM_SPILL_DESCRIBE_H
#define USM_SPILL_DESCRIBE_H

#include "base/out.h"

#include <usm/buffer.h>

/* Who keeps memory from being used for something else. */
typedef struct usm__spill_holder {
    const char *name;    /* of the buffer; "" or NULL: it has none                               */
    uint64_t    bytes;   /* pinned                                                              */
    uint64_t    pins;    /* accesses and commands that hold them, over all blocks               */
    bool        is_kept; /* USM_BUFFER_PIN                                                   */
} usm__spill_holder;

void usm__spill_text(const usm_spill_stats *s, const usm__spill_holder *holders, size_t nholders,
                     usm_text_format format, usm__out *out);

#endif
