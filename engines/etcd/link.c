/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c - the one connection: its life, HTTP/2 on it, and the calls.
 *
 *     PAUSED --timer--> DIALING --> GREETING --the server's settings, and a token--> READY
 *        ^                 |            |                                              |
 *        +-----------------+-- drop: anything unexpected, or too long nothing ---------+
 *
 * Each drop leads to the next endpoint; when all of them have failed in a row, after a pause that
 * grows from 10 ms to 1 s, half of it by chance. Calls that were out have failed as unknown. A
 * server that answers "unavailable" (no leader, shutting down, its request timed out) is left, too:
 * another one may do better. So is one that has sent nothing for a while and does not answer a
 * ping, and one that takes longer than env->timeout_ms over a call.
 *
 * nghttp2 knows the streams; we have the socket. Nothing is written before the loop is about to
 * poll. Inside nghttp2's callbacks the link can't be dropped; it is doomed there, and dropped
 * after.
 */
#include <stdlib.h>

#include "etcd.h"

#define PING_MS 6000 /* etcd takes offence at pings more often than every 5 s */
#define READ_SIZE 16384
#define READS_MAX 16
#define OUT_SIZE 65536
#define WINDOW (1 << 20)

static void plan(etcd_link *link);

/* ---- the end of a connection ----------------------------------------------------------------- */

static void call_free(etcd_call *call)
{
    list_remove(&call->link);
    etcd_pb_free(&call->body);
    etcd_grpc_free(&call->in);
    free(call);
}

static void close_attempt(etcd_link *link)
{
    net_stream_close(&link->stream);
    nghttp2_session_del(link->h2);
    link->h2 = NULL;
    etcd_pb_free(&link->out);
    link->out_begin = 0;
    link->parting = false;
    link->doomed = 0;
    link->pinged = 0;
    if (link->token)
        explicit_bzero(link->token, strlen(link->token));
    free(link->token);
    link->token = NULL;
}

/* Once a call is answered its maker may be gone. */
static void tell_failed(etcd_call *call, int code, const char *words)
{
    if (call->about && (call->type->streams || !call->answered))
        call->type->failed(call, code, words);
}

static void fail_all(struct list *calls, int code, const char *words)
{
    struct list *l;

    while ((l = list_take(calls))) {
        etcd_call *call = list_entry(l, etcd_call, link);

        tell_failed(call, code, words);
        call_free(call);
    }
}

static void pause_link(etcd_link *link)
{
    pawl_env *env = link->e->env;
    uint32_t rounds = link->failures++ / (uint32_t)link->e->settings.endpoints.n;
    int64_t pause = net_pause_ms(env, rounds) / (rounds ? 1 : 2);

    link->endpoint = (link->endpoint + 1) % link->e->settings.endpoints.n;
    link->state = LINK_PAUSED;
    env->timer_set(env, &link->timer, env->now(env) + pause * PAWL_NS_PER_MS);
}

void etcd_link_drop(etcd_link *link, int code, const char *format, ...)
{
    const char *where = link->e->settings.endpoints.list[link->endpoint].where;
    bool was_ready = link->state == LINK_READY, refused;
    char words[ETCD_WORDS];
    va_list args;

    if (link->state == LINK_CLOSED || link->state == LINK_PAUSED)
        return;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    if (link->in_h2) {
        link->doomed = code;
        snprintf(link->words, sizeof link->words, "%s", words);
        return;
    }
    link->last_code = code;
    snprintf(link->words, sizeof link->words, "%.60s: %.155s", where, words);
    link->e->env->log(link->e->env, PAWL_LOG_WARNING, "%s %s",
                      was_ready ? "connection lost:" : "can't connect:", link->words);
    close_attempt(link);
    pause_link(link);
    refused = !was_ready && code != PAWL_ECONN && link->failures >= link->e->settings.endpoints.n;
    fail_all(&link->calls, PAWL_EUNKNOWN, link->words);
    fail_all(&link->streams, PAWL_EUNKNOWN, link->words);
    etcd_dropped(link->e, code, link->words, refused);
}

