#!/bin/sh
# test_usm_prof.sh USM_PROF PROF_APP: record, report, merge, end to end on the host backend.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tool=$1
app=$2
export USM_DEVICE_SELECTOR='host:*'
unset USM_TRACE USM_TRACE_STACKS USM_TRACE_RING USM_POOL USM_LOG
python=$(command -v python3 || true)
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-prof-test.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
cd "$work" || exit 1
passed=0 failed=0 skipped=0

pass()
{
    passed=$((passed + 1))
}

fail()
{
    failed=$((failed + 1))
    echo "FAILED: $1"
    sed 's/^/    /' "$work/out" "$work/err" 2>/dev/null | head -n 40
}

# run STATUS COMMAND...: runs it; its output is in $work/out, $work/err.
run()
{
    wanted=$1
    shift
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    if [ $got -ne "$wanted" ]; then
        fail "$* exits $wanted (it was $got)"
        return 1
    fi
    pass
}

says()
{
    if cat "$work/out" "$work/err" | tr -s ' \n' '  ' | grep -qF -- "$1"; then
        pass
    else
        fail "the output says: $1"
    fi
}

# json EXPRESSION: the last output is JSON, d, for which the Python expression is true.
json()
{
    if [ -z "$python" ]; then
        skipped=$((skipped + 1))
    elif "$python" -c "import json, sys
d = json.load(open(sys.argv[1], encoding='utf-8'))
sys.exit(0 if ($1) else 1)" "$work/out" 2>>"$work/err"; then
        pass
    else
        fail "of the JSON: $1"
    fi
}

# --- record ---------------------------------------------------------------------------------------
run 0 "$tool" record --stacks=all -o a.trace "$app" && says "wrote $work/a.trace"
run 7 "$tool" record -o seven.trace "$app" exit 7 && says "wrote $work/seven.trace"
run 137 "$tool" record -o killed.trace "$app" kill && says "ended by signal 9"
run 1 "$tool" record -o none.trace "$app" without && says "no trace was written"
run 127 "$tool" record -o none.trace ./absent && says "cannot be run"
run 0 "$tool" record -o 'r%r.p%p.trace' env PMI_RANK=3 "$app" && says "wrote $work/r3.p"
run 2 "$tool" record -o x.trace && says "which program"
run 2 "$tool" record --json true && says "the rest is for report"
run 0 "$app" config asked.trace && run 0 "$tool" report asked.trace && says "202 allocations"
run 99 "$app" config 'x.%q' && says "setting trace cannot be"
echo letter >letter.txt
run 1 "$tool" record -o letter.txt "$app" && says "is not a trace" && says "no trace was written"
[ "$(cat letter.txt)" = letter ] && pass || fail "a file that is no trace is left alone"

# --- report ---------------------------------------------------------------------------------------
run 0 "$tool" report a.trace
says "202 allocations"
says "allocate_work"
says "solver"
says "Tag solver leaks 2 blocks (128 KiB)"
run 0 "$tool" report a.trace --json
json 'd["all"]["allocations"] == 202 and d["all"]["ended"] == 200 and d["ended"] and d["lost"] == 0'
json 'd["all"]["blocks_at_end"] == 2 and d["all"]["live_at_end"] >= 131072'
json 'sum(p["allocations"] for p in d["pools"]) == 202'
json '0 < max(p["caches_peak"] for p in d["pools"]) <= max(p["caches_limit"] for p in d["pools"])'
json '[s["allocations"] for s in d["sizes"]] == [2, 200]'
json 'd["call_sites"][0]["allocations"] == 200 and "allocate_work" in d["call_sites"][0]["name"]'
json '{t["name"]: t["allocations"] for t in d["tags"]} == {"(no tag)": 200, "solver": 2}'
json 'd["driver"]["takes"] == sum(p["takes"] for p in d["pools"]) > 0'
run 0 "$tool" report killed.trace --json
json 'not d["ended"] and d["all"]["allocations"] == 202 and d["damage"] is None'
run 0 "$tool" report "$(ls r3.p*.trace)" --json && json 'd["processes"][0]["rank"] == 3'
run 0 "$tool" report a.trace --csv events.csv
if [ "$(grep -c ',alloc,' events.csv)" = 202 ] && [ "$(grep -c ',free,' events.csv)" = 200 ]; then
    pass
else
    fail "the lines hold every event"
fi
run 0 "$tool" report a.trace --perfetto p.json --html p.html
[ -s p.json ] && [ -s p.html ] && pass || fail "both files are written"
cp p.json out && json 'len(d["traceEvents"]) > 200'

# a pool without reuse is told what reuse would save
run 0 env USM_POOL=direct "$tool" record -o direct.trace "$app"
run 0 "$tool" report direct.trace && says "the pool slab would have saved"
# unused: of what was reserved at its peak, whatever is in use at the end
run 0 env USM_POOL=direct "$tool" record -o freed.trace "$app" freed
run 0 "$tool" report freed.trace && says "96 KiB 96 KiB 0.0 %"

