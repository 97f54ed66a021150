#!/usr/bin/env python3
"""Is the code of docs/sycl.md code?

check_sycl_page.py --cc CC --cxx CXX --include DIR... [--library LIBUSM] [--sycl DIR] [-- FLAG...]

The page tells one program three times: fragments marked `c`, `cpp` and `cpp sycl`, those with
`file` outside of main().  Each is put together in the order of the page and compiled, warnings being
errors.  With --library libusm's two are linked and run, on the device that the environment selects:
they have to print the same.  With --sycl (a virtual environment with intel-sycl-rt) SYCL's is
compiled too; nothing runs it, as that would take a SYCL compiler.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs/sycl.md")
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


def fragments():
    """(language, is of SYCL, is outside of main(), text, line), as the page has them."""
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    for found in re.finditer(r"^```(c|cpp)((?: \w+)*)\n(.*?)^```$", page, flags=re.S | re.M):
        words = found.group(2).split()
        unknown = set(words) - {"sycl", "file"}
        if unknown:
            sys.exit("docs/sycl.md: what is a fragment of {}?".format(", ".join(sorted(unknown))))
        yield (found.group(1), "sycl" in words, "file" in words, found.group(3),
               page.count("\n", 0, found.start()) + 2)


def program(language, is_sycl):
    """The fragments of one column; the compiler's messages name lines of the page."""
    chosen = [f for f in fragments() if f[0] == language and f[1] == is_sycl]
    if not chosen:
        sys.exit("docs/sycl.md: a column has no code")

    def text(outside):
        return "".join("#line {} \"docs/sycl.md\"\n{}".format(line, body)
                       for _, _, is_outside, body, line in chosen if is_outside == outside)

    parameters = "void" if language == "c" else ""
    return "{}\nint main({})\n{{\n{}return 0;\n}}\n".format(text(True), parameters, text(False))


def build(work, name, source, command, libraries=()):
    path = os.path.join(work, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    done = subprocess.run(command + [path] + list(libraries), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True)
    if done.returncode != 0:
        sys.exit("{}\n{}: does not compile".format(done.stdout, name))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cc", required=True)
    parser.add_argument("--cxx", required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--library")
    parser.add_argument("--sycl")
    parser.add_argument("flag", nargs="*")
    options = parser.parse_args()
    includes = ["-I" + folder for folder in options.include]
    printed = []
    compiled = 0
    with tempfile.TemporaryDirectory() as work:
        for name, language, compiler in (("page.c", "c", [options.cc, "-std=c11"]),
                                         ("page.cpp", "cpp", [options.cxx, "-std=c++17"])):
            source = program(language, False)
            command = compiler + WARNINGS + includes
            compiled += 1
            if not options.library:
                build(work, name, source, command + options.flag + ["-fsyntax-only"])
                continue
            binary = os.path.join(work, name + ".out")
            build(work, name, source, command + ["-g", "-o", binary],
                  [options.library, "-Wl,-rpath," + os.path.dirname(options.library), "-pthread"] +
                  options.flag)
            done = subprocess.run([binary], stdout=subprocess.PIPE, universal_newlines=True,
                                  timeout=100)
            if done.returncode != 0:
                sys.exit("{} ends with {}".format(name, done.returncode))
            printed.append(done.stdout)
        if options.sycl and os.path.exists(os.path.join(options.sycl, "include/sycl/sycl.hpp")):
            build(work, "page-sycl.cpp", program("cpp", True),
                  [options.cxx, "-std=c++17", "-Wall", "-Werror", "-Wno-unused-variable",
                   "-fsyntax-only",
                   "-isystem", os.path.join(options.sycl, "include")])
            compiled += 1
        else:
            print("SYCL's column was not compiled: its headers are not here")
    if printed and (printed[0] != printed[1] or not printed[0]):
        sys.exit("C prints {!r}, C++ {!r}".format(*printed))
    print("{} programs compiled, {} run: {}".format(compiled, len(printed),
                                                    repr(printed[0]) if printed else ""))


main()
