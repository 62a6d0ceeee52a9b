/* SPDX-License-Identifier: Apache-2.0
 *
 * name_info.c - the state of a name at the moment, for messages that say more than an error code.
 *
 * The state may have changed by the time the message is read. So the state goes into texts only,
 * and never decides about a lock.
 */
#include "tool.h"

static int row(void *arg, const pawl_info *info)
{
    name_info *n = arg;

    if (info->role == PAWL_ROLE_SUMMARY) {
        n->type = info->type;
        n->count = info->count;
        n->used = info->holders || info->waiters ||
                  (info->type == PAWL_TYPE_LATCH && info->count > 0);
    } else if (info->role == PAWL_ROLE_HOLDER && n->token && info->token == n->token) {
        n->pid = info->pid;
        n->shared = info->shared;
    }
    return 0;
}

int inspect_name(pawl_client *client, const char *name, name_info *ret, pawl_error *err)
{
    return pawl_inspect(client, name, row, ret, err);
}

/* "a latch", "a semaphore of 2 permits", "a lock". */
static const char *with_article(const name_info *n, char *buf, size_t size)
{
    if (n->type == PAWL_TYPE_SEMAPHORE)
        snprintf(buf, size, "a semaphore of %lld permit%s", (long long)n->count,
                 n->count == 1 ? "" : "s");
    else
        snprintf(buf, size, n->type == PAWL_TYPE_LATCH ? "a latch" : "a lock");
    return buf;
}

bool say_misfit(pawl_client *client, const char *name, uint64_t type, uint64_t permits)
{
    const pawl_info wanted = {.type = type};
    char text[64];
    name_info n = {0};

    if (inspect_name(client, name, &n, NULL) || !n.used)
        return false;
    if (n.type != type)
        say("'%s' is %s, not a %s", name, with_article(&n, text, sizeof text), type_text(&wanted));
    else if (type == PAWL_TYPE_SEMAPHORE && n.count != (int64_t)permits)
        say("'%s' has %lld permit%s, not %llu", name, (long long)n.count, n.count == 1 ? "" : "s",
            (unsigned long long)permits);
    else
        return false;
    return true;
}

/* The process id tells left-over grants only on this machine: on a server, a holder without a
 * process id may also be a client of another library. */
bool left_over(const pawl_info *info)
{
    return info->role == PAWL_ROLE_HOLDER && info->type == PAWL_TYPE_LOCK && !info->pid &&
           info->lease_ms >= 0 && service_is_here();
}
