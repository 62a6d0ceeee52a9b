/* SPDX-License-Identifier: Apache-2.0
 *
 * look.c - the state of a name at the moment, for messages that say more than an error code.
 *
 * The state may have changed by the time the message is read. So the state goes into texts only,
 * and never decides about a lock.
 */
#include "tool.h"

static int row(void *arg, const pawl_info *info)
{
    look *l = arg;

    if (info->role == PAWL_ROLE_SUMMARY) {
        l->type = info->type;
        l->count = info->count;
        l->used = info->holders || info->waiters ||
                  (info->type == PAWL_TYPE_LATCH && info->count > 0);
    } else if (info->role == PAWL_ROLE_HOLDER && l->token && info->token == l->token) {
        l->pid = info->pid;
        l->shared = info->shared;
    }
    return 0;
}

int look_at(pawl_client *client, const char *name, look *ret, pawl_error *err)
{
    return pawl_inspect(client, name, row, ret, err);
}

/* "a latch", "a semaphore of 2 permits", "a lock". */
static const char *with_article(const look *l, char *buf, size_t size)
{
    if (l->type == PAWL_TYPE_SEMAPHORE)
        snprintf(buf, size, "a semaphore of %lld permit%s", (long long)l->count,
                 l->count == 1 ? "" : "s");
    else
        snprintf(buf, size, l->type == PAWL_TYPE_LATCH ? "a latch" : "a lock");
    return buf;
}

bool say_misfit(pawl_client *client, const char *name, uint64_t type, uint64_t permits)
{
    const pawl_info wanted = {.type = type};
    char text[64];
    look l = {0};

    if (look_at(client, name, &l, NULL) || !l.used)
        return false;
    if (l.type != type)
        say("'%s' is %s, not a %s", name, with_article(&l, text, sizeof text), type_text(&wanted));
    else if (type == PAWL_TYPE_SEMAPHORE && l.count != (int64_t)permits)
        say("'%s' has %lld permit%s, not %llu", name, (long long)l.count, l.count == 1 ? "" : "s",
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
