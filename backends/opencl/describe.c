/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The properties of a device: driver queries fill in a usm_backend_device.  Not here: the list of
 * devices (device.c), their partition (part.c).
 *
 * The way to USM (cl_intel_unified_shared_memory or SVM) is chosen here for each device.  SVM
 * replaces the extension as follows: coarse grain is sufficient for device memory, which the host
 * must not access anyway; host and shared memory are accessed by both without mapping, so they need
 * fine grain. */
#include "opencl.h"

#include <string.h>

/* From AMD's cl_amd_device_attribute_query; in no header of Khronos. */
#define CL_DEVICE_GLOBAL_FREE_MEMORY_AMD 0x4039
#define INTEL_VENDOR_ID                  0x8086u

/* --- queries ---------------------------------------------------------------- */

/* Gives 0 if the driver does not know the query, which is the right value for everything queried
 * this way. */
#define ASK(id, what, value) ask((id), (what), &(value), sizeof(value))
static void ask(cl_device_id id, cl_device_info what, void *value, size_t size)
{
    if (cl.clGetDeviceInfo(id, what, size, value, NULL))
        memset(value, 0, size);
}

static void copy_trimmed(char *out, size_t cap, const char *text)
{
    size_t n;

    text += strspn(text, " \t\n");
    n = strlen(text);
    while (n && strchr(" \t\n", text[n - 1]))
        n--;
    n = n < cap - 1 ? n : cap - 1;
    memcpy(out, text, n);
    out[n] = '\0';
}

/* Returns the whole text, on the heap; "" if the driver does not know the query. */
static char *device_text(cl_device_id id, cl_device_info what)
{
    size_t size = 0;
    char  *text;

    if (cl.clGetDeviceInfo(id, what, 0, NULL, &size))
        size = 0;
    text = ocl_host->heap_alloc(size + 1);
    if (text && size && cl.clGetDeviceInfo(id, what, size, text, NULL))
        text[0] = '\0';
    return text;
}

usm_status ocl_device_text(cl_device_id id, cl_device_info what, char *out, size_t cap)
{
    char *text = device_text(id, what);

    if (!text)
        return ocl_no_memory();
    copy_trimmed(out, cap, text);
    ocl_host->heap_free(text);
    return USM_OK;
}

usm_status ocl_platform_text(cl_platform_id id, cl_platform_info what, char *out, size_t cap)
{
    size_t     size   = 0;
    usm_status status = USM_OK;
    char      *text;
    cl_int     err = cl.clGetPlatformInfo(id, what, 0, NULL, &size);

    if (err)
        return ocl_fail(err, "clGetPlatformInfo");
    text = ocl_host->heap_alloc(size + 1);
    if (!text)
        return ocl_no_memory();
    err = cl.clGetPlatformInfo(id, what, size, text, NULL);
    if (err)
        status = ocl_fail(err, "clGetPlatformInfo");
    else
        copy_trimmed(out, cap, text);
    ocl_host->heap_free(text);
    return status;
}

/* Compares whole words: cl_khr_fp16 is not in "cl_khr_fp16_x". */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = strstr(list, word); at; at = strstr(at + n, word))
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

/* --- memory ----------------------------------------------------------------- */

static uint64_t aspect(usm_aspect a)
{
    return UINT64_C(1) << a;
}

static uint64_t aspect_if(bool has, usm_aspect a)
{
    return has ? aspect(a) : 0;
}

static bool platform_has_usm(const ocl_extensions *x)
{
    return x->clHostMemAllocINTEL && x->clDeviceMemAllocINTEL && x->clSharedMemAllocINTEL &&
           x->clMemFreeINTEL && x->clSetKernelArgMemPointerINTEL && x->clEnqueueMemFillINTEL &&
           x->clEnqueueMemcpyINTEL;
}

static void ask_usm(ocl_device *dev, const char *extensions)
{
    if (!has_word(extensions, "cl_intel_unified_shared_memory") ||
        !platform_has_usm(&dev->platform->ext))
        return;
    ASK(dev->id, CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL, dev->usm.host);
    ASK(dev->id, CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL, dev->usm.device);
    ASK(dev->id, CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL, dev->usm.shared);
    ASK(dev->id, CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL, dev->usm.system);
}

