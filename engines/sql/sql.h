/* SPDX-License-Identifier: Apache-2.0
 *
 * sql.h - the engines on SQL servers, inside.
 *
 *     sql.c       the engine's slots, and what belongs to no op: events, clock, entry, the listener
 *     settings.c  what the URL says
 *     link.c      one connection: its life, and the calls on it
 *     greet.c     its first words, and making the tables where they are missing
 *     waiters.c   acquire: the ops that may wait, and the messages they wait for
 *     ops.c       release, renew, break, latch
 *     inspect.c   inspect, count and list
 *     examine.c   what is wrong with the server
 *
 * One design for all servers. The rules (who gets a lock, who is told) are functions in the
 * database, one per request, written once in each server's language (postgres/schema.sql,
 * mysql/schema.sql) over the same tables; docs/sql.md has both. So a request is one statement, one
 * round trip and one transaction, and a client that is stopped leaves nothing locked. Requests and
 * replies are the same everywhere; a *driver* (postgres/, mysql/) knows the client library: how to
 * connect, send a prepared statement, and say what an error means.
 *
 * A *call* is one statement on its way. The link has those that are out, in the order they were
 * sent, and a backlog. Whoever made a call may lose interest (call->about = NULL); the answer is
 * then dropped. A connection is never used again after anything unexpected, or too long nothing.
 *
 * All calls of a client share one connection, so no statement may wait there for a row that
 * somebody else's transaction has locked. Each waits at most 100 ms (`patient`), and not at all
 * while another call of this link has found its row locked. A call that finds its row locked is
 * *parked*: the link sends it again later, and sends the others meanwhile. Renewals and releases
 * (`urgent`) go before everything else in the backlog.
 *
 * Messages (a grant, a new front of the queue) come on the main link where the server can push
 * (PostgreSQL: NOTIFY), else on a second one, the *listener*, which is open only while there is
 * something to hear. A message is a hint that carries its own proof: the server's time of what it
 * tells.
 *
 * Everything under the client's mutex. Nothing here blocks; the only other threads are those that
 * resolve names.
 */
#ifndef PAWL_SQL_H
#define PAWL_SQL_H

#include <uv.h>

#include "engine.h"
#include "list.h"
#include "net/net.h"

#define SQL_WORDS 224
#define SQL_PREFIX_MAX 40
#define SQL_OWNER_MAX 40
#define SQL_PARAMS_MAX 13
#define SQL_SCHEMA_MAX 150 /* 63 bytes, each perhaps doubled, in quotes */
#define SQL_ROWS_MAX 50000  /* of one answer */
#define SQL_ROWS_TEXT "50000"

typedef struct sql sql;
typedef struct sql_link sql_link;
typedef struct sql_call sql_call;
typedef struct sql_waiter sql_waiter;

/* ---- settings.c ------------------------------------------------------------------------------ */

/* How much of TLS: the words of libpq's sslmode. */
enum sql_tls { SQL_TLS_DISABLE, SQL_TLS_PREFER, SQL_TLS_REQUIRE, SQL_TLS_CHAIN, SQL_TLS_FULL };

typedef struct sql_settings {
    net_addresses hosts;    /* tried in order; or a socket's path (PostgreSQL: its folder) */
    net_login login;        /* NULL: the library's default, and what its usual files say */
    net_tls_settings files; /* of these the files alone */
    char *db;               /* NULL: the library's default */
    char prefix[SQL_PREFIX_MAX + 1]; /* of the tables; may have a schema and a dot before it */
    enum sql_tls tls;
    bool pooled;     /* behind a pooler that keeps no session: no messages, nothing prepared */
    bool cleartext;  /* the password may go out so that the server's side can read it */
    char owner[SQL_PREFIX_MAX + 1]; /* of the tables, if it is somebody to be trusted; or "" */
} sql_settings;

struct sql_driver;
int sql_settings_read(sql_settings *s, const struct sql_driver *driver, const pawl_env *env,
                      const pawl_url *url, pawl_error *err);
/* Wipes what is secret. Accepts zeroes. */
void sql_settings_free(sql_settings *s);
/* The text with '@' replaced by the qualified prefix, $TABLE by the bare one, $SCHEMA by the schema
 * as a string, $OWNER, $CLIENT and $ROWS; for the caller to free. */
