#!/usr/bin/env python3
"""OpenCL programs that start and end many times, in turns without and within usm-exec.

startup.py --program CL_START [--build FOLDER] [--runs N] [--clinfo PROGRAM]

CL_START is cl_start.c, compiled; its ways to end are tried over PoCL, over Intel's OpenCL CPU runtime,
and over both at once, as far as they are here, N runs on each side in all; clinfo as well when named.
An exit status or a line on stderr that occurs within usm-exec, but in no run without, is a failure:
drivers have crashes of their own.  Prints the median time of both sides, which nothing depends on.
Exits with 1 on a failure, 77 when there is no driver.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import argparse
import collections
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WAYS = ("use", "threads", "fork", "exec", "exit", "callback")
TIMEOUT_S = 60
POCL_STOPS = "PTHREAD ERROR in pocl_"


class Side:
    """What the runs of one program over one driver did, without or within usm-exec."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.ms = []
        self.ends = collections.Counter()
        self.lines = collections.Counter()
        self.stopped = 0

    def run(self, command, env):
        began = time.monotonic()
        try:
            done = subprocess.run(self.prefix + command, env=env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  errors="replace", timeout=TIMEOUT_S, check=False)
            code, text = done.returncode, done.stderr
        except subprocess.TimeoutExpired as late:
            code, text = "no end", (late.stderr or b"").decode(errors="replace")
        self.ms.append((time.monotonic() - began) * 1000)
        if POCL_STOPS in text: # as it does without usm-exec, too: docs/decisions.md
            code, text = 0, ""
            self.stopped += 1
        self.ends[code] += 1
        # Addresses and numbers of processes differ from run to run.
        self.lines.update(set(re.sub(r"0x[0-9a-f]+|\d+", "N", text).splitlines()))


def library_of(runtime):
    """The driver's library, or ""."""
    done = subprocess.run(["sh", "-c", '. "$0/tests/runtimes.sh"; usm__runtime_library "$1"', ROOT,
                           runtime], stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip()


def drivers():
    """Names of drivers and the libraries that a loader has to find for each."""
    found = {name: [library_of(name)] for name in ("pocl", "intel")}
    found = {name: libraries for name, libraries in found.items() if libraries[0]}
    if len(found) == 2:
        found["pocl and intel"] = found["pocl"] + found["intel"]
    return found


def environment(work, name, libraries):
    vendors = os.path.join(work, name.replace(" ", "-"))
    os.mkdir(vendors)
    for i, library in enumerate(libraries):
        with open(os.path.join(vendors, "{}.icd".format(i)), "w", encoding="utf-8") as file:
            file.write(library + "\n")
    env = dict(os.environ, OCL_ICD_VENDORS=vendors, POCL_CACHE_DIR=os.path.join(work, "pocl"))
    for variable in ("OPENCL_LAYERS", "LD_PRELOAD", "USM_TRACE", "USM_POOL", "USM_MEMORY_LIMIT"):
        env.pop(variable, None)
    return env


def news(without, within):
    """What occurs within usm-exec only."""
    found = ["ends with {} in {} of {} runs".format(code, n, len(within.ms))
             for code, n in within.ends.items() if code not in without.ends]
    return found + ["says '{}'".format(line) for line in within.lines if line not in without.lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--program", required=True)
    parser.add_argument("--clinfo")
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    commands = {way: [options.program, way] for way in WAYS}
    if options.clinfo:
        commands["clinfo"] = [options.clinfo]
    prefix = [os.path.join(os.path.abspath(options.build), "bin/usm-exec")]
    failures = 0
    with tempfile.TemporaryDirectory() as work:
        cases = [(driver, way, environment(work, "{} {}".format(driver, way), libraries),
                  Side([]), Side(prefix))
                 for driver, libraries in drivers().items() for way in commands]
        if not cases:
            print("neither PoCL nor Intel's OpenCL CPU runtime is here")
            sys.exit(77)
        for i in range(max(options.runs, len(cases))):
            _, way, env, without, within = cases[i % len(cases)]
            # Each side goes first in every second of its runs.
            for side in (without, within) if i // len(cases) % 2 == 0 else (within, without):
                side.run(commands[way], env)
        for driver, way, _, without, within in cases:
            found = news(without, within)
            failures += len(found)
            print("{}, {}: {} runs on each side, statuses {} and {}; medians {:.1f} ms, {:.1f} ms".format(
                driver, way, len(within.ms), dict(without.ends), dict(within.ends),
                statistics.median(without.ms), statistics.median(within.ms)))
            if without.stopped + within.stopped:
                print("    PoCL stopped {} runs without and {} within".format(without.stopped, within.stopped))
            for line in found:
                print("    within usm-exec only: it " + line)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
