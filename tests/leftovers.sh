# What a test left behind, for sourcing by sh.  tests/with-runtime.sh asks after each test, `./run` before
# and after the tests of a build.
#
#   usm_leftovers_before              remembers what is in /dev/shm
#   usm_leftovers_processes ID        the test's processes that are alive; they are ended.  1: there are
#   usm_leftovers_files WORK          what else it left; it is removed.  1: there is some
#   usm_leftovers_of_killed BUILD     the same of tests of the build folder BUILD that were killed together
#                                     with their with-runtime.sh (a timeout of CTest's), named.  1: there are
#
# WORK is the folder that with-runtime.sh makes for one test; its name, usm-test.XXXXXX, is the test's ID.
#   WORK/owner          process id of with-runtime.sh, the test's name, the build folder
#   WORK/tmp            the test's TMPDIR
#   WORK/xdg            its XDG_CACHE_HOME: what libusm keeps there it would keep in the user's home
# A test's processes have USM_TEST_ID=ID in their environment, daemons and orphans too.  A test that needs
# a folder elsewhere (a disk, when TMPDIR is memory) puts the ID into its name.  So nobody else's files and
# processes are taken for a test's.  In /dev/shm libraries choose names of their own: a file counts there that
# has a name as Open MPI, MPICH, UCX and PSM give, is this user's, was not there before, and that no
# process has open.  USM_TEST_SHM is a folder instead of /dev/shm, for the test of all this.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# shellcheck shell=sh

usm__shm=${USM_TEST_SHM:-/dev/shm}

usm_leftovers_before()
{
    usm__shm_before=" $(echo "$usm__shm"/*) "
}

# The ids of living processes with USM_TEST_ID=$1.
usm__processes_of()
{
    grep -slF "USM_TEST_ID=$1" /proc/[0-9]*/environ 2>/dev/null | sed 's,/proc/\([0-9]*\)/.*,\1,'
}

usm_leftovers_processes()
{
    usm__pids=$(usm__processes_of "$1")
    [ -n "$usm__pids" ] || return 0
    # One that ends by itself just now, as a killed one that nobody waits for, is none.  On a machine that
    # is busy with other things that takes seconds.
    usm__polls=0
    while [ "$usm__polls" -lt "${USM_TEST_LEFTOVER_POLLS:-100}" ]; do
        usm__polls=$((usm__polls + 1))
        sleep 0.1
        usm__pids=$(usm__processes_of "$1")
        [ -n "$usm__pids" ] || return 0
    done
    for usm__pid in $usm__pids; do
        echo "LEFT BEHIND: process $usm__pid: $(tr '\0' ' ' <"/proc/$usm__pid/cmdline" 2>/dev/null | cut -c 1-200)"
    done
    for _ in 1 2 3 4 5; do
        # shellcheck disable=SC2086  # a list
        kill -KILL $usm__pids 2>/dev/null
        sleep 0.1
        usm__pids=$(usm__processes_of "$1")
        [ -n "$usm__pids" ] || break
    done
    return 1
}

# Is $1 this user's, a file, and does no process have it open or mapped?
usm__is_stale()
{
    [ -f "$1" ] && [ -O "$1" ] && ! grep -sqF " $1" /proc/[0-9]*/maps &&
        [ -z "$(find /proc/[0-9]*/fd -lname "$1" 2>/dev/null | head -n 1)" ] && [ -e "$1" ]
}

usm__left_file()
{
    usm__inside=
    [ -d "$1" ] && usm__inside=" (a folder: $(find "$1" -mindepth 1 | head -n 5 | sed "s,^$1/,," | tr '\n' ' '))"
    echo "LEFT BEHIND: $1$usm__inside"
    rm -rf "$1"
    usm__left=1
}

usm_leftovers_files()
{
    usm__left=0
    for usm__file in "$1"/tmp/* "$1"/tmp/.[!.]* "$1"/xdg/usm /tmp/*"${1##*/}"* /var/tmp/*"${1##*/}"*; do
        [ "$usm__file" != "$1" ] && { [ -e "$usm__file" ] || [ -h "$usm__file" ]; } &&
            usm__left_file "$usm__file"
    done
    for usm__file in "$usm__shm"/*; do
        case ${usm__file#"$usm__shm"/} in
        *"${1##*/}"*) usm__left_file "$usm__file" && continue ;;
        bxfi_* | vader_segment.* | sm_segment.* | mpich* | ucx_shm_* | psm2_shm.*) ;;
        *) continue ;;
        esac
        case ${usm__shm_before:-} in '' | *" $usm__file "*) continue ;; esac
        usm__is_stale "$usm__file" && sleep 0.3 && usm__is_stale "$usm__file" && usm__left_file "$usm__file"
    done
    return $usm__left
}

usm_leftovers_of_killed()
{
    usm__killed=0
    for usm__work in "${TMPDIR:-/tmp}"/usm-test.?????? /var/tmp/usm-test.??????; do
        read -r usm__owner usm__test usm__build 2>/dev/null <"$usm__work/owner" || continue
        [ "$usm__build" = "$1" ] || continue
        tr '\0' ' ' 2>/dev/null <"/proc/$usm__owner/cmdline" | grep -qF with-runtime.sh && continue
        usm__killed=1
        echo "$usm__test was killed and left $usm__work"
        usm__shm_before=
        usm_leftovers_processes "${usm__work##*/}" || :
        usm_leftovers_files "$usm__work" || :
        rm -rf "$usm__work"
    done
    return $usm__killed
}
