/* SPDX-License-Identifier: Apache-2.0
 *
 * client.c - opening and closing a client; locking the client for public calls.
 *
 * A client is OPEN, then CLOSING (waits are cancelled, locks are released, calls of other threads
 * return), then CLOSED (no engine, no loop, no background thread). Each handle has a reference to
 * its client, so the memory of the client is freed with its last handle.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core.h"

/* ---- public calls ---------------------------------------------------------------------------- */

static _Thread_local struct {
    unsigned calls; /* public calls of this thread, one inside of the other (callbacks) */
    int state;      /* before the first of them */
} cancellation;

void pawl__cancellation_off(void)
{
    if (!cancellation.calls++)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation.state);
}

void pawl__cancellation_back(void)
{
    if (!--cancellation.calls)
        pthread_setcancelstate(cancellation.state, NULL);
}

/* A section that only counts references uses the mutex directly, and delivers nothing. */
void pawl__lock(pawl_client *client)
{
    pthread_mutex_lock(&client->mu);
}

/* Another thread may free the client as soon as the mutex is unlocked. */
void pawl__unlock(pawl_client *client)
{
    if (client->log.lines)
        pawl__unlock_and_deliver(client);
    else
        pthread_mutex_unlock(&client->mu);
}

int pawl__enter(pawl_client *client, bool blocking, pawl_error *err)
{
    if (client->generation != pawl__fork_generation())
        return pawl_error_set(err, PAWL_EFORK,
                              "the client belongs to the parent process; open one after fork()");
    if (blocking && pawl__in_callback())
        return pawl_error_set(err, PAWL_EDEADLK,
                              "a callback must not make a call that blocks; use the _start form");
    pawl__cancellation_off();
    pawl__lock(client);
    if (client->state == CLIENT_OPEN)
        return 0;
    pthread_mutex_unlock(&client->mu); /* pawl_close delivers the lines */
    pawl__cancellation_back();
    return pawl_error_set(err, PAWL_ESTATE, "the client is closed");
}

void pawl__leave(pawl_client *client)
{
    pawl__before_unlock(client);
    pawl__background_need(client);
    pawl__unlock(client);
    pawl__cancellation_back();
}

/* ---- events of the engine -------------------------------------------------------------------- */

static void session_lost(pawl_client *client, int why)
{
    for (struct list *l = client->holds.all.next, *next; l != &client->holds.all; l = next) {
        next = l->next;
        pawl__hold_lost(list_entry(l, struct hold, in_client), why ? why : PAWL_LOST_SESSION);
    }
}

static void event_told(struct request *r, int code);

static void listen_for_events(pawl_client *client)
{
    pawl__request_init(&client->requests.event, client, event_told);
    client->requests.event.op.kind = PAWL_OP_EVENT;
    client->requests.event.once = true;
    pawl__request_start(&client->requests.event, PAWL_NEVER);
}

