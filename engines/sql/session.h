/* SPDX-License-Identifier: Apache-2.0
 *
 * session.h - the layouts whose lock is a lock of a server's session: layout=advisory of PostgreSQL
 * (pg_advisory_lock) and layout=session of MariaDB and MySQL (GET_LOCK).
 *
 *     sessions.c              the functions of the engine
 *     session_order.c         acquires that wait in the client
 *     session.c               one connection: acquire, release, loss
 *     session_leave.c         cancelling an acquire
 *     session_watch.c         waits whose connection has died silently
 *     session_renew.c         leases
 *     session_client_info.c   the client information in statements
 *
 * Everything here is the same for all servers. A server's *layout* (struct sql_layout) has the
 * statements: ../postgres/advisory*.c, ../mysql/userlock*.c.
 *
 * Such a lock belongs to a session, and the server grants the same lock again to the same session.
 * So each owner needs a connection of its own while the owner holds or waits: a *session*. (The one
 * exception: an owner that holds a name exclusively and also wants a shared grant gets the shared
 * grant on the same session.) There are at most `connections` sessions; an acquire that finds none
 * waits in the client.
 *
 * LEASES. The server ends a session that was idle for a time which each acquire and renewal sets to
 * the lease (PostgreSQL: idle_session_timeout; MariaDB, MySQL: wait_timeout). So a lease begins
 * anew when the server has carried out a statement, and ends by the server's clock, even if the
 * holder crashes. A waiting session is not idle; the server checks every 2 s (PostgreSQL) or every
 * second whether its client is still connected.
 *
 * A session that has a name exclusively and shared has one lease, the longer of the two. The core
 * releases a grant when the grant's own lease has ended (PAWL_CAP_OUTLASTS).
 *
 * TOKENS are made by the layout's statement, after the lock is granted.
 *
 * A lost connection is a lost lock. The only unknown outcome is a release without an answer: the
 * server may not have noticed yet that the connection is gone.
 */
#ifndef PAWL_SQL_SESSION_H
#define PAWL_SQL_SESSION_H

#include "sql.h"

#define SQL_SESSION_CAPS                                                                           \
    (PAWL_CAP_FENCE | PAWL_CAP_QUEUE | PAWL_CAP_LIST | PAWL_CAP_OUTLASTS |                         \
     PAWL_CAP_BREAKS_UNSEEN | PAWL_CAP_EXAMINE)
#define SQL_SESSION_TEXT 6000
#define SQL_FACT_MAX 40 /* bytes of host, program and label: servers cut long statements */

typedef struct sql_sessions sql_sessions;
typedef struct sql_session sql_session;

typedef void sql_say(const sql_session *s, sql_params *p);

/* The differences between the servers. The say_ functions write their statement to pool->text, and
 * set p->text. */
typedef struct sql_layout {
    const sql_driver *driver;
    const char *name;        /* of the layout in the URL */
    const char *kinds;       /* which kinds of locks the layout does not have, for errors */
    uint32_t caps;
    int64_t lease_max_ms;    /* the server's own limit */
    /* Answers: "WAITED BACKEND TOKEN NOW TOOK" (see session.c); NULL: the lock is taken; "ENDED":
     * an administrator has ended the wait. */
    void (*say_acquire)(const sql_session *s, int64_t lease_ms, sql_params *p);
    void (*say_release)(const sql_session *s, int mode, sql_params *p); /* "t": was held */
    void (*say_renew)(const sql_session *s, int64_t lease_ms, sql_params *p); /* the backend */
    /* Shows inspect a new s->timeout_ms, without waiting for other transactions; may be NULL. */
    sql_say *say_lease;
    void (*say_waits)(const sql_session *s, sql_params *p);  /* "t": waits in the server */
    const char *waiting; /* a statement: the backends that wait for such a lock, a row for each */
    void (*say_cancel)(const sql_session *s, sql_params *p);
    sql_say *say_tidy;       /* deletes old rows; may be NULL */
    const sql_call_type *inspection, *breaks; /* about: the op */
} sql_layout;

