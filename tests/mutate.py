#!/usr/bin/env python3
"""Plants the defects of tests/mutants one after the other, and records which test fails first.

    tests/mutate.py --check                       each patch applies and says what it should; under 1 s
    tests/mutate.py                               all of them, preset release, what `./run test` runs
    tests/mutate.py --only '^slab' --preset asan --preset tsan --set folder --resume

A defect is a file tests/mutants/<folder>-<name>.patch.  Three lines precede its diff:
    What: one sentence        Harm: what a user would see        Tests: a regex, as for ctest -R
The scratch folder gets a copy of the tracked files as they are in the working tree, and one build of it
for each preset.  For each defect the script reverts the one before, applies the patch, builds the
programs of `Tests:`, runs these tests, and stops at the first that fails.  When none fails it builds
everything and runs the rest of the set: `test` (what `./run test` runs), `ci` (that and label ci),
`folder` (label unit, of the same folders of tests/), `hinted` (nothing more).

The results are lines of mutant, preset, verdict (caught, missed, broken), test or set, seconds.
--resume keeps what was caught or missed by the same set before.  Exit 1: a defect is missed in all
presets and tests/mutants/expected.tsv (mutant, reason) has no line for it, or one is broken.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MUTANTS = ROOT / "tests/mutants"
FIELDS = ("What", "Harm", "Tests")
MARK = "PLANTED_DEFECT_TEST"  # in the environment of a test and of all that it starts


class Broken(Exception):
    """A patch that cannot be judged."""


# --- patches ------------------------------------------------------------------------------------

def read_mutant(path):
    """The three fields in front of the diff."""
    head = path.read_text().split("diff --git ", 1)[0]
    fields = dict(re.findall(r"^(What|Harm|Tests): (\S.*)$", head, re.M))
    missing = [f for f in FIELDS if f not in fields]
    if missing:
        raise Broken(f"no line '{missing[0]}:'")
    re.compile(fields["Tests"])
    return fields


def read_mutants(only):
    return {p.stem: read_mutant(p) for p in sorted(MUTANTS.glob("*.patch")) if re.search(only, p.stem)}


def git_apply(tree, path, *options):
    done = subprocess.run(["git", "apply", *options, str(path)], cwd=tree, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise Broken(f"does not apply: {done.stdout.strip().splitlines()[0]}")


def check_one(path):
    try:
        read_mutant(path)
        git_apply(ROOT, path, "--check")
    except (Broken, re.error) as why:
        return f"{path.name}: {why}"
    return None


def check():
    """--check: every patch applies to the working tree."""
    if not shutil.which("git"):
        print("there is no git, which applies the patches")
        return 77
    paths = sorted(MUTANTS.glob("*.patch"))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        wrong = [line for line in pool.map(check_one, paths) if line]
    print("\n".join(wrong) or f"{len(paths)} planted defects apply")
    return 1 if wrong or not paths else 0


# --- the scratch tree -----------------------------------------------------------------------------

def git(tree, *arguments):
    return subprocess.run(["git", *arguments], cwd=tree, check=True, stdout=subprocess.PIPE).stdout


def revert(tree):
    """What has not changed keeps its time, and is not built again."""
    git(tree, "checkout-index", "-q", "-f", "-u", "-a")


def copy_tree(tree):
    """The tracked files, as they are now, in a repository of its own."""
    names = [n for n in git(ROOT, "ls-files", "-z").decode().split("\0") if n]
    tree.mkdir(parents=True, exist_ok=True)
    if not (tree / ".git").exists():
        git(tree, "init", "-q")
    revert(tree)
    for gone in set(git(tree, "ls-files", "-z").decode().split("\0")) - set(names) - {""}:
        (tree / gone).unlink(missing_ok=True)
    for name in names:
        source, target = ROOT / name, tree / name
        if source.is_file() and not (target.is_file() and target.read_bytes() == source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    git(tree, "add", "-A")


def configure(tree, preset):
    build = tree / "build" / preset
    options = ["-DUSM_WERROR=ON"]
    if shutil.which("mold"):
        options += [f"-DCMAKE_{kind}_LINKER_FLAGS=-fuse-ld=mold" for kind in ("EXE", "SHARED", "MODULE")]
    if shutil.which("ccache"):
        options.append("-DCMAKE_C_COMPILER_LAUNCHER=ccache")
    if not (build / "build.ninja").exists():
        subprocess.run(["cmake", "-G", "Ninja", "--preset", preset, *options], cwd=tree, check=True,
                       stdout=subprocess.DEVNULL)
    return build


def build_targets(build, jobs, log, targets):
    done = subprocess.run(["ninja", "-C", str(build), f"-j{jobs}", *targets], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    log.write_bytes(done.stdout)
    if done.returncode:
        raise Broken(f"does not compile: {log}")


def outputs_of(build):
    text = subprocess.run(["ninja", "-C", str(build), "-t", "targets", "all"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    return {line.split(": ")[0] for line in text.splitlines() if ": " in line}


def targets_of(build, tests):
    """What ninja makes of all that the tests' commands name; everything for a test that names none."""
    outputs, targets = outputs_of(build), {"usm_modules"}
    for test in tests:
        named = {os.path.relpath(word, build) for word in test["command"] if word.startswith(str(build))}
        if not named & outputs:
            return []
        targets |= named & outputs
    return sorted(targets)


