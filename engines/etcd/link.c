/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c - the link to etcd, on top of kit/link.c: HTTP/2, and the calls. GREETING lasts until the
 * server's settings have come and the first calls are answered (login.c).
 *
 * After each drop the link tries the next endpoint; when all of them have failed in a row, after a
 * longer pause. The link also leaves a server that answers "unavailable" (no leader, shutting down,
 * request timed out), because another server may work better, and a server that has sent nothing
 * for a while and does not answer a ping.
 *
 * nghttp2 manages the streams, and this file the socket. Data is written just before the loop
 * polls. Inside nghttp2's callbacks the link can't be dropped; an error there marks the link as
 * doomed, and the link is dropped after the callback.
 */
#include <stdlib.h>

#include "etcd.h"

#define PING_MS 6000 /* etcd disconnects clients that ping more often than every 5 s */
#define OUT_SIZE 65536
#define WINDOW (1 << 20)

static etcd_link *link_of(kit_link *kit)
{
    return list_entry(kit, etcd_link, kit);
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static void call_free(etcd_call *call)
{
    list_remove(&call->link);
    etcd_pb_free(&call->body);
    etcd_grpc_free(&call->in);
    free(call);
}

static void disconnect(kit_link *kit)
{
    etcd_link *link = link_of(kit);

    kit_wire_close(&link->wire);
    nghttp2_session_del(link->h2);
    link->h2 = NULL;
    link->parting = false;
    link->doomed = 0;
    link->pinged = 0;
    if (link->token)
        explicit_bzero(link->token, strlen(link->token));
    free(link->token);
    link->token = NULL;
}

/* After a call is answered, the caller's object (call->about) may be gone. */
static void tell_failed(etcd_call *call, int code, const char *words)
{
    if (call->about && (call->type->streams || !call->answered))
        call->type->failed(call, code, words);
}

static void fail_call(kit_link *kit, struct list *l, int code, const char *words)
{
    etcd_call *call = list_entry(l, etcd_call, link);

    (void)kit;
    tell_failed(call, code, words);
    call_free(call);
}

static int64_t back_off(kit_link *kit, bool was_ready)
{
    etcd_link *link = link_of(kit);
    size_t n = link->e->settings.endpoints.n;

    (void)was_ready;
    link->endpoint = (link->endpoint + 1) % n;
    return kit_link_pause_ms(kit, n) / (kit->failures < n ? 2 : 1);
}

/* Inside nghttp2 the session can't be freed: mark the link as doomed. */
static bool keeps(kit_link *kit, int code, const char *words)
{
    etcd_link *link = link_of(kit);

    if (!link->in_h2)
        return false;
    link->doomed = code;
    snprintf(link->words, sizeof link->words, "%s", words);
    return true;
}

static void dropped(kit_link *kit, int refused)
{
    etcd_link *link = link_of(kit);

    kit_link_fail(kit, &link->streams, PAWL_EUNKNOWN, kit->words);
    etcd_dropped(link->e, refused, kit->words,
                 refused && kit->failures >= link->e->settings.endpoints.n);
}

/* Outside nghttp2 again: drop a doomed link. False: the link was dropped. */
static bool survives(etcd_link *link)
{
    char words[ETCD_WORDS];

    if (!link->doomed)
        return link->h2 != NULL;
    memcpy(words, link->words, sizeof words);
    etcd_link_drop(link, link->doomed, "%s", words);
    return false;
}

/* ---- the end of a call ----------------------------------------------------------------------- */

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

/* The code of a server error. PAWL_EUNKNOWN: the request may have been carried out. */
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
        return PAWL_ENOTSUP;
    default:
        return PAWL_EUNKNOWN;
    }
}

/* Codes that a retry does not change. */
static bool refusal(int code)
{
    return code == PAWL_EAUTH || code == PAWL_ENOTSUP;
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
        if (call->status == GRPC_UNIMPLEMENTED)
            snprintf(words, sizeof words, "server too old, or no etcd: Pawl needs etcd 3.4 or "
                     "newer (the server says: %.70s)", call->words);
    }
    if (refusal(code) && link->state == LINK_READY && !call->type->streams)
        etcd_add_where(link, words);
    tell_failed(call, code, words);
    if (call->type->streams || code == PAWL_EUNKNOWN || code == PAWL_ECONN ||
        (code == PAWL_EPROTO && !call->type->optional))
        etcd_link_drop(link, code == PAWL_EPROTO || refusal(code) ? code : PAWL_ECONN, "%s", words);
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

/* ---- callbacks of nghttp2 -------------------------------------------------------------------- */

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

/* Replace control characters: the server's texts go to terminals and logs. */
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
        link->heard = link->env->now(link->env);
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

static void broke_rules(etcd_link *link, int code)
{
    etcd_link_drop(link, code, "not as HTTP/2 should be; is this an etcd server?");
}

static void out_of_memory(etcd_link *link)
{
    etcd_link_drop(link, PAWL_ENOMEM, "out of memory");
}

