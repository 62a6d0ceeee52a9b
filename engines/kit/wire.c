/* SPDX-License-Identifier: Apache-2.0
 *
 * wire.c - a link over a byte stream: connects by net/stream.c, reads into wire->in, writes from
 * wire->out. While connecting, the stream has a timer of its own; the link's timer is not armed.
 */
#include "kit/link.h"

#define READ_SIZE 16384
#define READS_MAX 16 /* in a row; then other connections get their turn */

void kit_wire_flush(kit_wire *wire)
{
    const kit_link_type *type = wire->type;
    char words[NET_WORDS] = "closed by the server";

    while (wire->state >= LINK_GREETING && (!type->fill || type->fill(wire)) &&
           kit_buf_length(&wire->out) > 0) {
        ptrdiff_t n = net_stream_write(&wire->stream, wire->out.data + wire->out.begin,
                                       kit_buf_length(&wire->out), words);

        if (n == NET_IO_AGAIN)
            break;
        if (n < 0) {
            kit_link_drop(&wire->kit, PAWL_ECONN, "%s", words);
            return;
        }
        if (type->wipes)
            explicit_bzero(wire->out.data + wire->out.begin, (size_t)n);
        kit_buf_take(&wire->out, (size_t)n);
    }
    if (wire->state >= LINK_GREETING)
        net_stream_watch(&wire->stream, kit_buf_length(&wire->out) > 0);
}

/* TLS 1.3: a server that refuses our certificate says so after the handshake, by an alert. */
static void hung_up(kit_wire *wire, ptrdiff_t how, const char *words)
{
    bool greeting = wire->state == LINK_GREETING, secure = wire->stream.secure != NULL;
    bool refused = secure && greeting && how == NET_IO_FAILED;

    kit_link_drop(&wire->kit, refused ? PAWL_EAUTH : PAWL_ECONN, "%s%s", words,
                  greeting && !secure ? wire->type->hint : "");
}

void kit_wire_receive(kit_wire *wire)
{
    char words[NET_WORDS] = "closed by the server";

    for (int i = 0; i < READS_MAX; i++) {
        size_t room;
        ptrdiff_t n;

        if (kit_buf_reserve(&wire->in, READ_SIZE)) {
            kit_link_drop(&wire->kit, PAWL_ENOMEM, "out of memory");
            return;
        }
        room = wire->in.room - wire->in.end;
        n = net_stream_read(&wire->stream, wire->in.data + wire->in.end, room, words);
        if (n == NET_IO_AGAIN)
            break;
        if (n < 0) {
            hung_up(wire, n, words);
            return;
        }
        wire->in.end += (size_t)n;
        if (!wire->type->take(wire))
            return;
        if (!wire->stream.secure && (size_t)n < room)
            break;
    }
    if (wire->type->fill) /* answers may lead to new requests */
        kit_wire_flush(wire);
    else
        net_stream_watch(&wire->stream, kit_buf_length(&wire->out) > 0);
}

static void stream_ready(net_stream *s, bool readable, bool writable)
{
    if (writable)
        kit_wire_flush(s->arg);
    if (readable && s->state == NET_OPEN)
        kit_wire_receive(s->arg);
}

static void stream_opened(net_stream *s)
{
    kit_wire *wire = s->arg;

    kit_link_connected(&wire->kit);
}

static void stream_failed(net_stream *s, int code, const char *words)
{
    kit_wire *wire = s->arg;

    kit_link_drop(&wire->kit, code, "%s", words);
}

void kit_wire_open(kit_wire *wire, const net_tls_settings *tls, void *context, const char *host,
                   uint16_t port)
{
    wire->state = LINK_CONNECTING;
    wire->env->timer_clear(wire->env, &wire->timer);
    wire->tls = *tls;
    wire->tls.host = host;
    wire->stream.env = wire->env;
    wire->stream.tls = &wire->tls;
    wire->stream.tls_context = context;
    wire->stream.limit_ms = wire->limit_ms;
    wire->stream.arg = wire;
    wire->stream.opened = stream_opened;
    wire->stream.failed = stream_failed;
    wire->stream.ready = stream_ready;
    net_stream_open(&wire->stream, host, port);
}

void kit_wire_close(kit_wire *wire)
{
    net_stream_close(&wire->stream);
    kit_buf_free(&wire->in);
    kit_buf_free(&wire->out);
}
