/* SPDX-License-Identifier: Apache-2.0
 *
 * rights.c - statements that find out which rights a user lacks on MariaDB and MySQL: one for each
 * right, because a server names the first missing right only, and the lists of rights in
 * information_schema leave out the rights of roles. No statement touches a row.
 */
#include "mysql.h"

/* Values are constants, because reading a column needs SELECT. */
#define SELECT(table) "SELECT ON $TABLE" table "\nSELECT 1 FROM @" table " WHERE FALSE\n;;\n"
#define INSERT(table, column)                                                                      \
    "INSERT ON $TABLE" table "\nINSERT INTO @" table " (" column ") "                              \
    "SELECT 0 FROM (SELECT 1) one WHERE FALSE\n;;\n"
#define UPDATE(table, column)                                                                      \
    "UPDATE ON $TABLE" table "\nUPDATE @" table " SET " column " = 0 WHERE FALSE\n;;\n"
#define DELETE(table) "DELETE ON $TABLE" table "\nDELETE FROM @" table " WHERE FALSE\n;;\n"
#define ALL(table, column)                                                                         \
    SELECT(table) INSERT(table, column) UPDATE(table, column) DELETE(table)

const char my_probes[] =
    ALL("", "token") ALL("_member", "lease") ALL("_client", "pid")
    SELECT("_mail") INSERT("_mail", "at") DELETE("_mail")
    "\n" MY_MAY_CALL;

const char my_session_probes[] = ALL("_session", "token");
