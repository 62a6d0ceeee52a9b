#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# symbols.sh PAWL_H SYMBOL_FILE MAN_PAGE LIBRARY NM - one list of functions in four places: declared
# in pawl.h or pawl-observe.h, listed in the version script, exported by the library, described in pawl(3).
# TAP on standard output.
header=$1 symbols=$2 manual=$3 library=$4 nm=$5
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
number=0 failed=0
cat "$header" "$(dirname "$header")/pawl-observe.h" >"$dir/headers" || exit 1
header=$dir/headers

# A declaration may go over several lines; the name is the first word before a parenthesis that is
# not the attribute's.
tr '\n' ' ' <"$header" | sed 's/PAWL_API/\n&/g' |
    sed -n 's/^PAWL_API [^(;]*[ *]\(pawl_[a-z_]*\)(.*/\1/p' | sort -u >"$dir/header"
sed -n 's/^ *\(pawl_[a-z_]*\);$/\1/p' "$symbols" | sort -u >"$dir/symbols"
"$nm" -D --defined-only "$library" | sed -n 's/.* [BDRTVW] \([^@]*\).*/\1/p' |
    sort -u >"$dir/library"
[ -r "$manual" ] || : >"$dir/no-manual"
# every identifier that the page mentions, whatever the markup around it; .Xr names other pages
sed '/^\.Xr /d; s/\\f[A-Z]//g; s/\\-/-/g' "$manual" 2>/dev/null | grep -o 'pawl_[a-z_]*[a-z]' |
    sort -u >"$dir/mentioned"
grep -o 'pawl_[a-z_]*[a-z]' "$header" | sort -u >"$dir/known"
comm -12 "$dir/header" "$dir/mentioned" >"$dir/described"

same() { # NAME FILE_A FILE_B
    number=$((number + 1))
    if [ -s "$dir/$2" ] && cmp -s "$dir/$2" "$dir/$3"; then
        echo "ok $number - $1"
        return
    fi
    failed=1
    echo "not ok $number - $1"
    comm -23 "$dir/$2" "$dir/$3" | sed "s/^/# only in $2: /"
    comm -13 "$dir/$2" "$dir/$3" | sed "s/^/# only in $3: /"
}

echo 1..4
same 'every function of pawl.h is in the version script, and no other' header symbols
same 'the library exports the functions of pawl.h, and no other' header library
same 'every function of pawl.h is described in pawl(3)' header described
number=$((number + 1))
strange=$(comm -13 "$dir/known" "$dir/mentioned")
if [ -s "$dir/mentioned" ] && [ -z "$strange" ]; then
    echo "ok $number - pawl(3) mentions nothing that pawl.h does not have"
else
    failed=1
    echo "not ok $number - pawl(3) mentions nothing that pawl.h does not have"
    echo "$strange" | sed 's/^/# /'
fi
exit $failed
