/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Platforms and devices as the registry lists them (../common/registry.c), and finding the record
 * of a native device.  Not here: the properties of a device (describe.c), its sub-devices (part.c).
 *
 * Root devices are numbered platform by platform in the loader's order, and in each driver's own
 * order; devices of foreign contexts have records, but no numbers. */
#include "opencl.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OCL_MAX_PLATFORMS 64

static unsigned parse_version(const char *text)
{
    unsigned major = 1, minor = 0;

    if (sscanf(text, "OpenCL %u.%u", &major, &minor) != 2)
        return 100;
    return major * 100 + minor;
}

static usm_status platform_new(cl_platform_id id, ocl_platform **out)
{
    char          version[128];
    ocl_platform *p      = ocl_host->heap_alloc(sizeof(*p));
    usm_status    status = USM_OK;

    if (!p)
        return ocl_no_memory();
    p->id  = id;
    status = ocl_platform_text(id, CL_PLATFORM_NAME, p->name, sizeof(p->name));
    if (!status)
        status = ocl_platform_text(id, CL_PLATFORM_VERSION, version, sizeof(version));
    if (status) {
        ocl_host->heap_free(p);
        return status;
    }
    p->version = parse_version(version);
    ocl_load_extensions(id, &p->ext);
    *out = p;
    return USM_OK;
}

usm_status ocl_device_new(ocl_platform *platform, cl_device_id id, ocl_device *parent,
                          ocl_device **out)
{
    ocl_device *dev = ocl_host->heap_alloc(sizeof(*dev));
    usm_status  status;

    if (!dev)
        return ocl_no_memory();
    dev->link.info = &dev->info;
    dev->id        = id;
    dev->platform  = platform;
    dev->parent    = parent;
    status         = ocl_device_describe(dev);
    if (status) {
        ocl_host->heap_free(dev);
        return status;
    }
    *out = dev;
    return USM_OK;
}

/* --- listing --------------------------------------------------------------- */

/* A device whose properties cannot be queried is skipped. */
static usm_status list_device(registry_found *found, ocl_platform *p, cl_device_id id)
{
    ocl_device *dev    = NULL;
    usm_status  status = ocl_device_new(p, id, NULL, &dev);

    if (!status)
        return registry_add_device(found, &dev->link);
    return status == USM_E_NO_MEMORY ? status : USM_OK;
}

/* PoCL learns from sysfs what memory there is, and aborts the process where it finds none. */
static bool would_abort(const ocl_platform *p)
{
    return strcmp(p->name, "Portable Computing Language") == 0 &&
           access("/sys/devices/system", F_OK) != 0;
}

/* A driver that fails here is skipped, and a line is logged: the others still work. */
static usm_status list_platform(registry_found *found, cl_platform_id id)
{
    const cl_device_type types =
        CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR;
    ocl_platform *p = NULL;
    cl_device_id *ids;
    cl_uint       n      = 0;
    usm_status    status = platform_new(id, &p);
    cl_int        err;

    if (status)
        return status == USM_E_NO_MEMORY ? status : USM_OK;
    registry_add_driver(found, &p->link);
    if (would_abort(p)) {
        ocl_host->log(
            USM_LOG_WARN,
            "OpenCL: the platform '%s' is left out, because it aborts programs where /sys "
            "is not mounted; mount it: mount -t sysfs sysfs /sys",
            p->name);
        return USM_OK;
    }
    err = cl.clGetDeviceIDs(id, types, 0, NULL, &n);
    if (err || !n) {
        ocl_host->log(USM_LOG_INFO, "OpenCL: the platform '%s' has no device (%s, %d)", p->name,
                      err ? ocl_error_name(err) : "none listed", (int)err);
        return err == CL_OUT_OF_HOST_MEMORY ? ocl_fail(err, "clGetDeviceIDs") : USM_OK;
    }
    ids = ocl_host->heap_alloc(n * sizeof(cl_device_id));
    if (!ids)
        return ocl_no_memory();
    err = cl.clGetDeviceIDs(id, types, n, ids, NULL);
    for (cl_uint i = 0; !err && !status && i < n; i++)
        status = list_device(found, p, ids[i]);
    ocl_host->heap_free(ids);
    return status;
}

static usm_status list_all(registry_found *found)
{
    cl_platform_id ids[OCL_MAX_PLATFORMS];
    cl_uint        n      = 0;
    cl_int         err    = cl.clGetPlatformIDs(OCL_MAX_PLATFORMS, ids, &n);
    usm_status     status = USM_OK;

    if (err && native_to_status(err) == USM_E_NO_MEMORY)
        return ocl_fail(err, "clGetPlatformIDs");
    if (err || !n)
        ocl_host->log(USM_LOG_INFO,
                      "OpenCL: the loader finds no driver (%s, %d); install one (for "
                      "CPUs: pocl-opencl-icd) or correct OCL_ICD_VENDORS",
                      err ? ocl_error_name(err) : "none listed", (int)err);
    for (cl_uint i = 0; !err && !status && i < n && i < OCL_MAX_PLATFORMS; i++)
        status = list_platform(found, ids[i]);
    return status;
}

static const registry_ops ops = {
    .name       = "OpenCL",
    .package    = "ocl-icd-libopencl1",
    .load       = ocl_load,
    .list       = list_all,
    .list_parts = ocl_list_parts,
};
registry ocl_registry = REGISTRY_INIT(&ops, &ocl_host);

usm_status ocl_devices(usm_backend_device *list, size_t cap, size_t *count)
{
    return registry_devices(&ocl_registry, list, cap, count);
}

/* --- finding ---------------------------------------------------------------- */

static usm_status find_platform(cl_platform_id id, ocl_platform **out)
{
    usm_status status;

    for (registry_driver *it = ocl_registry.drivers; it; it = it->next)
        if (((ocl_platform *)it)->id == id) {
            *out = (ocl_platform *)it;
            return USM_OK;
        }
    status = platform_new(id, out);
    if (status)
        return status;
    (*out)->link.next    = ocl_registry.drivers;
    ocl_registry.drivers = &(*out)->link;
    return USM_OK;
}

/* A sub-device made by the program: our reference keeps its id from being reused. */
static usm_status adopt(cl_device_id id, ocl_device **out)
{
    cl_platform_id pid      = NULL;
    ocl_platform  *platform = NULL;
    cl_int         err      = cl.clGetDeviceInfo(id, CL_DEVICE_PLATFORM, sizeof(pid), &pid, NULL);
    usm_status     status;

    if (err)
        return ocl_fail(err, "clGetDeviceInfo(CL_DEVICE_PLATFORM)");
    status = find_platform(pid, &platform);
    if (!status)
        status = ocl_device_new(platform, id, NULL, out);
    if (status)
        return status;
    cl.clRetainDevice(id);
    registry_publish(&ocl_registry, &(*out)->link);
    return USM_OK;
}

usm_status ocl_device_find(cl_device_id id, ocl_device **out)
{
    usm_status status = USM_OK;

    registry_lock(&ocl_registry);
    for (registry_device *it = ocl_registry.devices; it; it = it->next)
        if (((ocl_device *)it)->id == id) {
            *out = (ocl_device *)it;
            goto done;
        }
    status = adopt(id, out);
done:
    registry_unlock(&ocl_registry);
    return status;
}
