#!/usr/bin/env python3
"""The module python/usm beside dpctl on Level Zero; level_zero.sh runs it over the software driver.

dpctl's runtime has two Level Zero adapters: the newer's queues are command lists, the older's command
queues, which it fills when it thinks fit.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import ctypes
import gc
import unittest

import dpctl
import dpctl.memory
import numpy

import usm

CLASSES = {
    usm.HOST: dpctl.memory.MemoryUSMHost,
    usm.DEVICE: dpctl.memory.MemoryUSMDevice,
    usm.SHARED: dpctl.memory.MemoryUSMShared,
}
SIZE = 4 << 20


class LevelZero(unittest.TestCase):
    def setUp(self):
        self.queue = dpctl.SyclQueue("level_zero:gpu", property="in_order")
        self.context = usm.Context.from_dpctl(self.queue)

    def test_the_context_is_on_the_queues_device(self):
        (device,) = self.context.devices
        self.assertEqual((device["backend"], device["name"]),
                         ("level_zero", self.queue.sycl_device.name))

    def test_memory_of_each_kind_is_dpctls_and_the_bytes_are_the_same(self):
        text = numpy.arange(1000, dtype="f4")
        for kind, class_ in CLASSES.items():
            memory = usm.Pool(self.context, kind).alloc(4000)
            seen = memory.as_dpctl()
            self.assertIs(type(seen), class_)
            seen.copy_from_host(text.view("u1"))
            back = numpy.zeros_like(text)
            usm.copy(back, memory)
            self.assertTrue((back == text).all())
            usm.copy(memory, back + 1)
            self.assertTrue((seen.copy_to_host().view("f4") == text + 1).all())

    def test_other_memory_is_refused(self):
        mine = ctypes.create_string_buffer(64)

        class Offered:
            __sycl_usm_array_interface__ = {
                "data": (ctypes.addressof(mine), True), "shape": (64,), "strides": None,
                "typestr": "|u1", "version": 1, "syclobj": self.queue}
        with self.assertRaises(ValueError):
            dpctl.memory.as_usm_memory(Offered())

    def test_libusms_commands_in_its_queue_keep_their_order(self):
        for queue in (self.queue, dpctl.SyclQueue(self.queue.sycl_context, self.queue.sycl_device)):
            ours = usm.Queue.from_dpctl(self.context, queue)
            memory = usm.Pool(self.context, usm.DEVICE).alloc(SIZE)
            back = numpy.empty(SIZE // 4, "f4")
            for i in range(20):
                ours.fill(memory, numpy.float32(i).tobytes())
                ours.memcpy(back, memory)
            ours.wait()
            self.assertTrue((back == 19).all())

    def test_waits_order_both_sides(self):
        ours = usm.Queue.from_dpctl(self.context, self.queue)
        pool = usm.Pool(self.context, usm.DEVICE)
        a, b, back = pool.alloc(SIZE), pool.alloc(SIZE), numpy.empty(SIZE // 4, "f4")
        for i in range(20):
            ours.fill(a, numpy.float32(i).tobytes()).wait()
            # Not self.queue.wait(): the newer adapter answers UNSUPPORTED_FEATURE over this driver.
            self.queue.memcpy_async(b.as_dpctl(), a.as_dpctl(), SIZE).wait()
            ours.memcpy(back, b).wait()
            self.assertTrue((back == i).all())

    def test_the_queue_works_on_when_libusm_is_gone(self):
        memory = usm.Pool(self.context, usm.SHARED).alloc(64)
        memory.as_dpctl().copy_from_host(bytes(64))
        del memory, self.context
        gc.collect()
        own = dpctl.memory.MemoryUSMShared(64, queue=self.queue)
        own.copy_from_host(b"works on".ljust(64))
        self.assertEqual(own.copy_to_host().tobytes(), b"works on".ljust(64))


if __name__ == "__main__":
    unittest.main(verbosity=2)
