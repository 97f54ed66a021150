/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What buffers asked to keep in memory: see keep.c. */
#ifndef USM_BUFFER_KEEP_H
#define USM_BUFFER_KEEP_H

#include "buffer/buffer.h"

/* [begin, begin + size) of the root's space: each block once more, or once less as often as the
 * buffer itself had asked. */
usm_status usm__buffer_keep(usm_buffer *root, size_t begin, size_t size);
usm_status usm__buffer_unkeep(usm_buffer *root, size_t begin, size_t size);
/* The buffer ends: nobody else uses it. */
void usm__buffer_unkeep_all(usm_buffer *root);
void usm__kept_fork(usm_fork_phase phase);

#endif