/* ---- layouts.c ------------------------------------------------------------------------------- */

/* The functions of an engine that has the tables and one layout with locks of sessions; the URL
 * decides. `self` has room for a struct sql_sessions. */
int sql_layouts_open(void *self, const sql_driver *tables, const sql_layout *layout, pawl_env *env,
                     const pawl_url *url, pawl_error *err);
void sql_layouts_close(void *self);
void sql_layouts_submit(void *self, pawl_op *op);
void sql_layouts_cancel(void *self, pawl_op *op);
uint32_t sql_layouts_caps(void *self);
bool sql_layouts_unfinished(void *self);

/* ---- session.c ------------------------------------------------------------------------------- */

/* Modes are PAWL_MODE_EXCLUSIVE and PAWL_MODE_SHARED, 0 and 1. */
struct sql_session {
    sql_link link;        /* first; closed: the session is free */
    sql_sessions *pool;
    char name[PAWL_NAME_MAX + 1];
    pawl_op *op;          /* an acquire, from its submit until its answer */
    sql_call *call;       /* the statement of op; NULL: answered, or given up */
    uint64_t seq[2];      /* owner.seq of the grants, by mode; 0: none */
    uint64_t token[2];
    int64_t since;        /* the server's time of the grant, Unix ms */
    int64_t promised;     /* the server does not end the idle session before this */
    int64_t timeout_ms;   /* the server ends the session after this time without a statement */
    pawl_timer timer; /* asking: check. Leaving: stop waiting for the server. Idle: close */
    sql_call *check;      /* asks, on sql.link, whether the statement waits in the server */
    int64_t check_ms;
    bool waits;           /* asking: the statement was seen to wait */
    bool tried;           /* asking: a try was refused; the current statement waits */
    int64_t missing;      /* asking: since when the wait is not seen in the server; 0: seen */
    int64_t backend;      /* the server's process or connection id */
    uint64_t base;        /* the layout's: added to tokens */
    uint64_t turn;        /* grows: the session with the largest turn became idle last */
    int leaving;          /* unlocks of cancelled acquires without an answer */
    sql_call *cancel;     /* asks the server, on sql.link, to cancel the waiting statement */
    int releasing;        /* releases without an answer */
};

void sql_session_init(sql_session *s, sql_sessions *pool);
bool sql_session_idle(const sql_session *s);
/* The op belongs to the session until the op is done. */
void sql_session_acquire(sql_session *s, pawl_op *op);
void sql_session_release(sql_session *s, pawl_op *op);
/* Cancel a release. */
void sql_session_release_cancel(pawl_op *op);
/* Send a statement of the layout, if the layout has this one. Its outcome does not matter. */
void sql_session_send_optional(sql_session *s, sql_say *const *say);
/* If nothing is under way on the session, make the session available to the next acquire. */
void sql_session_check_idle(sql_session *s);
static inline bool sql_session_holds(const sql_session *s)
{
    return s->seq[0] || s->seq[1];
}
static inline sql_session *sql_session_of(const sql_call *call)
{
    return (sql_session *)(void *)call->on;
}
/* Complete the op of the session, if there is one. */
void sql_session_finish(sql_session *s, int code, const char *words);
void sql_session_set_timer(sql_session *s, int64_t ms);

/* ---- session_leave.c ------------------------------------------------------------------------- */

/* The time limit of a statement that waits for a lock. */
#define SQL_SESSION_WAIT_MS (INT64_C(1000) * 86400 * 365)

/* Cancel the session's acquire. */
void sql_session_cancel(sql_session *s);
/* Unlock after a cancelled or failed acquire in this mode. The acquire's statement was sent. */
void sql_session_undo(sql_session *s, int mode);

/* ---- session_client_info.c ------------------------------------------------------------------- */

