/* SPDX-License-Identifier: Apache-2.0
 *
 * advisory.h - layout=advisory: PostgreSQL's session advisory locks as the lock itself, shared with
 * every program that calls pg_advisory_lock(). No tables.
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
 * An advisory lock belongs to a session, and the server grants the same lock again to the same
 * session. So each owner needs a connection of its own while the owner holds or waits: a *session*.
 * (The one exception: an owner that holds a name exclusively and also wants a shared grant gets the
 * shared grant on the same session.) There are at most `connections` sessions; an acquire that
 * finds none waits in the client.
 *
 * LEASES. The server ends a session that was idle for idle_session_timeout, which each acquire and
 * renewal sets to the lease. So a lease begins anew when the server has carried out a statement,
 * and ends by the server's clock, even if the holder crashes. A waiting session is not idle; every
 * 2 s the server checks whether the client is still connected (client_connection_check_interval).
 *
 * A session that has a name exclusively and shared has one lease, the longer of the two. The core
 * releases a grant when the grant's own lease has ended (PAWL_CAP_OUTLASTS).
 *
 * TOKENS. A token is the number of a transaction that ran after the lock was granted; the higher
 * bits are the server's timeline, which grows with each promotion of a standby. The transaction
 * writes an empty message to the write-ahead log: else the server would not flush the commit to the
 * disk before answering, and would use the same number again after a crash.
 *
 * A lost connection is a lost lock. The only unknown outcome is a release without an answer: the
 * server may not have noticed yet that the connection is gone.
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

/* A key as in pg_locks: the halves of a bigint, or two integers. */
typedef struct advisory_key {
    uint32_t high, low;
    bool pair;
} advisory_key;

/* Call before any other function of this section. */
void advisory_key_init(pawl_env *env);
advisory_key advisory_key_of(const char *name);
/* The key as an argument of the server's functions: "'42'::bigint". */
void advisory_key_words(advisory_key key, char words[64]);
/* The key as a name in plain numbers. */
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
    pawl_op *op;          /* an acquire, from its submit until its answer */
    sql_call *call;       /* the statement of op; NULL: answered, or given up */
    uint64_t seq[2];      /* owner.seq of the grants, by mode; 0: none */
    uint64_t token[2];
    int64_t since;        /* the server's time of the grant, Unix ms */
    int64_t promised;     /* the server does not end the idle session before this */
    int64_t timeout_ms;   /* the session's idle_session_timeout */
    pawl_timer timer; /* asking: check. Leaving: stop waiting for the server. Idle: close */
    sql_call *check;      /* asks, on sql.link, whether the statement waits in the server */
    int64_t check_ms;
    bool waits;           /* asking: the statement was seen to wait */
    bool tried;           /* asking: a try was refused; the current statement waits */
    int backend;          /* the server's process */
    uint64_t base;        /* added to tokens: the timeline */
    uint64_t turn;        /* grows: the session with the largest turn became idle last */
    int leaving;          /* unlocks of cancelled acquires without an answer */
    sql_call *cancel;     /* asks the server, on sql.link, to cancel the waiting statement */
    int releasing;        /* releases without an answer */
};

void advisory_session_init(advisory_session *s, advisory *adv);
bool advisory_session_idle(const advisory_session *s);
/* The op belongs to the session until the op is done. */
void advisory_session_acquire(advisory_session *s, pawl_op *op);
void advisory_session_release(advisory_session *s, pawl_op *op);
/* Cancel a release. */
void advisory_session_release_cancel(pawl_op *op);
/* If nothing is under way on the session, make the session available to the next acquire. */
void advisory_session_check_idle(advisory_session *s);
static inline bool advisory_session_holds(const advisory_session *s)
{
    return s->seq[0] || s->seq[1];
}
static inline advisory_session *advisory_session_of(const sql_call *call)
{
    return (advisory_session *)(void *)call->on;
}
/* Complete the op of the session, if there is one. */
void advisory_session_finish(advisory_session *s, int code, const char *words);
void advisory_session_set_timer(advisory_session *s, int64_t ms);

