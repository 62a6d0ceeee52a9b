/* SPDX-License-Identifier: Apache-2.0
 *
 * quorum_votes.pml - does a quorum exclude, when nodes restart empty? (engines/quorum/node.c)
 *
 * N nodes that each store one owner of the lock; C clients that acquire, renew, heal, lose and
 * release the lock, for ever. The steps of a node:
 *
 *     ASK      free: granted.  Refused, or request or reply lost: not granted
 *     RENEW    the asker has the grant: the whole lease begins again.  HEAL: free: granted, if the
 *              asker holds the lock
 *     EXPIRE   at any time, but not before the client stops believing in the grant: a client counts
 *              its lease from before the request
 *     RESTART  the node forgets its grant, and is young
 *     OLD      one lease after RESTART: every lock that relied on the forgotten grant has ended by
 *              then, or was renewed by a majority without this node
 *
 * A client holds the lock while it believes in the votes of a majority; the votes of young nodes
 * don't count. Checked: two clients never believe at the same time that they hold the lock.
 *
 * Mistakes that must be found: YOUNG_VOTES the votes of young nodes count; SOON_OLD a node counts
 * as old before its time; MINORITY half of the nodes are enough.
 *
 * States stored in the full search, spin 6.5.2: 246,461 (C=2 RESTARTS=3), 951,958 (C=3 RESTARTS=1);
 * mistakes found after 19,542 (YOUNG_VOTES), 20,154 (SOON_OLD), 211 (MINORITY).
 */
#ifndef N
#define N 3
#endif
#ifndef C
#define C 2
#endif
#ifndef RESTARTS
#define RESTARTS 3
#endif
#ifdef MINORITY
#define MAJORITY (N / 2)
#else
#define MAJORITY (N / 2 + 1)
#endif

byte owner[N];  /* 0: free; else the client's number + 1 */
bool young[N];
bool believes[C];
byte votes[C];  /* bits: the nodes that its belief rests on, or will */
byte fresh[C];  /* bits: those that have renewed it, until they are a majority */
byte stale[C];  /* bits: those of `votes` that have forgotten it since */
byte stale_fresh[C];
byte restarts;

#define BIT(j) (1 << (j))
#define HAS(set, j) ((set) & BIT(j))

#ifdef YOUNG_VOTES
#define COUNTS(j) true
#else
#define COUNTS(j) (!young[j])
#endif

inline believe() {
    believes[c] = true;
    i = 0;
    do
    :: i < C -> assert(i == c || !believes[i]); i++
    :: else -> break
    od;
    i = 0
}

inline count(set) {
    n = 0; i = 0;
    do
    :: i < N -> if :: HAS(set, i) -> n++ :: else -> skip fi; i++
    :: else -> break
    od;
    i = 0
}

inline stop() { believes[c] = false; votes[c] = 0; stale[c] = 0; fresh[c] = 0; stale_fresh[c] = 0 }

inline relied_on(j) { /* does anybody rely on what this node forgot? */
    n = 0; i = 0;
    do
    :: i < C -> if :: HAS(stale[i] | stale_fresh[i], j) -> n = 1 :: else -> skip fi; i++
    :: else -> break
    od;
    i = 0
}

proctype node(byte j) {
    byte i, n;
end:
    do
    :: d_step { owner[j] != 0 && !(believes[owner[j] - 1] && HAS(votes[owner[j] - 1], j)) ->
        i = owner[j] - 1; /* EXPIRE; what is over by now is no vote */
        owner[j] = 0;
        votes[i] = votes[i] & ~BIT(j);
        fresh[i] = fresh[i] & ~BIT(j);
        i = 0 }
    :: d_step { restarts < RESTARTS -> /* RESTART */
        restarts++;
        owner[j] = 0; young[j] = true;
        do
        :: i < C ->
            if :: HAS(votes[i], j) -> stale[i] = stale[i] | BIT(j) :: else -> skip fi;
            if :: HAS(fresh[i], j) -> stale_fresh[i] = stale_fresh[i] | BIT(j) :: else -> skip fi;
            i++
        :: else -> break
        od;
        i = 0 }
    :: d_step { young[j] -> /* OLD */
#ifndef SOON_OLD
        relied_on(j);
#endif
        if :: n == 0 -> young[j] = false :: else -> skip fi;
        n = 0 }
    od
}

proctype client(byte c) {
    byte j, i, n;

try: /* ASK, one node after the other */
    do
    :: atomic { j < N && owner[j] == 0 ->
        owner[j] = c + 1;
        if
        :: COUNTS(j) -> votes[c] = votes[c] | BIT(j)
        :: skip /* young, or the reply was lost */
        fi;
        j++ }
    :: atomic { j < N -> j++ }
    :: d_step { j == N -> j = 0;
        count(votes[c]);
        if :: n >= MAJORITY -> believe() :: else -> stop() fi;
        n = 0 }; break
    od;
hold:
    if
    :: believes[c] -> skip
    :: d_step { true -> stop() }; goto back /* given back, or the lease is over, or not got */
    fi;
    do /* RENEW and HEAL, one node after the other; the belief may end meanwhile */
    :: atomic { j < N && owner[j] == c + 1 ->
        if
        :: COUNTS(j) -> fresh[c] = fresh[c] | BIT(j)
        :: skip
        fi;
        j++ }
    :: atomic { j < N && owner[j] == 0 && believes[c] -> owner[j] = c + 1; j++ }
    :: atomic { j < N -> j++ }
    :: d_step { j == N -> j = 0; count(fresh[c]);
        if
        :: n >= MAJORITY && believes[c] -> votes[c] = fresh[c]; stale[c] = stale_fresh[c]
        :: else -> skip
        fi;
        n = 0; fresh[c] = 0; stale_fresh[c] = 0 }; break
    od;
    goto hold;
back:
    do
    :: atomic { j < N -> if :: owner[j] == c + 1 -> owner[j] = 0 :: skip fi; j++ }
    :: d_step { j == N -> j = 0 }; goto try
    od
}

init {
    atomic {
        byte k;
        for (k : 0 .. N - 1) { run node(k) };
        for (k : 0 .. C - 1) { run client(k) };
        k = 0
    }
}
