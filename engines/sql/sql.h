/* SPDX-License-Identifier: Apache-2.0
 *
 * sql.h - the engines on SQL servers, inside.
 *
 *     sql.c       the engine's functions, events, the clock, the client information, the
 *                 listener
 *     settings.c  the settings in the URL
 *     link.c      one connection, and the calls on it; on top of ../kit/link.c
 *     greet.c     the greeting of a connection, and creating the tables if they are missing
 *     waiters.c   acquire: the ops that may wait, and the messages that answer them
 *     ops.c       release, renew, break, latch
 *     inspect.c   inspect, count and list
 *     examine.c   EXAMINE: defects of the server
 *     layouts.c   the parameter `layout`: the tables, or locks of sessions (session.h)
 *
 * One design serves all servers. The rules (which owner gets a lock, which client is notified) are
 * functions in the database, one per request, written once in each server's language
 * (postgres/schema.sql, mysql/schema.sql) over the same tables; docs/sql.md describes both. So a
 * request is one statement, one round trip and one transaction, and a client that is stopped leaves
 * nothing locked. Requests and replies are the same for all servers. A *driver* (postgres/, mysql/)
 * wraps the client library: how to connect, how to send a prepared statement, how to classify an
 * error.
 *
 * A *call* is one statement on its way. The link has a list of the calls that were sent, in order,
 * and a backlog. If the caller gives a call up (call->about = NULL), the link discards the answer.
 * A connection is never used again after an unexpected answer or a timeout.
 *
 * All calls of a client share one connection, so no statement may wait long there for a row that
 * another transaction has locked. One call at a time may wait (`patient`), for 100 ms, or 200 ms if
 * a third session waits for the row, and none while a row stays locked for longer. A call that
 * finds its row locked is *parked*: the link sends the call again later, and sends other calls
 * meanwhile. Renewals and releases (`urgent`) go before everything else in the backlog.
 *
 * Messages (a grant, a new front of the queue) come on the main link if the server can push
 * (PostgreSQL: NOTIFY), else on a second link, the *listener*, which is open only while a message
 * can be expected. A grant in a message counts from the server's time in the message. PostgreSQL
 * lets everybody who is connected send messages, so there a message is only a hint to ask the
 * tables.
 *
 * Everything runs under the client's mutex. Nothing here blocks; the only other threads are the
 * ones that resolve host names.
 */
#ifndef PAWL_SQL_H
#define PAWL_SQL_H

#include <uv.h>

#include "engine.h"
#include "kit/link.h"
#include "kit/waiter.h"

#define SQL_WORDS NET_WORDS
#define SQL_PREFIX_MAX 40
#define SQL_OWNER_MAX 40
#define SQL_PARAMS_MAX 13
#define SQL_SCHEMA_MAX 150 /* 63 bytes, each perhaps doubled, in quotes */
#define SQL_ROWS_MAX 50000  /* rows of one answer */
#define SQL_ROWS_TEXT "50000"
#define SQL_BYTES_MAX (64 << 20) /* bytes of one answer */
#define SQL_VERSION 2 /* of the tables and functions in the database */
#define SQL_VERSION_TEXT "2"

typedef struct sql sql;
typedef struct sql_link sql_link;
typedef struct sql_call sql_call;
typedef struct sql_waiter sql_waiter;

/* ---- settings.c ------------------------------------------------------------------------------ */

/* How TLS is used: the values of libpq's sslmode. */
enum sql_tls { SQL_TLS_DISABLE, SQL_TLS_PREFER, SQL_TLS_REQUIRE, SQL_TLS_CHAIN, SQL_TLS_FULL };

typedef struct sql_settings {
    net_addresses hosts;    /* tried in order; or a socket's path (PostgreSQL: its folder) */
    net_login login;        /* NULL: the library's default, and its usual files */
    net_tls_settings files; /* only the file names are used */
    char *db;               /* NULL: the library's default */
    char prefix[SQL_PREFIX_MAX + 1]; /* of the tables; may be "schema.prefix" */
    enum sql_tls tls;
    bool pooled;     /* behind a pooler without sessions: no messages, no prepared statements */
    bool cleartext;  /* the password may be sent so that the server can read it */
    char owner[SQL_PREFIX_MAX + 1]; /* owner= of the URL: a trusted owner of the tables; or "" */
} sql_settings;

struct sql_driver;
int sql_settings_read(sql_settings *s, const struct sql_driver *driver, const pawl_env *env,
                      const pawl_url *url, pawl_error *err);
