/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c - one connection: its life, and the calls on it.
 *
 *     PAUSED --timer--> [LOCATING] --> CONNECTING --> GREETING --> READY
 *        ^                  |              |             |           |
 *        +------------------+-- drop: anything unexpected, or too long nothing
 *
 * Which host is meant is the role's to say (LOCATING); how its addresses are tried, and TLS, are in
 * net/stream.c. Both have env->timeout_ms, the greeting what is left of that; while nobody makes a
 * call nobody may turn the loop, and the time of an attempt that was left alone begins anew. Each
 * answer has env->timeout_ms once the link is READY. Calls that
 * were written and not answered when the link drops have failed as unknown; those in the backlog
 * stay, unless trying again can't help. Pauses between attempts grow from 10 ms to 1 s, half of
 * each by chance, until a call has been answered. A link that sleeps is PAUSED without a timer.
 *
 * Nothing is written before the loop is about to poll (redis.c, prepare), so that what many
 * threads ask for meanwhile leaves in one piece.
 */
#include <stdlib.h>

#include "redis.h"

#define READ_SIZE 16384
#define READS_MAX 16     /* in a row; then others get their turn */
#define LEFT_ALONE_MS 50 /* a timer that fires so late: nobody turned the loop */

static void set_timer(redis_link *link, int64_t ms)
{
    link->env->timer_set(link->env, &link->timer, link->env->now(link->env) + ms * PAWL_NS_PER_MS);
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static void close_attempt(redis_link *link)
{
    net_stream_close(&link->stream);
    resp_buf_free(&link->in);
    resp_buf_free(&link->out);
    resp_reader_reset(&link->reader);
    free(link->listens);
    link->listens = NULL;
    link->clock.local = 0; /* the next one may be to another server */
}

void redis_calls_fail(struct list *calls, int code, const char *words)
{
    struct list mine, *l;

    list_take_all(&mine, calls); /* failing one may bring new ones */
    while ((l = list_take(&mine))) {
        redis_call *call = list_entry(l, redis_call, link);

        if (call->about)
            call->type->failed(call, code, words);
        redis_call_free(call);
    }
}

static void pause_link(redis_link *link)
{
    link->state = LINK_PAUSED;
    set_timer(link, net_pause_ms(link->env, link->failures++));
}

void redis_link_drop(redis_link *link, int code, const char *format, ...)
{
    bool was_ready = link->state == LINK_READY;
    char words[REDIS_WORDS];
    va_list args;

    if (link->state == LINK_CLOSED || link->state == LINK_PAUSED)
        return;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    link->last_code = code;
    pawl_text_clean(words);
    snprintf(link->words, sizeof link->words, "%.70s: %.140s", link->where, words);
    link->env->log(link->env, PAWL_LOG_WARNING, "%s %s",
                   was_ready ? "connection lost:" : "can't connect:", link->words);
    close_attempt(link);
    if (link->server_id && (was_ready || !link->old_id)) { /* nothing was asked on the others */
        link->old_id = link->server_id;
        memcpy(link->old_address, link->address, sizeof link->address);
    }
    link->server_id = 0;
    link->state = LINK_PAUSED; /* what is sent from now on waits for the next connection */
    if (link->role->dropped)
        link->role->dropped(link);
    pause_link(link);
    redis_proofs_fail(link);
    redis_calls_fail(&link->calls, PAWL_EUNKNOWN, link->words);
    if (!was_ready && code != PAWL_ECONN)
        link->role->refused(link, code, link->words);
}

/* ---- reading and writing --------------------------------------------------------------------- */

static void watch(redis_link *link)
{
    net_stream_watch(&link->stream, resp_buf_length(&link->out) > 0);
}

#define NOT_GREETED                                                                                \
    " before the greeting; is this a Redis server, and a port without TLS (TLS: rediss://, tls=1)?"

void redis_link_flush(redis_link *link)
{
    char words[REDIS_WORDS] = "closed by the server";

    while (link->state >= LINK_GREETING && resp_buf_length(&link->out) > 0) {
        ptrdiff_t n = net_stream_write(&link->stream, link->out.data + link->out.begin,
                                       resp_buf_length(&link->out), words);

        if (n == NET_IO_AGAIN)
            break;
        if (n < 0) {
            redis_link_drop(link, PAWL_ECONN, "%s", words);
            return;
        }
        resp_buf_take(&link->out, (size_t)n);
    }
    watch(link);
}

static void become_ready(redis_link *link)
{
    struct list waiting, *l;

    link->state = LINK_READY;
    link->read_only = false;
    link->old_id = 0;
    link->last_code = 0;
    link->epochs++;
    resp_buf_wipe(&link->out); /* the password was in there */
    link->env->timer_clear(link->env, &link->timer);
    if (link->epochs > 1)
        link->env->log(link->env, PAWL_LOG_WARNING, "connected again: %s", link->where);
    list_take_all(&waiting, &link->backlog);
    link->role->ready(link);
    while ((l = list_take(&waiting)))
        redis_link_send(link, list_entry(l, redis_call, link));
}

/* The call is over, or begins anew with the whole script. */
static void answer(redis_link *link, redis_call *call, const resp_node *reply)
{
    char words[REDIS_WORDS];
    int code = resp_is_error(reply) ? redis_error_code(link, reply, words) : 0;
    bool read_only = code && redis_error_is(reply, "READONLY");

    if (resp_error_is(reply, "NOSCRIPT") && !call->whole_text) {
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
    if (read_only) /* the reply may be gone with the link */
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

/* The confirmation of the oldest call, if that is a SUBSCRIBE: it stands in line like an answer. */
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
        become_ready(link);
    return true;
}

/* Use what has arrived. False: the link has dropped. */
static bool take_replies(redis_link *link)
{
    resp_reply reply;

    while (resp_buf_length(&link->in) > 0) {
        enum resp_result result = resp_next(&link->reader, link->in.data + link->in.begin,
                                            resp_buf_length(&link->in), &reply);
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
        resp_buf_take(&link->in, reply.size);
    }
    return true;
}

static void receive(redis_link *link)
{
    char words[REDIS_WORDS] = "closed by the server";

    for (int i = 0; i < READS_MAX; i++) {
        size_t room;
        ptrdiff_t n;

        if (resp_buf_reserve(&link->in, READ_SIZE)) {
            redis_link_drop(link, PAWL_ENOMEM, "out of memory");
            return;
        }
        room = link->in.room - link->in.end;
        n = net_stream_read(&link->stream, link->in.data + link->in.end, room, words);
        if (n == NET_IO_AGAIN)
            break;
        if (n < 0) {
            /* TLS 1.3: a server refuses our certificate after the handshake, with an alert */
            bool refused = link->stream.secure && link->state == LINK_GREETING &&
                           n == NET_IO_FAILED;

            redis_link_drop(link, refused ? PAWL_EAUTH : PAWL_ECONN, "%s%s", words,
                            link->state == LINK_GREETING && !link->stream.secure ? NOT_GREETED
                                                                                 : "");
            return;
        }
        link->in.end += (size_t)n;
        if (!take_replies(link))
            return;
        if (!link->stream.secure && (size_t)n < room)
            break;
    }
    watch(link);
}

static void stream_ready(net_stream *s, bool readable, bool writable)
{
    redis_link *link = s->arg;

    if (writable)
        redis_link_flush(link);
    if (readable && s->state == NET_OPEN)
        receive(link);
}

/* ---- an attempt ------------------------------------------------------------------------------ */

static void attempt(redis_link *link)
{
    link->state = LINK_LOCATING;
    set_timer(link, link->env->timeout_ms);
    if (!link->role->locate || link->role->locate(link))
        redis_link_located(link);
}

void redis_link_located(redis_link *link)
{
    if (link->state != LINK_LOCATING)
        return;
    link->state = LINK_CONNECTING;
    link->env->timer_clear(link->env, &link->timer);
    link->tls = link->settings->tls_settings;
    link->tls.host = link->host;
    link->stream.tls_context = link->settings->tls ? link->redis->tls_context : NULL;
    link->stream.path = link->settings->path;
    net_stream_open(&link->stream, link->host, link->port);
}

static void stream_opened(net_stream *s)
{
    redis_link *link = s->arg;

    link->state = LINK_GREETING;
    link->env->timer_set(link->env, &link->timer, s->ends);
    if (redis_greet(link))
        redis_link_drop(link, PAWL_ENOMEM, "out of memory");
    else
        redis_link_flush(link);
}

static void stream_failed(net_stream *s, int code, const char *words)
{
    redis_link_drop(s->arg, code, "%s", words);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void timer_fired(pawl_timer *timer)
{
    redis_link *link = timer->arg;
    int64_t limit, now = link->env->now(link->env);
    char words[REDIS_WORDS];

    if (link->state == LINK_PAUSED) {
        attempt(link);
        return;
    }
    if (link->state == LINK_READY) {
        if (list_empty(&link->calls))
            return;
        limit = list_entry(link->calls.next, redis_call, link)->sent +
                link->env->timeout_ms * PAWL_NS_PER_MS;
        if (now < limit) {
            link->env->timer_set(link->env, timer, limit);
            return;
        }
    } else if (now - timer->due > LEFT_ALONE_MS * PAWL_NS_PER_MS) {
        set_timer(link, link->env->timeout_ms); /* nobody turned the loop */
        return;
    }
    if (link->state == LINK_LOCATING && link->role->lost && link->role->lost(link, words))
        redis_link_drop(link, PAWL_ECONN, "%s", words);
    else
        redis_link_drop(link, PAWL_ECONN, "no answer within %lld ms",
                        (long long)link->env->timeout_ms);
}

void redis_link_address(redis_link *link, const char *host, uint16_t port)
{
    if (!strcmp(link->host, host) && link->port == port)
        return;
    link->old_id = 0; /* that was another server's */
    link->port = port;
    snprintf(link->host, sizeof link->host, "%s", host);
    snprintf(link->where, sizeof link->where, strchr(host, ':') ? "[%s]:%u" : "%s:%u", link->host,
             port);
}

void redis_link_hurry(redis_link *link)
{
    if (link->state == LINK_PAUSED)
        set_timer(link, 0);
}

void redis_link_sleep(redis_link *link)
{
    link->env->timer_clear(link->env, &link->timer);
}

void redis_link_wake(redis_link *link)
{
    if (redis_link_sleeps(link))
        set_timer(link, 0);
}

void redis_link_open(redis_link *link, redis *r, const redis_role *role)
{
    link->redis = r;
    link->role = role;
    link->env = r->env;
    link->settings = &r->settings;
    link->stream = (net_stream){.env = link->env, .tls = &link->tls, .arg = link,
        .opened = stream_opened, .failed = stream_failed, .ready = stream_ready};
    link->timer = (pawl_timer){.fire = timer_fired, .arg = link};
    list_init(&link->calls);
    list_init(&link->backlog);
    list_init(&link->proving);
    resp_reader_init(&link->reader, NULL);
    link->state = LINK_PAUSED;
    set_timer(link, 0);
}

void redis_link_close(redis_link *link)
{
    if (!link->env || link->state == LINK_CLOSED)
        return;
    redis_link_flush(link);
    link->state = LINK_CLOSED;
    link->env->timer_clear(link->env, &link->timer);
    close_attempt(link);
    resp_reader_free(&link->reader);
    redis_proofs_fail(link);
    redis_calls_fail(&link->calls, PAWL_ECANCELED, "closing");
    redis_calls_fail(&link->backlog, PAWL_ECANCELED, "closing");
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

/* The call behind it tells, unless that has no right to ask: then nothing is asked for there. */
static void asking_failed(redis_call *call, int code, const char *words)
{
    if (code == PAWL_EAUTH)
        snprintf(call->on->mute, sizeof call->on->mute, "%s", words);
}

/* For the one call behind it. */
static void send_asking(redis_link *link)
{
    static const redis_call_type type = {.write = write_asking, .answer = asking_answered,
        .failed = asking_failed};
    redis_call *call = redis_call_new(link, &type, link, 0);

    if (call)
        redis_link_send(link, call);
}

/* A right to use channels is missing. Whether somebody has given it meanwhile is asked anew. */
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
    if (!call->about) { /* given up meanwhile */
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
    if (call->type->before)
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
    if (!link->timer.armed)
        set_timer(link, link->env->timeout_ms);
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
