/* SPDX-License-Identifier: Apache-2.0
 *
 * userlock.h - layout=session: user locks of MariaDB and MySQL (GET_LOCK) as the lock itself,
 * shared with every program that calls GET_LOCK(). ../sql/session.h describes the mechanism; these
 * files have the statements:
 *
 *     userlock_name.c     Pawl's names and the names of user locks
 *     userlock_say.c      the statements
 *     userlock_inspect.c  inspect, list, break
 *     userlock.c          the greeting, and the driver
 *     session.sql         the table
 *
 * TOKENS are in a table of Pawl's, @_session, with a row for each user lock. The statement that
 * takes the lock writes the row after the grant and before its answer: token = the last token + 1,
 * or the server's time in microseconds, whichever is larger. Only the session that has the user
 * lock writes the row, so no transaction is needed. The row also describes the session, because the
 * server does not show the last statement of an idle session.
 *
 * A user lock belongs to the whole server, not to a database.
 */
#ifndef PAWL_MYSQL_USERLOCK_H
#define PAWL_MYSQL_USERLOCK_H

#include "mysql.h"
#include "sql/session.h"

/* True if this user, for lack of the right PROCESS, does not see all sessions (or if a session has
 * just begun). */
#define MY_SESSIONS_HIDDEN                                                                         \
    "(SELECT s.variable_value FROM /*M! information_schema.global_status */ "                      \
    "/*!50700 performance_schema.global_status */ AS s "                                           \
    "WHERE s.variable_name = 'threads_connected') > "                                              \
    "(SELECT COUNT(*) FROM information_schema.processlist)"

#define MY_LOCK_MAX 192                   /* bytes of a user lock's name on MariaDB */
#define MY_LOCK_HEX (2 * MY_LOCK_MAX + 1)

/* The name of the user lock for Pawl's name, in hex. */
void my_lock_name(bool mariadb, const char *name, char hex[MY_LOCK_HEX]);
/* The same, for the server that the link is connected to. */
void my_lock_on(const sql_link *link, const char *name, char hex[MY_LOCK_HEX]);

extern const sql_layout my_layout;
extern const sql_call_type my_inspection, my_breaks;

/* userlock.c */
extern const char *const my_session_greeting[];
extern const char my_session_check[], my_session_version[];
bool my_session_greeted(sql_link *link, const sql_reply *reply);

#define MY_US "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

#endif