/* Wipes the secrets. Accepts zeroes. */
void sql_settings_free(sql_settings *s);
/* The text with '@' replaced by the qualified prefix, $TABLE by the bare prefix, $SCHEMA by the
 * schema as a string, and $OWNER, $CLIENT and $ROWS by their values. The caller frees the text. */
char *sql_expand(const sql *q, const char *text);
/* Set the schema of the tables, as an identifier and as a string of the server's language. The
 * schema is ignored if the prefix names one. 0 or PAWL_ENOMEM. */
int sql_set_schema(sql *q, const char *name, const char *quoted);

/* ---- statements ------------------------------------------------------------------------------ */

enum sql_statement {
    SQL_ACQUIRE, SQL_RELEASE, SQL_RENEW, SQL_BREAK, SQL_LATCH, SQL_CLIENT_INFO, SQL_INSPECT,
    SQL_HEAR, SQL_EXAMINE, SQL_STATEMENTS
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
    const char *text; /* not NULL: sent, unprepared, instead of the call's statement */
    char owner[SQL_OWNER_MAX], other[SQL_OWNER_MAX]; /* room for owners built by fill */
} sql_params;

void sql_add_int(sql_params *p, int64_t number);
void sql_add_text(sql_params *p, const char *text);
void sql_add_bytes(sql_params *p, const char *bytes, size_t length);

/* The rows of an answer. Cells are text; NULL: the server's NULL, or no such cell. */
typedef struct sql_reply {
    size_t rows;
    const char *(*cell)(const struct sql_reply *reply, size_t row, int column);
    void *data; /* the driver's */
} sql_reply;

/* How the caller has to treat an error of the server. */
enum sql_sense {
    SQL_REFUSED,   /* the request can't be carried out; the code says why */
    SQL_AGAIN,     /* not carried out, but a retry may succeed: deadlock ... */
    SQL_BLOCKED,   /* not carried out: another transaction has a row locked */
    SQL_ELSEWHERE, /* not carried out, and this server can't: read only */
    SQL_MISSING,   /* not carried out: a table or function does not exist */
    SQL_BROKEN     /* the connection is gone: the outcome is unknown */
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
    bool optional; /* a refusal is no reason to leave the server */
    void (*fill)(const sql_call *call, sql_params *p);
    /* The call was answered. Return false if the answer makes no sense. */
    bool (*answer)(sql_call *call, const sql_reply *reply);
    /* The call failed. PAWL_EUNKNOWN: sent, without an answer; other codes: not carried out. */
    void (*failed)(sql_call *call, int code, const char *words);
} sql_call_type;

struct sql_call {
    struct list link;  /* in its link's calls or backlog */
    const sql_call_type *type;
    sql_link *on;
    void *about;       /* the caller's; NULL: the call was given up */
    int64_t sent;      /* an instant before the call was sent; 0: not sent */
    int64_t limit_ms;  /* the time limit for the answer */
    int tries;         /* how often the server asked for a retry */
    bool patient;      /* sent; may wait for a row lock when it is the call's turn */
    bool stuck;        /* has waited for a row lock in vain */
    int64_t parked;    /* when the call was parked for the first time; 0: never */
    int64_t pause_ms;  /* the latest pause */
    int64_t due;       /* parked: when the call is sent again */
};

struct sql_link {
    KIT_LINK;
    sql *sql;
    const char *const *greeting; /* the statements of the greeting: up to a NULL, and, once the
                                    tables exist, up to another NULL */
    /* on_ready: the link is ready, and the backlog is not sent yet. on_drop: the link has dropped,
     * and its calls have failed. refused: the code, if retrying can't help; then the backlog has
     * failed, too. Either function may be NULL. */
    void (*on_ready)(sql_link *link);
    void (*on_drop)(sql_link *link, int refused);
    void *conn;            /* the driver's connection */
    int fd, events;        /* the watched socket, and its libuv events */
    uv_poll_t *poll;
    struct list parked;    /* calls that found their rows locked, until the retry */
    pawl_timer park_timer; /* when the first parked call is due */
    const sql_call *waiting; /* the call without an answer whose statement may wait; or NULL */
    net_resolve resolve;
    unsigned at;           /* index of the host */
    struct addrinfo *addresses, *next_address;
    int step;              /* greet.c */
    bool rechecked;        /* greet.c: the rights were asked for again, with the lock */
    char *making;          /* greet.c: a text of several statements, and the next of them */
    char *made;
    const char *right;     /* greet.c: the right that the statement under way needs */
    char refusal[SQL_WORDS]; /* greet.c: why the version could not be asked for */
    bool prepared[SQL_STATEMENTS]; /* the driver's */
    bool leaving;          /* the server is of no use: drop when all calls are answered */
};