/* Outside nghttp2 again: what was found wrong inside. False: the link is gone. */
static bool survives(etcd_link *link)
{
    char words[ETCD_WORDS];

    if (!link->doomed)
        return link->h2 != NULL;
    memcpy(words, link->words, sizeof words);
    etcd_link_drop(link, link->doomed, "%s", words);
    return false;
}

/* ---- a call's end ---------------------------------------------------------------------------- */

enum grpc_status {
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_NOT_FOUND = 5,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_UNAUTHENTICATED = 16
};

/* What an error of the server's means. PAWL_EUNKNOWN: it may have been carried out. */
static int code_of(const etcd_call *call)
{
    switch (call->status) {
    case GRPC_NOT_FOUND:
        return ETCD_NO_LEASE;
    case GRPC_PERMISSION_DENIED:
        return PAWL_EAUTH;
    case GRPC_INVALID_ARGUMENT:
        if (strstr(call->words, "auth store is old"))
            return PAWL_EUNKNOWN; /* log in again */
        return strstr(call->words, "user name is empty") ||
                       strstr(call->words, "authentication failed")
                   ? PAWL_EAUTH : PAWL_EBACKEND;
    case GRPC_RESOURCE_EXHAUSTED:
    case GRPC_FAILED_PRECONDITION:
    case GRPC_OUT_OF_RANGE:
        return PAWL_EBACKEND;
    case GRPC_UNIMPLEMENTED:
        return PAWL_EPROTO;
    default:
        return PAWL_EUNKNOWN;
    }
}

static void end_call(etcd_link *link, etcd_call *call, uint32_t h2_error)
{
    char words[ETCD_WORDS];
    int code;

    if (call->http != 200 && call->http >= 0) {
        code = PAWL_EPROTO;
        snprintf(words, sizeof words, "HTTP status %d; is this an etcd server?", call->http);
    } else if (call->status < 0) {
        code = h2_error == NGHTTP2_REFUSED_STREAM ? PAWL_ECONN : PAWL_EUNKNOWN;
        snprintf(words, sizeof words, "a request was broken off: %s",
                 nghttp2_http2_strerror(h2_error));
    } else if (call->status == 0) {
        code = call->type->streams ? PAWL_EUNKNOWN : PAWL_EPROTO;
        snprintf(words, sizeof words, "%s", call->type->streams ? "a stream was ended"
                                                                : "an answer says nothing");
    } else {
        code = code_of(call);
        snprintf(words, sizeof words, "the server says: %.90s%s", call->words,
                 strstr(call->words, "user name is empty") ||
                         strstr(call->words, "authentication failed")
                     ? "; check PAWL_USER and PAWL_PASSWORD" : "");
        if (call->status == GRPC_PERMISSION_DENIED)
            snprintf(words, sizeof words, "the server says: %.60s; the user needs readwrite on the "
                     "prefix \"%.60s\"", call->words, link->e->settings.prefix);
    }
    if (code == PAWL_EAUTH && link->state == LINK_READY && !call->type->streams)
        etcd_add_where(link, words);
    tell_failed(call, code, words);
    if (call->type->streams || code == PAWL_EUNKNOWN || code == PAWL_EPROTO || code == PAWL_ECONN)
        etcd_link_drop(link, code == PAWL_EPROTO || code == PAWL_EAUTH ? code : PAWL_ECONN, "%s",
                       words);
}

static void finish_parting(etcd_link *link)
{
    if (link->parting && list_empty(&link->calls))
        etcd_link_drop(link, PAWL_ECONN, "the server says good-bye");
}

static int on_stream_close(nghttp2_session *h2, int32_t stream, uint32_t error, void *user)
{
    etcd_call *call = nghttp2_session_get_stream_user_data(h2, stream);
    etcd_link *link = user;

    if (!call)
        return 0;
    list_remove(&call->link);
    if (call->status == 0 && call->answered && !call->type->streams)
        link->failures = 0;
    else if (link->doomed)
        tell_failed(call, PAWL_EUNKNOWN, link->words);
    else
        end_call(link, call, error);
    call_free(call);
    finish_parting(link);
    return 0;
}

/* ---- what nghttp2 tells ---------------------------------------------------------------------- */

