/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kinds of kernel arguments, stored where drivers do not know them.
 *
 * The core checks launches against the kinds that kernel_info returns.  Drivers know them for
 * programs compiled from text.  For binaries and SPIR-V, Intel's CPU runtime knows none, and Level
 * Zero has no query for them.  A program loaded from the cache would then accept launches that it
 * refused when it was compiled, and some drivers would dereference a value passed for a pointer as
 * a cl_mem.  So a binary is stored with a line of text in front, "add=PV;sum=PPL;", and SPIR-V is
 * parsed for the same information (spirv.c).  A driver's bare binary is accepted too: its kinds
 * stay unknown.
 *
 * Called by the program.c and kernel.c of each backend. */
#include "kinds.h"

#include <string.h>

const char *kinds_find(const char *kinds, const char *name, size_t *n)
{
    size_t length = strlen(name);

    for (const char *at = kinds; at && *at; at = strchr(at, ';'), at = at ? at + 1 : NULL)
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            *n = strcspn(at + length + 1, ";");
            return at + length + 1;
        }
    return NULL;
}

usm_arg_kind kinds_letter(char letter)
{
    const char *at = letter ? strchr(KINDS_LETTERS, letter) : NULL;

    return at ? (usm_arg_kind)(at - KINDS_LETTERS) : USM_ARG_NONE;
}

/* --- stored with a binary ----------------------------------------------------------- */

static const char magic[8] = "USMOCL1";

typedef struct wrap_header {
    char     magic[8];
    uint64_t kinds_size; /* of the text that follows, including its 0 */
} wrap_header;

usm_status kinds_wrap(const usm_host_api *host, const char *kinds, const void *binary,
                      size_t binary_size, void **data, size_t *size)
{
    wrap_header h    = {.kinds_size = (kinds ? strlen(kinds) : 0) + 1};
    size_t      all  = sizeof(h) + h.kinds_size + binary_size;
    char       *wrap = host->heap_alloc(all);

    if (!wrap)
        return host->report(USM_E_NO_MEMORY, "the host heap is exhausted");
    memcpy(h.magic, magic, sizeof(magic));
    memcpy(wrap, &h, sizeof(h));
    if (kinds)
        memcpy(wrap + sizeof(h), kinds, h.kinds_size);
    memcpy(wrap + sizeof(h) + h.kinds_size, binary, binary_size);
    *data = wrap;
    *size = all;
    return USM_OK;
}

usm_status kinds_unwrap(const usm_host_api *host, const usm_image *image, usm_image *raw,
                        char **kinds)
{
    const char *data = image->data;
    wrap_header h;
    char       *text;

    if (image->size < sizeof(h) || memcmp(data, magic, sizeof(magic)) != 0)
        return USM_OK;
    memcpy(&h, data, sizeof(h));
    if (h.kinds_size == 0 || h.kinds_size > image->size - sizeof(h) ||
        data[sizeof(h) + h.kinds_size - 1] != '\0')
        return host->report(USM_E_BUILD, "the binary is damaged: compile the program again");
    text = host->heap_alloc(h.kinds_size);
    if (!text)
        return host->report(USM_E_NO_MEMORY, "the host heap is exhausted");
    memcpy(text, data + sizeof(h), h.kinds_size);
    raw->data = data + sizeof(h) + h.kinds_size;
    raw->size = image->size - sizeof(h) - h.kinds_size;
    *kinds    = text;
    return USM_OK;
}