void sql_link_init(sql_link *link, sql *q, const char *const *greeting);
/* Begins to connect; a no-op unless the link is closed. */
static inline void sql_link_open(sql_link *link)
{
    kit_link_open(&link->kit);
}
/* Fails all calls with PAWL_ECANCELED. The link may be opened again. Accepts zeroes. */
void sql_link_close(sql_link *link);
/* A new call, to be sent by sql_link_send. NULL: no memory. */
sql_call *sql_call_new(sql_link *link, const sql_call_type *type, void *about);
/* Send or enqueue the call, which the link owns from now on. A caller that keeps a pointer to the
 * call stores the pointer before, because the call may fail at once. */
void sql_link_send(sql_link *link, sql_call *call);
/* Take back a call that was not sent yet. False: the call was sent. */
bool sql_call_withdraw(sql_call *call);
/* May the statement of this call wait for a row lock? Called by `fill`: if so, no other call may
 * wait until this call is answered. */
bool sql_call_may_wait(const sql_call *call);
/* The connection is of no use: close the connection, and try again after a pause. */
#define sql_link_drop(link, ...) kit_link_drop(&(link)->kit, __VA_ARGS__)

/* The host that the link is connected to, or tries. */
const net_address *sql_link_host(const sql_link *link);

/* Before reading from the socket. *from: the bytes that had arrived before the current answer; the
 * driver sets *from to -1 when an answer is complete. False: the answer has too many bytes, and the
 * link has dropped. A unix socket has no limit. */
bool sql_link_within_limit(sql_link *link, int fd, int64_t *from);

/* For drivers, to report events. */
void sql_link_watch(sql_link *link, int fd, int events);
void sql_link_unwatch(sql_link *link);
void sql_link_connected(sql_link *link);
/* The text of driver->query was answered, or failed (fault). */
void sql_link_greeted(sql_link *link, const sql_reply *reply, const sql_fault *fault);
/* The oldest call was answered. The link may have dropped afterwards: see link->state. */
void sql_link_answered(sql_link *link, const sql_reply *reply, const sql_fault *fault);

/* ---- greet.c --------------------------------------------------------------------------------- */

/* Send the next statement of the greeting. 1: there is none. */
int sql_greet(sql_link *link);
/* The statement was answered. 1: the greeting is complete; else more follow, or the link
 * dropped. */
int sql_greet_answer(sql_link *link, const sql_reply *reply, const sql_fault *fault);

/* ---- drivers --------------------------------------------------------------------------------- */

typedef struct sql_driver {
    const char *scheme;
    const char *product;     /* "PostgreSQL" */
    uint16_t port;
    bool can_pool;           /* the parameter `pooler` makes sense */
    bool own_listener;       /* messages need the listener link */
    bool messages_are_hints; /* users without rights on the tables can send messages, too */
    bool resolves;           /* `start` resolves host names itself, and gets no address */
    const char *const *statements; /* by enum sql_statement; '@' is the prefix */
    const char *const *greeting, *const *pooled_greeting, *const *listener_greeting;
    const char *version;     /* asks for the version of the tables; NULL: no tables are used */
    const char *lock, *unlock; /* so that only one client creates the tables */
    const char *here;        /* the schema of a bare prefix, as an expression */
    const char *check;       /* returns a row for each defect of the tables, the functions or this
                                user's rights; an empty row: they don't exist yet. Sent before any
                                of them is used */
    const char *probes;      /* sent if the version is refused, because the server names only one
                                missing right: for each right a line with the right, as in GRANT,
                                and a statement that needs no other right and changes nothing; or
                                an empty line, and a statement that returns rows as `check` does.
                                ";;" lines separate them. NULL: `check` tells all rights */
    const char *examine;     /* EXAMINE without tables; else statements[SQL_EXAMINE] is used */
    const char *schema;      /* creates the tables; ";;" lines separate the statements if the server
                                takes one at a time */
    const char *script;      /* share/pawl/SCRIPT.sql has the schema; NULL: named as the scheme */

    /* Begin to connect. `address` is numeric, or NULL if the host is a path or the driver resolves
     * names. 0 or a code. */
    int (*start)(sql_link *link, const char *address);
    /* The socket is ready, or time has passed: continue. */
    void (*ready)(sql_link *link, int events);
    /* Send a text unprepared, one text at a time; only while greeting. 0 or a code. */
    int (*query)(sql_link *link, const char *text);
    /* Send a call. 0; 1: no room in the buffer, retry later; or a code. */
    int (*send)(sql_link *link, sql_call *call);
    /* Free the connection. */
    void (*end)(sql_link *link);
    /* A statement of the greeting's first half was answered. False: the link has dropped. May be
     * NULL. */
    bool (*greeted)(sql_link *link, const sql_reply *reply);
} sql_driver;