static void ask_svm(ocl_device *dev)
{
    if (dev->platform->version < 200 || !cl.clSVMAlloc || !cl.clSVMFree || !cl.clEnqueueSVMMemcpy ||
        !cl.clEnqueueSVMMemFill || !cl.clSetKernelArgSVMPointer || !cl.clSetKernelExecInfo)
        return;
    ASK(dev->id, CL_DEVICE_SVM_CAPABILITIES, dev->svm);
}

static uint64_t usm_aspects(const ocl_usm_caps *c)
{
    const cl_bitfield any = CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL;
    /* SYCL's atomic aspects mean concurrent atomics of host and device. */
    const cl_bitfield both = CL_UNIFIED_SHARED_MEMORY_CONCURRENT_ATOMIC_ACCESS_INTEL;

    return aspect_if(c->host & any, USM_ASPECT_USM_HOST_ALLOCATIONS) |
           aspect_if(c->host & both, USM_ASPECT_USM_ATOMIC_HOST_ALLOCATIONS) |
           aspect_if(c->device & any, USM_ASPECT_USM_DEVICE_ALLOCATIONS) |
           aspect_if(c->shared & any, USM_ASPECT_USM_SHARED_ALLOCATIONS) |
           aspect_if(c->shared & both, USM_ASPECT_USM_ATOMIC_SHARED_ALLOCATIONS) |
           aspect_if(c->system & any, USM_ASPECT_USM_SYSTEM_ALLOCATIONS);
}

static uint64_t svm_aspects(cl_bitfield svm)
{
    bool is_fine   = svm & CL_DEVICE_SVM_FINE_GRAIN_BUFFER;
    bool is_atomic = is_fine && (svm & CL_DEVICE_SVM_ATOMICS);

    return aspect_if(svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, USM_ASPECT_USM_DEVICE_ALLOCATIONS) |
           aspect_if(is_fine, USM_ASPECT_USM_HOST_ALLOCATIONS) |
           aspect_if(is_fine, USM_ASPECT_USM_SHARED_ALLOCATIONS) |
           aspect_if(is_atomic, USM_ASPECT_USM_ATOMIC_HOST_ALLOCATIONS) |
           aspect_if(is_atomic, USM_ASPECT_USM_ATOMIC_SHARED_ALLOCATIONS) |
           aspect_if(svm & CL_DEVICE_SVM_FINE_GRAIN_SYSTEM, USM_ASPECT_USM_SYSTEM_ALLOCATIONS);
}

static uint64_t memory_aspects(ocl_device *dev, const char *extensions)
{
    uint64_t aspects;

    ask_usm(dev, extensions);
    ask_svm(dev);
    aspects = usm_aspects(&dev->usm);
    if (aspects) {
        dev->way = OCL_WAY_USM;
        return aspects;
    }
    aspects = svm_aspects(dev->svm);
    if (aspects)
        dev->way = OCL_WAY_SVM;
    return aspects;
}

/* --- computing --------------------------------------------------------------- */

static usm_status kernel_aspects(ocl_device *dev, uint64_t *aspects)
{
    cl_bool     has_compiler = CL_FALSE;
    cl_bitfield runs         = 0;
    bool        can_il;
    char       *il = device_text(dev->id, CL_DEVICE_IL_VERSION);

    if (!il)
        return ocl_no_memory();
    can_il = (dev->platform->version >= 201 && cl.clCreateProgramWithIL) ||
             dev->platform->ext.clCreateProgramWithILKHR;
    dev->has_il = can_il && strstr(il, "SPIR-V");
    ocl_host->heap_free(il);
    ASK(dev->id, CL_DEVICE_COMPILER_AVAILABLE, has_compiler);
    ASK(dev->id, CL_DEVICE_EXECUTION_CAPABILITIES, runs);
    *aspects |= aspect_if(runs & CL_EXEC_KERNEL, USM_ASPECT_KERNELS) |
                aspect_if(has_compiler, USM_ASPECT_IMAGE_OPENCL_C) |
                aspect_if(dev->has_il, USM_ASPECT_IMAGE_SPIRV);
    /* Only for CPUs it is certain that their own memory is the host's. */
    dev->runs_native = dev->info.type == USM_DEVICE_TYPE_CPU && (runs & CL_EXEC_NATIVE_KERNEL);
    return USM_OK;
}

