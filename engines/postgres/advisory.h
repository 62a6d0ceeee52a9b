/* SPDX-License-Identifier: Apache-2.0
 *
 * advisory.h - layout=advisory: PostgreSQL's session advisory locks as the lock itself, shared with
 * whoever calls pg_advisory_lock(). No tables.
 *
 *     advisory.c          the functions of the engine
 *     advisory_line.c     acquires that wait in the client
 *     advisory_session.c  one connection: acquire, release, loss
 *     advisory_leave.c    cancelling an acquire
 *     advisory_renew.c    leases
 *     advisory_greet.c    the first statements on a connection
 *     advisory_key.c      names and keys
 *     advisory_say.c      the statements
 *     advisory_inspect.c  inspect, list, break: on a connection of its own
 *
 * A lock belongs to a session, and a session that has it gets it again; so each owner needs a
 * connection of its own while it holds or waits: a *session*. (The one exception: who holds a name
 * exclusively and wants it shared, too, gets that on the same session.) There are at most
 * `connections` sessions; who finds none waits here, in the client.
 *
 * LEASES. The server ends a session that was idle for idle_session_timeout, which each acquire and
 * renewal sets to the lease: so a lease begins anew when the server has carried out a statement,
 * and ends by its clock, whatever becomes of the holder. A session that waits is not idle; it looks
 * every 2 s whether its client is still there (client_connection_check_interval).
 *
 * A session that has a name exclusively and shared has one lease, the longer of the two. The core
 * releases what its own lease has ended for (PAWL_CAP_OUTLASTS).
 *
 * TOKENS. A transaction's number, taken after the lock was had, below the number of the server's
 * timeline, which grows with each promotion of a standby. The transaction writes a message of no
 * meaning to the log: else the server would not write the commit to the disk before it answers, and
 * would give the same number out again after a crash.
 *
 * A connection that is gone is a lock that is gone; nothing is ever unknown but a release without
 * an answer: the server may not have noticed yet.
 */
#ifndef PAWL_ADVISORY_H
#define PAWL_ADVISORY_H

#include "sql/sql.h"

#define ADVISORY_CAPS                                                                              \
    (PAWL_CAP_FENCE | PAWL_CAP_QUEUE | PAWL_CAP_SHARED | PAWL_CAP_LIST | PAWL_CAP_OUTLASTS |       \
     PAWL_CAP_BREAKS_UNSEEN | PAWL_CAP_EXAMINE)
#define ADVISORY_TEXT 3000
#define ADVISORY_LEASE_MAX INT64_C(2147483647) /* ms; the server's own limit */

typedef struct advisory advisory;
typedef struct advisory_session advisory_session;

/* ---- advisory_key.c -------------------------------------------------------------------------- */

/* As pg_locks has it: of one bigint its halves, or two integers. */
typedef struct advisory_key {
    uint32_t high, low;
    bool pair;
} advisory_key;

/* Before any other. */
void advisory_key_init(pawl_env *env);
advisory_key advisory_key_of(const char *name);
/* What a function of the server's gets: "'42'::bigint". */
void advisory_key_words(advisory_key key, char words[64]);
/* The name that is this key in plain numbers. */
void advisory_key_name(advisory_key key, char name[32]);
static inline bool advisory_key_equal(advisory_key a, advisory_key b)
{
    return a.high == b.high && a.low == b.low && a.pair == b.pair;
}

/* ---- advisory_session.c ---------------------------------------------------------------------- */

/* Modes are PAWL_MODE_EXCLUSIVE and PAWL_MODE_SHARED, 0 and 1. */
struct advisory_session {
    sql_link link;        /* first; closed: the session is free */
    advisory *adv;
    advisory_key key;
    char name[PAWL_NAME_MAX + 1];
    pawl_op *op;          /* an acquire, from its submit until it is done */
    sql_call *call;       /* its statement; NULL: answered, or given up */
    uint64_t seq[2];      /* whose grants are on it, by mode; 0: none */
    uint64_t token[2];
    int64_t since;        /* the server's time of the grant, Unix ms */
    int64_t promised;     /* the session is not ended for silence before this */
    int64_t timeout_ms;   /* its idle_session_timeout */
    pawl_timer timer; /* asking: time to check. Leaving: no patience left. Idle: time to close */
    sql_call *check;      /* asks, on the other link, whether it has come to wait */
    int64_t check_ms;
    bool waits;           /* asking: it was seen to wait */
    bool tried;           /* asking: a try was refused; the statement that is out waits */
    int backend;          /* the server's process */
    uint64_t base;        /* of tokens: the timeline */
    uint64_t turn;        /* when it became idle, in order */
    int leaving;          /* statements that undo what was given up and are out */
    sql_call *cancel;     /* asks the server, on the other link, to end the statement that waits */
    int releasing;        /* releases that are out */
};

