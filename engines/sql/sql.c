/* SPDX-License-Identifier: Apache-2.0
 *
 * sql.c - the engine's functions, the client information, and the listener.
 *
 * The client information (host, pid, program, label) is for programs that inspect a lock. The
 * server keeps the information for 90 s, and the client writes the information again every 22 to
 * 30 s, which also shows whether an idle connection still works. A client that closes removes its
 * information. Writing the information also deletes rows that were not used for a day, a limited
 * number at a time; if the server answers that there are more, the information is written again
 * after a second.
 *
 * The listener is a second link, for servers that can't push on the first link. The listener is
 * open while an op waits, or while a grant has been held for a second (a holder is notified if its
 * lock is broken), and is closed a minute after the last such need. One statement on the listener
 * blocks in the server until there is a message or 5 s are over, and is then sent again at once.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "sql.h"

#define CLIENT_INFO_KEPT_MS 90000
#define CLIENT_INFO_WRITE_MS 30000
#define CLIENT_INFO_MORE_MS 1000
#define HEAR_LIMIT_MS 30000
#define LISTENER_SOON_MS 1000
#define LISTENER_IDLE_MS 60000

/* ---- parameters and owners ------------------------------------------------------------------- */

void sql_add_int(sql_params *p, int64_t number)
{
    p->list[p->n++] = (sql_param){.type = SQL_INT, .number = number};
}

void sql_add_bytes(sql_params *p, const char *bytes, size_t length)
{
    p->list[p->n++] = (sql_param){.type = SQL_BYTES, .text = bytes, .length = length};
}

void sql_add_text(sql_params *p, const char *text)
{
    p->list[p->n++] = (sql_param){.type = SQL_TEXT, .text = text, .length = strlen(text)};
}

void sql_owner(char text[SQL_OWNER_MAX], uint64_t client, uint64_t seq)
{
    snprintf(text, SQL_OWNER_MAX, "%016" PRIx64 ":%" PRIx64, client, seq);
}

/* ---- the client information ------------------------------------------------------------------ */

static void fill_client_info(const sql_call *call, sql_params *p)
{
    const sql *q = call->about;
    const pawl_env *env = q->env;

    sql_add_text(p, q->client);
    sql_add_text(p, env->host[0] ? env->host : "?");
    sql_add_int(p, getpid());
    sql_add_text(p, env->program);
    sql_add_text(p, env->label);
    sql_add_int(p, q->closing ? 0 : CLIENT_INFO_KEPT_MS);
}

static void set_client_info_timer(sql *q, int64_t ms)
{
    if (!q->closing)
        kit_timer_ms(q->env, &q->client_info_timer, ms);
}

static bool client_info_written(sql_call *call, const sql_reply *reply)
{
    const char *text = reply->cell(reply, 0, 0);

    if (text && !strcmp(text, "OK more"))
        set_client_info_timer(call->about, CLIENT_INFO_MORE_MS);
    return true;
}

static void client_info_failed(sql_call *call, int code, const char *words)
{
    const sql *q = call->about;

    if (code != PAWL_ECANCELED && code != PAWL_EUNKNOWN)
        q->env->log(q->env, PAWL_LOG_INFO, "others can't be shown who this client is: %s", words);
}

static void write_client_info(sql *q)
{
    static const sql_call_type type = {.statement = SQL_CLIENT_INFO, .fill = fill_client_info,
        .answer = client_info_written, .failed = client_info_failed};
    int64_t spread = (int64_t)(q->env->random(q->env) % (CLIENT_INFO_WRITE_MS / 4));
    sql_call *call = q->link.state == LINK_READY ? sql_call_new(&q->link, &type, q) : NULL;

    if (call)
        sql_link_send(&q->link, call);
    set_client_info_timer(q, CLIENT_INFO_WRITE_MS - spread);
}

static void client_info_due(pawl_timer *timer)
{
    write_client_info(timer->arg);
}

/* ---- messages, and the listener -------------------------------------------------------------- */

void sql_message(sql *q, const char *text)
{
    uint64_t client, seq;
    int used = 0;

    if (!text[0] || sscanf(text + 1, " %16" SCNx64 ":%" SCNx64 "%n", &client, &seq, &used) != 2 ||
        client != q->env->client_id)
        return;
    if (text[0] == 'e') { /* OWNER NOW BY */
        const char *by = strchr(text + 1 + used + strspn(text + 1 + used, " "), ' ');

        by = by ? by + 1 : "";
        pawl_events_broken(&q->events, seq, by, strlen(by));
    } else {
        sql_waiter_message(q, seq, text[0], text + 1 + used);
    }
}

bool sql_hears(const sql *q)
{
    return !q->settings.pooled && (!q->driver->own_listener || q->listener.state == LINK_READY);
}

static void hear(sql *q);

static void fill_hear(const sql_call *call, sql_params *p)
{
    const sql *q = call->about;

    sql_add_text(p, q->client);
    sql_add_text(p, q->heard);
}

/* A row is a message and its id. The next statement carries the ids and deletes these messages. */
static bool heard(sql_call *call, const sql_reply *reply)
{
    sql *q = call->about;
    size_t used = 0;

    q->heard[0] = 0;
    for (size_t i = 0; i < reply->rows && used < sizeof q->heard - 24; i++) {
        const char *text = reply->cell(reply, i, 0), *id = reply->cell(reply, i, 1);

        if (!text || !id)
            return false;
        used += (size_t)snprintf(q->heard + used, sizeof q->heard - used, "%s%.20s",
                                 used ? "," : "", id);
        sql_message(q, text);
    }
    if (q->listener.state == LINK_READY)
        hear(q);
    return true;
}

