/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c - the connection of the example engine; lines.h has its states.
 *
 * A connection is memory of its own, because libuv calls back after uv_close, when the link may
 * have the next connection already. `lines` in a connection is NULL from the uv_close on.
 */
#include <stdlib.h>

#include "lines.h"

#define PAUSE_MIN_MS 10
#define PAUSE_MAX_MS 1000
#define LEFT_ALONE_MS 50 /* a timer that fires this late shows that nobody ran the loop */
#define GREETED "hello lockd 1"

typedef struct connection {
    uv_tcp_t tcp;
    uv_connect_t connect;
    lines *lines; /* NULL: closed */
    int fd;       /* registered by fork_guard_add, or -1 */
    size_t used;
    char in[16384]; /* a line that is not complete */
} connection;

typedef struct output {
    uv_write_t write;
    char text[];
} output;

static int64_t after_ms(lines *l, int64_t ms)
{
    return l->env->now(l->env) + ms * PAWL_NS_PER_MS;
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static void free_connection(uv_handle_t *handle)
{
    free(handle->data);
}

static void close_connection(lines *l)
{
    connection *c = l->connection;

    l->connection = NULL;
    l->state = LINK_PAUSED;
    l->env->timer_clear(l->env, &l->timer);
    if (!c)
        return;
    if (c->fd >= 0)
        l->env->fork_guard_remove(c->fd);
    c->lines = NULL;
    uv_close((uv_handle_t *)&c->tcp, free_connection);
    l->env->loop_changed(l->env);
}

static void free_call(call *c)
{
    free(c->text);
    free(c);
}

/* The outcome of each call that was sent is unknown. The list is changed before the op is
 * completed: afterwards the op may be submitted again. */
static void end_sent_calls(lines *l)
{
    while (l->calls && l->calls->sent) {
        call *c = l->calls;

        l->calls = c->next;
        lines_unanswered(c, PAWL_EUNKNOWN, l->why);
        free_call(c);
    }
}

void link_fail(lines *l, const char *why)
{
    int64_t pause = PAUSE_MIN_MS << (l->failures < 7 ? l->failures : 7);

    snprintf(l->why, sizeof l->why, "%s: %s", l->where, why);
    l->env->log(l->env, PAWL_LOG_WARNING, "%s", l->why);
    close_connection(l);
    l->failures++;
    pause = pause > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause;
    pause = pause / 2 + (int64_t)(l->env->random(l->env) % (uint64_t)pause) / 2;
    l->env->timer_set(l->env, &l->timer, after_ms(l, pause));
    end_sent_calls(l);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void written(uv_write_t *write, int status)
{
    connection *c = write->data;

    free(write); /* the first member of an output */
    if (status < 0 && c->lines)
        link_fail(c->lines, uv_strerror(status));
}

static bool write_text(lines *l, const char *text, size_t length)
{
    output *o = malloc(sizeof *o + length);
    uv_buf_t buf;

    if (!o)
        return false;
    memcpy(o->text, text, length);
    buf = uv_buf_init(o->text, (unsigned)length);
    o->write.data = l->connection;
    if (uv_write(&o->write, (uv_stream_t *)&l->connection->tcp, &buf, 1, written)) {
        free(o);
        return false;
    }
    l->env->loop_changed(l->env);
    return true;
}

/* The oldest exchange decides when the server counts as silent. */
static void limit_exchange(lines *l)
{
    if (l->calls && l->calls->sent)
        l->env->timer_set(l->env, &l->timer,
                          l->calls->sent + l->env->timeout_ms * PAWL_NS_PER_MS);
    else
        l->env->timer_clear(l->env, &l->timer);
}

static void send_calls(lines *l)
{
    for (call *c = l->calls; c; c = c->next) {
        if (c->sent)
            continue;
        c->sent = l->env->now(l->env);
        if (!write_text(l, c->text, c->length)) {
            link_fail(l, "out of memory");
            return;
        }
    }
    limit_exchange(l);
}

void link_send(lines *l, call *c)
{
    call **at = &l->calls;

    while (*at)
        at = &(*at)->next;
    *at = c;
    if (l->state == LINK_READY)
        send_calls(l);
}

void link_withdraw(lines *l, call *c)
{
    call **at = &l->calls;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    free_call(c);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Another attempt would fail in the same way: don't let the ops wait for one. */
static void refuse(lines *l, int code, const char *why)
{
    link_fail(l, why);
    while (l->calls) {
        call *c = l->calls;

        l->calls = c->next;
        lines_unanswered(c, code, l->why);
        free_call(c);
    }
}

static void greeted(lines *l, const char *line)
{
    if (strcmp(line, GREETED)) {
        refuse(l, PAWL_EPROTO, "the server does not speak version 1 of the protocol");
        return;
    }
    l->state = LINK_READY;
    l->failures = 0;
    l->why[0] = 0;
    if (l->connections++)
        lines_ready(l);
    send_calls(l);
}

static void take_line(lines *l, char *line)
{
    call *c = l->calls;

    if (l->state == LINK_GREETING) {
        greeted(l, line);
    } else if (line[0] == '*') {
        lines_message(l, line);
    } else if (!c || !c->sent) {
        link_fail(l, "an answer without a question");
    } else if (lines_answer(l, c, line)) {
        l->calls = c->next;
        limit_exchange(l);
        free_call(c);
    }
}

/* Take complete lines. A line may end the connection. */
static void take_lines(connection *c)
{
    char *at = c->in, *end;

    while (c->lines && (end = memchr(at, '\n', c->used - (size_t)(at - c->in)))) {
        *end = 0;
        take_line(c->lines, at);
        at = end + 1;
    }
    c->used -= (size_t)(at - c->in);
    memmove(c->in, at, c->used);
    if (c->lines && c->used == sizeof c->in)
        link_fail(c->lines, "a line is too long");
}

static void give_room(uv_handle_t *handle, size_t wanted, uv_buf_t *ret)
{
    connection *c = handle->data;

    (void)wanted;
    *ret = uv_buf_init(c->in + c->used, (unsigned)(sizeof c->in - c->used));
}

static void received(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    connection *c = stream->data;

    (void)buf;
    if (!c->lines)
        return;
    if (n < 0) {
        link_fail(c->lines, n == UV_EOF ? "closed by the server" : uv_strerror((int)n));
        return;
    }
    c->used += (size_t)n;
    take_lines(c);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void connected(uv_connect_t *connect, int status)
{
    connection *c = connect->data;
    lines *l = c->lines;
    uv_os_fd_t fd;

    if (!l)
        return;
    if (status < 0) {
        link_fail(l, uv_strerror(status));
        return;
    }
    if (!uv_fileno((uv_handle_t *)&c->tcp, &fd)) {
        c->fd = fd;
        l->env->fork_guard_add(fd);
    }
    uv_tcp_nodelay(&c->tcp, 1);
    l->state = LINK_GREETING;
    l->env->timer_set(l->env, &l->timer, after_ms(l, l->env->timeout_ms));
    if (uv_read_start((uv_stream_t *)&c->tcp, give_room, received) ||
        !write_text(l, l->hello, strlen(l->hello)))
        link_fail(l, "out of memory");
}

static void connect_now(lines *l)
{
    connection *c = calloc(1, sizeof *c);

    l->env->timer_set(l->env, &l->timer, after_ms(l, l->env->timeout_ms));
    if (!c)
        return;
    uv_tcp_init(l->env->loop, &c->tcp);
    c->tcp.data = c->connect.data = c;
    c->lines = l;
    c->fd = -1;
    l->connection = c;
    l->state = LINK_CONNECTING;
    if (uv_tcp_connect(&c->connect, &c->tcp, (const struct sockaddr *)&l->at, connected))
        link_fail(l, "can't connect");
    l->env->loop_changed(l->env);
}

/* A program that makes no call and holds no lock need not run the loop for any time (engine.h,
 * TIME). The time limit of an attempt then begins anew. */
static void timer_fired(pawl_timer *timer)
{
    lines *l = timer->arg;
    bool late = l->env->now(l->env) - timer->due > LEFT_ALONE_MS * PAWL_NS_PER_MS;

    if (l->state == LINK_PAUSED)
        connect_now(l);
    else if (l->state != LINK_READY && late)
        l->env->timer_set(l->env, timer, after_ms(l, l->env->timeout_ms));
    else
        link_fail(l, "no answer in time");
}

void link_open(lines *l)
{
    l->timer = (pawl_timer){.fire = timer_fired, .arg = l};
    connect_now(l);
}

void link_close(lines *l)
{
    close_connection(l);
    while (l->calls) {
        call *c = l->calls;

        l->calls = c->next;
        free_call(c);
    }
}
