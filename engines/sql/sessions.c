/* SPDX-License-Identifier: Apache-2.0
 *
 * sessions.c - the layouts with locks of sessions: the engine's functions.
 *
 * An acquire that may wait gets its session in order (session_order.c). An acquire that must not
 * wait takes any session. If there is none, the acquire fails with PAWL_ECONN (nothing was sent),
 * and the core retries until the request's time limit.
 */
#include <stdlib.h>

#include "session.h"

#define CONNECTIONS 32
#define CONNECTIONS_MAX 1000
#define QUIET_MS INT64_C(10000)

/* ---- sessions -------------------------------------------------------------------------------- */

sql_session *sql_session_find(sql_sessions *pool, uint64_t seq, int mode)
{
    for (int i = 0; i < pool->nsessions; i++)
        if (mode <= PAWL_MODE_SHARED && pool->sessions[i].seq[mode] == seq)
            return &pool->sessions[i];
    return NULL;
}

void sql_sessions_unsure(sql_sessions *pool, uint64_t seq, int64_t until)
{
    pool->unsure[pool->next_unsure].seq = seq;
    pool->unsure[pool->next_unsure].until = until;
    pool->next_unsure = (pool->next_unsure + 1) % SQL_SESSIONS_UNSURE;
}

static bool is_unsure(sql_sessions *pool, uint64_t seq)
{
    int64_t now = pool->sql.env->now(pool->sql.env);

    for (int i = 0; i < SQL_SESSIONS_UNSURE; i++)
        if (pool->unsure[i].seq == seq)
            return pool->unsure[i].until > now;
    return false;
}

/* ---- acquire --------------------------------------------------------------------------------- */

/* A repeated acquire that was granted before, or a shared acquire of a session that has the name.
 * True: the op is done or sent. */
static bool acquire_again(sql_sessions *pool, pawl_op *op)
{
    sql_session *s = sql_session_find(pool, op->owner.seq, op->mode);

    if (s) {
        op->token = s->token[op->mode];
        op->ntokens = 1;
        op->lease_from = s->promised - s->timeout_ms * PAWL_NS_PER_MS;
        op->granted_ms = s->timeout_ms < op->lease_ms ? s->timeout_ms : 0;
        sql_done(op, 0, NULL);
        return true;
    }
    s = op->with_seq ? sql_session_find(pool, op->with_seq, PAWL_MODE_EXCLUSIVE) : NULL;
    if (s && !s->op && !s->leaving)
        sql_session_acquire(s, op);
    else if (s)
        sql_done(op, PAWL_ECONN, "this owner's last call is still under way");
    return s;
}

static void acquire(sql_sessions *pool, pawl_op *op)
{
    bool shared = pool->sql.layout->caps & PAWL_CAP_SHARED;

    if (op->mode > (shared ? PAWL_MODE_SHARED : PAWL_MODE_EXCLUSIVE)) {
        sql_done(op, PAWL_ENOTSUP, pool->sql.layout->kinds);
    } else if (op->lease_ms <= 0) {
        sql_done(op, PAWL_EINVAL, "a lease must last longer than 0");
    } else if (acquire_again(pool, op)) {
        return;
    } else if (op->queue) {
        sql_sessions_order_enter(pool, op);
    } else if (!sql_sessions_order_pass(pool, op)) {
        sql_done(op, PAWL_ECONN, "all connections are in use; the URL's parameter connections says "
                                 "how many there may be");
    }
}

static void release(sql_sessions *pool, pawl_op *op)
{
    sql_session *s = sql_session_find(pool, op->owner.seq, op->mode);

    if (s)
        sql_session_release(s, op);
    else if (is_unsure(pool, op->owner.seq))
        sql_done(op, PAWL_EUNKNOWN, "the connection was lost on the way; the server may have the "
                                    "session until the lease ends");
    else
        sql_done(op, PAWL_ENOTHELD, NULL);
}

/* ---- the connection for inspect -------------------------------------------------------------- */

void sql_sessions_tell_right(sql_sessions *pool, const char *grant, const char *effect)
{
    pawl_env *env = pool->sql.env;

    if (!pool->told_right)
        env->log(env, PAWL_LOG_WARNING, "%s: GRANT %s TO this user (security.md)", effect, grant);
    pool->told_right = true;
}

sql_link *sql_sessions_link(sql_sessions *pool)
{
    sql *q = &pool->sql;

    kit_timer_ms(q->env, &pool->quiet, QUIET_MS);
    sql_link_open(&q->link);
    return &q->link;
}

/* While a statement waits, session_watch.c uses the link more often than this timer fires, so the
 * link stays open: a cancel must not wait for a new connection. */
static void quiet(pawl_timer *timer)
{
    sql_sessions *pool = timer->arg;

    if (list_empty(&pool->sql.link.calls) && list_empty(&pool->sql.link.backlog))
        sql_link_close(&pool->sql.link);
    else
        sql_sessions_link(pool);
}

