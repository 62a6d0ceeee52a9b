/* SPDX-License-Identifier: Apache-2.0
 *
 * userlock_inspect.c - inspect, list and break of layout=session.
 *
 * IS_USED_LOCK() names the connection that has a user lock, of Pawl or of another program. Pawl's
 * row describes the connection if the row has the same connection id, and was written since the
 * server started, because ids begin anew then. Waiters are sessions in the state 'User lock' whose
 * statement begins with Pawl's comment. Without the right PROCESS a user sees only its own sessions
 * in the list of processes; for sessions of other users only Pawl's row is known, and their waiters
 * are not; a row without a name, before all others, says so. The server can't list user locks, so
 * `list` shows only the locks that have a row.
 *
 * Columns: see ../sql/inspect.c.
 */
#include <stdlib.h>

#include "userlock.h"

#define IDLE_MS "/*M! p.time_ms */ /*!50700 p.time * 1000 */"
#define STATUS                                                                                     \
    "/*M! information_schema.global_status */ /*!50700 performance_schema.global_status */"
#define OWNER(id, kind) "CONCAT(LPAD(LOWER(HEX(" id ")), 16, '0'), '" kind "')"
/* A word of the comment, from 3: NAME LEASE SINCE PID HOST PROGRAM LABEL. The statement of another
 * program may be long. */
#define WORD(n) "SUBSTRING_INDEX(SUBSTRING_INDEX(LEFT(p.info, 2000), ' ', " #n "), ' ', -1)"

enum { ROLE = 3 };

/* %s: the user locks to look at (name, lock_name, id); the tables' prefix; a condition for
 * waiters. */
static const char inspection[] =
    "SELECT LOWER(HEX(h.name)) AS name, 1, 0, 'h' AS role, " OWNER("h.id", ":1") ", 'x', 0, "
    "IFNULL(r.token, 0), IFNULL(t.now - r.since, -1), IFNULL(GREATEST(r.lease - "
    "IF(p.command = 'Sleep', " IDLE_MS ", 0), 0), -1), IFNULL(r.pid, 0), "
    "IFNULL(r.host, SUBSTRING_INDEX(p.host, ':', 1)), IFNULL(r.program, CONCAT('user ', p.user)), "
    "IFNULL(r.label, ''), 0 AS place FROM (%s) h "
    "JOIN (SELECT " MY_US " DIV 1000 AS now) t "
    "JOIN (SELECT variable_value AS s FROM " STATUS " WHERE variable_name = 'Uptime') u "
    "LEFT JOIN %s_session r ON r.lock_name = h.lock_name AND r.connection = h.id "
    "AND r.since > t.now - (u.s + 2) * 1000 "
    "LEFT JOIN information_schema.processlist p ON p.id = h.id WHERE h.id IS NOT NULL "
    "UNION ALL SELECT " WORD(3) ", 1, 0, 'w', " OWNER("p.id", ":0") ", 'x', 0, 0, "
    "CAST(" IDLE_MS " AS SIGNED), -1, " WORD(6) ", UNHEX(" WORD(7) "), UNHEX(" WORD(8) "), "
    "IFNULL(UNHEX(" WORD(9) "), ''), 0 - " IDLE_MS " FROM information_schema.processlist p "
    "WHERE p.state = 'User lock' AND p.info LIKE '/* pawl %%'%s "
    "UNION ALL SELECT '', 0, 0, 'hidden', '', '', 0, 0, 0, 0, 0, '', '', '', 0 "
    "FROM (SELECT 1) AS one WHERE " MY_SESSIONS_HIDDEN " "
    "ORDER BY name, role, place LIMIT " SQL_ROWS_TEXT;