/* Copy the frames of nghttp2 into the output buffer. */
static bool fill(kit_wire *wire)
{
    etcd_link *link = link_of(&wire->kit);

    while (kit_buf_length(&wire->out) < OUT_SIZE) {
        const uint8_t *data;
        ssize_t n;

        link->in_h2 = true;
        n = nghttp2_session_mem_send(link->h2, &data);
        link->in_h2 = false;
        if (!survives(link))
            return false;
        if (n == 0)
            break;
        if (n < 0)
            etcd_link_drop(link, n == NGHTTP2_ERR_NOMEM ? PAWL_ENOMEM : PAWL_EPROTO, "%s",
                           nghttp2_strerror((int)n));
        else if (kit_buf_reserve(&wire->out, (size_t)n))
            out_of_memory(link);
        if (link->state == LINK_PAUSED)
            return false;
        memcpy(wire->out.data + wire->out.end, data, (size_t)n);
        wire->out.end += (size_t)n;
    }
    if (kit_buf_length(&wire->out) || nghttp2_session_want_read(link->h2))
        return true;
    broke_rules(link, PAWL_EPROTO); /* nghttp2 ended the session because of an error */
    return false;
}

void etcd_link_flush(etcd_link *link)
{
    if (!link->in_h2)
        kit_wire_flush(&link->wire);
}

static bool take_bytes(kit_wire *wire)
{
    etcd_link *link = link_of(&wire->kit);
    size_t n = kit_buf_length(&wire->in);
    ssize_t used;

    if (link->state == LINK_READY)
        link->heard = link->env->now(link->env);
    link->in_h2 = true;
    used = nghttp2_session_mem_recv(link->h2, (uint8_t *)wire->in.data + wire->in.begin, n);
    link->in_h2 = false;
    if (!survives(link))
        return false;
    kit_buf_take(&wire->in, n);
    if (used < 0)
        broke_rules(link, used == NGHTTP2_ERR_NOMEM ? PAWL_ENOMEM : PAWL_EPROTO);
    return used >= 0;
}

/* The greeting has the whole timeout. */
static void greet(kit_link *kit)
{
    etcd_link *link = link_of(kit);
    int error = make_session(link);

    link->heard = 0;
    if (error) {
        etcd_link_drop(link, PAWL_ENOMEM, "%s", nghttp2_strerror(error));
        return;
    }
    kit_link_limit_attempt(kit);
    kit_wire_flush(&link->wire);
}

/* ---- opening and closing the link ------------------------------------------------------------ */

/* The next deadline: of a ping or of the oldest call. etcd disconnects clients that send pings
 * while no stream is open, so an idle link is not pinged: the next call shows whether the link
 * still works. */
static int64_t limit(kit_link *kit)
{
    etcd_link *link = link_of(kit);
    int64_t now = kit->env->now(kit->env), patience = kit->limit_ms * PAWL_NS_PER_MS;
    int64_t ping = link->heard + PING_MS * (int64_t)PAWL_NS_PER_MS, due = PAWL_NEVER, first;
    bool pings = !list_empty(&link->streams) || !list_empty(&kit->calls);

    if (!link->pinged && pings && now >= ping) {
        link->pinged = now;
        nghttp2_submit_ping(link->h2, NGHTTP2_FLAG_NONE, NULL);
        kit->env->loop_changed(kit->env);
    }
    if (link->pinged)
        due = link->pinged + patience;
    else if (pings)
        due = ping;
    if (list_empty(&kit->calls))
        return due;
    first = list_entry(kit->calls.next, etcd_call, link)->sent + patience;
    return first < due ? first : due;
}

static void attempt(kit_link *kit)
{
    etcd_link *link = link_of(kit);
    const net_address *to = &link->e->settings.endpoints.list[link->endpoint];

    kit->peer = to->where;
    kit_wire_open(&link->wire, &link->e->settings.tls_settings, link->tls_context, to->host,
                  to->port);
}

void etcd_link_greeted(etcd_link *link)
{
    link->heard = link->env->now(link->env);
    kit_link_ready(&link->kit);
}

/* The stream of the login may still be open. */
static void ready(kit_link *kit)
{
    int64_t due = limit(kit);

    if (due < PAWL_NEVER)
        kit_link_expect(kit, due);
    etcd_connected(link_of(kit)->e);
}

int etcd_link_open(etcd_link *link, etcd *e, pawl_error *err)
{
    static const kit_link_type type = {.attempt = attempt, .greet = greet, .take = take_bytes,
        .fill = fill, .ready = ready, .limit = limit, .fail = fail_call, .keeps = keeps,
        .disconnect = disconnect, .back_off = back_off, .dropped = dropped, .wipes = true,
        .hint = "; is this etcd, without TLS (TLS: tls=1)?"};
    etcd_settings *s = &e->settings;

    link->e = e;
    kit_link_init(&link->kit, &type, e->env);
    list_init(&link->streams);
    s->tls_settings.alpn = "h2";
    if (s->tls) {
        int code = net_tls_context(&link->tls_context, e->env, &s->tls_settings, err);

        if (code)
            return code;
    }
    link->endpoint = (size_t)(e->env->random(e->env) % s->endpoints.n);
    kit_link_open(&link->kit);
    return 0;
}

void etcd_link_close(etcd_link *link)
{
    if (!link->e)
        return;
    kit_link_close(&link->kit);
    kit_link_fail(&link->kit, &link->streams, PAWL_ECANCELED, "closing");
    net_tls_context_free(link->tls_context);
    link->tls_context = NULL;
}
