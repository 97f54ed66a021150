#!/usr/bin/env python3
"""Who may include whom.

The rules are those of docs/architecture.md: the public headers know only each other, base knows
nobody, the rooms of the core know those before them, the parts above what is below them, modules
know the public headers and src/base/inline, transports src/group too, samples and bench the public
headers, as does inside, bench and tests what samples compute, tests and tools all of src.  No vendor's header enters
the library itself.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

CORE = ["src/device", "src/heap", "src/command", "src/program", "src/observe"]
# Room -> the rooms it may include besides <usm/...> and itself.
BELOW = {
    "include/usm": [],
    "src/base/inline": [],
    "src/base": ["src/base/inline"],
    "src/group": ["src/base/inline"],
    "src/device": ["src/base"],
    "src/heap": ["src/base"] + CORE[:1],
    "src/command": ["src/base"] + CORE[:2],
    "src/program": ["src/base"] + CORE[:3],
    "src/observe": ["src/base"] + CORE[:4],
    "src/async": ["src/base"] + CORE,
    "src/ipc": ["src/base", "src/group"] + CORE,
    "src/spill": ["src/base"] + CORE,
    "src/buffer": ["src/base"] + CORE + ["src/spill"],
    "src/managed": ["src/base"] + CORE + ["src/spill"],
    "src/cluster": ["src/base", "src/group"] + CORE,
    "src/offload": ["src/base"] + CORE + ["src/spill", "src/buffer", "src/cluster"],
    "src/monitor": ["src/base"] + CORE + ["src/spill", "src/offload"],
    "src/profile": ["src/base"],
    "src": ["src", "backends", "pools"],  # src/usm.c, which plugs all together
    "backends": ["src/base/inline", "backends/common"],
    "pools": ["src/base/inline"],
    "transports": ["src/base/inline", "src/group"],
    "codecs": ["src/base/inline"],
    "inside": [],  # what is put into other programs
    "samples": [],
    "bench": ["samples"],  # whose computations it measures
    "bench/inside": ["src", "bench"],  # what no user sees: transfers without buffers
    "tools": ["src"],
    "tests": ["src", "backends", "pools", "transports", "codecs", "tools", "samples"],
}
MODULES = ("backends", "pools", "transports", "codecs")
# Headers that only a module, a tool, a bench or a test may see.
VENDOR = re.compile(r"^(CL/|level_zero/|ze_|mpi\.h|hwloc|lz4|openssl/|cuda)")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def room_of(path):
    """The room a file belongs to: the longest name in BELOW; a module's is its own folder."""
    parts = path.split("/")
    if parts[0] in MODULES:
        return "/".join(parts[:2])
    fits = [room for room in BELOW if path.startswith(room + "/")]
    return max(fits, key=len) if fits else None


def inside(path, room):
    return path == room or path.startswith(room + "/")


def resolve(includer, name):
    """The file of ours that an include names, or None for one of the system."""
    for folder in (os.path.dirname(includer), "include", "src", "", "tests"):
        path = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(os.path.join(ROOT, path)):
            return path
    return None


def complaint(includer, name):
    room = room_of(includer)
    target = resolve(includer, name)
    if target is None:
        library = inside(includer, "src") or inside(includer, "include")
        return "a vendor's header" if library and VENDOR.match(name) else None
    if inside(target, "include/usm") or (target.startswith(room + "/") and room != "src"):
        return None
    allowed = BELOW[room.split("/")[0] if room.split("/")[0] in MODULES else room]
    if any(inside(target, other) for other in allowed):
        return None
    return "{} may include {}".format(room, ", ".join(["include/usm"] + allowed))


def main():
    files = includes = 0
    wrong = []
    for top in sorted({room.split("/")[0] for room in BELOW}):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if not name.endswith((".c", ".h", ".hpp", ".cpp", ".inc")):
                    continue
                path = os.path.relpath(os.path.join(folder, name), ROOT)
                if room_of(path) is None:
                    wrong.append((path, 0, "is in a folder that BELOW does not name"))
                    continue
                with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                    text = file.read()
                files += 1
                for match in INCLUDE.finditer(text):
                    includes += 1
                    why = complaint(path, match.group(2))
                    if why:
                        line = text.count("\n", 0, match.start(1)) + 1
                        wrong.append((path, line, 'includes "{}": {}'.format(match.group(2), why)))
    for path, line, why in wrong:
        print("{}:{}: {}".format(path, line, why))
    print("{} includes in {} files, {} wrong".format(includes, files, len(wrong)))
    return 1 if wrong or not includes else 0


if __name__ == "__main__":
    sys.exit(main())
