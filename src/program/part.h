/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The room as a part of the library, for src/usm.c. */
#ifndef USM_PROGRAM_PART_H
#define USM_PROGRAM_PART_H

#include "base/part.h"

extern const usm_part usm__program_part;

#endif