# --- launches over teams ------------------------------------------------------------------------------
run 0 "$tool" record -o split.trace "$app" split
run 0 "$tool" report split.trace && says "Devices in 1 split launches" && says "host:0"
run 0 "$tool" report split.trace --json
json 'd["work"]["launches"] == 1 and len(d["work"]["devices"]) == 1'
json 'd["work"]["devices"][0]["chunks"] == 10 and d["work"]["devices"][0]["indices"] == 1000'
json '0 < d["work"]["devices"][0]["kernel_ns"] <= d["work"]["devices"][0]["launched_ns"]'
json 'd["work"]["devices"][0]["idle_ns"] < d["work"]["devices"][0]["launched_ns"]'
run 0 "$tool" report split.trace --csv split.csv
[ "$(grep -c ',kernel,.*square' split.csv)" = 10 ] && pass || fail "a line for each kernel"
run 0 "$tool" report a.trace --json && json 'd["work"] is None'

# --- damaged files ----------------------------------------------------------------------------------
head -c 6000 a.trace >cut.trace
run 0 "$tool" report cut.trace && says "the file ends within it" && says "allocations"
run 1 "$tool" report letter.txt && says "too short for a trace"
run 1 "$tool" report absent.trace && says "No such file"
run 2 "$tool" report && says "wants one trace"
run 2 "$tool" report a.trace killed.trace && says "usm-prof merge"
run 1 "$tool" report a.trace --csv no/such/folder.csv && says "cannot be written"

# --- diff -----------------------------------------------------------------------------------------
run 0 "$tool" record --stacks=all -o freed.trace "$app" freed
run 0 "$tool" diff freed.trace a.trace
says "allocations 200 202 +2"
says "bytes live at the end 0 B 128 KiB +128 KiB"
says "device memory of host:0 96 KiB 128 KiB +32 KiB"
says "main (prof_app) 0 B 128 KiB +128 KiB 0 2 +2"
grep -q allocate_work out && fail "a call site that did the same is left out" || pass
run 0 "$tool" diff a.trace freed.trace --json
json 'not d["equal"] and d["totals"]["allocations"] == {"before": 202, "after": 200}'
json '[s["bytes"]["after"] for s in d["call_sites"]] == [200 * 98304, 0]'
json 'd["peaks"][0]["live_peak"] == {"before": 131072, "after": 98304}'
run 0 "$tool" diff a.trace a.trace && says "No difference: all counts and sizes are the same."
run 0 "$tool" diff a.trace a.trace --json && json 'd["equal"] and len(d["call_sites"]) == 2'
run 0 "$tool" diff split.trace split.trace && says "Devices in split launches"
run 0 env USM_WATTS='*=50' "$tool" record -o warm.trace "$app" split
run 0 "$tool" diff split.trace warm.trace && says "energy of launches" && says "square on host:0"
run 0 "$tool" diff warm.trace warm.trace --json && json 'd["equal"]'
json '[sum(e[k]["after"] for k in ("counted_uj", "stated_uj")) > 0 for e in d["energy"]] == [True]'
json 'd["totals"]["launches_uj"]["after"] == sum(e["counted_uj"]["after"] + e["stated_uj"]["after"] for e in d["energy"])'
run 2 "$tool" diff a.trace && says "two traces"
run 2 "$tool" diff a.trace freed.trace -o x && says "diff takes --json and --top"
run 1 "$tool" diff a.trace absent.trace && says "No such file"

# --- export ---------------------------------------------------------------------------------------
run 0 "$tool" export a.trace --pytorch-snapshot a.pickle --csv again.csv
cmp -s again.csv events.csv && [ -s a.pickle ] && pass || fail "both files are written"
run 2 "$tool" export a.trace && says "--pytorch-snapshot"
run 1 "$tool" export a.trace --pytorch-snapshot no/such/folder && says "cannot be written"

# --- merge ----------------------------------------------------------------------------------------
run 0 "$tool" merge a.trace killed.trace -o both.trace
run 0 "$tool" report both.trace --json
json 'd["all"]["allocations"] == 404 and len(d["processes"]) == 2 and len(d["pools"]) == 2'
run 0 "$tool" merge both.trace cut.trace -o three.trace && says "what comes before is taken"
run 0 "$tool" report three.trace --json && json 'len(d["processes"]) == 3'
run 2 "$tool" merge a.trace && says "-o OUT"
run 2 "$tool" merge a.trace -o x.trace --json && says "merge takes -o"
run 2 "$tool" merge a.trace -o x.trace --html x.html && says "merge takes -o"
run 1 "$tool" merge a.trace letter.txt -o x.trace && says "letter.txt"
[ ! -e x.trace ] && pass || fail "a merge that fails writes nothing"

# --- the rest ---------------------------------------------------------------------------------------
run 0 "$tool" --help && says "usage: usm-prof record"
run 0 "$tool" --version && says "usm-prof "
run 2 "$tool" && says "record, report, diff, export or merge"
run 2 "$tool" draw a.trace && says "record, report, diff, export or merge"
run 2 "$tool" report a.trace --top many && says "--top wants a number"

echo "usm-prof: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
