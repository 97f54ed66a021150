/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the tests of the OpenCL backend share beyond module_fixture.h.
 *
 * What a test links of backends/opencl is a second copy, with its own `ocl_host`. */
#ifndef OPENCL_FIXTURE_H
#define OPENCL_FIXTURE_H

#include "backends/opencl/opencl.h" /* before the fixture's short names */

#include "module_fixture.h"

const usm_host_api *ocl_host;

static inline void needs_text(void)
{
    needs_commands();
    if (!has(USM_ASPECT_IMAGE_OPENCL_C))
        SKIP("the device has no compiler for OpenCL C");
}

static inline int opencl_main(int argc, char **argv, const plain_case *cases)
{
    ocl_host = &module_api;
    return module_main("opencl", argc, argv, cases);
}

#endif
