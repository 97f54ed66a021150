#!/usr/bin/env python3
"""pyopencl_pool.py: kernels of PyOpenCL over memory of a libusm pool.

    python3 pyopencl_pool.py

First inside a context that PyOpenCL made; then, where dpctl is installed, all three inside one native
context: dpctl writes, PyOpenCL computes, dpctl reads, and the memory is libusm's.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import os
import sys
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../python"))


def lacking(what):
    print("nothing to do: {}".format(what))
    sys.exit(77)


try:
    import numpy
    import pyopencl as cl
except ImportError as error:
    lacking("{}; `pip install pyopencl numpy` has it".format(error))
try:
    import usm
except ImportError as error:
    lacking(error)

warnings.simplefilter("ignore", cl.CompilerWarning)  # compilers that say that all went well
N = 16384
ROUNDS = 50
SOURCE = """
kernel void saxpy(float a, global const float *x, global float *y)
{
    size_t i = get_global_id(0);
    y[i] = a * x[i] + y[i];
}
"""


def device_with_svm():
    """The first device that can use pointers."""
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:
        platforms = []  # "no platforms" is an error there
    for platform in platforms:
        for device in platform.get_devices():
            try:
                if device.svm_capabilities:
                    return device
            except (cl.LogicError, cl.RuntimeError):
                continue  # older than OpenCL 2.0
    return lacking("no OpenCL device here has shared virtual memory (of {} platforms)".format(
        len(platforms)))


def in_a_context_of_pyopencl():
    device = device_with_svm()
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    print("PyOpenCL's context on {} ({})".format(device.name.strip(), device.platform.name))
    saxpy = cl.Kernel(cl.Program(context, SOURCE).build(), "saxpy")

    pool = usm.Pool(usm.Context.from_pyopencl(context), usm.SHARED)
    x_host = numpy.arange(N, dtype="f4")
    y_host = numpy.zeros(N, "f4")
    for _ in range(ROUNDS):
        # Temporaries of a round: each is a numpy-shaped SVM over a block of the pool.
        x, y = (pool.alloc(4 * N).svm("f4") for _ in range(2))
        cl.enqueue_copy(queue, x, x_host)
        cl.enqueue_copy(queue, y, y_host)
        saxpy(queue, (N,), None, numpy.float32(2), x, y)
        cl.enqueue_copy(queue, y_host, y)
        queue.finish()  # before x and y go: a block may not be freed while a kernel uses it
    right = (y_host == 2 * ROUNDS * x_host).all()
    stats = pool.stats()
    print("  {} rounds: {}; {} blocks of 64 KiB, {} calls to the driver for memory".format(
        ROUNDS, "right" if right else "WRONG", 2 * ROUNDS, stats["driver_allocs"]))
    return right


def in_a_context_of_dpctl():
    try:
        import dpctl
    except ImportError:
        print("dpctl is not installed: the second part is left out")
        return True
    try:
        sycl_queue = dpctl.SyclQueue("opencl")
    except dpctl.SyclQueueCreationError:
        print("dpctl sees no OpenCL device: the second part is left out")
        return True
    if not sycl_queue.sycl_device.has_aspect_usm_shared_allocations:
        print("dpctl's OpenCL device has no shared memory: the second part is left out")
        return True
    ours = usm.Context.from_dpctl(sycl_queue)
    context = cl.Context.from_int_ptr(ours.native("opencl"))
    queue = cl.CommandQueue(context)
    saxpy = cl.Kernel(cl.Program(context, SOURCE).build(), "saxpy")
    print("one context for dpctl, PyOpenCL and libusm, on {}".format(
        sycl_queue.sycl_device.name.strip()))

    pool = usm.Pool(ours, usm.SHARED)
    x, y = pool.alloc(4 * N), pool.alloc(4 * N)
    x_host = numpy.arange(N, dtype="f4")
    x.as_dpctl().copy_from_host(x_host.view("u1"))
    y.as_dpctl().copy_from_host(numpy.ones(N, "f4").view("u1"))
    saxpy(queue, (N,), None, numpy.float32(2), x.svm("f4"), y.svm("f4"))
    queue.finish()
    right = (y.as_dpctl().copy_to_host().view("f4") == 2 * x_host + 1).all()
    print("  dpctl wrote, PyOpenCL computed, dpctl read: {}".format("right" if right else "WRONG"))
    return right


def main():
    right = in_a_context_of_pyopencl()
    return 0 if in_a_context_of_dpctl() and right else 1


if __name__ == "__main__":
    sys.exit(main())
