#!/usr/bin/env python3
"""dpnp_pool.py: dpnp computes over memory of a libusm pool, on all devices at once.

    python3 dpnp_pool.py [--size N] [--steps N]

One array is split over the devices; where there is one device, over its halves; where it has no
halves, over two queues of it.  Each part has a pool inside its SYCL queue's own native context, and
the temporaries of each step come from there.  The parts are gathered and compared with NumPy.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../python"))


def lacking(what):
    print("nothing to do: {}".format(what))
    sys.exit(77)


try:
    import dpctl
    import dpnp
    import numpy
except ImportError as error:
    lacking("{}; `pip install dpctl dpnp intel-opencl-rt intel-cmplr-lib-rt` has it".format(error))
try:
    import usm
except ImportError as error:
    lacking(error)


AHEAD = 4  # steps that are submitted before the devices must have caught up: bounds the temporaries


# --- the devices ---------------------------------------------------------------------------------

def usable(device):
    return device.has_aspect_usm_device_allocations and device.backend in (
        dpctl.backend_type.opencl, dpctl.backend_type.level_zero)


def queues():
    """One queue for each part, and what the parts are."""
    devices = [device for device in dpctl.get_devices() if usable(device)]
    if not devices:
        lacking("no device of SYCL's has unified shared memory (it sees {})".format(
            dpctl.get_devices() or "none"))
    if len(devices) > 1:
        return [dpctl.SyclQueue(device) for device in devices], "devices"
    try:
        units = devices[0].max_compute_units
        halves = devices[0].create_sub_devices(partition=[units // 2, units - units // 2])
        return [dpctl.SyclQueue(half) for half in halves], "halves of one device"
    except dpctl.SyclSubDeviceCreationError:
        return [dpctl.SyclQueue(devices[0]) for _ in range(2)], "queues of one device"


# --- one part --------------------------------------------------------------------------------------

class Part:
    """Some rows of the array on one device."""

    def __init__(self, queue, rows):
        self.queue = queue
        self.rows = rows
        self.pool = usm.Pool(usm.Context.from_dpctl(queue), usm.DEVICE)

    def empty(self, like):
        """An array out of the pool; its memory goes back there with the last reference to it."""
        return self.pool.alloc(like.nbytes).dpnp(like.dtype, like.shape)

    def begin(self, whole):
        """Its rows of the NumPy array, to the device: libusm copies into the pool's memory."""
        mine = numpy.ascontiguousarray(whole[self.rows])
        memory = self.pool.alloc(mine.nbytes)
        usm.copy(memory, mine)
        self.x = memory.dpnp(mine.dtype, mine.shape)
        self.y = self.empty(mine)
        self.y.fill(0)

    def step(self, factor):
        """y += sin(factor * x), over two temporaries; submitted, not waited for."""
        scaled, wave = self.empty(self.x), self.empty(self.x)
        dpnp.multiply(self.x, factor, out=scaled)
        dpnp.sin(scaled, out=wave)
        dpnp.add(self.y, wave, out=self.y)
        # dpnp keeps both until its kernels have ended; then their blocks serve a later step.

    def gather(self, whole):
        """Its rows, back into the NumPy array, without a copy in between."""
        self.queue.wait()
        usm.copy(whole[self.rows], self.y.get_array().usm_data.reference_obj)


def numpy_says(x, steps):
    y = numpy.zeros_like(x)
    for i in range(steps):
        y += numpy.sin(x * numpy.float32(i + 1))
    return y


def main():
    parser = argparse.ArgumentParser(description="dpnp over memory of libusm's pools")
    parser.add_argument("--size", type=int, default=512, help="rows and columns of the array")
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()

    where, what = queues()
    print("an array of {0} x {0}, split over {1} {2}:".format(args.size, len(where), what))
    for queue in where:
        print("  {} ({})".format(queue.sycl_device.name.strip(), queue.backend.name))
    # Multiples of a small fraction: each device gets the same argument of sin() as NumPy.
    whole = (numpy.arange(args.size ** 2) % 1024 / 1024).astype("f4").reshape(args.size, -1)
    cuts = [args.size * i // len(where) for i in range(len(where) + 1)]
    parts = [Part(queue, slice(a, b)) for queue, a, b in zip(where, cuts, cuts[1:])]

    for part in parts:
        part.begin(whole)
    for i in range(args.steps):
        for part in parts:  # the devices work at the same time
            part.step(numpy.float32(i + 1))
        if i % AHEAD == AHEAD - 1:
            for part in parts:
                part.queue.wait()
    result = numpy.empty_like(whole)
    for part in parts:
        part.gather(result)

    error = float(numpy.abs(result - numpy_says(whole, args.steps)).max())
    right = error < 1e-5 * args.steps
    print("{} steps; gathered, the largest difference from NumPy is {:.1e}: {}".format(
        args.steps, error, "right" if right else "WRONG"))
    reuse(parts, args.steps)
    return 0 if right else 1


def reuse(parts, steps):
    for i, part in enumerate(parts):
        stats = part.pool.stats()
        served = 2 + 2 * steps
        print("pool {}: {} arrays, {} calls to the driver for memory, at most {:.1f} MiB held "
              "({:.1f} MiB without reuse)".format(
                  i, served, stats["driver_allocs"], stats["reserved_peak"] / 2 ** 20,
                  served * part.x.nbytes / 2 ** 20))


if __name__ == "__main__":
    sys.exit(main())
