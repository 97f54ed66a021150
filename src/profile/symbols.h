/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Names for the addresses of sampled stacks: the module by the trace's map of code, the function by
 * the module's own symbol tables, as they are on this machine now.  Called by sites.c and
 * exporters. */
#ifndef USM_PROFILE_SYMBOLS_H
#define USM_PROFILE_SYMBOLS_H

#include "profile/trace.h"

typedef struct usm__symbols usm__symbols;

/* NULL when out of memory.  Borrows the trace. */
usm__symbols *usm__symbols_open(const usm__profile *t);
void          usm__symbols_close(usm__symbols *s); /* NULL is fine */

/* "function+0x12 (module)", "module+0x1234" if its tables have no name, "0x7f..." if no module is
 * known.  `address` is a return address: the call before it is looked up.  Returns out. */
const char *usm__symbols_name(usm__symbols *s, uint32_t source, uint64_t address, char *out,
                              size_t size);
/* Index of the stack's innermost frame that is neither libusm's own nor that of a runtime which
 * libusm serves inside the program; the depth if all are libusm's. */
uint32_t usm__symbols_site(usm__symbols *s, const usm__profile_stack_info *stack);

#endif