static uint64_t other_aspects(const ocl_device *dev, const char *extensions)
{
    static const usm_aspect kinds[] = {
        [USM_DEVICE_TYPE_CPU]         = USM_ASPECT_CPU,
        [USM_DEVICE_TYPE_GPU]         = USM_ASPECT_GPU,
        [USM_DEVICE_TYPE_ACCELERATOR] = USM_ASPECT_ACCELERATOR,
    };
    cl_bitfield doubles = 0, queues = 0;

    ASK(dev->id, CL_DEVICE_DOUBLE_FP_CONFIG, doubles);
    ASK(dev->id, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, queues);
    return aspect(kinds[dev->info.type]) |
           aspect_if(has_word(extensions, "cl_khr_fp16"), USM_ASPECT_FP16) |
           aspect_if(doubles || has_word(extensions, "cl_khr_fp64"), USM_ASPECT_FP64) |
           aspect_if(has_word(extensions, "cl_khr_int64_base_atomics") &&
                         has_word(extensions, "cl_khr_int64_extended_atomics"),
                     USM_ASPECT_ATOMIC64) |
           aspect_if(queues & CL_QUEUE_PROFILING_ENABLE, USM_ASPECT_QUEUE_PROFILING) |
           aspect_if(queues & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
                     USM_ASPECT_OUT_OF_ORDER_QUEUE) |
           aspect_if(dev->info.sub_devices, USM_ASPECT_PARTITION);
}

static usm_device_type device_type(cl_device_id id)
{
    cl_device_type type = 0;

    ASK(id, CL_DEVICE_TYPE, type);
    if (type & CL_DEVICE_TYPE_GPU)
        return USM_DEVICE_TYPE_GPU;
    return type & CL_DEVICE_TYPE_CPU ? USM_DEVICE_TYPE_CPU : USM_DEVICE_TYPE_ACCELERATOR;
}

/* --- identity -------------------------------------------------------------------- */

static usm_status names(ocl_device *dev)
{
    usm_backend_device *info = &dev->info;
    usm_status          status;

    status = ocl_device_text(dev->id, CL_DEVICE_NAME, info->name, sizeof(info->name));
    if (!status)
        status = ocl_device_text(dev->id, CL_DEVICE_VENDOR, info->vendor, sizeof(info->vendor));
    if (!status)
        status = ocl_device_text(dev->id, CL_DRIVER_VERSION, info->driver_version,
                                 sizeof(info->driver_version));
    memcpy(info->platform_name, dev->platform->name, sizeof(info->platform_name));
    return status;
}

/* A sub-device has neither: it is not a physical device of its own. */
static void identity(ocl_device *dev, const char *extensions)
{
    usm_backend_device        *info = &dev->info;
    cl_device_pci_bus_info_khr pci  = {0, 0, 0, 0};
    static const uint8_t       zeroes[sizeof(info->uuid)];

    if (dev->parent)
        return;
    if (has_word(extensions, "cl_khr_pci_bus_info") &&
        !cl.clGetDeviceInfo(dev->id, CL_DEVICE_PCI_BUS_INFO_KHR, sizeof(pci), &pci, NULL)) {
        info->has_pci = true;
        info->pci[0]  = pci.pci_domain;
        info->pci[1]  = pci.pci_bus;
        info->pci[2]  = pci.pci_device;
        info->pci[3]  = pci.pci_function;
    }
    if (has_word(extensions, "cl_khr_device_uuid"))
        ASK(dev->id, CL_DEVICE_UUID_KHR, info->uuid);
    info->has_uuid = memcmp(info->uuid, zeroes, sizeof(zeroes)) != 0;
}

