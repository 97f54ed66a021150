#!/bin/sh
# swap.sh COMMAND...: runs it while the system has 64 MiB of swap on a file.  Exits with 77 where swap cannot
# be had: it takes root, and a file system that swap files may be on.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

file=$(mktemp /var/tmp/usm-swap.XXXXXX) || exit 1
trap 'swapoff "$file" 2>/dev/null; rm -f "$file"' EXIT
trap 'exit 143' HUP INT TERM
dd if=/dev/zero of="$file" bs=1M count=64 status=none || exit 1
chmod 600 "$file"
mkswap "$file" >/dev/null 2>&1 && swapon "$file" 2>/dev/null || {
    echo "skipped: no swap on $file"
    exit 77
}
"$@"
