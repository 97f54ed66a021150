#!/bin/sh
# simulate.sh BUILD [RUNS [SELECTOR]]: how near usm-run --simulate comes to what runs then take, in
# thirteen cases: the graphs of samples/graphs, each with four numbers of parts for each device, and
# two templates.  SELECTOR: the devices; "opencl:0.*" are two that work side by side, as each is some of the
# processors.  A run is the median of RUNS (5), in turns.  Exits with 1 if one is off by more than 10 %.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

build=$(cd "$1" && pwd)
runs=${2:-5}
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
if [ $# -ge 3 ]; then
    export USM_DEVICE_SELECTOR="$3"
fi
cp "$root"/samples/graphs/*.cl .
# a second of work or so
sed 's/475254/12356630/' "$root/samples/graphs/md5.json" >md5.json
sed 's/1048576/400000000/' "$root/samples/graphs/integral.json" >integral.json
sed 's/\[1024, 1024, 9/[4096, 8192, 9/' "$root/samples/graphs/idw.json" >idw.json
cat >templates.json <<'END'
{
    "nodes": [
        {"name": "mix", "kind": "map", "count": 4194304, "out": "u32",
         "body": "uint n = (uint)i; for (int k = 0; k < 500; k++) n = n * 1664525u + 1013904223u; return n;"},
        {"name": "sum", "kind": "map_reduce", "in": "u32", "out": "u64", "body": ["return x;", "return a + b;"]}
    ],
    "edges": [["mix", "sum"]]
}
END

# with NAME COUNT: the app with so many parts for each device
with()
{
    sed -e 's/"per_device": [0-9]*, //' -e 's/, "per_device": [0-9]*//' \
        -e "s/\"kind\": \"partition\"/\"per_device\": $2, &/" "$1.json" >"$1.$2.json"
}

# counts_of NAME: the numbers of parts; "all": it has none
counts_of()
{
    if [ "$1" = templates ]; then echo all; else echo 1 4 16 64; fi
}

# seconds_of NAME COUNT: those of its table
seconds_of()
{
    if [ "$2" = all ]; then
        awk '$1 == "adaptive" { print $2; exit }' "table.$1"
    else
        awk -v n="$2" '{ sub(/\*/, "", $1) } $1 == n { print $4; exit }' "table.$1"
    fi
}

median()
{
    sort -n "$1" | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'
}

apps='integral idw md5 templates'
"$build/bin/usm-info" --machine >machine.json
for app in $apps; do
    for count in $(counts_of $app); do
        with $app "$count"
        "$build/bin/usm-run" "$app.$count.json" >"result.$app.$count" # compiled, and kept by the driver
        : >"times.$app.$count"
    done
    "$build/bin/usm-run" $app.json --simulate machine.json --policy adaptive 2>/dev/null >table.$app
    for _ in $(seq "$runs"); do
        for count in $(counts_of $app); do
            "$build/bin/usm-run" "$app.$count.json" --progress 2>&1 >/dev/null |
                sed -n 's/.*launch.* in \([0-9.]*\) s.*/\1/p' >>"times.$app.$count"
        done
    done
done
echo "$(grep -c '"name"' machine.json) of the devices ${USM_DEVICE_SELECTOR:-there are}"
echo "app       a device  simulated  measured   ratio"
worst=0
for app in $apps; do
    for count in $(counts_of $app); do
        simulated=$(seconds_of $app "$count")
        measured=$(median "times.$app.$count")
        awk -v a=$app -v n="$count" -v s="$simulated" -v m="$measured" \
            'BEGIN { printf "%-9s %8s %10.4f %9.4f %7.3f\n", a, n, s, m, s / m }'
        worst=$(awk -v s="$simulated" -v m="$measured" -v w="$worst" \
            'BEGIN { r = s / m; if (r < 1) r = 1 / r; print (r > w ? r : w) }')
    done
done
awk -v w="$worst" 'BEGIN { printf "off by at most %.1f %%\n", (w - 1) * 100; exit w > 1.1 }'