# --- tests ------------------------------------------------------------------------------------------

def list_tests(build):
    text = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, check=True,
                          stdout=subprocess.PIPE).stdout
    tests = []
    for test in json.loads(text)["tests"]:
        test.update({p["name"]: p["value"] for p in test["properties"]})
        if "command" in test and test["name"] != "check_mutants":
            tests.append(test)
    return tests


def is_allowed(test, which):
    return not set(test.get("LABELS", [])) & ({"soak", "repeat"} | ({"ci"} if which == "test" else set()))


def is_in_set(test, which, hinted):
    if which == "folder" and "unit" not in test.get("LABELS", []):
        return False
    folders = {h["WORKING_DIRECTORY"] for h in hinted}
    return is_allowed(test, which) and (which != "folder" or test["WORKING_DIRECTORY"] in folders)


def end_all(mark):
    """Kills whatever a test has left, in whichever process group."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def run_test(test, args, logs, stop):
    """None when it passes, is skipped, or `stop` is set meanwhile; else how it fails."""
    mark = f"{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}"
    environment = dict(os.environ, **{MARK: mark})
    environment.update(v.split("=", 1) for v in test.get("ENVIRONMENT", []) if "=" in v)
    end = time.monotonic() + max(args.timeout, test.get("TIMEOUT", 0) / 4)
    if stop.is_set():
        return None
    with (logs / f"{test['name']}.log").open("wb") as out:
        child = subprocess.Popen(test["command"], cwd=test["WORKING_DIRECTORY"], env=environment,
                                 stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                 start_new_session=True)
        while child.poll() is None and time.monotonic() < end and not stop.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.1)
    code = child.poll()
    end_all(mark)
    child.wait()
    if stop.is_set() or code in (0, 77):
        return None
    return test["name"] if code is not None else f"{test['name']} (timeout)"


def first_failure(tests, args, logs):
    """Those that want the machine for themselves come last, one at a time."""
    stop, failures = threading.Event(), []

    def run(test):
        failure = run_test(test, args, logs, stop)
        if failure:
            failures.append(failure)
            if not args.baseline:
                stop.set()

    for serial in (False, True):
        with concurrent.futures.ThreadPoolExecutor(1 if serial else args.jobs) as pool:
            list(pool.map(run, [t for t in tests if bool(t.get("RUN_SERIAL")) == serial]))
    return failures if args.baseline else failures[:1]


# --- one defect -----------------------------------------------------------------------------------

def judge(build, fields, args, logs, left_out):
    """The test that sees what is planted, or None."""
    tests = [t for t in list_tests(build) if t["name"] not in left_out and is_allowed(t, args.set)]
    hinted = [t for t in tests if re.search(fields["Tests"], t["name"])]
    if hinted:
        build_targets(build, args.jobs, logs / "build.log", targets_of(build, hinted))
        found = first_failure(hinted, args, logs)
        if found:
            return found[0]
    if args.set == "hinted":
        return None
    rest = [t for t in tests if t not in hinted and is_in_set(t, args.set, hinted)]
    build_targets(build, args.jobs, logs / "build.log", targets_of(build, rest))
    found = first_failure(rest, args, logs)
    return found[0] if found else None


def try_mutant(name, fields, preset, args):
    """A line of the results."""
    tree, began = args.scratch / "tree", time.monotonic()
    build = tree / "build" / preset
    logs = args.scratch / "logs" / preset / name
    logs.mkdir(parents=True, exist_ok=True)
    try:
        revert(tree)
        git_apply(tree, MUTANTS / f"{name}.patch")
        seen = judge(build, fields, args, logs, read_baseline(args, preset))
        verdict, by = ("caught", seen) if seen else ("missed", args.set)
    except Broken as why:
        verdict, by = "broken", str(why)
    finally:
        revert(tree)
    return [name, preset, verdict, by, f"{time.monotonic() - began:.0f}"]


def read_baseline(args, preset):
    path = args.scratch / f"fails-without.{preset}"
    return set(path.read_text().split()) if path.exists() else set()


def run_baseline(preset, args):
    """--baseline: the set without a defect; later runs leave out what fails there."""
    build, logs = args.scratch / "tree/build" / preset, args.scratch / "logs" / preset / "baseline"
    logs.mkdir(parents=True, exist_ok=True)
    tests = [t for t in list_tests(build) if is_in_set(t, args.set, [])]
    build_targets(build, args.jobs, logs / "build.log", [])
    failures = [f.split()[0] for f in first_failure(tests, args, logs)]
    (args.scratch / f"fails-without.{preset}").write_text("\n".join(failures) + "\n")
    print(f"{preset}: {len(tests)} tests, failing without any defect: {failures or 'none'}")


# --- results ----------------------------------------------------------------------------------------

def read_tsv(path):
    if not path.exists():
        return []
    return [line.split("\t") for line in path.read_text().splitlines() if line and line[0] != "#"]


def write_results(path, rows):
    lines = ["# mutant\tpreset\tverdict\tby\tseconds"] + ["\t".join(rows[k]) for k in sorted(rows)]
    path.write_text("\n".join(lines) + "\n")


def is_done(row, args):
    return row is not None and (row[2] == "caught" or (row[2] == "missed" and row[3] == args.set))


def summarise(rows, mutants):
    """Exit status: of those chosen, is one missed everywhere that should not be, or broken?"""
    expected = {row[0] for row in read_tsv(MUTANTS / "expected.tsv")}
    mine = [row for row in rows.values() if row[0] in mutants]
    caught = {row[0] for row in mine if row[2] == "caught"}
    broken = sorted({row[0] for row in mine if row[2] == "broken"})
    missed = sorted(set(mutants) - caught - set(broken))
    for preset in sorted({row[1] for row in mine}):
        verdicts = [row[2] for row in mine if row[1] == preset]
        print(preset + ": " + ", ".join(f"{verdicts.count(v)} {v}" for v in ("caught", "missed", "broken")))
    for name in missed:
        print(f"missed: {name}" + (" (expected)" if name in expected else ""))
    for name in broken:
        print(f"broken: {name}")
    return 1 if broken or set(missed) - expected else 0


def run_all(args):
    mutants = read_mutants(args.only)
    rows = {tuple(row[:2]): row for row in read_tsv(args.results)} if args.resume else {}
    copy_tree(args.scratch / "tree")
    for preset in args.preset:
        configure(args.scratch / "tree", preset)
        if args.baseline:
            run_baseline(preset, args)
            continue
        for name, fields in mutants.items():
            if is_done(rows.get((name, preset)), args):
                continue
            rows[name, preset] = try_mutant(name, fields, preset, args)
            write_results(args.results, rows)
            print("\t".join(rows[name, preset]), flush=True)
    return 0 if args.baseline else summarise(rows, mutants)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only: does each patch apply?")
    parser.add_argument("--scratch", type=pathlib.Path, default=ROOT / "build/mutants")
    parser.add_argument("--preset", action="append", help="default: release; may be given again")
    parser.add_argument("--set", choices=("hinted", "folder", "test", "ci"), default="test")
    parser.add_argument("--only", default="", metavar="REGEX", help="of mutants' names")
    parser.add_argument("--resume", action="store_true", help="keep the results that are there")
    parser.add_argument("--results", type=pathlib.Path, help="default: results.tsv in the scratch folder")
    parser.add_argument("--baseline", action="store_true", help="run the set without a defect first")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a test (default 60)")
    parser.add_argument("--jobs", "-j", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if args.check:
        return check()
    args.scratch = args.scratch.resolve()
    args.preset = args.preset or ["release"]
    args.results = args.results or args.scratch / "results.tsv"
    try:
        return run_all(args)
    except (Broken, re.error) as why:
        sys.exit(f"mutate.py: {why}")


if __name__ == "__main__":
    sys.exit(main())
