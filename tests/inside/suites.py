#!/usr/bin/env python3
"""Suites of other projects, run twice: as they are, and within usm-exec.  The same tests must pass,
fail and be skipped.

suites.py [--build FOLDER] [--quick] [--report] [--limit TEXT] [SUITE...]

Under tests/with-runtime.sh, which chooses the driver.  SUITE: pyopencl, clblast, viennacl, dpctl, dpnp,
level_zero; all of them when none is named.  --quick runs a part of each that takes seconds.  --report
adds what `usm-exec --report` counts; the seconds within usm-exec then hold the trace.  --limit is usm-exec's:
a limit that is too small has to show as differences.

A line for each suite says its version, its counts and seconds without and within, the first
differences, or why it cannot be had here.  Exits with 1 on any difference, 77 when no suite ran.

What is fetched, by pip and `apt-get download`, stays in ${USM_CI_CACHE}/suites; nothing is installed
into the system.  The runtimes and packages of `./run --step step_intel` are taken as they are.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import argparse
import collections
import glob
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CI_CACHE = os.environ.get("USM_CI_CACHE") or os.path.expanduser("~/.cache/usm-ci")
CACHE = os.path.join(CI_CACHE, "suites")
VENV = os.path.join(CI_CACHE, "intel")
PYTHON = os.path.join(VENV, "bin/python")
TIMEOUT_S = 3600
SHOWN = 10

# A command of a suite.  `folder`: copied, and the copy is the working directory.  `read(done, cwd)`:
# the outcome of each test by its name.
Part = collections.namedtuple("Part", "name command env folder read")
Done = collections.namedtuple("Done", "code stdout stderr")


class Absent(Exception):
    """A suite that cannot be had here, with the reason."""


def quiet(command, **keywords):
    """Runs a command that fetches or builds."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, **keywords)
    if done.returncode != 0:
        lines = done.stdout.strip().splitlines() or ["no message"]
        raise Absent("`{}` fails: {}".format(" ".join(command[:6]), lines[-1][:200]))
    return done.stdout


# ---- fetching ------------------------------------------------------------------------------------


def fetched(name, fill):
    """A folder of CACHE, which fill(folder) makes, whole or not at all."""
    folder = os.path.join(CACHE, name)
    if not os.path.isdir(folder):
        shutil.rmtree(folder + ".new", ignore_errors=True)
        os.makedirs(folder + ".new")
        fill(folder + ".new")
        os.rename(folder + ".new", folder)
    return folder


def debian(*packages):
    """Unpacks Debian packages; gives the folder and the version of the first."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise Absent("there is no apt-get to fetch {}".format(packages[0]))

    def fill(folder):
        quiet(["apt-get", "-q", "download", *packages], cwd=folder)
        for package in glob.glob(os.path.join(folder, "*.deb")):
            quiet(["dpkg-deb", "-x", package, folder])

    folder = fetched(packages[0], fill)
    first = glob.glob(os.path.join(folder, packages[0] + "_*.deb"))[0]
    return folder, quiet(["dpkg-deb", "-f", first, "Version"]).strip()


def python_package(name):
    """The version of a package in the virtual environment; pytest is fetched beside it."""
    found = glob.glob(os.path.join(VENV, "lib/python3*/site-packages/{}-*.dist-info".format(name)))
    if not found:
        raise Absent("{} has no {}: `./run --step step_intel` fetches it".format(VENV, name))
    fetched("python", lambda folder: quiet(
        [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", folder,
         "pytest==9.*", "Cython==3.*", "mako==1.*"]))
    return os.path.basename(found[0])[len(name) + 1:-len(".dist-info")]


# ---- reading outcomes ----------------------------------------------------------------------------


def read_pytest(_done, cwd):
    """pytest's own record.  A test that is expected to fail and does counts as skipped."""
    outcomes = {}
    path = os.path.join(cwd, "junit.xml")
    if not os.path.exists(path):
        return {"(the whole suite)": "failed: no record was written"}
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "passed"
        if kinds & {"failure", "error"}:
            outcome = "failed"
        elif "skipped" in kinds:
            outcome = "skipped"
        name = re.sub(r"0x[0-9a-f]+", "0x", "{}::{}".format(case.get("classname"), case.get("name")))
        while name in outcomes:
            name += "+"
        outcomes[name] = outcome
    return outcomes


def pytest_part(name, options, folder=None):
    env = {"PYTHONPATH": os.path.join(CACHE, "python"), "PYTHONDONTWRITEBYTECODE": "1",
           "LD_LIBRARY_PATH": os.path.join(VENV, "lib")}
    command = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=junit.xml", *options]
    return Part(name, command, env, folder, read_pytest)


