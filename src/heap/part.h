/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The room as a part of the library, for src/usm.c. */
#ifndef USM_HEAP_PART_H
#define USM_HEAP_PART_H

#include "base/part.h"

extern const usm_part usm__heap_part;

#endif
