#!/bin/sh
# check_format.sh [--fix]: is every C source laid out as .clang-format says?  --fix lays it out.
#
# clang-format 14 it is: other major versions lay out some code differently.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

cd "$(dirname "$0")/.."
for tool in clang-format-14 clang-format ''; do
    if [ -n "$tool" ] && "$tool" --version 2>/dev/null | grep -q 'version 14\.'; then
        break
    fi
done
if [ -z "$tool" ]; then
    echo "clang-format 14 is wanted (Debian 12: clang-format-14; or PyPI: clang-format==14.0.6)" >&2
    exit 1
fi
list=$(mktemp)
trap 'rm -f "$list"' EXIT
git ls-files --cached --others --exclude-standard '*.c' '*.h' | while read -r file; do
    [ -f "$file" ] && printf '%s\n' "$file"
done >"$list"

if [ "${1:-}" = --fix ]; then
    xargs "$tool" -i <"$list"
    exit
fi
xargs "$tool" --dry-run --Werror <"$list" || {
    echo "\`./run format\` lays these out" >&2
    exit 1
}
echo "$(wc -l <"$list") files are laid out as .clang-format says"
