#!/bin/sh
# test_usm_run_simulate.sh USM_RUN USM_INFO: usm-run --simulate as users meet it: the description of this
# machine, mistakes in it, other machines, the picture, and the app that it writes.  How long simulated
# runs are: tests/offload/test_graph_sim.c; how near that is to real ones: bench/simulate.sh.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tool=$1
info=$2
# shellcheck source=tests/tools/says.sh
. "$(dirname "$0")/says.sh"
begin
cp "$root"/samples/graphs/*.json "$root"/samples/graphs/*.cl . || exit 1
sed 's/475254/200000/' md5.json >small.json # less than a second

# --- the machine ------------------------------------------------------------------------------------
name='this machine'
"$info" --machine >this.json || fail "usm-info --machine exits with $?"
says this.json '"mib_s":'
device=$(sed -n 's/.*"name": "\(.*\)",/\1/p' this.json | head -n 1)

# machine FILE FIELDS...: a device for each
machine()
{
    file=$1
    shift
    {
        echo '{"devices": ['
        while [ $# -gt 1 ]; do
            echo "{$1},"
            shift
        done
        echo "{$1}"
        echo ']}'
    } >"$file"
}

one="\"name\": \"one\", \"like\": \"$device\", \"mib_s\": 10000"
two="\"name\": \"two\", \"like\": \"$device\", \"speed\": 3, \"mib_s\": 10000, \"watts\": 50, \"idle_watts\": 5"
machine one.json "$one"
machine two.json "$one" "$two"

# --- tables -----------------------------------------------------------------------------------------
expect 0 'this machine' small.json --simulate this.json
says err "tried the nodes on $device"
says out '<- best'
says out "* as small.json has it now"
says out 'nothing is said of energy'
says_not out abc # nothing was run to its end

expect 0 'an imagined device' small.json --simulate two.json
says out 'joules'
says out 'static'
says out 'two '
expect 0 'a policy' small.json --simulate two.json --policy energy:60
says_not out adaptive
says out energy

sed 's/"part_size": 16/"part_size": 16, "parts": 8/' integral.json >fixed.json
expect 0 'parts that the app says' fixed.json --simulate one.json --suggest
says out 'No partitioner of fixed.json leaves its parts open'
says fixed.json '"parts": 8'
says_not fixed.json per_device

# --- units ------------------------------------------------------------------------------------------
# units FILE MIB_S: a device here, and a unit with two behind a link
units()
{
    printf '{"devices": [{%s}],\n"units": [{"name": "far", "latency_us": 200, "mib_s": %s,\n"devices": [{%s}, {%s}]}]}' \
        "$one" "$2" "$two" "$two" >"$1"
}
units near.json 10000
expect 0 'a unit' small.json --simulate near.json --policy adaptive
says out '<- best'
grep -q 'two [1-9][0-9]* %, two [1-9]' out || fail 'the devices of the unit have no work'
units wrong.json null
expect 1 'a unit without its link' small.json --simulate wrong.json
says err "wrong.json:2: a unit needs its 'name', 'mib_s', the rate of its link, and 'devices'"
expect 1 'energy of units' small.json --simulate near.json --policy energy:60
says err 'does not know what units draw'

# --- templates --------------------------------------------------------------------------------------
cat >templates.json <<'END'
{
    "nodes": [
        {"name": "count", "kind": "map", "count": 1048576, "out": "u32",
         "body": "uint n = (uint)i; for (int k = 0; k < 200; k++) n = n * 1664525u + 1013904223u; return n;"},
        {"name": "sum", "kind": "map_reduce", "in": "u32", "out": "u64", "body": ["return x;", "return a + b;"]}
    ],
    "edges": [["count", "sum"]]
}
END
# column TABLE NUMBER: of its first row
column()
{
    awk -v n="$2" 'NR == 2 { print $n }' "$1"
}
expect 0 'templates and units' templates.json --simulate near.json
says out 'two 0 %, two 0 %' # they run on this machine, as without a simulation
expect 0 'chunks of templates' templates.json --simulate one.json
says err "tried the nodes on $device"
cp out alone
[ "$(column alone 3)" -gt 6 ] || fail 'the chunks of two templates are not counted'
machine many.json "$one" "$two" "$two" "$two"
expect 0 'templates on several devices' templates.json --simulate many.json --policy adaptive
awk -v one="$(column alone 2)" 'NR == 2 { exit !($2 < one / 2) }' out ||
    fail "on devices of speed 1, 3, 3 and 3 it takes $(column out 2) s, and on one $(column alone 2) s"

machine fast.json "\"name\": \"fast\", \"like\": \"$device\", \"speed\": 100, \"mib_s\": 10000"
expect 0 'templates on a fast device' templates.json --simulate fast.json
awk -v one="$(column alone 2)" 'NR == 2 { exit !($2 < one / 2) }' out ||
    fail "on a device of speed 100 it takes $(column out 2) s, and on one of speed 1 $(column alone 2) s"

# --- mistakes ---------------------------------------------------------------------------------------
expect 1 'no machine' small.json --simulate nowhere.json
says err nowhere.json
echo '{"devices": [}' >wrong.json
expect 1 'no JSON' small.json --simulate wrong.json
says err wrong.json:1:
machine wrong.json '"name": "x", "mib": 3'
expect 1 'a field' small.json --simulate wrong.json
says err "wrong.json:2: a device has no field 'mib'; there are name, like, speed"
machine wrong.json "$one" '"name": "x"'
expect 1 'no rate' small.json --simulate wrong.json
says err "wrong.json:3: a device needs its 'name' and 'mib_s'"
machine wrong.json '"name": "x", "mib_s": 1, "speed": 0'
expect 1 'no speed' small.json --simulate wrong.json
says err "wrong.json:2: 'speed' must be a number, 1e-06 or more"
machine wrong.json '"name": "x", "mib_s": 1, "like": "opencl:77"'
expect 1 'an unknown device' small.json --simulate wrong.json
says err "wrong.json:2: 'x' is like 'opencl:77', which has no part in this run: 'like' names one of $device"
echo '{"devices": []}' >wrong.json
expect 1 'no device' small.json --simulate wrong.json
says err "'devices' must be an array of 1 to 256 devices; usm-info --machine"
expect 2 'a picture of nothing' small.json --plot x.svg
says err '--plot and --suggest belong to --simulate'
expect 2 'both' small.json --simulate one.json --on cat
says err '--simulate goes with'
expect 2 'the standard input' - --simulate one.json --suggest
says err 'name it'
expect 1 'a picture nowhere' small.json --simulate one.json --plot /nowhere/x.svg
says err '--plot /nowhere/x.svg: No such file'
sed 's/"nodes"/"policy": "guided", "nodes"/' small.json >wrong.json
expect 1 'a policy of the app' wrong.json
says err "'guided' is not a policy for graphs"
sed 's/"nodes"/"policy": "energy", "nodes"/' small.json >wrong.json
expect 1 'a policy without its number' wrong.json
says err "wrong.json:6: 'energy' is not a policy with its numbers"

# --- the picture, and the app -----------------------------------------------------------------------
expect 0 'a picture' small.json --simulate two.json --plot two.svg
says two.svg '<polyline'
says two.svg 'adaptive</text>'

expect 0 'as it is' small.json
cp out before
cp small.json changed.json
expect 0 'a suggestion' changed.json --simulate two.json --suggest
says err 'changed.json: '
says changed.json '"policy": "'
says changed.json '"per_device": '
name='only that is changed'
sed -e '/"policy": /d' -e 's/"per_device": [0-9]*/"per_device": 8/' changed.json | cmp - small.json ||
    fail 'more than the policy and the parts differ'
expect 0 'what was suggested' changed.json
cmp out before || fail 'the result is another'
chmod 444 changed.json
expect 0 'once more' changed.json --simulate two.json --suggest
[ "$(stat -c %a changed.json)" = 444 ] || fail 'it has other permissions now'
finish
