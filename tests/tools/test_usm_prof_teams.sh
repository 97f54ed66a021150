#!/bin/sh
# test_usm_prof_teams.sh USM_PROF IDW: copies of chunks in a trace, on a device whose memory is the host's: threads of the
# library make them, and no queue measures them.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tool=$1
app=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-prof-teams.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
unset LD_PRELOAD OPENCL_LAYERS USM_MEMORY_LIMIT USM_TRACE USM_TRACE_STACKS USM_POOL
# shellcheck source=tests/tools/says.sh
. "$root/tests/tools/says.sh"
cd "$work" || exit 1

# 32 x 32 pixels of 4 bytes each
expect 0 record record -o idw.trace -- "$app" --size 32 --quiet --out none --team --chunks 7
expect 0 report report --json idw.trace
says out '"chunks": 7'
says out '"bytes_out": 4096'
expect 0 csv report idw.trace --csv idw.csv
[ "$(grep -c ',copy out,' idw.csv)" = 7 ] && pass || fail 'a line for each copy'
finish
