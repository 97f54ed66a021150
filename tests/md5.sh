#!/bin/sh
# md5.sh PROGRAM: the sample md5 finds what md5sum made digests of, at the first and the last number of
# a range and not beside it; says so when there is nothing; refuses what makes no sense.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

[ $# -eq 1 ] || {
    echo "usage: $0 PROGRAM" >&2
    exit 2
}
md5=$1
told=$(mktemp "${TMPDIR:-/tmp}/usm-md5-XXXXXX")
trap 'rm -f "$told"' EXIT

fail()
{
    echo "$1" >&2
    cat "$told" >&2
    exit 1
}

# run STATUS OPTION...: it ends with that status.
run()
{
    wanted=$1
    shift
    rc=0
    timeout -k 5 100 "$md5" "$@" </dev/null >"$told" 2>&1 || rc=$?
    [ "$rc" -eq "$wanted" ] || fail "md5 $*: ended with $rc, not $wanted"
}

digest_of()
{
    printf %s "$1" | md5sum | cut -d ' ' -f 1
}

# finds TEXT NUMBER OPTION...
finds()
{
    text=$1
    number=$2
    shift 2
    run 0 --json --digest "$(digest_of "$text")" "$@"
    grep -q "\"found\":true,\"text\":\"$text\",\"number\":$number," "$told" ||
        fail "md5 $*: is not $text, $number"
}

run 0
grep -q '^found    cloud, number 1592529$' "$told" || fail "md5: the demonstration finds something else"

# Known numbers, against plain C too.
for known in a:0 z:25 aa:26 az:51 ba:52 zz:701 aaa:702 abc:730 zzz:18277; do
    finds "${known%:*}" "${known#*:}" --max-length 3 --verify
done

# At the first number and at the last of a range, whether or not strips of 26 begin there; not beside.
for known in abc:730 aa:26 az:51; do
    text=${known%:*} n=${known#*:}
    finds "$text" "$n" --from "$n" --to $((n + 1)) --verify
    finds "$text" "$n" --from "$n" --to 2000
    finds "$text" "$n" --from 0 --to $((n + 1))
    run 1 --digest "$(digest_of "$text")" --from $((n + 1)) --to 2000 --verify
    run 1 --digest "$(digest_of "$text")" --from 0 --to "$n" --verify
done

# Texts of one and of two words of a message, and of the most letters; where lengths change.
finds zzzzzzzz 217180147157 --from 217180146000 --to 217180148000 --verify
finds aaaaaaaaa 217180147158 --from 217180146000 --to 217180148000
finds zzzzzzzzzzzzz 2580398988131886037 --from 2580398988131886000 --to 2580398988131886100
finds aaaaaaaaaaaaaa 2580398988131886038 --from 2580398988131886000 --to 2580398988131886100

# In a launch that is not the first, and in none of several.
finds zzzz 475253 --from 0 --to 4000000
finds hello 3752126 --from 1 --to 6000000
run 1 --digest "$(digest_of hello)" --from 0 --to 3752126
run 1 --digest 00000000000000000000000000000000 --max-length 4
grep -q '^found    nothing$' "$told" || fail "md5: no word of its finding nothing"
run 0 --digest 900150983CD24FB0D6963F7D28E17F72 --progress # in capitals

refused()
{
    run 2 "$@"
    grep -q '^md5: ' "$told" || fail "md5 $*: no reason"
}
refused --from 100 --to 100
grep -q 'above --from' "$told" || fail "md5: what is wrong with that range?"
refused --from 100 --to 99
refused --from -1 --to 99
refused --from 20000000
refused --from 9223372036854775808 --to 9223372036854775807
refused --max-length 0
refused --max-length 14
refused --max-length 3 --from 5
refused --digest 900150983cd24fb0d6963f7d28e17f7
refused --digest 900150983cd24fb0d6963f7d28e17f7g
refused --digest
refused --to
refused --colour
echo "found all"
