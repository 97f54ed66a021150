#!/usr/bin/env python3
"""table.py [--long] BUILD [RUNTIME...]: the table of the conformance suite, behaviour classes by runtimes.

Reads the records BUILD/conformance/*.tsv, which the test program wrote, one for each run
(conformance@host.tsv, conformance_arena@host.tsv, ...).  A cell tells how many behaviours passed, and
how many the devices of that run do not offer; below stand those, with the reason.  Fails when a test
failed, was skipped, or left no end; when a class that one run has is missing in another; and when a
RUNTIME has no record.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import collections
import glob
import os
import re
import sys

ORDER = ["host", "pocl", "pocl-coarse", "intel", "neo-skl", "neo-tgllp", "neo-dg2", "ze-soft", "ze-soft-1.20",
         "ze-soft-intel", "neo-ze-tgllp", "neo-ze-dg2"]


def read(path):
    """{(class, behaviour): (status, reasons)}; status: passed, offered in part, not offered, FAILED..."""
    ends, tried, reasons = {}, set(), collections.defaultdict(list)
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 4:
                continue
            status, group, behaviour, reason = fields
            key = (group, behaviour)
            if status == "TRIED":
                tried.add(key)
            elif status == "NOT_OFFERED" or (status == "SKIPPED" and reason):
                if reason not in reasons[key]:
                    reasons[key].append(reason)
            elif ends.get(key) != "FAILED":
                ends[key] = status
    result = {}
    for key in set(ends) | tried | set(reasons):
        end = ends.get(key, "NO END")
        if end == "PASSED" and reasons[key]:
            end = "in part" if key in tried else "not offered"
        result[key] = (end.replace("PASSED", "passed"), reasons[key])
    return result


def name_of(path):
    """conformance_arena@host.tsv -> "host arena"."""
    program, _, runtime = os.path.basename(path)[: -len(".tsv")].partition("@")
    variant = program.replace("conformance", "").strip("_")
    return (runtime or "?") + (" " + variant if variant else "")


def rank(name):
    runtime = name.split()[0]
    return (ORDER.index(runtime) if runtime in ORDER else len(ORDER), name)


def cell(behaviours):
    count = collections.Counter(status for status, _ in behaviours)
    passed = count["passed"] + count["in part"]
    text = str(passed) if passed else "-"
    if count["not offered"]:
        text += " / {}".format(count["not offered"])
    bad = sum(n for status, n in count.items() if status.upper() == status)
    return text + (" !{}".format(bad) if bad else "")


def print_table(runs, names, classes):
    rows = [["passed / not offered"] + names]
    for group in classes:
        rows.append([group] + [
            cell([value for key, value in runs[name].items() if key[0] == group]) for name in names])
    rows.append(["all"] + [cell(runs[name].values()) for name in names])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for i, row in enumerate(rows):
        print("  ".join(text.ljust(width) if not j else text.rjust(width)
                        for j, (text, width) in enumerate(zip(row, widths))).rstrip())
        if i in (0, len(rows) - 2):
            print("  ".join("-" * width for width in widths))


def print_reasons(runs, names, long_form):
    """What is not offered, by reason and runs; with --long each behaviour by name."""
    where = collections.defaultdict(lambda: collections.defaultdict(list))
    for name in names:
        for key, (status, reasons) in runs[name].items():
            if status in ("not offered", "in part"):
                reason = re.sub(r"\b(host|opencl|level_zero):[0-9.]+:? ?", "", reasons[0])[:100]
                where[(reason, status)][key].append(name)
    groups = collections.defaultdict(list)
    for (reason, status), behaviours in where.items():
        for key, found in behaviours.items():
            groups[(reason, status, ", ".join(found))].append("/".join(key))
    if groups:
        print("\nnot offered, and why:")
    for (reason, status, found), behaviours in sorted(groups.items()):
        some = "" if status == "not offered" else " (in part)"
        print("  {}: {}{}: {} behaviours".format(found, reason, some, len(behaviours)))
        if long_form or len(behaviours) <= 2:
            print("".join("      {}\n".format(name) for name in sorted(behaviours)), end="")
    never = sorted("/".join(key) for key in {key for run in runs.values() for key in run}
                   if all(run.get(key, ("",))[0] == "not offered" for run in runs.values()))
    if never:
        print("\noffered by none of these runs: " + ", ".join(never))


def main():
    args = [arg for arg in sys.argv[1:] if arg != "--long"]
    if not args:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    runs = {name_of(path): read(path)
            for path in glob.glob(os.path.join(args[0], "conformance", "*.tsv"))}
    names = sorted(runs, key=rank)
    classes = sorted({group for run in runs.values() for group, _ in run})
    wrong = ["{}: no record".format(name) for name in args[1:] if name not in runs]
    if not runs:
        wrong.append("no records in {}/conformance".format(args[0]))
    for name in names:
        behaviours = {key for run in runs.values() for key in run}
        wrong += ["{}: class {} is missing".format(name, group)
                  for group in classes if not any(key[0] == group for key in runs[name])]
        wrong += ["{}: {}/{} did not run".format(name, *key)
                  for key in sorted(behaviours - set(runs[name]))]
        wrong += ["{}: {}/{}: {} {}".format(name, key[0], key[1], status, "; ".join(reasons)).rstrip()
                  for key, (status, reasons) in sorted(runs[name].items()) if status.upper() == status]
    if runs:
        print_table(runs, names, classes)
        print_reasons(runs, names, "--long" in sys.argv)
    for line in wrong:
        print("WRONG: " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
