/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kinds of kernel arguments, remembered where drivers forget them: as text,
 * "add=PV;sum=PPL;", one letter for each argument.  Compiled into each backend that
 * needs it.  Not here: what a driver says of its kernels. */
#ifndef USM_BACKENDS_COMMON_KINDS_H
#define USM_BACKENDS_COMMON_KINDS_H

#include <usm/backend.h>

#define KINDS_LETTERS "NPVL" /* by usm_arg_kind */

/* The letters of a kernel in such a text, or NULL; *n of them. */
const char *kinds_find(const char *kinds, const char *name, size_t *n);
/* The kind that a letter stands for; USM_ARG_NONE for any other. */
usm_arg_kind kinds_letter(char letter);
/* Read from a SPIR-V module into host heap; *kinds stays NULL when it is none that can be read. */
usm_status kinds_of_spirv(const usm_host_api *host, const void *data, size_t size, char **kinds);
/* The driver's binary with the kinds (NULL: none) in front, on the host heap; and taking it apart
 * again: a binary without them leaves *raw and *kinds as they were.  raw->data points into
 * image->data; *kinds is on the host heap. */
usm_status kinds_wrap(const usm_host_api *host, const char *kinds, const void *binary,
                      size_t binary_size, void **data, size_t *size);
usm_status kinds_unwrap(const usm_host_api *host, const usm_image *image, usm_image *raw,
                        char **kinds);

#endif
