/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Telling valgrind's memcheck and AddressSanitizer about blocks that the host can reach.  Never
 * about a device's.  Called by core/observe.c around blocks, by core/area.c for memory that goes
 * back to its driver.
 *
 * valgrind is told when it runs us and its headers were there at the build; AddressSanitizer when
 * it is in the process, whether libusm, the program or both were built with it.  Who wants the
 * thread caches under AddressSanitizer instead, which are off while somebody is told, sets
 * ASAN_OPTIONS=allow_user_poisoning=0. */
#ifndef USM_CORE_CHECKER_H
#define USM_CORE_CHECKER_H

#include "core/watch.h"

/* Whether there is somebody to tell; looked up at the first call. */
bool usm__checker_present(void);
/* The library may write and read the whole block from here on ... */
void usm__checker_open(const usm__record *r);
/* ... until the program gets it: it may use its own bytes and no others; is_zeroed: they have a
 * value ... */
void usm__checker_serve(const usm__record *r, bool is_zeroed);
/* ... and gives it back: nobody may use any of it. */
void usm__checker_close(const usm__record *r);
/* Memory goes back to its driver, who may do with it as he likes. */
void usm__checker_forget(void *base, size_t size);

#endif
