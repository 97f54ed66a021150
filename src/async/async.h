/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Stream-ordered allocation as a part of the library, for src/usm.c. */
#ifndef USM_ASYNC_ASYNC_H
#define USM_ASYNC_ASYNC_H

#include "base/part.h"

extern const usm_part usm__async_part;

#endif
