/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the rooms below src/observe read of it: see observer.h. */
#include "device/observer.h"

_Atomic(const usm__observer *) usm__observers;
atomic_uint                    usm__observing;
_Atomic(uint64_t)              usm__observer_records;
USM__THREAD_LOCAL bool         usm__tagged;
