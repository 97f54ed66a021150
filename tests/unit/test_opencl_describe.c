/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the OpenCL backend makes of a driver's answers, by a driver that says what it is told to:
 * which shared memory may be cut by pools (backends/opencl/describe.c).  What pools do then:
 * test_shared_moves.c, over Level Zero. */
#include "backends/opencl/opencl.h" /* before the fixture's short names */

#include "module_api.h"
#include "plain.h"

ocl_functions       cl;
const usm_host_api *ocl_host;

static struct {
    cl_device_type type;
    cl_bool        is_unified;
    cl_bitfield    shared;
    const char    *extensions;
} notified;

size_t ocl_device_cut(const ocl_device *dev, cl_device_partition_property props[4])
{
    (void)dev;
    (void)props;
    return 0;
}

static cl_int give(const void *bytes, size_t n, size_t size, void *value, size_t *needs)
{
    if (needs)
        *needs = n;
    if (value && size < n)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, bytes, n);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL answer(cl_device_id id, cl_device_info what, size_t size, void *value,
                                 size_t *needs)
{
    const cl_bitfield any = CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL;

    (void)id;
    switch (what) {
    case CL_DEVICE_EXTENSIONS:
        return give(notified.extensions, strlen(notified.extensions) + 1, size, value, needs);
    case CL_DEVICE_NAME:
    case CL_DEVICE_VENDOR:
    case CL_DRIVER_VERSION:
        return give("told", 5, size, value, needs);
    case CL_DEVICE_TYPE:
        return give(&notified.type, sizeof notified.type, size, value, needs);
    case CL_DEVICE_HOST_UNIFIED_MEMORY:
        return give(&notified.is_unified, sizeof notified.is_unified, size, value, needs);
    case CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL:
    case CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL:
        return give(&any, sizeof any, size, value, needs);
    case CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL:
        return give(&notified.shared, sizeof notified.shared, size, value, needs);
    default:
        return CL_INVALID_VALUE;
    }
}

static bool moves_whole(cl_device_type type, bool is_unified, cl_bitfield shared,
                        const char *extensions)
{
    static ocl_platform platform = {.name = "told", .version = 300};
    ocl_device          dev      = {.platform = &platform};

    ocl_host           = &module_api;
    cl.clGetDeviceInfo = answer;
    memset(&platform.ext, 1, sizeof platform.ext); /* they are there; nobody calls them */
    notified.type       = type;
    notified.is_unified = is_unified;
    notified.shared     = shared;
    notified.extensions = extensions;
    CHECK_INT(ocl_device_describe(&dev), USM_OK);
    return dev.info.shared_moves_whole;
}

#define USM_EXTENSION "cl_khr_fp16 cl_intel_unified_shared_memory"

static const cl_bitfield alone = CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL;
static const cl_bitfield both =
    CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL | CL_UNIFIED_SHARED_MEMORY_CONCURRENT_ACCESS_INTEL;

static void shared_memory_without_concurrent_access_moves_whole(void)
{
    CHECK(moves_whole(CL_DEVICE_TYPE_GPU, false, alone, USM_EXTENSION));
    CHECK(!moves_whole(CL_DEVICE_TYPE_GPU, false, both, USM_EXTENSION));
}

static void where_there_is_one_memory_nothing_moves(void)
{
    CHECK(!moves_whole(CL_DEVICE_TYPE_GPU, true, alone, USM_EXTENSION));
    CHECK(!moves_whole(CL_DEVICE_TYPE_CPU, false, alone, USM_EXTENSION));
}

static void without_the_extension_there_is_no_such_memory(void)
{
    CHECK(!moves_whole(CL_DEVICE_TYPE_GPU, false, alone, "cl_khr_fp16"));
}

static const plain_case cases[] = {
    CASE(shared_memory_without_concurrent_access_moves_whole),
    CASE(where_there_is_one_memory_nothing_moves),
    CASE(without_the_extension_there_is_no_such_memory),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
