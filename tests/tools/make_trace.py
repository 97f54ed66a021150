#!/usr/bin/env python3
"""Writes traces in the format of src/base/trace_format.h, for the tests of what reads them.

make_trace.py KIND FILE

    small   two pools, a tag that would end a script, one that is no UTF-8, a failure, lost events,
            a reuse, a block that stays; what is in it is told below, the tests know the numbers
    many    300000 blocks of one pool, many live at once, given back with their area
    unended small without its end, and a free of a block that is not in it
    work    a launch over two devices: the first copies beside its kernels, the second ends early
    mapped  two pieces that touch, a block across both; one more piece comes and goes
    empty   a header and an end

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import struct
import sys
import zlib

ALLOC, FREE, FAILED, TAKE, GIVE, MAP, UNMAP = range(1, 8)
EVENTS, POOL, TAG, STACK, MAPS, LOST, END = range(1, 8)
MEMBER, KERNEL_NAME = 11, 12
CACHES = 31
LAUNCH, CHUNK, FAILED_CHUNK, COPY_IN, KERNEL, COPY_OUT = range(32, 38)
MIB = 1 << 20


def header(command="app </script> --n 1", version=1):
    return struct.pack("<8sIIIIiIQQQ64s256s", b"USMTRACE", version, 376, 0x01020304, 4711, 3, 0, 0,
                       1795304400 * 10**9, 1, b"node017", command.encode())


def chunk(kind, payload, thread=0):
    return struct.pack("<IIII", kind, thread, len(payload), zlib.adler32(payload)) + payload


def pool(number, kind, name, device):
    return chunk(POOL, struct.pack("<II32s64s", number, kind, name, device))


def event(time, address, size, extra, tag, of_pool, kind):
    return struct.pack("<QQQIHBB", time, address, size, extra, tag, of_pool, kind)


def small():
    base, other = 0x7f0000000000, 0x560000000000
    out = header()
    out += pool(1, 2, b"slab", b"gpu \"0\"") + pool(2, 1, b"direct", b"")
    out += chunk(TAG, struct.pack("<I64s", 1, b"</script><b>")) + chunk(TAG, struct.pack("<I64s", 2, b"caf\xe9"))
    out += chunk(STACK, struct.pack("<IIQQ", 1, 2, 0x401000, 0x402000))
    out += chunk(EVENTS, b"".join([
        event(1000, base, 8 * MIB, 900, 0, 1, TAKE),
        event(1500, 4 * MIB, MIB, 0, 0, 1, CACHES),                      # 1 MiB of a budget of 4 MiB
        event(2000, base, MIB, 1, 1, 1, ALLOC),                          # A, lives 4000 ns
        event(3000, base + MIB, 2 * MIB, 1 | 1024 << 16, 2, 1, ALLOC),   # B, 1 KiB of slack, stays
        event(6000, base, 0, 0, 0, 1, FREE),
        event(7000, base, MIB // 2, 1, 1, 1, ALLOC),                     # C, where A was
        event(8000, 0, 1 << 33, 0, 1, 1, FAILED),
        event(8500, 4 * MIB, MIB // 4, 0, 0, 1, CACHES),
        event(9000, base, 0, 0, 0, 1, FREE)]), thread=1)
    out += chunk(EVENTS, b"".join([
        event(4000, other, 4096, 500, 0, 2, TAKE),
        event(4100, other, 4096, 0, 0, 2, ALLOC),
        event(5000, other, 4096, 400, 0, 2, GIVE),                       # direct: the area goes first
        event(5100, other, 0, 0, 0, 2, FREE)]), thread=2)
    out += chunk(LOST, struct.pack("<Q", 5), thread=2)
    return out + chunk(END, b"")


def unended():
    stray = event(9500, 0x7f0000700000, 0, 0, 0, 1, FREE)
    return small()[:-len(chunk(END, b""))] + chunk(EVENTS, stray, thread=1)


def many():
    base, events = 0x7f0000000000, []
    out = header("many") + pool(1, 2, b"slab", b"")
    events.append(event(1, base, 1 << 34, 10, 0, 1, TAKE))
    for k in range(300000):
        events.append(event(10 + 2 * k, base + 65536 * (k % 4096), 64 + k % 7, 0, 0, 1, ALLOC))
        if k >= 2000:
            events.append(event(11 + 2 * k, base + 65536 * ((k - 2000) % 4096), 0, 0, 0, 1, FREE))
    events.append(event(10**6, base, 1 << 34, 10, 0, 1, GIVE))
    chunks = [chunk(EVENTS, b"".join(events[at:at + 1000]), thread=1) for at in range(0, len(events), 1000)]
    return out + b"".join(chunks) + chunk(END, b"")


def work():
    """Times in us: of ten chunks on a gpu each is copied in while the one before computes; three
    on a cpu, twice as long, and the fourth fails."""
    out, events = header("work", 3), []
    for kind, number, name in ((MEMBER, 1, b"opencl:0"), (MEMBER, 2, b"</script>"), (KERNEL_NAME, 1, b"blend")):
        out += chunk(kind, struct.pack("<II64s", number, 0, name))

    def part(kind, begin, end, seen, n, member):
        events.append((seen, event(seen * 1000, (seen - end) * 1000, n, (end - begin) * 1000, 1, member, kind)))

    for k in range(10):
        begin = 100 + 100 * k
        part(COPY_IN, begin - 60, begin - 20, begin + 140, MIB, 1)
        part(KERNEL, begin, begin + 90, begin + 140, 64, 1)
        part(COPY_OUT, begin + 95, begin + 130, begin + 140, MIB // 2, 1)
        events.append((begin + 140, event((begin + 140) * 1000, 64 * k, 64, 210 * 1000, 1, 1, CHUNK)))
    for k in range(3):
        end = 300 + 200 * k
        part(KERNEL, end - 200, end, end, 32, 2)
        events.append((end, event(end * 1000, 640 + 32 * k, 32, 200 * 1000, 1, 2, CHUNK)))
    events.append((720, event(720 * 1000, 736, 32, 20 * 1000, 1, 2, FAILED_CHUNK)))
    events.append((1200, event(1200 * 1000, 0, 768, 1180 * 1000, 1, 0, LAUNCH)))
    events.sort(key=lambda e: e[0])
    return out + chunk(EVENTS, b"".join(e for _, e in events), thread=1) + chunk(END, b"")


def mapped():
    base = 0x7f0000000000
    out = header("mapped") + pool(1, 2, b"slab", b"gpu")
    out += chunk(EVENTS, b"".join([
        event(1000, base, 2 * MIB, 10, 0, 1, MAP),
        event(2000, base + 2 * MIB, 2 * MIB, 10, 0, 1, MAP),
        event(3000, base + MIB, 2 * MIB, 0, 0, 1, ALLOC),
        event(4000, base + 4 * MIB, 2 * MIB, 10, 0, 1, MAP),
        event(5000, base + 4 * MIB, MIB, 0, 0, 1, ALLOC),
        event(6000, base + 4 * MIB, 0, 0, 0, 1, FREE),
        event(7000, base + 4 * MIB, 2 * MIB, 10, 0, 1, UNMAP)]), thread=1)
    return out + chunk(END, b"")


def main():
    kinds = {"work": work, "mapped": mapped, "small": small, "many": many, "unended": unended, "empty": lambda: header("empty") + chunk(END, b"")}
    with open(sys.argv[2], "wb") as file:
        file.write(kinds[sys.argv[1]]())


if __name__ == "__main__":
    main()
