/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sub-devices, which selector terms `N.*` list.  Made once, at the first query, and never freed.
 *
 * If a device consists of domains (tiles, NUMA nodes), those are the sub-devices, as
 * ONEAPI_DEVICE_SELECTOR defines.  Otherwise, on CPUs, compute units: one each while their number
 * can be listed, so that the sub-devices of a small machine are still useful.  Called by the core
 * through the table, and by describe.c. */
#include "opencl.h"

#include <string.h>

#define MAX_PARTS 64

static bool offers(const ocl_device *dev, cl_device_partition_property wanted)
{
    cl_device_partition_property list[16];
    size_t                       size = 0;

    if (cl.clGetDeviceInfo(dev->id, CL_DEVICE_PARTITION_PROPERTIES, sizeof(list), list, &size))
        return false;
    for (size_t i = 0; i < size / sizeof(list[0]); i++)
        if (list[i] == wanted)
            return true;
    return false;
}

static bool has_domains(const ocl_device *dev)
{
    cl_bitfield domains = 0;

    return offers(dev, CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN) &&
           !cl.clGetDeviceInfo(dev->id, CL_DEVICE_PARTITION_AFFINITY_DOMAIN, sizeof(domains),
                               &domains, NULL) &&
           (domains & CL_DEVICE_AFFINITY_DOMAIN_NEXT_PARTITIONABLE);
}

/* Only the driver knows the number of domains. */
static size_t count_domains(const ocl_device *dev, const cl_device_partition_property *props)
{
    cl_uint n = 0;

    if (cl.clCreateSubDevices(dev->id, props, 0, NULL, &n) || n > MAX_PARTS)
        return 0;
    return n;
}

/* Equal sub-devices are computed here: Intel's CPU runtime starts its threads at a query, and
 * programs list devices that they never use. */
size_t ocl_device_cut(const ocl_device *dev, cl_device_partition_property props[4])
{
    size_t n = 0, units = (dev->info.compute_units + MAX_PARTS - 1) / MAX_PARTS;

    memset(props, 0, 4 * sizeof(props[0]));
    if (has_domains(dev)) {
        props[0] = CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN;
        props[1] = CL_DEVICE_AFFINITY_DOMAIN_NEXT_PARTITIONABLE;
        n        = count_domains(dev, props);
    }
    if (n < 2 && units && offers(dev, CL_DEVICE_PARTITION_EQUALLY)) {
        props[0] = CL_DEVICE_PARTITION_EQUALLY;
        props[1] = (cl_device_partition_property)units;
        n        = dev->info.compute_units / units;
    }
    return n < 2 ? 0 : n;
}

usm_status ocl_list_parts(registry_device *link, registry_found *found)
{
    cl_device_partition_property props[4];
    cl_device_id                 ids[MAX_PARTS];
    ocl_device                  *dev = (ocl_device *)link;
    cl_uint                      n = dev->info.sub_devices, made = 0;
    cl_int                       err;
    usm_status                   status = USM_OK;

    (void)ocl_device_cut(dev, props);
    err = cl.clCreateSubDevices(dev->id, props, n, ids, &made);
    if (err || made != n)
        return ocl_fail(err ? err : CL_DEVICE_PARTITION_FAILED, "clCreateSubDevices");
    for (cl_uint i = 0; !status && i < n; i++) {
        ocl_device *part = NULL;

        status = ocl_device_new(dev->platform, ids[i], dev, &part);
        if (!status)
            status = registry_add_device(found, &part->link);
    }
    for (cl_uint i = 0; status && i < n; i++)
        cl.clReleaseDevice(ids[i]);
    return status;
}

usm_status ocl_sub_devices(void *dev, usm_backend_device *list, size_t cap, size_t *count)
{
    return registry_sub_devices(&ocl_registry, dev, list, cap, count);
}
