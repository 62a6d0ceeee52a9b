/* SPDX-License-Identifier: Apache-2.0
 *
 * probe.c - checks whether a server answers.
 *
 *     started --opened--> hearing --end of the answer, or room is full--> over
 *        +--------- failed, or the timeout ------------------------------> over
 *
 * Over: the stream is closed and the timer cleared before `done` is called, so that `done` may free
 * the probe.
 */
#include "probe.h"

static void over(net_probe *p, bool answered, const char *words)
{
    net_probe_end(p);
    p->answered = answered;
    snprintf(p->words, sizeof p->words, "%s", words);
    p->done(p);
}

static void hear(net_probe *p)
{
    char words[NET_WORDS] = "closed by the server";
    ptrdiff_t n;

    do {
        n = net_stream_read(&p->stream, p->heard + p->length, sizeof p->heard - 1 - p->length,
                            words);
        if (n > 0)
            p->length += (size_t)n;
        p->heard[p->length] = 0;
    } while (n > 0 && p->length < sizeof p->heard - 1);
    if (n == NET_IO_AGAIN)
        net_stream_watch(&p->stream, false);
    else
        over(p, p->length > 0, words);
}

static void ready(net_stream *s, bool readable, bool writable)
{
    (void)writable;
    if (readable)
        hear(s->arg);
}

static void opened(net_stream *s)
{
    net_probe *p = s->arg;
    char words[NET_WORDS] = "";

    if (!p->says)
        over(p, true, "");
    else if (net_stream_write(s, p->says, strlen(p->says), words) != (ptrdiff_t)strlen(p->says))
        over(p, false, words[0] ? words : "nothing can be written");
    else
        net_stream_watch(s, false);
}

static void failed(net_stream *s, int code, const char *words)
{
    (void)code;
    over(s->arg, false, words);
}

static void too_late(pawl_timer *timer)
{
    over(timer->arg, false, "no answer in time");
}

/* Half of the timeout, because the op that waits for all probes has a timeout, too. */
void net_probe_start(net_probe *p)
{
    int64_t limit_ms = p->env->timeout_ms / 2;

    p->tls.host = p->at->host;
    p->timer = (pawl_timer){.fire = too_late, .arg = p};
    p->stream = (net_stream){.env = p->env, .tls = &p->tls, .tls_context = p->tls_context,
        .limit_ms = p->env->timeout_ms, .arg = p, .opened = opened, .failed = failed,
        .ready = ready};
    p->env->timer_set(p->env, &p->timer, p->env->now(p->env) + limit_ms * PAWL_NS_PER_MS);
    net_stream_open(&p->stream, p->at->host, p->at->port);
}

void net_probe_end(net_probe *p)
{
    if (!p->timer.fire)
        return;
    p->env->timer_clear(p->env, &p->timer);
    net_stream_close(&p->stream);
}
