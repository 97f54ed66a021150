/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm_assert() checks for programming errors inside libusm; off in release builds. */
#ifndef USM_BASE_ASSERT_H
#define USM_BASE_ASSERT_H

#include <assert.h>
#define usm_assert(x) assert(x)

#endif
