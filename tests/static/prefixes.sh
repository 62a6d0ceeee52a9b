#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# prefixes.sh NM ARCHIVE - no global symbol of the static library is defined twice, and each begins
# with "pawl" or with the name of its engine or part, so that the library can be linked into any
# program. TAP on standard output.
nm=$1 archive=$2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
prefixes='pawl|redis|redisson|resp|etcd|zk|jute|sql|postgres|pg|advisory|mysql|my|quorum|local|memory'
prefixes="$prefixes|fault|trace|net|kit|lockstate|shelf"

# "_" + name: symbols of a sanitizer, of the compiler, or its own names for them
"$nm" -g --defined-only "$archive" | sed -n 's/^[0-9a-f]* [A-Z] \([A-Za-z].*\)$/\1/p' |
    sort >"$dir/symbols"
echo 1..3
[ -s "$dir/symbols" ] && echo "ok 1 - the library has symbols" ||
    { echo "not ok 1 - the library has symbols"; exit 1; }
status=0
report() { # NUMBER TITLE: standard input has the offending symbols
    found=$(cat)
    if [ -z "$found" ]; then
        echo "ok $1 - $2"
    else
        echo "not ok $1 - $2"
        echo "$found" | sed 's/^/# /'
        status=1
    fi
}
uniq -d <"$dir/symbols" >"$dir/twice"
report 2 'no symbol is defined twice' <"$dir/twice"
grep -vE "^($prefixes)_" "$dir/symbols" | uniq >"$dir/strange"
report 3 'each symbol has a prefix' <"$dir/strange"
exit $status
