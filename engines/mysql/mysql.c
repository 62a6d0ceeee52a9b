/* SPDX-License-Identifier: Apache-2.0
 *
 * mysql.c - the driver for MariaDB and MySQL: statements, classifying errors, and the engine.
 *
 * A connection runs one statement at a time, so calls wait for each other in the backlog. All
 * statements are short, except the listener's, which has a connection of its own.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "mysql.h"
#include "mysql_schema.h"
#include "mysql_session_schema.h"
#include "sql/hash.h"
#include "userlock.h"

#define DB_MAX 256 /* bytes; the server allows 64 characters */

static const char *const statements[SQL_STATEMENTS] = {
    [SQL_ACQUIRE] = "CALL @_acquire(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [SQL_RELEASE] = "CALL @_release(?, ?, ?, ?, ?, ?)",
    [SQL_RENEW] = "CALL @_renew(?)",
    [SQL_BREAK] = "CALL @_break(?, ?, ?)",
    [SQL_LATCH] = "CALL @_latch(?, ?, ?, ?)",
    [SQL_CLIENT_INFO] = "CALL @_entry(?, ?, ?, ?, ?, ?)",
    [SQL_HEAR] = "CALL @_hear(?, ?)",
    [SQL_INSPECT] =
        "SELECT HEX(u.name), u.type, u.value, u.role, u.owner, u.mode, u.permits, u.first, "
        "t.now - u.since, u.expires - t.now, c.pid, LEFT(c.host, 64), LEFT(c.program, 64), "
        "LEFT(c.label, 255) FROM "
        "(SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000 AS now) t "
        "JOIN (SELECT l.name, l.type, l.value, IF(l.owner IS NULL, '', 'h') AS role, l.owner, "
        "'x' AS mode, 0 AS permits, l.first, l.since, l.expires, 0 AS id FROM @ l "
        "WHERE l.name >= ? AND l.name < ? "
        "AND (l.owner IS NOT NULL OR (l.type = 3 AND l.value > 0)) "
        "UNION ALL SELECT l.name, l.type, l.value, m.role, m.owner, m.mode, m.permits, m.first, "
        "m.since, m.expires, m.id FROM @_member m JOIN @ l ON l.name = m.name "
        "WHERE m.name >= ? AND m.name < ? AND m.role IN ('h', 'w')) u "
        "LEFT JOIN @_client c ON c.client = LEFT(REPLACE(u.owner, 'z:', ''), 16) "
        "WHERE u.expires > t.now OR (u.role = '' AND u.type = 3) ORDER BY u.name, u.role, u.id "
        "LIMIT $ROWS",
    [SQL_EXAMINE] = my_examine,
};

/* A row locked by another client's open transaction must not delay other calls: MariaDB does not
 * wait for the row at all, MySQL waits at least a second. */
#define SESSION                                                                                    \
    "SET SESSION autocommit = 1, innodb_lock_wait_timeout = 1, wait_timeout = 86400, "             \
    "group_concat_max_len = 16777215, " MY_NO_GUARDS                                               \
    "/*M! , max_statement_time = 0, innodb_lock_wait_timeout = 0 */"
#define ISOLATION "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"

/* Asked before any procedure is called. Procedures run with the rights of their caller, so their
 * definer must be trusted; a view in place of a table could call functions in the same way. The
 * name of a user may contain an at sign (0x40), and its case counts. */
#define DEFINER                                                                                    \
    "LEFT(definer, CHAR_LENGTH(definer) - CHAR_LENGTH(SUBSTRING_INDEX(definer, 0x40, -1)) - 1)"

static const char check[] =
    "SELECT CONCAT(routine_name, ' was made by ', definer, ', and would run with your rights: "
    "let an administrator make the tables (sql.md), or trust owner=', "
    DEFINER ") FROM "
    "information_schema.routines WHERE routine_schema = $SCHEMA "
    "AND routine_name LIKE REPLACE('$TABLE_%', '_', '\\\\_') "
    "AND CAST(definer AS BINARY) <> CAST(CURRENT_USER() AS BINARY) "
    "AND CAST(" DEFINER " AS BINARY) NOT IN (CAST('root' AS BINARY), CAST('$OWNER' AS BINARY)) "
    "UNION ALL SELECT CONCAT(table_name, ' is no table but a ', LOWER(table_type)) "
    "FROM information_schema.tables WHERE table_schema = $SCHEMA AND table_type <> 'BASE TABLE' "
    "AND table_name IN ('$TABLE', '$TABLE_member', '$TABLE_client', '$TABLE_mail') LIMIT 1";

