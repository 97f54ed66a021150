#!/bin/sh
# managed_swap.sh BUILD [MIB [ROUNDS]]: unchanged code over managed memory against the system's swap: std::sort()
# and two functions of a BLAS (USM_BENCH_BLAS=FILE, libopenblas or libblas), over MIB (256), in a control
# group that has a quarter of it and 16 MiB for the program.
#
# The tier and the swap file lie in one folder, TMPDIR or /var/tmp.  Needs root: swapon, a control
# group.  Prints Markdown; medians of three runs by turns, which take minutes each, nearly all of it
# the swap's.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

[ $# -ge 1 ] || {
    echo "usage: $0 BUILD [MIB [ROUNDS]]" >&2
    exit 2
}
work=$(cd "$1" && pwd)/bin/managed_work
mib=${2:-256}
rounds=${3:-3}
folder=$(mktemp -d "${TMPDIR:-/var/tmp}/managed-swap-XXXXXX")
group=
limit=memory.limit_in_bytes

clean_up()
{
    swapoff "$folder/swap" 2>/dev/null || :
    rm -rf "$folder"
    [ -z "$group" ] || rmdir "$group"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

make_group()
{
    group=/sys/fs/cgroup/memory
    [ -e $group/cgroup.procs ] || {
        group=/sys/fs/cgroup
        limit=memory.max
        echo +memory >$group/cgroup.subtree_control
    }
    group=$group/managed-swap-$$
    mkdir "$group" || {
        group=
        return 1
    }
    echo $(((mib / 4 + 16) << 20)) >"$group/$limit"
}

# run HOW WHAT: seconds
run()
{
    (
        sh -c 'echo $PPID' >"$group/cgroup.procs"
        USM_MEMORY_LIMIT=host:$((mib / 4))M USM_SPILL=file:$folder exec "$work" "$1" "$2" "$mib" \
            2>"$folder/why"
    ) || cat "$folder/why" >&2
}

median()
{
    sort -n | sed -n "$((rounds / 2 + 1))p"
}

make_group
dd if=/dev/zero of="$folder/swap" bs=1M count=$((2 * mib)) status=none
chmod 600 "$folder/swap"
mkswap "$folder/swap" >/dev/null
swapon "$folder/swap"
printf '| over %s MiB, in %s MiB | managed, s | swap, s | times as fast |\n|---|---|---|---|\n' \
    "$mib" $((mib / 4))
for what in sort gemv gemm; do
    : >"$folder/managed"
    : >"$folder/malloc"
    for how in $(yes managed malloc | head -n "$rounds"); do
        run "$how" $what >>"$folder/$how"
    done
    ours=$(median <"$folder/managed")
    theirs=$(median <"$folder/malloc")
    printf '| %s | %s | %s | %s |\n' $what "${ours:-failed}" "${theirs:-failed}" \
        "$(echo "${ours:-0} ${theirs:-0}" | awk '$1 > 0 { printf "%.2f", $2 / $1 }')"
done
