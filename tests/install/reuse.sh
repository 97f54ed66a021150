#!/bin/sh
# reuse.sh COMPILER ARGUMENT...: a compiler launcher (CMAKE_C_COMPILER_LAUNCHER) for a project that has libusm in
# a subdirectory `usm`.  A source of libusm that REUSE_BUILD, a build folder of the same tree REUSE_ROOT,
# has an object of is not compiled: the object is copied.  Of some, and of what there is no object of, it is.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

output='' was=''
for word in "$@"; do
    [ "$was" != -o ] || output=$word
    was=$word
done
case $output in
*/usm.c.o | */status.c.o | */queue.c.o | */slab.c.o) ;; # of each folder that has its own flags, one at least
usm/*.c.o)
    # What lies beside src/ is `__/` in a build of libusm alone, and a whole path in one that embeds it.
    object=${output#usm/}
    outside=${object#*.dir"$REUSE_ROOT"/}
    [ "$outside" = "$object" ] || object=${object%%.dir/*}.dir/__/$outside
    if [ -e "$REUSE_BUILD/$object" ]; then
        cp "$REUSE_BUILD/$object" "$output"
        exit 0
    fi
    ;;
esac
exec "$@"