static void link_dropped(sql_link *link, int refused)
{
    (void)refused;
    if (list_empty(&link->backlog))
        sql_link_close(link);
}

/* ---- the engine's functions ------------------------------------------------------------------ */

static int read_parameters(sql_sessions *pool, const pawl_url *url, pawl_error *err)
{
    const char *text = pawl_url_param(url, "connections");
    char *end;
    long n = text ? strtol(text, &end, 10) : CONNECTIONS;

    if (text && (!*text || *end || n < 1 || n > CONNECTIONS_MAX))
        return pawl_error_set(err, PAWL_EINVAL, "connections is a number of 1 to %d",
                              CONNECTIONS_MAX);
    if (pawl_url_param(url, "prefix") && !pool->sql.driver->version)
        return pawl_error_set(err, PAWL_EINVAL, "prefix names a table, and layout=%s has none: "
                              "leave it out", pool->sql.layout->name);
    if (pool->sql.settings.pooled)
        return pawl_error_set(err, PAWL_EINVAL, "layout=%s needs sessions, and pooler=transaction "
                              "says that there are none: use one of them", pool->sql.layout->name);
    pool->keeps_session = pawl_url_param(url, "pooler");
    pool->nsessions = (int)n;
    return 0;
}

int sql_sessions_open(sql_sessions *pool, const sql_layout *layout, pawl_env *env,
                      const pawl_url *url, pawl_error *err)
{
    sql *q = &pool->sql;
    int code;

    q->env = env;
    q->driver = layout->driver;
    q->layout = layout;
    list_init(&pool->order);
    if (!env->loop)
        return pawl_error_set(err, PAWL_ENOTSUP, "%s needs a real event loop",
                              q->driver->product);
    code = sql_settings_read(&q->settings, q->driver, env, url, err);
    if (!code)
        code = read_parameters(pool, url, err);
    if (code)
        return code;
    if (q->driver->version && sql_set_schema(q, "", q->driver->here))
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    pool->sessions = calloc((size_t)pool->nsessions, sizeof *pool->sessions);
    if (!pool->sessions)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    for (int i = 0; i < pool->nsessions; i++)
        sql_session_init(&pool->sessions[i], pool);
    sql_link_init(&q->link, q, q->driver->greeting);
    q->link.on_drop = link_dropped;
    pool->quiet = (pawl_timer){.fire = quiet, .arg = pool};
    sql_sessions_watch_init(pool);
    sql_sessions_set_client_info(pool);
    return 0;
}

void sql_sessions_close(sql_sessions *pool)
{
    sql *q = &pool->sql;

    q->closing = true;
    pawl_events_end(&q->events);
    for (int i = 0; pool->sessions && i < pool->nsessions; i++) {
        sql_link_close(&pool->sessions[i].link);
        q->env->timer_clear(q->env, &pool->sessions[i].timer);
    }
    if (q->link.env) {
        sql_link_close(&q->link);
        q->env->timer_clear(q->env, &pool->quiet);
        q->env->timer_clear(q->env, &pool->watch);
    }
    free(pool->sessions);
    pool->sessions = NULL;
    sql_free(q);
}

void sql_sessions_submit(sql_sessions *pool, pawl_op *op)
{
    switch (op->kind) {
    case PAWL_OP_ACQUIRE:
        acquire(pool, op);
        break;
    case PAWL_OP_RELEASE:
        release(pool, op);
        break;
    case PAWL_OP_RENEW:
        sql_sessions_renew(pool, op);
        break;
    case PAWL_OP_EVENT:
        pawl_events_submit(&pool->sql.events, op);
        break;
    case PAWL_OP_INSPECT:
    case PAWL_OP_LIST:
    case PAWL_OP_BREAK:
        sql_sessions_link(pool);
        sql_start(&pool->sql, op, op->kind == PAWL_OP_BREAK ? pool->sql.layout->breaks
                                                            : pool->sql.layout->inspection);
        break;
    case PAWL_OP_EXAMINE:
        sql_sessions_link(pool);
        sql_examine(&pool->sql, op);
        break;
    default:
        sql_done(op, PAWL_ENOTSUP, pool->sql.layout->kinds);
    }
}

void sql_sessions_cancel(sql_sessions *pool, pawl_op *op)
{
    switch (op->kind) {
    case PAWL_OP_ACQUIRE:
        if (op->engine[0]) {
            sql_session_cancel(op->engine[0]);
        } else {
            sql_sessions_order_leave(op);
            sql_done(op, PAWL_ECANCELED, NULL);
        }
        break;
    case PAWL_OP_RELEASE:
        sql_session_release_cancel(op);
        break;
    case PAWL_OP_RENEW:
        sql_sessions_renew_cancel(op);
        break;
    case PAWL_OP_EVENT:
        pawl_events_end(&pool->sql.events);
        break;
    default:
        sql_give_up(&pool->sql, op);
    }
}
