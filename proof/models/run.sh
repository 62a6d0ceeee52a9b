#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run.sh - check the models with spin and say so in TAP.
#
# Each line below has a model, the expected result (holds: no error in the full state space; found:
# spin shows an error, because a mistake was put in), safety or liveness, and defines. The script
# needs spin and a C compiler; without them everything is skipped. A run takes about a minute and a
# half, and no model more than 4 GB. Optimizing beyond -O0 pays for the largest models only.
set -u

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT INT TERM
number=0
level=-O0

check() { # check WANTED safety|live MODEL "WORDS" DEFINE...
    wanted=$1 kind=$2 model=$3 words=$4
    shift 4
    number=$((number + 1))
    dir=$work/$number
    mkdir "$dir" && cd "$dir" || exit 1
    if [ "$kind" = live ]; then
        set -- "$@" -DLIVE
        compile=-DNFAIR=8 run='-a -f'
    else
        compile=-DSAFETY run=
    fi
    if ! spin "$@" -a "$here/$model" >spin.out 2>&1 ||
        ! ${CC:-cc} $level -w -DCOLLAPSE -DMEMLIM=4000 -DVECTORSZ=2048 $compile -o pan pan.c ||
        ! ./pan -n -m500000 $run >pan.out 2>&1; then
        sed 's/^/# /' spin.out pan.out 2>/dev/null
    fi
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.out 2>/dev/null)
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out 2>/dev/null)
    result='not ok'
    if ! grep -q 'out of memory\|MEMLIM bound\|max search depth too small' pan.out; then
        [ "$wanted" = holds ] && [ "$errors" = 0 ] && result=ok
        [ "$wanted" = found ] && [ "${errors:-0}" -gt 0 ] && result=ok
    fi
    echo "$result $number - $words ($*: $states states)"
    [ "$result" = ok ] || sed 's/^/# /' pan.out
    cd "$work" && rm -rf "$dir"
}

if ! command -v spin >/dev/null || ! command -v "${CC:-cc}" >/dev/null; then
    echo '1..0 # SKIP spin or a C compiler is missing'
    exit 0
fi
echo 1..22
m=handover.pml
check holds safety $m 'two owners never believe, tokens rise: three clients' -DN=3 -DFAULTS=2
check holds safety $m 'two owners never believe, tokens rise: two rounds' -DN=2 -DR=2 -DFAULTS=3
check holds live $m 'everybody gets it in the end: three clients' -DN=3 -DFAULTS=1
check holds live $m 'everybody gets it in the end: two rounds' -DN=2 -DR=2 -DFAULTS=2
check holds live $m 'a killed one does not stall the queue, even without the safety net' \
    -DN=3 -DFAULTS=1 -DKINDS=4 -DNO_NET
check holds live $m 'the same with four clients: one who watches may stand anywhere' \
    -DN=4 -DFAULTS=1 -DKINDS=4 -DNO_NET
check holds live $m 'lost pushes and a killed client do not stall the queue' \
    -DN=3 -DFAULTS=2 -DKINDS=6
check found safety $m 'a push that is trusted however old gives two owners' \
    -DN=3 -DFAULTS=1 -DLATE_PUSH
check found safety $m 'a release that does not compare the owner gives two owners' \
    -DN=3 -DFAULTS=1 -DBLIND_RELEASE
check found safety $m 'a hand-over without a new token is noticed' -DN=2 -DFAULTS=0 -DSAME_TOKEN
check found live $m 'a watcher that is not told stalls the queue' \
    -DN=3 -DFAULTS=1 -DKINDS=4 -DNO_NET -DMUTE_WATCH
check found live $m 'without the safety net a lost push can stall the queue' \
    -DN=3 -DFAULTS=2 -DKINDS=6 -DNO_NET
check holds safety $m 'late requests of an old connection' -DN=3 -DFAULTS=3 -DKINDS=1
m=quorum.pml
level=-O2
check holds safety $m 'tokens of a quorum rise, whatever the counters and floors' \
    -DC=2 -DR=1 -DSKEW=1
check holds safety $m 'tokens of a quorum rise over several rounds' -DC=2 -DR=2 -DNO_FLOOR
level=-O0
check found safety $m 'the largest token of a majority, not made known to it, comes twice' \
    -DC=2 -DR=1 -DSKEW=1 -DNO_RAISE
check found safety $m 'a grant that was lost and got again must not pass for the old one' \
    -DC=2 -DR=1 -DSKEW=1 -DGAP
m=quorum_votes.pml
check holds safety $m 'a quorum excludes, whichever nodes restart empty: two clients' -DRESTARTS=3
check holds safety $m 'a quorum excludes, whichever nodes restart empty: three clients' \
    -DC=3 -DRESTARTS=1
check found safety $m 'a node that restarted empty and votes at once gives two owners' -DYOUNG_VOTES
check found safety $m 'so does one that votes before a lease is over' -DSOON_OLD
check found safety $m 'less than a majority gives two owners' -DMINORITY -DRESTARTS=0