/* Set the client information for the statements: pool->pid, host, program and label. */
void sql_sessions_set_client_info(sql_sessions *pool);
/* Write the bytes, at most `most`, in hex, and return the length of the text. */
size_t sql_session_hex(char *to, size_t room, const char *bytes, size_t most);
/* Write a comment about the lock and the client to pool->text, and return its length:
 *     pawl NAME LEASE SINCE PID HOST PROGRAM LABEL
 * Texts are in hex, empty texts "-". SINCE is the server's Unix time in ms, or 0. */
size_t sql_session_comment(const sql_session *s, int64_t lease_ms, int64_t since);

/* ---- session_order.c ------------------------------------------------------------------------- */

/* Enqueue the op in the client; the op gets a session in its turn. */
void sql_sessions_order_enter(sql_sessions *pool, pawl_op *op);
void sql_sessions_order_leave(pawl_op *op);
/* Give the op a session at once. False: there is none. */
bool sql_sessions_order_pass(sql_sessions *pool, pawl_op *op);
/* Serve the queue: a session is free, or a statement has begun to wait in the server. */
void sql_sessions_serve(sql_sessions *pool);
/* The server has refused a try of this name: all ops for this name wait. */
void sql_sessions_order_refused(sql_sessions *pool, const char *name);
/* Ask the server whether the session's statement waits there. */
void sql_session_check_waiting(sql_session *s);

/* ---- session_watch.c ------------------------------------------------------------------------- */

/* A statement waits in the server: check from time to time that the server still has the wait. */
void sql_sessions_watch(sql_sessions *pool);
void sql_sessions_watch_init(sql_sessions *pool);

/* ---- session_renew.c ------------------------------------------------------------------------- */

void sql_sessions_renew(sql_sessions *pool, pawl_op *op);
void sql_sessions_renew_cancel(pawl_op *op);

/* ---- sessions.c ------------------------------------------------------------------------------ */

/* The number of releases without an answer that are kept, until their lease is over. */
#define SQL_SESSIONS_UNSURE 32

struct sql_sessions {
    sql sql;                /* first; sql.link is for inspect */
    sql_session *sessions;
    int nsessions;
    struct list order;      /* ops that wait in the client */
    bool serving;
    uint64_t turns;
    struct {
        uint64_t seq;
        int64_t until;
    } unsure[SQL_SESSIONS_UNSURE];
    int next_unsure;
    pawl_timer quiet;       /* closes sql.link */
    pawl_timer watch;       /* asks which statements wait in the server */
    sql_call *watching;     /* that question, until its answer */
    int64_t tidied;         /* when the last say_tidy was sent */
    bool keeps_session;     /* the URL has pooler=session */
    bool told_right;        /* sql_sessions_tell_right has logged its line */
    long long pid;          /* of this client, with the facts in the next line */
    char host[SQL_FACT_MAX + 1], program[SQL_FACT_MAX + 1], label[SQL_FACT_MAX + 1];
    char plain[64];         /* room for a parameter of a statement */
    char text[SQL_SESSION_TEXT];
};

int sql_sessions_open(sql_sessions *pool, const sql_layout *layout, pawl_env *env,
                      const pawl_url *url, pawl_error *err);
void sql_sessions_close(sql_sessions *pool);
void sql_sessions_submit(sql_sessions *pool, pawl_op *op);
void sql_sessions_cancel(sql_sessions *pool, pawl_op *op);
/* The session with the grant of that owner, or NULL. */
sql_session *sql_session_find(sql_sessions *pool, uint64_t seq, int mode);
/* A release got no answer; the server keeps the session until `until` at the latest. */
void sql_sessions_unsure(sql_sessions *pool, uint64_t seq, int64_t until);
/* Inspect does not see sessions of other users: log, once, which right is missing, and what is not
 * shown. */
void sql_sessions_tell_right(sql_sessions *pool, const char *grant, const char *effect);
/* Open the connection for inspect, unless it is open, and return the link. */
sql_link *sql_sessions_link(sql_sessions *pool);
static inline sql_sessions *sql_sessions_of(const sql_call *call)
{
    return (sql_sessions *)(void *)call->on->sql;
}

#endif
