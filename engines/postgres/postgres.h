/* SPDX-License-Identifier: Apache-2.0
 *
 * postgres.h - functions that the parts of the PostgreSQL module share.
 */
#ifndef PAWL_POSTGRES_H
#define PAWL_POSTGRES_H

#include "sql/sql.h"

/* An operator of PostgreSQL itself. Each function, operator, type and relation in a statement has
 * its schema: for a bare name the server would take a better match that another user has put into a
 * schema of search_path. (Types with names of SQL, such as bigint, need none.) A statement does not
 * rely on SET search_path, because behind a pooler each transaction may have another session, and
 * because the next client of that session would inherit the setting. All these operators have the
 * same precedence, so arithmetic needs parentheses. */
#define PG_OP(operator) " OPERATOR(pg_catalog." operator ") "
#define PG_EQ PG_OP("=")
#define PG_NE PG_OP("<>")

/* The process id of the server session, from the protocol's first messages; a pooler invents
 * one. */
int pg_backend(const sql_link *link);

extern const sql_driver pg_driver; /* for the layout with tables */

/* relay.c: checks each message of the server before libpq gets it. */
typedef struct pg_relay pg_relay;

enum pg_relay_result {
    PG_RELAY_FED,   /* libpq has data to read */
    PG_RELAY_WAIT,  /* the server's message is not complete yet */
    PG_RELAY_CLEAR, /* the server asks for the password in clear */
    PG_RELAY_BAD    /* not PostgreSQL's protocol, or no memory */
};

/* Put the relay between libpq's socket `fd` and the server. NULL: no memory or no descriptors. */
pg_relay *pg_relay_new(int fd);
void pg_relay_free(pg_relay *r);
/* The socket to watch. */
int pg_relay_socket(const pg_relay *r);
/* Is `fd` still the relay's socket? False: libpq has opened another socket in the meantime. */
bool pg_relay_is(const pg_relay *r, int fd);
/* Pass libpq's output on to the server. False: the connection is broken. */
bool pg_relay_out(pg_relay *r);
enum pg_relay_result pg_relay_in(pg_relay *r);
/* Is the relay not needed any more? Then give the socket back, and free the relay. */
bool pg_relay_over(const pg_relay *r);
bool pg_relay_give_back(const pg_relay *r, int fd);

/* statements.c */
extern const char *const pg_statements[SQL_STATEMENTS];
extern const char *const pg_greeting[], *const pg_pooled_greeting[];
/* The answer to the first statement: the schema where the tables are, or would be created. */
bool pg_greeted(sql_link *link, const sql_reply *reply);
/* Advice about a refused connection, by the SQLSTATE and the error text; "": none. */
const char *pg_connect_advice(const sql_link *link, const char *state, const char *words);

/* check.c */
extern const char pg_check[], pg_version[];

/* examine.c */
extern const char pg_examine[], advisory_examine[];

#endif