static bool named(const uint8_t *name, size_t length, const char *what)
{
    return length == strlen(what) && !memcmp(name, what, length);
}

static int small_number(const uint8_t *text, size_t length)
{
    int n = 0;

    for (size_t i = 0; i < length; i++)
        n = text[i] >= '0' && text[i] <= '9' && n < 1000 ? n * 10 + text[i] - '0' : 1000;
    return length ? n : 1000;
}

/* What the server says goes to terminals and logs: no control characters. */
static void plain_words(char words[ETCD_WORDS], pb_span text)
{
    snprintf(words, ETCD_WORDS, "%.*s", (int)text.length, (const char *)text.data);
    for (char *c = words; *c; c++)
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_length, const uint8_t *value, size_t length, uint8_t flags,
                     void *user)
{
    etcd_call *call = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);

    (void)flags;
    (void)user;
    if (!call)
        return 0;
    if (named(name, name_length, ":status"))
        call->http = small_number(value, length);
    else if (named(name, name_length, "grpc-status"))
        call->status = small_number(value, length);
    else if (named(name, name_length, "grpc-message"))
        plain_words(call->words, (pb_span){value, length < 150 ? length : 150});
    return 0;
}

static void take_message(etcd_link *link, etcd_call *call, pb_span message)
{
    bool again = call->answered && !call->type->streams;
    int64_t revision = etcd_read_header(message);

    call->answered = true;
    if (revision > link->e->revision)
        link->e->revision = revision;
    if (again) {
        etcd_link_drop(link, PAWL_EPROTO, "a request was answered twice");
    } else if (call->about && !call->type->answer(call, message)) {
        call->answered = false;
        etcd_link_drop(link, PAWL_EPROTO, "an answer makes no sense");
    }
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t stream, const uint8_t *data,
                   size_t length, void *user)
{
    etcd_call *call = nghttp2_session_get_stream_user_data(h2, stream);
    etcd_link *link = user;
    pb_span rest = {data, length}, message;

    (void)flags;
    while (call && !link->doomed && rest.length) {
        enum grpc_result result = etcd_grpc_next(&call->in, &rest, &message);

        if (result == GRPC_GOT)
            take_message(link, call, message);
        else if (result == GRPC_NO_MEMORY)
            etcd_link_drop(link, PAWL_ENOMEM, "out of memory");
        else if (result != GRPC_MORE)
            etcd_link_drop(link, PAWL_EPROTO, "an answer is %s",
                           result == GRPC_TOO_LARGE ? "larger than 8 MB" : "malformed");
    }
    return 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    etcd_link *link = user;

    (void)h2;
    if (frame->hd.type == NGHTTP2_SETTINGS && link->state == LINK_GREETING && !link->heard) {
        link->heard = link->e->env->now(link->e->env);
        etcd_login(link);
    } else if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK)) {
        link->pinged = 0;
    } else if (frame->hd.type == NGHTTP2_GOAWAY) {
        link->parting = true;
        finish_parting(link);
    }
    return 0;
}

static int make_session(etcd_link *link)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}, {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW}};
    nghttp2_mem memory = etcd_wiped_memory();
    nghttp2_session_callbacks *callbacks;
    int error = nghttp2_session_callbacks_new(&callbacks);

    if (error)
        return error;
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    error = nghttp2_session_client_new3(&link->h2, callbacks, link, NULL, &memory);
    nghttp2_session_callbacks_del(callbacks);
    if (!error)
        error = nghttp2_submit_settings(link->h2, NGHTTP2_FLAG_NONE, settings, 2);
    if (!error)
        error = nghttp2_session_set_local_window_size(link->h2, NGHTTP2_FLAG_NONE, 0, 4 * WINDOW);
    return error;
}

/* ---- reading and writing --------------------------------------------------------------------- */

