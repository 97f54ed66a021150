/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Is another process looking at the figures of this one?
 *
 * A reader announces itself by a new value of a word that it shares with all processes of its user
 * (src/monitor).  Paths that are not hit paths compare that word with the value they have seen: two
 * loads and a predicted branch, because the word changes once a second while somebody reads, and
 * never else. */
#ifndef USM_BASE_WATCHED_H
#define USM_BASE_WATCHED_H

#include "base/inline/atomic.h"

#include <stdint.h>

typedef struct usm__watched_state {
    /* The shared word; `nobody` while there is none. */
    const _Atomic(uint64_t) *_Atomic word;
    _Atomic(uint64_t)                seen; /* its last value that was handled; 0 before the first */
    _Atomic(uint64_t)                nobody;
} usm__watched_state;
extern usm__watched_state usm__watched __attribute__((visibility("hidden")));

/* The word has a new value: calls the hook `watched` of the parts (base/part.h). */
void usm__watched_changed(uint64_t value);

/* Called with no lock held, since a thread may be started. */
static inline void usm__watched_poll(void)
{
    const _Atomic(uint64_t) *word  = usm_load_acquire(&usm__watched.word);
    uint64_t                 value = usm_load_relaxed(word);

    if (__builtin_expect(value != usm_load_relaxed(&usm__watched.seen), 0))
        usm__watched_changed(value);
}

#endif