/* ---- sql.c ----------------------------------------------------------------------------------- */

struct sql {
    pawl_env *env;
    const sql_driver *driver;
    const struct sql_layout *layout; /* locks of sessions (session.h); NULL: tables */
    sql_settings settings;
    sql_link link, listener;
    char *texts[SQL_STATEMENTS]; /* the driver's statements, with the prefix */
    char client[20];       /* this client's id, in hex */
    char place[SQL_SCHEMA_MAX + SQL_PREFIX_MAX + 2]; /* the prefix, qualified */
    char schema[SQL_SCHEMA_MAX]; /* as a string of the server's language */
    pawl_events events;
    unsigned served_by;    /* index of the host that was connected last */
    pawl_timer client_info_timer, listener_timer;
    struct list waiters;   /* in order of arrival */
    kit_seqs table;        /* the same waiters by owner.seq */
    bool closing;
    char *refusals;        /* greet.c: the defects found by the last greeting, one per line; or
                              NULL */
    char heard[1100];      /* ids of messages that the server can delete */
    size_t held;           /* grants that this engine has not seen released */
    kit_clock clock;
};

/* The functions of every SQL engine, around a driver. */
int sql_open(sql *q, const sql_driver *driver, pawl_env *env, const pawl_url *url,
             pawl_error *err);
void sql_close(void *self);
/* The end of closing, for each layout: free the texts and settings. */
void sql_free(sql *q);
void sql_submit(void *self, pawl_op *op);
void sql_cancel(void *self, pawl_op *op);
#define SQL_CAPS                                                                                   \
    (PAWL_CAP_FENCE | PAWL_CAP_QUEUE | PAWL_CAP_RANGE | PAWL_CAP_SHARED | PAWL_CAP_PERMITS |       \
     PAWL_CAP_LATCH | PAWL_CAP_LINGER | PAWL_CAP_LIST | PAWL_CAP_FLOOR |      \
     PAWL_CAP_EXAMINE)

/* A message arrived. */
void sql_message(sql *q, const char *text);
/* Do messages reach this client? */
bool sql_hears(const sql *q);
/* A message can be expected: open the listener, now or soon. */
void sql_want_listener(sql *q);
/* The owner as a text "CLIENT:SEQ", as in the database. */
void sql_owner(char text[SQL_OWNER_MAX], uint64_t client, uint64_t seq);
/* Cut the lease to about 3000 years, so that the server's numbers don't overflow. */
static inline int64_t sql_lease(int64_t ms)
{
    return ms < INT64_C(100000000000000) ? ms : INT64_C(100000000000000);
}

/* ---- waiters.c, ops.c, inspect.c ------------------------------------------------------------- */

void sql_acquire(sql *q, pawl_op *op);
void sql_acquire_cancel(sql *q, pawl_op *op);
void sql_waiters_resend(sql *q);
void sql_waiters_refuse(sql *q, int code, const char *words);
/* Is a cancel pending on a ready link? */
bool sql_waiters_leave(sql *q);
void sql_waiters_end(sql *q);
void sql_waiter_message(sql *q, uint64_t seq, char kind, const char *text);

void sql_simple(sql *q, pawl_op *op); /* release, renew, break, latch */
void sql_inspect(sql *q, pawl_op *op); /* inspect, count, list */
void sql_examine(sql *q, pawl_op *op);
/* Pass the rows (inspect.c lists the columns) to op->row, for INSPECT or LIST. */
int sql_show(pawl_op *op, const sql_reply *reply);
#define SQL_CUT_TEXT "more than " SQL_ROWS_TEXT " holders and waiters: ask for fewer names"
/* The answer was cut at SQL_ROWS_MAX rows, so that rows may be missing. */
static inline bool sql_cut(const sql_reply *reply)
{
    return reply->rows >= SQL_ROWS_MAX;
}
/* Cancel or complete an op of sql_simple, sql_inspect or sql_examine. */
void sql_give_up(sql *q, pawl_op *op);
void sql_done(pawl_op *op, int code, const char *words);
/* Make and send a call for the op; op->engine[0] is the call. */
void sql_start(sql *q, pawl_op *op, const sql_call_type *type);

#endif
