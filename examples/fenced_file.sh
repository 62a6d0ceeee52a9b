#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fenced_file.sh FILE TOKEN: replace FILE by standard input, unless a larger token was there before.
#
# While a holder is stopped, the lock may pass to another holder. So FILE.token keeps the largest
# token with which FILE was written, and flock(1) makes check and write one step: the file is on one
# machine, wherever the lock is stored.
#
#     pawl run report -- sh -c 'make_report | fenced_file.sh report.html "$PAWL_TOKEN"'
set -eu
file=$1
token=$2

new=$(mktemp "$file.XXXXXX")
trap 'rm -f "$new"' EXIT
cat >"$new"                        # read everything before locking, so that others wait less

exec 9>>"$file.token"
flock 9
seen=$(cat "$file.token")
if [ "${seen:-0}" -gt "$token" ]; then
    echo "fenced_file: token $token is too old: $seen has written $file" >&2
    exit 1
fi
printf '%s' "$token" >"$file.token"
mv "$new" "$file"