#define READ_ONLY "SHOW GLOBAL VARIABLES LIKE 'read_only'"

static const char *const greeting[] = {
    SESSION, ISOLATION, READ_ONLY, NULL, MY_MAY_CALL, "CALL @_be('pawl:$CLIENT')", NULL};
static const char *const listener_greeting[] = {
    SESSION, ISOLATION, NULL, "CALL @_be('pawl:ear:$CLIENT')", NULL};

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct {
    unsigned error;
    enum sql_sense sense;
    int code;
} senses[] = {
    {1213, SQL_AGAIN, 0},       /* deadlock */
    {1205, SQL_BLOCKED, 0},     /* lock wait timeout */
    {1317, SQL_AGAIN, 0},       /* interrupted */
    {1243, SQL_AGAIN, 0}, {1615, SQL_AGAIN, 0}, /* not prepared any more */
    {1969, SQL_AGAIN, 0}, {3024, SQL_AGAIN, 0}, /* max_statement_time, max_execution_time */
    {1180, SQL_AGAIN, 0},       /* a cluster refused the COMMIT */
    {1290, SQL_ELSEWHERE, 0}, {1792, SQL_ELSEWHERE, 0}, {1836, SQL_ELSEWHERE, 0}, /* read only */
    {1047, SQL_ELSEWHERE, 0},   /* a cluster node that refuses requests */
    {1305, SQL_MISSING, 0}, {1146, SQL_MISSING, 0},
    {1044, SQL_REFUSED, PAWL_EAUTH}, {1045, SQL_REFUSED, PAWL_EAUTH},
    {1142, SQL_REFUSED, PAWL_EAUTH}, {1143, SQL_REFUSED, PAWL_EAUTH},
    {1094, SQL_REFUSED, PAWL_ENOTHELD}, {1095, SQL_REFUSED, PAWL_EAUTH}, /* KILL */
    {1227, SQL_REFUSED, PAWL_EAUTH}, {1370, SQL_REFUSED, PAWL_EAUTH},
    {1698, SQL_REFUSED, PAWL_EAUTH}, {1251, SQL_REFUSED, PAWL_EAUTH},
    {3159, SQL_REFUSED, PAWL_EAUTH}, /* require_secure_transport */
    {2026, SQL_REFUSED, PAWL_EAUTH}, /* TLS */
    {5010, SQL_REFUSED, PAWL_EAUTH}, /* a forbidden method: connect.c */
    {1049, SQL_REFUSED, PAWL_EINVAL}, {1046, SQL_REFUSED, PAWL_EINVAL},
    {1053, SQL_BROKEN, PAWL_ECONN}, {1927, SQL_BROKEN, PAWL_ECONN},
    {1040, SQL_BROKEN, PAWL_ECONN}, {1203, SQL_BROKEN, PAWL_ECONN},
    {1226, SQL_BROKEN, PAWL_ECONN}, {4031, SQL_BROKEN, PAWL_ECONN},
};

