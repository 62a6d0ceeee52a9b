/* SPDX-License-Identifier: Apache-2.0
 *
 * advisory.c - layout=advisory: the engine's functions.
 *
 * An acquire that may wait gets its session in order (advisory_line.c). An acquire that must not
 * wait takes any session. If there is none, the acquire fails with PAWL_ECONN (nothing was sent),
 * and the core retries until the request's time limit.
 */
#include <stdlib.h>

#include "advisory.h"
#include "postgres.h"

#define CONNECTIONS 32
#define CONNECTIONS_MAX 1000
#define QUIET_MS INT64_C(10000)

/* ---- sessions -------------------------------------------------------------------------------- */

advisory_session *advisory_session_find(advisory *adv, uint64_t seq, int mode)
{
    for (int i = 0; i < adv->nsessions; i++)
        if (mode <= PAWL_MODE_SHARED && adv->sessions[i].seq[mode] == seq)
            return &adv->sessions[i];
    return NULL;
}

void advisory_unsure(advisory *adv, uint64_t seq, int64_t until)
{
    adv->unsure[adv->next_unsure].seq = seq;
    adv->unsure[adv->next_unsure].until = until;
    adv->next_unsure = (adv->next_unsure + 1) % ADVISORY_UNSURE;
}

static bool is_unsure(advisory *adv, uint64_t seq)
{
    int64_t now = adv->sql.env->now(adv->sql.env);

    for (int i = 0; i < ADVISORY_UNSURE; i++)
        if (adv->unsure[i].seq == seq)
            return adv->unsure[i].until > now;
    return false;
}

/* ---- acquire --------------------------------------------------------------------------------- */

/* A repeated acquire that was granted before, or a shared acquire of a session that has the name.
 * True: the op is done or sent. */
static bool acquire_again(advisory *adv, pawl_op *op)
{
    advisory_session *s = advisory_session_find(adv, op->owner.seq, op->mode);

    if (s) {
        op->token = s->token[op->mode];
        op->ntokens = 1;
        op->lease_from = s->promised - s->timeout_ms * PAWL_NS_PER_MS;
        op->granted_ms = s->timeout_ms < op->lease_ms ? s->timeout_ms : 0;
        sql_done(op, 0, NULL);
        return true;
    }
    s = op->with_seq ? advisory_session_find(adv, op->with_seq, PAWL_MODE_EXCLUSIVE) : NULL;
    if (s && !s->op && !s->leaving)
        advisory_session_acquire(s, op);
    else if (s)
        sql_done(op, PAWL_ECONN, "this owner's last call is still under way");
    return s;
}

static void acquire(advisory *adv, pawl_op *op)
{
    if (op->mode > PAWL_MODE_SHARED) {
        sql_done(op, PAWL_ENOTSUP, "layout=advisory has neither semaphores nor latches");
    } else if (op->lease_ms <= 0) {
        sql_done(op, PAWL_EINVAL, "a lease must last longer than 0");
    } else if (acquire_again(adv, op)) {
        return;
    } else if (op->queue) {
        advisory_line_enter(adv, op);
    } else if (!advisory_line_pass(adv, op)) {
        sql_done(op, PAWL_ECONN, "all connections are in use; the URL's parameter connections says "
                                 "how many there may be");
    }
}

static void release(advisory *adv, pawl_op *op)
{
    advisory_session *s = advisory_session_find(adv, op->owner.seq, op->mode);

    if (s)
        advisory_session_release(s, op);
    else if (is_unsure(adv, op->owner.seq))
        sql_done(op, PAWL_EUNKNOWN, "the connection was lost on the way; the server may have the "
                                    "session until the lease ends");
    else
        sql_done(op, PAWL_ENOTHELD, NULL);
}

/* ---- the connection for inspect -------------------------------------------------------------- */

sql_link *advisory_link(advisory *adv)
{
    sql *q = &adv->sql;

    kit_timer_ms(q->env, &adv->quiet, QUIET_MS);
    sql_link_open(&q->link);
    return &q->link;
}

static void quiet(pawl_timer *timer)
{
    advisory *adv = timer->arg;

    if (list_empty(&adv->sql.link.calls) && list_empty(&adv->sql.link.backlog))
        sql_link_close(&adv->sql.link);
    else
        advisory_link(adv);
}

