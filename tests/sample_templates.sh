#!/bin/sh
# sample_templates.sh PROGRAM: the sample templates prints what its README says, on any device.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu
page=$(dirname "$0")/../samples/templates/README.md
# shellcheck disable=SC2016  # fences of the page
want=$(sed -n '/^```$/,/^```$/p' "$page" | sed '/^```$/d')
got=$("$1")
echo "$got"
[ -n "$want" ] && [ "$got" = "$want" ]
