/* The program that all three consumers build: memory on the selected device, and the version that
 * was compiled against is the one that runs.  With CONSUMER_KERNELS it also holds what
 * usm_add_kernels() embedded.  SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#include <stdio.h>
#include <string.h>
#include <usm/usm.h>

#ifdef CONSUMER_KERNELS
#include "twice_kernels.h"
#endif

int main(void)
{
    const char text[] = "installed";
    char       back[sizeof text];
    char      *block = (char *)usm_alloc_shared(sizeof text);

    if (block == NULL) {
        fprintf(stderr, "%s\n", usm_last_error());
        return 1;
    }
    if (usm_copy(block, text, sizeof text) != USM_OK ||
        usm_copy(back, block, sizeof text) != USM_OK) {
        fprintf(stderr, "%s\n", usm_last_error());
        return 1;
    }
    usm_free(block);
    if (usm_version() != USM_VERSION || strcmp(back, text) != 0)
        return 1;
#ifdef CONSUMER_KERNELS
    if (twice_kernels_size < 8 || memcmp(twice_kernels, "USMK1 ", 6) != 0)
        return 1;
    printf("%zu bytes of kernels, ", twice_kernels_size);
#endif
    printf("usm %s\n", USM_VERSION_STRING);
    return 0;
}
