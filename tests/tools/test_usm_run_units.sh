#!/bin/sh
# test_usm_run_units.sh USM_RUN CC INCLUDE: usm-run --on, whose units are plain commands on this machine.
# The kernels are native ones.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tool=$1
cc=$2
include=$3
# shellcheck source=tests/tools/says.sh
. "$(dirname "$0")/says.sh"
begin

# shellcheck source=tests/tools/units_app.sh
. "$here/units_app.sh"

# --- units that live -----------------------------------------------------------------------------------
same 0 "one unit alone" app.json --no-local --on "$unit" --progress
says err "unit 1 ($unit): 50 launches, 100003 bytes sent, 4096 came back"
says err "rescheduled=0"
same 0 "two units alone" app.json --no-local --on "$unit" --on "$unit" --progress
says err "rescheduled=0"
same 0 "two units and this machine" app.json --on "$unit" --on "$unit"
same 0 "a unit that logs" app.json --no-local --on "USM_LOG=debug $unit"
same 0 "a dot text" app.json --no-local --on "$unit" --dot
says out 'xlabel="unit 1"'

# --- units that are lost -------------------------------------------------------------------------------
# Without prefetch it has one launch at a time.
same 0 "one of two is killed" app.json --no-local --no-prefetch --on "$first SIGNAL=9 $unit" --on "$second" \
    --progress
says err "unit 1 ($first SIGNAL=9 $unit): it has ended"
says err "; what it had is done elsewhere"
says err "unit 1 ($first SIGNAL=9 $unit): 7 launches, 100003 bytes sent, 0 came back, lost"
says err "unit 2 ($second): 50 launches, 100003 bytes sent, 4096 came back"
# what it had made, and what it was doing
says err "rescheduled=8"
same 0 "both are killed, and this machine goes on" app.json --on "DIES_AT=1 SIGNAL=9 $unit" \
    --on "DIES_AT=1 SIGNAL=9 $unit"
same 0 "one of two is stopped" app.json --no-local --no-prefetch --silence 2 --on "$first SIGNAL=19 $unit" \
    --on "$second"
says err "it has said nothing for 2 s; what it had is done elsewhere"
says err "rescheduled=8"
rm -f out.bin
expect 1 "the only one is killed" app.json --no-local --on "DIES_AT=7 SIGNAL=9 $unit"
says err "app.json:"
says err "no healthy device"

# --- units of several ranks ----------------------------------------------------------------------------
# Rank 0 waits in its first launch until rank 1 has come so far.
# rank NUMBER OF ENVIRONMENT
rank()
{
    echo "RAN='$work/ran' WHO=$1 $3 $unit --job 'socket:$work/job,rank=$1,size=$2'"
}
# ranks ENVIRONMENT: the command of a unit of two, where rank 1 has that
ranks()
{
    echo "{ $(rank 1 2 "$1") </dev/null >/dev/null & } && $(rank 0 2 "AWAITS=gate")"
}
ranks="$(ranks "DIES_AT=1 SIGNAL=0 GATE=gate")"
same 0 "a unit of two ranks" app.json --no-local --on "$ranks" --progress
says err ": 50 launches, 100003 bytes sent, 4096 came back"
says err "rescheduled=0"
says_not err "--unit: rank"
says ran 0
says ran 1
[ "$(wc -l <ran)" -eq 48 ] || fail "the ranks have not executed 48 launches of processData"
same 0 "one of three units is of two ranks" app.json --no-local --on "$unit" --on "$(ranks '' | sed 's/AWAITS=gate//')" \
    --on "$unit"
rm -f ran
# More bytes than ranks have on their way at a time, and blocks larger than their messages.
sed 's/4096/1000003/g' app.json >big.json
expect 0 "large blocks on one machine" big.json
mv out.bin big.bin
expect 0 "large blocks" big.json --no-local --on "$ranks"
says_not err "--unit: rank"
cmp -s out.bin big.bin || fail "other bytes than on one machine"
rm -f ran
same 0 "a rank is killed" app.json --no-local --on "$(ranks "DIES_AT=7 SIGNAL=9 GATE=gate")" --progress
says err "usm-run: --unit: rank 1: it has ended; what it had is done elsewhere"
says err ": 50 launches, 100003 bytes sent, 4096 came back"
says err "rescheduled=0"
[ "$(grep -c 1 ran)" -eq 7 ] || fail "rank 1 has not been killed in its seventh launch"
# Rank 1 stays in its first launch.
mkfifo hold
same 0 "rank 0 is killed" app.json --no-local --on "$(ranks AWAITS=hold | sed 's/AWAITS=gate/DIES_AT=7 GATE=gate SIGNAL=9/')" \
    --on "$second"