static void hear_failed(sql_call *call, int code, const char *words)
{
    sql *q = call->about;

    if (code == PAWL_ECONN && q->listener.state == LINK_READY)
        hear(q); /* interrupted too often: send a new call */
    else if (code != PAWL_EUNKNOWN && code != PAWL_ECANCELED && q->listener.state == LINK_READY)
        sql_link_drop(&q->listener, PAWL_ECONN, "%s", words);
}

static void hear(sql *q)
{
    static const sql_call_type type = {.statement = SQL_HEAR, .fill = fill_hear, .answer = heard,
        .failed = hear_failed};
    sql_call *call = sql_call_new(&q->listener, &type, q);

    if (!call)
        return;
    call->limit_ms = HEAR_LIMIT_MS;
    sql_link_send(&q->listener, call);
}

static void listener_due(pawl_timer *timer)
{
    sql *q = timer->arg;
    bool wanted = q->table.n || q->held;

    if (wanted)
        sql_link_open(&q->listener);
    else
        sql_link_close(&q->listener);
    if (wanted)
        kit_timer_ms(q->env, &q->listener_timer, LISTENER_IDLE_MS);
}

void sql_want_listener(sql *q)
{
    if (!q->driver->own_listener || q->listener.state != LINK_CLOSED)
        return;
    if (q->table.n)
        sql_link_open(&q->listener);
    if (!q->listener_timer.armed)
        kit_timer_ms(q->env, &q->listener_timer, LISTENER_SOON_MS);
}

/* ---- events of the links --------------------------------------------------------------------- */

static void link_ready(sql_link *link)
{
    sql *q = link->sql;

    if (link->epochs > 1)
        pawl_events_report(&q->events, link->at == q->served_by ? PAWL_EVENT_RECONNECT
                                                                : PAWL_EVENT_FAILOVER, 0);
    q->served_by = link->at;
    if (q->listener.state != LINK_CLOSED && q->listener.at != link->at) {
        sql_link_close(&q->listener);
        sql_want_listener(q);
    }
    write_client_info(q);
    sql_waiters_resend(q);
}

static void link_dropped(sql_link *link, int refused)
{
    link->sql->clock.local = 0; /* the next connection may be to another server */
    if (refused)
        sql_waiters_refuse(link->sql, refused, link->words);
}

static void listener_ready(sql_link *link)
{
    hear(link->sql);
    sql_waiters_resend(link->sql);
}

/* ---- the engine's functions ------------------------------------------------------------------ */

int sql_open(sql *q, const sql_driver *driver, pawl_env *env, const pawl_url *url,
             pawl_error *err)
{
    int code;

    q->env = env;
    q->driver = driver;
    list_init(&q->waiters);
    if (!env->loop)
        return pawl_error_set(err, PAWL_ENOTSUP, "%s needs a real event loop", driver->product);
    code = sql_settings_read(&q->settings, driver, env, url, err);
    if (code)
        return code;
    snprintf(q->client, sizeof q->client, "%016" PRIx64, env->client_id);
    code = sql_set_schema(q, "", driver->here);
    if (code)
        return pawl_error_set(err, code, "out of memory");
    q->client_info_timer = (pawl_timer){.fire = client_info_due, .arg = q};
    q->listener_timer = (pawl_timer){.fire = listener_due, .arg = q};
    sql_link_init(&q->link, q, q->settings.pooled ? driver->pooled_greeting : driver->greeting);
    q->link.on_ready = link_ready;
    q->link.on_drop = link_dropped;
    sql_link_init(&q->listener, q, driver->listener_greeting);
    q->listener.on_ready = listener_ready;
    sql_link_open(&q->link);
    return 0;
}

void sql_free(sql *q)
{
    for (int i = 0; i < SQL_STATEMENTS; i++)
        free(q->texts[i]);
    free(q->refusals);
    q->refusals = NULL;
    sql_settings_free(&q->settings);
    q->env = NULL;
}

void sql_close(void *self)
{
    sql *q = self;

    if (!q->env)
        return;
    pawl_events_end(&q->events);
    if (q->client_info_timer.fire) {
        q->env->timer_clear(q->env, &q->client_info_timer);
        q->env->timer_clear(q->env, &q->listener_timer);
    }
    q->closing = true;
    if (q->link.state == LINK_READY)
        write_client_info(q); /* remove the information; the answer is not awaited */
    sql_link_close(&q->listener);
    sql_link_close(&q->link);
    sql_waiters_end(q);
    sql_free(q);
}

void sql_submit(void *self, pawl_op *op)
{
    sql *q = self;

    switch (op->kind) {
    case PAWL_OP_ACQUIRE:
        sql_acquire(q, op);
        break;
    case PAWL_OP_EVENT:
        pawl_events_submit(&q->events, op);
        break;
    case PAWL_OP_INSPECT:
    case PAWL_OP_COUNT:
    case PAWL_OP_LIST:
        sql_inspect(q, op);
        break;
    case PAWL_OP_EXAMINE:
        sql_examine(q, op);
        break;
    default:
        sql_simple(q, op);
    }
}

void sql_cancel(void *self, pawl_op *op)
{
    sql *q = self;

    if (op->kind == PAWL_OP_ACQUIRE) {
        sql_acquire_cancel(q, op);
    } else if (op->kind == PAWL_OP_EVENT) {
        pawl_events_end(&q->events);
    } else {
        sql_give_up(q, op);
    }
}
