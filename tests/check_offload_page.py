#!/usr/bin/env python3
"""Is the code of docs/offload.md code?

check_offload_page.py --cc CC --include DIR... [--mpicc MPICC] [--library LIBUSM] [-- FLAG...]

The page makes one program out of fragments marked `c file`, with three main()s: `c main` compares
what a loop, a device and a team compute, `c mpi` and `c socket` run over the ranks of a job.  Each is
put together in the order of the page and compiled, warnings being errors.  With --library the first
is run on what the environment selects, and the last as two processes that meet in a folder.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs/offload.md")
MAINS = ("main", "mpi", "socket")


def programs():
    """The source of each program; the compiler's messages name lines of the page."""
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    shared, mains = "", {}
    for found in re.finditer(r"^```c(?: (\w+))?\n(.*?)^```$", page, flags=re.S | re.M):
        kind = found.group(1)
        line = page.count("\n", 0, found.start()) + 2
        text = "#line {} \"docs/offload.md\"\n{}".format(line, found.group(2))
        if kind == "file":
            shared += text
        elif kind in MAINS and kind not in mains:
            mains[kind] = text
        else:
            sys.exit("docs/offload.md:{}: what is a fragment of {}?".format(line, kind))
    for kind in MAINS:
        if kind not in mains:
            sys.exit("docs/offload.md: no fragment is marked {}".format(kind))
    return {kind: shared + text for kind, text in mains.items()}


def build(work, name, source, command):
    path = os.path.join(work, name + ".c")
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    done = subprocess.run([word.replace("@", path) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True)
    if done.returncode != 0:
        sys.exit("{}\n{}: does not compile".format(done.stdout, name))


def run_main(binary):
    done = subprocess.run([binary], stdout=subprocess.PIPE, universal_newlines=True, timeout=100)
    if done.returncode != 0 or done.stdout != "all alike\n":
        sys.exit("main ends with {} and says {!r}".format(done.returncode, done.stdout))


def run_ranks(binary, folder):
    ranks = [subprocess.Popen([binary, "socket:{},rank={},size=2".format(folder, rank)],
                              stdout=subprocess.PIPE, universal_newlines=True) for rank in (1, 0)]
    said = [rank.communicate(timeout=100)[0] for rank in ranks]
    is_height = re.fullmatch(r"[1-9][0-9]*\n", said[1]) is not None  # of the last chunk
    if [rank.returncode for rank in ranks] != [0, 0] or said[0] or not is_height:
        sys.exit("two ranks end with {} and say {!r}".format([rank.returncode for rank in ranks],
                                                             said))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cc", required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--mpicc")
    parser.add_argument("--library")
    parser.add_argument("flag", nargs="*")
    options = parser.parse_args()
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    flags += ["-I" + folder for folder in options.include] + options.flag
    with tempfile.TemporaryDirectory() as work:
        sources = programs()
        if options.mpicc and os.path.exists(options.mpicc):
            build(work, "mpi", sources["mpi"], [options.mpicc] + flags + ["-fsyntax-only", "@"])
        else:
            print("the program for MPI was not compiled: there is no compiler for it")
        for name in ("main", "socket"):
            if not options.library:
                build(work, name, sources[name], [options.cc] + flags + ["-fsyntax-only", "@"])
                continue
            binary = os.path.join(work, name)
            build(work, name, sources[name],
                  [options.cc] + flags + ["-g", "-o", binary, "@", options.library,
                                          "-Wl,-rpath," + os.path.dirname(options.library),
                                          "-pthread", "-lm"])
        if options.library:
            run_main(os.path.join(work, "main"))
            run_ranks(os.path.join(work, "socket"), os.path.join(work, "job"))
    print("the page's programs compile" + (" and run" if options.library else ""))


main()