/* Let nghttp2 write frames into our buffer. */
static bool gather(etcd_link *link)
{
    while (link->out.length < OUT_SIZE) {
        const uint8_t *data;
        ssize_t n;

        link->in_h2 = true;
        n = nghttp2_session_mem_send(link->h2, &data);
        link->in_h2 = false;
        if (!survives(link))
            return false;
        if (n < 0)
            etcd_link_drop(link, n == NGHTTP2_ERR_NOMEM ? PAWL_ENOMEM : PAWL_EPROTO, "%s",
                           nghttp2_strerror((int)n));
        if (n <= 0)
            return n == 0;
        etcd_pb_raw(&link->out, data, (size_t)n);
        if (link->out.failed) {
            etcd_link_drop(link, PAWL_ENOMEM, "out of memory");
            return false;
        }
    }
    return true;
}

void etcd_link_flush(etcd_link *link)
{
    char words[ETCD_WORDS] = "closed by the server";

    if (link->in_h2 || !link->h2)
        return;
    while (gather(link) && link->out.length > link->out_begin) {
        ptrdiff_t n = net_stream_write(&link->stream, link->out.data + link->out_begin,
                                       link->out.length - link->out_begin, words);

        if (n == NET_IO_AGAIN)
            break;
        if (n < 0) {
            etcd_link_drop(link, PAWL_ECONN, "%s", words);
            return;
        }
        link->out_begin += (size_t)n;
        if (link->out_begin == link->out.length) {
            explicit_bzero(link->out.data, link->out.length); /* it may have had the password */
            link->out.length = link->out_begin = 0;
        }
    }
    if (link->h2)
        net_stream_watch(&link->stream, link->out.length > link->out_begin);
}

static void broke_rules(etcd_link *link, int code)
{
    etcd_link_drop(link, code, "not as HTTP/2 should be; is this an etcd server?");
}

static void receive(etcd_link *link)
{
    char words[ETCD_WORDS] = "closed by the server";
    uint8_t data[READ_SIZE];

    for (int i = 0; i < READS_MAX; i++) {
        ptrdiff_t n = net_stream_read(&link->stream, data, sizeof data, words);
        ssize_t used;

        if (n == NET_IO_AGAIN)
            return;
        if (n < 0) {
            /* TLS 1.3: a server refuses our certificate after the handshake, with an alert */
            bool refused = link->stream.secure && link->state == LINK_GREETING &&
                           n == NET_IO_FAILED;

            etcd_link_drop(link, refused ? PAWL_EAUTH : PAWL_ECONN, "%s%s", words,
                           link->state == LINK_GREETING && !link->stream.secure
                               ? "; is this etcd, without TLS (TLS: tls=1)?" : "");
            return;
        }
        if (link->state == LINK_READY)
            link->heard = link->e->env->now(link->e->env);
        link->in_h2 = true;
        used = nghttp2_session_mem_recv(link->h2, data, (size_t)n);
        link->in_h2 = false;
        if (!survives(link))
            return;
        if (used < 0) {
            broke_rules(link, used == NGHTTP2_ERR_NOMEM ? PAWL_ENOMEM : PAWL_EPROTO);
            return;
        }
        if (!link->stream.secure && (size_t)n < sizeof data)
            return;
    }
}

static void stream_ready(net_stream *s, bool readable, bool writable)
{
    etcd_link *link = s->arg;

    (void)writable;
    if (readable)
        receive(link);
    if (link->h2)
        etcd_link_flush(link);
    if (link->h2 && !nghttp2_session_want_read(link->h2)) /* it has said good-bye because of that */
        broke_rules(link, PAWL_EPROTO);
}

static void stream_opened(net_stream *s)
{
    etcd_link *link = s->arg;
    int error = make_session(link);

    link->state = LINK_GREETING;
    link->heard = 0;
    if (error) {
        etcd_link_drop(link, PAWL_ENOMEM, "%s", nghttp2_strerror(error));
        return;
    }
    plan(link);
    etcd_link_flush(link);
}

