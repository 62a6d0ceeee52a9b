/* SPDX-License-Identifier: Apache-2.0
 *
 * userlock_name.c - Pawl's names and the names of user locks.
 *
 *     MariaDB: up to 192 bytes            the name itself
 *     MySQL: up to 64 bytes of ASCII,
 *     without capitals and control codes  the name itself
 *     all others, and "pawl:..."          "pawl:" and the first 56 hex digits of the name's SHA-256
 *
 * MariaDB compares bytes. MySQL converts names from the client's character set, ignores case, and
 * counts characters; with names of lower case every user lock of MySQL can be reached. The user
 * locks of the table layout (pawl:CLIENT, pawl:making) are shorter than a digest.
 */
#include "sql/hash.h"
#include "userlock.h"

#define MYSQL_MAX 64
#define DIGEST_BYTES 28

static bool is_plain(bool mariadb, const char *name)
{
    size_t n = strlen(name);

    if (!n || n > (mariadb ? MY_LOCK_MAX : MYSQL_MAX) || !strncmp(name, "pawl:", 5))
        return false;
    for (const char *c = name; *c && !mariadb; c++)
        if (*c < ' ' || *c > '~' || (*c >= 'A' && *c <= 'Z'))
            return false;
    return true;
}

void my_lock_name(bool mariadb, const char *name, char hex[MY_LOCK_HEX])
{
    unsigned char hash[SQL_HASH_BYTES];
    char digest[5 + 2 * DIGEST_BYTES + 1] = "pawl:";

    if (!is_plain(mariadb, name)) {
        sql_hash(name, hash);
        for (size_t i = 0; i < DIGEST_BYTES; i++)
            snprintf(digest + 5 + 2 * i, 3, "%02x", hash[i]);
        name = digest;
    }
    sql_session_hex(hex, MY_LOCK_HEX, name, MY_LOCK_MAX);
}

void my_lock_on(const sql_link *link, const char *name, char hex[MY_LOCK_HEX])
{
    const my *m = link->conn;

    my_lock_name(mariadb_connection(m->mysql), name, hex);
}
