#!/bin/sh
# names.sh MPI LAUNCHER FOLDER CASE: memory servers that publish a name (usm-memd --publish), and
# programs of other launches that join them, with Open MPI 4 and ompi-server, or MPICH with its netmod
# ofi and hydra_nameserver.
#
#   one_after_the_other  two programs, one launch of two servers, which ends by itself after them
#   at_once              two programs at the same time
#   two_names            a program joins two launches of servers; one of these is killed: nothing is lost
#   program_killed       servers that are full say so; a program is killed: its memory is free again, and
#                        the next comes in
#   keys                 who has another key of the job, or none, is turned away; then one comes in
#   nobody               a name that nobody has published; servers that were killed; those that stand still
#   not_here             this MPI cannot do it, and says so (Debian's MPICH, Open MPI 5)
#
# FOLDER is where usm-memd and join_cases_* are (the build's bin).  The last line is "ok CASE", "not ok
# ..." or "skip ...": 0, 1, 77.  JOIN_MODULE: --mpi of usm-memd; JOIN_PROGRAM: instead of join_cases_MPI.
# Called by tests/mpi/CMakeLists.txt, pypi.sh, and people.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

here=$(cd "$(dirname "$0")" && pwd)
mpi=$1 launcher=$2 folder=$3 case=$4
program=${JOIN_PROGRAM:-$folder/join_cases_$mpi}
memd="$folder/usm-memd${JOIN_MODULE:+ --mpi $JOIN_MODULE}"
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-names.XXXXXX") || exit 1
mine= # what we have started
launched=0

clean_up()
{
    for pid in $mine; do
        kill -TERM "$pid" 2>/dev/null
    done
    for pid in $mine; do
        wait "$pid" 2>/dev/null
    done
    rm -rf "$work"
}
trap 'clean_up; exit 143' HUP INT TERM
trap clean_up EXIT
fail()
{
    echo "not ok $case: $1"
    for file in "$work"/*.said; do
        echo "== ${file##*/}"
        cat "$file"
    done
    exit 1
}
skip()
{
    echo "skip $case: $1"
    exit 77
}

# wait_for SECONDS COMMAND...
wait_for()
{
    left=$(($1 * 10))
    shift
    until "$@"; do
        [ "$left" -gt 0 ] || return 1
        left=$((left - 1))
        sleep 0.1
    done
}
is_there()
{
    [ -s "$1" ]
}
has_said()
{
    grep -q "$2" "$work/$1.said" 2>/dev/null
}

# ---- the name server -----------------------------------------------------------------------------------

# $!, of a session of its own and with an end.
in_background()
{
    file=$1
    shift
    setsid timeout -k 5 170 "$@" </dev/null >"$work/$file" 2>&1 &
    mine="$mine $!"
}

start_name_server()
{
    case $mpi in
    openmpi)
        server=$(dirname "$launcher")/ompi-server
        [ -x "$server" ] || server=$(command -v ompi-server) || skip "there is no ompi-server"
        in_background server.log "$server" --no-daemonize -r "$work/uri"
        wait_for 10 is_there "$work/uri" || fail "ompi-server does not start: $(cat "$work/server.log")"
        option="--ompi-server file:$work/uri"
        ;;
    *)
        server=$(dirname "$launcher")/hydra_nameserver
        [ -x "$server" ] || server=$(command -v hydra_nameserver) || skip "there is no hydra_nameserver"
        # Its port is always 6392; another one's on this machine will do.
        in_background server.log "$server"
        sleep 0.5
        option="-nameserver localhost"
        MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp
        export MPIR_CVAR_CH4_NETMOD FI_PROVIDER
        ;;
    esac
}

# launch NAME RANKS COMMAND...: what it says in NAME.said; $job
# Each with ports of its own: what Open MPI's servers still send to a program that was killed would
# reach the next one at the same port, which then may hang in MPI_Comm_connect() (transports/mpi).
launch()
{
    name=$1
    shift
    launched=$((launched + 1))
    OMPI_MCA_btl_tcp_port_min_v4=$((10000 + 100 * launched))
    export OMPI_MCA_btl_tcp_port_min_v4
    JOIN_WHO=$name-$$ JOIN_HELD=$work/$name.held JOIN_GO=$work/$name.go \
        "$here/launch.sh" --launcher "$launcher" --time 160 "$option" "$@" \
        </dev/null >"$work/$name.said" 2>&1 &
    job=$!
    mine="$mine $job"
}

# serve NAME SERVERS OPTION...
serve()
{
    name=$1 count=$2
    shift 2
    # shellcheck disable=SC2086  # $memd has words
    USM_SPILL_DOMAIN=$name launch "$name" "$count" $memd --lend 512M --publish "$name-$$" "$@"
}

# run NAME RANKS SERVERS CASE...: a program that joins; it goes on in the background
run()
{
    name=$1 ranks=$2 names=$3
    shift 3
    USM_MPI_JOIN=$names launch "$name" "$ranks" "$program" "$@"
}

# ended JOB NAME TEXT: it does, with status 0, having said so
ended()
{
    wait "$1" || fail "$2 ended with status $?"
    has_said "$2" "$3" || fail "$2 did not say: $3"
}

