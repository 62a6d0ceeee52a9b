/* SPDX-License-Identifier: Apache-2.0
 *
 * postgres.h - what the parts of the module for PostgreSQL know of each other.
 */
#ifndef PAWL_POSTGRES_H
#define PAWL_POSTGRES_H

#include "sql/sql.h"

/* The server's process as the protocol's first messages told it; a pooler makes one up. */
int pg_backend(const sql_link *link);

extern const sql_driver pg_driver; /* of the tables */

/* relay.c: nothing of the server's reaches libpq before it was looked at. */
typedef struct pg_relay pg_relay;

enum pg_relay_result {
    PG_RELAY_FED,   /* libpq has something to read */
    PG_RELAY_WAIT,  /* the server has not said enough yet */
    PG_RELAY_CLEAR, /* the server asks for the password in clear */
    PG_RELAY_BAD    /* what the server says is not PostgreSQL's protocol, or no memory */
};

/* From now on libpq's socket `fd` is the relay's. NULL: no memory or no descriptors. */
pg_relay *pg_relay_new(int fd);
void pg_relay_free(pg_relay *r);
/* The socket to watch. */
int pg_relay_socket(const pg_relay *r);
/* False: libpq has opened another socket meanwhile. */
bool pg_relay_is(const pg_relay *r, int fd);
/* Pass on what libpq has written. False: the connection is broken. */
bool pg_relay_out(pg_relay *r);
enum pg_relay_result pg_relay_in(pg_relay *r);
/* After what was handed over last the relay is not needed: give the socket back, and free. */
bool pg_relay_over(const pg_relay *r);
bool pg_relay_give_back(const pg_relay *r, int fd);

/* error_text.c */
extern const char *const pg_statements[SQL_STATEMENTS];
extern const char *const pg_greeting[], *const pg_pooled_greeting[];
extern const char pg_check[];
/* What to do about a refused connection, by its SQLSTATE and words; "": nothing to add. */
const char *pg_connect_advice(const char *state, const char *words);

/* examine.c */
extern const char pg_examine[], advisory_examine[];

#endif
