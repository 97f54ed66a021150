#!/usr/bin/env python3
"""Do the programs of README.md compile and run as they stand?

check_readme.py --cc CC --include DIR... --library LIBUSM

Each fragment marked `c launch` or `c parallel` is a whole program with its kernels; warnings are
errors.  It runs on what the environment selects.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SAYS = {"launch": "x[10] is 20\n", "parallel": "y[999999] is 998001\n"}


def programs():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        page = file.read()
    found = {}
    for at in re.finditer(r"^```c (\w+)\n(.*?)^```$", page, flags=re.S | re.M):
        line = page.count("\n", 0, at.start()) + 2
        found[at.group(1)] = "#line {} \"README.md\"\n{}".format(line, at.group(2))
    if set(found) != set(SAYS):
        sys.exit("README.md has programs {}, not {}".format(sorted(found), sorted(SAYS)))
    return found


def build_and_run(name, source, options, work):
    path, program = os.path.join(work, name + ".c"), os.path.join(work, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    command = [options.cc, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", path]
    command += ["-I" + folder for folder in options.include] + options.flag
    command += [options.library, "-Wl,-rpath," + os.path.dirname(options.library), "-o", program]
    if subprocess.run(command).returncode != 0:
        sys.exit("README.md: the program {} does not compile".format(name))
    done = subprocess.run([program], stdout=subprocess.PIPE, universal_newlines=True, timeout=100)
    if done.returncode != 0 or done.stdout != SAYS[name]:
        sys.exit("README.md: {} ends with {} and says {!r}".format(name, done.returncode,
                                                                   done.stdout))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cc", required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--library", required=True)
    parser.add_argument("flag", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        for name, source in sorted(programs().items()):
            build_and_run(name, source, options, work)
    print("the programs of README.md compile and run")


main()
