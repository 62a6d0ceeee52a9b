/* SPDX-License-Identifier: Apache-2.0
 *
 * hello.c - the greeting of a connection. These commands are sent at once:
 *
 *     HELLO 3 [AUTH user password]   RESP3, and the login
 *     SELECT db                      if the database is not 0
 *     SUBSCRIBE channel              before any request: a grant reaches only subscribers
 *     PING                           a refusal of SUBSCRIBE would come in place of PONG
 *     PUBLISH channel? ""            checks the right to publish. Scripts that pass a lock on send
 *                                    messages, and a refusal inside a script would leave the next
 *                                    waiter asleep. Without this right the link is mute: only
 *                                    inspections, renewals and releases are sent
 *
 * and when HELLO is answered
 *
 *     CLIENT KILL ID old ADDR ours   requests that are still in the socket of the previous
 *                                    connection must not be carried out later; a refusal does not
 *                                    matter. Ids count up from 1 when a server starts, so after a
 *                                    restart another client may have the old id: ADDR limits the
 *                                    command to our old address. A unix socket has no address; its
 *                                    server is identified by the process id
 *
 * HELLO's answer has the server's role: a server that sentinels name as the master must confirm it.
 *
 * The confirmation of SUBSCRIBE is a push. Its refusal is an ordinary answer, in place of PONG.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "redis.h"

static int add_hello(redis_link *link)
{
    resp_command c = resp_begin(&link->out, link->password ? 5 : 2);

    resp_add_text(&c, "HELLO");
    resp_add_text(&c, "3");
    if (link->password) {
        resp_add_text(&c, "AUTH");
        resp_add_text(&c, link->user ? link->user : "default");
        resp_add_text(&c, link->password);
    }
    return resp_end(&c);
}

static int add_two(redis_link *link, const char *verb, const char *text, int64_t number)
{
    resp_command c = resp_begin(&link->out, 2);

    resp_add_text(&c, verb);
    if (text)
        resp_add_text(&c, text);
    else
        resp_add_int(&c, number);
    return resp_end(&c);
}

static int add_kill(redis_link *link)
{
    bool local = link->settings->path != NULL;
    resp_command c = resp_begin(&link->out, local ? 4 : 6);

    resp_add_text(&c, "CLIENT");
    resp_add_text(&c, "KILL");
    resp_add_text(&c, "ID");
    resp_add_uint(&c, link->old_id);
    if (!local) {
        resp_add_text(&c, "ADDR");
        resp_add_text(&c, link->old_address);
    }
    return resp_end(&c);
}

/* Our address in CLIENT LIST; for a unix socket, the process id of the server. "": not known. */
static void name_end(redis_link *link)
{
    struct sockaddr_storage at = {0};
    struct ucred peer = {0};
    socklen_t length = sizeof at, peer_length = sizeof peer;
    char host[INET6_ADDRSTRLEN] = "";
    const struct sockaddr_in *v4 = (struct sockaddr_in *)&at;
    const struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&at;
    size_t room = sizeof link->address;

    link->address[0] = 0;
    if (getsockname(link->stream.fd, (struct sockaddr *)&at, &length))
        return;
    if (at.ss_family == AF_UNIX &&
        !getsockopt(link->stream.fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_length))
        snprintf(link->address, room, "process %d", (int)peer.pid);
    else if (at.ss_family == AF_INET && inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host))
        snprintf(link->address, room, "%s:%u", host, ntohs(v4->sin_port));
    else if (at.ss_family == AF_INET6 && inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host))
        snprintf(link->address, room, "[%s]:%u", host, ntohs(v6->sin6_port));
}

static int add_ping(redis_link *link)
{
    resp_command c = resp_begin(&link->out, 1);

    resp_add_text(&c, "PING");
    return resp_end(&c);
}

/* Publish to a channel with a name like our own, to which nobody listens. */
static int add_publish(const redis_link *link, resp_buf *out)
{
    char channel[REDIS_CHANNEL_MAX];
    resp_command c = resp_begin(out, 3);

    snprintf(channel, sizeof channel, "%s?", link->tells);
    resp_add_text(&c, "PUBLISH");
    resp_add_text(&c, channel);
    resp_add_text(&c, "");
    return resp_end(&c);
}

int redis_greet(redis_link *link)
{
    int code = add_hello(link);

    link->ngreeting = link->greeted = 0;
    link->greeting[link->ngreeting++] = GREET_HELLO;
    if (!code && link->db) {
        code = add_two(link, "SELECT", NULL, link->db);
        link->greeting[link->ngreeting++] = GREET_SELECT;
    }
    if (!code && link->channel)
        code = add_two(link, "SUBSCRIBE", link->channel, 0);
    if (!code && link->channel2)
        code = add_two(link, "SUBSCRIBE", link->channel2, 0);
    if (!code)
        code = add_ping(link);
    link->greeting[link->ngreeting++] = GREET_PING;
    if (!code && link->tells) {
        code = add_publish(link, &link->out);
        link->greeting[link->ngreeting++] = GREET_PUBLISH;
    }
    return code;
}

static const resp_node *field(const resp_node *map, const char *name)
{
    const resp_node *key = map + 1;

    for (uint32_t i = 0; i + 1 < map->count; i += 2) {
        const resp_node *value = key + key->span;

        if (resp_equal(key, name, strlen(name)))
            return value;
        key = value + value->span;
    }
    return NULL;
}

