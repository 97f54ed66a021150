/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kinds of kernel arguments, stored where drivers do not know them: as text, "add=PV;sum=PPL;", one
 * letter for each argument.  Compiled into each backend that needs it.  Not here: the queries of a
 * driver about its kernels. */
#ifndef USM_BACKENDS_COMMON_KINDS_H
#define USM_BACKENDS_COMMON_KINDS_H

#include <usm/backend.h>

#define KINDS_LETTERS "NPVL" /* by usm_arg_kind */

/* Returns the letters of a kernel in such a text, or NULL; *n is their number. */
const char *kinds_find(const char *kinds, const char *name, size_t *n);
/* The kind that a letter stands for; USM_ARG_NONE for any other. */
usm_arg_kind kinds_letter(char letter);
/* Reads the kinds from a SPIR-V module to the host heap; *kinds stays NULL if it cannot be read. */
usm_status kinds_of_spirv(const usm_host_api *host, const void *data, size_t size, char **kinds);
/* kinds_wrap() puts the kinds (NULL: none) in front of the driver's binary, on the host heap.
 * kinds_unwrap() separates them: for a binary without kinds it leaves *raw and *kinds unchanged.
 * raw->data points into image->data; *kinds is on the host heap. */
usm_status kinds_wrap(const usm_host_api *host, const char *kinds, const void *binary,
                      size_t binary_size, void **data, size_t *size);
usm_status kinds_unwrap(const usm_host_api *host, const usm_image *image, usm_image *raw,
                        char **kinds);

#endif