void advisory_session_init(advisory_session *s, advisory *adv);
bool advisory_session_idle(const advisory_session *s);
/* The op is the session's until it is done. */
void advisory_session_acquire(advisory_session *s, pawl_op *op);
void advisory_session_release(advisory_session *s, pawl_op *op);
/* Nobody waits for the answer to this release any more. */
void advisory_session_release_cancel(pawl_op *op);
/* Nothing is under way on it any more? Then it is idle, and may serve the next. */
void advisory_session_check_idle(advisory_session *s);
static inline bool advisory_session_holds(const advisory_session *s)
{
    return s->seq[0] || s->seq[1];
}
static inline advisory_session *advisory_session_of(const sql_call *call)
{
    return (advisory_session *)(void *)call->on;
}
/* Its op is done, if it has one. */
void advisory_session_finish(advisory_session *s, int code, const char *words);
void advisory_session_set_timer(advisory_session *s, int64_t ms);

/* ---- advisory_leave.c ------------------------------------------------------------------------ */

/* Of a statement that waits for a lock. */
#define ADVISORY_WAIT_MS (INT64_C(1000) * 86400 * 365)

/* Nobody wants the answer to its acquire. */
void advisory_session_cancel(advisory_session *s);
/* What was asked for in this mode is not wanted, and its statement is over or out. */
void advisory_session_undo(advisory_session *s, int mode);

/* ---- advisory_say.c -------------------------------------------------------------------------- */

/* They fill adv->text and say so in `p`. */
void advisory_say_acquire(const advisory_session *s, int64_t lease_ms, sql_params *p);
void advisory_say_release(const advisory_session *s, int mode, sql_params *p);
void advisory_say_renew(const advisory_session *s, int64_t lease_ms, sql_params *p);
void advisory_say_waits(const advisory_session *s, sql_params *p);
void advisory_say_cancel(const advisory_session *s, sql_params *p);
void advisory_say_break(advisory *adv, advisory_key key, sql_params *p);
void advisory_say_inspect(advisory *adv, const advisory_key *key, sql_params *p); /* NULL: all */
/* Who this client is, for the statements. */
void advisory_who(advisory *adv);

/* ---- advisory_line.c ------------------------------------------------------------------------- */

/* The op gets a session when it is its turn. */
void advisory_line_enter(advisory *adv, pawl_op *op);
void advisory_line_leave(pawl_op *op);
/* It gets one now. False: there is none. */
bool advisory_line_pass(advisory *adv, pawl_op *op);
/* A session is free, or one of those that ask has come to wait. */
void advisory_serve(advisory *adv);
/* The server has refused a try of this key: all who want it wait. */
void advisory_line_refused(advisory *adv, advisory_key key);
/* Somebody wants to know whether it has. */
void advisory_session_check_waiting(advisory_session *s);

/* ---- advisory_greet.c ------------------------------------------------------------------------ */

extern const char *const advisory_greeting[];
bool advisory_greeted(sql_link *link, const sql_reply *reply);

/* ---- advisory_renew.c, advisory_inspect.c ---------------------------------------------------- */

void advisory_renew(advisory *adv, pawl_op *op);
void advisory_renew_cancel(pawl_op *op);
void advisory_inspect(advisory *adv, pawl_op *op); /* inspect, list, break */

/* ---- advisory.c ------------------------------------------------------------------------------ */

/* Releases without an answer: what has become of them nobody knows until the lease is over. */
#define ADVISORY_UNSURE 32

struct advisory {
    sql sql;                /* first; sql.link is for inspect */
    advisory_session *sessions;
    int nsessions;
    struct list line;       /* those who wait in the client */
    bool serving;
    uint64_t turns;
    struct {
        uint64_t seq;
        int64_t until;
    } unsure[ADVISORY_UNSURE];
    int next_unsure;
    pawl_timer quiet;       /* sql.link is closed then */
    bool keeps_session;     /* said so: pooler=session */
    char who[400];          /* PID HOST PROGRAM LABEL, in hex but the pid */
    char plain[64];         /* the same to read, as far as there is room */
    char text[ADVISORY_TEXT];
};

extern const sql_driver advisory_driver;

int advisory_open(advisory *adv, pawl_env *env, const pawl_url *url, pawl_error *err);
void advisory_close(advisory *adv);
void advisory_submit(advisory *adv, pawl_op *op);
void advisory_cancel(advisory *adv, pawl_op *op);
/* The session with the grant of that owner, or NULL. */
advisory_session *advisory_session_find(advisory *adv, uint64_t seq, int mode);
/* A release got no answer; the server keeps the session until then at the latest. */
void advisory_unsure(advisory *adv, uint64_t seq, int64_t until);
/* A call on the connection for inspect, which is opened for it. */
sql_link *advisory_link(advisory *adv);

#endif