/* ---- advisory_leave.c ------------------------------------------------------------------------ */

/* The time limit of a statement that waits for a lock. */
#define ADVISORY_WAIT_MS (INT64_C(1000) * 86400 * 365)

/* Cancel the session's acquire. */
void advisory_session_cancel(advisory_session *s);
/* Unlock after a cancelled or failed acquire in this mode. The acquire's statement was sent. */
void advisory_session_undo(advisory_session *s, int mode);

/* ---- advisory_say.c -------------------------------------------------------------------------- */

/* Each function writes its statement to adv->text, and sets p->text. */
void advisory_say_acquire(const advisory_session *s, int64_t lease_ms, sql_params *p);
void advisory_say_release(const advisory_session *s, int mode, sql_params *p);
void advisory_say_renew(const advisory_session *s, int64_t lease_ms, sql_params *p);
void advisory_say_waits(const advisory_session *s, sql_params *p);
void advisory_say_cancel(const advisory_session *s, sql_params *p);
void advisory_say_break(advisory *adv, advisory_key key, sql_params *p);
void advisory_say_inspect(advisory *adv, const advisory_key *key, sql_params *p); /* NULL: all */
/* Set the client information for the statements: adv->who and adv->plain. */
void advisory_who(advisory *adv);

/* ---- advisory_line.c ------------------------------------------------------------------------- */

/* Enqueue the op in the client; the op gets a session in its turn. */
void advisory_line_enter(advisory *adv, pawl_op *op);
void advisory_line_leave(pawl_op *op);
/* Give the op a session at once. False: there is none. */
bool advisory_line_pass(advisory *adv, pawl_op *op);
/* Serve the queue: a session is free, or a statement has begun to wait in the server. */
void advisory_serve(advisory *adv);
/* The server has refused a try of this key: all ops for this key wait. */
void advisory_line_refused(advisory *adv, advisory_key key);
/* Ask the server whether the session's statement waits there. */
void advisory_session_check_waiting(advisory_session *s);

/* ---- advisory_greet.c ------------------------------------------------------------------------ */

extern const char *const advisory_greeting[];
bool advisory_greeted(sql_link *link, const sql_reply *reply);

/* ---- advisory_renew.c, advisory_inspect.c ---------------------------------------------------- */

void advisory_renew(advisory *adv, pawl_op *op);
void advisory_renew_cancel(pawl_op *op);
void advisory_inspect(advisory *adv, pawl_op *op); /* inspect, list, break */

/* ---- advisory.c ------------------------------------------------------------------------------ */

/* The number of releases without an answer that are kept, until their lease is over. */
#define ADVISORY_UNSURE 32

struct advisory {
    sql sql;                /* first; sql.link is for inspect */
    advisory_session *sessions;
    int nsessions;
    struct list line;       /* ops that wait in the client */
    bool serving;
    uint64_t turns;
    struct {
        uint64_t seq;
        int64_t until;
    } unsure[ADVISORY_UNSURE];
    int next_unsure;
    pawl_timer quiet;       /* closes sql.link */
    bool keeps_session;     /* the URL has pooler=session */
    char who[400];          /* PID HOST PROGRAM LABEL, the texts in hex */
    char plain[64];         /* the same in plain text, cut to fit */
    char text[ADVISORY_TEXT];
};

extern const sql_driver advisory_driver;

int advisory_open(advisory *adv, pawl_env *env, const pawl_url *url, pawl_error *err);
void advisory_close(advisory *adv);
void advisory_submit(advisory *adv, pawl_op *op);
void advisory_cancel(advisory *adv, pawl_op *op);
/* The session with the grant of that owner, or NULL. */
advisory_session *advisory_session_find(advisory *adv, uint64_t seq, int mode);
/* A release got no answer; the server keeps the session until `until` at the latest. */
void advisory_unsure(advisory *adv, uint64_t seq, int64_t until);
/* Open the connection for inspect, unless it is open, and return the link. */
sql_link *advisory_link(advisory *adv);

#endif
