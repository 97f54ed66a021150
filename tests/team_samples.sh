#!/bin/sh
# team_samples.sh [--mpi MPI --launcher PATH] IDW MD5: the samples over a team: right results for every
# policy and number of chunks, over ranks that meet in a folder, or, with --mpi, over those of
# mpirun.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

mpi='' launcher=''
while [ $# -gt 2 ]; do
    case $1 in
    --mpi) mpi=$2 ;;
    --launcher) launcher=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ $# -eq 2 ] || {
    echo "usage: $0 [--mpi MPI --launcher PATH] IDW MD5" >&2
    exit 2
}
idw=$1
md5=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-team-XXXXXX")
trap 'rm -rf "$work"' EXIT
told=$work/told

fail()
{
    echo "$1" >&2
    cat "$work"/told* >&2
    exit 1
}

# run STATUS PROGRAM OPTION...: it ends with that status.
run()
{
    wanted=$1
    shift
    rc=0
    timeout -k 5 100 "$@" </dev/null >"$told" 2>&1 || rc=$?
    [ "$rc" -eq "$wanted" ] || fail "$*: ended with $rc, not $wanted"
}

# has PATTERN: it was told.
has()
{
    grep -Eq "$1" "$told" || fail "nothing of \"$1\" was told"
}

# The shares of all devices come to 100 %.
shares_are_whole()
{
    awk '/ %$/ && $(NF - 2) ~ /:/ { sum += $(NF - 1) } END { exit sum < 99.5 || sum > 100.5 }' "$told" ||
        fail "the shares are not those of the whole"
}

# Number 3752126.  The range around it is of 7693 strips: each policy makes several chunks of that, but static,
# and plain C, which needs a second for four million texts, is through in 50 ms.
hello='--digest 5d41402abc4b2a76b9719d911017c592'
around='--from 3600000 --to 3800000'
nothing='--digest 00000000000000000000000000000000'
plate='--size 32 --verify --quiet --out none' # 32 rows: more than the most chunks that are asked for, 16

# by_ranks PROGRAM OPTION...: two of them, as home tells it.
by_ranks()
{
    rc=0
    if [ -n "$mpi" ]; then
        "$here/mpi/launch.sh" --mpi "$mpi" --launcher "$launcher" --yield --time 90 --output "$told" \
            2 "$@" --ranks || rc=$?
        [ $rc -ne 77 ] || {
            cat "$told"
            exit 77
        }
        return $rc
    fi
    timeout -k 5 100 "$@" --ranks="socket:$work/job,rank=1,size=2" </dev/null >"$told.1" 2>&1 &
    other=$!
    timeout -k 5 100 "$@" --ranks="socket:$work/job,rank=0,size=2" </dev/null >"$told" 2>&1 || rc=$?
    wait $other || fail "$*: rank 1 ended with $?"
    [ ! -s "$told.1" ] || fail "$*: rank 1 speaks"
    return $rc
}

# shellcheck disable=SC2086  # lists
{
    if [ -z "$mpi" ]; then
        for how in '' '--chunks 1' '--chunks 7' '--policy static' '--policy guided'; do
            run 0 "$idw" $plate --team $how
            has '1024 pixels against plain C: .* PASS$'
            run 0 "$md5" $hello $around --team $how --verify
            has '^found    hello, number 3752126$'
            run 1 "$md5" $nothing --max-length 4 --team $how
            has '^found    nothing$'
        done
        run 0 "$idw" $plate --team --chunks 7
        has '^chunks   7, rescheduled 0,'
        has '^team     [a-z_]+:[0-9.]+ +[0-9.]+ %$'
        shares_are_whole
        # Both ends of a range, and one beside it.
        run 0 "$md5" $hello --from 3752126 --to 3752127 --team --json
        has '"number":3752126,"members":\[.*"chunks":1,"rescheduled":0'
        run 1 "$md5" $hello --from 3752127 --to 4000000 --team
        run 1 "$md5" $hello --from 0 --to 3752126 --team --progress
        has '^search   100 %  .* million texts/s  0 s left  [a-z_]+:[0-9.]+ [0-9]+ %'
        for wrong in '--chunks 3' '--policy static' '--team --chunks 0' '--team --chunks 2 --policy static' \
            '--ranks' '--ranks=nowhere'; do
            run 2 "$md5" $wrong
            has '^md5: '
        done
        run 2 "$idw" --team --all-devices
        run 4 "$md5" --team --policy slowest
        has 'there is no policy "slowest"'
    fi

    by_ranks "$idw" $plate || fail "idw over ranks: failed with $?"
    has '1024 pixels against plain C: .* PASS$'
    has '^team     0/'
    has '^         1/[a-z_]+:[0-9.]+ +[0-9.]+ %$' # and it is not lost
    shares_are_whole
    by_ranks "$idw" $plate --chunks 16 || fail "idw over ranks: failed with $?"
    has '^chunks   16, '
    shares_are_whole
    by_ranks "$md5" $hello $around --verify || fail "md5 over ranks: failed with $?"
    has '^found    hello, number 3752126$'
    rc=0
    by_ranks "$md5" $nothing --max-length 4 || rc=$?
    [ $rc -eq 1 ] || fail "md5 over ranks: $rc for what is not there"
    has '^found    nothing$'
}
echo "all right"
