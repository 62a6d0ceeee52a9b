/* SPDX-License-Identifier: Apache-2.0
 *
 * postgres.c - the driver for PostgreSQL, on libpq's asynchronous calls.
 *
 * After the greeting the connection is in pipeline mode: statements are sent at once, each with a
 * Sync of its own, so that a failed statement does not affect the next one. The results up to a
 * Sync are the answer to the oldest call. NOTIFY arrives between answers, and after the answer to
 * the call that caused it, since the server sends NOTIFY only between transactions. With a pooler
 * that gives each transaction another session, Pawl neither prepares statements nor uses LISTEN.
 *
 * libpq resolves names in a blocking call; so libpq gets an address, and the name only to check it.
 */
#include <libpq-fe.h>
#include <stdlib.h>

#include "advisory.h"
#include "postgres.h"
#include "postgres_schema.h"

#define LEAST_VERSION 120000

typedef struct pg {
    PGconn *conn;
    pg_relay *relay;  /* while the authentication must be checked, else NULL */
    PGresult *result; /* of the oldest call, or of a text, as far as received */
    size_t syncs;     /* Syncs not received yet */
    unsigned nulls;   /* NULL results in a row: see out_of_step */
    bool asked;       /* a text was sent and not answered yet */
    bool piped;
    int64_t from;     /* sql_link_within_limit */
} pg;

/* ---- errors ---------------------------------------------------------------------------------- */

/* By SQLSTATE, or its first two characters. */
static const struct {
    char state[6];
    enum sql_sense sense;
    int code;
} senses[] = {
    {"40", SQL_AGAIN, 0},    {"57014", SQL_AGAIN, 0},     /* deadlock, serialization; cancelled */
    {"26000", SQL_AGAIN, 0}, {"55P03", SQL_BLOCKED, 0},   /* not prepared; lock_timeout */
    {"25006", SQL_ELSEWHERE, 0}, {"PW001", SQL_REFUSED, PAWL_ENOTSUP}, /* read only; own check */
    {"42P01", SQL_MISSING, 0}, {"42883", SQL_MISSING, 0}, {"53300", SQL_BROKEN, PAWL_ECONN},
    {"42501", SQL_REFUSED, PAWL_EAUTH}, {"28", SQL_REFUSED, PAWL_EAUTH},
    {"3D000", SQL_REFUSED, PAWL_EINVAL}, {"3F000", SQL_REFUSED, PAWL_EINVAL},
    {"57P", SQL_BROKEN, PAWL_ECONN}, {"08", SQL_BROKEN, PAWL_ECONN},
};

static void classify(sql_fault *fault, const char *state)
{
    fault->sense = SQL_REFUSED;
    fault->code = PAWL_EBACKEND;
    for (size_t i = 0; state && i < sizeof senses / sizeof senses[0]; i++)
        if (!strncmp(state, senses[i].state, strlen(senses[i].state))) {
            fault->sense = senses[i].sense;
            fault->code = senses[i].code;
        }
}

