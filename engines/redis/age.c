/* SPDX-License-Identifier: Apache-2.0
 *
 * age.c - how long the server has run, for a quorum: a server that lost its data in a restart has
 * forgotten grants whose leases may still be valid.
 *
 * The client sends INFO once on every new connection, before anything else, so that the answer
 * comes before the first grant. Only a quorum needs the age, and asks by op->floor; other clients
 * never send INFO, so that users without the right to INFO don't fill the server's ACL log. INFO
 * counts whole seconds and cuts off both ends, so one second less has certainly passed. If INFO is
 * refused, the server counts as started with the connection.
 */
#include <stdlib.h>

#include "redis.h"

static int write_info(redis_call *call, resp_buf *out)
{
    resp_command c = resp_begin(out, 2);

    (void)call;
    resp_add_text(&c, "INFO");
    resp_add_text(&c, "server");
    return resp_end(&c);
}

static void began(redis_call *call, int64_t seconds)
{
    redis_link *link = call->on;

    link->born = link->env->now(link->env) - seconds * 1000 * PAWL_NS_PER_MS;
}

/* The text has lines "uptime_in_seconds:17". */
static bool info_answered(redis_call *call, const resp_node *reply)
{
    static const char key[] = "uptime_in_seconds:";
    const char *at = resp_is_text(reply) ? memmem(reply->text, reply->length, key, sizeof key - 1)
                                         : NULL;
    size_t left = at ? reply->length - (size_t)(at - reply->text) - (sizeof key - 1) : 0;
    int64_t seconds = 0;

    if (at)
        at += sizeof key - 1;
    for (size_t i = 0; i < left && i < 10 && at[i] >= '0' && at[i] <= '9'; i++)
        seconds = seconds * 10 + at[i] - '0';
    began(call, seconds > 1 ? seconds - 1 : 0);
    return true;
}

static void info_failed(redis_call *call, int code, const char *words)
{
    redis_link *link = call->on;

    if (code == PAWL_EUNKNOWN || code == PAWL_ECANCELED)
        return; /* the connection is lost, too */
    link->env->log(link->env, PAWL_LOG_WARNING, "%s: INFO does not say for how long it has run, so "
                   "it counts as just started in a quorum: %s", link->where, words);
    began(call, 0);
}

static void ask(redis *r, redis_link *link)
{
    static const redis_call_type type = {.write = write_info, .answer = info_answered,
        .failed = info_failed};
    redis_call *call = redis_call_new(link, &type, r, 0);

    if (call)
        redis_link_send(link, call);
}

void redis_age_want(redis *r, redis_link *link)
{
    if (link->state == LINK_READY && !r->wants_age)
        ask(r, link);
    r->wants_age = true;
}

void redis_age_ready(redis *r, redis_link *link)
{
    link->born = link->env->now(link->env); /* until INFO is answered */
    if (r->wants_age)
        ask(r, link);
}

int64_t redis_age_ms(const redis_link *link)
{
    int64_t ms = (link->env->now(link->env) - link->born) / PAWL_NS_PER_MS;

    return ms > 1 ? ms : 1;
}
