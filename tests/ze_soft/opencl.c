/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finds an OpenCL runtime that can run SPIR-V modules, in the same process.
 *
 * ZE_SOFT_SPIRV names a library: a runtime's own, or an ICD loader; else it is libOpenCL.so.1, the
 * very one the program uses when it does.  Of the CPU devices there the first that takes SPIR-V is
 * chosen, else the first that takes SPIR bitcode (PoCL 3.1), which translate.c makes.  Only what
 * the driver makes itself is used of it: a context and queues of its own.
 *
 * A runtime without a loader may export nothing but clGetExtensionFunctionAddress: its functions
 * are then those of the dispatch table that each of its platforms starts with (cl_khr_icd).
 *
 * The choice is made once and kept for the life of the process.
 *
 * exit() destroys what LLVM keeps in static variables while PoCL's threads compile kernels with it:
 * 6 of 30 programs that ended in the middle of a launch fell there.  So an exit handler, which is
 * registered after LLVM was loaded and therefore runs before its destructors, waits until nobody
 * compiles or runs, some seconds at most, and lets nobody in afterwards.  It is registered once
 * more when a first kernel has run, as LLVM has made more such variables by then: a process that
 * ends in the middle of its very first kernel may still fall.
 *
 * Called by clbuild.c, clrun.c. */
#include "opencl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXIT_SECONDS  5
#define MAX_PLATFORMS 16
#define MAX_DEVICES   8

typedef cl_int CL_API_CALL platforms_fn(cl_uint, cl_platform_id *, cl_uint *);

static struct {
    soft_cl   cl;
    bool      is_there;
    soft_text why; /* when it is not */
} chosen;

/* POSIX lets an object pointer carry a function's address; ISO C needs the detour. */
#define FUNCTION(type, pointer)                                                                    \
    ((union {                                                                                      \
         void *p;                                                                                  \
         type *f;                                                                                  \
     }){.p = (pointer)}                                                                            \
         .f)

static void *open_library(const char **path)
{
    const char *wanted = getenv("ZE_SOFT_SPIRV");
    void       *library;

    *path   = wanted && *wanted ? wanted : "libOpenCL.so.1";
    library = dlopen(*path, RTLD_NOW | RTLD_NOLOAD);
    return library ? library : dlopen(*path, RTLD_NOW | RTLD_LOCAL);
}

static cl_uint list_platforms(void *library, bool *is_loader, cl_platform_id *platforms)
{
    void         *symbol = dlsym(library, "clGetPlatformIDs");
    platforms_fn *get;
    cl_uint       n = 0;

    *is_loader = symbol != NULL;
    if (!symbol)
        symbol = dlsym(library, "clIcdGetPlatformIDsKHR");
    if (!symbol) {
        typedef void *CL_API_CALL address_fn(const char *);
        void                     *find = dlsym(library, "clGetExtensionFunctionAddress");

        symbol = find ? FUNCTION(address_fn, find)("clIcdGetPlatformIDsKHR") : NULL;
    }
    get = FUNCTION(platforms_fn, symbol);
    if (!get || get(MAX_PLATFORMS, platforms, &n) != CL_SUCCESS)
        return 0;
    return n < MAX_PLATFORMS ? n : MAX_PLATFORMS;
}