static void one_line(char *words)
{
    size_t n = strlen(words);

    for (char *c = words; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
    while (n && words[n - 1] == ' ')
        words[--n] = 0;
}

static void fault_of(sql_fault *fault, const PGresult *result)
{
    const char *words = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    classify(fault, PQresultErrorField(result, PG_DIAG_SQLSTATE));
    snprintf(fault->words, sizeof fault->words, "the server says: %.150s",
             words ? words : PQresultErrorMessage(result));
    one_line(fault->words);
}

/* Connecting failed; only a text says why: "FATAL:  28P01: ..." if the server answered. */
static void drop_unconnected(sql_link *link)
{
    pg *p = link->conn;
    const char *text = PQerrorMessage(p->conn), *fatal = strstr(text, "FATAL:  ");
    const char *after = strstr(text, "failed: ");
    const char *detail = fatal ? strstr(fatal, "DETAIL:  ") : NULL; /* which right is missing */
    char words[SQL_WORDS];
    sql_fault fault = {.sense = SQL_BROKEN, .code = PAWL_ECONN};

    if (fatal)
        classify(&fault, fatal + 8);
    else if (PQconnectionNeedsPassword(p->conn) ||
             strstr(text, "authentication method requirement") ||
             (strstr(text, "certificate") || (strstr(text, "SSL") && !strstr(text, "SYSCALL"))))
        fault.code = PAWL_EAUTH;
    snprintf(words, sizeof words, "%.150s",
             fatal ? fatal + 8 + strcspn(fatal + 8, " ") + 1 : after ? after + 8 : text);
    words[strcspn(words, "\n")] = 0;
    if (detail) {
        size_t n = strlen(words);

        snprintf(words + n, sizeof words - n, ": %.*s", (int)strcspn(detail + 9, "\n"), detail + 9);
    }
    one_line(words);
    if (PQconnectionNeedsPassword(p->conn))
        snprintf(words, sizeof words, "the server asks for a password; set PAWL_PASSWORD");
    sql_link_drop(link, fault.code ? fault.code : PAWL_ECONN, "%s%s", words,
                  pg_connect_advice(link, fatal ? fatal + 8 : "", words));
}

static void drop_broken(sql_link *link)
{
    pg *p = link->conn;
    char words[SQL_WORDS];

    snprintf(words, sizeof words, "%.150s", PQerrorMessage(p->conn));
    one_line(words);
    sql_link_drop(link, PAWL_ECONN, "%s", words[0] ? words : "closed by the server");
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void ignore_notice(void *arg, const PGresult *result)
{
    (void)arg;
    (void)result;
}

/* Must the password not be sent in clear to this server? */
static bool keeps_password(const sql_link *link)
{
    const sql_settings *s = &link->sql->settings;

    return !s->cleartext && s->tls < SQL_TLS_CHAIN && sql_link_host(link)->host[0] != '/';
}

/* libpq 16 and newer refuse to send the password in clear, under TLS as well. */
static bool needs_relay(const sql_link *link)
{
    return keeps_password(link) && PQlibVersion() < 160000;
}

/* CONNECTION_MADE: nothing was sent yet; or libpq has TLS, or the server has no TLS. */
static bool relay_is_due(const sql_link *link)
{
    const pg *p = link->conn;

    return !p->relay && PQstatus(p->conn) == CONNECTION_MADE && !PQsslInUse(p->conn) &&
           needs_relay(link);
}

/* libuv must not watch a descriptor whose socket changes. */
static void begin_relay(sql_link *link)
{
    pg *p = link->conn;

    sql_link_unwatch(link);
    p->relay = pg_relay_new(PQsocket(p->conn));
    if (!p->relay)
        sql_link_drop(link, PAWL_ECONN, "no memory or no descriptors for a connection");
}

static void end_relay(sql_link *link)
{
    pg *p = link->conn;
    bool good = !pg_relay_is(p->relay, PQsocket(p->conn)) ||
                pg_relay_give_back(p->relay, PQsocket(p->conn));

    sql_link_unwatch(link);
    pg_relay_free(p->relay);
    p->relay = NULL;
    if (!good)
        sql_link_drop(link, PAWL_ECONN, "no descriptors for a connection");
}

/* True: libpq can continue. */
static bool relay(sql_link *link, PostgresPollingStatusType status)
{
    pg *p = link->conn;
    enum pg_relay_result result = PG_RELAY_BAD;

    if (pg_relay_out(p->relay))
        result = status == PGRES_POLLING_WRITING ? PG_RELAY_FED : pg_relay_in(p->relay);
    if (result == PG_RELAY_WAIT)
        sql_link_watch(link, pg_relay_socket(p->relay), UV_READABLE);
    else if (result == PG_RELAY_CLEAR)
        sql_link_drop(link, PAWL_EAUTH, "the server asks for the password in clear, and is not "
                      "verified: use sslmode=verify-full, or allow it by cleartext=yes");
    else if (result == PG_RELAY_BAD)
        sql_link_drop(link, PAWL_ECONN, "the server does not speak PostgreSQL's protocol");
    return result == PG_RELAY_FED;
}

/* libpq wants to read or write. True: libpq can do so at once. */
static bool wait_for_server(sql_link *link, PostgresPollingStatusType status)
{
    pg *p = link->conn;

    if (p->relay && pg_relay_over(p->relay))
        pg_relay_out(p->relay); /* if this fails, libpq notices the broken socket */
    if (p->relay && (pg_relay_over(p->relay) || !pg_relay_is(p->relay, PQsocket(p->conn))))
        end_relay(link);
    if (link->conn == p && relay_is_due(link))
        begin_relay(link);
    if (link->conn != p)
        return false;
    if (p->relay)
        return relay(link, status);
    sql_link_watch(link, PQsocket(p->conn),
                   status == PGRES_POLLING_READING ? UV_READABLE : UV_WRITABLE);
    return false;
}

static void connected(sql_link *link)
{
    pg *p = link->conn;
    int version = PQserverVersion(p->conn);

    if (version && version < LEAST_VERSION) { /* 0: a pooler hides the version */
        sql_link_drop(link, PAWL_ENOTSUP, "server too old: it is of version %.40s, Pawl needs "
                      "PostgreSQL 12 or newer", PQparameterStatus(p->conn, "server_version"));
        return;
    }
    if (version)
        link->env->log(link->env, PAWL_LOG_INFO, "%s: server PostgreSQL %.40s",
                       sql_link_host(link)->where, PQparameterStatus(p->conn, "server_version"));
    PQsetnonblocking(p->conn, 1);
    sql_link_watch(link, PQsocket(p->conn), UV_READABLE);
    if (link->conn == p)
        sql_link_connected(link);
}

static void go_on_connecting(sql_link *link)
{
    pg *p = link->conn;
    PostgresPollingStatusType status = PGRES_POLLING_READING;

    if (p->relay && PQstatus(p->conn) != CONNECTION_MADE && !relay(link, status))
        return;
    do
        status = PQconnectPoll(p->conn);
    while ((status == PGRES_POLLING_READING || status == PGRES_POLLING_WRITING) &&
           wait_for_server(link, status));
    if (link->conn != p)
        return;
    if (status == PGRES_POLLING_OK)
        connected(link);
    else if (status == PGRES_POLLING_FAILED)
        drop_unconnected(link);
}

/* How long the network may be dead. With advisory locks, at least as long as a lease. */
static int64_t unheard_ms(const sql_link *link)
{
    int64_t ms = 3 * link->env->timeout_ms, lease = link->env->watchdog_ms;

    ms = link->sql->driver == &advisory_driver && lease > ms ? lease : ms;
    return ms < INT_MAX ? ms : INT_MAX;
}

static int pg_start(sql_link *link, const char *address)
{
    static const char *const modes[] = {"disable", "prefer", "require", "verify-ca", "verify-full"};
    const sql_settings *s = &link->sql->settings;
    char port[8], limit[24];
    const char *keys[] = {"host", "hostaddr", "port", "dbname", "user", "password", "sslmode",
                          "sslrootcert", "sslcert", "sslkey", "client_encoding", "gssencmode",
                          "application_name", "keepalives_idle", "keepalives_interval",
                          "tcp_user_timeout",
                          keeps_password(link) && !needs_relay(link) ? "require_auth" : NULL, NULL};
    const net_address *host = sql_link_host(link);
    const char *values[] = {host->host, address, port, s->db, s->login.user, s->login.password,
                            modes[s->tls], s->files.cafile, s->files.cert, s->files.key,
                            "UTF8", "disable", "pawl", "15", "5", limit, "!password", NULL};
    pg *p = calloc(1, sizeof *p);

    snprintf(port, sizeof port, "%u", host->port);
    snprintf(limit, sizeof limit, "%lld", (long long)unheard_ms(link));
    if (!p || !(p->conn = PQconnectStartParams(keys, values, 0))) {
        free(p);
        snprintf(link->words, sizeof link->words, "out of memory");
        return PAWL_ENOMEM;
    }
    link->conn = p;
    PQsetErrorVerbosity(p->conn, PQERRORS_VERBOSE);
    PQsetNoticeReceiver(p->conn, ignore_notice, NULL);
    if (PQstatus(p->conn) == CONNECTION_BAD) {
        snprintf(link->words, sizeof link->words, "%.150s", PQerrorMessage(p->conn));
        one_line(link->words);
        return PAWL_ECONN;
    }
    if (relay_is_due(link))
        begin_relay(link);
    if (link->conn == p)
        sql_link_watch(link, PQsocket(p->conn), UV_WRITABLE);
    return 0;
}

static void pg_end(sql_link *link)
{
    pg *p = link->conn;

    PQclear(p->result);
    PQfinish(p->conn);
    pg_relay_free(p->relay);
    free(p);
}

int pg_backend(const sql_link *link)
{
    const pg *p = link->conn;

    return PQbackendPID(p->conn);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* False: the link has dropped. */
static bool flush(sql_link *link)
{
    pg *p = link->conn;
    int left = PQflush(p->conn);

    if (left < 0) {
        drop_broken(link);
        return false;
    }
    sql_link_watch(link, PQsocket(p->conn), UV_READABLE | (left ? UV_WRITABLE : 0));
    return link->conn == p;
}

static int pg_query(sql_link *link, const char *text)
{
    pg *p = link->conn;

    if (PQsendQuery(p->conn, text)) {
        p->asked = true;
        flush(link);
    } else {
        drop_broken(link);
    }
    return 0;
}

struct values {
    char numbers[SQL_PARAMS_MAX][24];
    const char *text[SQL_PARAMS_MAX];
    int lengths[SQL_PARAMS_MAX], formats[SQL_PARAMS_MAX];
};

static void put(struct values *v, const sql_params *params)
{
    for (int i = 0; i < params->n; i++) {
        const sql_param *param = &params->list[i];

        v->text[i] = param->type == SQL_INT ? v->numbers[i] : param->text;
        v->lengths[i] = (int)param->length;
        v->formats[i] = param->type == SQL_BYTES;
        if (param->type == SQL_INT)
            snprintf(v->numbers[i], sizeof v->numbers[i], "%lld", (long long)param->number);
    }
}

static bool send_statement(sql_link *link, enum sql_statement statement, const sql_params *params)
{
    pg *p = link->conn;
    const char *text = link->sql->texts[statement];
    struct values v;
    char name[16];

    put(&v, params);
    text = params->text ? params->text : text;
    if (link->sql->settings.pooled || params->text)
        return PQsendQueryParams(p->conn, text, params->n, NULL, v.text, v.lengths, v.formats, 0);
    snprintf(name, sizeof name, "pawl_%d", statement);
    if (!link->prepared[statement] && !PQsendPrepare(p->conn, name, text, params->n, NULL))
        return false;
    link->prepared[statement] = true;
    return PQsendQueryPrepared(p->conn, name, params->n, v.text, v.lengths, v.formats, 0);
}

/* The most calls without an answer, so that urgent calls don't wait behind all others. */
#define PIPE_DEPTH 16
#define PIPE_DEPTH_URGENT 64

static int pg_send(sql_link *link, sql_call *call)
{
    pg *p = link->conn;
    sql_params params = {.n = 0};

    if (p->syncs >= (call->type->urgent ? PIPE_DEPTH_URGENT : PIPE_DEPTH))
        return 1;
    if (!p->piped && !PQenterPipelineMode(p->conn)) {
        drop_broken(link);
        return 0;
    }
    p->piped = true;
    call->type->fill(call, &params);
    if (!send_statement(link, call->type->statement, &params) || !PQpipelineSync(p->conn)) {
        drop_broken(link);
        return 0;
    }
    p->syncs++;
    flush(link);
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static const char *cell(const sql_reply *reply, size_t row, int column)
{
    PGresult *result = reply->data;

    if (!result || (int)row >= PQntuples(result) || column >= PQnfields(result) ||
        PQgetisnull(result, (int)row, column))
        return NULL;
    return PQgetvalue(result, (int)row, column);
}

/* Keep the first error, else the latest rows. */
static void keep(pg *p, PGresult *result)
{
    bool failed = p->result && PQresultStatus(p->result) == PGRES_FATAL_ERROR;
    ExecStatusType status = PQresultStatus(result);

    if (failed || (status != PGRES_FATAL_ERROR && status != PGRES_TUPLES_OK)) {
        PQclear(result);
        return;
    }
    PQclear(p->result);
    p->result = result;
}

/* An answer is complete. */
static void deliver(sql_link *link)
{
    pg *p = link->conn;
    PGresult *result = p->result;
    sql_reply reply = {.cell = cell, .data = result};
    sql_fault fault;
    bool failed = result && PQresultStatus(result) == PGRES_FATAL_ERROR;

    p->result = NULL;
    p->from = -1;
    if (failed)
        fault_of(&fault, result);
    else if (result)
        reply.rows = (size_t)PQntuples(result);
    if (failed && !strcmp(PQresultErrorField(result, PG_DIAG_SQLSTATE) ?
                          PQresultErrorField(result, PG_DIAG_SQLSTATE) : "", "26000"))
        memset(link->prepared, 0, sizeof link->prepared);
    if (failed && fault.sense == SQL_BROKEN)
        sql_link_drop(link, PAWL_ECONN, "%s", fault.words);
    else if (link->state == LINK_GREETING)
        sql_link_greeted(link, &reply, failed ? &fault : NULL);
    else
        sql_link_answered(link, &reply, failed ? &fault : NULL);
    PQclear(result);
}

/* In a pipeline libpq separates the results of two statements by one NULL. A second NULL in a row
 * means that the server has answered fewer statements than were sent, or that libpq has given up
 * the connection: no further result will ever come. */
static bool out_of_step(sql_link *link, bool is_null)
{
    pg *p = link->conn;

    p->nulls = is_null ? p->nulls + 1 : 0;
    if (!p->piped || p->nulls < 2)
        return false;
    if (PQstatus(p->conn) == CONNECTION_BAD)
        drop_broken(link);
    else
        sql_link_drop(link, PAWL_EPROTO, "PostgreSQL's answers do not match the requests");
    return true;
}

/* Take one result. False: no more for now, or the link has dropped. */
static bool take_result(sql_link *link)
{
    pg *p = link->conn;
    PGresult *result;

    if (PQisBusy(p->conn) || (p->piped && !p->syncs))
        return false;
    result = PQgetResult(p->conn);
    if (out_of_step(link, !result)) {
        return false;
    } else if (result && PQresultStatus(result) == PGRES_PIPELINE_SYNC) {
        PQclear(result);
        p->syncs--;
        deliver(link);
    } else if (result) {
        keep(p, result);
    } else if (!p->piped) {
        if (!p->asked)
            return false;
        p->asked = false;
        deliver(link);
    }
    return link->conn == p;
}

static void take_messages(sql_link *link)
{
    pg *p = link->conn;
    PGnotify *notify;

    while (link->conn == p && (notify = PQnotifies(p->conn))) {
        sql_message(link->sql, notify->extra);
        PQfreemem(notify);
    }
}

static void pg_ready(sql_link *link, int events)
{
    pg *p = link->conn;

    if (link->state == LINK_CONNECTING) {
        go_on_connecting(link);
        return;
    }
    if ((events & UV_WRITABLE) && !flush(link))
        return;
    if (!sql_link_within_limit(link, PQsocket(p->conn), &p->from))
        return;
    if (!PQconsumeInput(p->conn)) {
        drop_broken(link);
        return;
    }
    while (link->conn == p && take_result(link))
        ;
    if (link->conn == p)
        take_messages(link);
    if (link->conn == p && PQstatus(p->conn) == CONNECTION_BAD)
        drop_broken(link);
}

/* ---- the drivers ----------------------------------------------------------------------------- */

const sql_driver pg_driver = {
    .scheme = "postgres",
    .product = "PostgreSQL",
    .port = 5432,
    .can_pool = true,
    .messages_are_hints = true,
    .statements = pg_statements,
    .greeting = pg_greeting,
    .pooled_greeting = pg_pooled_greeting,
    .listener_greeting = pg_pooled_greeting,
    .version = pg_version,
    .lock = "SELECT pg_catalog.pg_advisory_lock(8097293516829)",
    .unlock = "SELECT pg_catalog.pg_advisory_unlock(8097293516829)",
    .here = "pg_catalog.current_schema()",
    .check = pg_check,
    .schema = postgres_schema,
    .start = pg_start,
    .ready = pg_ready,
    .query = pg_query,
    .send = pg_send,
    .end = pg_end,
    .greeted = pg_greeted,
};

const sql_driver advisory_driver = {
    .scheme = "postgres",
    .product = "PostgreSQL",
    .port = 5432,
    .can_pool = true,
    .examine = advisory_examine,
    .greeting = advisory_greeting,
    .start = pg_start,
    .ready = pg_ready,
    .query = pg_query,
    .send = pg_send,
    .end = pg_end,
    .greeted = advisory_greeted,
};
