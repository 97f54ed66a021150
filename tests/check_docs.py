#!/usr/bin/env python3
"""Do the documents say what the tree says?

check_docs.py [--cc CC --include DIR... [--library LIBUSM]]

Links resolve; files that docs/map.md and the folders' READMEs name exist, and no source is left
out; docs/benchmarks.md and its plots are what docs/benchmarks/ says, the picture of
docs/architecture.md what the tree is; docs/errors.md has every status; folder READMEs have at most
40 lines; manuals pass mandoc (where it is installed).  With --cc the example of README.md is
compiled, with --library also linked and run on the host.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKIP = {".git", "build"}
# Folders whose README has a table of all sources.
COMPLETE = ["include/usm", "src/base", "src/device", "src/heap",
            "src/command", "src/program", "src/observe", "src/profile", "backends/host", "backends/opencl",
            "bench"]
wrong = []
checked = 0


def check(condition, complaint):
    global checked
    checked += 1
    if not condition:
        wrong.append(complaint)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def exists(path):
    return os.path.exists(os.path.join(ROOT, path))


def documents():
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in SKIP]
        for name in sorted(names):
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def check_links():
    for path in documents():
        text = re.sub(r"```.*?```", "", read(path), flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if not re.match(r"[a-z]+:", target):
                there = os.path.normpath(os.path.join(os.path.dirname(path), target))
                check(exists(there), "{}: the link {} leads nowhere".format(path, target))


def check_map():
    for row in re.findall(r"^\|[^|]*\|([^|]*)\|$", read("docs/map.md"), flags=re.M):
        folder = ""
        for name in re.findall(r"`([^`]+)`", row):
            if "*" in name:
                continue
            here = name if "/" in name or exists(name) else os.path.join(folder, name)
            folder = os.path.dirname(here)
            check(exists(here) or "_fork" in name, "docs/map.md: there is no {}".format(name))


def named_files(readme):
    """What a README's table names: `a.c`, and `a.c` `.h` for both."""
    names = set()
    for row in re.findall(r"^\|([^|]*)\|", readme, flags=re.M):
        last = ""
        for name in re.findall(r"`([^`]+)`", row):
            last = os.path.splitext(last)[0] + name if name.startswith(".") else name
            names.add(last)
    return names


def check_folders():
    for path in documents():
        if os.path.basename(path) != "README.md" or os.path.dirname(path) == "":
            continue
        if path.startswith("samples/") and path.count("/") > 1:
            continue  # a sample explains itself at length
        lines = read(path).count("\n")
        check(lines <= 40, "{}: {} lines, at most 40 wanted".format(path, lines))
    for folder in COMPLETE:
        if not exists(folder):
            continue
        readme = os.path.join(folder, "README.md")
        check(exists(readme), "{} has no README.md".format(folder))
        if not exists(readme):
            continue
        names = named_files(read(readme))
        sources = {n for n in os.listdir(os.path.join(ROOT, folder)) if n.endswith((".c", ".h"))}
        for name in sorted(sources - names):
            check(False, "{}: does not name {}".format(readme, name))
        for name in sorted(n for n in names if re.fullmatch(r"[\w]+\.[ch]", n)):
            check(name in sources, "{}: there is no {}".format(readme, name))


def check_statuses():
    statuses = re.findall(r"X\((USM_\w+), (-?\d+),", read("include/usm/status.h"))
    rows = dict(re.findall(r"^\| `(USM_\w+)` \| (-?\d+) \|", read("docs/errors.md"), flags=re.M))
    check(len(statuses) > 20, "include/usm/status.h: no list of statuses was found")
    for name, number in statuses:
        check(rows.pop(name, None) == number, "docs/errors.md: {} {}".format(name, number))
    check(not rows, "docs/errors.md: {} is no status".format(", ".join(rows)))


def check_manuals():
    mandoc = shutil.which("mandoc")
    for name in sorted(os.listdir(os.path.join(ROOT, "docs/man"))):
        if not mandoc:
            print("skipped: no mandoc for {}".format(name))
            continue
        path = os.path.join(ROOT, "docs/man", name)
        result = subprocess.run([mandoc, "-Tlint", "-Wwarning", path], stdout=subprocess.PIPE,
                                universal_newlines=True)
        check(result.returncode == 0, result.stdout.strip())


def check_decisions():
    """Newest first."""
    dates = re.findall(r"^## (\d{4}-\d\d-\d\d): ", read("docs/decisions.md"), re.M)
    check(dates, "docs/decisions.md: no entries")
    for newer, older in zip(dates, dates[1:]):
        check(newer >= older, "docs/decisions.md: {} stands before {}".format(newer, older))


def check_made(program):
    """What a script makes is what the tree says now; its --check prints what is not."""
    result = subprocess.run([sys.executable, os.path.join(ROOT, program), "--check"], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check(result.returncode == 0, "{}: {}".format(program, result.stdout.strip()))


LOCKS = re.compile(r"(\| rank \| guards \|\n\|---\|---\|\n)((?:\|.*\n)*)")
RANK = re.compile(r"/\* ([^*]*) \*/\n\s*USM__RANK_(\w+) +=")


def check_locks(write):
    """The lock table is what src/base/mutex.h says of each rank, in its order."""
    rows = "".join("| {} | {} |\n".format(name.lower().replace("_", " "), " ".join(guards.split()))
                   for guards, name in RANK.findall(read("src/base/mutex.h")))
    text = read("docs/threading.md")
    if write:
        with open(os.path.join(ROOT, "docs/threading.md"), "w", encoding="utf-8") as file:
            file.write(LOCKS.sub(lambda m: m.group(1) + rows, text))
        return
    table = LOCKS.search(text)
    ranks = len(re.findall(r"USM__RANK_\w+ +=", read("src/base/mutex.h")))
    check(rows.count("\n") == ranks, "src/base/mutex.h: a rank without a comment before it")
    check(table and table.group(2) == rows,
          "docs/threading.md: the lock table differs from src/base/mutex.h: check_docs.py --write")


def check_example(cc, includes, library):
    found = re.search(r"```c\n(.*?)```", read("README.md"), flags=re.S)
    check(found, "README.md: there is no example")
    lines = found.group(1).count("\n")
    check(lines <= 26, "README.md: the example has {} lines".format(lines))
    with tempfile.TemporaryDirectory() as work:
        source, program = os.path.join(work, "example.c"), os.path.join(work, "example")
        with open(source, "w", encoding="utf-8") as file:
            file.write(found.group(1))
        command = [cc, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", source]
        command += ["-I" + folder for folder in includes]
        command += [library, "-Wl,-rpath," + os.path.dirname(library), "-o", program] if library \
            else ["-fsyntax-only"]
        built = subprocess.run(command).returncode == 0
        check(built, "README.md: the example does not compile")
        if built and library:
            environment = dict(os.environ, USM_DEVICE_SELECTOR="host:*")
            result = subprocess.run([program], env=environment, stdout=subprocess.PIPE,
                                    universal_newlines=True)
            check(result.returncode == 0 and result.stdout == "x[10] is 5\n",
                  "README.md: the example prints {!r}".format(result.stdout))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cc")
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--library")
    parser.add_argument("--write", action="store_true", help="makes the lock table")
    args = parser.parse_args()
    check_links()
    check_map()
    check_folders()
    check_statuses()
    check_manuals()
    check_decisions()
    check_made("bench/page.py")
    check_made("tests/draw_architecture.py")
    check_locks(args.write)
    if args.cc:
        check_example(args.cc, args.include, args.library)
    for complaint in wrong:
        print(complaint)
    print("{} checked, {} wrong".format(checked, len(wrong)))
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