# kill_ranks NAME SIGNAL: of that launch, at once
kill_ranks()
{
    # shellcheck disable=SC2046  # a list
    kill "-$2" $(grep -lF "JOIN_WHO=$1-$$" /proc/[0-9]*/environ 2>/dev/null |
        sed 's,/proc/\([0-9]*\)/.*,\1,' | while read -r pid; do
            case $(cat "/proc/$pid/comm" 2>/dev/null) in
            usm-memd | join_cases*) echo "$pid" ;;
            esac
        done) 2>/dev/null || fail "there are no processes of $1"
}

# ---- cases ----------------------------------------------------------------------------------------------

USM_JOB_LEASE=2000 USM_JOB_ORPHAN=5000 USM_MPI_JOIN_TIMEOUT=25000 USM_MPI_NEAR=${USM_MPI_NEAR:-0}
export USM_JOB_LEASE USM_JOB_ORPHAN USM_MPI_JOIN_TIMEOUT USM_MPI_NEAR

one_after_the_other()
{
    serve pool 2 --clients 2
    servers=$job
    for program_number in 1 2; do
        run "program$program_number" 2 "pool-$$" works
        ended "$job" "program$program_number" '^ok works'
    done
    ended "$servers" pool 'is published'
}

at_once()
{
    serve pool 1 --at-once 2 --clients 2
    servers=$job
    run first 2 "pool-$$" works
    first=$job
    run second 1 "pool-$$" works
    ended "$job" second '^ok works'
    ended "$first" first '^ok works'
    ended "$servers" pool 'is published'
}

two_names()
{
    serve left 1
    serve right 1
    run user 1 "right-$$,left-$$" outlives
    user=$job
    wait_for 30 is_there "$work/user.held" || fail 'the program holds nothing'
    kill_ranks left KILL
    : >"$work/user.go"
    ended "$user" user '^ok outlives'
}

program_killed()
{
    serve pool 1 --clients 2
    servers=$job
    run first 1 "pool-$$" holds
    wait_for 30 is_there "$work/first.held" || fail 'the program holds nothing'
    USM_MPI_JOIN_TIMEOUT=3000
    run second 1 "pool-$$" expects USM_E_BUSY
    ended "$job" second '^ok expects'
    kill_ranks first KILL
    USM_MPI_JOIN_TIMEOUT=25000
    run third 1 "pool-$$" works
    ended "$job" third '^ok works'
    ended "$servers" pool 'is published'
}

# A program that dies when it is connected, before it has joined, is given up like a silent one.
dies_joining()
{
    serve pool 1 --clients 2
    servers=$job
    USM_HOOKS="fault:die.join.1@1;fault:die.join.2@1"
    export USM_HOOKS
    run first 1 "pool-$$" works
    unset USM_HOOKS
    wait "$job" && fail 'the program lives'
    run second 1 "pool-$$" works
    ended "$job" second '^ok works'
    ended "$servers" pool 'is published'
}

keys()
{
    USM_JOB_KEY=00112233445566778899aabbccddeeff
    export USM_JOB_KEY
    serve pool 1 --clients 1
    servers=$job
    USM_JOB_KEY=ffeeddccbbaa99887766554433221100
    run other 1 "pool-$$" expects USM_E_KEY
    ended "$job" other '^ok expects'
    USM_JOB_KEY=
    run none 1 "pool-$$" expects USM_E_KEY
    ended "$job" none '^ok expects'
    USM_JOB_KEY=00112233445566778899aabbccddeeff
    run same 1 "pool-$$" works
    ended "$job" same '^ok works'
    ended "$servers" pool 'was turned away'
}

nobody()
{
    USM_MPI_JOIN_TIMEOUT=1000
    run one 2 "nobody-$$" expects USM_E_PEER
    ended "$job" one 'no usm-memd has published'
    USM_MPI_JOIN_TIMEOUT=25000
    serve pool 1 --clients 0
    servers=$job
    run before 1 "pool-$$" works
    ended "$job" before '^ok works'
    USM_MPI_JOIN_TIMEOUT=1000
    kill_ranks pool STOP
    run two 1 "pool-$$" expects USM_E_PEER
    ended "$job" two 'does not answer'
    kill_ranks pool KILL
    wait "$servers"
    run three 1 "pool-$$" expects USM_E_PEER
    ended "$job" three '^ok expects'
}

not_here()
{
    USM_MPI_JOIN_TIMEOUT=1000
    serve pool 1
    servers=$job
    wait "$servers"
    has_said pool 'start usm-memd in the program.s own launch' || fail 'the server gives no remedy'
    run one 2 "pool-$$" expects USM_E_NOT_SUPPORTED
    ended "$job" one 'start usm-memd in the program.s own launch'
}

case $case in
one_after_the_other | at_once | two_names | program_killed | dies_joining | keys | nobody)
    start_name_server
    "$case"
    ;;
not_here)
    option=--
    not_here
    ;;
*) fail "there is no such case" ;;
esac
echo "ok $case"
