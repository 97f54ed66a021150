#!/bin/sh
# simulate.sh BUILD [RUNS]: how near usm-run --simulate comes to what runs then take, in twelve cases:
# the graphs of samples/graphs, each with four numbers of parts for each device.  A run is the median of
# RUNS (5), in turns.  Exits with 1 if one is off by more than 10 %.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

build=$(cd "$1" && pwd)
runs=${2:-5}
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$root"/samples/graphs/*.cl .
# a second of work or so
sed 's/475254/12356630/' "$root/samples/graphs/md5.json" >md5.json
sed 's/1048576/400000000/' "$root/samples/graphs/integral.json" >integral.json
sed 's/\[1024, 1024, 9/[4096, 8192, 9/' "$root/samples/graphs/idw.json" >idw.json

# with NAME COUNT: the app with so many parts for each device
with()
{
    sed -e 's/"per_device": [0-9]*, //' -e 's/, "per_device": [0-9]*//' \
        -e "s/\"kind\": \"partition\"/\"per_device\": $2, &/" "$1.json" >"$1.$2.json"
}

median()
{
    sort -n "$1" | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'
}

"$build/bin/usm-info" --machine >machine.json
for app in integral idw md5; do
    for count in 1 4 16 64; do
        with $app $count
        "$build/bin/usm-run" $app.$count.json >result.$app.$count # compiled, and kept by the driver
        : >times.$app.$count
    done
    "$build/bin/usm-run" $app.json --simulate machine.json --policy adaptive 2>/dev/null >table.$app
    for _ in $(seq "$runs"); do
        for count in 1 4 16 64; do
            "$build/bin/usm-run" $app.$count.json --progress 2>&1 >/dev/null |
                sed -n 's/.*launch.* in \([0-9.]*\) s.*/\1/p' >>times.$app.$count
        done
    done
done
echo "app       a device  simulated  measured   ratio"
worst=0
for app in integral idw md5; do
    for count in 1 4 16 64; do
        simulated=$(awk -v n=$count '{ sub(/\*/, "", $1) } $1 == n { print $4; exit }' table.$app)
        measured=$(median times.$app.$count)
        awk -v a=$app -v n=$count -v s="$simulated" -v m="$measured" \
            'BEGIN { printf "%-9s %8d %10.4f %9.4f %7.3f\n", a, n, s, m, s / m }'
        worst=$(awk -v s="$simulated" -v m="$measured" -v w="$worst" \
            'BEGIN { r = s / m; if (r < 1) r = 1 / r; print (r > w ? r : w) }')
    done
done
awk -v w="$worst" 'BEGIN { printf "off by at most %.1f %%\n", (w - 1) * 100; exit w > 1.1 }'
