#!/bin/sh
# hardening.sh READELF CPU FILE... - check that each built file has full RELRO (GNU_RELRO and
# BIND_NOW), a stack that is not executable, no writable and executable segment, stack protector
# and _FORTIFY_SOURCE calls, and on x86-64 the landing pads of CET: every function that is
# exported, or that a pointer in the data leads to, begins with one. (The CET mark of the whole file
# also needs marked start-up objects of the C library, which Debian does not have.) The program must
# be position independent.
readelf=$1 cpu=$2
shift 2
n=0
failed=0

check() { # check STATUS "sentence"
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        failed=1
    fi
}

# Where a pointer leads is in the relocations; what is there, in the code.
pads() {
    { objdump -d -j .text "$1"; "$readelf" -rW --dyn-syms "$1"; } | awk -v file="$name" '
        function check(to) {
            sub(/^0+/, "", to)
            if (!(to in code) || to in seen)
                return
            seen[to] = 1
            found++
            if (!(to in pad)) {
                bad++
                print "# " file ": no landing pad at " to
            }
        }
        /^ *[0-9a-f]+:\t/ {at = $1; sub(":", "", at); code[at] = 1; if (/endbr64/) pad[at] = 1}
        /R_X86_64_RELATIVE/ {check($NF)}
        $4 == "FUNC" && $7 != "UND" && $8 != "_start" {check($2)} # _start: of the C library
        END {print "# " file ": " found + 0 " functions"; exit bad || !found}'
}

for file in "$@"; do
    name=$(basename "$file")
    segments=$("$readelf" -lW "$file")
    dynamic=$("$readelf" -dW "$file")
    symbols=$("$readelf" -W --dyn-syms "$file")
    echo "$segments" | grep -q GNU_RELRO && echo "$dynamic" | grep -qE 'BIND_NOW|FLAGS.*NOW'
    check $? "$name: full RELRO"
    echo "$segments" | grep -q 'GNU_STACK.* RW  *0x' && ! echo "$segments" | grep -q 'LOAD.* RWE '
    check $? "$name: no segment is writable and executable"
    echo "$symbols" | grep -q __stack_chk_fail
    check $? "$name: stack protector"
    echo "$symbols" | grep -qE '__[a-z]+_chk(@|$)'
    check $? "$name: _FORTIFY_SOURCE"
    ! echo "$dynamic" | grep -qE 'TEXTREL|RPATH.*:[^$/]'
    check $? "$name: no text relocations"
    "$readelf" -hW "$file" | grep -q 'Type:.*DYN'
    check $? "$name: position independent"
    if [ "$cpu" = x86_64 ]; then
        pads "$file"
        check $? "$name: functions begin with the landing pads of CET"
    fi
done
echo "1..$n"
exit $failed