char *sql_expand(const sql *q, const char *text);
/* Where the tables are: as an identifier and as a string of the server's language, which is used
 * unless the prefix has a schema of its own. 0 or PAWL_ENOMEM. */
int sql_set_schema(sql *q, const char *name, const char *quoted);

/* ---- statements ------------------------------------------------------------------------------ */

enum sql_statement {
    SQL_ACQUIRE, SQL_RELEASE, SQL_RENEW, SQL_BREAK, SQL_LATCH, SQL_ENTRY, SQL_INSPECT, SQL_HEAR,
    SQL_EXAMINE, SQL_STATEMENTS
};

typedef struct sql_param {
    enum { SQL_INT, SQL_TEXT, SQL_BYTES } type;
    int64_t number;
    const char *text;
    size_t length;
} sql_param;

typedef struct sql_params {
    sql_param list[SQL_PARAMS_MAX];
    int n;
    const char *text; /* not NULL: this instead of the call's statement, and not prepared */
    char owner[SQL_OWNER_MAX], other[SQL_OWNER_MAX]; /* room for what is made up on the way */
} sql_params;

void sql_add_int(sql_params *p, int64_t number);
void sql_add_text(sql_params *p, const char *text);
void sql_add_bytes(sql_params *p, const char *bytes, size_t length);

/* What came back. Cells are text; NULL: the server's NULL, or no such cell. */
typedef struct sql_reply {
    size_t rows;
    const char *(*cell)(const struct sql_reply *reply, size_t row, int column);
    void *data; /* the driver's */
} sql_reply;

/* What an error of the server's means for who asked. */
enum sql_sense {
    SQL_REFUSED,   /* it can't be done; the code says why */
    SQL_AGAIN,     /* it was not done, but may be if it is asked again: deadlock ... */
    SQL_BLOCKED,   /* it was not done: somebody has a row locked */
    SQL_ELSEWHERE, /* it was not done, and this server does not do such things: read only */
    SQL_MISSING,   /* it was not done: a table or function is not there */
    SQL_BROKEN     /* the connection is gone: nobody knows */
};

typedef struct sql_fault {
    enum sql_sense sense;
    int code;      /* PAWL_E... */
    char words[SQL_WORDS];
} sql_fault;

/* ---- calls and links: link.c ----------------------------------------------------------------- */

typedef struct sql_call_type {
    enum sql_statement statement;
    bool urgent;   /* goes before others in the backlog */
    void (*fill)(const sql_call *call, sql_params *p);
    /* It was answered. Return false if the answer makes no sense. */
    bool (*answer)(sql_call *call, const sql_reply *reply);
    /* It was not: PAWL_EUNKNOWN it was sent and nothing came; else it was not carried out. */
    void (*failed)(sql_call *call, int code, const char *words);
} sql_call_type;

struct sql_call {
    struct list link;  /* in its link's calls or backlog */
    const sql_call_type *type;
    sql_link *on;
    void *about;       /* the maker's; NULL: nobody wants the answer */
    int64_t sent;      /* an instant before it was sent; 0: it was not */
    int64_t limit_ms;  /* how long the answer may take */
    int tries;         /* how often the server asked for it again */
    int64_t parked;    /* when it was parked for the first time; 0: never */
    int64_t pause_ms;  /* the latest pause */
    int64_t due;       /* parked: when it is sent again */
};

enum sql_link_state {
    LINK_CLOSED,     /* for good, or not wanted now */
    LINK_PAUSED,     /* will try again at link->timer */
    LINK_RESOLVING,
    LINK_CONNECTING,
    LINK_GREETING,   /* the first words */
    LINK_READY
};

struct sql_link {
    sql *sql;
    pawl_env *env;
    const char *const *greeting; /* the first words of this link: up to a NULL, and, when the
                                    tables are there, up to another */
    /* Ready, before the backlog is sent. And: it has dropped, its calls have failed. refused: the
     * code, if trying again can't help; the backlog has failed, too. Either may be NULL. */
    void (*on_ready)(sql_link *link);
    void (*on_drop)(sql_link *link, int refused);
    enum sql_link_state state;
    void *conn;            /* the driver's connection */
    int fd, events;        /* what is watched, and for what */
    uv_poll_t *poll;
    struct list calls;     /* out, in order */
    struct list backlog;   /* not sent yet */
    struct list parked;    /* not sent again yet: their rows were locked */
    pawl_timer park_timer; /* when the first of them is due */
    pawl_timer timer;      /* PAUSED: its end. READY: the first call's limit. Else: the attempt's */
    net_resolve resolve;
    unsigned at;           /* which of the hosts */
    struct addrinfo *addresses, *next_address;
    int64_t attempt_ends;
    int step;              /* greet.c */
    char *making;          /* greet.c: what makes the tables, and how far that has come */
    char *made;
    uint32_t failures;     /* attempts since a call was answered */
    uint64_t epochs;       /* how often it was ready */
    bool prepared[SQL_STATEMENTS]; /* the driver's */
    bool leaving;          /* the server said that it is of no use: dropped when nothing is out */
    int last_code;         /* why it is not ready */
    char words[SQL_WORDS];
};