/* The version as 100 * major + minor: 6.2 is 602. 0: the text makes no sense. */
static int number_of(const resp_node *version)
{
    int major = 0, minor = 0;
    char text[16];

    if (!version || !resp_is_text(version))
        return 0;
    snprintf(text, sizeof text, "%.*s", (int)(version->length < 15 ? version->length : 15),
             version->text);
    return sscanf(text, "%3d.%2d", &major, &minor) == 2 ? 100 * major + minor : 0;
}

/* The field "server" is "redis" for Redis and most compatible servers, "valkey" for Valkey. */
static void log_version(redis_link *link, const resp_node *server, const resp_node *version)
{
    bool named = server && resp_is_text(server);

    link->env->log(link->env, PAWL_LOG_INFO, "%s: server %.*s %.*s", link->where,
                   named ? (int)(server->length < 20 ? server->length : 20) : 5,
                   named ? (const char *)server->text : "redis",
                   (int)(version->length < 20 ? version->length : 20), version->text);
}

static int hello_answered(redis_link *link, const resp_node *reply, char words[REDIS_WORDS])
{
    const resp_node *version = reply->type == RESP_MAP ? field(reply, "version") : NULL;
    const resp_node *id = reply->type == RESP_MAP ? field(reply, "id") : NULL;
    const resp_node *role = reply->type == RESP_MAP ? field(reply, "role") : NULL;
    const resp_node *mode = reply->type == RESP_MAP ? field(reply, "mode") : NULL;
    int64_t number;

    if (!version) {
        snprintf(words, REDIS_WORDS, "the answer to HELLO makes no sense; is this a Redis server?");
        return PAWL_EPROTO;
    }
    if (number_of(version) < 602) { /* the scripts use PXAT and other commands of 6.2 */
        snprintf(words, REDIS_WORDS,
                 "server too old: it is of version %.*s, Pawl needs 6.2 or newer",
                 (int)(version->length < 20 ? version->length : 20), version->text);
        return PAWL_ENOTSUP;
    }
    log_version(link, field(reply, "server"), version);
    if (link->must_be_master && !(role && resp_equal(role, "master", 6))) {
        snprintf(words, REDIS_WORDS, "it is to be the master, but says that it is not");
        return PAWL_ECONN;
    }
    if (link->settings->service == REDIS_ONE && mode && resp_equal(mode, "cluster", 7))
        link->env->log(link->env, PAWL_LOG_WARNING, "%s is a node of a cluster: write "
                       "redis+cluster://, or names of other nodes' slots are refused and clients "
                       "that listen to sharded channels not told", link->where);
    link->sharded = link->settings->service == REDIS_CLUSTER && number_of(version) >= 700;
    if (id && resp_integer(id, &number))
        link->server_id = (uint64_t)number;
    name_end(link);
    if (!link->old_id || link->old_id >= link->server_id || !link->old_address[0] ||
        (link->settings->path && strcmp(link->old_address, link->address)))
        return 0;
    link->greeting[link->ngreeting++] = GREET_KILL;
    return add_kill(link);
}

static int refused(const redis_link *link, int step, const resp_node *reply,
                   char words[REDIS_WORDS])
{
    char said[REDIS_WORDS];
    int code = redis_error_code(link, reply, said);

    snprintf(words, REDIS_WORDS, "%s", said);
    if (step == GREET_HELLO && resp_error_is(reply, "ERR") && code == PAWL_EBACKEND) {
        snprintf(words, REDIS_WORDS, "HELLO 3 is refused; Pawl needs Redis 6.2 or later (%.90s)",
                 said);
        code = PAWL_ENOTSUP;
    } else if (step == GREET_HELLO && resp_error_is(reply, "NOPROTO")) {
        code = PAWL_ENOTSUP;
    } else if (step == GREET_SELECT && code == PAWL_EBACKEND) {
        snprintf(words, REDIS_WORDS, "the server has no database %lld, which the URL names (%.90s)",
                 (long long)link->db, said);
        code = PAWL_EINVAL;
    }
    return code;
}

int redis_greeted(redis_link *link, const resp_node *reply, char words[REDIS_WORDS])
{
    int step = link->greeting[link->greeted++];
    int code = 0;

    if (step == GREET_PUBLISH &&
        (!resp_is_error(reply) || redis_error_code(link, reply, link->mute) != PAWL_EAUTH))
        link->mute[0] = 0;
    else if (resp_is_error(reply) && step != GREET_KILL && step != GREET_PUBLISH)
        return refused(link, step, reply, words);
    if (step == GREET_HELLO)
        code = hello_answered(link, reply, words);
    return code ? code : link->greeted == link->ngreeting;
}

/* ---- checking the right to publish again ----------------------------------------------------- */

static int write_publish(redis_call *call, resp_buf *out)
{
    return add_publish(call->on, out);
}

static bool may_publish(redis_call *call, const resp_node *reply)
{
    (void)reply;
    call->on->mute[0] = 0;
    return true;
}

static void may_not_publish(redis_call *call, int code, const char *words)
{
    if (code == PAWL_EAUTH)
        snprintf(call->on->mute, sizeof call->on->mute, "%s", words);
}

void redis_may_publish(redis_link *link)
{
    static const redis_call_type type = {.write = write_publish, .answer = may_publish,
        .failed = may_not_publish};
    redis_call *call = link->tells ? redis_call_new(link, &type, link, 0) : NULL;

    if (call)
        redis_link_send(link, call);
}
