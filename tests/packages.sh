#!/bin/sh
# packages.sh FOLDER: installs the Debian packages of FOLDER (`./run package`) in an empty Debian 12, builds the
# README's first program there, runs it and the tools, and removes the packages: nothing is left.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)

if [ "${1:-}" != --inside ]; then
    exec "$top/tests/empty_root.sh" -v "$top:/libusm" -v "$(cd "$1" && pwd):/debs" /libusm/tests/packages.sh --inside
fi

# quietly COMMAND...: its output only when it fails.
quietly()
{
    "$@" >/tmp/log 2>&1 || {
        cat /tmp/log >&2
        echo "FAILED: $*" >&2
        exit 1
    }
}

export DEBIAN_FRONTEND=noninteractive
quietly apt-get -q update
quietly apt-get -q -y install --no-install-recommends gcc libc6-dev pkg-config \
    /debs/libusm0_*.deb /debs/libusm-dev_*.deb /debs/libusm-tools_*.deb
echo "installed: $(dpkg-query -W -f '${Package} ${Version}; ' 'libusm*')"

# The README's first whole program.
awk '/^```c$/ { text = ""; next } /^```$/ { if (text ~ /int main\(/) { printf "%s", text; exit } }
    { text = text $0 "\n" }' /libusm/README.md >app.c
# shellcheck disable=SC2046  # flags
quietly cc app.c $(pkg-config --cflags --libs libusm) -o app
said=$(./app)
[ "$said" = 'x[10] is 5' ] || {
    echo "FAILED: the README's program said '$said'" >&2
    exit 1
}
echo "README's program: $said"
quietly usm-info --list
quietly usm-prof --help
[ -e /usr/share/doc/usm/samples/pool_reuse/CMakeLists.txt ]
find /usr/lib -name libusm_backend_opencl.so | grep -q . # with it, drivers that are installed later are seen

for package in /debs/libusm-mpi-*.deb; do # what they depend on exists
    quietly apt-get -q -y --no-install-recommends -s install "$package"
done
quietly apt-get -q -y purge 'libusm*'
left=$(find /usr /etc -name '*usm[-_.0]*' -o -name 'usm')
[ -z "$left" ] || {
    echo "FAILED: purged, they left $left" >&2
    exit 1
}
echo "packages passed"