void sql_link_init(sql_link *link, sql *q, const char *const *greeting);
/* Begins to connect; a no-op if it has. */
void sql_link_open(sql_link *link);
/* Fails what is on it with PAWL_ECANCELED; it may be opened again. Accepts zeroes. */
void sql_link_close(sql_link *link);
/* A new call, to be sent by sql_link_send. NULL: no memory. */
sql_call *sql_call_new(sql_link *link, const sql_call_type *type, void *about);
/* The call is the link's now. Whoever keeps a pointer to it does so before: it may fail at once. */
void sql_link_send(sql_link *link, sql_call *call);
/* Take back a call that was not sent yet. False: it was. */
bool sql_call_withdraw(sql_call *call);
/* May the statement of this call wait for a row lock, for a moment? */
bool sql_call_patient(const sql_call *call);
/* The connection is of no use: close it, and try again in a while. */
__attribute__((format(printf, 3, 4)))
void sql_link_drop(sql_link *link, int code, const char *format, ...);

/* The host that it is at. */
const net_address *sql_link_host(const sql_link *link);

/* For drivers: what has happened. */
void sql_link_watch(sql_link *link, int fd, int events);
void sql_link_unwatch(sql_link *link);
void sql_link_connected(sql_link *link);
/* What was asked by driver->query is answered; fault: or not. */
void sql_link_greeted(sql_link *link, const sql_reply *reply, const sql_fault *fault);
/* The oldest call is answered. The link may be gone afterwards: link->state. */
void sql_link_answered(sql_link *link, const sql_reply *reply, const sql_fault *fault);

/* ---- greet.c --------------------------------------------------------------------------------- */

/* Say the next words. 1: there are none. */
int sql_greet(sql_link *link);
/* They were answered. 1: that was the last; else more follow, or the link has dropped. */
int sql_greet_answer(sql_link *link, const sql_reply *reply, const sql_fault *fault);

/* ---- drivers --------------------------------------------------------------------------------- */

typedef struct sql_driver {
    const char *scheme;
    const char *product;     /* "PostgreSQL" */
    uint16_t port;
    bool can_pool;           /* the parameter `pooler` makes sense */
    bool own_listener;       /* messages need a link of their own */
    bool resolves;           /* `start` does, without blocking; it gets no address */
    const char *const *statements; /* by enum sql_statement; '@' is the prefix */
    const char *const *greeting, *const *pooled_greeting, *const *listener_greeting;
    const char *version;     /* asks for the version of the tables; NULL: there are none */
    const char *lock, *unlock; /* so that only one makes them */
    const char *here;        /* the schema of a bare prefix, as an expression */
    const char *check;       /* a row: what is wrong with tables and functions, or with this user's
                                rights; none: nothing is. Asked before any of them is used */
    const char *examine;     /* EXAMINE without tables; else there is statements[SQL_EXAMINE] */
    const char *schema;      /* makes them; a line ";;" where the server takes one at a time */

    /* Begin to connect; `address` is numeric, or NULL: settings->host is a path. 0 or a code. */
    int (*start)(sql_link *link, const char *address);
    /* The socket is ready, or time has passed: go on. */
    void (*ready)(sql_link *link, int events);
    /* Send a text as it is, one at a time; only while greeting. 0 or a code. */
    int (*query)(sql_link *link, const char *text);
    /* Send a call. 0; 1: not now, there is no room; or a code. */
    int (*send)(sql_link *link, sql_call *call);
    /* Let go of the connection. */
    void (*end)(sql_link *link);
    /* The first words were answered so. False: the link has dropped. May be NULL. */
    bool (*greeted)(sql_link *link, const sql_reply *reply);
} sql_driver;

