#!/bin/sh
# same_output.sh PROGRAM PROGRAM: both succeed and print the same last line (their checksum).
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu
before=$("$1")
after=$("$2")
before=$(printf '%s\n' "$before" | tail -n 1)
after=$(printf '%s\n' "$after" | tail -n 1)
echo "before: $before"
echo "after:  $after"
[ -n "$before" ] && [ "$before" = "$after" ]
