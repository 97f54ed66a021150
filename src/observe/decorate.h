/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Decorators of a backend's functions: they trace a call, delay it, make it fail (observe/hooks.h),
 * and report it to the checker of stream order.  Installed only when a setting asks for one of
 * them, or by a test that arms faults. */
#ifndef USM_OBSERVE_DECORATE_H
#define USM_OBSERVE_DECORATE_H

#include "device/backend.h"

/* Once, before the first call of a backend. */
void usm__decorate(bool with_order);
/* order_calls.c: replaces the functions whose calls the checker of stream order must see. */
void usm__order_decorate(usm__backend_calls *calls);

#endif
