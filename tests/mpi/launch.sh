#!/bin/sh
# launch.sh [OPTION...] RANKS PROGRAM [ARG...] [: RANKS PROGRAM [ARG...]]...
#
# Starts an MPI job that ends whatever happens: its launcher in a session of its own, without our
# input, under `timeout -k`, and everything that is left of it afterwards is killed, found by a mark
# in its environment.  With --slots the job's nodes are network namespaces of this machine, joined by
# a bridge or (two of them) by one cable, each with a host name and an interface eth0 of its own.
#
#   --mpi openmpi|mpich   whose job it is (mpich: Intel MPI, too); asked of the launcher when not given
#   --launcher PATH       its mpirun or mpiexec (mpirun.openmpi, mpiexec.mpich)
#   --slots N,N,...       nodes, and how many ranks each gets, in order; needs root
#   --recovery            the death of a rank shall not end the job (Open MPI 4: --enable-recovery,
#                         Open MPI 5: --with-ft ulfm; MPICH has no such thing: exit status 77)
#   --time SECONDS        until it is killed (60)
#   --input FILE          what rank 0 reads on its standard input (default: nothing)
#   --output FILE         what the ranks write to stdout and stderr (default: ours)
#   --verdict             the exit status is that of the line "ok ...", "not ok ..." or "skip ..." that
#                         a rank wrote: 0, 1, 77; without such a line 1
#   --killed              the job must be ended by its launcher because a rank died: 0 if its status
#                         says so within the time, else 1
#   --yield               waiting ranks give their processor away
#   --                    the end of options; what begins with - before is the launcher's own
#
# Exit status: the launcher's; 124 it ran out of time; 77 it cannot run here.  Inside a job the
# environment has LAUNCH_MPI (openmpi4, openmpi5, mpich, intel), and with --slots LAUNCH_NET: node N
# (the number at the end of its host's name) has the address $LAUNCH_NET.(N+1).
# Called by tests/mpi/CMakeLists.txt, usm-bench mpi, and people.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

mpi='' launcher='' slots='' recovery=no seconds=60 input=/dev/null output='' verdict=no killed=no yield=no own=''
usage()
{
    sed -n '2,/^# SPDX/p' "$0" | sed 's/^# \{0,1\}//; $d' >&2
    exit 2
}
skip()
{
    echo "skip launch.sh: $1"
    exit 77
}

while [ $# -gt 0 ]; do
    case $1 in
    --mpi) mpi=$2 && shift ;;
    --launcher) launcher=$2 && shift ;;
    --slots) slots=$2 && shift ;;
    --time) seconds=$2 && shift ;;
    --input) input=$2 && shift ;;
    --output) output=$2 && shift ;;
    --recovery) recovery=yes ;;
    --verdict) verdict=yes ;;
    --killed) killed=yes ;;
    --yield) yield=yes ;;
    --)
        shift
        break
        ;;
    -*) own="$own $1" ;;
    *) break ;;
    esac
    shift
done
[ $# -ge 2 ] || usage

# ---- which MPI ---------------------------------------------------------------------------------------

OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
case ${launcher:-$mpi} in
openmpi) launcher=$(command -v mpirun.openmpi || command -v mpirun) ;;
mpich) launcher=$(command -v mpiexec.mpich || command -v mpiexec) ;;
'') launcher=$(command -v mpirun) ;;
esac
[ -n "$launcher" ] && [ -x "$launcher" ] || skip "there is no launcher of ${mpi:-an MPI} (Debian: openmpi-bin, mpich)"
said=$("$launcher" --version 2>&1 </dev/null)
case $said in
*'Open MPI) 4'* | *'OpenRTE) 4'*) is=openmpi4 ;;
*'Open MPI'* | *PRRTE* | *prterun*) is=openmpi5 ;;
*HYDRA*) is=mpich ;;
*Intel*MPI*) is=intel ;;
*) skip "$launcher is of an MPI that is not known here" ;;
esac
case $mpi:$is in
:* | openmpi:openmpi* | mpich:mpich | mpich:intel) ;;
*) skip "$launcher is no launcher of $mpi" ;;
esac
case $recovery:$is in
yes:mpich | yes:intel) skip "MPICH and its relatives have no way to outlive a rank" ;;
esac

# ---- the place -----------------------------------------------------------------------------------------

name=usm$$
folder=$(mktemp -d "${TMPDIR:-/tmp}/usm-launch.XXXXXX") || exit 1
# MPIs leave files in /dev/shm when ranks are killed: root's jobs have one of their own.
private=no
shared=/dev/shm
if [ "$(id -u)" -eq 0 ] && unshare --mount mount -t tmpfs none /dev/shm 2>/dev/null; then
    private=yes
