/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the sample compares itself with: a file that is mapped into memory. */
#ifndef OUT_OF_CORE_MAPPED_H
#define OUT_OF_CORE_MAPPED_H

#include <stddef.h>

/* `size` bytes of a file that has no name any more; NULL and a message on failure. */
void *mapped_create(size_t size);
void  mapped_destroy(void *data, size_t size);

#endif
