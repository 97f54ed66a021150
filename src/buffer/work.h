/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The work of commands over buffers: launches.  For the hook of src/buffer (buffer.c). */
#ifndef USM_BUFFER_WORK_H
#define USM_BUFFER_WORK_H

#include "program/program.h"

usm_status usm__buffers_launch(usm_queue *q, const usm_launch *l, size_t ndeps,
                               usm_event *const *deps, usm_event **ev);

#endif
