#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_messages.py [--fix]: do messages of the library and its tools use words that readers
stumbled over?  The list has them, each with what is said in its place."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "backends", "pools", "transports", "codecs", "tools")
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
ODD = [
    (r"\banew\b", "again"),
    (r"\b(is|are) no (power of two|multiple|whole number)", r"\1 not a \2"),
    (r"\bare no whole words", "are not whole words"),
    (r"\b(is|are) no folder\b", r"\1 not a folder"),
    (r"\bis no access mode", "is not an access mode"),
    (r"\bare told sizes\b", "get sizes"),
    (r"\bare not told here\b", "are not reported"),
    (r"\bthat shall be\b", "that is to be"),
    (r"\bgives? way\b", "is evicted"),
    (r"\b(told once)\b", "reported once"),
    (r"\bis no libusm memory", "is not libusm memory"),
    (r"\bstor(?:y|ies)\b(?!\"|\.h)", "error message"),
    (r"\bcalled off\b", "cancelled"),
    (r"\bleaves? memory\b", "is evicted"),
    (r"\bplaces? of USM_SPILL\b", "tier of USM_SPILL"),
    (r"\b(not|cannot) (to )?be had\b", "is not available"),
    (r"\btaken back\b", "returned"),
    (r"\bmade anew\b", "repaired"),
]


def main():
    found = 0
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.c")):
            text = path.read_text(encoding="utf-8")

            def look(match):
                nonlocal found
                said = match.group(0)
                for odd, better in ODD:
                    if not re.search(odd, said):
                        continue
                    found += 1
                    if "--fix" in sys.argv:
                        said = re.sub(odd, better, said)
                    else:
                        line = text.count("\n", 0, match.start()) + 1
                        print(f"{path.relative_to(ROOT)}:{line}: {said}: say {better!r}")
                return said

            fixed = LITERAL.sub(look, text)
            if "--fix" in sys.argv and fixed != text:
                path.write_text(fixed, encoding="utf-8")
    print(f"{found} odd messages")
    sys.exit(bool(found) and "--fix" not in sys.argv)


if __name__ == "__main__":
    main()
