/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c - one connection: its life, and the calls on it.
 *
 *     PAUSED --timer--> RESOLVING --> CONNECTING --> GREETING --> READY
 *        ^                  |              |             |          |
 *        +------------------+-- drop: anything unexpected, or too long nothing
 *
 * An attempt has env->timeout_ms, and each address its share of what is left of it: one that does
 * not answer must not keep us from the next. So has each answer once the link is READY (a call may
 * say otherwise). Calls that were sent and not answered when the link drops have failed as unknown;
 * those in the backlog stay, unless trying again can't help. Pauses between attempts grow from
 * 10 ms to 1 s, half of each by chance, until a call has been answered. While nobody makes a call
 * nobody may turn the loop; the time of an attempt that was left alone begins anew.
 *
 * A call whose row somebody has locked is parked: it waits here, not in the server, and is sent
 * again after a pause that grows from 2 to 200 ms. After env->timeout_ms it has failed. Parked
 * calls outlive the connection, like the backlog.
 *
 * Of several hosts the first is tried first, each time, and the next one if it is down or of no use
 * (a standby, which is read only); a pause comes when all were tried.
 *
 * The driver is called from here and calls back (sql_link_connected, _greeted, _answered), but not
 * inside `send` and `query`; or it says sql_link_drop, at any time: its connection is gone then.
 */
#include <netdb.h>
#include <stdlib.h>

#include "sql.h"

#define LEFT_ALONE_MS 50 /* a timer that fires so late: nobody turned the loop */
#define TRIES_MAX 4      /* of a statement that the server gave up in favour of another */
#define PARK_MIN_MS 2
#define PARK_MAX_MS 200

static const sql_driver *driver_of(const sql_link *link)
{
    return link->sql->driver;
}

const net_address *sql_link_host(const sql_link *link)
{
    return &link->sql->settings.hosts.list[link->at];
}

static void set_timer(sql_link *link, int64_t due)
{
    link->env->timer_set(link->env, &link->timer, due);
}

/* ---- the socket ------------------------------------------------------------------------------ */

static void poll_closed(uv_handle_t *handle)
{
    free(handle);
}

void sql_link_unwatch(sql_link *link)
{
    if (!link->poll)
        return;
    link->env->fork_guard_remove(link->fd);
    uv_close((uv_handle_t *)link->poll, poll_closed);
    link->poll = NULL;
    link->events = 0;
    link->fd = -1;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    sql_link *link = poll->data;

    if (link->poll != poll)
        return;
    if (status < 0) { /* libuv watches no more; reading tells what is wrong */
        link->events = 0;
        events = UV_READABLE | UV_WRITABLE;
    }
    driver_of(link)->ready(link, events);
}

/* While it connects, the library may change to another socket with the same number. */
void sql_link_watch(sql_link *link, int fd, int events)
{
    if (link->poll && (link->fd != fd || link->state == LINK_CONNECTING))
        sql_link_unwatch(link);
    if (link->poll && link->events == events)
        return;
    link->env->loop_changed(link->env);
    if (!link->poll) {
        link->poll = malloc(sizeof *link->poll);
        if (!link->poll || uv_poll_init(link->env->loop, link->poll, fd)) {
            free(link->poll);
            link->poll = NULL;
            sql_link_drop(link, PAWL_ECONN, "the socket can't be watched");
            return;
        }
        link->poll->data = link;
        link->fd = fd;
        link->env->fork_guard_add(fd);
    }
    link->events = events;
    if (uv_poll_start(link->poll, events, on_poll))
        sql_link_drop(link, PAWL_ECONN, "the socket can't be watched");
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void limit_attempt(sql_link *link)
{
    link->attempt_ends = link->env->now(link->env) + link->env->timeout_ms * PAWL_NS_PER_MS;
    set_timer(link, link->attempt_ends);
}

static void close_connection(sql_link *link)
{
    sql_link_unwatch(link);
    if (link->conn)
        driver_of(link)->end(link);
    link->conn = NULL;
    memset(link->prepared, 0, sizeof link->prepared);
}

static int start(sql_link *link, const char *address)
{
    link->state = LINK_CONNECTING;
    return driver_of(link)->start(link, address);
}

/* An equal part of the time for each address that is left. */
static void connect_next(sql_link *link)
{
    while (link->next_address) {
        struct addrinfo *a = link->next_address;
        int64_t now = link->env->now(link->env), n = 0;
        char text[80];
        int code;

        for (const struct addrinfo *b = a; b; b = b->ai_next)
            n++;
        set_timer(link, now + (link->attempt_ends - now) / n);
        link->next_address = a->ai_next;
        if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST))
            continue;
        code = start(link, text);
        if (!code)
            return;
        close_connection(link);
    }
    sql_link_drop(link, PAWL_ECONN, "%.*s", SQL_WORDS, link->words);
}

