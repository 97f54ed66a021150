/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs kernels of the OpenCL runtime, one after the other as the thread that asks waits.
 *
 * A cl_kernel's arguments are its state: they are set and the launch is queued under the kernel's
 * lock; the wait is outside.  Queues are in order, taken from a small pool, so that threads of two
 * devices do not wait for each other.  But PoCL before version 6 runs one kernel at a time here: of
 * two launches of the same one, with and without an offset, it may give back the wrong form of the
 * kernel when one ends, and abort (pocl_release_dlhandle_cache).
 *
 * Called by kernel.c and launch.c. */
#include "opencl.h"

#include <stdlib.h>

#define IDLE_QUEUES 8

struct soft_cl_kernel {
    const soft_cl  *cl;
    cl_kernel       native;
    pthread_mutex_t lock; /* arguments and enqueue */
};

static pthread_mutex_t  pool_lock = PTHREAD_MUTEX_INITIALIZER;
static cl_command_queue pool[IDLE_QUEUES]; /* guarded by pool_lock */
static size_t           pooled;

static cl_command_queue queue_take(const soft_cl *cl, cl_int *error)
{
    cl_command_queue queue = NULL;

    *error = CL_SUCCESS;
    pthread_mutex_lock(&pool_lock);
    if (pooled > 0)
        queue = pool[--pooled];
    pthread_mutex_unlock(&pool_lock);
    return queue ? queue
                 : cl->CreateCommandQueueWithProperties(cl->context, cl->device, NULL, error);
}

static void queue_give_back(const soft_cl *cl, cl_command_queue queue)
{
    pthread_mutex_lock(&pool_lock);
    if (pooled < IDLE_QUEUES) {
        pool[pooled++] = queue;
        queue          = NULL;
    }
    pthread_mutex_unlock(&pool_lock);
    if (queue)
        cl->ReleaseCommandQueue(queue);
}

ze_result_t soft_cl_kernel_new(void *program, const char *name, soft_cl_kernel **kernel)
{
    soft_text       ignored = {0};
    const soft_cl  *cl      = soft_cl_runtime(&ignored);
    soft_cl_kernel *k       = cl ? calloc(1, sizeof(*k)) : NULL;
    const cl_bool   yes     = CL_TRUE;
    cl_int          error   = CL_SUCCESS;

    soft_text_free(&ignored);
    if (!k)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    k->cl     = cl;
    k->native = cl->CreateKernel(program, name, &error);
    if (error) {
        free(k);
        return soft_cl_result(error);
    }
    pthread_mutex_init(&k->lock, NULL);
    if (cl->has_system_svm) /* pointers found in memory; not all runtimes want to be told */
        (void)cl->SetKernelExecInfo(k->native, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM,
                                    sizeof(yes), &yes);
    *kernel = k;
    return ZE_RESULT_SUCCESS;
}

void soft_cl_kernel_free(soft_cl_kernel *kernel)
{
    if (!kernel)
        return;
    kernel->cl->ReleaseKernel(kernel->native);
    pthread_mutex_destroy(&kernel->lock);
    free(kernel);
}

void soft_cl_kernel_ask(soft_cl_kernel *kernel, soft_cl_kernel_info *info)
{
    const soft_cl *cl          = kernel->cl;
    cl_ulong       local_bytes = 0, private_bytes = 0;

    *info = (soft_cl_kernel_info){0};
    cl->GetKernelWorkGroupInfo(kernel->native, cl->device, CL_KERNEL_WORK_GROUP_SIZE,
                               sizeof(info->max_group), &info->max_group, NULL);
    cl->GetKernelWorkGroupInfo(kernel->native, cl->device,
                               CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, sizeof(info->multiple),
                               &info->multiple, NULL);
    cl->GetKernelWorkGroupInfo(kernel->native, cl->device, CL_KERNEL_LOCAL_MEM_SIZE,
                               sizeof(local_bytes), &local_bytes, NULL);
    cl->GetKernelWorkGroupInfo(kernel->native, cl->device, CL_KERNEL_PRIVATE_MEM_SIZE,
                               sizeof(private_bytes), &private_bytes, NULL);
    info->local_bytes   = (size_t)local_bytes;
    info->private_bytes = (size_t)private_bytes;
}

static cl_int set_arg(const soft_cl_kernel *kernel, cl_uint i, soft_arg_kind kind,
                      const soft_value *value)
{
    if (kind == SOFT_ARG_POINTER)
        return kernel->cl->SetKernelArgSVMPointer(kernel->native, i,
                                                  value->data ? *(void *const *)value->data : NULL);
    return kernel->cl->SetKernelArg(kernel->native, i, value->size, value->data);
}

static cl_int enqueue(soft_cl_kernel *kernel, const soft_call *call, cl_command_queue queue,
                      cl_event *event)
{
    size_t offset[3], global[3], local[3];
    cl_int error = CL_SUCCESS;

    for (int d = 0; d < 3; d++) {
        offset[d] = call->offset[d];
        local[d]  = call->group[d];
        global[d] = (size_t)call->count[d] * call->group[d];
    }
    pthread_mutex_lock(&kernel->lock);
    for (cl_uint i = 0; i < call->function->nargs && !error; i++)
        error = set_arg(kernel, i, call->function->args[i].kind, &call->values[i]);
    if (!error)
        error = kernel->cl->EnqueueNDRangeKernel(queue, kernel->native, 3, offset, global, local, 0,
                                                 NULL, event);
    pthread_mutex_unlock(&kernel->lock);
    return error;
}

/* The event's status tells what the wait of some runtimes does not. */
static cl_int wait(const soft_cl *cl, cl_event event)
{
    cl_int error  = cl->WaitForEvents(1, &event);
    cl_int status = CL_COMPLETE;

    if (!error || error == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
        cl->GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL);
    cl->ReleaseEvent(event);
    return status < 0 ? status : error;
}

static ze_result_t run(soft_cl_kernel *kernel, const soft_call *call)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    const bool             is_old        = !kernel->cl->create_with_il; /* takes bitcode: PoCL 3  */
    cl_event               event         = NULL;
    cl_int                 error;
    cl_command_queue       queue = queue_take(kernel->cl, &error);

    if (error)
        return soft_cl_result(error);
    if (is_old)
        pthread_mutex_lock(&one_at_a_time);
    error = enqueue(kernel, call, queue, &event);
    if (!error)
        error = wait(kernel->cl, event);
    if (is_old)
        pthread_mutex_unlock(&one_at_a_time);
    queue_give_back(kernel->cl, queue);
    return soft_cl_result(error);
}

ze_result_t soft_cl_run(soft_cl_kernel *kernel, const soft_call *call)
{
    ze_result_t result;

    if (!soft_cl_enter())
        return ZE_RESULT_ERROR_DEVICE_LOST;
    result = run(kernel, call);
    soft_cl_leave(true);
    return result;
}
