#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run.sh PROGRAM - runs an example on a lock folder of its own, which is gone afterwards.
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
"$1" "local:$dir"
