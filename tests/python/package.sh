#!/bin/sh
# package.sh: the package where nothing is installed yet (tests/empty_root.sh -v CHECKOUT:/src): pip builds it
# with the packages that docs/python.md names; then an ordinary user runs its tests and samples without network.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

export DEBIAN_FRONTEND=noninteractive
packages='g++ cmake python3-venv libxxhash-dev opencl-c-headers libze-dev liblz4-dev libssl-dev liburing-dev'
# shellcheck disable=SC2086 # words
if ! { apt-get -q update &&
    apt-get -q -y install --no-install-recommends git $packages ocl-icd-libopencl1 pocl-opencl-icd; } >/tmp/log 2>&1; then
    cat /tmp/log >&2
    exit 1
fi
git -c safe.directory='*' clone -q /src "$HOME/libusm"
python3 -m venv /opt/usm
/opt/usm/bin/pip -q install --disable-pip-version-check pytest "$HOME/libusm/python"
/opt/usm/bin/pip list --disable-pip-version-check
useradd --create-home somebody
mkdir /home/somebody/tests /home/somebody/samples
cp "$HOME/libusm/tests/python/"test_usm_*.py /home/somebody/tests
cp "$HOME/libusm/samples/python/"*.py /home/somebody/samples
rm -rf "$HOME/libusm"
cd /home/somebody
# shellcheck disable=SC2016 # the inner shell's
unshare --net setpriv --reuid=somebody --regid=somebody --init-groups env HOME=/home/somebody sh -eu -c '
    for file in test_usm_array test_usm_managed; do
        /opt/usm/bin/python -B -m pytest -q -p no:cacheprovider "tests/$file.py"
    done
    for sample in kernel devices larger_than_memory managed_numpy; do
        /opt/usm/bin/python -B "samples/$sample.py" || [ $? -eq 77 ]
    done'
echo "the package works in an empty root"