# What CLBlast prints for one check, by its legend.
CLBLAST_MARKS = {":": "passed", ".": "passed", "X": "failed", "/": "failed", "\\": "skipped",
                 "o": "skipped", "-": "skipped"}


def read_clblast(done, _cwd):
    """Without half precision (routines H...), whose results over Intel's runtime differ from run to run."""
    outcomes, where = {}, ""
    for line in re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).splitlines():
        found = re.match(r"\* (?:Starting tests for|Testing) (.*?)[:.]?(?: Legend:)?$", line)
        if found:
            where = (found.group(1) if "routine" in line else
                     where.split(" / ")[0] + " / " + found.group(1))
        elif re.match(r"\* All tests skipped", line):
            outcomes[where] = "skipped"
        elif re.match(r"\s+[:.X/\\o-]+$", line):
            for mark in line.strip():
                outcomes["{} / {}".format(where, len(outcomes))] = CLBLAST_MARKS[mark]
    if done.code < 0 or not outcomes:
        outcomes["(the program)"] = "failed: it ended with {}".format(done.code)
    return {name: outcome for name, outcome in outcomes.items() if not re.match("the 'i?H", name)}


def read_status(done, _cwd):
    return {"(the program)": "passed" if done.code == 0 else "failed with {}".format(done.code)}


# ---- the suites: each gives its version and its parts ---------------------------------------------


def pyopencl(quick):
    version = python_package("pyopencl")

    def fill(folder):
        quiet([PYTHON, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
               "--no-binary", "pyopencl", "pyopencl==" + version, "-d", folder])
        shutil.unpack_archive(glob.glob(os.path.join(folder, "*.tar.gz"))[0], folder)

    folder = fetched("pyopencl-" + version, fill)
    tests = os.path.join(folder, "pyopencl-" + version, "test")
    options = ["-k", "svm or enqueue_copy or mem_pool or allocator"] if quick else []
    return version, [pytest_part("", options, tests)]


def dpctl(quick):
    version = python_package("dpctl")
    # It looks for SYCL devices, which PoCL 3 is none of.
    if os.environ.get("USM_TEST_RUNTIME", "intel") != "intel":
        raise Absent("it runs over Intel's OpenCL CPU runtime only")
    # test_context_multi_device does not end without usm-exec: SYCL frees in a callback on the thread whose
    # end the driver then waits for.  Within usm-exec it ends.
    options = ["-k", "memory or usm or queue" if quick else "not test_context_multi_device"]
    return version, [pytest_part("", ["--pyargs", "dpctl.tests", *options])]


# Of dpnp's files those about memory, and some that compute.
DPNP_QUICK = ("memory", "copy")
DPNP = DPNP_QUICK + ("fill", "flat", "arraycreation", "ndarray", "sycl_queue", "sum", "sort", "search", "counting",
                     "strides")


def dpnp(quick):
    version = python_package("dpnp")
    if os.environ.get("USM_TEST_RUNTIME", "intel") != "intel":
        raise Absent("it runs over Intel's OpenCL CPU runtime only")
    return version, [pytest_part("test_" + name, ["--pyargs", "dpnp.tests.test_" + name])
                     for name in (DPNP_QUICK if quick else DPNP)]


# Files of dpctl's about what a driver has.  Left out: test_cython_api, which builds an extension, and
# test_queue_wait, which aborts over the newer adapter without usm-exec, too.
LEVEL_ZERO_QUICK = ("usm", "queue_memcpy")
LEVEL_ZERO = LEVEL_ZERO_QUICK + ("queue", "queue_manager", "context", "device", "event", "platform")


def level_zero(quick):
    """dpctl over both of the runtime's Level Zero adapters, by the system's Python and pytest."""
    if os.environ.get("USM_TEST_RUNTIME") != "ze-soft":
        raise Absent("it runs over the software Level Zero driver only")
    packages = os.path.join(VENV, "python{}.{}".format(*sys.version_info[:2]))
    found = glob.glob(os.path.join(packages, "dpctl-*.dist-info"))
    if not found:
        raise Absent("there is no dpctl in {}: `./run --step step_intel` fetches it".format(packages))
    version = os.path.basename(found[0])[len("dpctl-"):-len(".dist-info")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=junit.xml",
               "-k", "not cython_api and not queue_wait", "--pyargs"]
    env = {"PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1",
           "LD_LIBRARY_PATH": os.path.join(VENV, "lib"), "ONEAPI_DEVICE_SELECTOR": "level_zero:*"}
    return version, [Part("{} adapter, {}".format(adapter, name), command + ["dpctl.tests.test_sycl_" + name],
                          dict(env, SYCL_UR_USE_LEVEL_ZERO_V2=v2), None, read_pytest)
                     for adapter, v2 in (("older", "0"), ("newer", "1"))
                     for name in (LEVEL_ZERO_QUICK if quick else LEVEL_ZERO)]


