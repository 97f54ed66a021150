#!/usr/bin/env python3
"""What libusm.so exports: the USM_API functions of the headers = cmake/libusm.map = `nm -D`.  Those of
usm/umf.h are another library's, which is checked as a module.

    check_symbols.py --library libusm.so --generated build/.../include [--module FILE ENTRY]...
    check_symbols.py --update      writes the map's newest node anew from the headers

Every name begins with usm_ and is none of net-snmp's (tests/data/netsnmp_symbols.txt), which some
programs load beside libusm.  A module exports its entry and nothing else.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import argparse
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAP = os.path.join(ROOT, "cmake", "libusm.map")


def declared(generated):
    """Names of all USM_API functions and variables of the public headers of libusm.so."""
    paths = glob.glob(os.path.join(ROOT, "include", "usm", "*.h"))
    version = os.path.join(ROOT, "include", "usm", "version.h.in")
    paths += glob.glob(os.path.join(generated, "usm", "*.h")) if generated else [version]
    names = {}
    for path in paths:
        if os.path.basename(path) == "umf.h":
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
        text = re.sub(r"^\s*#(?:[^\n\\]|\\\n|\\.)*", " ", text, flags=re.M)
        for match in re.finditer(r"\bUSM_API\b([^;{]*)[;{]", text):
            # The first usm_ name that is followed by arguments; attributes are upper case.
            found = re.search(r"\b(usm_\w+)\s*\(", match.group(1)) or re.search(
                r"\b(\w+)\s*(?:\[[^]]*\]\s*)?$", match.group(1)
            )
            names[found.group(1)] = os.path.basename(path)
    return names


def in_map():
    with open(MAP, encoding="utf-8") as file:
        text = re.sub(r"#[^\n]*|/\*.*?\*/", " ", file.read(), flags=re.S)
    names = []
    for body in re.findall(r"global:(.*?)(?:local:|\})", text, flags=re.S):
        names += [name.strip() for name in body.split(";") if name.strip()]
    return names


def exported(path):
    out = subprocess.run(
        ["nm", "-D", "--defined-only", "-P", path], check=True, capture_output=True, text=True
    ).stdout
    names = {}
    for line in out.splitlines():
        fields = line.split()
        if fields[1] != "A":  # the version nodes themselves
            name, _, version = fields[0].partition("@")
            names[name] = version.lstrip("@")
    return names


def update():
    names = sorted(declared(None))
    with open(MAP, encoding="utf-8") as file:
        text = file.read()
    body = "".join("        {};\n".format(name) for name in names)
    text = re.sub(r"(global:\n).*?(    local:)", lambda m: m[1] + body + m[2], text, flags=re.S)
    with open(MAP, "w", encoding="utf-8") as file:
        file.write(text)
    print("{}: {} names".format(os.path.relpath(MAP), len(names)))


def main():
    parser = argparse.ArgumentParser(description="compares headers, version script and library")
    parser.add_argument("--library")
    parser.add_argument("--generated")
    parser.add_argument("--module", nargs=2, action="append", default=[])
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if args.update:
        update()
        return 0

    headers = declared(args.generated)
    script = in_map()
    library = exported(args.library)
    with open(os.path.join(ROOT, "tests", "data", "netsnmp_symbols.txt"), encoding="utf-8") as file:
        netsnmp = {line.strip() for line in file if line.strip() and not line.startswith("#")}

    wrong = []

    def compare(left, left_name, right, right_name):
        for name in sorted(set(left) - set(right)):
            wrong.append("{} is in {}, but not in {}".format(name, left_name, right_name))

    compare(headers, "the headers", script, "cmake/libusm.map (check_symbols.py --update)")
    compare(script, "cmake/libusm.map", headers, "the headers")
    compare(headers, "the headers", library, "libusm.so")
    compare(library, "libusm.so", headers, "the headers")
    for name in sorted(library):
        if not name.startswith("usm_"):
            wrong.append("{} does not begin with usm_".format(name))
        if not library[name]:
            wrong.append("{} has no version".format(name))
        if name in netsnmp:
            wrong.append("{} is also a symbol of net-snmp".format(name))
    for name in sorted({name for name in script if script.count(name) > 1}):
        wrong.append("{} stands twice in the map".format(name))
    for path, entry in args.module:
        names = sorted(exported(path))
        if names != [entry]:
            wrong.append("{} exports {}".format(os.path.basename(path), ", ".join(names)))
    for line in wrong:
        print(line)
    print("{} exported functions, {} names of net-snmp, {} wrong".format(
        len(library), len(netsnmp), len(wrong)))
    return 1 if wrong or not library or not netsnmp else 0


if __name__ == "__main__":
    sys.exit(main())
