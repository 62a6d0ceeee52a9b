/* SPDX-License-Identifier: Apache-2.0 */
#include <pawl-sql.h>

int main(void)
{
    char limit[64], select[256];

    if (pawl_sql_limit(limit, sizeof limit, PAWL_SQL_POSTGRES, 500) ||
        pawl_sql_for_update(select, sizeof select, PAWL_SQL_POSTGRES,
                            "SELECT pieces FROM stock WHERE item = $1", 500))
        return 1; /* a text does not fit */
    /* Send these statements with the library of your database. */
    printf("BEGIN\n%s\n%s\nUPDATE stock SET pieces = pieces - 1 WHERE item = $1\nCOMMIT\n",
           limit, select);
    if (pawl_sql_postgres_outcome("55P03") == PAWL_SQL_TAKEN) /* the SQLSTATE of a refusal */
        puts("another transaction has the row");
    return 0;
}