# Of the products of matrices, which take minutes each, the one that has temporaries of all kinds.
CLBLAST_QUICK = "axpy|nrm2|gemv"
CLBLAST = ("amax|asum|axpy|axpybatched|copy|dot|dotc|dotu|nrm2|scal|swap|had|gemv|gbmv|symv|sbmv|spmv|"
           "trmv|tbmv|tpmv|trsv|ger|geru|gerc|syr|spr|syr2|spr2|hemv|hbmv|hpmv|her|hpr|her2|hpr2|"
           "omatcopy|im2col|col2im|gemm")


def clblast(quick):
    folder, version = debian("clblast-tests", "libclblast1")
    wanted = CLBLAST_QUICK if quick else CLBLAST
    programs = sorted(glob.glob(os.path.join(folder, "usr/bin/clblast_test_*")))
    programs = [path for path in programs if re.search("_x({})$".format(wanted), path)]
    library = glob.glob(os.path.join(folder, "usr/lib/*/libclblast.so.1"))
    if not programs or not library:
        raise Absent("Debian's clblast-tests has no programs")
    env = {"LD_LIBRARY_PATH": os.path.dirname(library[0])}
    return version, [Part(os.path.basename(path), [path], env, None, read_clblast)
                     for path in programs]


# ViennaCL's tests and examples that need no other library and no file, by their pages in its
# documentation.  Left out: sparse_prod, which corrupts its heap by itself, and global_variables, whose
# end crashes in PoCL 3.1 two times of three.
VIENNACL_QUICK = ("scalar", "scan", "opencl")
VIENNACL = VIENNACL_QUICK + (
    "iterators", "self__assign", "vector__float__double", "matrix__vector", "fft__1d",
    "scheduler__vector", "examples_2tutorial_2blas1", "examples_2tutorial_2nmf",
    "examples_2tutorial_2bisect", "custom-kernels")


def viennacl_source(page):
    """The source that a page of doxygen's shows."""
    with open(page, encoding="utf-8", errors="replace") as file:
        lines = re.findall(r'<div class="line">(.*?)</div>', file.read())
    bare = [re.sub(r'<span class="lineno">.*?</span>&#160;?', "", line) for line in lines]
    return "".join(html.unescape(re.sub(r"<[^>]+>", "", line)) + "\n" for line in bare)


def viennacl_program(folder, page, name):
    """Compiles the program of a page, once; None where the compiler lacks something."""
    program = os.path.join(CACHE, "viennacl-programs", name)
    if os.path.exists(program):
        return program
    os.makedirs(os.path.dirname(program), exist_ok=True)
    with open(program + ".cpp", "w", encoding="utf-8") as file:
        file.write(viennacl_source(page))
    command = [os.environ.get("CXX", "c++"), "-O1", "-w", "-DNDEBUG", "-DVIENNACL_WITH_OPENCL",
               "-DCL_TARGET_OPENCL_VERSION=120", "-I" + os.path.join(folder, "usr/include"),
               program + ".cpp", "-o", program + ".new", "-l:libOpenCL.so.1", "-lpthread"]
    try:
        quiet(command)
    except (Absent, OSError) as error:
        print("viennacl: {} is left out: {}".format(name, error))
        return None
    os.rename(program + ".new", program)
    return program


def viennacl(quick):
    folder, version = debian("libviennacl-dev", "libviennacl-doc")
    parts = []
    for name in VIENNACL_QUICK if quick else VIENNACL:
        pages = glob.glob(os.path.join(folder, "usr/share/doc/*/html", name + "_8cpp_source.html"))
        program = viennacl_program(folder, pages[0], name.replace("__", "_")) if pages else None
        if program:
            parts.append(Part(os.path.basename(program), [program], {}, None, read_status))
    if not parts:
        raise Absent("none of its programs can be compiled")
    return version, parts


SUITES = {suite.__name__: suite for suite in (pyopencl, clblast, viennacl, dpctl, dpnp, level_zero)}


# ---- running and comparing -----------------------------------------------------------------------


