/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c - the SQL part of a link, on top of kit/link.c: addresses, hosts, calls, parked calls.
 *
 * Each address of a host gets an equal share of the attempt's remaining time, so that an address
 * that does not answer leaves time for the next one. A call may have a time limit of its own.
 *
 * A call that finds its row locked by another transaction is parked: the call waits here, not in
 * the server, and is sent again after a pause that grows from 2 to 200 ms. After env->timeout_ms
 * the call fails. Parked calls survive a lost connection, like the backlog.
 *
 * The statement of a call may also wait for the row in the server, where waits are served in order.
 * The connection answers in order, so such a wait delays every call that is sent later. Therefore
 * one call at a time may wait. A call that has waited in vain is *stuck*: the call does not wait
 * again, and no call may wait while a stuck call is parked. So renewals are delayed by one wait at
 * most, however many rows are locked.
 *
 * Of several hosts the first is always tried first, and the next host if one is down or of no use
 * (a standby, which is read only). A pause follows when all hosts were tried.
 *
 * This file calls the driver, and the driver calls back (sql_link_connected, _greeted, _answered),
 * but not inside `send` and `query`. A driver may call sql_link_drop at any time; its connection is
 * freed then.
 */
#include <netdb.h>
#include <stdlib.h>

#include "received.h"
#include "sql.h"

#define TRIES_MAX 4      /* attempts of a statement that the server rolls back (deadlock) */
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

static sql_link *link_of(kit_link *kit)
{
    return list_entry(kit, sql_link, kit);
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
    if (status < 0) { /* libuv has stopped watching; reading returns the error */
        link->events = 0;
        events = UV_READABLE | UV_WRITABLE;
    }
    driver_of(link)->ready(link, events);
}

/* While connecting, the client library may switch to another socket with the same number. */
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