void my_fault(sql_fault *fault, unsigned error, const char *words)
{
    fault->sense = error >= 2000 && error < 3000 ? SQL_BROKEN : SQL_REFUSED; /* library errors */
    fault->code = fault->sense == SQL_BROKEN ? PAWL_ECONN : PAWL_EBACKEND;
    for (size_t i = 0; i < sizeof senses / sizeof senses[0]; i++)
        if (senses[i].error == error) {
            fault->sense = senses[i].sense;
            fault->code = senses[i].code;
        }
    snprintf(fault->words, sizeof fault->words, "%s%.150s",
             fault->sense == SQL_BROKEN || error >= 2000 ? "" : "the server says: ", words);
    if (error == 2002 || error == 2003) /* the text has a number that is not an errno */
        snprintf(fault->words, sizeof fault->words, "can't connect; is a MariaDB or MySQL server "
                 "listening there?");
    if (error == 2005)
        snprintf(fault->words, sizeof fault->words, "the name can't be resolved");
    if (error == 1045 || error == 1698)
        snprintf(fault->words, sizeof fault->words, "the server says: %.110s; check PAWL_USER and "
                 "PAWL_PASSWORD", words);
    if (error == 3159)
        snprintf(fault->words, sizeof fault->words, "the server demands TLS: remove "
                 "sslmode=disable (the server says: %.110s)", words);
    if (error == 1044 || error == 1049)
        snprintf(fault->words, sizeof fault->words, "the server says: %.90s; create the database, "
                 "grant the rights (docs/security.md) or correct the URL", words);
    if (error == 1142 || error == 1143 || error == 1227 || error == 1370)
        snprintf(fault->words, sizeof fault->words, "the server says: %.120s; see docs/security.md",
                 words);
    if (error == 1095)
        snprintf(fault->words, sizeof fault->words, "the server says: %.60s; to end sessions of "
                 "other users, GRANT CONNECTION ADMIN (MySQL: CONNECTION_ADMIN)", words);
    if (error == 5010)
        snprintf(fault->words, sizeof fault->words, "%.90s Whoever answers could read the "
                 "password: use verify=full with cafile, or cleartext=yes", words);
    for (char *c = fault->words; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
}

/* ---- the driver ------------------------------------------------------------------------------ */

static int my_start(sql_link *link, const char *address)
{
    my *m = calloc(1, sizeof *m);
    int code;

    (void)address;
    link->conn = m;
    if (!m)
        return PAWL_ENOMEM;
    m->step = MY_CONNECT;
    code = my_connect(link);
    if (code)
        snprintf(link->words, sizeof link->words, "no thread to connect with");
    return code;
}

/* MariaDB sends "5.5.5-" before its version; the library skips this prefix. */
static bool is_too_old(MYSQL *mysql)
{
    unsigned long least = mariadb_connection(mysql) ? 100300 : 80000;

    return mysql_get_server_version(mysql) < least;
}

void my_connected(sql_link *link, MYSQL *mysql, unsigned error, const char *words)
{
    my *m = link->conn;
    sql_fault fault;

    m->mysql = mysql;
    m->step = MY_IDLE;
    if (mysql && is_too_old(mysql)) {
        sql_link_drop(link, PAWL_ENOTSUP, "server too old: it is of version %.60s, Pawl needs "
                      "MariaDB 10.3 or MySQL 8.0 or newer", mysql_get_server_info(mysql));
        return;
    }
    if (mysql) {
        link->env->log(link->env, PAWL_LOG_INFO, "%s: server %s %.60s", sql_link_host(link)->where,
                       mariadb_connection(mysql) ? "MariaDB" : "MySQL",
                       mysql_get_server_info(mysql));
        sql_link_watch(link, (int)mysql_get_socket(mysql), UV_READABLE);
        if (link->conn == m)
            sql_link_connected(link);
        return;
    }
    my_fault(&fault, error, words);
    if (error == 1045 && link->sql->settings.tls == SQL_TLS_DISABLE) {
        size_t n = strlen(fault.words);

        snprintf(fault.words + n, sizeof fault.words - n,
                 ", or remove sslmode=disable if TLS is needed");
    }
    sql_link_drop(link, fault.sense == SQL_REFUSED ? fault.code : PAWL_ECONN, "%s", fault.words);
}

static int my_query(sql_link *link, const char *text)
{
    my *m = link->conn;

    m->text = strdup(text);
    if (!m->text)
        return PAWL_ENOMEM;
    my_begin(link, MY_QUERY);
    return 0;
}

/* The call has a text of its own, which is not prepared. */
static int send_text(sql_link *link, sql_call *call)
{
    sql_params params = {.n = 0};
    my *m = link->conn;

    call->type->fill(call, &params);
    m->call = call;
    return my_query(link, params.text);
}

static int my_send(sql_link *link, sql_call *call)
{
    my *m = link->conn;
    enum sql_statement statement = call->type->statement;

    if (m->step != MY_IDLE)
        return 1;
    if (!link->sql->texts[statement])
        return send_text(link, call);
    if (!m->stmts[statement])
        m->stmts[statement] = mysql_stmt_init(m->mysql);
    if (!m->stmts[statement])
        return PAWL_ENOMEM;
    m->stmt = m->stmts[statement];
    m->call = call;
    if (link->prepared[statement]) {
        my_begin(link, MY_EXECUTE);
        return 0;
    }
    m->text = strdup(link->sql->texts[statement]);
    if (!m->text)
        return PAWL_ENOMEM;
    link->prepared[statement] = true;
    my_begin(link, MY_PREPARE);
    return 0;
}

/* Some users may write to a read-only server; but such a server is a replica, or about to be
 * one. */
bool my_greeted(sql_link *link, const sql_reply *reply)
{
    const char *read_only = reply->cell(reply, 0, 1);

    if (!read_only || !strcmp(read_only, "OFF"))
        return true;
    sql_link_drop(link, PAWL_ECONN, "this server is read only");
    return false;
}

/* The socket is readable without a request: the server closes the connection, or is gone. */
static void my_idle(sql_link *link)
{
    my *m = link->conn;
    int fd = (int)mysql_get_socket(m->mysql);
    char byte;
    bool nothing = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
                   (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);

    if (nothing)
        sql_link_watch(link, fd, UV_READABLE);
    else
        sql_link_drop(link, PAWL_ECONN, "closed by the server");
}

static void my_ready(sql_link *link, int events)
{
    my *m = link->conn;

    if (m->step == MY_IDLE)
        my_idle(link);
    else if (sql_link_within_limit(link, (int)mysql_get_socket(m->mysql), &m->from))
        my_go_on(link, events);
}

static void close_statements(my *m)
{
    for (int i = 0; i < SQL_STATEMENTS; i++)
        if (m->stmts[i])
            mysql_stmt_close(m->stmts[i]);
}

/* Send COM_QUIT only if no statement is under way; else the library would wait for the socket.
 * After mysql_close, closing a statement sends nothing to the server. */
static void my_end(sql_link *link)
{
    my *m = link->conn;
    my_hushed hushed;

    my_connect_cancel(link);
    my_hush(&hushed);
    if (m->result)
        mysql_free_result(m->result);
    if (m->mysql && m->step != MY_IDLE) {
        shutdown((int)mysql_get_socket(m->mysql), SHUT_RDWR);
        mysql_close(m->mysql);
        close_statements(m);
    } else if (m->mysql) {
        close_statements(m);
        mysql_close(m->mysql);
    }
    my_unhush(&hushed);
    my_rows_free(&m->rows);
    free(m->text);
    free(m);
}

/* ---- the engine ------------------------------------------------------------------------------ */

static const sql_driver driver = {
    .scheme = "mysql",
    .product = "MySQL",
    .port = 3306,
    .own_listener = true,
    .resolves = true,
    .statements = statements,
    .greeting = greeting,
    .pooled_greeting = greeting,
    .listener_greeting = listener_greeting,
    .version = "CALL @_version()",
    .lock = "DO GET_LOCK('pawl:making', 10)",
    .unlock = "DO RELEASE_LOCK('pawl:making')",
    .here = "DATABASE()",
    .check = check,
    .probes = my_probes,
    .schema = mysql_schema,
    .start = my_start,
    .ready = my_ready,
    .query = my_query,
    .send = my_send,
    .end = my_end,
    .greeted = my_greeted,
};

static const char *const session_statements[SQL_STATEMENTS] = {[SQL_EXAMINE] = my_session_examine};

const sql_driver my_session_driver = {
    .scheme = "mysql",
    .product = "MySQL",
    .port = 3306,
    .resolves = true,
    .statements = session_statements,
    .greeting = my_session_greeting,
    .version = my_session_version,
    .lock = "DO GET_LOCK('pawl:making', 10)",
    .unlock = "DO RELEASE_LOCK('pawl:making')",
    .here = "DATABASE()",
    .check = my_session_check,
    .probes = my_session_probes,
    .schema = mysql_session_schema,
    .script = "mysql-session",
    .start = my_start,
    .ready = my_ready,
    .query = my_query,
    .send = my_send,
    .end = my_end,
    .greeted = my_session_greeted,
};

static int engine_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    my_library(env);
    sql_hash_init(env);
    return sql_layouts_open(self, &driver, &my_layout, env, url, err);
}

