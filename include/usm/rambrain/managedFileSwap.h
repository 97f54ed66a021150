/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A name that programs of Rambrain include. */
#include <usm/rambrain/common.h>
