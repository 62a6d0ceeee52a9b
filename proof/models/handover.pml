/* SPDX-License-Identifier: Apache-2.0
 *
 * handover.pml - how a lock passes from one owner to the next on a Redis server.
 *
 * One server, N clients, each wants the lock R times. A script is one atomic step of the server;
 * the comments of engines/redis/scripts name the transitions as they are named here:
 *
 *     TAKE     free and nobody queued: granted by the reply
 *     AGAIN    the owner asks again: the same grant, or the same place in the queue
 *     QUEUE    a place at the end
 *     PASS     from the front: drop waiters that are gone or overdue, grant the first live waiter a
 *              claim and send the tokens to that waiter; without waiters the lock is free
 *     WATCH    exactly one waiter watches the end of the holder's lease: the waiter that was told
 *              to, as long as that waiter is in the queue; then another waiter is told
 *     RELEASE  the owner's grant ends, PASS;  from anybody else: no effect
 *     CANCEL   leave the queue, or end a grant whose message is on its way, PASS
 *     DISOWN   a client got a message about an acquire that the client does not know: as CANCEL,
 *              but ends only the grant that the message names
 *     EXPIRE   a lease or claim ends by itself; no client is notified
 *
 * Faults, at most FAULTS of the KINDS allowed: a connection is cut (CUTS: the request in flight was
 * carried out or not, or arrives later from the old socket; pushes in flight are lost; the client
 * reconnects and sends the same request again; a disconnected client counts as dead), a push is
 * lost unnoticed (LOSSES), a client is killed (KILLS), is stopped and may or may not continue
 * (STOPS), gives up (QUITS), a lease ends although its owner runs and holds the lock, or is about
 * to read the grant (EARLY).
 *
 * Time. A client counts its deadline from an instant that is not after the grant, so the client
 * never believes in the lock for longer than the server's lease: EXPIRE clears the belief, and a
 * push is accepted only while its grant lasts. (The instant is computed from the server's time in
 * the message; the mistake LATE_PUSH leaves this out.) Timers fire at the end of the lease for
 * which they were set, after all arrived messages were read. Renewals are not modelled: a renewal
 * only moves the moment of EXPIRE, which is any moment anyhow.
 *
 * Checked: at most one client believes that it holds the lock (exclusion in server time); each
 * accepted grant has a larger token than all grants before; every client gets its turns (liveness,
 * weak fairness): every client process ends (a client that was killed, or stopped for good, counts
 * as ended).
 *
 * Mistakes that must be found: LATE_PUSH a push is trusted whatever its age; BLIND_RELEASE the
 * owner is not compared; SAME_TOKEN a hand-over draws no new token; MUTE_WATCH the waiter that is
 * to watch is not told; NO_NET no slow timer as a safety net against lost pushes.
 *
 * States stored in the full search, spin 6.5.2 (run.sh has the list):
 *     safety    N=3 FAULTS=2           291,062
 *               N=2 R=2 FAULTS=3     1,089,900
 *               N=3 FAULTS=3 cuts only 452,266
 *     liveness  N=3 FAULTS=1            15,431
 *               N=2 R=2 FAULTS=2        93,867
 *               N=3 FAULTS=2 losses and kills only, with the net 9,698
 *               N=3 FAULTS=1 kills only, without the net         2,327
 *               N=4, the same                                   31,205
 *     mistakes  found after 2,845 (LATE_PUSH), 2,369 (BLIND_RELEASE), 9 (SAME_TOKEN),
 *               598 (MUTE_WATCH), 1,836 (NO_NET)
 */
#ifndef N
#define N 3
#endif
#ifndef R
#define R 1
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef KINDS
#define KINDS 63
#endif

/* Kinds of faults that may happen, and how many of them altogether. */
#define CAN(kind) (faults > 0 && (KINDS & (kind)))
#define CUTS 1
#define LOSSES 2
#define KILLS 4
#define STOPS 8
#define QUITS 16
#define EARLY 32

#define WHO(id) (((id) - 1) / R)

mtype = { GRANT, WATCH, ACQUIRE, RELEASE, CANCEL };

/* The server. An owner id is a client's number and the round it asks in. */
byte owner, token, counter;
byte told;                                   /* the waiter that watches */
chan queue = [N * R] of { byte };
chan push[N] = [3] of { mtype, byte, byte }; /* each client's channel, on its way */
bool heard[N];                               /* subscribed: PUBLISH reaches it */
bool overdue[N];                             /* its place in the queue was not kept up */
chan late = [2] of { mtype, byte };          /* requests stuck in an old socket */

