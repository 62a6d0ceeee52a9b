#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# header.sh INCLUDE_DIR CC [CXX] - pawl.h compiles without a warning as C99, C11 and C++, alone and
# in use. TAP on standard output.
include=$1 cc=$2 cxx=$3
here=$(dirname "$0")
warnings='-Wall -Wextra -Wpedantic -Wconversion -Wpadded -Wundef -Werror'
number=0 failed=0

compile() { # NAME COMPILER LANGUAGE STANDARD
    number=$((number + 1))
    flags="-x $3 -std=$4 $warnings -fsyntax-only"
    if output=$($2 $flags -I "$include" "$here/use_header.c" 2>&1); then
        echo "ok $number - $1"
    else
        failed=1
        echo "not ok $number - $1"
        echo "$output" | sed 's/^/# /'
    fi
}

echo 1..6
compile 'pawl.h is C99' "$cc" c c99
compile 'pawl.h is C11' "$cc" c c11
compile 'pawl.h is C17 with GNU extensions' "$cc" c gnu17
if [ -n "$cxx" ]; then
    compile 'pawl.h is C++11' "$cxx" c++ c++11
    compile 'pawl.h is C++17' "$cxx" c++ c++17
    compile 'pawl.h is C++20' "$cxx" c++ c++20
else
    for standard in 11 17 20; do
        number=$((number + 1))
        echo "ok $number - pawl.h is C++$standard # SKIP no C++ compiler"
    done
fi
exit $failed
