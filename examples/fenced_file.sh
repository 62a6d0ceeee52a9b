#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fenced_file.sh FILE TOKEN: replace FILE by standard input, unless a larger token was there before.
#
# The lock may have passed on while its holder was stopped. So the file keeps the largest token it
# was written with (in FILE.token), and check and write are one step, by flock(1): the resource is
# on one machine, whatever the lock is on.
#
#     pawl run report -- sh -c 'make_report | fenced_file.sh report.html "$PAWL_TOKEN"'
set -eu
file=$1
token=$2

new=$(mktemp "$file.XXXXXX")
trap 'rm -f "$new"' EXIT
cat >"$new"                        # all of it, before anybody has to wait for us

exec 9>>"$file.token"
flock 9
seen=$(cat "$file.token")
if [ "${seen:-0}" -gt "$token" ]; then
    echo "fenced_file: token $token is too old: $seen has written $file" >&2
    exit 1
fi
printf '%s' "$token" >"$file.token"
mv "$new" "$file"