static void link_dropped(sql_link *link, int refused)
{
    (void)refused;
    if (list_empty(&link->backlog))
        sql_link_close(link);
}

/* ---- the engine's functions ------------------------------------------------------------------ */

static int read_parameters(advisory *adv, const pawl_url *url, pawl_error *err)
{
    const char *text = pawl_url_param(url, "connections");
    char *end;
    long n = text ? strtol(text, &end, 10) : CONNECTIONS;

    if (text && (!*text || *end || n < 1 || n > CONNECTIONS_MAX))
        return pawl_error_set(err, PAWL_EINVAL, "connections is a number of 1 to %d",
                              CONNECTIONS_MAX);
    if (pawl_url_param(url, "prefix"))
        return pawl_error_set(err, PAWL_EINVAL, "prefix names a table, and layout=advisory has "
                                                "none: leave it out");
    if (adv->sql.settings.pooled)
        return pawl_error_set(err, PAWL_EINVAL, "layout=advisory needs sessions, and "
                              "pooler=transaction says that there are none: use one of them");
    adv->keeps_session = pawl_url_param(url, "pooler");
    adv->nsessions = (int)n;
    return 0;
}

int advisory_open(advisory *adv, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    sql *q = &adv->sql;
    int code;

    q->env = env;
    q->driver = &advisory_driver;
    list_init(&adv->line);
    if (!env->loop)
        return pawl_error_set(err, PAWL_ENOTSUP, "PostgreSQL needs a real event loop");
    code = sql_settings_read(&q->settings, q->driver, env, url, err);
    if (!code)
        code = read_parameters(adv, url, err);
    if (code)
        return code;
    adv->sessions = calloc((size_t)adv->nsessions, sizeof *adv->sessions);
    if (!adv->sessions)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    for (int i = 0; i < adv->nsessions; i++)
        advisory_session_init(&adv->sessions[i], adv);
    sql_link_init(&q->link, q, q->driver->greeting);
    q->link.on_drop = link_dropped;
    adv->quiet = (pawl_timer){.fire = quiet, .arg = adv};
    advisory_key_init(env);
    advisory_who(adv);
    return 0;
}

void advisory_close(advisory *adv)
{
    sql *q = &adv->sql;

    q->closing = true;
    pawl_events_end(&q->events);
    for (int i = 0; adv->sessions && i < adv->nsessions; i++) {
        sql_link_close(&adv->sessions[i].link);
        q->env->timer_clear(q->env, &adv->sessions[i].timer);
    }
    if (q->link.env) {
        sql_link_close(&q->link);
        q->env->timer_clear(q->env, &adv->quiet);
    }
    free(adv->sessions);
    adv->sessions = NULL;
    sql_settings_free(&q->settings);
    q->env = NULL;
}

void advisory_submit(advisory *adv, pawl_op *op)
{
    switch (op->kind) {
    case PAWL_OP_ACQUIRE:
        acquire(adv, op);
        break;
    case PAWL_OP_RELEASE:
        release(adv, op);
        break;
    case PAWL_OP_RENEW:
        advisory_renew(adv, op);
        break;
    case PAWL_OP_EVENT:
        pawl_events_submit(&adv->sql.events, op);
        break;
    case PAWL_OP_INSPECT:
    case PAWL_OP_LIST:
    case PAWL_OP_BREAK:
        advisory_inspect(adv, op);
        break;
    case PAWL_OP_EXAMINE:
        advisory_link(adv);
        sql_examine(&adv->sql, op);
        break;
    default:
        sql_done(op, PAWL_ENOTSUP, "layout=advisory has neither semaphores nor latches");
    }
}

void advisory_cancel(advisory *adv, pawl_op *op)
{
    switch (op->kind) {
    case PAWL_OP_ACQUIRE:
        if (op->engine[0]) {
            advisory_session_cancel(op->engine[0]);
        } else {
            advisory_line_leave(op);
            sql_done(op, PAWL_ECANCELED, NULL);
        }
        break;
    case PAWL_OP_RELEASE:
        advisory_session_release_cancel(op);
        break;
    case PAWL_OP_RENEW:
        advisory_renew_cancel(op);
        break;
    case PAWL_OP_EVENT:
        pawl_events_end(&adv->sql.events);
        break;
    default:
        sql_give_up(&adv->sql, op);
    }
}
