#!/bin/sh
# test_usm_prof_page.sh USM_PROF PYTHON: the page of `usm-prof report --html` draws itself in a
# browser, without a script's error, and its tables show the trace's numbers (make_trace.py has them).
#
# Skipped (77) where there is no Chromium.  USM_TEST_KEEP=FOLDER keeps the pages and screenshots.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

here=$(cd "$(dirname "$0")" && pwd)
prof=$1
python=$2
browser=
for name in chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v $name)
done
if [ -z "$browser" ]; then
    echo "skipped: there is no Chromium (Debian: chromium)"
    exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-prof-page.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
keep=${USM_TEST_KEEP:-$work}
mkdir -p "$keep"
failed=0

fail()
{
    failed=$((failed + 1))
    echo "FAILED: $1"
}

# browse OPTION... PAGE: no network, and nothing of the user's own profile.
browse()
{
    HOME=$work timeout 100 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --disable-background-networking --no-first-run --user-data-dir="$work/profile" \
        --hide-scrollbars --enable-logging=stderr --virtual-time-budget=20000 "$@"
}

# page KIND: the page's document after its script has run, in $work/KIND.dom.
page()
{
    "$python" "$here/make_trace.py" "$1" "$work/$1.trace"
    "$prof" report "$work/$1.trace" --html "$keep/$1.html" >/dev/null 2>&1 ||
        fail "usm-prof makes no page of $1"
    browse --dump-dom "file://$keep/$1.html" >"$work/$1.dom" 2>"$work/$1.err"
    grep -q '<html[^>]*data-state="drawn"' "$work/$1.dom" || {
        fail "$1: the page is not drawn"
        grep -o '<html[^>]*>' "$work/$1.dom"
    }
    if grep -q 'INFO:CONSOLE.*Error' "$work/$1.err"; then
        fail "$1: the script complains"
        grep 'INFO:CONSOLE' "$work/$1.err"
    fi
}

# has KIND TEXT
has()
{
    grep -qF "$2" "$work/$1.dom" || fail "$1: the page has no \"$2\""
}

page small
has small '<h1 id="title">app &lt;/script&gt; --n 1</h1>'
has small '<td>2 MiB</td>'
has small '5 events were lost'
has small '<td class="text">&lt;/script&gt;&lt;b&gt;</td>'
has small 'slab device #1</option>'
has small "reserved 8.00 MiB, free 5.00 MiB"
has small "in caches of threads up to 1 MiB"
has small 'what caches of threads may hold'
page many
has many '100,000 blocks with less bytes'
has many '<td>300,000</td>'
page work
has work 'Devices in split launches'
has work '<td class="text">opencl:0</td>'
has work '</i>kernel blend</span>'
page empty
has empty 'There is no allocation in this trace.'

# A picture is drawn: a blank one of this size has a few kilobytes.
browse --window-size=1280,1600 --screenshot="$keep/many.png" "file://$keep/many.html" 2>/dev/null
size=$(wc -c <"$keep/many.png" 2>/dev/null || echo 0)
[ "$size" -gt 30000 ] || fail "the screenshot has $size bytes"

browse --window-size=1280,1000 --screenshot="$keep/work.png" "file://$keep/work.html" 2>/dev/null

echo "$failed failed"
[ "$failed" -eq 0 ]
