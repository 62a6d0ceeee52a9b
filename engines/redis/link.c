/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c - a link to Redis, on top of kit/link.c: calls and their answers, and roles.
 *
 * The role of a link (redis_role) chooses the host (LOCATING). The server answers calls in the
 * order they were written. A server that says READONLY gets no more calls; the link drops when the
 * pending calls have been answered. A sleeping link is PAUSED without a timer.
 *
 * Calls are written to the socket just before the loop polls (redis.c, prepare), so that the
 * requests of many threads leave together.
 */
#include <stdlib.h>

#include "redis.h"

static redis_link *link_of(kit_link *kit)
{
    return list_entry(kit, redis_link, kit);
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static void disconnect(kit_link *kit)
{
    redis_link *link = link_of(kit);

    if (link->server_id && (link->state == LINK_READY || !link->old_id)) {
        link->old_id = link->server_id; /* connections that were never ready have sent no calls */
        memcpy(link->old_address, link->address, sizeof link->address);
    }
    link->server_id = 0;
    kit_wire_close(&link->wire);
    resp_reader_reset(&link->reader);
    free(link->listens);
    link->listens = NULL;
    link->clock.local = 0; /* the next connection may be to another server */
}

static void fail_call(kit_link *kit, struct list *l, int code, const char *words)
{
    redis_call *call = list_entry(l, redis_call, link);

    (void)kit;
    if (call->about)
        call->type->failed(call, code, words);
    redis_call_free(call);
}

static int64_t back_off(kit_link *kit, bool was_ready)
{
    redis_link *link = link_of(kit);

    (void)was_ready;
    if (link->role->dropped)
        link->role->dropped(link);
    return kit_link_pause_ms(kit, 1);
}

static void dropped(kit_link *kit, int refused)
{
    redis_link *link = link_of(kit);

    redis_proofs_fail(link);
    if (refused)
        link->role->refused(link, refused, link->words);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void become_ready(kit_link *kit)
{
    redis_link *link = link_of(kit);

    link->read_only = false;
    link->old_id = 0;
    kit_buf_wipe(&link->out); /* the buffer had the password */
    link->role->ready(link);
}

/* End the call, or send the call again with the text of the script. */
static void answer(redis_link *link, redis_call *call, const resp_node *reply)
{
    char words[REDIS_WORDS];
    int code = resp_is_error(reply) ? redis_error_code(link, reply, words) : 0;
    bool read_only = code && redis_error_is(reply, "READONLY");

    if (code && resp_error_is(reply, "NOSCRIPT") && !call->whole_text) {
        call->whole_text = true;
        redis_link_send(link, call);
        return;
    }
    if (code && redis_cluster_redirect(link, call, reply))
        return;
    if (call->about && code)
        call->type->failed(call, code, words);
    else if (call->about && !call->type->answer(call, reply)) {
        call->type->failed(call, PAWL_EUNKNOWN, "the answer makes no sense");
        redis_link_drop(link, PAWL_EPROTO, "an answer makes no sense");
    } else {
        link->failures = 0;
    }
    redis_call_free(call);
    if (read_only) /* computed above, since a drop of the link frees the reply */
        link->read_only = true; /* a new connection may lead to a master */
}

/* An answer to the oldest call. False: the link has dropped. */
static bool take_answer(redis_link *link, const resp_node *reply)
{
    struct list *l = list_take(&link->calls);
    uint64_t epochs = link->epochs;

    if (!l) {
        redis_link_drop(link, PAWL_EPROTO, "an answer came that nobody asked for");
        return false;
    }
    answer(link, list_entry(l, redis_call, link), reply);
    if (link->read_only && link->state == LINK_READY && list_empty(&link->calls))
        redis_link_drop(link, PAWL_ECONN, "the server is a read only replica (READONLY)");
    return link->state == LINK_READY && link->epochs == epochs;
}

/* Is the push the confirmation of the oldest call? A SUBSCRIBE is answered by a push, in order. */
static bool answers_call(const redis_link *link, const resp_node *push)
{
    const redis_call *call;

    if (link->state != LINK_READY || list_empty(&link->calls))
        return false;
    call = list_entry(link->calls.next, redis_call, link);
    return call->type->by_push && call->type->by_push(call, push);
}

static bool take_greeting(redis_link *link, const resp_node *reply)
{
    char words[REDIS_WORDS];
    int code = redis_greeted(link, reply, words);

    if (code < 0) {
        redis_link_drop(link, code, "%s", words);
        return false;
    }
    if (code == 1)
        kit_link_ready(&link->kit);
    return true;
}

static bool take_replies(kit_wire *wire)
{
    redis_link *link = link_of(&wire->kit);
    resp_reply reply;

    while (kit_buf_length(&link->in) > 0) {
        enum resp_result result = resp_next(&link->reader, link->in.data + link->in.begin,
                                            kit_buf_length(&link->in), &reply);
        bool alive = true;

        if (result == RESP_MORE)
            break;
        if (result == RESP_MALFORMED || result == RESP_NO_MEMORY) {
            redis_link_drop(link, result == RESP_MALFORMED ? PAWL_EPROTO : PAWL_ENOMEM, "%s",
                            result == RESP_MALFORMED ? link->reader.error : "out of memory");
            return false;
        }
        if (result == RESP_GOT_PUSH && answers_call(link, reply.nodes))
            alive = take_answer(link, reply.nodes);
        else if (result == RESP_GOT_PUSH)
            link->role->push(link, reply.nodes);
        else if (link->state == LINK_GREETING)
            alive = take_greeting(link, reply.nodes);
        else
            alive = take_answer(link, reply.nodes);
        if (!alive || link->stream.state != NET_OPEN)
            return false;
        kit_buf_take(&link->in, reply.size);
    }
    return true;
}

/* ---- an attempt ------------------------------------------------------------------------------ */

static void attempt(kit_link *kit)
{
    redis_link *link = link_of(kit);

    if (!link->role->locate || link->role->locate(link))
        redis_link_located(link);
}

void redis_link_located(redis_link *link)
{
    if (link->state != LINK_LOCATING)
        return;
    link->stream.path = link->settings->path;
    kit_wire_open(&link->wire, &link->settings->tls_settings,
                  link->settings->tls ? link->redis->tls_context : NULL, link->host, link->port);
}

static bool unlocated(const kit_link *kit, char words[REDIS_WORDS])
{
    const redis_link *link = list_entry(kit, const redis_link, kit);

    return link->role->lost && link->role->lost(link, words);
}

static void greet(kit_link *kit)
{
    redis_link *link = link_of(kit);

    if (redis_greet(link))
        redis_link_drop(link, PAWL_ENOMEM, "out of memory");
    else
        kit_wire_flush(&link->wire);
}

static int64_t limit(kit_link *kit)
{
    return list_empty(&kit->calls)
               ? PAWL_NEVER : list_entry(kit->calls.next, redis_call, link)->sent +
                              kit->limit_ms * PAWL_NS_PER_MS;
}

void redis_link_address(redis_link *link, const char *host, uint16_t port)
{
    if (!strcmp(link->host, host) && link->port == port)
        return;
    link->old_id = 0; /* the old id is another server's */
    link->port = port;
    snprintf(link->host, sizeof link->host, "%s", host);
    snprintf(link->where, sizeof link->where, strchr(host, ':') ? "[%s]:%u" : "%s:%u", link->host,
             port);
}

void redis_link_sleep(redis_link *link)
{
    link->env->timer_clear(link->env, &link->timer);
}

void redis_link_wake(redis_link *link)
{
    if (redis_link_sleeps(link))
        kit_link_hurry(&link->kit);
}

static void send_again(kit_link *kit, struct list *call)
{
    redis_link_send(link_of(kit), list_entry(call, redis_call, link));
}

void redis_link_open(redis_link *link, redis *r, const redis_role *role)
{
    static const kit_link_type type = {.attempt = attempt, .unlocated = unlocated, .greet = greet,
        .take = take_replies, .ready = become_ready, .send = send_again, .limit = limit,
        .fail = fail_call, .disconnect = disconnect, .back_off = back_off, .dropped = dropped,
        .hint = " before the greeting; is this a Redis server, and a port without TLS (TLS: "
                "rediss://, tls=1)?"};

    kit_link_init(&link->kit, &type, r->env);
    link->redis = r;
    link->role = role;
    link->settings = &r->settings;
    link->peer = link->where;
    list_init(&link->proving);
    resp_reader_init(&link->reader, NULL);
    kit_link_open(&link->kit);
}

void redis_link_close(redis_link *link)
{
    if (!link->env || link->state == LINK_CLOSED)
        return;
    kit_wire_flush(&link->wire);
    kit_link_close(&link->kit);
    resp_reader_free(&link->reader);
    redis_proofs_fail(link);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int write_asking(redis_call *call, resp_buf *out)
{
    resp_command c = resp_begin(out, 1);

    (void)call;
    resp_add_text(&c, "ASKING");
    return resp_end(&c);
}

static bool asking_answered(redis_call *call, const resp_node *reply)
{
    (void)call;
    (void)reply;
    return true;
}

/* The answer to the next call shows any failure. Without the right to ASKING the link is mute. */
static void asking_failed(redis_call *call, int code, const char *words)
{
    if (code == PAWL_EAUTH)
        snprintf(call->on->mute, sizeof call->on->mute, "%s", words);
}

/* ASKING applies to the next call only. */
static void send_asking(redis_link *link)
{
    static const redis_call_type type = {.write = write_asking, .answer = asking_answered,
        .failed = asking_failed};
    redis_call *call = redis_call_new(link, &type, link, 0);

    if (call)
        redis_link_send(link, call);
}

/* The link is mute: fail the call, and check whether the user has got the missing right by now. */
static void refuse(redis_link *link, redis_call *call)
{
    char words[REDIS_WORDS];

    memcpy(words, link->mute, sizeof words);
    redis_may_publish(link);
    call->type->failed(call, PAWL_EAUTH, words);
    redis_call_free(call);
}

void redis_link_send(redis_link *link, redis_call *call)
{
    int code;

    call->on = link;
    if (link->state == LINK_CLOSED) {
        call->type->failed(call, PAWL_ECANCELED, "closing");
        redis_call_free(call);
        return;
    }
    if (!call->about) { /* the maker has lost interest meanwhile */
        redis_call_free(call);
        return;
    }
    if (link->state != LINK_READY || link->read_only ||
        (link->role->holds_back && link->role->holds_back(link, call))) {
        list_append(&link->backlog, &call->link);
        redis_link_wake(link);
        return;
    }
    if ((call->type->tells || call->asking) && link->mute[0]) {
        refuse(link, call);
        return;
    }
    if (link->sharded && call->type->before)
        call->type->before(call);
    if (call->asking)
        send_asking(link);
    call->sent = link->env->now(link->env);
    code = call->type->write(call, &link->out);
    if (code) {
        call->type->failed(call, code, "out of memory");
        redis_call_free(call);
        return;
    }
    if (call->type->proven && link->settings->replicas) {
        call->proof = link->proof_next;
        link->proof_wanted = true;
    }
    list_append(&link->calls, &call->link);
    link->env->loop_changed(link->env);
    kit_link_expect(&link->kit, call->sent + link->limit_ms * PAWL_NS_PER_MS);
}

bool redis_call_withdraw(redis_call *call)
{
    if (call->sent || call->on->state == LINK_CLOSED)
        return false;
    list_remove(&call->link);
    redis_call_free(call);
    return true;
}

size_t redis_link_withdraw(redis_link *link, const void *about)
{
    size_t n = 0;

    for (struct list *l = link->backlog.next, *next; l != &link->backlog; l = next) {
        redis_call *call = list_entry(l, redis_call, link);

        next = l->next;
        n += call->about == about && redis_call_withdraw(call);
    }
    return n;
}