static void fill_inspect(const sql_call *call, sql_params *p)
{
    const pawl_op *op = call->about;
    sql_sessions *pool = sql_sessions_of(call);
    char locks[MY_LOCK_HEX * 2 + 2 * PAWL_NAME_MAX + 200], waiters[2 * PAWL_NAME_MAX + 600] = "";
    char lock[MY_LOCK_HEX], name[2 * PAWL_NAME_MAX + 1];

    if (op->kind == PAWL_OP_INSPECT) {
        my_lock_on(call->on, op->name, lock);
        sql_session_hex(name, sizeof name, op->name, PAWL_NAME_MAX);
        snprintf(locks, sizeof locks, "SELECT x'%s' AS name, x'%s' AS lock_name, "
                 "IS_USED_LOCK(x'%s') AS id", name, lock, lock);
        snprintf(waiters, sizeof waiters, " AND " WORD(3) " = '%s'", name);
    } else {
        snprintf(locks, sizeof locks, "SELECT name, lock_name, IS_USED_LOCK(lock_name) AS id FROM "
                 "%s_session", pool->sql.place);
    }
    snprintf(pool->text, sizeof pool->text, inspection, locks, pool->sql.place, waiters);
    p->text = pool->text;
}

static const char *cell_after_first(const sql_reply *reply, size_t row, int column)
{
    const sql_reply *all = reply->data;

    return all->cell(all, row + 1, column);
}

static bool answer_inspect(sql_call *call, const sql_reply *reply)
{
    pawl_op *op = call->about;
    const char *role = reply->cell(reply, 0, ROLE);
    sql_reply rest = {.rows = reply->rows - 1, .cell = cell_after_first,
                      .data = (void *)(uintptr_t)reply};

    if (role && !strcmp(role, "hidden")) {
        sql_sessions_tell_right(sql_sessions_of(call), "PROCESS ON *.*", "waiters of other users "
                                "are not shown");
        reply = &rest;
    }
    if (sql_cut(reply))
        sql_done(op, PAWL_EBACKEND, SQL_CUT_TEXT);
    else
        sql_done(op, sql_show(op, reply), NULL);
    return true;
}

/* The text waits until the session has ended: then the lock is free, or the next waiter has it.
 * KILL of no session fails (1094), which my_fault reads as PAWL_ENOTHELD. */
static void fill_break(const sql_call *call, sql_params *p)
{
    static const char *const pauses[] = {"0.001", "0.002", "0.005", "0.01", "0.02", "0.05", "0.1",
        "0.2", "0.4"};
    const pawl_op *op = call->about;
    sql_sessions *pool = sql_sessions_of(call);
    char lock[MY_LOCK_HEX];
    size_t used;

    my_lock_on(call->on, op->name, lock);
    used = (size_t)snprintf(pool->text, sizeof pool->text, "SET @pawl_id = IS_USED_LOCK(x'%s'); "
                            "KILL @pawl_id; ", lock);
    for (size_t i = 0; i < sizeof pauses / sizeof pauses[0]; i++)
        used += (size_t)snprintf(pool->text + used, sizeof pool->text - used,
                                 "DO IF(IS_USED_LOCK(x'%s') <=> @pawl_id, SLEEP(%s), 0); ", lock,
                                 pauses[i]);
    snprintf(pool->text + used, sizeof pool->text - used,
             "SELECT IF(IS_USED_LOCK(x'%s') <=> @pawl_id, 'f', 't')", lock);
    p->text = pool->text;
}

static bool answer_break(sql_call *call, const sql_reply *reply)
{
    const char *ended = reply->cell(reply, 0, 0);

    if (!ended)
        return false;
    if (ended[0] == 't')
        sql_done(call->about, 0, NULL);
    else
        sql_done(call->about, PAWL_EUNKNOWN, "the server has not ended the session yet");
    return true;
}

static void failed(sql_call *call, int code, const char *words)
{
    sql_done(call->about, code, words);
}

const sql_call_type my_inspection = {.fill = fill_inspect, .answer = answer_inspect,
    .failed = failed};
const sql_call_type my_breaks = {.fill = fill_break, .answer = answer_break, .failed = failed};
