/* SPDX-License-Identifier: Apache-2.0
 *
 * userlock_say.c - the statements of layout=session. A text has several statements, which the
 * server carries out one after the other, and stops at the first error; the only rows are the
 * answer. All texts from outside are in hex.
 *
 * An acquire is one text, or two: a try, and if the try is refused, a text that waits. The refusal
 * proves that another session has the lock. A text sets the lease (wait_timeout), asks for the
 * lock, writes the row with the token if the lock was granted, and reads the row. A user lock stays
 * if a later statement fails; then session.c unlocks. A session that has the lock already does not
 * ask again, because the server would count. The comment before the text shows inspect the name
 * and the client of a session that waits.
 *
 * wait_timeout is in seconds, so a session is ended up to a second after its lease.
 */
#include "userlock.h"

#define LEASE_MAX_MS (INT64_C(1000) * 86400 * 365) /* the server's own limit */
#define WAIT_S "31536000"

static long long seconds(int64_t ms)
{
    return (ms + 999) / 1000;
}

static size_t add_lock(sql_sessions *pool, size_t used, const char *lock, int64_t lease_ms,
                       bool waits)
{
    return used + (size_t)snprintf(pool->text + used, SQL_SESSION_TEXT - used,
        "SET SESSION wait_timeout = %lld, @pawl_from = UTC_TIMESTAMP(6), @pawl_got = "
        "IF(IS_USED_LOCK(x'%s') = CONNECTION_ID(), 1, GET_LOCK(x'%s', %s)); ",
        seconds(lease_ms), lock, lock, waits ? WAIT_S : "0");
}

static size_t add_row(const sql_session *s, size_t used, const char *lock, int64_t lease_ms)
{
    sql_sessions *pool = s->pool;
    char name[2 * PAWL_NAME_MAX + 1], host[2 * SQL_FACT_MAX + 1], program[2 * SQL_FACT_MAX + 1];
    char label[2 * SQL_FACT_MAX + 1];

    sql_session_hex(name, sizeof name, s->name, PAWL_NAME_MAX);
    sql_session_hex(host, sizeof host, pool->host, SQL_FACT_MAX);
    sql_session_hex(program, sizeof program, pool->program, SQL_FACT_MAX);
    sql_session_hex(label, sizeof label, pool->label, SQL_FACT_MAX);
    return used + (size_t)snprintf(pool->text + used, SQL_SESSION_TEXT - used,
        "INSERT INTO %s_session (lock_name, name, token, connection, since, lease, pid, host, "
        "program, label) SELECT x'%s', x'%s', t.us, CONNECTION_ID(), t.us DIV 1000, %lld, %lld, "
        "x'%s', x'%s', x'%s' FROM (SELECT " MY_US " AS us) t WHERE @pawl_got = 1 "
        "ON DUPLICATE KEY UPDATE token = GREATEST(token + 1, VALUES(token)), name = VALUES(name), "
        "connection = VALUES(connection), since = VALUES(since), lease = VALUES(lease), "
        "pid = VALUES(pid), host = VALUES(host), program = VALUES(program), "
        "label = VALUES(label); ",
        pool->sql.place, lock, name, (long long)lease_ms, pool->pid, host, program, label);
}

static void say_acquire(const sql_session *s, int64_t lease_ms, sql_params *p)
{
    char lock[MY_LOCK_HEX];
    size_t used = sql_session_comment(s, lease_ms, 0);

    my_lock_on(&s->link, s->name, lock);
    used = add_lock(s->pool, used, lock, lease_ms, s->tried);
    used = add_row(s, used, lock, lease_ms);
    snprintf(s->pool->text + used, SQL_SESSION_TEXT - used,
             "SELECT CASE @pawl_got WHEN 1 THEN IFNULL((SELECT CONCAT_WS(' ', %d, connection, "
             "token, since, TIMESTAMPDIFF(MICROSECOND, @pawl_from, UTC_TIMESTAMP(6)) DIV 1000) "
             "FROM %s_session WHERE lock_name = x'%s' AND connection = CONNECTION_ID()), 'ENDED') "
             "WHEN 0 THEN NULL ELSE 'ENDED' END", s->tried, s->pool->sql.place, lock);
    p->text = s->pool->text;
}

static void say_release(const sql_session *s, int mode, sql_params *p)
{
    char lock[MY_LOCK_HEX];

    (void)mode;
    my_lock_on(&s->link, s->name, lock);
    snprintf(s->pool->text, SQL_SESSION_TEXT, "SELECT IF(RELEASE_LOCK(x'%s'), 't', 'f')", lock);
    p->text = s->pool->text;
}

static void say_renew(const sql_session *s, int64_t lease_ms, sql_params *p)
{
    snprintf(s->pool->text, SQL_SESSION_TEXT,
             "SET SESSION wait_timeout = %lld; SELECT CONNECTION_ID()", seconds(lease_ms));
    p->text = s->pool->text;
}

/* The row has the lease for inspect. A renewal must not depend on the row, which another
 * transaction may have locked. MariaDB waits neither for the row nor for the table; MySQL waits for
 * the row (2 s at most) and for the table. */
static void say_lease(const sql_session *s, sql_params *p)
{
    char lock[MY_LOCK_HEX];

    my_lock_on(&s->link, s->name, lock);
    snprintf(s->pool->text, SQL_SESSION_TEXT,
             "/*M! SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0 FOR */ "
             "UPDATE %s_session SET lease = %lld WHERE lock_name = x'%s' AND connection = "
             "CONNECTION_ID()", s->pool->sql.place, (long long)s->timeout_ms, lock);
    p->text = s->pool->text;
}

static void say_waits(const sql_session *s, sql_params *p)
{
    snprintf(s->pool->text, SQL_SESSION_TEXT, "SELECT IF(COUNT(*), 't', 'f') FROM "
             "information_schema.processlist WHERE id = %lld AND state = 'User lock'",
             (long long)s->backend);
    p->text = s->pool->text;
}

static void say_cancel(const sql_session *s, sql_params *p)
{
    snprintf(s->pool->text, SQL_SESSION_TEXT, "KILL QUERY %lld", (long long)s->backend);
    p->text = s->pool->text;
}

/* The candidates are found without locks, and deleted by the primary key: an acquire locks rows in
 * the same order, so the two statements can't deadlock. */
static void say_tidy(const sql_session *s, sql_params *p)
{
    static const char day_ago[] = "(" MY_US " DIV 1000 - 86400000)";

    snprintf(s->pool->text, SQL_SESSION_TEXT,
             "DELETE FROM %s_session WHERE lock_name IN (SELECT d.lock_name FROM (SELECT lock_name "
             "FROM %s_session WHERE since < %s LIMIT 100) d) AND since < %s AND token < %s * 1000 "
             "AND IS_FREE_LOCK(lock_name)", s->pool->sql.place, s->pool->sql.place, day_ago,
             day_ago, day_ago);
    p->text = s->pool->text;
}

const sql_layout my_layout = {
    .driver = &my_session_driver,
    .name = "session",
    .kinds = "layout=session has only exclusive locks: no shared locks, no semaphores, no latches",
    .caps = SQL_SESSION_CAPS,
    .lease_max_ms = LEASE_MAX_MS,
    .say_acquire = say_acquire,
    .say_release = say_release,
    .say_renew = say_renew,
    .say_lease = say_lease,
    .say_waits = say_waits,
    .waiting = "SELECT id FROM information_schema.processlist WHERE state = 'User lock'",
    .say_cancel = say_cancel,
    .say_tidy = say_tidy,
    .inspection = &my_inspection,
    .breaks = &my_breaks,
};