/* The clients' beliefs, and what they must not become. */
byte holds[N], believers, top;
byte ended;

/* The round a running client is in. Its owner minds the lock if it has the grant, will read of it
 * or is giving it back. */
byte minds[N];
bool leaves[N];
#define minded(id) (minds[WHO(id)] == (id) && \
                    (leaves[WHO(id)] || holds[WHO(id)] == (id) || \
                     push[WHO(id)]??[GRANT, eval(id), _]))

byte faults = FAULTS;

/* ---- the scripts ----------------------------------------------------------------------------- */

inline publish(kind, to, what) {
    if
    :: nfull(push[WHO(to)]) -> push[WHO(to)]!kind, to, what
    :: else -> skip
    fi
}

inline appoint(who) {
    told = who;
#ifndef MUTE_WATCH
    publish(WATCH, who, 0)
#endif
}

inline watch() { /* WATCH: any waiter will do; the front is dropped if it can't */
    do
    :: empty(queue) -> told = 0; break
    :: nempty(queue) && queue??[eval(told)] -> break
    :: nempty(queue) && !queue??[eval(told)] ->
        select(y : 1 .. N * R);
        if
        :: queue??[eval(y)] && heard[WHO(y)] && !overdue[WHO(y)] -> appoint(y); break
        :: else ->
            queue?<y>;
            if
            :: heard[WHO(y)] && !overdue[WHO(y)] -> appoint(y); break
            :: else -> queue?y
            fi
        fi
    od
}

inline draw() {
#ifdef SAME_TOKEN
    if :: counter == 0 -> counter++ :: else -> skip fi;
#else
    counter++;
#endif
    token = counter
}

inline pass_on(asker) { /* PASS; the asker is alive and learns it from the reply */
    owner = 0; token = 0;
    do
    :: empty(queue) -> break
    :: nempty(queue) ->
        queue?y;
        if
        :: y == asker -> owner = y; draw(); break
        :: y != asker && heard[WHO(y)] && !overdue[WHO(y)] ->
            owner = y; draw(); publish(GRANT, y, token); break
        :: else -> skip
        fi
    od;
    y = 0
}

inline do_acquire(me) {
    if
    :: owner == me -> skip                                    /* AGAIN */
    :: else ->
        if :: owner == 0 -> pass_on(me) :: else -> skip fi;
        if
        :: owner == 0 -> owner = me; draw()                   /* TAKE */
        :: owner == me -> skip
        :: else ->
            if
            :: queue??[eval(me)] -> skip                      /* AGAIN */
            :: else -> queue!me                               /* QUEUE */
            fi;
            queue?<y>;                                        /* told by the reply */
            if :: y == me || !queue??[eval(told)] -> told = me :: else -> skip fi
        fi;
        watch();
    fi;
    y = 0
}

inline do_release(me) { /* RELEASE */
    if
#ifdef BLIND_RELEASE
    :: owner != 0 -> pass_on(0); watch()
#else
    :: owner == me -> pass_on(0); watch()
#endif
    :: else -> skip
    fi;
    y = 0
}

inline do_cancel(me) { /* CANCEL */
    if
    :: owner == me -> pass_on(0); watch()
    :: owner != me && queue??[eval(me)] -> queue??eval(me); watch()
    :: else -> skip
    fi;
    y = 0
}

inline do_disown(me, t) { /* DISOWN; t: the token it was told, 0 of a WATCH */
    if
    :: owner == me && token != t -> skip
    :: else -> do_cancel(me)
    fi
}

/* ---- what happens to a client ---------------------------------------------------------------- */

inline believe(t) {
    believers++;
    assert(believers == 1);
    assert(t > top);
    top = t;
    holds[c] = id
}

inline disbelieve() {
    if :: holds[c] != 0 -> holds[c] = 0; believers-- :: else -> skip fi
}

inline hang_up() { /* the server forgets the subscription; what was under way is lost */
    heard[c] = false;
    do :: push[c]?_, _, _ :: empty(push[c]) -> break od
}

/* ---- processes ------------------------------------------------------------------------------- */