/* Of the library where it exports them, else of the platform's dispatch table. */
static bool take_functions(soft_cl *cl, void *library, bool is_loader, cl_platform_id platform)
{
    bool is_whole = true;

#define X(name)                                                                                    \
    if (is_loader)                                                                                 \
        cl->name = FUNCTION(__typeof__(*cl->name), dlsym(library, "cl" #name));                    \
    else                                                                                           \
        cl->name = (*(cl_icd_dispatch *const *)(void *)platform)->cl##name;                        \
    is_whole = is_whole && cl->name;
    SOFT_CL_FUNCTIONS(X)
#undef X
    return is_whole;
}

static void take_extensions(soft_cl *cl)
{
#define EXTENSION(type, name)                                                                      \
    FUNCTION(type, cl->GetExtensionFunctionAddressForPlatform(cl->platform, name))
    cl->create_with_il = EXTENSION(soft_cl_with_il, "clCreateProgramWithILKHR");
    cl->global         = EXTENSION(soft_cl_global_fn, "clGetDeviceGlobalVariablePointerINTEL");
    cl->function       = EXTENSION(soft_cl_function_fn, "clGetDeviceFunctionPointerINTEL");
#undef EXTENSION
}

static void ask_text(const soft_cl *cl, cl_device_id device, cl_device_info what, char *text,
                     size_t size)
{
    text[0] = 0;
    if (cl->GetDeviceInfo(device, what, size, text, NULL) != CL_SUCCESS)
        text[0] = 0;
    text[size - 1] = 0;
}

/* "OpenCL 3.0 PoCL 3.1 ... LLVM 14.0.6 ...": the bitcode it takes is that LLVM's. */
static unsigned llvm_of(const soft_cl *cl, cl_platform_id platform)
{
    char        version[512] = "";
    const char *at;

    cl->GetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof(version), version, NULL);
    version[sizeof(version) - 1] = 0;
    at                           = strstr(version, "LLVM ");
    return at ? (unsigned)strtoul(at + 5, NULL, 10) : 0;
}

typedef enum intake { TAKES_NOTHING, TAKES_BITCODE, TAKES_SPIRV } intake;

static intake judge_device(soft_cl *cl, cl_device_id device, soft_text *why)
{
    static char extensions[16384]; /* too much for a stack; under the once */
    char        il[512];

    ask_text(cl, device, CL_DEVICE_NAME, cl->name, sizeof(cl->name));
    ask_text(cl, device, CL_DEVICE_IL_VERSION, il, sizeof(il));
    ask_text(cl, device, CL_DEVICE_EXTENSIONS, extensions, sizeof(extensions));
    take_extensions(cl);
    if (strstr(il, "SPIR-V") && cl->create_with_il)
        return TAKES_SPIRV;
    cl->create_with_il = NULL;
    cl->llvm           = llvm_of(cl, cl->platform);
    if (!strstr(extensions, "cl_khr_spir")) {
        soft_text_add(why, "  %s takes neither SPIR-V nor SPIR\n", cl->name);
        return TAKES_NOTHING;
    }
    if (soft_can_translate(cl->llvm))
        return TAKES_BITCODE;
    soft_text_add(
        why, "  %s takes SPIR bitcode, which llvm-spirv-%u or an older one makes: install it\n",
        cl->name, cl->llvm);
    return TAKES_NOTHING;
}

/* Keeps the best device of the platform in *best. */
static intake search_platform(const soft_cl *candidate, soft_cl *best, intake found, soft_text *why)
{
    cl_device_id devices[MAX_DEVICES];
    cl_uint      n = 0;

    if (candidate->GetDeviceIDs(candidate->platform, CL_DEVICE_TYPE_CPU, MAX_DEVICES, devices,
                                &n) != CL_SUCCESS)
        return found;
    for (cl_uint i = 0; i < n && i < MAX_DEVICES; i++) {
        soft_cl cl    = *candidate;
        intake  takes = judge_device(&cl, devices[i], why);

        if (takes <= found)
            continue;
        found        = takes;
        *best        = cl;
        best->device = devices[i];
    }
    return found;
}

static bool open_context(soft_cl *cl, soft_text *why)
{
    cl_device_svm_capabilities svm   = 0;
    cl_int                     error = CL_SUCCESS;

    cl->context = cl->CreateContext(NULL, 1, &cl->device, NULL, NULL, &error);
    if (!cl->context) {
        soft_text_add(why, "  %s opens no context: OpenCL error %d\n", cl->name, error);
        return false;
    }
    cl->GetDeviceInfo(cl->device, CL_DEVICE_SVM_CAPABILITIES, sizeof(svm), &svm, NULL);
    cl->has_system_svm = svm & CL_DEVICE_SVM_FINE_GRAIN_SYSTEM;
    return true;
}

static bool search(soft_cl *best, soft_text *why)
{
    cl_platform_id platforms[MAX_PLATFORMS];
    intake         found     = TAKES_NOTHING;
    bool           is_loader = false;
    const char    *path;
    void          *library = open_library(&path);
    cl_uint        n;

    if (!library) {
        const char *error = dlerror();

        soft_text_add(why, "  %s\n", error ? error : path);
        return false;
    }
    n = list_platforms(library, &is_loader, platforms);
    if (n == 0)
        soft_text_add(why, "  %s lists no platform\n", path);
    for (cl_uint i = 0; i < n; i++) {
        soft_cl candidate = {.platform = platforms[i]};

        if (take_functions(&candidate, library, is_loader, platforms[i]))
            found = search_platform(&candidate, best, found, why);
    }
    return found != TAKES_NOTHING && open_context(best, why);
}

/* --- the end of the process ------------------------------------------------------------------- */

/* Read by who compiles or runs; threads that go on doing so let the handler in. */
static pthread_rwlock_t in_use = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static bool             has_ended; /* guarded by it */
static pid_t            process;   /* that has the threads */

static void on_exit_of_process(void)
{
    struct timespec until;

    if (getpid() != process)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += EXIT_SECONDS;
    if (pthread_rwlock_timedwrlock(&in_use, &until) != 0)
        return;
    has_ended = true;
    pthread_rwlock_unlock(&in_use);
}

static void register_handler(void)
{
    (void)atexit(on_exit_of_process);
}

bool soft_cl_enter(void)
{
    pthread_rwlock_rdlock(&in_use);
    if (!has_ended)
        return true;
    pthread_rwlock_unlock(&in_use);
    return false;
}

void soft_cl_leave(bool has_run)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_rwlock_unlock(&in_use);
    if (has_run)
        pthread_once(&once, register_handler);
}

static void choose(void)
{
    soft_text_add(&chosen.why, "no OpenCL runtime here can run SPIR-V modules:\n");
    chosen.is_there = search(&chosen.cl, &chosen.why);
    process         = getpid();
    register_handler();
    soft_text_add(
        &chosen.why,
        "install one whose CPU device takes SPIR-V (PoCL 6 or later, Intel's CPU runtime),"
        " or PoCL 3.1 with llvm-spirv-14 (Debian 12: pocl-opencl-icd, llvm-spirv-14), or"
        " set ZE_SOFT_SPIRV to the path of such a runtime's library\n");
}

const soft_cl *soft_cl_runtime(soft_text *log)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, choose);
    if (chosen.is_there)
        return &chosen.cl;
    soft_text_add(log, "%s", chosen.why.chars ? chosen.why.chars : "no memory\n");
    return NULL;
}

ze_result_t soft_cl_result(cl_int error)
{
    switch (error) {
    case CL_SUCCESS:
        return ZE_RESULT_SUCCESS;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
        return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    case CL_OUT_OF_HOST_MEMORY:
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    case CL_INVALID_ARG_SIZE:
        return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
    case CL_INVALID_ARG_INDEX:
        return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX;
    case CL_INVALID_KERNEL_NAME:
        return ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
    case CL_INVALID_WORK_GROUP_SIZE:
    case CL_INVALID_WORK_ITEM_SIZE:
        return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
    default:
        return ZE_RESULT_ERROR_UNKNOWN;
    }
}
