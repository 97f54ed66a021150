#!/bin/sh
# test_usm_exec_queues.sh USM_EXEC USM_PROF APP: the commands of APP (cl_app.c), which knows nothing of libusm, in a trace: its
# three queues, in the report and in both exports.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

exec=$1
tool=$2
app=$3
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-exec-queues.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
unset LD_PRELOAD OPENCL_LAYERS USM_MEMORY_LIMIT USM_TRACE USM_TRACE_STACKS USM_POOL
# shellcheck source=tests/tools/says.sh
. "$root/tests/tools/says.sh"
cd "$work" || exit 1

expect 0 record record -o app.trace -- "$exec" "$app"
expect 0 report report app.trace
says out 'Queues of the program'
[ "$(grep -c '^  queue [123], .* 15 ' out)" -eq 3 ] && pass || fail 'three queues with 15 commands each'
expect 0 json report --json app.trace
says out '"queues": ['
says out '"commands": 15'
expect 0 diff diff app.trace app.trace
says out 'Queues of the program'
expect 0 export export app.trace --perfetto app.json --html app.html
name='tracks'
python3 - app.json app.html <<'P' && pass || fail 'the exports are not as they should be'
import collections, json, re, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
tracks = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
seen = collections.defaultdict(collections.Counter)
spans = collections.defaultdict(list)
for e in events:
    if e["ph"] == "X" and "kind" in e.get("args", {}):
        seen[tracks[e["tid"]].split(",")[0]][e["name"]] += 1
        spans[e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
wanted = {"fill": 2, "add_one": 3, "copy": 6, "map": 4}
assert seen == {"queue {}".format(n): wanted for n in (1, 2, 3)}, seen
for name in ("queue 1, ", "queue 2, "):  # in order: one track each
    assert sum(t.startswith(name) for t in tracks.values()) == 1, tracks
assert all(s[0] > 0 for track in spans.values() for s in track), spans  # no begin was cut
for s in map(sorted, spans.values()):
    assert all(a[1] <= b[0] + 0.001 for a, b in zip(s, s[1:])), s  # no two slices of a track overlap
page = open(sys.argv[2]).read()
assert "queue 2, " in page and "add_one" in page
P
# Without a trace nothing is watched, and the program runs as ever.
tool=$exec
expect 0 'no trace' "$app"
silent err
finish
