/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c - net_stream without a network: see world.h. A connection opens in the next turn; there
 * is no TLS.
 */
#include "net/net.h"
#include "world.h"

#define STREAMS_MAX 4096

static net_stream *streams[STREAMS_MAX];
static size_t nstreams;
static struct {
    net_stream *stream;
    const char *data;
    size_t length;
    bool ends;
} saying;

size_t streams_open(void)
{
    return nstreams;
}

net_stream *stream_at(size_t i)
{
    return streams[i];
}

void streams_reset(void)
{
    DEMAND(!nstreams);
}

void net_stream_open(net_stream *s, const char *host, uint16_t port)
{
    (void)port;
    DEMAND(s->path || strlen(host) < NET_HOST_MAX);
    DEMAND(s->state == NET_CLOSED && nstreams < STREAMS_MAX);
    s->state = NET_RESOLVING;
    s->fd = -1;
    s->ends = s->env->now(s->env) + s->env->timeout_ms * PAWL_NS_PER_MS;
    streams[nstreams++] = s;
}

void net_stream_close(net_stream *s)
{
    size_t i = 0;

    if (s->state == NET_CLOSED)
        return;
    while (streams[i] != s)
        i++;
    memmove(streams + i, streams + i + 1, (--nstreams - i) * sizeof *streams);
    s->state = NET_CLOSED;
    if (saying.stream == s)
        saying.stream = NULL;
}

static bool open_one(void)
{
    for (size_t i = 0; i < nstreams; i++)
        if (streams[i]->state == NET_RESOLVING) {
            net_stream *s = streams[i];

            s->state = NET_OPEN;
            stream_opened(s);
            s->opened(s);
            return true;
        }
    return false;
}

void streams_turn(world *w)
{
    (void)w;
    while (open_one())
        continue;
}

void net_stream_watch(net_stream *s, bool writes)
{
    (void)s;
    (void)writes;
}

ptrdiff_t net_stream_read(net_stream *s, void *data, size_t room, char words[NET_WORDS])
{
    size_t n = saying.length < room ? saying.length : room;

    (void)words;
    if (saying.stream != s)
        return NET_IO_AGAIN;
    if (!n)
        return saying.ends ? NET_IO_CLOSED : NET_IO_AGAIN;
    memcpy(data, saying.data, n);
    saying.data += n;
    saying.length -= n;
    return (ptrdiff_t)n;
}

ptrdiff_t net_stream_write(net_stream *s, const void *data, size_t length, char words[NET_WORDS])
{
    (void)words;
    DEMAND(s->state == NET_OPEN);
    stream_hears(s, data, length);
    return (ptrdiff_t)length;
}

static void say(net_stream *s, const void *data, size_t length, bool ends)
{
    saying.stream = s;
    saying.data = data;
    saying.length = length;
    saying.ends = ends;
    do
        s->ready(s, true, false);
    while (saying.stream == s && saying.length);
    saying.stream = NULL;
}

bool stream_is_open(const net_stream *s)
{
    for (size_t i = 0; i < nstreams; i++)
        if (streams[i] == s)
            return s->state == NET_OPEN;
    return false;
}

void stream_says(net_stream *s, const void *data, size_t length)
{
    if (stream_is_open(s) && length)
        say(s, data, length, false);
}

void stream_hangs_up(net_stream *s)
{
    if (stream_is_open(s))
        say(s, "", 0, true);
}

/* ---- TLS: none ------------------------------------------------------------------------------- */

int net_tls_context(void **ret, pawl_env *env, const net_tls_settings *s, pawl_error *err)
{
    (void)env;
    (void)s;
    *ret = NULL;
    return pawl_error_set(err, PAWL_ENOTSUP, "no TLS here");
}

const char *net_tls_library(void)
{
    return "";
}

void net_tls_context_free(void *context)
{
    DEMAND(!context);
}
