/* SPDX-License-Identifier: Apache-2.0
 *
 * session_client_info.c - the client information in statements on sessions. Servers show the
 * statement that a session runs, or ran last, so inspect and list find the name and the client
 * there.
 */
#include <unistd.h>

#include "session.h"

size_t sql_session_hex(char *to, size_t room, const char *bytes, size_t most)
{
    size_t used = 0;

    to[0] = 0;
    for (size_t i = 0; i < most && bytes[i]; i++)
        used += (size_t)snprintf(to + used, room - used, "%02x", (unsigned char)bytes[i]);
    return used;
}

void sql_sessions_set_client_info(sql_sessions *pool)
{
    const pawl_env *env = pool->sql.env;

    pool->pid = getpid();
    snprintf(pool->host, sizeof pool->host, "%.*s", SQL_FACT_MAX, env->host[0] ? env->host : "?");
    snprintf(pool->program, sizeof pool->program, "%.*s", SQL_FACT_MAX, env->program);
    snprintf(pool->label, sizeof pool->label, "%.*s", SQL_FACT_MAX, env->label);
}

static size_t add_word(char *text, size_t used, const char *bytes, size_t most)
{
    size_t length = sql_session_hex(text + used, SQL_SESSION_TEXT - used, bytes, most);

    used += length;
    return used + (size_t)snprintf(text + used, SQL_SESSION_TEXT - used, length ? " " : "- ");
}

size_t sql_session_comment(const sql_session *s, int64_t lease_ms, int64_t since)
{
    sql_sessions *pool = s->pool;
    char *text = pool->text;
    size_t used = (size_t)snprintf(text, SQL_SESSION_TEXT, "/* pawl ");

    used = add_word(text, used, s->name, PAWL_NAME_MAX);
    used += (size_t)snprintf(text + used, SQL_SESSION_TEXT - used, "%lld %lld %lld ",
                             (long long)lease_ms, (long long)since, pool->pid);
    used = add_word(text, used, pool->host, SQL_FACT_MAX);
    used = add_word(text, used, pool->program, SQL_FACT_MAX);
    used = add_word(text, used, pool->label, SQL_FACT_MAX);
    return used + (size_t)snprintf(text + used, SQL_SESSION_TEXT - used, "*/ ");
}
