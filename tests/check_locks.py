#!/usr/bin/env python3
"""No function that is entered with a lock gives it back and takes it again in the middle.

Its caller would rely on what it saw before.  Such a function decides, under the lock, and returns
what is to be done without it.  pthread_cond_wait() and usm__mutex_wait() are no break: everybody
looks again after a wait.

In the order of its text, a function's first use of a mutex must not be an unlock that a lock of the
same mutex follows.  A function that only locks, or only unlocks, counts as that where it is called.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import os
import re
import sys

from check_names import NOT_CODE, ROOT, blank

FOLDERS = ("src", "backends", "pools", "transports", "codecs", "tools")
HEAD = re.compile(r"^(?:[A-Za-z_][\w \t\n*,]*?[\s*])?(\w+)\s*"
                  r"(\((?:[^(){};]|\([^(){};]*\))*\))\s*\{", re.M)
CALL = re.compile(r"\b(\w+)\s*\(")
LOCK, UNLOCK = "lock", "unlock"
NATIVE = {"usm__mutex_lock": LOCK, "usm__mutex_unlock": UNLOCK, "pthread_mutex_lock": LOCK,
          "pthread_mutex_trylock": LOCK, "pthread_mutex_unlock": UNLOCK}


def closing(text, at):
    """The position of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "({") - (text[i] in ")}")
        if depth == 0:
            return i
    return len(text)


def sources():
    for top in FOLDERS:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


class Function:
    def __init__(self, path, line, name, head, calls):
        self.path, self.line, self.name, self.calls = path, line, name, calls
        names = [re.findall(r"\w+", part) for part in head.split(",")]
        self.params = [words[-1] for words in names if words]
        self.effects = []  # (lock or unlock, mutex)


def functions(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = NOT_CODE.sub(blank, file.read())
    for head in HEAD.finditer(text):
        body = text[head.end() - 1:closing(text, head.end() - 1)]
        calls = []
        for call in CALL.finditer(body):
            end = closing(body, call.end() - 1)
            calls.append((call.group(1), re.sub(r"\s+", "", body[call.end():end]).split(",")))
        yield Function(path, text.count("\n", 0, head.start(1)) + 1, head.group(1), head.group(2),
                       calls)


def renamed(mutex, callee, arguments):
    """The callee's mutex in the words of the caller."""
    for name, value in zip(callee.params, arguments):
        mutex = re.sub(r"^&?{}\b".format(name), lambda _: value.lstrip("&"), mutex)
    return mutex.lstrip("&")


def effects(function, lookup):
    found = []
    for name, arguments in function.calls:
        if name in NATIVE:
            found.append((NATIVE[name], arguments[0].lstrip("&")))
            continue
        callee = lookup(function, name)
        for effect, mutex in callee.effects if callee and callee is not function else ():
            found.append((effect, renamed(mutex, callee, arguments)))
    return found


def kept(found):
    """What the caller of a function with these effects sees: what it leaves locked, or unlocks."""
    by = {}
    for effect, mutex in found:
        by.setdefault(mutex, set()).add(effect)
    return [(effects.pop(), mutex) for mutex, effects in by.items() if len(effects) == 1]


def broken(found):
    """The mutexes that are unlocked first and locked later."""
    first, wrong = {}, []
    for effect, mutex in found:
        if first.setdefault(mutex, effect) == UNLOCK and effect == LOCK and mutex not in wrong:
            wrong.append(mutex)
    return wrong


def main():
    every = [function for path in sources() for function in functions(path)]
    local = {(f.path, f.name): f for f in every}
    anywhere = {f.name: f for f in every}

    def lookup(caller, name):
        shared = anywhere.get(name) if name.startswith("usm__") else None
        return local.get((caller.path, name)) or shared

    for _ in range(3):  # wrappers of wrappers
        for function in every:
            function.effects = kept(effects(function, lookup))
    wrong, locking = [], 0
    for function in every:
        found = effects(function, lookup)
        locking += bool(found)
        mutexes = broken(found)
        if mutexes:
            wrong.append("{}:{}: {}() is entered with {} and takes it again".format(
                function.path, function.line, function.name, ", ".join(mutexes)))
    for line in wrong:
        print(line)
    print("{} functions, {} with locks, {} wrong".format(len(every), locking, len(wrong)))
    return 1 if wrong or not locking else 0


if __name__ == "__main__":
    sys.exit(main())
