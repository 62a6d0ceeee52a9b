/* SPDX-License-Identifier: Apache-2.0
 *
 * sentinel.c - asks sentinels for the address of the master.
 *
 * There is one connection to one sentinel at a time. The client asks for the master's address
 * whenever the master's link makes an attempt, and when the connection to the sentinel is new (a
 * fail-over may have happened meanwhile). The client also subscribes to +switch-master, to follow a
 * fail-over at once, even while the old master still responds. The sentinel that leads a fail-over
 * sends +switch-master only when all replicas follow; but that sentinel sends +promoted-slave
 * before, and the client then asks for the address. If a sentinel can't be reached or does not
 * answer, the client tries the URL's next sentinel; a pause comes only after a round through all
 * sentinels, and grows. A server that is named as the master must confirm that role (hello.c).
 *
 * The client also leaves a sentinel that does not know the master's name. If no sentinel knows the
 * name, waiting does not help: the master's link fails its calls.
 */
#include <stdlib.h>

#include "redis.h"

/* ---- the request ----------------------------------------------------------------------------- */

static int write_question(redis_call *call, resp_buf *out)
{
    redis *r = call->about;
    resp_command c = resp_begin(out, 3);

    resp_add_text(&c, "SENTINEL");
    resp_add_text(&c, "GET-MASTER-ADDR-BY-NAME");
    resp_add_text(&c, r->settings.master);
    return resp_end(&c);
}

/* Use the address in these texts. False: the texts make no sense. */
static bool found(redis *r, const char *host, size_t length, const char *port, size_t port_length)
{
    char name[NET_HOST_MAX], number[8];
    long value;

    if (!length || length >= sizeof name || !port_length || port_length >= sizeof number)
        return false;
    memcpy(name, host, length);
    name[length] = 0;
    memcpy(number, port, port_length);
    number[port_length] = 0;
    value = strtol(number, NULL, 10);
    if (strlen(name) != length || !redis_is_host(name) || value < 1 || value > 65535)
        return false;
    r->sentinel.known = true;
    r->sentinel.strangers = 0;
    r->sentinel.rounds = 0;
    redis_master_found(r, name, (uint16_t)value);
    return true;
}

/* This sentinel does not know the master; the next one may. */
static void stranger(redis *r)
{
    redis_sentinel *s = &r->sentinel;

    s->strangers++;
    redis_link_drop(&s->link, PAWL_ECONN, "this sentinel knows no master '%.60s'",
                    r->settings.master);
    if (s->strangers >= r->settings.at.n && !s->known)
        redis_refused(&r->link, PAWL_EBACKEND, s->link.words);
}

static bool answer_question(redis_call *call, const resp_node *reply)
{
    redis *r = call->about;
    const resp_node *host, *port;

    r->sentinel.asked = false;
    if (reply->type == RESP_NULL) {
        stranger(r);
        return true;
    }
    host = resp_child(reply, 0);
    port = resp_child(reply, 1);
    return host && port && resp_is_text(host) && resp_is_text(port) &&
           found(r, host->text, host->length, port->text, port->length);
}

static void sentinel_refused(redis_link *link, int code, const char *words);

static void question_failed(redis_call *call, int code, const char *words)
{
    redis *r = call->about;

    r->sentinel.asked = false;
    if (code != PAWL_EUNKNOWN && code != PAWL_ECANCELED)
        redis_link_drop(&r->sentinel.link, PAWL_ECONN, "%s", words);
    if (code == PAWL_EAUTH)
        sentinel_refused(&r->sentinel.link, code, r->sentinel.link.words);
}

void redis_sentinel_ask(redis *r)
{
    static const redis_call_type type = {.write = write_question, .answer = answer_question,
        .failed = question_failed};
    redis_link *link = &r->sentinel.link;
    redis_call *call;

    if (link->state != LINK_READY || r->sentinel.asked)
        return; /* sentinel_ready asks, or a request is pending */
    call = redis_call_new(link, &type, r, 0);
    if (!call)
        return;
    r->sentinel.asked = true;
    redis_link_send(link, call);
}

/* ---- the connection -------------------------------------------------------------------------- */

static bool next_sentinel(redis_link *link)
{
    redis *r = link->redis;
    const net_address *a = &r->settings.at.list[r->sentinel.next % r->settings.at.n];

    redis_link_address(link, a->host, a->port);
    return true;
}

static void sentinel_ready(redis_link *link)
{
    redis_sentinel_ask(link->redis);
}

/* After a round through all sentinels the master's link stops waiting for an address. */
static void sentinel_dropped(redis_link *link)
{
    redis *r = link->redis;
    redis_sentinel *s = &r->sentinel;

    s->next++;
    link->failures = 0;
    if (s->next % r->settings.at.n)
        return;
    link->failures = s->rounds++;
    if (r->link.state == LINK_LOCATING)
        redis_link_drop(&r->link, PAWL_ECONN, "no sentinel says where it is; the last: %s",
                        link->words);
}

/* Another sentinel may accept us (another password): fail only after a round through all. */
static void sentinel_refused(redis_link *link, int code, const char *words)
{
    redis *r = link->redis;

    if (r->sentinel.next % r->settings.at.n == 0 && !r->sentinel.known)
        redis_refused(&r->link, code, words);
}

/* "+switch-master": NAME OLD-HOST OLD-PORT NEW-HOST NEW-PORT. */
static void switched(redis *r, const char *text, size_t length)
{
    const char *end = text + length, *word[5];
    size_t lengths[5];

    for (int i = 0; i < 5; i++) {
        const char *space = memchr(text, ' ', (size_t)(end - text));

        word[i] = text;
        lengths[i] = (size_t)((space ? space : end) - text);
        text = space ? space + 1 : end;
    }
    if (lengths[0] == strlen(r->settings.master) &&
        !memcmp(word[0], r->settings.master, lengths[0]))
        found(r, word[3], lengths[3], word[4], lengths[4]);
}

static void sentinel_push(redis_link *link, const resp_node *push)
{
    const resp_node *channel = resp_child(push, 1), *text = resp_child(push, 2);

    if (push->count != 3 || !resp_equal(push + 1, "message", 7) || !resp_is_text(text))
        return;
    if (resp_equal(channel, "+switch-master", 14))
        switched(link->redis, text->text, text->length);
    else
        redis_sentinel_ask(link->redis);
}

static const redis_role role_sentinel = {.locate = next_sentinel, .ready = sentinel_ready,
    .refused = sentinel_refused, .push = sentinel_push, .dropped = sentinel_dropped};

void redis_sentinel_open(redis *r)
{
    redis_link *link = &r->sentinel.link;

    link->user = r->settings.sentinel_login.user;
    link->password = r->settings.sentinel_login.password;
    link->channel = "+switch-master";
    link->channel2 = "+promoted-slave";
    redis_link_open(link, r, &role_sentinel);
}

void redis_sentinel_close(redis *r)
{
    redis_link_close(&r->sentinel.link);
}
