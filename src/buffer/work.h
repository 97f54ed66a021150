/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What commands over buffers do: launches.  For src/buffer's hook (buffer.c). */
#ifndef USM_BUFFER_WORK_H
#define USM_BUFFER_WORK_H

#include "core/program.h"

usm__launch_over_buffers_fn usm__buffers_launch;

#endif
