/* SPDX-License-Identifier: Apache-2.0
 *
 * advisory.h - layout=advisory: PostgreSQL's session advisory locks as the lock itself, shared with
 * every program that calls pg_advisory_lock(). No tables. ../sql/session.h describes the mechanism;
 * these files have the statements:
 *
 *     advisory_greet.c    the first statements on a connection
 *     advisory_key.c      names and keys
 *     advisory_say.c      the statements
 *     advisory_inspect.c  inspect, list, break
 *
 * TOKENS. A token is the number of a transaction that ran after the lock was granted; the higher
 * bits are the server's timeline, which grows with each promotion of a standby. The transaction
 * writes an empty message to the write-ahead log: else the server would not flush the commit to the
 * disk before answering, and would use the same number again after a crash.
 */
#ifndef PAWL_ADVISORY_H
#define PAWL_ADVISORY_H

#include "sql/session.h"

/* ---- advisory_key.c -------------------------------------------------------------------------- */

/* A key as in pg_locks: the halves of a bigint, or two integers. */
typedef struct advisory_key {
    uint32_t high, low;
    bool pair;
} advisory_key;

/* Call before any other function of this section. */
void advisory_key_init(pawl_env *env);
advisory_key advisory_key_of(const char *name);
/* The key as an argument of the server's functions: "'42'::bigint". */
void advisory_key_literals(advisory_key key, char text[64]);
/* The key as a name in plain numbers. */
void advisory_key_name(advisory_key key, char name[32]);
static inline bool advisory_key_equal(advisory_key a, advisory_key b)
{
    return a.high == b.high && a.low == b.low && a.pair == b.pair;
}

/* ---- advisory_say.c -------------------------------------------------------------------------- */

extern const sql_layout advisory_layout;
extern const sql_driver advisory_driver; /* postgres.c */

void advisory_say_break(sql_sessions *pool, advisory_key key, sql_params *p);
/* Write the statement that inspects one key; key NULL: all keys. */
void advisory_say_inspect(sql_sessions *pool, const advisory_key *key, sql_params *p);

/* ---- advisory_greet.c, advisory_inspect.c ---------------------------------------------------- */

extern const char *const advisory_greeting[];
bool advisory_greeted(sql_link *link, const sql_reply *reply);
extern const sql_call_type advisory_inspection, advisory_breaks;

#endif
