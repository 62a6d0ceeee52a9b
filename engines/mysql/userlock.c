/* SPDX-License-Identifier: Apache-2.0
 *
 * userlock.c - the greeting of a connection of layout=session: the settings of the session, whether
 * the server is read only, the connection id, and whether the table exists and may be used.
 *
 * wait_timeout is 60 s until the first acquire, which sets its lease. A row of the table that
 * another transaction has locked delays an acquire for 2 s at most; the connection is not shared,
 * so nobody else waits.
 */
#include <stdlib.h>

#include "userlock.h"

enum { READ_ONLY, ID };

const char *const my_session_greeting[] = {
    [READ_ONLY] = "SET SESSION autocommit = 1, innodb_lock_wait_timeout = 2, wait_timeout = 60, "
                  MY_NO_GUARDS
                  "/*M! , max_statement_time = 0 */ /*!80000 , max_execution_time = 0 */; "
                  "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; "
                  "SHOW GLOBAL VARIABLES LIKE 'read_only'",
    [ID] = "SELECT CONNECTION_ID()",
    NULL, NULL};

/* A view in place of the table could call functions with the rights of its user. */
const char my_session_check[] =
    "SELECT CONCAT(table_name, ' is no table but a ', LOWER(table_type)) "
    "FROM information_schema.tables WHERE table_schema = $SCHEMA AND table_type <> 'BASE TABLE' "
    "AND table_name = '$TABLE_session'";

/* Needs each right that the other statements need, so that the error names a missing right at
 * once. */
const char my_session_version[] =
    "INSERT INTO @_session SELECT * FROM @_session WHERE FALSE; "
    "UPDATE @_session SET lease = lease WHERE FALSE; DELETE FROM @_session WHERE FALSE; SELECT 2";

bool my_session_greeted(sql_link *link, const sql_reply *reply)
{
    const char *id = reply->cell(reply, 0, 0);
    sql_session *s = (sql_session *)(void *)link;

    if (link->step == READ_ONLY)
        return my_greeted(link, reply);
    if (link->step == ID && link != &link->sql->link)
        s->backend = id ? strtoll(id, NULL, 10) : 0;
    return true;
}