/* The client libraries collect an answer without a limit. */
bool sql_link_within_limit(sql_link *link, int fd, int64_t *from)
{
    int64_t received = sql_bytes_received(fd);

    if (*from < 0)
        *from = received;
    if (received - *from <= SQL_BYTES_MAX)
        return true;
    sql_link_drop(link, PAWL_EPROTO, "an answer has more than %d MB", SQL_BYTES_MAX >> 20);
    return false;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void close_connection(sql_link *link)
{
    sql_link_unwatch(link);
    if (link->conn)
        driver_of(link)->end(link);
    link->conn = NULL;
    link->waiting = NULL;
    memset(link->prepared, 0, sizeof link->prepared);
}

static int start(sql_link *link, const char *address)
{
    link->state = LINK_CONNECTING;
    return driver_of(link)->start(link, address);
}

/* Try the next address, with an equal share of the remaining time. */
static void connect_next(sql_link *link)
{
    while (link->next_address) {
        struct addrinfo *a = link->next_address;
        int64_t now = link->env->now(link->env), n = 0;
        char text[80];
        int code;

        for (const struct addrinfo *b = a; b; b = b->ai_next)
            n++;
        link->env->timer_set(link->env, &link->timer, now + (link->attempt_ends - now) / n);
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

static void attempt(kit_link *kit)
{
    sql_link *link = link_of(kit);
    const net_address *host;

    if (link == &link->sql->listener)
        link->at = link->sql->link.at; /* the messages are on the main link's server */
    host = sql_link_host(link);
    link->peer = host->where;
    link->leaving = false;
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
    kit_link_limit_attempt(&link->kit);
    kit_link_connected(&link->kit);
}

static void greet(kit_link *kit)
{
    link_of(kit)->step = 0;
    sql_greet(link_of(kit));
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static void disconnect(kit_link *kit)
{
    sql_link *link = link_of(kit);

    close_connection(link);
    net_resolve_cancel(&link->resolve);
    if (link->addresses)
        freeaddrinfo(link->addresses);
    link->addresses = link->next_address = NULL;
    free(link->making);
    link->making = link->made = NULL;
}

static void fail_call(kit_link *kit, struct list *l, int code, const char *words)
{
    sql_call *call = list_entry(l, sql_call, link);

    (void)kit;
    if (call->about)
        call->type->failed(call, code, words);
    free(call);
}

/* One address has failed, and there are more. */
static bool keeps(kit_link *kit, int code, const char *words)
{
    sql_link *link = link_of(kit);

    if (link->state != LINK_CONNECTING || !link->next_address || code != PAWL_ECONN)
        return false;
    snprintf(link->words, sizeof link->words, "%s", words);
    close_connection(link);
    connect_next(link);
    return true;
}

/* The other hosts are tried without a pause. */
static int64_t back_off(kit_link *kit, bool was_ready)
{
    sql_link *link = link_of(kit);
    size_t n = link->sql->settings.hosts.n;

    link->at = was_ready && !link->leaving ? 0 : (link->at + 1) % (unsigned)n;
    return link->at ? 0 : kit_link_pause_ms(kit, n);
}

static void dropped(kit_link *kit, int refused)
{
    sql_link *link = link_of(kit);

    if (refused) {
        kit_link_fail(kit, &link->backlog, refused, link->words);
        kit_link_fail(kit, &link->parked, refused, link->words);
    }
    if (link->on_drop)
        link->on_drop(link, refused);
}

/* ---- waiting in the server ------------------------------------------------------------------- */

static bool any_stuck(const sql_link *link)
{
    for (const struct list *l = link->parked.next; l != &link->parked; l = l->next)
        if (list_entry(l, const sql_call, link)->stuck)
            return true;
    return false;
}

bool sql_call_may_wait(const sql_call *call)
{
    sql_link *link = call->on;

    if (!call->patient || link->waiting)
        return false;
    link->waiting = call;
    return true;
}

/* The call was answered; `blocked`: it found its row locked. A call is not stuck if it could not
 * wait because another call waited. */
static void end_wait(sql_link *link, sql_call *call, bool blocked)
{
    bool waited = link->waiting == call;

    if (waited)
        link->waiting = NULL;
    if (blocked && (waited || !call->patient))
        call->stuck = true;
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

/* Send the backlog until the driver's buffer is full. */
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
        call->patient = !call->stuck && !any_stuck(link);
        list_remove(&call->link);
        list_append(&link->calls, &call->link);
        code = driver_of(link)->send(link, call);
        if (link->conn != conn)
            return; /* the link has dropped, and the call has failed */
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
        } else {
            kit_link_expect(&link->kit, limit_of(call));
        }
    }
}

/* Enqueue behind the calls of equal urgency; urgent calls come first. */
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

/* Park a call that found its row locked. False: the row has been locked for too long. */
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

/* Handle a call that the server refused. True: the call is sent again. */
static bool refused(sql_link *link, sql_call *call, const sql_fault *fault)
{
    bool again = fault->sense == SQL_AGAIN && ++call->tries < TRIES_MAX && call->about;

    if (fault->sense == SQL_BLOCKED && park(link, call))
        return true;
    if ((fault->sense == SQL_ELSEWHERE || fault->sense == SQL_MISSING) && !call->type->optional)
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

/* The database functions return BLOCKED instead of failing, because errors would fill the server's
 * log. */
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
    end_wait(link, call, fault && fault->sense == SQL_BLOCKED);
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

/* The engine's own calls are sent before the backlog. */
static void become_ready(kit_link *kit)
{
    if (link_of(kit)->on_ready)
        link_of(kit)->on_ready(link_of(kit));
}

static void send_again(kit_link *kit, struct list *call)
{
    sql_link_send(link_of(kit), list_entry(call, sql_call, link));
}

static int64_t limit(kit_link *kit)
{
    return list_empty(&kit->calls) ? PAWL_NEVER
                                   : limit_of(list_entry(kit->calls.next, sql_call, link));
}

void sql_link_greeted(sql_link *link, const sql_reply *reply, const sql_fault *fault)
{
    if (sql_greet_answer(link, reply, fault) > 0)
        kit_link_ready(&link->kit);
}

void sql_link_init(sql_link *link, sql *q, const char *const *greeting)
{
    static const kit_link_type type = {.attempt = attempt, .greet = greet, .ready = become_ready,
        .send = send_again, .fail = fail_call, .limit = limit, .disconnect = disconnect,
        .keeps = keeps, .back_off = back_off, .dropped = dropped};

    kit_link_init(&link->kit, &type, q->env);
    link->quiet = link != &q->link;
    link->sql = q;
    link->greeting = greeting;
    link->fd = -1;
    link->park_timer = (pawl_timer){.fire = park_over, .arg = link};
    list_init(&link->parked);
}

void sql_link_close(sql_link *link)
{
    struct list parked;

    if (!link->env)
        return;
    link->env->timer_clear(link->env, &link->park_timer);
    list_take_all(&parked, &link->parked);
    kit_link_close(&link->kit);
    kit_link_fail(&link->kit, &parked, PAWL_ECANCELED, "closing");
}
