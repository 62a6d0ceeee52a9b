/* SPDX-License-Identifier: Apache-2.0
 *
 * quorum.pml - tokens of a quorum: do they rise with every grant? (engines/quorum/token.c)
 *
 * N nodes with an owner and a counter each; C clients that want the lock, the first one R
 * times, with a new owner number every time. A node handles a request in one step:
 *
 *     ASK      free: granted, with a token above the counter and above the floor
 *     AGAIN    the asker has the grant: the same grant, and the counter is raised to the floor;
 *              free (the grant ended meanwhile): a new grant with a new token
 *
 * A grant may end at any time: its lease runs out, or the owner releases the grant. The end has an
 * effect only at the next request to the node, so the model decides there whether the grant still
 * exists. Every request and every reply may be lost: the client then counts the node as not
 * granted. The floor is one of: none, the largest token so far, more (a client's clock). Each
 * counter begins at 0 or SKEW, as earlier rounds may have left the counters.
 *
 * A client knows of each node the token and the mark (a value that the node's counter reached
 * while the client had the grant). A client has won with T when a majority has
 * token <= T <= mark.
 *
 * Checked: no two winners have the same token; a winner that began after another had won has a
 * larger token.
 *
 * Mistakes that must be found: NO_RAISE the largest token of a majority is used without raising
 * the counters of that majority; GAP a grant that ended and was made again counts as the old
 * grant, raised.
 *
 * States stored in the full search, spin 6.5.2 (run.sh has the list):
 *     C=2 R=1 SKEW=1          2,873,026
 *     C=2 R=2, no floors      9,386,342
 *     mistakes                4,450 (NO_RAISE), 13,112 (GAP)
 */
#ifndef C
#define C 2
#endif
#ifndef R
#define R 1
#endif
#ifndef SKEW
#define SKEW 0
#endif
#ifndef PASSES
#define PASSES 1 /* how often it is tried to raise the others */
#endif
#define N 3
#define MAJORITY 2
#define TOP 24

byte owner[N], counter[N];
bool used[TOP];
byte last;  /* the largest token of a winner */

#define MAX(a, b) ((a) > (b) -> (a) : (b))

inline take(floor) { /* a new grant; its reply may be lost */
    owner[j] = id;
    counter[j] = MAX(counter[j], floor) + 1;
    if
    :: ours[j] = true; token[j] = counter[j]; mark[j] = counter[j]
    :: ours[j] = false
    fi
}

inline ask() { /* ASK */
    if
    :: take(floor) /* free, or what was there has ended */
    :: skip        /* held by another, or the request was lost */
    fi
}

inline again() { /* AGAIN, with `top` as its floor */
    if
    :: owner[j] == id ->
        counter[j] = MAX(counter[j], top);
        if :: mark[j] = top :: ours[j] = false fi
    ::  /* it has ended, and so has what came after it */
#ifdef GAP
        owner[j] = id;
        counter[j] = MAX(counter[j], top) + 1;
        mark[j] = top
#else
        take(top)
#endif
    :: ours[j] = false /* held by another, or the request was lost */
    fi
}

inline stands(t) { /* how many stand for t */
    n = 0;
    j = 0;
    do
    :: j < N ->
        if
        :: ours[j] && token[j] <= t && mark[j] >= t -> n++
        :: else -> skip
        fi;
        j++
    :: else -> break
    od
}

inline look_for_token() { /* the smallest token that a majority stands for; 0: none */
    won = 0;
    k = 0;
    do
    :: k < N ->
        if
        :: ours[k] ->
            stands(token[k]);
            if
            :: n >= MAJORITY && (won == 0 || token[k] < won) -> won = token[k]
            :: else -> skip
            fi
        :: else -> skip
        fi;
        k++
    :: else -> break
    od
}

inline look_for_top() { /* the largest token, and how many are ours */
    top = 0;
    n = 0;
    j = 0;
    do
    :: j < N ->
        if :: ours[j] -> n++; top = MAX(top, token[j]) :: else -> skip fi;
        j++
    :: else -> break
    od
}

inline win(t) {
    assert(t > base);
    assert(!used[t]);
    used[t] = true;
    last = MAX(last, t)
}

inline forget() {
    j = 0;
    do
    :: j < N -> ours[j] = false; token[j] = 0; mark[j] = 0; j++
    :: else -> break
    od;
    n = 0; k = 0; won = 0; top = 0; base = 0; floor = 0; tries = 0; j = 0
}

proctype client(byte c) {
    byte round, id, base, floor, token[N], mark[N], j, k, n, top, won, tries;
    bool ours[N];

turn:
    atomic {
        id = c * R + round + 1;
        base = last; /* who had won before this began */
        if
        :: floor = 0
#ifndef NO_FLOOR
        :: floor = last
        :: floor = last + 2
#endif
        fi
    };
    do
    :: atomic { j < N -> ask(); j++ }
    :: d_step { j == N -> j = 0; floor = 0 }; break
    od;
decide:
    skip;
    d_step {
        look_for_token();
        look_for_top();
#ifdef NO_RAISE
        if :: n >= MAJORITY -> won = top :: else -> skip fi;
#endif
        if
        :: won != 0 -> win(won)
        :: won == 0 && n >= MAJORITY && tries < PASSES -> tries++
        :: else -> won = TOP
        fi;
        n = 0; k = 0; j = 0
    };
    if
    :: won != 0 -> goto leave
    :: won == 0 -> skip
    fi;
    do
    :: atomic { j < N && ours[j] && mark[j] < top ->
        again();
        j++ }
    :: d_step { j < N && !(ours[j] && mark[j] < top) -> j++ }
    :: d_step { j == N -> j = 0; top = 0 }; goto decide
    od;
leave:
    skip;
    d_step { forget(); id = 0; round++ };
    if
    :: round < R && c == 0 -> goto turn
    :: round == R || c != 0 -> round = 0
    fi
}

init {
    atomic {
        byte i;
        do
        :: i < N ->
            if :: SKEW > 0 -> counter[i] = SKEW :: skip fi;
            i++
        :: else -> break
        od;
        for (i : 0 .. C - 1) { run client(i) };
        i = 0
    }
}
