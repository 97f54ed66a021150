#!/bin/sh
# test_usm_run_templates.sh USM_RUN CC INCLUDE: nodes that are templates: mistakes with their lines and
# words, results.  Where the runtime is the host, the templates are those of a library that is compiled
# here; elsewhere the same bodies as text.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tool=$1
cc=$2
include=$3
# shellcheck source=tests/tools/says.sh
. "$(dirname "$0")/says.sh"
begin

# --- the nodes ----------------------------------------------------------------------------------------
if [ "${USM_TEST_RUNTIME:-host}" = host ]; then
    is_native=1
    cat >bodies.c <<'END'
#include <usm/template.h>
USM_MAP(twice, uint32_t, uint32_t, uint32_t, return 2u * x + p;)
USM_MAP(count, usm_nothing, uint32_t, usm_nothing, return (uint32_t)i;)
USM_MAP_REDUCE(sum, uint32_t, uint64_t, usm_nothing, (return x;), (return a + b;))
USM_STENCIL(smear, uint32_t, uint32_t, usm_nothing, 1,
            return USM_AT(0, -1) + 10u * USM_AT(0, 0) + 100u * USM_AT(0, 1);)
USM_STENCIL(wide, uint32_t, uint32_t, usm_nothing, 7, return USM_AT(0, -7);)
USM_SCAN(prefix, uint32_t, usm_nothing, return a + b;)
USM_SEARCH(first, uint32_t, uint32_t, return x > p;)
USM_MASTER_WORKER(uneven, uint32_t, uint32_t, usm_nothing,
                  uint32_t n = 0; for (; n * n < x; n++) {} return n;)
USM_ITERATE(halve, uint32_t, usm_nothing, 0,
            (return USM_AT(0, 0) > 3u ? USM_AT(0, 0) / 2u : USM_AT(0, 0);), (return before == now;))
END
    for template in twice count sum smear wide prefix first uneven halve; do
        echo "USM_TEMPLATE_EXPORT($template)"
    done >>bodies.c
    "$cc" -shared -fPIC -I"$root/include" -I"$include" -o bodies.so bodies.c || exit 1
else
    is_native=0
fi

# The fields that say what a node computes.
code_of()
{
    if [ $is_native = 1 ]; then
        printf '"library": "bodies.so", "template": "%s"' "$1"
        return
    fi
    case $1 in
    twice) printf '"in": "u32", "out": "u32", "body": "return 2u * x + p;"' ;;
    count) printf '"out": "u32", "body": "return (uint)i;"' ;;
    sum) printf '"in": "u32", "out": "u64", "body": ["return x;", "return a + b;"]' ;;
    smear) printf '"in": "u32", "out": "u32", "radius": 1, "body": "%s"' \
        "return USM_AT(0, -1) + 10u * USM_AT(0, 0) + 100u * USM_AT(0, 1);" ;;
    wide) printf '"in": "u32", "out": "u32", "radius": 7, "body": "return USM_AT(0, -7);"' ;;
    prefix) printf '"in": "u32", "body": "return a + b;"' ;;
    first) printf '"in": "u32", "body": "return x > p;"' ;;
    uneven) printf '"in": "u32", "out": "u32", "body": "%s"' \
        "uint n = 0; for (; n * n < x; n++) {} return n;" ;;
    halve) printf '"in": "u32", "body": ["%s", "return before == now;"]' \
        "return USM_AT(0, 0) > 3u ? USM_AT(0, 0) / 2u : USM_AT(0, 0);" ;;
    esac
}

# node NAME KIND FIELDS OUTPUT: one that reads "in", which has 1 to 6.
node()
{
    cat <<END
{
    "nodes": [
        {"name": "in", "kind": "input", "data": {"numbers": [1, 2, 3, 4, 5, 6], "type": "u32"}},
        {"name": "$1", "kind": "$2", $(code_of "$1")$3,
            "output": {"print": "$4"}}
    ],
    "edges": [
        ["in", "$1"]
    ]
}
END
}

