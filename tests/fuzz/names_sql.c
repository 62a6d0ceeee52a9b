/* SPDX-License-Identifier: Apache-2.0
 *
 * names_sql.c - names as keys of PostgreSQL's own locks; see fuzz_names.c. Tables store the name's
 * bytes unchanged.
 */
#include "names.h"

#include "postgres/advisory.h"

static advisory_key check_key(const char *name)
{
    advisory_key key = advisory_key_of(name), again;
    char plain[32], literals[64];

    advisory_key_name(key, plain);
    advisory_key_literals(key, literals);
    DEMAND(strspn(plain, "-0123456789:") == strlen(plain));
    DEMAND(strspn(literals, "-0123456789':, bigint") == strlen(literals));
    again = advisory_key_of(plain);
    DEMAND(advisory_key_equal(key, again));
    return key;
}

/* Two names may have the same key only if one of them is the hash of the other, written as a
 * number. */
void names_sql(const char *a, const char *b)
{
    advisory_key x = check_key(a), y = check_key(b);
    char plain[32];

    advisory_key_name(x, plain);
    DEMAND(!advisory_key_equal(x, y) || !strcmp(plain, a) || !strcmp(plain, b));
}