/* ---- sql.c ----------------------------------------------------------------------------------- */

struct sql {
    pawl_env *env;
    const sql_driver *driver;
    sql_settings settings;
    sql_link link, listener;
    char *texts[SQL_STATEMENTS]; /* the driver's, with the prefix */
    char client[20];       /* this client's id, in hex */
    char place[SQL_SCHEMA_MAX + SQL_PREFIX_MAX + 2]; /* the prefix, qualified */
    char schema[SQL_SCHEMA_MAX]; /* as a string of the server's language */
    pawl_op *event;
    int pending_event;     /* an event that came while no EVENT op was out */
    pawl_broken broken;    /* breaks of our grants that no EVENT has reported yet */
    unsigned served_by;    /* which of the hosts was the latest */
    pawl_timer entry_timer, listener_timer;
    struct list waiters;   /* in order of arrival */
    sql_waiter **table;    /* by owner.seq */
    size_t nwaiters, table_room;
    bool closing;
    char *refusals;        /* greet.c: all that was wrong at the last greeting, in lines; or NULL */
    char heard[1100];      /* ids of messages that can be forgotten */
    size_t held;           /* grants that were not given back, as far as this engine saw */
    /* server time `clock_server` (ms) was not before local `clock_local` (ns; 0: nothing known);
     * see sql_since */
    int64_t clock_server, clock_local;
};

/* Of every engine on SQL: its slots, around a driver. */
int sql_open(sql *q, const sql_driver *driver, pawl_env *env, const pawl_url *url,
             pawl_error *err);
void sql_close(void *self);
void sql_submit(void *self, pawl_op *op);
void sql_cancel(void *self, pawl_op *op);
#define SQL_CAPS                                                                                   \
    (PAWL_CAP_FENCE | PAWL_CAP_QUEUE | PAWL_CAP_RANGE | PAWL_CAP_SHARED | PAWL_CAP_PERMITS |       \
     PAWL_CAP_LATCH | PAWL_CAP_LINGER | PAWL_CAP_LIST | PAWL_CAP_FLOOR |      \
     PAWL_CAP_EXAMINE)

void sql_event(sql *q, int event);
void sql_submit_event(sql *q, pawl_op *op);
/* A message arrived. */
void sql_message(sql *q, const char *text);
/* Do messages reach this client? */
bool sql_hears(const sql *q);
/* There is something to listen for. */
void sql_want_listener(sql *q);
/* "CLIENT:SEQ" as the functions know it. */
void sql_owner(char text[SQL_OWNER_MAX], uint64_t client, uint64_t seq);
/* So long that it never ends, without an overflow in the server. */
static inline int64_t sql_lease(int64_t ms)
{
    return ms < INT64_C(100000000000000) ? ms : INT64_C(100000000000000);
}
/* A reply to `call` carried the server's time. */
void sql_clock_set(sql *q, const sql_call *call, int64_t server_ms);
/* An instant of the local clock that is not after the server's time `server_ms`. */
int64_t sql_since(sql *q, int64_t server_ms);

/* ---- waiters.c, ops.c, inspect.c ------------------------------------------------------------- */

void sql_acquire(sql *q, pawl_op *op);
void sql_acquire_cancel(sql *q, pawl_op *op);
void sql_waiters_resend(sql *q);
void sql_waiters_refuse(sql *q, int code, const char *words);
void sql_waiters_end(sql *q);
void sql_waiter_message(sql *q, uint64_t seq, char kind, const char *text);

void sql_simple(sql *q, pawl_op *op); /* release, renew, break, latch */
void sql_inspect(sql *q, pawl_op *op); /* inspect, count, list */
void sql_examine(sql *q, pawl_op *op);
/* The rows of inspect.c, to whoever inspects or lists. */
int sql_show(pawl_op *op, const sql_reply *reply);
/* Of the rows from here on a part may be missing: the answer was cut. */
static inline bool sql_cut(const sql_reply *reply)
{
    return reply->rows >= SQL_ROWS_MAX;
}
/* Either of them. */
void sql_give_up(sql *q, pawl_op *op);
void sql_done(pawl_op *op, int code, const char *words);
/* op->engine[0] is the call. */
void sql_start(sql *q, pawl_op *op, const sql_call_type *type);

#endif