/* Intel's driver does so on GPUs with memory of their own that report no concurrent access. */
static bool moves_shared_whole(const ocl_device *dev)
{
    cl_bool is_unified = CL_FALSE;

    ASK(dev->id, CL_DEVICE_HOST_UNIFIED_MEMORY, is_unified);
    return dev->way == OCL_WAY_USM && dev->info.type == USM_DEVICE_TYPE_GPU && !is_unified &&
           !(dev->usm.shared & CL_UNIFIED_SHARED_MEMORY_CONCURRENT_ACCESS_INTEL);
}

static void sizes(ocl_device *dev)
{
    usm_backend_device *info   = &dev->info;
    cl_ulong            global = 0, largest = 0, local = 0;
    cl_uint             units = 0, vendor = 0;

    ASK(dev->id, CL_DEVICE_GLOBAL_MEM_SIZE, global);
    ASK(dev->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, largest);
    ASK(dev->id, CL_DEVICE_LOCAL_MEM_SIZE, local);
    ASK(dev->id, CL_DEVICE_MAX_COMPUTE_UNITS, units);
    ASK(dev->id, CL_DEVICE_MAX_WORK_GROUP_SIZE, info->max_work_group_size);
    ASK(dev->id, CL_DEVICE_VENDOR_ID, vendor);
    if (!info->max_work_group_size) /* NEO without its GPU returns 0 for DG2 */
        info->max_work_group_size = 1;
    info->memory_size       = global;
    info->max_alloc_size    = largest;
    info->local_memory_size = local;
    info->compute_units     = units;
    info->compute_threads   = info->type == USM_DEVICE_TYPE_CPU ? units : 0; /* one thread for
                                                                                each */
    /* The size of long16, to which OpenCL limits alignments.  Drivers honour more or less, or
     * ignore the argument, so the core makes larger alignments. */
    info->max_align        = 128;
    info->max_fill_pattern = DRIVER_MAX_PATTERN;
    dev->is_relaxed =
        dev->way == OCL_WAY_USM && info->type == USM_DEVICE_TYPE_GPU && vendor == INTEL_VENDOR_ID;
}

/* Recognised by an extension that only it has, because names change. */
static bool is_intels_cpu_runtime(const ocl_device *dev, const char *extensions)
{
    return dev->info.type == USM_DEVICE_TYPE_CPU &&
           has_word(extensions, "cl_intel_exec_by_local_thread");
}

usm_status ocl_device_describe(ocl_device *dev)
{
    usm_backend_device          *info = &dev->info;
    cl_device_partition_property cut[4];
    usm_status                   status = names(dev);
    char                        *extensions;

    if (status)
        return status;
    extensions = device_text(dev->id, CL_DEVICE_EXTENSIONS);
    if (!extensions)
        return ocl_no_memory();
    info->handle   = dev;
    info->platform = dev->platform;
    info->type     = device_type(dev->id);
    info->aspects  = memory_aspects(dev, extensions);
    sizes(dev);
    identity(dev, extensions);
    info->shared_moves_whole = moves_shared_whole(dev);
    info->sub_devices        = (uint32_t)ocl_device_cut(dev, cut);
    info->aspects |= other_aspects(dev, extensions);
    dev->needs_streams  = is_intels_cpu_runtime(dev, extensions);
    dev->has_amd_memory = has_word(extensions, "cl_amd_device_attribute_query");
    ocl_host->heap_free(extensions);
    return kernel_aspects(dev, &info->aspects);
}

usm_status ocl_device_memory(void *dev, uint64_t *total, uint64_t *free)
{
    const ocl_device *d         = dev;
    size_t            amd_kb[2] = {0, 0};

    if (d->has_amd_memory)
        ASK(d->id, CL_DEVICE_GLOBAL_FREE_MEMORY_AMD, amd_kb);
    *total = d->info.memory_size;
    *free  = amd_kb[0] ? (uint64_t)amd_kb[0] * 1024 : USM_MEMORY_UNKNOWN;
    return USM_OK;
}
