/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The blocks that buffers asked to keep in memory: see keep.c. */
#ifndef USM_BUFFER_KEEP_H
#define USM_BUFFER_KEEP_H

#include "buffer/buffer.h"

/* [begin, begin + size) of the root's space.  The first keeps each block once more; the second
 * takes back as many requests as the buffer itself has made. */
usm_status usm__buffer_keep(usm_buffer *root, size_t begin, size_t size);
usm_status usm__buffer_unkeep(usm_buffer *root, size_t begin, size_t size);
/* The buffer ends: nobody else uses it. */
void usm__buffer_unkeep_all(usm_buffer *root);
void usm__kept_fork(usm_fork_phase phase);

#endif
