/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reports blocks that the host can access to valgrind's memcheck and to AddressSanitizer; never
 * blocks in device memory.  Called by observe/observe.c for blocks, and by heap/area.c for memory
 * that is returned to its driver.
 *
 * Reports go to valgrind if the program runs under it and its headers were present at the build,
 * and to AddressSanitizer if it is in the process, whether libusm, the program or both were built
 * with it.  While a checker is present the thread caches are off.  To have them under
 * AddressSanitizer instead, set ASAN_OPTIONS=allow_user_poisoning=0. */
#ifndef USM_OBSERVE_CHECKER_H
#define USM_OBSERVE_CHECKER_H

#include "observe/tracked.h"

/* True if a checker is present; determined at the first call. */
bool usm__checker_present(void);
/* From here on the library may write and read the whole block ... */
void usm__checker_open(const usm__record *r);
/* ... until the program gets it.  The program may use its own bytes and no others; is_zeroed: these
 * are initialised ... */
void usm__checker_serve(const usm__record *r, bool is_zeroed);
/* ... and until the program frees it: then no byte of it may be used. */
void usm__checker_close(const usm__record *r);
/* The memory returns to its driver, which may use it as it likes. */
void usm__checker_forget(void *base, size_t size);

#endif
