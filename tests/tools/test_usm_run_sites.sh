#!/bin/sh
# test_usm_run_sites.sh USM_RUN CC INCLUDE PYTHON: usm-run --on three sites, whose links differ in latency and
# bandwidth (link.py) and whose devices differ in speed; links that are cut for a while, and for ever.
# The kernels are native ones.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
tool=$1
cc=$2
include=$3
link="$4 $here/link.py"
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-sites-test.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
# shellcheck source=tests/tools/says.sh
. "$here/says.sh"
cd "$work" || exit 1
# shellcheck source=tests/tools/units_app.sh
. "$here/units_app.sh"

# site LATENCY_MS BYTES_PER_S ENVIRONMENT [OPTION...]: the command of a unit behind a link
site()
{
    latency=$1 rate=$2 environment=$3
    shift 3
    echo "$link $* $latency $rate \"$environment $unit\""
}
# launches UNIT: how many it has ended, as the report says
launches()
{
    sed -n "s/^usm-run: unit $1 (.*): \([0-9]*\) launch.*/\1/p" err
}
# of_all: the others have done what the first has not
of_all()
{
    [ $(($(launches 1) + $(launches 2) + $(launches 3))) -eq 50 ] || fail "not 50 launches: $(cat err)"
}

# The near and fast one could do all of it in half a second; another one of its speed would share it.
same 0 "three sites" app.json --no-local --progress --on "$(site 1 100e6 TAKES_US=10000)" \
    --on "$(site 10 20e6 TAKES_US=60000)" --on "$(site 30 5e6 TAKES_US=150000)"
says err "rescheduled=0"
of_all
[ "$(launches 1)" -gt $(($(launches 2) + $(launches 3))) ] || fail "the first has not most: $(cat err)"
# In its first launch each waits until all are in theirs.
mkfifo others
same 0 "three sites that get the same" app.json --no-local --progress --policy static \
    --on "$(site 1 100e6 AWAITS=gate)" --on "$(site 5 20e6 'DIES_AT=1 SIGNAL=0 GATE=others')" \
    --on "$(site 20 5e6 'AWAITS=others DIES_AT=1 SIGNAL=0 GATE=gate')"
says err "rescheduled=0"
of_all
for site in 1 2 3; do
    [ "$(launches $site)" -gt 0 ] || fail "site $site has done nothing: $(cat err)"
done

# The cut begins before the end of the first launch there is told.
same 0 "a link is cut for a while" app.json --no-local --progress \
    --on "$(site 1 100e6 RAN=begun --cut begun 0.7)"
says err ": 50 launches, "
says err "rescheduled=0"
rm -f begun
same 0 "a link is cut for ever" app.json --no-local --progress --silence 2 \
    --on "$(site 1 100e6 'RAN=begun DIES_AT=1 SIGNAL=0 GATE=gate' --cut begun 1000)" --on "$second"
says err "it has said nothing for 2 s; what it had is done elsewhere"
[ "$(launches 1)" -le 1 ] || fail "the first one has told of its launches"
[ "$(launches 2)" -ge 49 ] || fail "the other one has not done what it had"

finish