static void event_told(struct request *r, int code)
{
    pawl_client *client = r->client;

    if (code || client->state != CLIENT_OPEN)
        return;
    if (r->op.event == PAWL_EVENT_LOST)
        session_lost(client, r->op.reason);
    else if (r->op.event != PAWL_EVENT_NONE)
        pawl__leases_verify(client, &r->op);
    client->counters.other.stats.reconnects +=
        r->op.event == PAWL_EVENT_RECONNECT || r->op.event == PAWL_EVENT_FAILOVER;
    client->counters.other.stats.failovers += r->op.event == PAWL_EVENT_FAILOVER;
    listen_for_events(client);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Copy the option or, if it is NULL, the environment variable. Returns false if out of memory. */
static bool copy_or_env(char **ret, const char *given, const char *variable)
{
    const char *text = given ? given : secure_getenv(variable);

    *ret = text ? strdup(text) : NULL;
    return *ret || !text;
}

/* Read a number from the options, else from the URL; else *ret keeps its value. */
static int take_number(int64_t *ret, int64_t given, const pawl_url *url, const char *key,
                       int64_t least, int64_t most, pawl_error *err)
{
    int64_t value = *ret;
    int code = pawl__url_ms(url, key, &value, err);

    if (code)
        return code;
    if (given)
        value = given;
    if (value < least || value > most)
        return pawl_error_set(err, PAWL_EINVAL, "%s is %lld; it must be from %lld to %lld", key,
                              (long long)value, (long long)least, (long long)most);
    *ret = value;
    return 0;
}

/* The client information in env, and as text for the holders of locks that the client breaks.
 * Returns false if out of memory. */
static bool describe_client(pawl_client *client, const char *label)
{
    char host[256] = "";

    if (gethostname(host, sizeof host - 1))
        host[0] = 0;
    client->env.host = client->host = strdup(host);
    client->env.program = client->program = strdup(program_invocation_short_name);
    client->options.label = client->env.label = client->label = strdup(label ? label : "");
    if (!client->host || !client->program || !client->label)
        return false;
    pawl_client_info_text(client->client_info, getpid(), client->program, client->label,
                          client->host);
    return true;
}

int pawl__url_options(pawl_client *client, const pawl_url *url, pawl_error *err)
{
    const pawl_client_options *o = &client->options;
    int64_t *watchdog = &client->env.watchdog_ms, *timeout = &client->env.timeout_ms;
    int64_t cohort = o->cohort > 4096 ? 4097 : (int64_t)o->cohort;
    int code;

    if ((code = take_number(watchdog, o->watchdog_ms, url, "watchdog", 10, PAWL_MS_MAX, err)) ||
        (code = take_number(timeout, o->timeout_ms, url, "timeout", 1, PAWL_MS_MAX, err)))
        return code;
    return take_number(&client->cohort, cohort, url, "cohort", 1, 4096, err);
}

static int take_options(pawl_client *client, const pawl_url *url, pawl_error *err)
{
    const pawl_client_options *o = &client->options;

    if (o->log_level > PAWL_LOG_DEBUG)
        return pawl_error_set(err, PAWL_EINVAL, "log_level is at most PAWL_LOG_DEBUG");
    if (o->slow_wait_ms != PAWL_FOREVER && pawl__bad_ms(o->slow_wait_ms))
        return pawl_error_set(err, PAWL_EINVAL, "slow_wait_ms is milliseconds from 0 to ten years, "
                              "or PAWL_FOREVER for no warnings");
    client->env.watchdog_ms = 30000;
    client->env.timeout_ms = 2000;
    client->cohort = 32;
    client->log.fn = o->log;
    client->log.arg = o->log_arg;
    client->log.level = o->log_level ? (int)o->log_level : PAWL_LOG_WARNING;
    client->env.log_level = o->log ? client->log.level : 0;
    if (client->log.fn && client->log.level >= PAWL_LOG_WARNING && o->slow_wait_ms >= 0)
        client->slow.after_ns = (o->slow_wait_ms ? o->slow_wait_ms : 30000) * PAWL_NS_PER_MS;
    if (!describe_client(client, o->label) ||
        !copy_or_env(&client->user, o->user, "PAWL_USER") ||
        !copy_or_env(&client->password, o->password, "PAWL_PASSWORD"))
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    client->options.user = client->env.user = client->user;
    client->options.password = client->env.password = client->password;
    return pawl__url_options(client, url, err);
}

static pawl_client *client_new(const struct pawl_world *world)
{
    pawl_client *client = calloc(1, sizeof *client);

    if (!client)
        return NULL;
    client->world = world;
    client->generation = pawl__fork_generation();
    client->refs = 1;
    pthread_mutex_init(&client->mu, NULL);
    pthread_cond_init(&client->idle, NULL);
    list_init(&client->registered);
    list_init(&client->holds.all);
    list_init(&client->holds.spare);
    pawl__requests_init(&client->requests);
    pawl__driver_init(client);
    pawl__leases_init(client);
    pawl__stats_init(client);
    pawl__slow_init(client);
    return client;
}

static void wipe_and_free(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

static void client_free(pawl_client *client)
{
    struct list *link;

    while ((link = list_take(&client->holds.spare)))
        free(list_entry(link, struct hold, in_client));
    pawl__names_free(client);
    pawl__stats_free(client);
    free(client->host);
    free(client->program);
    free(client->label);
    free(client->user);
    wipe_and_free(client->password);
    wipe_and_free(client->identity);
    pawl__driver_free(client);
    pthread_cond_destroy(&client->idle);
    pthread_mutex_destroy(&client->mu);
    free(client);
}

void pawl__client_unref(pawl_client *client)
{
    uint32_t left;

    pthread_mutex_lock(&client->mu);
    left = --client->refs;
    pthread_mutex_unlock(&client->mu);
    if (!left)
        client_free(client);
}

/* Close engine, loop and descriptors; handles may still refer to the client's memory. */
static void take_down(pawl_client *client)
{
    if (client->engine.engine) {
        pawl__defer_begin(client);
        client->engine.engine->close(client->engine.state);
        pawl__defer_end(client);
    }
    pawl__driver_close(client);
    pawl__states_free(client);
    client->engine = (pawl_instance){0};
    client->state = CLIENT_CLOSED;
}

/* The identity of the service (engine.h); NULL: no memory. */
static char *identity_of(const pawl_instance *i, const char *url)
{
    int length = pawl_instance_identity(i, NULL, 0);
    char *text = length < 0 ? strdup(url) : malloc((size_t)length + 1);

    if (text && length >= 0 && pawl_instance_identity(i, text, (size_t)length + 1) != length) {
        free(text); /* out of memory in the second call */
        text = NULL;
    }
    return text;
}

static int set_up(pawl_client *client, const char *text, pawl_error *err)
{
    pawl_url url;
    int code = pawl__url_parse(&url, text, err);

    if (code)
        return code;
    if (pawl__env_init(client))
        code = pawl_error_set(err, PAWL_EBACKEND, "no random numbers: %s", strerror(errno));
    else
        code = take_options(client, &url, err);
    if (!code)
        code = pawl__driver_open(client, err);
    if (!code)
        code = pawl__instance_open(&client->env, &client->engine, &url, err);
    if (!code && !(client->identity = identity_of(&client->engine, text)))
        code = pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    pawl__url_free(&url);
    return code;
}

int pawl__open_in(pawl_client **ret, const char *url, const pawl_client_options *given,
                  const struct pawl_world *world, pawl_error *err)
{
    pawl_client_options options;
    pawl_client *client;
    int code;

    if (!ret)
        return pawl_error_set(err, PAWL_EINVAL, "nowhere to put the client (ret is NULL)");
    if (pawl__in_callback())
        return pawl_error_set(err, PAWL_EDEADLK, "a callback must not open a client");
    code = pawl__options_copy(&options, sizeof options, given, "pawl_client_options", err);
    if (code)
        return code;
    client = client_new(world);
    if (!client)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    pawl__cancellation_off();
    pawl__lock(client);
    client->options = options;
    code = set_up(client, url, err);
    if (code) {
        take_down(client);
        pawl__unlock(client);
        pawl__client_unref(client);
        pawl__cancellation_back();
        return code;
    }
    client->caps = pawl_instance_caps(&client->engine);
    listen_for_events(client);
    pawl__leave(client);
    pawl__client_register(client);
    *ret = client;
    return 0;
}

int pawl_open(pawl_client **ret, const char *url, const pawl_client_options *options,
              pawl_error *err)
{
    return pawl__open_in(ret, url, options, NULL, err);
}

/* ---- closing --------------------------------------------------------------------------------- */

void pawl__close_check(pawl_client *client)
{
    struct waiter_thread *closing = client->closing.thread;

    /* pawl_close itself is one active call */
    if (closing && !closing->done && !client->holds.live && client->active <= 1 &&
        list_empty(&client->requests.all) &&
        (client->closing.late || !pawl_instance_unfinished(&client->engine)))
        pawl__wait_done(client, closing, 0);
}

/* Record why a lock may stay behind. PAWL_EUNKNOWN has priority over a refusal. */
void pawl__close_failed(pawl_client *client, int code)
{
    if (code == PAWL_EUNKNOWN || code == PAWL_ECONN)
        client->closing.code = PAWL_EUNKNOWN;
    else if (!client->closing.code)
        client->closing.code = code;
}

static void cancel_requests(pawl_client *client, bool all)
{
    for (struct list *l = client->requests.all.next, *next; l != &client->requests.all; l = next) {
        struct request *r = list_entry(l, struct request, all);

        next = l->next;
        if (all || r->op.kind != PAWL_OP_RELEASE)
            pawl__request_cancel(r, PAWL_ECANCELED);
    }
}

static void end_holds(pawl_client *client)
{
    size_t n = 0;

    for (struct list *l = client->holds.all.next; l != &client->holds.all; l = l->next)
        n++;
    while (n-- && !list_empty(&client->holds.all)) {
        struct list *first = list_take(&client->holds.all);

        list_append(&client->holds.all, first);
        pawl__hold_abandon(list_entry(first, struct hold, in_client), false);
    }
}

static void closing_takes_too_long(pawl_timer *timer)
{
    pawl_client *client = timer->arg;

    if (client->holds.live || !list_empty(&client->requests.all))
        client->closing.code = PAWL_EUNKNOWN;
    client->closing.late = true;
    cancel_requests(client, true);
    pawl__close_check(client);
    /* A cancelled acquire may begin a release; cancel that release, too. */
    pawl__timers_set(&client->timers, timer, pawl__now(client) + 10 * PAWL_NS_PER_MS);
}

/* End all holds and requests and wait for them: at most one timeout for locks that are kept for
 * at_least_ms, and then at most one timeout for the rest. */
static void wind_up(pawl_client *client)
{
    pawl_timer limit = {.fire = closing_takes_too_long, .arg = client};
    int64_t begin = pawl__now(client);
    struct waiter_thread thread;

    pawl__defer_begin(client); /* no hold or request ends during the walks over the lists */
    end_holds(client);
    cancel_requests(client, false);
    pawl__defer_end(client);
    pawl__requests_flush(client);
    pawl__wait_begin(&thread, NULL);
    client->closing.thread = &thread;
    if (client->closing.linger_until > begin)
        begin = client->closing.linger_until;
    pawl__timers_set(&client->timers, &limit, begin + client->env.timeout_ms * PAWL_NS_PER_MS);
    client->active++;
    pawl__close_check(client);
    client->active--;
    pawl__wait(client, &thread);
    client->closing.thread = NULL;
    pawl__timers_clear(&client->timers, &limit);
}

int pawl_close(pawl_client *client)
{
    int code;

    if (!client)
        return 0;
    code = pawl__enter(client, true, NULL);
    if (code)
        return code;
    client->state = CLIENT_CLOSING;
    pawl__unlock(client);
    pawl__client_unregister(client);
    pawl__lock(client);
    wind_up(client);
    while (client->driver.dispatching) /* another thread runs callbacks */
        pthread_cond_wait(&client->idle, &client->mu);
    pawl__background_stop(client);
    while (!list_empty(&client->driver.callbacks))
        if (pawl__dispatch(client, false) < 0) {
            pawl__cancellation_back();
            return PAWL_EFORK;
        }
    code = client->closing.code;
    take_down(client);
    pawl__unlock(client);
    pawl__client_unref(client);
    pawl__cancellation_back();
    return code;
}

/* ---- foreign loops --------------------------------------------------------------------------- */

int pawl_client_fd(pawl_client *client)
{
    int code;

    if (!client)
        return PAWL_EINVAL;
    code = pawl__enter(client, false, NULL);
    if (code)
        return code;
    code = pawl__user_fd(client);
    if (code < 0 || pawl__background_start(client)) {
        code = PAWL_ENOMEM;
    } else if (!client->driver.fd_mode) {
        client->driver.fd_mode = true;
        pthread_cond_signal(&client->driver.background.wake);
        pawl__tell(client); /* end the poll of the background thread; the loop runs callbacks */
    }
    pawl__leave(client);
    return code;
}

int pawl_client_process(pawl_client *client)
{
    int code;

    if (!client)
        return PAWL_EINVAL;
    code = pawl__enter(client, true, NULL);
    if (code)
        return code;
    pawl__signals_forget(client);
    pawl__turn(client);
    pawl__before_unlock(client);
    code = pawl__dispatch(client, false);
    if (code >= 0)
        pawl__leave(client);
    else
        pawl__cancellation_back(); /* a callback forked: this is the child */
    return code;
}

/* ---- threads that end ------------------------------------------------------------------------ */

void pawl__client_thread_gone(struct pawl_client *client, uint64_t thread)
{
    if (client->generation != pawl__fork_generation())
        return;
    pawl__lock(client);
    for (struct list *l = client->holds.all.next, *next; l != &client->holds.all; l = next) {
        struct hold *hold = list_entry(l, struct hold, in_client);

        next = l->next;
        if (hold->owner.holder != thread || hold->orphan || hold->finished)
            continue;
        hold->orphan = true; /* also a hold that is ACQUIRING for an asynchronous call */
        if (hold->state == HOLD_LOST)
            pawl__hold_over(hold);
        if (hold->state != HOLD_HELD)
            continue;
        pawl__lease_stop_renewing(hold);
        pawl__cohort_leave_soon(hold);
        hold->name_state->series->stats.orphaned++;
        pawl__log(client, PAWL_LOG_WARNING,
                  "a thread ended while it held '%s'; its lease is no longer renewed",
                  SHOWN(hold->name_state->name));
    }
    if (client->log.lines) /* the background thread logs, because clients_mutex is locked */
        pawl__tell(client);
    pthread_mutex_unlock(&client->mu);
}

/* ---- submit one op and wait ------------------------------------------------------------------ */

static void exchange_finished(struct request *r, int code)
{
    pawl__wait_done(r->client, r->owner, code);
}

void pawl__exchange_init(struct request *r, pawl_client *client, int kind, int mode,
                         const char *name)
{
    pawl__request_init(r, client, exchange_finished);
    r->op.kind = (uint8_t)kind;
    r->op.mode = (uint8_t)mode;
    r->op.name = name;
    r->op.owner = (pawl_owner){client->env.client_id, 0, ++client->last_seq};
}

int pawl__exchange(struct request *r, int64_t wait_ms, pawl_error *err)
{
    pawl_client *client = r->client;
    int64_t now = pawl__now(client), wait = wait_ms ? wait_ms : client->env.timeout_ms;
    struct waiter_thread thread;
    int code;

    pawl__wait_begin(&thread, err);
    r->owner = &thread;
    pawl__request_start(r, wait < 0 || wait > (PAWL_NEVER - now) / PAWL_NS_PER_MS
                               ? PAWL_NEVER
                               : now + wait * PAWL_NS_PER_MS);
    code = pawl__wait(client, &thread);
    if (code && r->op.name && strcmp(r->op.name, "*")) /* LIST: all names */
        pawl__error_about(err, code, r->op.name, r->err.text[0] ? r->err.text : NULL);
    else if (code)
        pawl_error_set(err, code, "%s", r->err.text[0] ? r->err.text : pawl_strerror(code));
    return code;
}

int pawl__exchanges_cancel(pawl_client *client, const void *handle)
{
    int n = 0;

    pawl__defer_begin(client); /* no request ends during the walk over the list */
    for (struct list *l = client->requests.all.next, *next; l != &client->requests.all; l = next) {
        struct request *r = list_entry(l, struct request, all);

        next = l->next;
        if (r->handle == handle && r->op.kind == PAWL_OP_ACQUIRE && !r->giving_up) {
            pawl__request_cancel(r, PAWL_ECANCELED);
            n++;
        }
    }
    pawl__defer_end(client);
    return n;
}
