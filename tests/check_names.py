#!/usr/bin/env python3
"""One meaning for each name inside the library.

A struct, union, enum or type `usm__x` is defined once.  The first word behind `usm__` of a function, a
variable or a type says in which folder of src it is defined: a folder may have several such
words, a word has one folder.  src/group, which modules link, has one word.  `usm__is_...` and the
like are questions, not words of a folder; `usm__<room>_part` is what src/usm.c adds of each.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import collections
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

QUESTIONS = {"is", "has", "may", "can"}
ONE_WORD = {"group"}  # folders that have no other words than their own name
NOT_CODE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:\\\n|[^\n])*',
                      re.S | re.M)
TAG = re.compile(r"\b(?:struct|union|enum)\s+(usm__\w+)\s*$")
FUNCTION = re.compile(r"\b(usm__\w+)\s*\(")
FUNCTION_TYPE = re.compile(r"\(\s*\*?\s*(usm__\w+)\s*\)\s*\(|\b(usm__\w+)\s*\(")
LAST = re.compile(r"\b(usm__\w+)\s*(?:\[[^\]]*\]\s*)*(?:=.*)?$", re.S)
FORWARD = re.compile(r"^(?:typedef\s+(?:struct|union|enum)\s+\w+\s+\w+|(?:struct|union|enum)\s+\w+)$")


def blank(match):
    """What is not code becomes white space, so that lines keep their numbers."""
    return re.sub(r"[^\n]", " ", match.group(0))


def outermost(text):
    """Each declaration outside of braces: its line, its text before the brace or semicolon, its
    text behind the braces, whether it had any."""
    depth, begin, head, has_braces = 0, 0, "", False
    for at, c in enumerate(text):
        if c == "{":
            if depth == 0:
                head, has_braces = text[begin:at], True
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0 and (FUNCTION.search(head) or not head.strip()):  # ends a function
                yield text.count("\n", 0, at), head, "", True
                begin, head, has_braces = at + 1, "", False
            elif depth == 0:
                begin = at + 1
        elif c == ";" and depth == 0:
            rest = text[begin:at]
            yield text.count("\n", 0, at) + 1, head or rest, rest if has_braces else "", has_braces
            begin, head, has_braces = at + 1, "", False


def defined(head, rest, has_braces):
    """The names that a declaration defines: (name, whether it is a tag or the name of a type)."""
    head, rest = head.strip(), rest.strip()
    if not has_braces and FORWARD.match(head):
        return
    is_type = head.startswith("typedef")
    tag = has_braces and TAG.search(head)
    if tag:
        yield tag.group(1), True
    if is_type and has_braces:
        name = LAST.search(rest)
        if name and not (tag and tag.group(1) == name.group(1)):
            yield name.group(1), True
    elif is_type:
        name = FUNCTION_TYPE.search(head) or LAST.search(head)
        if name:
            yield next(group for group in name.groups() if group), True
    elif has_braces and not tag and FUNCTION.search(head):
        yield FUNCTION.search(head).group(1), False
    elif not tag and not head.startswith("extern") and not FUNCTION.search(head):
        name = LAST.search(head)
        if name:
            yield name.group(1), False


def sources():
    for folder, _, names in os.walk(os.path.join(ROOT, "src")):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def main():
    types = collections.defaultdict(list)
    folders = collections.defaultdict(lambda: collections.defaultdict(list))
    files = names = 0
    wrong = []
    for path in sources():
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            text = NOT_CODE.sub(blank, file.read())
        files += 1
        for line, head, rest, has_braces in outermost(text):
            for name, is_type in defined(head, rest, has_braces):
                names += 1
                where = "{}:{}".format(path, line)
                if is_type:
                    types[name].append(where)
                word = name[len("usm__"):].split("_")[0]
                if word not in QUESTIONS and not name.endswith("_part"):
                    folders[word][path.split("/")[1]].append((where, name))
    for name, places in sorted(types.items()):
        if len(places) > 1:
            wrong.append("{}: {} is defined at {} too".format(places[0], name, ", ".join(places[1:])))
    for word, by in sorted(folders.items()):
        for folder in sorted(ONE_WORD.intersection(by) - {word}):
            for where, name in by[folder]:
                wrong.append("{}: {}: src/{} has usm__{}... alone".format(where, name, folder, folder))
        if len(by) > 1:
            owner = max(by, key=lambda folder: (len(by[folder]), folder))
            for folder in sorted(set(by) - {owner}):
                for where, name in by[folder]:
                    wrong.append("{}: {}: usm__{}... is src/{}'s".format(where, name, word, owner))
    for line in wrong:
        print(line)
    print("{} names in {} files, {} wrong".format(names, files, len(wrong)))
    return 1 if wrong or not names else 0


if __name__ == "__main__":
    sys.exit(main())
