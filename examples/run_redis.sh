#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run_redis.sh PROGRAM - runs an example on a redis-server of its own, with the lock there and with
# the lock in a folder. Server and folder are gone afterwards.
dir=$(mktemp -d) || exit 1
redis-server --port 0 --unixsocket "$dir/socket" --save '' --dir "$dir" >"$dir/log" &
server=$!
trap 'kill $server; wait $server; rm -rf "$dir"' EXIT
until redis-cli -s "$dir/socket" ping >/dev/null 2>&1; do
    kill -0 $server || exit 1
    sleep 0.05
done
"$1" "redis+unix://$dir/socket" "$dir/socket" && "$1" "local:$dir/locks" "$dir/socket"
