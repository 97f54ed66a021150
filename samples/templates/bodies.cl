/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of the sample, for devices that compile no text. */
#include "usm/template_cl.h"
#include "bodies.h"