says err "it has ended, with status 137; what it had is done elsewhere"
same 0 "a unit that is in no job" app.json --no-local \
    --on "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 $unit --job none"
expect 1 "a launcher that libusm has no MPI for" app.json --no-local \
    --on "FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2 $unit"
says err "it cannot join its job: no MPI of libusm is for its launcher (flux)"
alone_rank="$(rank 0 2 '')"
expect 1 "a rank that does not come" app.json --no-local --on "$(echo "$alone_rank" | sed 's/size=2/size=2,wait=100/')"
says err "it cannot join its job"

# --- templates, and types of users ----------------------------------------------------------------------
# mixed NAME ARGUMENT...: templates run here, with what comes from units and goes back to them
mixed()
{
    rm -f out.bin sum.bin
    mixed_name=$1
    shift
    expect 0 "$mixed_name" mixed.json "$@"
    cat out.bin sum.bin | cmp -s - mixed.bin || fail "other bytes than on one machine"
}
mixed "templates and a type, on a unit" --no-local --on "$unit" --progress
says err ": 27 launches, 104096 bytes sent, 8192 came back"
mixed "on two units and this machine" --on "$unit" --on "$unit"
mixed "on two, one of which is killed" --no-local --no-prefetch --on "$first SIGNAL=9 $unit" --on "$second" --progress
says err "; what it had is done elsewhere"
rm -f ran
mixed "on ranks" --no-local --on "$ranks"

# --- on after a kill -----------------------------------------------------------------------------------
expect 1 "a run with its blocks in a folder is killed" app.json --resume kept --no-local \
    --on "DIES_AT=9 SIGNAL=9 $unit"
[ -e kept/graph ] || fail "nothing is kept"
same 0 "another one goes on, with another unit" app.json --resume kept --no-local --on "$unit"
says_not err "resumed=0"
says err "resumed="
[ ! -e kept ] || fail "the folder stays"

# --- commands that are no units --------------------------------------------------------------------------
# hello LEAST MOST: the frame HELLO of tools/units/wire.h without a text, as an argument of printf
hello()
{
    zeros='\0\0\0\0'
    printf 'USMU\\1\\0\\0\\0%s' '\0\0\0\0'
    printf '\\%o\\0\\0\\0\\%o\\0\\0\\0' "$1" "$2"
    printf '%s%s%s%s%s%s%s' "$zeros" "$zeros" "$zeros" "$zeros" "$zeros" "$zeros" "$zeros"
}
# alone NAME COMMAND WORDS: it is the only one, so its end is told before the run has ended
alone()
{
    expect 1 "$1" app.json --no-local --on "$2"
    says err "$3"
    says err "no healthy device"
}
alone "a command that does not exist" nothing-of-the-kind "it has ended, with status 127, and had said nothing"
alone "a command that ends" true "it has ended, with status 0, and had said nothing"
alone "a greeting in front" "echo Welcome to this machine; $unit" "it begins with 'Welcome"
alone "garbage" "head -c 5000 '$tool'; cat >/dev/null" "it begins with '?ELF"
alone "another version" "printf '$(hello 9 9)'; cat >/dev/null" \
    "it speaks versions 9 to 9 of the protocol, and this usm-run 1 to 1: put the same libusm on both"
alone "a frame that nobody asked for" "printf '$(hello 1 1)$(hello 1 1)'; cat >/dev/null" \
    "it answers what it was not asked"
same 0 "all of them, and this machine" app.json --on nothing-of-the-kind --on true --on "echo Welcome; $unit" \
    --on "printf '$(hello 9 9)'; cat >/dev/null" --on "$unit"
same 0 "one that is silent before it begins is not waited for" app.json --on "cat >/dev/null"

# --- wrong options --------------------------------------------------------------------------------------
expect 2 "nobody" app.json --no-local
says err "--no-local leaves nobody to run it: add --on"
expect 2 "a unit with a file" app.json --unit
says err "--unit runs what the other usm-run says"
expect 2 "a job without a unit" app.json --job socket:x,rank=0,size=1
says err "--job is for the ranks of a --unit"
expect 2 "watts" app.json --on "$unit" --policy energy:5
says err "--policy energy does not know what units draw"
expect 2 "no time" app.json --on "$unit" --silence 0
says err "--silence wants seconds"
name="a unit whose other side ends"
if "$tool" --unit </dev/null >out 2>err; then fail "exits with 0"; else pass; fi

finish
