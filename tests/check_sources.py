#!/usr/bin/env python3
"""Every C source of the tree stands in a list of CMake: what is not compiled is not tested.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKIP = {".git", "build", "cmake-build-debug"}


def main():
    sources, listed, exact = [], {}, set()
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in SKIP]
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), ROOT)
            if name.endswith((".c", ".cpp")):
                sources.append(path)
            elif name == "CMakeLists.txt" or name.endswith(".cmake"):
                with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                    text = file.read()
                tokens = re.findall(r"[\w./+-]+\.(?:c|cpp)\b", text)
                # usm_add_gate(leaks ...) means leaks.c
                tokens += [name + ".c" for name in re.findall(r"\busm_add_\w+\((\w+)", text)]
                for token in tokens:
                    exact.add(os.path.normpath(os.path.join(os.path.dirname(path), token)))
                    listed.setdefault(os.path.basename(token), set()).add(path)
    # Lists name files relative to many folders: the same name in a list at or above the file's folder,
    # or under the same top folder, will do.  Not so for what modules share (backends/common), which
    # lists name by its path: a module may have a file of the same name.
    wrong = [
        path for path in sorted(sources)
        if path not in exact and ("/common/" in path or not any(
            os.path.dirname(where) in ("", "cmake", "src")
            or where.split("/")[0] == path.split("/")[0]
            for where in listed.get(os.path.basename(path), ())
        ))
    ]
    for path in wrong:
        print("{}: in no list of CMake".format(path))
    print("{} sources, {} in no list".format(len(sources), len(wrong)))
    return 1 if wrong or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
