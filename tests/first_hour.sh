#!/bin/sh
# first_hour.sh: what a new user does, where nothing is installed yet (tests/empty_root.sh -v CHECKOUT:/src):
# a clone in a home that nobody else can enter, the demo, the tests; then without network, by an ordinary
# user, below a folder with a blank in its name.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

export DEBIAN_FRONTEND=noninteractive
apt-get -q update >/tmp/log 2>&1 && apt-get -q -y install --no-install-recommends git >>/tmp/log 2>&1 || {
    cat /tmp/log >&2
    exit 1
}
git -c safe.directory='*' clone -q /src "$HOME/libusm"
chmod 700 "$HOME"
cd "$HOME/libusm"
./run demo
./run test

useradd --create-home somebody
chmod 700 /home/somebody
mkdir "/home/somebody/a folder"
git clone -q "$HOME/libusm" "/home/somebody/a folder/libusm"
chown -R somebody: "/home/somebody/a folder"
cd "/home/somebody/a folder/libusm"
unshare --net setpriv --reuid=somebody --regid=somebody --init-groups env HOME=/home/somebody ./run test
echo "the first hour passed"
