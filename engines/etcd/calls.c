/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c - a gRPC call on the link: headers, and the messages to be sent.
 *
 * The body of a call has each message behind a prefix of five bytes. The body of a unary call ends
 * with the one message. The body of a stream stays open: nghttp2 is told to defer when there is no
 * data, and to resume when there is. The buffer is emptied when all bytes have been sent.
 */
#include <stdlib.h>

#include "etcd.h"

void etcd_add_where(const etcd_link *link, char words[ETCD_WORDS])
{
    char said[ETCD_WORDS];

    memcpy(said, words, sizeof said);
    snprintf(words, ETCD_WORDS, "%.60s: %.155s",
             link->e->settings.endpoints.list[link->endpoint].where, said);
}

static const uint8_t no_prefix[GRPC_PREFIX]; /* filled in when the message is complete */

etcd_call *etcd_call_new(etcd *e, const etcd_call_type *type, void *about)
{
    etcd_call *call = calloc(1, sizeof *call);

    if (!call)
        return NULL;
    list_init(&call->link);
    call->e = e;
    call->type = type;
    call->about = about;
    call->http = call->status = -1;
    etcd_pb_raw(&call->body, no_prefix, sizeof no_prefix);
    return call;
}

static void discard(etcd_call *call)
{
    etcd_pb_free(&call->body);
    free(call);
}

/* For nghttp2: the next bytes of the body. */
static ssize_t read_body(nghttp2_session *h2, int32_t stream, uint8_t *buffer, size_t room,
                         uint32_t *flags, nghttp2_data_source *source, void *user)
{
    etcd_call *call = source->ptr;
    size_t left = call->sealed - call->written, n = left < room ? left : room;

    (void)h2;
    (void)stream;
    (void)user;
    if (!left && call->type->streams) {
        call->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    memcpy(buffer, call->body.data + call->written, n);
    call->written += n;
    if (n == left && !call->type->streams)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name, .namelen = strlen(name),
                        .value = (uint8_t *)(uintptr_t)value, .valuelen = strlen(value)};
}

bool etcd_call_send(etcd_call *call)
{
    etcd_link *link = &call->e->link;
    const char *scheme = link->tls_context ? "https" : "http";
    const nghttp2_nv headers[] = {
        header(":method", "POST"), header(":scheme", scheme), header(":path", call->type->path),
        header(":authority", call->e->settings.endpoints.list[link->endpoint].where),
        header("te", "trailers"), header("content-type", "application/grpc"),
        header("user-agent", "pawl"), header("hasleader", "true"),
        header("token", link->token ? link->token : "")};
    size_t n = sizeof headers / sizeof headers[0];
    nghttp2_data_provider provider = {.source.ptr = call, .read_callback = read_body};

    etcd_grpc_seal(&call->body, 0);
    call->sealed = call->body.length;
    call->sent = call->e->env->now(call->e->env);
    call->stream = call->body.failed ? NGHTTP2_ERR_NOMEM
                                     : nghttp2_submit_request(link->h2, NULL, headers,
                                                              link->token ? n : n - 1, &provider,
                                                              call);
    if (call->stream < 0) {
        discard(call);
        return false;
    }
    list_append(call->type->streams ? &link->streams : &link->calls, &call->link);
    call->e->env->loop_changed(call->e->env);
    kit_link_expect(&link->kit, call->sent + link->limit_ms * PAWL_NS_PER_MS);
    return true;
}

pb_buf *etcd_call_begin(etcd_call *call)
{
    if (call->written == call->body.length) /* all bytes are sent */
        call->body.length = call->sealed = call->written = 0;
    etcd_pb_raw(&call->body, no_prefix, sizeof no_prefix);
    return &call->body;
}

bool etcd_call_more(etcd_call *call)
{
    if (call->body.failed)
        return false;
    etcd_grpc_seal(&call->body, call->sealed);
    call->sealed = call->body.length;
    if (call->deferred) {
        call->deferred = false;
        nghttp2_session_resume_data(call->e->link.h2, call->stream);
    }
    call->e->env->loop_changed(call->e->env);
    return true;
}
