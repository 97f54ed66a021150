/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The observed path: the work around a block while a hook (trace), USM_TRACE, a tag, USM_DEBUG (red
 * zones, poison, leaks), USM_VALIDATION, valgrind or AddressSanitizer is active.  While none is,
 * nothing here runs.  The rooms below call it through the table of device/observer.h.
 *
 * A block that has a record (observe/tracked.h) is in the state USM_BLOCK_WATCHED if its pool has
 * spans.  The fast path of a free accepts only USM_BLOCK_LIVE, so the free of such a block comes
 * here, on any thread. */
#ifndef USM_OBSERVE_OBSERVE_H
#define USM_OBSERVE_OBSERVE_H

#include "device/observer.h"

/* Reads the settings, installs what they ask for; once.  Called before the first call of a backend
 * or transport and before the first pool, so that an earlier usm_config_set() has its effect. */
void usm__observe_start(void);
/* Before a reason to observe takes effect. */
void usm__observe_install(void);

#endif
