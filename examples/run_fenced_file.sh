#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run_fenced_file.sh PAWL - a holder that comes back late writes to a file that checks tokens.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
pawl=$(realpath "$1")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export PAWL_URL="local:$dir/locks" PATH="$here:$PATH"
cd "$dir"
mkdir -m 700 locks
"$pawl" run report -- sh -c 'echo first | fenced_file.sh report "$PAWL_TOKEN"; echo "$PAWL_TOKEN" >old'
"$pawl" run report -- sh -c 'echo second | fenced_file.sh report "$PAWL_TOKEN"'
if echo late | fenced_file.sh report "$(cat old)"; then
    echo "a late write was let in" >&2
    exit 1
fi
[ "$(cat report)" = second ]