static void resolved(void *arg, int error, struct addrinfo *addresses)
{
    sql_link *link = arg;

    if (error) {
        sql_link_drop(link, PAWL_ECONN, "the name can't be resolved: %s", gai_strerror(error));
        return;
    }
    link->addresses = link->next_address = addresses;
    connect_next(link);
}

static void attempt(sql_link *link)
{
    const net_address *host;

    if (link == &link->sql->listener)
        link->at = link->sql->link.at; /* to hear what is said there */
    host = sql_link_host(link);
    link->state = LINK_RESOLVING;
    limit_attempt(link);
    if (host->host[0] == '/' || driver_of(link)->resolves) {
        if (start(link, NULL))
            sql_link_drop(link, PAWL_ECONN, "%.*s", SQL_WORDS, link->words);
        return;
    }
    link->resolve.done = resolved;
    link->resolve.arg = link;
    if (net_resolve_start(&link->resolve, link->env, host->host, host->port))
        sql_link_drop(link, PAWL_ECONN, "no thread to resolve the name with");
}

void sql_link_connected(sql_link *link)
{
    link->state = LINK_GREETING;
    link->step = 0;
    limit_attempt(link);
    sql_greet(link);
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static void close_attempt(sql_link *link)
{
    close_connection(link);
    net_resolve_cancel(&link->resolve);
    if (link->addresses)
        freeaddrinfo(link->addresses);
    link->addresses = link->next_address = NULL;
    free(link->making);
    link->making = link->made = NULL;
    link->leaving = false;
}

/* Failing one may bring new ones, which are not meant: the list is nobody else's. */
static void fail_all(struct list *mine, int code, const char *words)
{
    struct list *l;

    while ((l = list_take(mine))) {
        sql_call *call = list_entry(l, sql_call, link);

        if (call->about)
            call->type->failed(call, code, words);
        free(call);
    }
}

static void pause_link(sql_link *link)
{
    uint32_t rounds = link->failures / (uint32_t)link->sql->settings.hosts.n;
    int64_t pause = link->at ? 0 : net_pause_ms(link->env, rounds); /* the others first */

    link->failures++;
    link->state = LINK_PAUSED;
    set_timer(link, link->env->now(link->env) + pause * PAWL_NS_PER_MS);
}

void sql_link_drop(sql_link *link, int code, const char *format, ...)
{
    bool was_ready = link->state == LINK_READY;
    struct list out, waiting, parked;
    char words[SQL_WORDS];
    va_list args;

    if (link->state == LINK_CLOSED || link->state == LINK_PAUSED)
        return;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    if (link->state == LINK_CONNECTING && link->next_address && code == PAWL_ECONN) {
        snprintf(link->words, sizeof link->words, "%s", words);
        close_connection(link);
        connect_next(link);
        return;
    }
    link->last_code = code;
    snprintf(link->words, sizeof link->words, "%.*s: %.*s", 60, sql_link_host(link)->where, 155,
             words);
    link->env->log(link->env, PAWL_LOG_WARNING, "%s %s",
                   was_ready ? "connection lost:" : "can't connect:", link->words);
    link->at = was_ready && !link->leaving
                   ? 0 : (link->at + 1) % (unsigned)link->sql->settings.hosts.n;
    close_attempt(link);
    pause_link(link);
    code = was_ready || code == PAWL_ECONN ? 0 : code;
    list_init(&waiting);
    list_init(&parked);
    list_take_all(&out, &link->calls);
    if (code) {
        list_take_all(&waiting, &link->backlog);
        list_take_all(&parked, &link->parked);
    }
    fail_all(&out, PAWL_EUNKNOWN, link->words);
    fail_all(&waiting, code, link->words);
    fail_all(&parked, code, link->words);
    if (link->on_drop)
        link->on_drop(link, code);
}

/* ---- calls ----------------------------------------------------------------------------------- */

sql_call *sql_call_new(sql_link *link, const sql_call_type *type, void *about)
{
    sql_call *call = calloc(1, sizeof *call);

    if (!call)
        return NULL;
    list_init(&call->link);
    call->type = type;
    call->on = link;
    call->about = about;
    call->limit_ms = link->env->timeout_ms;
    return call;
}

static int64_t limit_of(const sql_call *call)
{
    return call->sent + call->limit_ms * PAWL_NS_PER_MS;
}

/* Send what can be sent. */
static void pump(sql_link *link)
{
    while (link->state == LINK_READY && !link->leaving && !list_empty(&link->backlog)) {
        sql_call *call = list_entry(link->backlog.next, sql_call, link);
        void *conn = link->conn;
        int code;

        if (!call->about) { /* given up meanwhile */
            list_remove(&call->link);
            free(call);
            continue;
        }
        call->sent = link->env->now(link->env);
        list_remove(&call->link);
        list_append(&link->calls, &call->link);
        code = driver_of(link)->send(link, call);
        if (link->conn != conn)
            return; /* dropped, and the call with it */
        if (code) {
            call->sent = 0;
            list_remove(&call->link);
        }
        if (code == 1) {
            call->link.next = link->backlog.next; /* first again */
            call->link.prev = &link->backlog;
            link->backlog.next->prev = &call->link;
            link->backlog.next = &call->link;
            return;
        }
        if (code) {
            call->type->failed(call, code, "out of memory");
            free(call);
        } else if (!link->timer.armed) {
            set_timer(link, limit_of(call));
        }
    }
}

/* Behind the others of its kind; those that can't wait come first. */
static void enqueue(sql_link *link, sql_call *call)
{
    struct list *before = &link->backlog;

    if (call->type->urgent)
        for (before = link->backlog.next; before != &link->backlog; before = before->next)
            if (!list_entry(before, sql_call, link)->type->urgent)
                break;
    list_append(before, &call->link);
}

void sql_link_send(sql_link *link, sql_call *call)
{
    if (link->state == LINK_CLOSED) {
        call->type->failed(call, PAWL_ECANCELED, "closing");
        free(call);
        return;
    }
    enqueue(link, call);
    pump(link);
}

bool sql_call_patient(const sql_call *call)
{
    return list_empty(&call->on->parked) && !call->parked;
}

/* ---- parked calls ---------------------------------------------------------------------------- */

static void set_park_timer(sql_link *link)
{
    int64_t first = PAWL_NEVER;

    for (struct list *l = link->parked.next; l != &link->parked; l = l->next) {
        const sql_call *call = list_entry(l, sql_call, link);

        first = call->due < first ? call->due : first;
    }
    if (first < PAWL_NEVER)
        link->env->timer_set(link->env, &link->park_timer, first);
}

/* Its row is locked. False: that has been so for too long. */
static bool park(sql_link *link, sql_call *call)
{
    pawl_env *env = link->env;
    int64_t now = env->now(env);

    if (call->tries >= TRIES_MAX || !call->about)
        return false;
    if (!call->parked)
        call->parked = now;
    else if (now - call->parked > env->timeout_ms * PAWL_NS_PER_MS)
        return false;
    call->pause_ms = call->pause_ms ? 2 * call->pause_ms : PARK_MIN_MS;
    call->pause_ms = call->pause_ms < PARK_MAX_MS ? call->pause_ms : PARK_MAX_MS;
    call->due = now + (call->pause_ms * PAWL_NS_PER_MS) / 2 +
                (int64_t)(env->random(env) % (uint64_t)(call->pause_ms * PAWL_NS_PER_MS / 2));
    call->sent = 0;
    list_append(&link->parked, &call->link);
    set_park_timer(link);
    return true;
}

static void park_over(pawl_timer *timer)
{
    sql_link *link = timer->arg;
    int64_t now = link->env->now(link->env);

    for (struct list *l = link->parked.next, *next; l != &link->parked; l = next) {
        sql_call *call = list_entry(l, sql_call, link);

        next = l->next;
        if (call->due <= now) {
            list_remove(l);
            enqueue(link, call);
        }
    }
    set_park_timer(link);
    pump(link);
}

/* ---- answers --------------------------------------------------------------------------------- */

bool sql_call_withdraw(sql_call *call)
{
    if (call->sent || call->on->state == LINK_CLOSED)
        return false;
    list_remove(&call->link);
    free(call);
    return true;
}

/* What becomes of a call that the server refused. True: it is sent again. */
static bool refused(sql_link *link, sql_call *call, const sql_fault *fault)
{
    bool again = fault->sense == SQL_AGAIN && ++call->tries < TRIES_MAX && call->about;

    if (fault->sense == SQL_BLOCKED && park(link, call))
        return true;
    if (fault->sense == SQL_ELSEWHERE || fault->sense == SQL_MISSING)
        link->leaving = true;
    if (again) {
        call->sent = 0;
        enqueue(link, call);
    } else if (call->about) {
        call->type->failed(call, fault->sense == SQL_REFUSED ? fault->code : PAWL_ECONN,
                           fault->words);
    }
    return again;
}

/* The functions say so instead of failing, which would fill the server's log. */
static const sql_fault *or_blocked(const sql_reply *reply, const sql_fault *fault)
{
    static const sql_fault blocked = {.sense = SQL_BLOCKED, .code = PAWL_ECONN,
        .words = "somebody's transaction has this name's row locked"};
    const char *text = fault ? NULL : reply->cell(reply, 0, 0);

    return text && !strcmp(text, "BLOCKED") ? &blocked : fault;
}

void sql_link_answered(sql_link *link, const sql_reply *reply, const sql_fault *fault)
{
    struct list *l = list_take(&link->calls);
    sql_call *call = l ? list_entry(l, sql_call, link) : NULL;
    void *conn = link->conn;
    bool again = false;

    fault = or_blocked(reply, fault);
    if (!call) {
        sql_link_drop(link, PAWL_EPROTO, "an answer came that nobody asked for");
        return;
    }
    if (fault) {
        again = refused(link, call, fault);
    } else if (call->about && !call->type->answer(call, reply)) {
        call->type->failed(call, PAWL_EUNKNOWN, "the answer makes no sense");
        sql_link_drop(link, PAWL_EPROTO, "an answer makes no sense");
    } else {
        link->failures = 0;
    }
    if (!again)
        free(call);
    if (link->conn != conn)
        return;
    if (link->leaving && list_empty(&link->calls))
        sql_link_drop(link, PAWL_ECONN, "%s", fault ? fault->words : "the server is of no use");
    else
        pump(link);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* What the engine has to say comes before what waited. */
static void become_ready(sql_link *link)
{
    struct list waiting, *l;
    void *conn = link->conn;

    link->state = LINK_READY;
    link->last_code = 0;
    link->epochs++;
    link->env->timer_clear(link->env, &link->timer);
    if (link->epochs > 1 && link == &link->sql->link)
        link->env->log(link->env, PAWL_LOG_WARNING, "connected again: %s",
                       sql_link_host(link)->where);
    list_take_all(&waiting, &link->backlog);
    if (link->on_ready)
        link->on_ready(link);
    while ((l = list_take(&waiting)))
        enqueue(link, list_entry(l, sql_call, link));
    if (link->conn == conn)
        pump(link);
}

void sql_link_greeted(sql_link *link, const sql_reply *reply, const sql_fault *fault)
{
    int result = sql_greet_answer(link, reply, fault);

    if (result > 0)
        become_ready(link);
}

static void timer_fired(pawl_timer *timer)
{
    sql_link *link = timer->arg;
    int64_t limit, now = link->env->now(link->env);
    int64_t late = now - timer->due;

    if (link->state == LINK_PAUSED) {
        attempt(link);
        return;
    }
    if (link->state == LINK_READY) {
        if (list_empty(&link->calls))
            return;
        limit = limit_of(list_entry(link->calls.next, sql_call, link));
        if (now < limit) {
            set_timer(link, limit);
            return;
        }
    } else if (late > LEFT_ALONE_MS * PAWL_NS_PER_MS) {
        limit_attempt(link);
        return;
    }
    sql_link_drop(link, PAWL_ECONN, "no answer within %lld ms", (long long)link->env->timeout_ms);
}

void sql_link_init(sql_link *link, sql *q, const char *const *greeting)
{
    link->sql = q;
    link->env = q->env;
    link->greeting = greeting;
    link->fd = -1;
    link->timer = (pawl_timer){.fire = timer_fired, .arg = link};
    link->park_timer = (pawl_timer){.fire = park_over, .arg = link};
    list_init(&link->calls);
    list_init(&link->backlog);
    list_init(&link->parked);
}

void sql_link_open(sql_link *link)
{
    if (link->state != LINK_CLOSED)
        return;
    link->state = LINK_PAUSED;
    set_timer(link, link->env->now(link->env));
}

/* Failing a call may open the link again, for somebody else: that is not to fail. */
void sql_link_close(sql_link *link)
{
    struct list out, waiting, parked;

    if (!link->env)
        return;
    link->state = LINK_CLOSED;
    link->env->timer_clear(link->env, &link->timer);
    link->env->timer_clear(link->env, &link->park_timer);
    close_attempt(link);
    list_take_all(&out, &link->calls);
    list_take_all(&waiting, &link->backlog);
    list_take_all(&parked, &link->parked);
    fail_all(&out, PAWL_ECANCELED, "closing");
    fail_all(&waiting, PAWL_ECANCELED, "closing");
    fail_all(&parked, PAWL_ECANCELED, "closing");
}
