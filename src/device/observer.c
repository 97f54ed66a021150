/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the rooms below src/observe read of it: see observer.h. */
#include "device/observer.h"

usm__observer_state    usm__observers; /* atomic, each member */
USM__THREAD_LOCAL bool usm__tagged;
