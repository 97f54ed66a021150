#!/usr/bin/env python3
"""The module python/usm beside dpctl, dpnp, NumPy and PyOpenCL (tests/python/run.sh has them).

Over the OpenCL device that dpctl finds; references are counted by asking OpenCL.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import ctypes
import gc
import os
import subprocess
import sys
import unittest
from unittest import mock

import dpctl
import dpctl.memory
import dpnp
import numpy
import pyopencl

import usm
from usm import _dpctl

CLASSES = {
    usm.HOST: dpctl.memory.MemoryUSMHost,
    usm.DEVICE: dpctl.memory.MemoryUSMDevice,
    usm.SHARED: dpctl.memory.MemoryUSMShared,
}
CL_CONTEXT_REFERENCE_COUNT, CL_QUEUE_REFERENCE_COUNT = 0x1080, 0x1092
CL_DEVICE_REFERENCE_COUNT = 0x1047
SAXPY = """
kernel void saxpy(float a, global const float *x, global float *y)
{
    size_t i = get_global_id(0);
    y[i] = a * x[i] + y[i];
}
"""


def references(function, handle, what):
    number = ctypes.c_uint32()
    ask = getattr(ctypes.CDLL("libOpenCL.so.1"), function)
    ask.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p,
                    ctypes.c_void_p]
    assert ask(handle, what, 4, ctypes.addressof(number), None) == 0
    return number.value


class Offered:
    """Any address as dpctl wants it offered."""

    def __init__(self, address, nbytes, queue):
        self.__sycl_usm_array_interface__ = {
            "data": (address, True), "shape": (nbytes,), "strides": None, "typestr": "|u1",
            "version": 1, "syclobj": queue}


class Dpctl(unittest.TestCase):
    def setUp(self):
        self.queue = dpctl.SyclQueue("opencl")
        self.context = usm.Context.from_dpctl(self.queue)

    def test_memory_of_each_kind_is_dpctls_memory_of_that_kind(self):
        for kind, class_ in CLASSES.items():
            memory = usm.Pool(self.context, kind).alloc(1000)
            seen = memory.as_dpctl()
            self.assertIs(type(seen), class_)
            self.assertEqual((seen._pointer, seen.nbytes), (memory.ptr, 1000))
            self.assertIs(seen.reference_obj, memory)

    def test_what_dpctl_writes_libusm_reads_and_the_reverse(self):
        text = numpy.arange(1000, dtype="f4")
        for kind in CLASSES:
            memory = usm.Pool(self.context, kind).alloc(4000)
            memory.as_dpctl().copy_from_host(text.view("u1"))
            back = numpy.zeros_like(text)
            usm.copy(back, memory)
            self.assertTrue((back == text).all())
            usm.copy(memory, back + 1)
            self.assertTrue((memory.as_dpctl().copy_to_host().view("f4") == text + 1).all())

    def test_memory_of_another_context_and_of_none_is_refused(self):
        other = usm.Pool(usm.Context.from_dpctl(dpctl.SyclQueue(dpctl.SyclContext(
            [self.queue.sycl_device]), self.queue.sycl_device)), usm.DEVICE).alloc(64)
        mine = ctypes.create_string_buffer(64)
        freed = usm.Pool(self.context, usm.DEVICE, name="direct").alloc(64)
        address = freed.ptr
        freed.free()
        for where in (other.ptr, ctypes.addressof(mine), address):
            with self.assertRaises(ValueError):
                dpctl.memory.as_usm_memory(Offered(where, 64, self.queue))
        with self.assertRaises(ValueError):
            freed.as_dpctl()

    def test_dpctl_keeps_memory_alive(self):
        pool = usm.Pool(self.context, usm.DEVICE)
        seen = pool.alloc(1000).as_dpctl()
        gc.collect()
        self.assertEqual(pool.stats()["blocks"], 1)
        seen.copy_from_host(bytes(1000))
        del seen
        gc.collect()
        self.assertEqual(pool.stats()["blocks"], 0)

    def test_what_is_left_at_the_end_of_the_interpreter_goes_quietly(self):
        code = ("import dpctl, dpnp, usm\n"
                "queue = dpctl.SyclQueue('opencl')\n"
                "pool = usm.Pool(usm.Context.from_dpctl(queue), 'device')\n"
                "x = pool.alloc(4000).dpnp('f4')\n"
                "x.fill(1)\n"
                "y = x + x\n"
                "cycle = [x, pool]; cycle.append(cycle)\n")
        done = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=dict(os.environ, USM_VALIDATION="1"))
        self.assertEqual((done.returncode, done.stdout.decode()), (0, ""))


class References(unittest.TestCase):
    """What SYCL adds is given back."""

    def setUp(self):
        device = dpctl.SyclQueue("opencl").sycl_device
        self.device = device.create_sub_devices(partition=[1])[0]
        self.queue = dpctl.SyclQueue(dpctl.SyclContext([self.device]), self.device)
        with _dpctl.native(self.queue, "context", "opencl") as self.native:
            pass  # the queue holds it
        with _dpctl.native(self.queue, "device", "opencl") as self.native_device:
            pass

    def counts(self):
        gc.collect()
        return (references("clGetContextInfo", self.native, CL_CONTEXT_REFERENCE_COUNT),
                references("clGetDeviceInfo", self.native_device, CL_DEVICE_REFERENCE_COUNT))

    def test_contexts_pools_and_queues_leave_none_behind(self):
        before = None
        for i in range(20):
            context = usm.Context.from_dpctl(self.queue)
            memory = usm.Pool(context, usm.SHARED).alloc(100)
            queue = usm.Queue.from_dpctl(context, self.queue)
            queue.fill(memory, b"x")
            queue.wait()
            if i == 9:
                self.assertGreater(self.counts()[0], before[0])
            del context, memory, queue
            before = before or self.counts()  # what is kept once is no leak
        self.assertEqual(self.counts(), before)

    def test_nor_does_a_context_that_is_refused(self):
        before = self.counts()
        with mock.patch.object(usm.Context, "from_native", side_effect=MemoryError):
            for _ in range(5):
                with self.assertRaises(MemoryError):
                    usm.Context.from_dpctl(self.queue)
        self.assertEqual(self.counts(), before)

    def test_a_native_queue_is_given_back(self):
        context = usm.Context.from_dpctl(self.queue)
        handle = _dpctl.Interface.get().native_queue(self.queue.addressof_ref(),
                                                     ctypes.c_int())

        def count():
            return references("clGetCommandQueueInfo", handle, CL_QUEUE_REFERENCE_COUNT)
        before = count()
        queue = usm.Queue.from_dpctl(context, self.queue)
        self.assertEqual(count(), before + 1)
        del queue
        gc.collect()
        self.assertEqual(count(), before)
        _dpctl.release_opencl("queue", handle)

    def test_the_queue_works_on_when_libusm_is_gone(self):
        context = usm.Context.from_dpctl(self.queue)
        del context
        gc.collect()
        x = dpnp.arange(100, dtype="f4", sycl_queue=self.queue)
        self.assertEqual(float((x + x).sum()), 9900.0)


class Dpnp(unittest.TestCase):
    def setUp(self):
        self.queue = dpctl.SyclQueue("opencl")
        self.context = usm.Context.from_dpctl(self.queue)

    def test_its_kernels_work_over_each_kind(self):
        for kind in CLASSES:
            x = usm.Pool(self.context, kind).alloc(4 * 1000).dpnp("f4", (10, 100))
            self.assertEqual((x.shape, x.usm_type), ((10, 100), kind))
            x[...] = dpnp.arange(1000, dtype="f4", sycl_queue=self.queue).reshape(10, 100)
            self.assertTrue((dpnp.asnumpy(x * 2 + 1) ==
                             (2 * numpy.arange(1000) + 1).reshape(10, 100)).all())

    def test_temporaries_that_are_dropped_are_not_used_again_before_their_kernels_end(self):
        pool = usm.Pool(self.context, usm.DEVICE)
        n = 1 << 20
        total = pool.alloc(4 * n).dpnp()
        total.fill(0)
        for i in range(40):  # nothing waits: the same few blocks, were they free too early
            part = pool.alloc(4 * n).dpnp()
            part.fill(i)
            dpnp.add(total, part, out=total)
            del part
        self.assertTrue((dpnp.asnumpy(total) == sum(range(40))).all())

    def test_an_in_order_queue_orders_its_commands_and_libusms(self):
        # Copies of dpctl go to the native queue at once.  dpnp's kernels may not: it puts host tasks
        # behind them, and SYCL holds back what comes after a host task.
        queue = dpctl.SyclQueue("opencl", property="in_order")
        context = usm.Context.from_dpctl(queue)
        ours = usm.Queue.from_dpctl(context, queue)
        pool, size = usm.Pool(context, usm.DEVICE), 4 << 20
        a, b = pool.alloc(size), pool.alloc(size)
        back = numpy.empty(1 << 20, "f4")
        for i in range(20):
            ours.fill(a, numpy.float32(i).tobytes())
            queue.memcpy_async(b.as_dpctl(), a.as_dpctl(), size)
            ours.memcpy(back, b).wait()
            self.assertTrue((back == i).all())

    def test_in_an_out_of_order_queue_libusms_commands_keep_their_order(self):
        self.assertFalse(self.queue.is_in_order)
        ours = usm.Queue.from_dpctl(self.context, self.queue)
        memory = usm.Pool(self.context, usm.DEVICE).alloc(4 << 20)
        back = numpy.empty(1 << 20, "f4")
        for i in range(20):
            ours.fill(memory, numpy.float32(i).tobytes())
            ours.memcpy(back, memory)
        ours.wait()
        self.assertTrue((back == 19).all())

    def test_dpnps_kernels_see_what_libusm_wrote_in_their_queue(self):
        queue = dpctl.SyclQueue("opencl", property="in_order")
        context = usm.Context.from_dpctl(queue)
        ours = usm.Queue.from_dpctl(context, queue)
        memory = usm.Pool(context, usm.DEVICE).alloc(4 << 20)
        x, back = memory.dpnp(), numpy.empty(1 << 20, "f4")
        for i in range(20):
            ours.fill(memory, numpy.float32(i).tobytes())
            x += 1
            queue.wait()
            usm.copy(back, memory)
            self.assertTrue((back == i + 1).all())

    def test_parts_on_two_sub_devices_come_together(self):
        device = self.queue.sycl_device
        parts = []
        whole = numpy.arange(1000, dtype="f4")
        for half, at in zip(device.create_sub_devices(partition=[1, 1]), (0, 500)):
            queue = dpctl.SyclQueue(half)
            memory = usm.Pool(usm.Context.from_dpctl(queue), usm.DEVICE).alloc(2000)
            usm.copy(memory, whole[at:at + 500])
            x = memory.dpnp()
            x *= 3
            parts.append((queue, memory))
        result = numpy.empty_like(whole)
        for i, (queue, memory) in enumerate(parts):
            queue.wait()
            usm.copy(result[500 * i:500 * i + 500], memory)
        self.assertTrue((result == 3 * whole).all())


class Numpy(unittest.TestCase):
    def test_a_view_is_the_memory_and_keeps_it(self):
        pool = usm.Pool(usm.Context(), usm.HOST)
        memory = pool.alloc(4000)
        view = memory.numpy("f4", (10, 100))
        other = numpy.asarray(memory)
        self.assertEqual(view.__array_interface__["data"][0], memory.ptr)
        self.assertEqual(other.__array_interface__["data"][0], memory.ptr)
        view[...] = 2
        self.assertEqual(bytes(other[:4]), numpy.float32(2).tobytes())
        del memory
        part = view[3:]
        del view, other
        gc.collect()
        self.assertEqual(pool.stats()["blocks"], 1)
        part += 1
        del part
        gc.collect()
        self.assertEqual(pool.stats()["blocks"], 0)

    def test_an_array_with_gaps_is_refused(self):
        memory = usm.Pool(usm.Context(), usm.HOST).alloc(400)
        with self.assertRaises(ValueError):
            usm.copy(memory, numpy.zeros(100, "f4")[::2])


class PyOpenCL(unittest.TestCase):
    def saxpy(self, context, x, y):
        queue = pyopencl.CommandQueue(context)
        program = pyopencl.Program(context, SAXPY).build(cache_dir=False)
        pyopencl.Kernel(program, "saxpy")(queue, x.mem.shape, None, numpy.float32(2), x, y)
        back = numpy.empty_like(y.mem)
        pyopencl.enqueue_copy(queue, back, y)
        queue.finish()
        return back

    def check_over(self, context, ours, kinds):
        for kind in kinds:
            pool = usm.Pool(ours, kind)
            x, y = pool.alloc(4000), pool.alloc(4000)
            usm.copy(x, numpy.arange(1000, dtype="f4"))
            usm.copy(y, numpy.ones(1000, "f4"))
            back = self.saxpy(context, x.svm("f4"), y.svm("f4"))
            self.assertTrue((back == 2 * numpy.arange(1000) + 1).all(), kind)

    def test_its_kernels_work_over_memory_in_its_own_context(self):
        context = pyopencl.Context([pyopencl.get_platforms()[0].get_devices()[0]])
        self.check_over(context, usm.Context.from_pyopencl(context), CLASSES)

    def test_and_over_memory_in_dpctls(self):
        ours = usm.Context.from_dpctl(dpctl.SyclQueue("opencl"))
        self.check_over(pyopencl.Context.from_int_ptr(ours.native("opencl")), ours, CLASSES)

    def test_svm_keeps_the_memory(self):
        context = pyopencl.Context([pyopencl.get_platforms()[0].get_devices()[0]])
        pool = usm.Pool(usm.Context.from_pyopencl(context), usm.SHARED)
        svm = pool.alloc(4000).svm("f4")
        gc.collect()
        self.assertEqual(pool.stats()["blocks"], 1)
        del svm
        gc.collect()
        self.assertEqual(pool.stats()["blocks"], 0)

    def test_a_queue_over_its_own_orders_both(self):
        context = pyopencl.Context([pyopencl.get_platforms()[0].get_devices()[0]])
        queue = pyopencl.CommandQueue(context)
        ours = usm.Context.from_pyopencl(context)
        over = usm.Queue.from_pyopencl(ours, queue)
        pool = usm.Pool(ours, usm.DEVICE)
        x, y = pool.alloc(4000), pool.alloc(4000)
        saxpy = pyopencl.Kernel(pyopencl.Program(context, SAXPY).build(cache_dir=False), "saxpy")
        back = numpy.empty(1000, "f4")
        over.fill(x, numpy.float32(3).tobytes())
        over.fill(y, numpy.float32(1).tobytes())
        saxpy(queue, (1000,), None, numpy.float32(2), x.svm("f4"), y.svm("f4"))
        over.memcpy(back, y).wait()
        self.assertTrue((back == 7).all())


if __name__ == "__main__":
    unittest.main(verbosity=2)