static int engine_identity(void *self, char *ret, size_t size)
{
    const sql *q = self;
    const sql_settings *s = &q->settings;
    const char *dot = strchr(s->prefix, '.'); /* the prefix may name another database */
    char more[DB_MAX + SQL_PREFIX_MAX + 20];

    if (dot)
        snprintf(more, sizeof more, "%.*s %s", (int)(dot - s->prefix), s->prefix, dot + 1);
    else
        snprintf(more, sizeof more, "%.*s %s", DB_MAX, s->db ? s->db : "", s->prefix);
    if (q->layout) /* user locks belong to the whole server */
        snprintf(more, sizeof more, "layout=%s", q->layout->name);
    return net_identity(ret, size, "mysql", &s->hosts, more);
}

static const char *engine_libraries(void)
{
    static char text[64]; /* protected by the loader's mutex */

    snprintf(text, sizeof text, "MariaDB Connector/C %.40s", mysql_get_client_info());
    return text;
}

const pawl_engine pawl_engine_mysql = {
    .abi = PAWL_ENGINE_ABI,
    .caps = SQL_CAPS,
    .scheme = "mysql",
    .state_size = sizeof(sql_sessions),
    .open = engine_open,
    .close = sql_layouts_close,
    .submit = sql_layouts_submit,
    .cancel = sql_layouts_cancel,
    .caps_of = sql_layouts_caps,
    .identity = engine_identity,
    .unfinished = sql_layouts_unfinished,
    .libraries = engine_libraries,
};
