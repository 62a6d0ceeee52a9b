/* SPDX-License-Identifier: Apache-2.0
 *
 * session.c - how long the session is surely valid, and RENEW, which is answered from that.
 *
 * The *leader* of the ensemble ends a session after hearing nothing from the session for its
 * timeout T. Any other server collects its clients' messages, and reports the active sessions to
 * the leader every half tick. So an answer from just any server is not enough:
 *
 *   - A server that was cut off from the leader goes on answering pings for a while. Our heartbeat
 *     is a `sync`, which only the leader can answer.
 *   - The answer proves that server and leader were still connected then, so that every message
 *     that had reached the server half a tick before had been reported. The tick is not known, but
 *     T is at least two ticks unless the administrator chose otherwise. So the answer to a
 *     heartbeat confirms the touches (messages to the server) that were sent T/4 before the
 *     heartbeat, or earlier.
 *   - The leader itself attaches a session to a connection: the attach request counts at once.
 *
 * `until` = the latest confirmed touch (an instant before the message was written) + T, less 1 %
 * for clocks that run differently. With a heartbeat every T/8, `until` is T/2 to 3T/4 away. A
 * client that is cut off has at least that long to reconnect, and regards its grants as lost before
 * the server can end them.
 *
 * RENEW sends no request. Without a connection, RENEW waits. After a reconnect, RENEW waits until
 * every grant has been checked: the requests of the waiters (zk_waiter_go) are answered before the
 * first heartbeat is.
 */
#include "zk.h"

#define BEATS 8 /* per session timeout */

static int64_t length_ns(const zk_session *s)
{
    return s->timeout_ms * PAWL_NS_PER_MS;
}

static void confirm(zk_session *s, int64_t touch)
{
    int64_t until = touch + length_ns(s) - length_ns(s) / 100;

    if (until > s->until)
        s->until = until;
}

/* ---- RENEW ----------------------------------------------------------------------------------- */

void zk_session_lease(zk *z, pawl_op *op)
{
    int64_t now = z->env->now(z->env), left = (z->session.until - now) / PAWL_NS_PER_MS;

    op->lease_from = now;
    op->granted_ms = left > 1 ? left : 1;
}

static bool can_tell(const zk *z)
{
    return z->link.state == LINK_READY && z->session.verified &&
           z->session.until - z->env->now(z->env) > length_ns(&z->session) / 100;
}

static void answer(zk *z, pawl_op *op)
{
    for (size_t i = 0; i < op->batch_len; i++)
        op->batch[i].code = zk_holds(z, op->batch[i].owner.seq) ? 0 : PAWL_ENOTHELD;
    zk_session_lease(z, op);
    pawl_op_finish(op, 0);
}

static pawl_op *op_of(struct list *link)
{
    return (pawl_op *)(void *)((char *)link - offsetof(pawl_op, engine));
}

static struct list *link_of(pawl_op *op)
{
    return (struct list *)(void *)op->engine;
}

static void answer_waiting(zk *z)
{
    struct list *l;

    while (can_tell(z) && (l = list_take(&z->session.renewals)))
        answer(z, op_of(l));
}

void zk_renew(zk *z, pawl_op *op)
{
    if (can_tell(z))
        answer(z, op);
    else
        list_append(&z->session.renewals, link_of(op));
}

void zk_renew_cancel(zk *z, pawl_op *op)
{
    list_remove(link_of(op));
    zk_give_up(z, op, true);
}

/* ---- heartbeats ------------------------------------------------------------------------------ */

static void touched(zk_session *s, int64_t at)
{
    s->touches[s->ntouches++ % ZK_TOUCHES] = at;
}

static bool beat_answered(zk_task *task, int64_t sent, int error, jute_reader *body)
{
    zk *z = task->zk;
    zk_session *s = &z->session;
    size_t kept = s->ntouches < ZK_TOUCHES ? s->ntouches : ZK_TOUCHES;

    (void)body;
    if (error)
        return true;
    for (size_t i = 0; i < kept; i++)
        if (s->touches[i] <= sent - length_ns(s) / 4)
            confirm(s, s->touches[i]);
    touched(s, sent);
    if (!s->verified) {
        s->verified = true;
        pawl_events_report(&z->events, PAWL_EVENT_RECONNECT, 0);
    }
    return true;
}

static void send_beat(zk_task *task)
{
    zk *z = task->zk;
    jute_writer w = zk_request(z, ZK_SYNC);

    jute_put_text(&w, "/");
    zk_request_end(task, &w, beat_answered, z->env->now(z->env));
}

static void beat_next(zk_task *task)
{
    answer_waiting(task->zk);
}

static void beat_nothing(zk_task *task)
{
    (void)task;
}

static void beat_refused(zk_task *task, int code, const char *words)
{
    (void)task;
    (void)code;
    (void)words;
}

static const zk_task_type beat_type = {.go = beat_nothing, .next = beat_next,
        .refused = beat_refused};

static void beat_due(pawl_timer *timer)
{
    zk *z = timer->arg;

    if (z->link.state == LINK_READY && !z->session.beat.out) {
        send_beat(&z->session.beat);
        if (++z->session.nbeats % BEATS == 0)
            zk_waiters_check(z);
        z->env->loop_changed(z->env);
    }
    z->env->timer_set(z->env, timer, z->env->now(z->env) + length_ns(&z->session) / BEATS);
}

/* ---- opening and closing the session --------------------------------------------------------- */

void zk_session_open(zk *z)
{
    list_init(&z->session.renewals);
    z->session.beat_timer = (pawl_timer){.fire = beat_due, .arg = z};
    zk_task_begin(&z->session.beat, z, &beat_type);
}

void zk_session_ready(zk *z, bool fresh, int64_t sent)
{
    zk_session *s = &z->session;

    if (fresh)
        s->until = 0;
    s->ntouches = 0;
    touched(s, sent);
    confirm(s, sent);
    s->verified = fresh;
    if (!fresh && !s->last_zxid) /* the server may be behind earlier reads */
        zk_ask_sync(&s->beat);
    if (!fresh)
        zk_leftovers_ask(z);
    zk_tasks_go(z);
    if (z->link.state != LINK_READY)
        return;
    send_beat(&s->beat);
    z->env->timer_set(z->env, &s->beat_timer, z->env->now(z->env) + length_ns(s) / BEATS);
    answer_waiting(z);
    z->env->loop_changed(z->env);
}

/* Write the last message of the session; the core has seen every op completed. */
void zk_session_close(zk *z)
{
    jute_writer w;

    if (!z->session.beat_timer.fire)
        return;
    z->env->timer_clear(z->env, &z->session.beat_timer);
    if (z->link.state != LINK_READY)
        return;
    w = zk_request(z, ZK_CLOSE);
    zk_request_end(NULL, &w, NULL, 0);
}
