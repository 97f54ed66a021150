#!/usr/bin/env python3
"""Managed memory of the package usm: NumPy's arrays that are larger than the memory they may use; needs
NumPy (pytest runs it, too).

USM_LIBRARY tests the sources over a build; without it the installed package is tested.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import copy
import faulthandler
import gc
import io
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
if "USM_LIBRARY" in os.environ:
    sys.path.insert(0, os.path.join(HERE, "..", "..", "python"))
LIMIT = 16 << 20
os.environ["USM_MEMORY_LIMIT"] = "host:{}".format(LIMIT)

import numpy  # noqa: E402
import usm  # noqa: E402
from usm import _library  # noqa: E402

ROUNDS = int(os.environ.get("USM_TEST_ROUNDS", "2000"))
LARGE = 4 * LIMIT // 8  # doubles


def setUpModule():
    try:
        usm.managed(1)
    except usm.Error as error:
        if error.name != "USM_E_NOT_SUPPORTED":
            raise
        raise unittest.SkipTest("no managed memory here: {}".format(error.story))


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class Frees:
    """Counts the blocks that go back."""

    def __enter__(self):
        self.count, self.real = 0, _library.lib.usm_free_ctx

        def counted(*arguments):
            self.count += 1
            return self.real(*arguments)
        _library.lib.usm_free_ctx = counted
        return self

    def __exit__(self, *_):
        _library.lib.usm_free_ctx = self.real


class Arrays(unittest.TestCase):
    def test_it_is_a_plain_array_of_zeros(self):
        for shape, dtype, order in ((5, "f4", "C"), ((3, 4), "c16", "F"), ((2, 3, 4), "i1", "C"),
                                    ((), "f8", "C"), ((0, 3), "f8", "C"), (7, "M8[s]", "C"),
                                    (4, [("a", "f4"), ("b", "U3")], "C"), (3, ("i4", (2,)), "C")):
            array = usm.managed(shape, dtype, order)
            other = numpy.zeros(shape, dtype, order)
            self.assertIs(type(array), numpy.ndarray)
            self.assertEqual((array.shape, array.dtype), (other.shape, other.dtype))
            if other.size:
                self.assertEqual(array.strides, other.strides)
            self.assertTrue(array.flags.writeable and array.flags.aligned)
            self.assertTrue((array == other).all())

    def test_it_may_be_larger_than_memory(self):
        before = resident()
        array = usm.managed(LARGE, "f8")
        for first in range(0, LARGE, 1 << 16):
            array[first:first + (1 << 16)] = numpy.arange(first, first + (1 << 16))
        self.assertEqual(array.sum(), LARGE * (LARGE - 1) / 2)
        self.assertEqual(array[::4097].tolist(), list(range(0, LARGE, 4097)))
        array.sort()
        self.assertEqual((array[0], array[-1]), (0, LARGE - 1))
        self.assertLess(resident() - before, LIMIT + (24 << 20))  # the library's own is in that

    def test_the_last_view_frees_it(self):
        with Frees() as frees:
            view = usm.managed((100, 8))[10:20, ::-2].T
            gc.collect()
            view[...] = 7
            self.assertEqual((view.sum(), frees.count), (7 * 40, 0))
            del view
            self.assertEqual(frees.count, 1)

    def test_copies_are_ordinary(self):
        array = usm.managed(1000, "i4")
        array[:] = numpy.arange(1000)
        for other in (array.copy(), copy.copy(array), copy.deepcopy(array), array + 0,
                      pickle.loads(pickle.dumps(array)), numpy.array(array)):
            self.assertTrue((other == array).all())
            with self.assertRaisesRegex(usm.Error, "USM_E_INVALID_POINTER"):
                usm.advise(other, "random")

    def test_wrong_arguments_are_refused(self):
        for shape in (-1, (3, -1), 1 << 62, (1 << 40, 1 << 40)):
            with self.assertRaises(ValueError):
                usm.managed(shape, "f8")
        with self.assertRaises(TypeError):
            usm.managed(3, "O")
        with self.assertRaises(ValueError):
            usm.managed(3, order="K")
        with self.assertRaisesRegex(MemoryError, "USM_E_NO_MEMORY"):
            usm.managed(1 << 58, "u1")

    def test_commands_of_queues_take_it(self):
        array = usm.managed(1000, "f4")
        array[:] = numpy.arange(1000)
        other = usm.asarray(array)
        other.place.queue.memcpy(array[500:], other[:500]).wait()
        self.assertTrue((array[500:] == numpy.arange(500)).all())

    def test_rounds_leak_nothing(self):
        def rounds(n):
            for _ in range(n):
                usm.managed(16)[3] = 1
            gc.collect()
            return resident()
        before = rounds(200)
        self.assertLess(rounds(ROUNDS // 10) - before, 8 << 20)

    def test_threads_use_one_array(self):
        array = usm.managed((4, LARGE // 4), "f8")

        def fill(row):
            for first in range(0, array.shape[1], 1 << 15):
                array[row, first:first + (1 << 15)] = row + 1
        threads = [threading.Thread(target=fill, args=(row,)) for row in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(array.sum(), 10 * LARGE / 4)


class Pins(unittest.TestCase):
    def test_what_is_pinned_may_be_given_to_system_calls(self):
        array = usm.managed((8, 1 << 18), "f8")  # two of its rows fit
        array[:] = numpy.arange(8).reshape(8, 1)
        with tempfile.TemporaryFile() as file:
            for row in array:
                with usm.pinned(row, "r") as view:
                    self.assertTrue(numpy.shares_memory(view, row))
                    file.write(view)
            file.seek(0)
            for row in array[::-1]:
                with usm.pinned(row):
                    self.assertEqual(file.readinto(row), row.nbytes)
        self.assertEqual(array[:, 5].tolist(), list(range(7, -1, -1)))

    def test_pins_end_with_the_body(self):
        array = usm.managed(LARGE, "f8")
        for _ in range(3):  # each takes most of what there is
            for first in (0, LARGE // 2):
                with self.assertRaises(KeyError), usm.pinned(array[first:first + LARGE // 5]):
                    raise KeyError
        with Frees() as frees, usm.pinned(usm.managed(10)):
            self.assertEqual(frees.count, 0)

    def test_what_cannot_be_pinned_is_refused(self):
        with self.assertRaisesRegex(MemoryError, "USM_MEMORY_LIMIT"), \
                usm.pinned(usm.managed(LARGE, "f8")):
            pass
        for other in (numpy.zeros(3), [1, 2]):
            with self.assertRaisesRegex(usm.Error, "USM_E_INVALID_POINTER"), usm.pinned(other):
                pass
        with self.assertRaisesRegex(ValueError, "'w'.*r, r+"), usm.pinned(usm.managed(1), "w"):
            pass
        with usm.pinned(usm.managed((0, 5))) as nothing:
            self.assertEqual(nothing.size, 0)

    def test_advice(self):
        array = usm.managed((100, 100))
        for advice in ("sequential", "random", "will_need", "wont_need", "normal"):
            usm.advise(array[::-1, ::3], advice)
        with self.assertRaisesRegex(ValueError, "'often'.*sequential"):
            usm.advise(array, "often")


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "big.npy")

    def test_a_file_becomes_a_managed_array(self):
        values = numpy.arange(LARGE, dtype="f8").reshape(64, -1)
        for kind in (values, numpy.asfortranarray(values), values.astype(">f4")[:3],
                     numpy.zeros(5, [("a", "f4"), ("b", "U3")])):
            numpy.save(self.path, kind)
            with usm.open(self.path) as file:
                array = file.managed()
            self.assertEqual((array.shape, array.dtype, array.strides),
                             (kind.shape, kind.dtype, kind.strides))
            self.assertTrue((array == kind).all())
            usm.advise(array, "normal")  # it is

    def test_changes_are_the_arrays_own_until_they_are_saved(self):
        numpy.save(self.path, numpy.arange(1000))
        with usm.open(self.path) as file:
            array = file.managed()
            array *= 2
            with file[10].read() as row:
                self.assertEqual(row, 10)
        usm.save(self.path, array)
        self.assertTrue((numpy.load(self.path) == 2 * numpy.arange(1000)).all())
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["big.npy"])

    def test_save_writes_what_numpy_writes(self):
        array = usm.managed((30, 40), "f8", "F")
        array[:] = numpy.arange(40)
        for kind in (array, array.T, array[::2, ::-3], array[0, 0], numpy.float32(3), [1, 2]):
            right = io.BytesIO()
            numpy.save(right, kind)
            usm.save(self.path, kind)
            with open(self.path, "rb") as file:
                self.assertEqual(file.read(), right.getvalue())

    def test_a_save_that_fails_leaves_the_file_alone(self):
        usm.save(self.path, [1, 2])
        with self.assertRaises(ValueError):
            usm.save(self.path, numpy.array([None]))
        self.assertEqual(numpy.load(self.path).tolist(), [1, 2])
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["big.npy"])


class Processes(unittest.TestCase):
    def test_a_child_of_fork_has_no_such_memory(self):
        array = usm.managed(1000)
        array[:] = 5
        child = os.fork()
        if child == 0:
            faulthandler.disable()  # pytest turns it on
            array[0] = 1  # ends it
            os._exit(0)
        self.assertEqual(os.WTERMSIG(os.waitpid(child, 0)[1]), signal.SIGSEGV)
        child = os.fork()
        if child == 0:
            del array  # is no harm
            gc.collect()
            os._exit(7)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        self.assertEqual(array.sum(), 5000)

    def test_threads_may_use_it_until_the_process_ends(self):
        code = ("import atexit, threading, usm\n"
                "array = usm.managed({}, 'f8')\n"
                "def work():\n"
                "    while True: array[::512] += 1\n"
                "threading.Thread(target=work, daemon=True).start()\n"
                "atexit.register(array.sum)\n".format(LARGE))
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        done = subprocess.run([sys.executable, "-c", code], env=environment, timeout=100)
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
