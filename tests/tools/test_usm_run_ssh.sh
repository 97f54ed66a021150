#!/bin/sh
# test_usm_run_ssh.sh USM_RUN CC INCLUDE: units of usm-run --on behind a real ssh and sshd, which speak over a
# pipe: sshd -i, with keys and a configuration of its own, so no port is opened and nobody's login is used.
# The server is the one of the system, or what `./run ci` unpacked into build/openssh; for that one root has a
# user "sshd" in a namespace of its own.  Exits with 77 where there is none.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

tool=$1
cc=$2
include=$3
sshd=/usr/sbin/sshd
[ -x "$sshd" ] || sshd=$root/build/openssh$sshd
if [ ! -x "$sshd" ] || ! command -v ssh >/dev/null; then
    echo "skipped: no sshd (Debian: openssh-server openssh-client)"
    exit 77
fi
# shellcheck source=tests/tools/says.sh
. "$(dirname "$0")/says.sh"
begin
made=''
trap 'rm -rf "$work"; [ -z "$made" ] || rmdir "$made"' EXIT
# shellcheck source=tests/tools/units_app.sh
. "$here/units_app.sh"

# --- an access node ------------------------------------------------------------------------------------
if [ "$(id -u)" = 0 ] && [ ! -d /run/sshd ]; then # where sshd of root locks itself in
    mkdir /run/sshd || exit 1
    made=/run/sshd
fi
chmod 700 "$work"
cat >sshd <<END
#!/bin/sh
export LD_LIBRARY_PATH='$root/build/openssh/lib/$(uname -m)-linux-gnu:${LD_LIBRARY_PATH:-}'
exec '$sshd' -i -f '$work/sshd_config'
END
if [ "$(id -u)" = 0 ] && ! getent passwd sshd >/dev/null; then
    (cat /etc/passwd && echo "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin") >passwd
    sed -i "s,^exec .*,exec unshare -m sh -c \"mount --bind '$work/passwd' /etc/passwd \&\& &\"," sshd
fi
chmod 755 sshd
ssh-keygen -q -t ed25519 -N '' -f host_key || exit 1
ssh-keygen -q -t ed25519 -N '' -f user_key || exit 1
cat >sshd_config <<END
HostKey $work/host_key
AuthorizedKeysFile $work/user_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PidFile none
LogLevel ERROR
END
echo "node $(cat host_key.pub)" >known_hosts
cat >ssh_config <<END
Host node
    ProxyCommand $work/sshd
    HostKeyAlias node
    User $(id -un)
    IdentityFile $work/user_key
    IdentitiesOnly yes
    UserKnownHostsFile $work/known_hosts
    GlobalKnownHostsFile /dev/null
    BatchMode yes
    LogLevel ERROR
Host stranger
    ProxyCommand $work/sshd
    IdentityFile $work/host_key
    IdentitiesOnly yes
    UserKnownHostsFile /dev/null
    GlobalKnownHostsFile /dev/null
    BatchMode yes
    LogLevel ERROR
END
# A login has none of this test's environment.
far="env USM_DEVICE_SELECTOR=host:* USM_PLUGIN_PATH=${USM_PLUGIN_PATH:-} '$tool' --unit"
node="ssh -F ssh_config node \"$far\""

# --- through it -------------------------------------------------------------------------------------------
same 0 "a unit behind ssh" app.json --no-local --on "$node" --progress
says err ": 50 launches, 100003 bytes sent, 4096 came back"
same 0 "two of them" app.json --no-local --on "$node" --on "$node"
same 0 "one there and one here" app.json --no-local --on "$node" --on "$unit"
same 0 "one there is killed" app.json --no-local --no-prefetch \
    --on "ssh -F ssh_config node \"DIES_AT=7 GATE=$work/gate SIGNAL=9 $far\"" --on "$second" --progress
says err "it has ended, with status"
says err "rescheduled=8"
same 0 "one there is stopped" app.json --no-local --no-prefetch --silence 2 \
    --on "ssh -F ssh_config node \"DIES_AT=7 GATE=$work/gate SIGNAL=19 $far\"" --on "$second" --progress
says err "it has said nothing for 2 s"
same 0 "a login that is refused" app.json --on "ssh -F ssh_config stranger true"
expect 1 "a node that greets" app.json --no-local --on "ssh -F ssh_config node \"echo Welcome; $far\""
says err "it begins with 'Welcome"

# The stopped one belongs to sshd; nobody else can end it.
grep -slF "GATE=$work/gate" /proc/[0-9]*/environ 2>/dev/null | sed 's,/proc/\([0-9]*\)/.*,\1,' |
    while read -r pid; do
        kill -KILL "$pid" 2>/dev/null
    done
finish
