#!/bin/sh
# make.sh [PICTURE...]: draws the pictures of the README and of docs/web.md anew, from a build in
# build/release, with Chromium.  PICTURE: map, profile, web; all of them where none is named.
#
#   map      what the sample idw draws
#   profile  the page that usm-prof makes of a trace of the sample pool_reuse
#   web      the sections of usm-web, as the tests of tests/web see them
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$(dirname "$here")")
bin=$top/build/release/bin
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-pictures.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM

# shot PAGE WIDTH HEIGHT PICTURE [SCALE]
shot()
{
    HOME=$work timeout 100 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --disable-background-networking --no-first-run --hide-scrollbars --user-data-dir="$work/profile" \
        --virtual-time-budget=20000 --window-size="$2,$3" --force-device-scale-factor="${5:-1}" --screenshot="$here/$4.png" "file://$1" 2>"$work/said" || {
        cat "$work/said" >&2
        exit 1
    }
}

draw_map()
{
    "$bin/idw" --quiet --out "$work/map-large.png"
    echo '<!DOCTYPE html><style>body { margin: 0 } img { width: 800px; display: block }</style><img src="map-large.png">' >"$work/map.html"
    shot "$work/map.html" 800 530 map
}

draw_profile()
{
    (cd "$work" && PATH=$bin:$PATH USM_TRACE=pool.trace USM_DEVICE_SELECTOR=host:0 pool_reuse >said)
    "$bin/usm-prof" report "$work/pool.trace" --html "$work/profile.html" >"$work/said"
    shot "$work/profile.html" 1100 920 profile 0.75
}

draw_web()
{
    mkdir "$work/web"
    USM_TEST_KEEP=$work/web ctest --test-dir "$top/build/release" -R '^test_web_' --output-on-failure
    for name in machine hosts jobs launch memory compose; do
        cp "$work/web/web-$name.png" "$here/"
    done
}

[ $# -gt 0 ] || set -- map profile web
for picture in "$@"; do
    case $picture in
    map | profile | web) "draw_$picture" ;;
    *)
        echo "make.sh: there is no picture '$picture': map, profile or web" >&2
        exit 2
        ;;
    esac
done