static void stream_failed(net_stream *s, int code, const char *words)
{
    etcd_link_drop(s->arg, code, "%s", words);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int64_t limit_of(const etcd_link *link)
{
    return link->e->env->timeout_ms * PAWL_NS_PER_MS;
}

/* The timer of a link that is up. etcd hangs up on clients that ping it while no stream is open, so
 * a link on which nobody waits for anything is left alone: the next call shows whether it still
 * works. */
static void plan(etcd_link *link)
{
    pawl_env *env = link->e->env;
    bool pings = !list_empty(&link->streams) || !list_empty(&link->calls);
    int64_t due = pings ? link->heard + PING_MS * (int64_t)PAWL_NS_PER_MS : PAWL_NEVER;

    if (link->state == LINK_GREETING)
        due = env->now(env) + limit_of(link);
    if (link->pinged)
        due = link->pinged + limit_of(link);
    if (!list_empty(&link->calls)) {
        int64_t first = list_entry(link->calls.next, etcd_call, link)->sent + limit_of(link);

        due = first < due ? first : due;
    }
    if (due == PAWL_NEVER)
        env->timer_clear(env, &link->timer);
    else
        env->timer_set(env, &link->timer, due);
}

static void dial(etcd_link *link)
{
    const net_address *to = &link->e->settings.endpoints.list[link->endpoint];

    link->state = LINK_DIALING;
    link->tls.host = to->host;
    net_stream_open(&link->stream, to->host, to->port);
}

static void timer_fired(pawl_timer *timer)
{
    etcd_link *link = timer->arg;
    int64_t now = link->e->env->now(link->e->env);
    const etcd_call *first = list_empty(&link->calls)
                                 ? NULL : list_entry(link->calls.next, etcd_call, link);

    if (link->state == LINK_PAUSED) {
        dial(link);
        return;
    }
    if (link->state < LINK_GREETING)
        return;
    if (link->state == LINK_GREETING || (first && now >= first->sent + limit_of(link)) ||
        (link->pinged && now >= link->pinged + limit_of(link))) {
        etcd_link_drop(link, PAWL_ECONN, "no answer within %lld ms",
                       (long long)link->e->env->timeout_ms);
        return;
    }
    if (!link->pinged && !(list_empty(&link->streams) && list_empty(&link->calls)) &&
        now >= link->heard + PING_MS * (int64_t)PAWL_NS_PER_MS) {
        link->pinged = now;
        nghttp2_submit_ping(link->h2, NGHTTP2_FLAG_NONE, NULL);
        link->e->env->loop_changed(link->e->env);
    }
    plan(link);
}

int etcd_link_open(etcd_link *link, etcd *e, pawl_error *err)
{
    const etcd_settings *s = &e->settings;

    link->e = e;
    list_init(&link->calls);
    list_init(&link->streams);
    link->tls = s->tls_settings;
    link->tls.alpn = "h2";
    if (s->tls) {
        int code = net_tls_context(&link->tls_context, e->env, &link->tls, err);

        if (code)
            return code;
    }
    link->stream.env = e->env;
    link->stream.tls_context = link->tls_context;
    link->stream.tls = &link->tls;
    link->stream.arg = link;
    link->stream.opened = stream_opened;
    link->stream.failed = stream_failed;
    link->stream.ready = stream_ready;
    link->timer = (pawl_timer){.fire = timer_fired, .arg = link};
    link->endpoint = (size_t)(e->env->random(e->env) % s->endpoints.n);
    link->state = LINK_PAUSED;
    e->env->timer_set(e->env, &link->timer, e->env->now(e->env));
    return 0;
}

void etcd_link_close(etcd_link *link)
{
    if (!link->e)
        return;
    if (link->state != LINK_CLOSED) {
        link->state = LINK_CLOSED;
        link->e->env->timer_clear(link->e->env, &link->timer);
        close_attempt(link);
        fail_all(&link->calls, PAWL_ECANCELED, "closing");
        fail_all(&link->streams, PAWL_ECANCELED, "closing");
    }
    net_tls_context_free(link->tls_context);
    link->tls_context = NULL;
}

void etcd_link_greeted(etcd_link *link)
{
    link->state = LINK_READY;
    link->last_code = 0;
    link->heard = link->e->env->now(link->e->env);
    link->epochs++;
    plan(link);
    if (link->epochs > 1)
        link->e->env->log(link->e->env, PAWL_LOG_WARNING, "connected again: %s",
                          link->e->settings.endpoints.list[link->endpoint].where);
    etcd_connected(link->e);
}