active proctype environment() {
    byte x, y;
    mtype kind;
end:
    do
    :: atomic { owner != 0 && (CAN(EARLY) || !minded(owner)) -> /* EXPIRE */
        x = WHO(owner);
        if :: minded(owner) -> faults-- :: else -> skip fi;
        if
        :: holds[x] == owner -> holds[x] = 0; believers--
        :: else -> skip
        fi;
        owner = 0; token = 0; x = 0 }
    :: atomic { nempty(late) -> /* a request that its sender has long repeated */
        late?kind, x;
        if
        :: kind == ACQUIRE -> do_acquire(x)
        :: kind == RELEASE -> do_release(x)
        :: kind == CANCEL -> do_cancel(x)
        fi;
        x = 0; kind = 0 }
    :: atomic { CAN(LOSSES) && nempty(push[0]) -> faults--; push[0]?_, _, _ }
    :: atomic { CAN(LOSSES) && nempty(push[1]) -> faults--; push[1]?_, _, _ }
    od
}

/* A cut: the request was carried out or not, or comes late. Then the same is sent again. */
#define CUT(kind, script, again)                                                          \
    :: atomic { CAN(CUTS) -> faults--; hang_up(); script; goto again }                    \
    :: atomic { CAN(CUTS) -> faults--; hang_up(); goto again }                            \
    :: atomic { CAN(CUTS) && nfull(late) -> faults--; hang_up(); late!kind, id; goto again }

#define KILL                                                                              \
    :: atomic { CAN(KILLS) -> faults--; hang_up(); disbelieve(); goto over }

#define STOP(where)                                                                       \
    :: atomic { CAN(STOPS) -> faults--; minds[c] = 0; goto where }

proctype client(byte c) {
    byte round = 1, id, x, y, t;
    bool armed;

turn:
    atomic { id = c * R + round; minds[c] = id };
ask: /* subscribed before asking: else the grant could be missed */
    if
    :: atomic {
        heard[c] = true;
        do_acquire(id);
        if
        :: owner == id -> armed = false; believe(token); goto work
        :: else -> armed = (told == id); goto await
        fi }
    CUT(ACQUIRE, do_acquire(id), ask)
    KILL
    fi;
await:
    if
    :: atomic { push[c]?GRANT, x, t ->
        if
        :: x != id -> do_disown(x, t); x = 0; t = 0; goto await /* of a wait long given up */
#ifdef LATE_PUSH
        :: x == id -> armed = false; believe(t); x = 0; t = 0; goto work
#else
        :: x == id && owner == id && token == t ->
            armed = false; believe(t); x = 0; t = 0; goto work
        :: x == id && !(owner == id && token == t) -> x = 0; t = 0; goto ask
#endif
        fi }
    :: atomic { push[c]?WATCH, x, t ->
        if :: x == id -> armed = true :: else -> do_disown(x, 0) fi;
        x = 0; goto await }
    :: atomic { empty(push[c]) && armed && owner == 0 -> goto ask } /* the watcher's timer */
#ifndef NO_NET
    :: atomic { empty(push[c]) && (owner == 0 || owner == id || !queue??[eval(id)]) ->
        goto ask } /* the net: a slow timer, here only where it finds something */
#endif
    :: atomic { CAN(QUITS) -> faults--; armed = false; goto quit }
    KILL
    STOP(stopped_waiting)
    fi;
work:
    if
    :: atomic { disbelieve(); leaves[c] = true; goto leave }
    KILL
    STOP(stopped_holding)
    fi;
leave:
    if
    :: atomic { heard[c] = true; do_release(id); leaves[c] = false; goto next }
    CUT(RELEASE, do_release(id), leave)
    fi;
quit:
    if
    :: atomic { heard[c] = true; do_cancel(id); goto next }
    CUT(CANCEL, do_cancel(id), quit)
    fi;
next:
    atomic {
        if
        :: round < R -> round++; goto turn
        :: else -> hang_up(); goto over
        fi };
stopped_waiting: /* its place in the queue may run out; it may come back */
    if
    :: atomic { !overdue[c] -> overdue[c] = true; goto stopped_waiting }
    :: atomic { overdue[c] = false; minds[c] = id; goto await }
    :: atomic { goto over }
    fi;
stopped_holding:
    if
    :: atomic { minds[c] = id; goto work }
    :: atomic { goto over }
    fi;
over:
    atomic { minds[c] = 0; armed = false; id = 0; ended++ }
}

init { atomic { byte i = 0; do :: i < N -> run client(i); i++ :: else -> break od } }

#ifdef LIVE
ltl everybody { <> (ended == N) }
#endif
