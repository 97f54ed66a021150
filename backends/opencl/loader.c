/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The names of the functions of libOpenCL.so.1, which is opened at its first use and not before:
 * another runtime's library, for example with Intel's drivers, may be in the process by then
 * (../common/library.c).
 *
 * Not here: the use of the functions.  Called by device.c. */
#include "../common/library.h"
#include "opencl.h"

ocl_functions cl; /* under the lock of the registry of devices until they are loaded, then fixed */

#define LENGTH(list) (sizeof(list) / sizeof((list)[0]))

static const library_function functions[] = {
#define REQUIRED(name) {#name, offsetof(ocl_functions, name), true},
#define OPTIONAL(name) {#name, offsetof(ocl_functions, name), false},
    OCL_REQUIRED(REQUIRED) OCL_OPTIONAL(OPTIONAL)
#undef REQUIRED
#undef OPTIONAL
};

static const library_function extensions[] = {
#define EXTENSION(name) {#name, offsetof(ocl_extensions, name), false},
    OCL_EXTENSION(EXTENSION)
#undef EXTENSION
};

bool ocl_load(char *why, size_t why_size)
{
    static const library loader = {"libOpenCL.so.1",  "OpenCL 1.2", functions,
                                   LENGTH(functions), &cl,          &cl.library};

    return library_load(&loader, why, why_size);
}

void ocl_load_extensions(cl_platform_id platform, ocl_extensions *ext)
{
    for (size_t i = 0; i < LENGTH(extensions); i++)
        library_put(ext, extensions[i].offset,
                    cl.clGetExtensionFunctionAddressForPlatform(platform, extensions[i].name));
}
