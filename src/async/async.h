/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Stream-ordered allocation, for src/usm.c. */
#ifndef USM_ASYNC_ASYNC_H
#define USM_ASYNC_ASYNC_H

#include "heap/pool.h"

/* Fills the hook points of the core. */
void usm__async_start(void);
/* Called by the hook of device/init.h, after the contexts' locks. */
void usm__async_fork(usm_fork_phase phase);

#endif
