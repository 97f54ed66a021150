#!/usr/bin/env python3
"""How much state do files keep outside of objects?

Counts the variables of the library and its modules that live as long as the process and change while
it runs, at file scope or static in a function.  Each is atomic, is a struct with the lock that guards
it, or has a comment on its line or the one before that says what keeps threads from meeting there:
what guards it, or when it is fixed.  Related ones belong into one struct, so that it is seen what is
consistent with what.  Not counted are constants, variables of a thread, and those whose type says
all: SINGLE.

check_state.py --list names them, each with its reason.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import functools
import re
import sys

from check_locks import FOLDERS, closing, sources
from check_names import NOT_CODE, ROOT, blank

MOST = 66
# Tables of objects and lists of reusable memory, each with a lock inside; what happens once; the
# table of functions that a module is given when it is loaded.
SINGLE = re.compile(r"\busm__meta_type\b|\busm_recycler\b|\bpthread_once_t\b|"
                    r"\bconst usm_host_api\s*\*|\b(?:_Thread_local|__thread|USM__THREAD_LOCAL)\b")
NO_VARIABLE = re.compile(r"^(?:(?:__extension__ )?typedef|extern|_Static_assert|__asm__)\b|"
                         r"^(?:struct|union|enum)\s+\w+$|_entry_fn \w+$")
LOCAL = re.compile(r"^[ \t]+(static\b[^;{]*(?:\{[^;]*\})?[^;{}]*(?:\{[^;]*\})?[^;{}]*);", re.M)
ATOMIC = re.compile(r"\b_Atomic\b|\batomic_\w+")
MUTEX = re.compile(r"\b(?:usm__mutex|pthread_mutex_t)\s+\w")
GUARD = re.compile(r"\bguard|\block\b|\batomic\b|\bfixed\b", re.I)
STRUCT = re.compile(r"\bstruct\s+(\w+)\s*(?=\{)")
MEMBER = re.compile(r"(?:struct\s+)?(\w+)\s+\w[^;*(){}]*;")
MODULES = tuple(folder for folder in FOLDERS if folder != "tools")


def statements(text):
    """The declarations at file scope and those of static variables in functions: where they begin and
    end, and their text without what is inside braces."""
    begin, at, plain = 0, 0, ""
    while at < len(text):
        c = text[at]
        if c == "{":
            end = closing(text, at)
            if re.search(r"\)\s*$", plain):  # a function
                for found in LOCAL.finditer(text[at:end]):
                    declaration = re.sub(r"\{.*?\}", "{}", found.group(1), flags=re.S)
                    yield at + found.start(1), at + found.end(), declaration
                plain, begin = "", end + 1
            else:
                plain += "{}"
            at = end
        elif c == ";":
            start = begin + len(text[begin:]) - len(text[begin:].lstrip())
            yield start, at, plain
            plain, begin = "", at + 1
        else:
            plain += c
        at += 1


def split(text):
    """At commas outside of brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def is_constant(before):
    """before: the declaration up to the name."""
    return re.search(r"\bconst\b[^*]*$" if "*" in before else r"\bconst\b", before) is not None


def variables(declaration):
    declaration = re.sub(r"__attribute__\s*\(\(.*\)\)", "", " ".join(declaration.split()))
    if NO_VARIABLE.search(declaration) or SINGLE.search(declaration):
        return
    first = ""
    for part in split(declaration):
        part = part.split("=")[0].strip()
        pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", part)  # to a function
        name = pointer or re.search(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)$", part)
        if not name or (not first and not part[:name.start()].strip()):
            return
        if "(" in re.sub(r"_Atomic\s*\([^)]*\)", "", part[:pointer.start()] if pointer else part):
            return  # declares a function
        before = first + " " + part[:name.start()]
        first = first or re.sub(r"\*.*", "", part[:name.start()])
        if not is_constant(before) or "_Atomic" in before.split("const")[-1]:
            yield name.group(1)


def read(path):
    with open("{}/{}".format(ROOT, path), encoding="utf-8") as file:
        return file.read()


@functools.lru_cache(maxsize=None)
def structs():
    """What is inside the braces of each named struct."""
    bodies = {}
    for path in sources():
        text = NOT_CODE.sub(blank, read(path))
        for found in STRUCT.finditer(text):
            bodies[found.group(1)] = text[found.end():closing(text, found.end())]
    return bodies


def has_mutex(code, depth=0):
    """Whether the struct, or one inside it, has a lock."""
    return MUTEX.search(code) is not None or depth < 3 and any(
        has_mutex(structs().get(kind, ""), depth + 1) for kind in MEMBER.findall(code))


def reason(raw, text, begin, end):
    """Why threads may use the variable that is declared there, or None; text: raw without comments."""
    code = text[begin:end] + ";"
    declaration = re.sub(r"\{.*\}", "", code.split("=")[0], flags=re.S)
    kind = re.match(r"(?:static\s+)?(?:struct\s+)?(\w+)", declaration).group(1)
    if ATOMIC.search(declaration):
        return "atomic"
    if has_mutex(code) or has_mutex(structs().get(kind, "")):
        return "has a lock"
    line = raw.rfind("\n", 0, begin) + 1
    after = raw[end:raw.find("\n", end)]
    before = raw[raw.rfind("/*", 0, line):line] if raw[:line].endswith("*/\n") else ""
    return "has a comment" if GUARD.search(before + after) else None


def main():
    found, bad = [], []
    for path in sources():
        if not path.startswith(MODULES):
            continue
        raw = read(path)
        text = NOT_CODE.sub(blank, raw)
        for begin, end, declaration in statements(text):
            for name in variables(declaration):
                why = reason(raw, text, begin, end)
                where = "{}:{}: {}".format(path, text.count("\n", 0, begin) + 1, name)
                found.append("{}: {}".format(where, why))
                if not why:
                    bad.append(where + ": neither atomic nor with a lock, and no comment beside it "
                               "says what guards it, or that it is fixed")
    if "--list" in sys.argv[1:]:
        print("\n".join(found))
    print("\n".join(bad + ["{} variables, {} at most".format(len(found), MOST)]))
    return 1 if bad or len(found) > MOST or not found else 0


if __name__ == "__main__":
    sys.exit(main())