# --- results ----------------------------------------------------------------------------------------
# gives NAME KIND FIELDS OUTPUT PRINTED
gives()
{
    node "$1" "$2" "$3" "$4" >app.json
    expect 0 "$2" app.json
    [ "$(cat out)" = "$5" ] || fail "prints '$(cat out)', not '$5'"
}
gives twice map ', "param": {"numbers": [7], "type": "u32"}' u32 "9 11 13 15 17 19"
gives sum map_reduce '' u64 21
gives smear stencil '' u32 "211 321 432 543 654 665"
gives smear stencil ', "steps": 2' u32 "34421 46621 58941 71262 73583 73804"
gives smear stencil ', "width": 2' u32 "311 422 531 642 553 664"
gives prefix scan '' u32 "1 3 6 10 15 21"
gives first search ', "param": {"numbers": [3], "type": "u32"}' i64 3
gives first search ', "param": {"numbers": [9], "type": "u32"}' i64 -1
gives uneven master_worker ', "grain": 2' u32 "1 2 2 2 3 3"
gives halve iterate '' u32 "1 2 3 2 2 3"
gives halve iterate ', "steps": 1' u32 "1 2 3 2 2 3"

# pipeline FIELDS [STAGE...]: the same for a pipeline of these stages, each in a line of its own
pipeline()
{
    fields=$1
    shift
    cat <<END
{
    "nodes": [
        {"name": "in", "kind": "input", "data": {"numbers": [1, 2, 3, 4, 5, 6], "type": "u32"}},
        {"name": "line", "kind": "pipeline"$fields, "output": {"print": "u32"}, "stages": [
            $(printf '{%s}' "$1")
            $([ $# = 1 ] || printf ',{%s}\n' "$2")
        ]}
    ],
    "edges": [["in", "line"]]
}
END
}
seven='"param": {"numbers": [7], "type": "u32"}'
for batch in '' ', "batch": 1' ', "batch": 4' ', "batch": 99'; do
    pipeline "$batch" "$(code_of twice), $seven" "$(code_of uneven), \"kind\": \"master_worker\"" >app.json
    if [ $is_native = 1 ]; then
        expect 0 "a pipeline$batch" app.json
    else
        expect 0 "a pipeline$batch" app.json --resume kept_line
    fi
    [ "$(cat out)" = "3 4 4 4 5 5" ] || fail "prints '$(cat out)'"
done

cat >app.json <<END
{
    "nodes": [
        {"name": "numbers", "kind": "map", "count": 100000, $(code_of count)},
        {"name": "and more", "kind": "map", $(code_of twice), "param": {"numbers": [1], "type": "u32"}},
        {"name": "sums", "kind": "scan", $(code_of prefix), "output": {"file": "sums.bin"}},
        {"name": "all", "kind": "map_reduce", $(code_of sum), "output": {"print": "u64"}}
    ],
    "edges": [["numbers", "and more"], ["and more", "all"], ["and more", "sums"]]
}
END
expect 0 "a graph of templates" app.json --progress
says out 10000000000
says err "100 %"
[ "$(od -An -tu4 -j 399996 sums.bin | tr -d ' ')" = 1410065408 ] || fail "sums.bin"
expect 0 "a dry run" app.json --dry-run --dot
says out '"and more" -> "all"'
silent err
expect 0 "a run that keeps its blocks" app.json --resume kept
says out 10000000000

# --- mistakes -----------------------------------------------------------------------------------------
# refuse NAME KIND FIELDS WORDS: in line 4, in one sentence
refuse()
{
    node "$1" "$2" "$3" u32 >app.json
    expect 1 "$2 $3" app.json --dry-run
    says err "app.json:4: "
    says err "$4"
    [ "$(wc -l <err)" = 1 ] || fail "it is not one sentence"
}
refuse sum mapreduce '' "or a template: map, map_reduce, stencil"
refuse smear stencil ', "width": 4' \
    "node 'smear' reads 24 bytes: they are not a whole number of rows of 16 bytes"
refuse wide stencil '' "a halo of 7 rows is larger than the array of 6 rows"
refuse sum map_reduce ', "width": 3' "has no rows"
refuse sum map_reduce ', "count": 3' "'count' is for templates without 'in'"
refuse count map '' "has no 'in', so it needs a 'count'"
refuse sum map_reduce ', "stride": 3' "has no field 'stride'"
# refuse_line FIELDS FIRST SECOND LINE WORDS
refuse_line()
{
    pipeline "$1" "$2" "$3" >app.json
    expect 1 "a pipeline of $2 and $3" app.json --dry-run
    says err "app.json:$4: $5"
}
refuse_line '' "$(code_of twice), $seven" "$(code_of prefix), \"kind\": \"scan\"" 6 \
    "node 'line': stage 1 is of kind 'scan'; the stages of a pipeline are maps or master_workers"
refuse_line '' "$(code_of count)" "$(code_of twice), $seven" 5 "node 'line': stage 0 has no 'in'"
[ $is_native = 1 ] && whose="a template of a library" || whose="a stage"
refuse_line '' "$(code_of twice), $seven, \"steps\": 2" "$(code_of uneven)" 5 "$whose has no field 'steps'"
refuse_line ', "batch": 0' "$(code_of twice), $seven" "$(code_of uneven), \"kind\": \"master_worker\"" 4 "'batch' must be a whole number"
pipeline '' "$(code_of twice), $seven" | sed 's/"stages": \[/"stages": [], "step": [/' >app.json
expect 1 "a pipeline without stages" app.json -n
says err "app.json:4: node 'line' has no 'stages'"
pipeline '' "$(code_of twice), $seven" | sed 's/\[1, 2, 3, 4, 5, 6\], "type": "u32"/[1, 2, 3], "type": "u16"/' >app.json
expect 1 "a pipeline of no whole number of elements" app.json -n
says err "app.json:4: node 'line' reads 6 bytes: they are not a whole number of elements of 4 bytes"
if [ $is_native = 1 ]; then
    refuse twice map '' "'param' has 0 bytes, and the parameter 4"
    refuse sum map '' "is of the kind map, and the template 'sum' of the library of the kind map_reduce"
    node sum map_reduce '' u64 | sed 's/"template": "sum"/"template": "mus"/' >app.json
    expect 1 "a template that the library has not" app.json -n
    says err "usm_template_mus"
else
    refuse sum map '' "node 'sum' has 2 bodies; the kind map has 1"
    refuse_line '' '"in": "u32", "out": "u64", "body": "return x;"' "$(code_of twice), $seven" 6 \
        "node 'line': stage 1 reads elements of 4 bytes, and the stage before it gives some of 8"
    refuse twice map_reduce '' "node 'twice' has 1 body; the kind map_reduce has 2, an array of texts"
    node sum map_reduce '' u64 | sed 's/return a + b/return a +/' >app.json
    expect 1 "a body that does not compile" app.json -n
    says err "app.json:4: node 'sum': the opencl_c image does not build"
    says err "node_sum: the reduction:1:"
    node sum map_reduce '' u64 | sed 's/"in": "u32"/"in": "u33"/' >app.json
    expect 1 "a type that is none" app.json -n
    says err "app.json:4: there is no type 'u33'"
fi
cat >app.json <<END
{
    "kernels": {"k": {"library": "none.so"}},
    "nodes": [
        {"name": "in", "kind": "input", "data": {"hex": "00"}},
        {"name": "cut", "kind": "partition", "kernel": "k", "part_size": 4},
        {"name": "sum", "kind": "map_reduce", $(code_of sum)}
    ],
    "edges": [["in", "cut"],
              ["cut", "sum"]]
}
END
: >none.so
expect 1 "a template after parts" app.json -n
says err "app.json:9: node 'sum' reads the parts of 'cut', whose number is open: put a merge between"
node sum map_reduce '' u64 >app.json
expect 0 "a template beside units" app.json --on "$tool --unit"
says out 21

# --- the sample -----------------------------------------------------------------------------------------
if [ $is_native = 0 ]; then
    expect 0 "samples/templates/heat.json" "$root/samples/templates/heat.json"
    says out 303 # points, in plain double precision too; none is close to the threshold
fi

finish
