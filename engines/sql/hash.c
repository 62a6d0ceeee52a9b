/* SPDX-License-Identifier: Apache-2.0
 *
 * hash.c - SHA-256. A mutex is held around OpenSSL, because a forked child could find OpenSSL's
 * internal locks taken.
 */
#include <openssl/sha.h>
#include <pthread.h>
#include <string.h>

#include "hash.h"

static pthread_mutex_t hashing = PTHREAD_MUTEX_INITIALIZER;

void sql_hash_init(pawl_env *env)
{
    env->fork_mutex_add(&hashing);
}

void sql_hash(const char *text, unsigned char hash[SQL_HASH_BYTES])
{
    pthread_mutex_lock(&hashing);
    SHA256((const unsigned char *)text, strlen(text), hash);
    pthread_mutex_unlock(&hashing);
}
