#!/bin/sh
# page.sh BUILD [--seed N]...
# page.sh BUILD --level-zero | --spill | --async | --async-level-zero | --ipc | --mpi | --offload
#         [OPTION...]
# measures with BUILD/bin/usm-bench and writes what it found, with the load that the machine had, into
# the file of that section in docs/benchmarks/ (between its markers); then page.py makes
# docs/benchmarks.md and the plots from it.  Needs a quiet machine and about ten minutes a seed.
#
# --seed: `pool` with these random workloads, one after the other (1).  The tables are of the first;
# what others met and missed stands in a block of its own.
# --level-zero: only the comparison with SYCL over Level Zero, which needs a loader newer than Debian
# 12's: it builds and runs in the Debian 13 root of tests/debian13.sh (as root).
# --spill: only buffers larger than memory, as an ordinary user (bench/spill.sh).
# --async, --ipc, --mpi, --offload: only memory in queue order and submission; memory and events
# between processes; memory of other ranks (as root); launches split over devices and ranks.  What
# follows is for usm-bench: --quick, --rounds N.
# --async-level-zero: of async what SYCL does over Level Zero too, in the Debian 13 root.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

[ $# -ge 1 ] || {
    echo "usage: $0 BUILD [--seed N]... | BUILD [--level-zero | --spill | --async | --async-level-zero | --ipc | --mpi | --offload] [OPTION...]" >&2
    exit 2
}
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
section=pool
by=
table=$(mktemp)
trap 'rm -f "$table"*' EXIT
before=$(cut -d' ' -f1 /proc/loadavg)

if [ "${2:-}" = --level-zero ]; then
    block=level-zero
    USM_DEBIAN13_TREE=working tests/debian13.sh sh -c './run --step step_build release -DUSM_BENCH=ON >/dev/null &&
        build/release/bin/usm-bench pool --only sycl-ze --markdown' >"$table.page"
    # What the build says comes before.
    sed -n '/^\*\*/,$p' "$table.page" >"$table"
elif [ "${2:-}" = --async-level-zero ]; then
    section=async
    block=async-level-zero
    # shellcheck disable=SC2016  # for the shell in there
    USM_DEBIAN13_TREE=working tests/debian13.sh sh -c './run --step step_build release -DUSM_BENCH=ON >/dev/null &&
        for section in driver submit; do
            build/release/bin/usm-bench async --only $section --markdown
        done' >"$table.page"
    sed -n '/^\*\*/,$p' "$table.page" >"$table"
elif [ "${2:-}" = --async ] || [ "${2:-}" = --ipc ] || [ "${2:-}" = --mpi ] ||
    [ "${2:-}" = --offload ]; then
    section=${2#--}
    block=$section
    shift 2
    by=" with \`usm-bench $block${*:+ $*}\`"
    "$build/bin/usm-bench" "$block" --markdown "$@" >"$table"
elif [ "${2:-}" = --spill ]; then
    section=spill
    block=spill
    bench/spill.sh "$build" --markdown >"$table"
else
    block=tables
    seeds=
    shift
    while [ "${1:-}" = --seed ]; do
        seeds="$seeds $2"
        shift 2
    done
    for seed in ${seeds:-1}; do
        "$build/bin/usm-bench" pool --markdown --seed "$seed" >"$table.$seed"
        [ -s "$table" ] || cat "$table.$seed" >"$table"
    done
    # shellcheck disable=SC2086  # a list
    seeds=$(for seed in $seeds; do echo "$table.$seed"; done)
fi
[ -s "$table" ] || {
    echo "nothing was measured" >&2
    exit 1
}

page=docs/benchmarks/$section.md
how="$(date -u +%Y-%m-%d)$by on $(nproc) processors; load of the machine $before before, $(cut -d' ' -f1 /proc/loadavg) after"

# write_block NAME TABLE
write_block()
{
    awk -v block="$1" -v table="$2" -v how="$how" '
        $0 == "<!-- " block ": end -->" { skip = 0 }
        !skip { print }
        $0 == "<!-- " block ": begin -->" {
            skip = 1
            print "Measured on " how ".\n"
            while ((getline line < table) > 0)
                print line
        }' "$page" >"$table.page"
    cat "$table.page" >"$page"
    echo "$page: the block \"$1\" is new"
}

write_block "$block" "$table"
if [ -n "${seeds:-}" ]; then
    # shellcheck disable=SC2086  # a list
    bench/page.py --seeds $seeds >"$table.seeds"
    write_block seeds "$table.seeds"
fi
bench/page.py
