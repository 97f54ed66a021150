/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* USM_BUFFER_PIN and USM_BUFFER_UNPIN: records which blocks each buffer asked to keep in memory.
 * The end of a buffer thus cancels all its requests, and no buffer cancels those of another: small
 * buffers share blocks.
 *
 * There is a list for each buffer that ever pinned anything, under one lock for all.  Called by
 * advise.c and at the end of buffers. */
#include "buffer/keep.h"

#include "base/os.h"
#include "buffer/track.h"

struct usm__kept {
    usm__kept *next;
    size_t     first, last; /* blocks of the space                                            */
};

static usm_status advise_blocks(usm_buffer *b, size_t first, size_t last, usm_buffer_advice advice)
{
    unsigned shift = b->space->shift;
    size_t   begin = first << shift, end = (last + 1) << shift;

    if (end > b->space->size)
        end = b->space->size;
    return usm__space_advise(b->space, begin, end - begin, advice);
}

usm_status usm__buffer_keep(usm_buffer *root, size_t begin, size_t size)
{
    usm__kept *k = usm__heap_alloc(sizeof *k);
    usm_status st;

    if (!k)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to record what stays in memory");
    k->first = begin >> root->space->shift;
    k->last  = (begin + size - 1) >> root->space->shift;
    st       = advise_blocks(root, k->first, k->last, USM_BUFFER_PIN);
    if (st != USM_OK) {
        usm__heap_free(k);
        return st;
    }
    usm__mutex_lock(&usm__tracking.kept);
    k->next    = root->kept;
    root->kept = k;
    usm__mutex_unlock(&usm__tracking.kept);
    return USM_OK;
}

/* Cuts [first, last) out of *at, of which a part before and one behind may remain; `rest` is memory
 * for the latter.  True: rest was used. */
static bool cut(usm__kept **at, size_t first, size_t last, usm__kept *rest)
{
    usm__kept *k = *at;
    bool head    = k->first<first, tail = k->last> last;

    if (head && tail) {
        *rest   = (usm__kept){k->next, last + 1, k->last};
        k->last = first - 1;
        k->next = rest;
    } else if (head) {
        k->last = first - 1;
    } else if (tail) {
        k->first = last + 1;
    } else {
        *at = k->next;
        usm__heap_free(k);
    }
    return head && tail;
}

/* The result of one step of cancelling. */
typedef enum step { STEP_DONE, STEP_NONE_LEFT, STEP_NEEDS_MEMORY } step;

/* Removes the blocks from the first entry that has any of them; *rest may be NULL, and is set to
 * NULL when it was used. */
static step unkeep_one(usm_buffer *root, size_t first, size_t last, usm__kept **rest)
{
    for (usm__kept **at = &root->kept; *at; at = &(*at)->next) {
        size_t a = (*at)->first > first ? (*at)->first : first;
        size_t b = (*at)->last < last ? (*at)->last : last;

        if (a > b)
            continue;
        if (!*rest && (*at)->first < a && (*at)->last > b)
            return STEP_NEEDS_MEMORY;
        if (cut(at, a, b, *rest))
            *rest = NULL;
        (void)advise_blocks(root, a, b, USM_BUFFER_UNPIN);
        return STEP_DONE;
    }
    return STEP_NONE_LEFT;
}

/* Memory is needed only if a range is cut in two. */
usm_status usm__buffer_unkeep(usm_buffer *root, size_t begin, size_t size)
{
    size_t     first = begin >> root->space->shift;
    size_t     last  = (begin + size - 1) >> root->space->shift;
    usm__kept *rest  = NULL;
    step       went  = STEP_DONE;

    while (went != STEP_NONE_LEFT) {
        usm__mutex_lock(&usm__tracking.kept);
        went = unkeep_one(root, first, last, &rest);
        usm__mutex_unlock(&usm__tracking.kept);
        if (went == STEP_NEEDS_MEMORY && (rest = usm__heap_alloc(sizeof *rest)) == NULL)
            return usm__fail(USM_E_NO_MEMORY, "no host memory to record what stays in memory");
    }
    usm__heap_free(rest);
    return USM_OK;
}

void usm__buffer_unkeep_all(usm_buffer *root)
{
    while (root->kept) {
        usm__kept *k = root->kept;

        root->kept = k->next;
        (void)advise_blocks(root, k->first, k->last, USM_BUFFER_UNPIN);
        usm__heap_free(k);
    }
}

void usm__kept_fork(usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE)
        usm__mutex_lock_for_fork(&usm__tracking.kept);
    else if (phase == USM_FORK_PARENT)
        usm__mutex_unlock_after_fork(&usm__tracking.kept);
    else
        usm__mutex_reset_in_child(&usm__tracking.kept);
}
