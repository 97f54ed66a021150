/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The registry: platforms and devices the process has met, each with one record
 * that lives as long as the process, so that a native device always has the
 * same handle.  Not here: what a device can (describe.c), its parts (part.c).
 *
 * Roots are numbered platform by platform in the loader's order, in the order of
 * each driver; records that come later (parts, devices of foreign contexts) are
 * known to the registry but not numbered. */
#include "opencl.h"

#include <stdio.h>
#include <string.h>

#define OCL_MAX_PLATFORMS 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static bool          is_listed;
static ocl_platform *platforms;
static ocl_device   *devices; /* every record                    */
static ocl_device  **roots;   /* those devices() gives, in order */
static size_t        nroots;

void ocl_registry_lock(void)
{
    pthread_mutex_lock(&lock);
}

void ocl_registry_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

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
    dev->id       = id;
    dev->platform = platform;
    dev->parent   = parent;
    status        = ocl_device_describe(dev);
    if (status) {
        ocl_host->heap_free(dev);
        return status;
    }
    *out = dev;
    return USM_OK;
}

void ocl_device_publish(ocl_device *dev)
{
    dev->next = devices;
    devices   = dev;
}

/* --- listing --------------------------------------------------------------- */

/* What one listing found; published as a whole or given back as a whole. */
typedef struct listing {
    ocl_platform *platforms, **last_platform;
    ocl_device  **roots;
    size_t        nroots;
} listing;

static void listing_undo(listing *l)
{
    while (l->platforms) {
        ocl_platform *next = l->platforms->next;

        ocl_host->heap_free(l->platforms);
        l->platforms = next;
    }
    for (size_t i = 0; i < l->nroots; i++)
        ocl_host->heap_free(l->roots[i]);
    ocl_host->heap_free(l->roots);
}

static void listing_publish(listing *l)
{
    *l->last_platform = platforms; /* those that foreign contexts brought, if any */
    platforms         = l->platforms;
    roots             = l->roots;
    nroots            = l->nroots;
    for (size_t i = 0; i < nroots; i++)
        ocl_device_publish(roots[i]);
    is_listed = true;
}

static usm_status append_roots(listing *l, const cl_device_id *ids, size_t n)
{
    ocl_device **grown = ocl_host->heap_alloc((l->nroots + n) * sizeof(ocl_device *));

    if (!grown)
        return ocl_no_memory();
    if (l->nroots)
        memcpy(grown, l->roots, l->nroots * sizeof(ocl_device *));
    ocl_host->heap_free(l->roots);
    l->roots = grown;
    for (size_t i = 0; i < n; i++) {
        ocl_platform *p      = usm_container_of(l->last_platform, ocl_platform, next);
        ocl_device   *dev    = NULL;
        usm_status    status = ocl_device_new(p, ids[i], NULL, &dev);

        if (status == USM_E_NO_MEMORY)
            return status;
        if (!status) /* a device that cannot describe itself is left out */
            l->roots[l->nroots++] = dev;
    }
    return USM_OK;
}

/* A driver that fails here is left out, with a line: the others still work. */
static usm_status list_platform(listing *l, cl_platform_id id)
{
    const cl_device_type types =
        CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR;
    ocl_platform *p = NULL;
    cl_device_id *ids;
    cl_uint       n      = 0;
    usm_status    status = platform_new(id, &p);
    cl_int        err;

    if (status)
        return status;
    *l->last_platform = p;
    l->last_platform  = &p->next;
    err               = cl.clGetDeviceIDs(id, types, 0, NULL, &n);
    if (err || !n) {
        ocl_host->log(USM_LOG_INFO, "OpenCL: the platform '%s' has no device (%s, %d)", p->name,
                      err ? ocl_error_name(err) : "none listed", (int)err);
        return err == CL_OUT_OF_HOST_MEMORY ? ocl_fail(err, "clGetDeviceIDs") : USM_OK;
    }
    ids = ocl_host->heap_alloc(n * sizeof(cl_device_id));
    if (!ids)
        return ocl_no_memory();
    err    = cl.clGetDeviceIDs(id, types, n, ids, NULL);
    status = err ? USM_OK : append_roots(l, ids, n);
    ocl_host->heap_free(ids);
    return status;
}

static usm_status list_all(void)
{
    cl_platform_id ids[OCL_MAX_PLATFORMS];
    cl_uint        n   = 0;
    cl_int         err = cl.clGetPlatformIDs(OCL_MAX_PLATFORMS, ids, &n);
    listing        l   = {.last_platform = &l.platforms};

    if (err && native_to_status(err) == USM_E_NO_MEMORY)
        return ocl_fail(err, "clGetPlatformIDs");
    if (err || !n)
        ocl_host->log(USM_LOG_INFO,
                      "OpenCL: the loader finds no driver (%s, %d); install one (for "
                      "CPUs: pocl-opencl-icd) or correct OCL_ICD_VENDORS",
                      err ? ocl_error_name(err) : "none listed", (int)err);
    for (cl_uint i = 0; !err && i < n && i < OCL_MAX_PLATFORMS; i++) {
        usm_status status = list_platform(&l, ids[i]);

        if (status == USM_E_NO_MEMORY) {
            listing_undo(&l);
            return status;
        }
    }
    listing_publish(&l);
    return USM_OK;
}

/* Lock held. Without a loader the list is empty, and is not looked for again. */
static usm_status need_list(void)
{
    char why[256] = "";

    if (is_listed)
        return USM_OK;
    if (ocl_load(why, sizeof(why)))
        return list_all();
    ocl_host->log(USM_LOG_INFO,
                  "OpenCL: no loader: %s; install one (Debian: ocl-icd-libopencl1) and a driver",
                  why);
    is_listed = true;
    return USM_OK;
}

usm_status ocl_devices(usm_backend_device *list, size_t cap, size_t *count)
{
    usm_status status;

    ocl_registry_lock();
    status = need_list();
    if (!status) {
        for (size_t i = 0; i < nroots && i < cap; i++)
            list[i] = roots[i]->info;
        *count = nroots;
    }
    ocl_registry_unlock();
    return status;
}

usm_status ocl_devices_need(void)
{
    char       why[256] = "";
    usm_status status;

    ocl_registry_lock();
    status = need_list();
    if (!status && !ocl_load(why, sizeof(why)))
        status = ocl_report(USM_E_NO_BACKEND, "there is no OpenCL loader to work with: %s", why);
    ocl_registry_unlock();
    return status;
}

/* --- finding ---------------------------------------------------------------- */

static usm_status find_platform(cl_platform_id id, ocl_platform **out)
{
    usm_status status;

    for (ocl_platform *p = platforms; p; p = p->next)
        if (p->id == id) {
            *out = p;
            return USM_OK;
        }
    status = platform_new(id, out);
    if (status)
        return status;
    (*out)->next = platforms;
    platforms    = *out;
    return USM_OK;
}

/* A part that its owner made: our reference keeps the id from being reused. */
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
    ocl_device_publish(*out);
    return USM_OK;
}

usm_status ocl_device_find(cl_device_id id, ocl_device **out)
{
    usm_status status = USM_OK;

    ocl_registry_lock();
    for (ocl_device *dev = devices; dev; dev = dev->next)
        if (dev->id == id) {
            *out = dev;
            goto done;
        }
    status = adopt(id, out);
done:
    ocl_registry_unlock();
    return status;
}
