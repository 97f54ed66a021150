#!/bin/bash
# valkey.sh BUILD [FOLDER]: the sample out_of_core with its data on a Valkey or Redis server in a network
# namespace, which a pair of interfaces (veth) joins to this machine, against its data in FOLDER (/var/tmp), by
# turns.  Needs root, and a quiet machine for a minute.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

[ $# -ge 1 ] || {
    echo "usage: $0 BUILD [FOLDER]" >&2
    exit 2
}
bin=$1/bin
folder=${2:-/var/tmp}
server=
for name in valkey-server redis-server valkey-check-rdb redis-check-rdb; do
    [ -n "$server" ] || server=$(command -v "$name" || true)
done
if [ "$(id -u)" -ne 0 ] || [ -z "$server" ] || ! command -v ip >/dev/null; then
    echo "valkey.sh: it needs root, ip (Debian: iproute2), and valkey-server or redis-server" >&2
    exit 1
fi
name=usm-vk-$$
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true; ip netns delete "$name"; rm -rf "$work"' EXIT
net=10.213.$((RANDOM % 256))
ip netns add "$name"
ip link add "v$$" type veth peer name eth0 netns "$name"
ip addr add "$net.1/24" dev "v$$"
ip link set "v$$" up
ip -n "$name" addr add "$net.2/24" dev eth0
ip -n "$name" link set eth0 up
printf '%s\n' "port 6379" "bind $net.2" "protected-mode no" "unixsocket $work/s" 'save ""' "dir $work" "logfile /dev/null" \
    >"$work/conf"
ip netns exec "$name" bash -c 'exec -a redis-server "$@"' bash "$server" "$work/conf" &
pid=$!
for _ in $(seq 1000); do
    [ ! -S "$work/s" ] || break
    sleep 0.01
done
USM_DEVICE_SELECTOR='host:*' "$bin/usm-bench-valkey" "$bin/out_of_core" "$net.2:6379" "$folder"
