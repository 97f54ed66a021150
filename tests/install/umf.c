/* What a consumer of libusm_umf builds and runs; there is no UMF.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#include <stdio.h>
#include <usm/umf.h>

int main(void)
{
    usm_umf_params params = USM_UMF_PARAMS_INIT;

    if (usm_umf_pool_ops() == NULL || params.struct_size != sizeof params)
        return 1;
    puts("usm::umf: linked, run");
    return 0;
}
