/* SPDX-License-Identifier: Apache-2.0
 *
 * hash.h - SHA-256, for names that a server can't take as they are.
 */
#ifndef PAWL_SQL_HASH_H
#define PAWL_SQL_HASH_H

#include "engine.h"

#define SQL_HASH_BYTES 32

/* Call before sql_hash. */
void sql_hash_init(pawl_env *env);
void sql_hash(const char *text, unsigned char hash[SQL_HASH_BYTES]);

#endif
