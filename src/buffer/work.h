/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The work of commands over buffers: launches.  For the hook of src/buffer (buffer.c). */
#ifndef USM_BUFFER_WORK_H
#define USM_BUFFER_WORK_H

#include "program/program.h"

usm__launch_over_buffers_fn usm__buffers_launch;

#endif
