#!/usr/bin/env python3
"""test_usm_module.py [LIBUSM]: the module python/usm by itself: no package is needed.

The device is the one of USM_DEVICE_SELECTOR (tests/with-runtime.sh).  What dpctl, dpnp, NumPy and
PyOpenCL make of it: test_usm_interop.py.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import ctypes
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref
from unittest import mock

PYTHON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
sys.path.insert(0, PYTHON)
if len(sys.argv) > 1 and not sys.argv[1].startswith("-") and os.path.exists(sys.argv[1]):
    os.environ["USM_LIBRARY"] = sys.argv.pop(1)

import usm  # noqa: E402
from usm import _library  # noqa: E402


def python(code, **variables):
    """Runs code in another interpreter; (exit status, output of both kinds)."""
    environment = dict(os.environ, PYTHONPATH=PYTHON, PYTHONDONTWRITEBYTECODE="1", **variables)
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    return done.returncode, done.stdout.decode()


class Recorder:
    """Notes the order in which objects are destroyed."""

    def __init__(self):
        self.calls = []

    def around(self, name):
        real = getattr(_library.lib, name)

        def recorded(*arguments):
            self.calls.append(name)
            return real(*arguments)
        return mock.patch.object(_library.lib, name, recorded)


class Ownership(unittest.TestCase):
    def setUp(self):
        self.pool = usm.Pool(usm.Context(), usm.HOST)

    def live(self):
        return self.pool.stats()["blocks"]

    def test_a_block_goes_back_with_its_last_reference(self):
        memory = self.pool.alloc(1000)
        self.assertEqual(self.live(), 1)
        other = memory
        del memory
        self.assertEqual(self.live(), 1)
        del other
        self.assertEqual(self.live(), 0)

    def test_memory_outlives_the_names_of_its_pool_and_context(self):
        context = usm.Context()
        memory = usm.Pool(context, usm.HOST).alloc(8)
        del context
        gc.collect()
        usm.copy(memory, b"12345678")
        back = bytearray(8)
        usm.copy(back, memory)
        self.assertEqual(back, b"12345678")

    def test_in_a_heap_of_garbage_memory_goes_before_its_pool_and_that_before_the_context(self):
        order = ["usm_free_ctx", "usm_pool_destroy", "usm_context_destroy"]
        seen = Recorder()
        with seen.around(order[0]), seen.around(order[1]), seen.around(order[2]):
            for shuffled in range(6):
                gc.collect()
                seen.calls.clear()
                context = usm.Context()
                pool = usm.Pool(context, usm.HOST)
                heap = [context, pool, pool.alloc(64)]
                heap = heap[shuffled % 3:] + heap[:shuffled % 3]
                if shuffled > 2:
                    heap.reverse()
                heap.append(heap)
                del context, pool, heap
                gc.collect()
                self.assertEqual(seen.calls, order)

    def test_a_queue_goes_before_its_context(self):
        seen = Recorder()
        with seen.around("usm_queue_destroy"), seen.around("usm_context_destroy"):
            queue = usm.Queue(usm.Context())
            queue.wait()
            del queue
            gc.collect()
        self.assertEqual(seen.calls, ["usm_queue_destroy", "usm_context_destroy"])

    def test_free_frees_at_once_and_once(self):
        memory = self.pool.alloc(64)
        memory.free()
        self.assertEqual(self.live(), 0)
        with self.assertRaises(ValueError):
            memory.free()
        with self.assertRaises(ValueError):
            memory.ptr
        del memory
        self.assertEqual(self.live(), 0)

    def test_with_frees_at_the_end_and_not_what_is_free(self):
        with self.pool.alloc(64) as memory:
            self.assertEqual(self.live(), 1)
        self.assertEqual(self.live(), 0)
        with self.pool.alloc(64) as memory:
            memory.free()
        self.assertEqual(self.live(), 0)

    def test_what_is_alive_at_the_end_of_the_interpreter_goes_quietly(self):
        code = ("import usm\n"
                "memory = usm.Pool(usm.Context(), 'host').alloc(10 << 20)\n"
                "queue = usm.Queue(memory.pool.context)\n"
                "later = memory.pool.alloc(10 << 20)\n"
                "queue.fill(memory, b'x')\n"
                "queue.memcpy(later, memory)\n"
                "cycle = [memory]; cycle.append(cycle)\n")
        self.assertEqual(python(code, USM_VALIDATION="1"), (0, ""))

    def test_dropping_a_queue_frees_nothing_that_its_commands_use(self):
        code = ("import gc, usm\n"
                "pool = usm.Pool(usm.Context(), 'host')\n"
                "for i in range(10):\n"
                "    memory, queue = pool.alloc(10 << 20), usm.Queue(pool.context)\n"
                "    queue.fill(memory, b'x')\n"
                "    heap = [queue, memory]; heap.append(heap)\n"
                "    del memory, queue, heap\n"
                "    gc.collect()\n"
                "    assert pool.stats()['blocks'] == 0\n")
        self.assertEqual(python(code, USM_VALIDATION="1"), (0, ""))


class Errors(unittest.TestCase):
    def test_an_error_has_number_name_and_story(self):
        with self.assertRaises(usm.Error) as caught:
            usm.free(4711)
        self.assertEqual((caught.exception.status, caught.exception.name),
                         (-7, "USM_E_INVALID_POINTER"))
        self.assertIn("0x1267", caught.exception.story)
        self.assertIn("USM_E_INVALID_POINTER: ", str(caught.exception))

    def test_memory_that_is_not_libusms_is_refused_and_left_alone(self):
        foreign = ctypes.create_string_buffer(b"mine", 64)
        self.assertIsNone(usm.pointer_type(ctypes.addressof(foreign)))
        with self.assertRaises(usm.Error):
            usm.free(ctypes.addressof(foreign))
        self.assertEqual(foreign.value, b"mine")

    def test_a_block_of_another_context_is_not_of_this_one(self):
        memory = usm.Pool(usm.Context(), usm.HOST).alloc(64)
        self.assertEqual(usm.pointer_type(memory), "host")
        self.assertEqual(usm.pointer_type(memory, memory.pool.context), "host")
        self.assertIsNone(usm.pointer_type(memory, usm.Context()))

    def test_a_full_pool_is_a_memory_error(self):
        pool = usm.Pool(usm.Context(), usm.HOST, maximum_size=1 << 20)
        with self.assertRaises(MemoryError) as caught:
            pool.alloc(1 << 21)
        self.assertIsInstance(caught.exception, usm.OutOfMemory)
        self.assertIn(caught.exception.name, ("USM_E_BUDGET", "USM_E_NO_MEMORY"))
        self.assertTrue(pool.alloc(1 << 10).ptr)

    def test_wrong_arguments_are_named(self):
        context = usm.Context()
        with self.assertRaisesRegex(ValueError, "'Device'.*host, device, shared"):
            usm.Pool(context, "Device")
        with self.assertRaises(usm.Error) as caught:
            usm.Pool(context, usm.HOST, name="no_such_pool")
        self.assertEqual(caught.exception.name, "USM_E_NO_BACKEND")
        with self.assertRaises(ValueError):
            usm.Pool(context, usm.HOST).alloc(-1)
        with self.assertRaises(ValueError):
            usm.Pool(context, usm.HOST).alloc((1 << 64) + 8)  # 8 to a size_t
        with self.assertRaises(usm.Error) as caught:
            usm.Pool(context, usm.HOST).alloc(64, align=48)
        self.assertEqual(caught.exception.name, "USM_E_ALIGNMENT")

    def test_native_contexts_that_are_none_are_refused(self):
        with self.assertRaises(usm.Error) as caught:
            usm.Context.from_native("no_such_backend", 64)
        self.assertEqual(caught.exception.name, "USM_E_NO_BACKEND")
        with self.assertRaises(usm.Error):
            usm.Context.from_native("opencl", None)

    def test_memory_of_libusms_own_context_is_not_offered_to_sycl(self):
        memory = usm.Pool(usm.Context(), usm.HOST).alloc(64)
        self.assertFalse(hasattr(memory, "__sycl_usm_array_interface__"))


class Commands(unittest.TestCase):
    def setUp(self):
        self.context = usm.Context()
        self.pool = usm.Pool(self.context, usm.HOST)

    def test_bytes_come_back(self):
        memory = self.pool.alloc(100)
        text = bytes(range(100))
        for source in (text, bytearray(text), memoryview(text[:]).tobytes()):
            back = bytearray(100)
            usm.copy(memory, source)
            usm.copy(back, memory)
            self.assertEqual(back, text)

    def test_host_memory_is_an_array_to_the_host(self):
        memory = self.pool.alloc(10)
        usm.copy(memory, b"0123456789")
        interface = memory.__array_interface__
        self.assertEqual((interface["shape"], interface["typestr"]), ((10,), "|u1"))
        self.assertEqual(ctypes.string_at(interface["data"][0], 10), b"0123456789")

    def test_device_memory_is_not(self):
        try:
            memory = usm.Pool(self.context, usm.DEVICE).alloc(64)
        except usm.Error as error:
            self.assertEqual(error.name, "USM_E_NOT_SUPPORTED")
            return  # the device has none
        self.assertFalse(hasattr(memory, "__array_interface__"))
        with self.assertRaises(TypeError):
            memory.numpy()

    def test_copies_that_do_not_fit_are_refused(self):
        memory = self.pool.alloc(10)
        for arguments in ((memory, b"x", 2), (memory, bytes(20), 11), (bytearray(5), memory, 6),
                          (memory, b"x", -1), (memory.ptr, memory.ptr)):
            with self.assertRaises(ValueError):
                usm.copy(*arguments)
        with self.assertRaises(TypeError):
            usm.copy(b"constant", memory)

    def test_commands_of_a_queue_keep_their_order(self):
        queue = usm.Queue(self.context)
        memory, back = self.pool.alloc(3000), bytearray(3000)
        for i in range(50):
            queue.fill(memory, bytes([i, 1, 2]))
            queue.memcpy(back, memory)
        queue.wait()
        self.assertEqual(back, bytes([49, 1, 2]) * 1000)

    def test_fills_that_do_not_fit_are_refused(self):
        queue, memory = usm.Queue(self.context), self.pool.alloc(10)
        for arguments in ((memory, b"123", 4), (memory, b""), (memory.ptr, b"1")):
            with self.assertRaises(ValueError):
                queue.fill(*arguments)

    def test_what_a_command_uses_lives_until_it_is_done(self):
        queue = usm.Queue(self.context)
        back = bytearray(1 << 20)
        memory = self.pool.alloc(1 << 20)
        queue.fill(memory, b"7")
        event = queue.memcpy(back, memory)
        alive = weakref.ref(memory)
        del memory
        self.assertIsNotNone(alive())
        event.wait()
        self.assertTrue(event.done)
        self.assertEqual(back, b"7" * (1 << 20))
        queue.wait()
        del event
        gc.collect()
        self.assertIsNone(alive())
        self.assertEqual(self.pool.stats()["blocks"], 0)

    def test_events_order_two_queues(self):
        one, two = usm.Queue(self.context), usm.Queue(self.context)
        memory, back = self.pool.alloc(1 << 20), bytearray(1 << 20)
        two.memcpy(back, memory, after=[one.fill(memory, b"ab")])
        two.wait()
        self.assertEqual(back, b"ab" * (1 << 19))

    def test_a_finalizer_may_give_its_queue_a_command(self):
        queue, back = usm.Queue(self.context), bytearray(4)
        memory = self.pool.alloc(4)
        usm.copy(memory, b"last")

        class Target(bytearray):
            def __del__(self):
                queue.memcpy(back, memory)

        def work():
            queue.memcpy(Target(4), memory)  # held by the queue alone
            self.context.wait()
            queue.memcpy(bytearray(4), memory)  # lets go of it
            queue.wait()
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(60)
        self.assertFalse(thread.is_alive())
        self.assertEqual(back, b"last")

    def test_threads_share_a_queue(self):
        queue = usm.Queue(self.context)
        backs = [bytearray(8) for _ in range(4)]

        def work(back):
            memory = self.pool.alloc(8)
            for i in range(200):
                queue.fill(memory, bytes([i]))
                queue.memcpy(back, memory)
        threads = [threading.Thread(target=work, args=(back,)) for back in backs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        queue.wait()
        self.assertEqual(backs, [bytearray([199] * 8)] * 4)
        self.assertEqual(self.pool.stats()["blocks"], 0)

    def test_statistics_tell_of_reuse(self):
        for _ in range(100):
            self.pool.alloc(4096)
        stats = self.pool.stats()
        self.assertLessEqual(stats["driver_allocs"], 2)
        self.assertEqual(stats["blocks"], 0)
        self.assertIn("live", self.pool.describe())
        self.pool.trim()


class Library(unittest.TestCase):
    def test_its_symbols_are_nobody_elses(self):
        with self.assertRaises(AttributeError):
            ctypes.CDLL(None).usm_version

    def test_the_one_that_is_named_is_the_only_one_tried(self):
        status, output = python("import usm", USM_LIBRARY="/nowhere/libusm.so")
        self.assertEqual(status, 1)
        self.assertIn("ImportError", output)
        self.assertIn("/nowhere/libusm.so", output)
        self.assertIn("USM_LIBRARY", output)

    def test_the_one_beside_the_module_is_found(self):
        library = os.path.realpath(_library.lib._name)
        with tempfile.TemporaryDirectory() as folder:
            package = os.path.join(folder, "usm")
            shutil.copytree(os.path.join(PYTHON, "usm"), package,
                            ignore=shutil.ignore_patterns("__pycache__"))
            os.symlink(library, os.path.join(package, "libusm.so"))
            code = ("import sys; sys.path.insert(0, {!r}); import os; del os.environ['USM_LIBRARY']\n"
                    "import usm; print(usm.lib._name)".format(folder))
            status, output = python(code)
        self.assertEqual((status, output.strip()), (0, os.path.join(package, "libusm.so")))

    def test_its_version_is_three_numbers(self):
        self.assertEqual(len(usm.library_version()), 3)

    def test_a_setting_of_the_module_is_no_unknown_one_of_the_library(self):
        self.assertEqual(python("import usm; usm.Context()",
                                USM_LIBRARY=_library.lib._name), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