class Side:
    """All parts of a suite, without or within usm-exec."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.outcomes = {}
        self.seconds = 0.0
        self.allocations = self.driver_calls = 0

    def run(self, part):
        with tempfile.TemporaryDirectory() as work:
            cwd = os.path.join(work, "cwd")
            if part.folder:
                shutil.copytree(part.folder, cwd)
            else:
                os.mkdir(cwd)
            os.mkdir(os.path.join(work, "tmp"))
            began = time.monotonic()
            done = run_part(self.prefix + part.command, part.env, work)
            self.seconds += time.monotonic() - began
            for name, outcome in part.read(done, cwd).items():
                self.outcomes[part.name + " " + name] = outcome
        for found in re.finditer(r"^(\d+) allocations?, (\d+) driver calls?", done.stderr, flags=re.M):
            self.allocations += int(found.group(1))
            self.driver_calls += int(found.group(2))

    def counts(self):
        """As text, in a fixed order."""
        number = collections.Counter(outcome.split()[0].rstrip(":")
                                     for outcome in self.outcomes.values())
        return ", ".join("{} {}".format(number[kind], kind) for kind in ("passed", "failed", "skipped"))


def shown(name):
    """Without PyOpenCL's name of the device, which is the same in all."""
    return re.sub(r"<context factory for .*?>>-?", "", name).strip()


def run_part(command, env, work):
    streams = {name: os.path.join(work, name) for name in ("stdout", "stderr")}
    with open(streams["stdout"], "w", encoding="utf-8") as out, \
            open(streams["stderr"], "w", encoding="utf-8") as err:
        try:
            code = subprocess.run(command, cwd=os.path.join(work, "cwd"), stdin=subprocess.DEVNULL,
                                  env={**os.environ, "TMPDIR": os.path.join(work, "tmp"), **env},
                                  stdout=out, stderr=err, check=False, timeout=TIMEOUT_S).returncode
        except subprocess.TimeoutExpired:
            code = -9
    text = {}
    for name, path in streams.items():
        with open(path, encoding="utf-8", errors="replace") as file:
            text[name] = file.read()
    return Done(code, **text)


def compare(suite, prefix, quick, has_report):
    """Runs a suite on both sides; the number of differences."""
    version, parts = SUITES[suite](quick)
    without, within = Side([]), Side(prefix)
    for part in parts:
        without.run(part)
        within.run(part)
    report = (", {} allocations within, {} driver calls".format(within.allocations, within.driver_calls)
              if has_report else "")
    print("{} {} over {}: without {}; within {}; {:.0f} s, {:.0f} s{}".format(
        suite, version, os.environ.get("USM_TEST_RUNTIME", "the system's drivers"), without.counts(),
        within.counts(), without.seconds, within.seconds, report), flush=True)
    alike = sorted(name for name, outcome in without.outcomes.items()
                   if outcome.startswith("failed") and within.outcomes.get(name) == outcome)
    for name in alike[:SHOWN]:
        print("    {}: {} on both sides".format(shown(name), without.outcomes[name]))
    names = sorted(name for name in without.outcomes.keys() | within.outcomes.keys()
                   if without.outcomes.get(name) != within.outcomes.get(name))
    for name in names[:SHOWN]:
        print("    {}: {} without, {} within".format(shown(name), without.outcomes.get(name, "not run"),
                                                     within.outcomes.get(name, "not run")))
    if len(names) > SHOWN:
        print("    and {} more".format(len(names) - SHOWN))
    if not any(outcome == "passed" for outcome in without.outcomes.values()):
        print("    no test of it passes without usm-exec: this proves nothing")
        return len(names) + 1
    return len(names)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--limit")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    options = parser.parse_args()
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error("there is no suite '{}'; there are: {}".format(unknown[0], ", ".join(SUITES)))
    prefix = [os.path.join(os.path.abspath(options.build), "bin/usm-exec")]
    if not os.path.exists(prefix[0]):
        parser.error("{} was not built".format(prefix[0]))
    prefix += ["--report"] if options.report else []
    prefix += ["--limit", options.limit] if options.limit else []
    os.environ.setdefault("USM_TRACE_STACKS", "off")
    differences = ran = 0
    for suite in options.suites or SUITES:
        try:
            differences += compare(suite, prefix, options.quick, options.report)
            ran += 1
        except (Absent, OSError) as error:
            print("{}: skipped: {}".format(suite, error), flush=True)
    if differences:
        sys.exit(1)
    sys.exit(0 if ran else 77)


if __name__ == "__main__":
    main()