else
    shared=/dev/shm/${USM_TEST_ID:-usm}-launch-$$
    mkdir "$shared" 2>/dev/null || shared=$folder
fi
mark=LAUNCH_MARK=$name-$(basename "$folder")
job=
made=

# The ids of processes that are of this job; never ours.
of_job()
{
    grep -slF "$mark" /proc/[0-9]*/environ 2>/dev/null | sed 's,/proc/\([0-9]*\)/.*,\1,' |
        grep -vx "$$" || :
}

clean_up()
{
    [ -z "$job" ] || kill -KILL -- "-$job" 2>/dev/null
    for _ in 1 2 3 4 5; do
        left=$(of_job)
        [ -n "$left" ] || break
        # shellcheck disable=SC2086  # a list
        kill -KILL $left 2>/dev/null
        sleep 0.1
    done
    for node in $made; do
        ip netns delete "$node" 2>/dev/null
    done
    rm -rf "$folder"
    [ "$shared" = /dev/shm ] || rm -rf "$shared"
}
trap 'clean_up; exit 143' HUP INT TERM
trap clean_up EXIT

# Nodes: $name-0, $name-1, ...; 10.77.H.(n+1)/24 with an H of this process's; these addresses are
# nobody else's business, for nothing leads out of the namespaces.
net=10.77.$(($$ % 250 + 1))
node_of()
{
    echo "$name-$1"
}

add_namespace()
{
    ip netns add "$1" || skip "no network namespace can be made"
    made="$made $1"
    ip -n "$1" link set lo up
}

# end NAMESPACE NUMBER: the interface e<number> has come to it.
set_address()
{
    ip -n "$1" link set dev "$3" name eth0 && ip -n "$1" addr add "$net.$(($2 + 1))/24" dev eth0 &&
        ip -n "$1" link set eth0 up || skip "no address can be given in a namespace"
}

make_nodes()
{
    [ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
    command -v ip >/dev/null || skip "there is no ip (Debian: iproute2)"
    n=$1
    for i in $(seq 0 $((n - 1))); do
        add_namespace "$(node_of "$i")"
    done
    if [ "$n" -eq 2 ]; then
        ip -n "$name-0" link add v0 type veth peer name v1 netns "$name-1" ||
            skip "no pair of network interfaces can be made"
        set_address "$name-0" 0 v0
        set_address "$name-1" 1 v1
        return
    fi
    add_namespace "$name-hub"
    ip -n "$name-hub" link add bridge type bridge && ip -n "$name-hub" link set bridge up ||
        skip "no bridge can be made"
    for i in $(seq 0 $((n - 1))); do
        ip -n "$name-hub" link add "p$i" type veth peer name v netns "$name-$i" ||
            skip "no pair of network interfaces can be made"
        ip -n "$name-hub" link set "p$i" master bridge up
        set_address "$name-$i" "$i" v
    done
}

# An interface counts as there only once the kernel has seen that its cable is plugged in.
await_cables()
{
    for i in $(seq 0 $(($1 - 1))); do
        for _ in $(seq 100); do
            ip -n "$name-$i" link show eth0 | grep -q 'state UP' && break
            sleep 0.02
        done
    done
}

# The remote shell: [OPTION...] HOST COMMAND.  Hosts are addresses or names of nodes.
write_agent()
{
    cat >"$folder/agent" <<END
#!/bin/sh
while :; do
    case \$1 in
    -x | -n | -q | -T) shift ;;
    -l | -o | -p) shift 2 ;;
    *) break ;;
    esac
done
host=\$1
shift
case \$host in
$net.*) node=\$((\${host##*.} - 1)) ;;
*) node=\${host##*-} ;;
esac
exec ip netns exec $name-\$node unshare --uts sh -c "hostname $name-\$node; \$*"
END
    chmod 700 "$folder/agent"
}

# ---- its command -----------------------------------------------------------------------------------------

# hosts SEPARATOR-OF-NODES: of --slots, as HOST:SLOTS
hosts()
{
    i=0
    list=
    for count in $(echo "$slots" | tr , ' '); do
        list="$list${list:+,}$("$1" "$i"):$count"
        i=$((i + 1))
    done
    echo "$list"
}
address_of()
{
    echo "$net.$(($1 + 1))"
}

options=
case $is in
openmpi4)
    options="--oversubscribe --bind-to none --mca btl_vader_backing_directory $shared"
    [ $recovery = no ] || options="$options --enable-recovery --mca orte_abort_on_non_zero_status 0"
    [ $yield = no ] || options="$options --mca mpi_yield_when_idle 1"
    [ -z "$slots" ] || options="$options --mca plm_rsh_agent $folder/agent --mca plm_rsh_no_tree_spawn 1
        --mca oob_tcp_if_include $net.0/24 --mca btl_tcp_if_include $net.0/24 --mca btl vader,tcp,self
        --mca plm_rsh_num_concurrent 8 --map-by slot --host $(hosts node_of)"
    ;;
openmpi5)
    options="--oversubscribe --bind-to none --mca btl_sm_backing_directory $shared"
    [ $recovery = no ] || options="$options --with-ft ulfm"
    [ $yield = no ] || options="$options --mca mpi_yield_when_idle 1"
    [ -z "$slots" ] || options="$options --prtemca plm_ssh_agent $folder/agent
        --prtemca prte_if_include $net.0/24 --mca pml ob1 --mca btl sm,tcp,self
        --mca btl_tcp_if_include $net.0/24 --map-by slot --host $(hosts node_of)"
    ;;
