#!/usr/bin/env python3
"""Arrays, kernels, files and profiles of the package usm; needs NumPy (pytest runs it, too).

The device is the one of USM_DEVICE_SELECTOR.  USM_LIBRARY tests the sources over a build; without it
the installed package is tested.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
if "USM_LIBRARY" in os.environ:
    sys.path.insert(0, os.path.join(HERE, "..", "..", "python"))

import numpy  # noqa: E402
import usm  # noqa: E402

SCALE = "kernel void scale(global float *x, const float by) { x[get_global_id(0)] *= by; }"
ROUNDS = int(os.environ.get("USM_TEST_ROUNDS", "2000"))


def kernels_or_skip(test):
    try:
        usm.Program(SCALE).scale[1](usm.zeros(1), 1.0).wait()
    except usm.Error as error:
        if error.name != "USM_E_NO_IMAGE":
            raise
        test.skipTest("the device runs no kernels from text: {}".format(error.story))


class Arrays(unittest.TestCase):
    def test_values_come_back(self):
        for values in (*(numpy.arange(24).astype(dtype).reshape(2, 3, 4)
                         for dtype in ("i1", "f4", "f8", "c16", "M8[s]")),
                       numpy.array(5.0), numpy.zeros((0, 3)), numpy.arange(12.0)[::-3]):
            array = usm.asarray(values)
            self.assertEqual((array.shape, array.dtype), (values.shape, values.dtype))
            self.assertTrue((array.to_numpy() == values).all())

    def test_numpy_takes_host_memory_without_a_copy(self):
        array = usm.zeros((3, 4), kind="host")
        for view in (numpy.asarray(array), numpy.from_dlpack(array), array.numpy()):
            self.assertEqual(view.ctypes.data, array.ptr)
        numpy.asarray(array)[1] = 5
        self.assertEqual(array[1].to_numpy().tolist(), [5] * 4)

    def test_views_keep_the_memory(self):
        before = usm.current().pool("host").stats()["blocks"]
        view = usm.full(100, 7, kind="host").numpy()
        gc.collect()
        self.assertEqual((view == 7).sum(), 100)
        del view
        usm.current().queue.wait()
        self.assertEqual(usm.current().pool("host").stats()["blocks"], before)

    def test_device_memory_is_copied_only(self):
        array = usm.full(10, 3, kind="device")
        self.assertFalse(hasattr(array, "__array_interface__"))
        with self.assertRaisesRegex(TypeError, "to_numpy"):
            array.numpy()
        with self.assertRaisesRegex(BufferError, "SYCL"):
            array.__dlpack__()
        self.assertEqual(array.to_numpy().tolist(), [3] * 10)

    def test_rows_share_memory(self):
        array = usm.zeros((5, 2))
        array[1:3].fill(1)
        array[-1].fill(2)
        self.assertEqual(array.to_numpy().tolist(),
                         [[0, 0], [1, 1], [1, 1], [0, 0], [2, 2]])
        for wrong in (5, -6, slice(0, 4, 2), "x"):
            with self.assertRaises(IndexError):
                array[wrong]

    def test_wrong_arguments_are_refused(self):
        with self.assertRaises(TypeError):
            usm.empty(3, "O")
        with self.assertRaises(ValueError):
            usm.empty(-1)
        with self.assertRaises(ValueError):
            usm.empty(1, kind="Host")
        with self.assertRaises(ValueError):
            usm.empty(3).copy_from([1, 2])
        with self.assertRaisesRegex(usm.Error, "USM_E_SELECTOR|USM_E_NO_BACKEND"):
            usm.empty(1, device="no such thing")

    def test_places_are_chosen(self):
        here = usm.current()
        with usm.device_context("host:*") as place:
            self.assertEqual(usm.empty(1).place.selector, "host:0")
            self.assertIs(usm.current(), place)
        self.assertIs(usm.current(), here)
        with usm.host_offload():
            self.assertRegex(usm.empty(1).place.selector, "^(host|opencl):")

    def test_split_and_gather(self):
        values = numpy.arange(21).reshape(7, 3)
        parts = usm.split(values, ["host:*", usm.current(), "host:*"])
        self.assertEqual([len(part) for part in parts], [3, 2, 2])
        self.assertTrue((usm.gather(parts) == values).all())
        self.assertTrue((usm.gather(usm.split(usm.asarray(values))) == values).all())

    def test_rounds_leak_nothing(self):
        pool = usm.current().pool("host")

        def rounds(n):
            for _ in range(n):
                usm.full(16, 1, kind="host")
            usm.current().queue.wait()
            gc.collect()
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096
        before = rounds(max(500, ROUNDS // 10)), pool.stats()["blocks"]
        after = rounds(ROUNDS), pool.stats()["blocks"]
        self.assertEqual(before[1], after[1])
        self.assertLess(after[0] - before[0], 4 << 20)

    def test_torch_takes_it(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        array = usm.zeros(8, kind="host")
        torch.from_dlpack(array)[3] = 5
        self.assertEqual(array.to_numpy()[3], 5)


class Beside(unittest.TestCase):
    """Others take arrays, without a copy."""

    def test_dpctl_and_dpnp(self):
        try:
            import dpctl
            import dpnp
            from dpctl.memory import as_usm_memory
            queue = dpctl.SyclQueue("opencl")
        except Exception as error:  # not installed, or no device of its
            self.skipTest("dpctl and dpnp: {}".format(error))
        if not queue.sycl_device.has_aspect_usm_device_allocations:
            self.skipTest("SYCL has no unified shared memory on {}".format(queue.sycl_device.name))
        with usm.device_context(usm.Context.from_dpctl(queue)):
            array = usm.full((4, 5), 3, kind="device")
            shared = usm.full((4, 5), 3, kind="shared")
        self.assertEqual(as_usm_memory(array)._pointer, array.ptr)
        for taken, view in ((array, dpnp.from_dlpack(array)), (array[2:], array[2:].dpnp()),
                            (array[1], dpnp.from_dlpack(array[1])), (shared, shared.dpnp())):
            self.assertEqual((view.get_array()._pointer, view.shape), (taken.ptr, taken.shape))
            before = taken.to_numpy()
            view += 1
            view.sycl_queue.wait()
            self.assertTrue((taken.to_numpy() == before + 1).all())

    def test_pyopencl(self):
        try:
            import pyopencl as cl
            device = next(d for p in cl.get_platforms() for d in p.get_devices()
                          if d.svm_capabilities)
        except Exception as error:  # not installed, or no device that has pointers
            self.skipTest("PyOpenCL: {!r}".format(error))
        context = cl.Context([device])
        with usm.device_context(usm.Context.from_pyopencl(context)) as place:
            array = usm.asarray(numpy.arange(100), "f4", kind="device")
            queue = cl.CommandQueue(context)
            kernel = cl.Kernel(cl.Program(context, SCALE).build(), "scale")
            kernel(queue, (100,), None, array.memory.svm("f4"), numpy.float32(3))
            queue.finish()
            self.assertIs(array.place, place)
        self.assertTrue((array.to_numpy() == 3 * numpy.arange(100)).all())


class Kernels(unittest.TestCase):
    def setUp(self):
        kernels_or_skip(self)

    def test_a_kernel_runs(self):
        x = usm.asarray(numpy.arange(1000), "f4")
        event = usm.Program(SCALE).scale[1000](x, 2.0)
        event.wait()
        self.assertTrue((x.to_numpy() == 2 * numpy.arange(1000)).all())

    def test_scalars_have_the_types_of_the_text(self):
        program = usm.Program("kernel void put(global long *x, /* a, b */ long a, uchar b)\n"
                              "{ x[0] = a; x[1] = b; }")
        x = usm.zeros(2, "i8")
        program.put[1](x, 1 << 40, 200).wait()
        self.assertEqual(x.to_numpy().tolist(), [1 << 40, 200])

    def test_ranges_groups_and_local_memory(self):
        program = usm.Program(
            "kernel void f(global int *x, local int *s)\n"
            "{ s[get_local_id(0)] = get_local_id(0); barrier(CLK_LOCAL_MEM_FENCE);\n"
            "  x[get_global_id(1) * get_global_size(0) + get_global_id(0)] =\n"
            "      s[get_local_size(0) - 1 - get_local_id(0)]; }")
        x = usm.zeros((3, 8), "i4")
        program.f.at((8, 3), local=(4, 1))(x, usm.Local(16)).wait()
        self.assertEqual(x.to_numpy().tolist(), [[3, 2, 1, 0, 3, 2, 1, 0]] * 3)

    def test_spirv(self):
        """kernel void put(global int *x, int v) { *x = v; }, by hand."""
        def op(code, *operands):
            return [(len(operands) + 1) << 16 | code, *operands]
        name = int.from_bytes(b"put\0", "little")
        words = [0x07230203, 0x00010000, 0, 9, 0,
                 *op(17, 4), *op(17, 6),  # capabilities: Addresses, Kernel
                 *op(14, 2, 2), *op(15, 6, 1, name),  # Physical64 and OpenCL; the entry point 1
                 *op(19, 2), *op(21, 3, 32, 0), *op(32, 4, 5, 3), *op(33, 5, 2, 4, 3),  # types
                 *op(54, 2, 1, 0, 5), *op(55, 4, 6), *op(55, 3, 7),  # the function, 6 and 7
                 *op(248, 8), *op(62, 6, 7, 2, 4), *op(253), *op(56)]
        x = usm.zeros(2, "i4")
        try:
            usm.Program(numpy.array(words, "<u4").tobytes()).put[1](x, 7).wait()
        except usm.Error as error:
            if error.name != "USM_E_NO_IMAGE":
                raise
            self.skipTest("the device takes no SPIR-V: {}".format(error.story))
        self.assertEqual(x.to_numpy().tolist(), [7, 0])

    def test_managed_arrays_are_arguments(self):
        try:
            array = usm.managed(100000)
        except usm.Error as error:
            self.skipTest("no managed memory here: {}".format(error.story))
        array[:] = numpy.arange(100000)
        try:
            usm.Program(SCALE).scale[array.size](array, 2.0).wait()
        except usm.Error as error:
            self.assertEqual(error.name, "USM_E_INVALID_POINTER")  # no processor
        else:
            self.assertTrue((array == 2 * numpy.arange(100000)).all())
        with self.assertRaisesRegex(ValueError, "gaps"):
            usm.Program(SCALE).scale[5](array[::2], 2.0)

    def test_failures_have_the_librarys_message(self):
        x = usm.zeros(4)
        with self.assertRaises(usm.Error) as caught:
            usm.Program("kernel void f(global float *x) { nonsense }").f[4](x)
        self.assertEqual(caught.exception.name, "USM_E_BUILD")
        with self.assertRaisesRegex(usm.Error, "USM_E_NO_KERNEL.*scale"):
            usm.Program(SCALE).other[4](x)
        with self.assertRaisesRegex(usm.Error, "USM_E_ARGUMENTS"):
            usm.Program(SCALE).scale[4](x)
        with self.assertRaisesRegex(TypeError, "argument 1 of scale is a list"):
            usm.Program(SCALE).scale[4](x, [2])


class Waiting(unittest.TestCase):
    def test_other_threads_run_while_one_waits(self):
        memory = usm.empty(64 << 20, "u1", kind="host")
        for i in range(8):
            memory.fill(i)
        counted, done = [0], threading.Event()

        def count():
            while not done.is_set():
                counted[0] += 1
                time.sleep(0)
        thread = threading.Thread(target=count)
        thread.start()
        try:
            memory.place.queue.wait()
        finally:
            done.set()
            thread.join()
        self.assertGreater(counted[0], 0)

    def test_memory_in_queue_order(self):
        queue = usm.Queue(usm.Context("host:*"))
        back = bytearray(1000)
        for i in range(100):
            with queue.alloc(1000, "host") as memory:
                queue.fill(memory, bytes([i]))
                queue.memcpy(back, memory)
        queue.wait()
        self.assertEqual(back, bytes([99]) * 1000)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "big.npy")
        self.values = numpy.arange(600.0).reshape(100, 6)
        numpy.save(self.path, self.values)

    def test_rows_are_read(self):
        with usm.open(self.path) as file:
            self.assertEqual((file.shape, file.dtype), ((100, 6), numpy.dtype("f8")))
            with file[10:20].read() as view:
                self.assertTrue((view == self.values[10:20]).all())
                with self.assertRaises(ValueError):
                    view[0] = 1
            with self.assertRaisesRegex(usm.Error, "USM_E_READ_ONLY"):
                with file[0].write():
                    pass

    def test_what_is_committed_is_in_the_file(self):
        with usm.open(self.path, "r+") as file:
            with file[1:3].update() as view:
                view += 1000
            with file[5].write() as view:
                view[...] = -1
            self.assertTrue((numpy.load(self.path) == self.values).all())
            file.commit()
        self.values[1:3] += 1000
        self.values[5] = -1
        self.assertTrue((numpy.load(self.path) == self.values).all())

    def test_a_file_is_made(self):
        with usm.open(self.path, "w+", (10, 4), "i4") as file:
            for i in range(10):
                with file[i].write() as view:
                    view[...] = i
            file.commit()
        self.assertTrue((numpy.load(self.path) == numpy.arange(10).reshape(10, 1)).all())

    def test_headers_of_all_versions_are_read(self):
        for version in ((1, 0), (2, 0), (3, 0)):
            with open(self.path, "wb") as file:
                numpy.lib.format.write_array(file, self.values, version)
            with usm.open(self.path) as file, file[7].read() as view:
                self.assertEqual(view.tolist(), self.values[7].tolist())
        names = numpy.zeros(3, [("größe", "f4"), ("n", "i8")])
        with open(self.path, "wb") as file:
            numpy.lib.format.write_array(file, names, (3, 0))
        self.assertEqual(usm.open(self.path).dtype, names.dtype)

    def test_what_is_not_rows_is_refused(self):
        numpy.save(self.path, numpy.asfortranarray(self.values))
        with self.assertRaisesRegex(ValueError, "columns"):
            usm.open(self.path)[0]
        for values in (numpy.array(5.0), numpy.zeros((0, 3)), numpy.zeros((3, 0))):
            numpy.save(self.path, values)
            with self.assertRaisesRegex(ValueError, "rows of numbers"):
                usm.open(self.path)
        numpy.save(self.path, numpy.array([None, 1]), allow_pickle=True)
        with self.assertRaisesRegex(ValueError, "rows of numbers"):
            usm.open(self.path)
        with self.assertRaises(FileNotFoundError):
            usm.open(self.path + ".none")

    def test_files_cut_off_anywhere_are_refused(self):
        with open(self.path, "rb") as file:
            whole = file.read()
        for size in (*range(0, 140), 200, len(whole) - 1):
            with open(self.path, "wb") as file:
                file.write(whole[:size])
            with self.assertRaises(ValueError):
                usm.open(self.path)

    def test_forged_headers_are_refused(self):
        texts = ["{'descr': '<f8', 'fortran_order': False, 'shape': " + shape + "}" for shape in (
            "(-1,)", "(1 << 70,)", "(2 ** 62, 8)", "(4611686018427387904, 4)", "(1.5,)", "'abc'",
            "(True, None)", "((1, 2),)", "(9223372036854775807,)")]
        texts += ["{'descr': " + descr + ", 'fortran_order': False, 'shape': (3,)}" for descr in (
            "'O'", "'nonsense'", "'V0'", "[('a', 'O')]", "None", "('<f8', (2,))", "[]", "{}", "7")]
        texts += ["", "[", "{}", "None", "(" * 5000, "__import__('os')", "'\0'"]
        for text in texts:
            for version in (1, 2, 3):
                with open(self.path, "wb") as file:
                    file.write(b"\x93NUMPY" + bytes([version, 0])
                               + len(text).to_bytes(2 if version == 1 else 4, "little")
                               + text.encode() + bytes(1000))
                with self.assertRaises(ValueError, msg=text):
                    usm.open(self.path)
        with open(self.path, "wb") as file:
            file.write(b"\x93NUMPY\3\0\xff\xff\xff\xff")
        with self.assertRaises(ValueError):
            usm.open(self.path)

    def test_random_bytes_are_no_header(self):
        with open(self.path, "rb") as file:
            whole = bytearray(file.read())
        random = numpy.random.default_rng(1)
        warnings.simplefilter("ignore")  # of Python's parser
        for _ in range(min(ROUNDS, 20000) // 10):
            forged = bytearray(whole)
            for at in random.integers(0, 128, 3):
                forged[at] = random.integers(256)
            with open(self.path, "wb") as file:
                file.write(forged)
            try:
                usm.open(self.path).close()
            except ValueError:
                pass

    def test_a_file_that_may_not_be_written(self):
        os.chmod(self.path, 0o444)
        with usm.open(self.path) as file, file[0].read() as view:
            self.assertEqual(view[1], 1)
        if not os.access(self.path, os.W_OK):  # as it is for root
            with self.assertRaisesRegex(usm.Error, "Permission"):
                usm.open(self.path, "r+")
            with self.assertRaises(PermissionError):
                usm.open(self.path, "w+", (3,), "f8")

    def test_a_wrong_shape_leaves_the_file_alone(self):
        for shape, dtype in ((None, "f8"), (3, "nonsense"), ("x", "f8")):
            with self.assertRaises((TypeError, ValueError)):
                usm.open(self.path, "w+", shape, dtype)
        self.assertTrue((numpy.load(self.path) == self.values).all())


class Profile(unittest.TestCase):
    def test_it_ends_in_a_page(self):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "usm.html")
            code = ("import usm\n"
                    "with usm.profile({!r}):\n"
                    "    for i in range(10): usm.zeros(1000, kind='host')\n".format(page))
            environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
            done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=60, env=environment)
            if b"usm-prof was not found" in done.stdout:
                self.skipTest("usm-prof was not built")
            self.assertEqual((done.returncode, done.stdout), (0, b""))
            with open(page) as file:
                self.assertIn("<html", file.read())


if __name__ == "__main__":
    unittest.main(verbosity=2)
