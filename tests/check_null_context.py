#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_null_context.py: does tests/unit/test_null_context.c call every function of the public
interface that takes a context, with NULL for it?"""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
# Callbacks that are handed a context are no functions of the interface: they have no USM_API.
DECLARATION = re.compile(r"\bUSM_API\b([^;{}]*?)\b(usm_\w+)\(([^;]*?)\)\s*;", re.S)


def parameters(text):
    return [" ".join(p.split()) for p in text.split(",")]


def functions():
    """Name and position of the parameter."""
    for header in sorted((root / "include/usm").glob("*.h")):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
        for _, name, inner in DECLARATION.findall(text):
            for i, p in enumerate(parameters(inner)):
                if re.fullmatch(r"(const )?usm_context \*\w*", p):
                    yield name, i


def main():
    test = (root / "tests/unit/test_null_context.c").read_text(encoding="utf-8")
    test = re.sub(r"/\*.*?\*/", "", test, flags=re.S)
    found = list(functions())
    missing = []
    for name, i in found:
        calls = [parameters(c) for c in re.findall(rf"\b{name}\(([^;()]*(?:\([^()]*\)[^;()]*)*)\)", test)]
        if not any(len(c) > i and c[i] == "NULL" for c in calls):
            missing.append(name)
    for name in missing:
        print(f"test_null_context.c does not call {name}() with NULL for its context")
    print(f"{len(found)} functions take a context")
    if len(found) < 20:
        sys.exit("the headers were not understood")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