mpich)
    [ -z "$slots" ] || options="-launcher ssh -launcher-exec $folder/agent -iface eth0
        -localhost $net.1 -hosts $(hosts address_of)
        -genv MPIR_CVAR_CH4_NETMOD ucx -genv UCX_TLS tcp,self -genv UCX_NET_DEVICES eth0"
    ;;
intel)
    options="-genv I_MPI_PIN 0"
    [ -z "$slots" ] || options="$options -launcher ssh -launcher-exec $folder/agent -iface eth0
        -localhost $net.1 -hosts $(hosts address_of) -genv I_MPI_FABRICS ofi -genv FI_PROVIDER tcp"
    ;;
esac

if [ -n "$slots" ]; then
    count=$(echo "$slots" | tr , '\n' | wc -l)
    make_nodes "$count"
    await_cables "$count"
    write_agent
    LAUNCH_NET=$net
    export LAUNCH_NET
fi

# "N PROGRAM ARG... : N PROGRAM ARG..." -> "-n N PROGRAM ARG... : -n N ...", by turning the list once.
begins=yes
for word in "$@"; do
    shift
    if [ $begins = yes ]; then
        set -- "$@" -n "$word"
        begins=no
    else
        set -- "$@" "$word"
    fi
    [ "$word" != : ] || begins=yes
done

# ---- the job ---------------------------------------------------------------------------------------------

LAUNCH_MPI=$is
PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
TMPDIR=$folder
export LAUNCH_MPI PRTE_MCA_rmaps_default_mapping_policy TMPDIR "${mark?}"
said=$folder/said
# shellcheck disable=SC2086  # lists
set -- "$launcher" $options $own "$@"
# shellcheck disable=SC2016  # for the shells in there
[ -z "$slots" ] || set -- ip netns exec "$name-0" unshare --uts \
    sh -c 'hostname "$0"; exec "$@"' "$name-0" "$@"
# shellcheck disable=SC2016
[ $private = no ] || set -- unshare --mount sh -c 'mount -t tmpfs none /dev/shm; exec "$@"' sh "$@"
setsid timeout -k 5 "$seconds" "$@" <"$input" >"$said" 2>&1 &
job=$!
# Debian's MPICH hangs in MPI_Finalize() now and then when its nodes are namespaces, without libusm too
# (one waits for its peers to flush, they for it at a barrier): once the verdict is there it is ended.
if [ "$verdict:$is:${slots:+nodes}" = yes:mpich:nodes ]; then
    while kill -0 "$job" 2>/dev/null && ! grep -q '^ok \|^not ok \|^skip ' "$said"; do
        sleep 0.2
    done
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        kill -0 "$job" 2>/dev/null || break
        sleep 0.2
    done
    kill -TERM "$job" 2>/dev/null
fi
wait "$job"
rc=$?

if [ -n "$output" ]; then
    cat "$said" >"$output"
elif [ $verdict = no ] || ! grep -q '^ok ' "$said"; then
    cat "$said"
else
    grep '^ok \|^# ' "$said"
fi
case $rc in
124) echo "launch.sh: it ran out of its $seconds seconds" >&2 ;;
esac
if [ $verdict = yes ]; then
    grep -q '^not ok ' "$said" && exit 1
    if grep -q 'WARNING: ThreadSanitizer\|ERROR: AddressSanitizer\|: runtime error: ' "$said"; then
        cat "$said"
        exit 1
    fi
    [ $rc -ne 124 ] || exit 1
    grep -q '^ok ' "$said" && exit 0
    grep -q '^skip ' "$said" && exit 77
    echo "not ok: no rank came to a verdict; the launcher ended with status $rc"
    exit 1
fi
if [ $killed = yes ]; then
    [ $rc -ne 0 ] && [ $rc -ne 124 ] || {
        echo "not ok: the launcher did not end the job; its status is $rc"
        exit 1
    }
    echo "ok the launcher ended the job, with status $rc"
    exit 0
fi
exit $rc
