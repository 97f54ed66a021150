/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a new announcement of a reader causes: see watched.h. */
#include "base/watched.h"

#include "base/part.h"

usm__watched_state usm__watched = {.word = &usm__watched.nobody}; /* atomic, each member */

/* Of several threads that find the new value, one calls the parts. */
void usm__watched_changed(uint64_t value)
{
    uint64_t seen = usm_load_relaxed(&usm__watched.seen);

    if (seen != value && usm_cas_acq_rel(&usm__watched.seen, &seen, value))
        usm__parts_watched();
}
