/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c - a connection to a server: its states and transitions.
 *
 *     PAUSED --timer--> LOCATING --> CONNECTING --> GREETING --> READY
 *        ^                 |              |             |          |
 *        +-----------------+--------------+-------------+----------+  kit_link_drop
 *
 * CLOSED is the state before kit_link_open and after kit_link_close. The states change only here,
 * in wire.c (to CONNECTING) and in an engine's `attempt` (to CONNECTING), under the client's mutex.
 *
 *     to          by                      actions
 *     PAUSED      kit_link_open           the timer fires at once
 *     LOCATING    the timer of PAUSED     type->attempt
 *     CONNECTING  type->attempt           the stream or the client library connects
 *     GREETING    kit_link_connected      type->greet
 *     READY       kit_link_ready          type->ready, then the backlog is sent
 *     PAUSED      kit_link_drop           disconnect, back_off, calls fail, type->dropped
 *     CLOSED      kit_link_close          disconnect, calls and backlog fail
 *
 * TIME LIMITS. An attempt may take limit_ms, and the greeting may take the rest of this time unless
 * the engine sets another limit. An attempt ends a little before the calls that began with it, so
 * that these calls can say which server did not answer. While no thread makes a call, perhaps no
 * thread runs the loop; so an attempt's timer that fires more than LATE_MS late proves nothing, and
 * the time starts anew. A READY link is dropped when the server has been silent for too long
 * (type->limit).
 *
 * CALLS. When a link drops, its calls were sent and not answered: the calls fail as unknown. Calls
 * in the backlog were not sent; these calls stay for the next connection, unless another attempt
 * can't help (type->dropped decides). Failing a call may run any code of the engine, which may add
 * calls, close this link, or drop another link; so the lists are emptied first.
 *
 * PAUSES grow from 10 ms to 1 s, half of each at random, until a call has been answered.
 */
#include "kit/link.h"

#define LATE_MS 50

void kit_link_fail(kit_link *link, struct list *calls, int code, const char *words)
{
    struct list mine, *l;

    list_take_all(&mine, calls);
    while ((l = list_take(&mine)))
        link->type->fail(link, l, code, words);
}

static void set_words(kit_link *link, const char *words)
{
    int n = snprintf(link->words, sizeof link->words, "%.70s: ", link->peer);
    int room = (int)sizeof link->words - n;

    snprintf(link->words + n, (size_t)room, "%.*s", room - 1, words);
}

/* ---- an attempt ------------------------------------------------------------------------------ */

void kit_link_limit_attempt(kit_link *link)
{
    int64_t early = link->limit_ms / 10 < LATE_MS ? link->limit_ms / 10 : LATE_MS;

    link->attempt_ends = link->env->now(link->env) + (link->limit_ms - early) * PAWL_NS_PER_MS;
    link->env->timer_set(link->env, &link->timer, link->attempt_ends);
}

static void overdue_words(kit_link *link, char words[NET_WORDS])
{
    if (link->state != LINK_LOCATING || !link->type->unlocated ||
        !link->type->unlocated(link, words))
        snprintf(words, NET_WORDS, "no answer within %lld ms", (long long)link->limit_ms);
}

static void overdue(kit_link *link)
{
    char words[NET_WORDS];

    overdue_words(link, words);
    kit_link_drop(link, PAWL_ECONN, "%s", words);
}

/* The attempt goes on, but a call that is cancelled now has waited for this attempt in vain. */
static void extend_attempt(kit_link *link)
{
    char words[NET_WORDS];

    if (!link->last_code) {
        overdue_words(link, words);
        link->last_code = PAWL_ECONN;
        set_words(link, words);
    }
    kit_link_limit_attempt(link);
}

static void timer_fired(pawl_timer *timer)
{
    kit_link *link = timer->arg;
    int64_t now = link->env->now(link->env);
    bool late = now - timer->due > LATE_MS * PAWL_NS_PER_MS;

    if (link->state == LINK_PAUSED) {
        link->state = LINK_LOCATING;
        kit_link_limit_attempt(link);
        link->type->attempt(link);
        return;
    }
    if (late && link->type->late && link->state >= LINK_GREETING)
        link->type->late(link);
    if (link->state == LINK_READY) {
        int64_t limit = link->type->limit(link);

        if (now >= limit)
            overdue(link);
        else if (limit < PAWL_NEVER)
            link->env->timer_set(link->env, timer, limit);
    } else if (link->state > LINK_PAUSED && late) {
        extend_attempt(link);
    } else if (link->state > LINK_PAUSED) {
        overdue(link);
    }
}

void kit_link_connected(kit_link *link)
{
    link->state = LINK_GREETING;
    link->env->timer_set(link->env, &link->timer, link->attempt_ends);
    link->type->greet(link);
}

void kit_link_ready(kit_link *link)
{
    struct list waiting, *l;

    link->state = LINK_READY;
    link->last_code = 0;
    link->epochs++;
    link->env->timer_clear(link->env, &link->timer);
    if (link->epochs > 1 && !link->quiet)
        link->env->log(link->env, PAWL_LOG_WARNING, "connected again: %s", link->peer);
    list_take_all(&waiting, &link->backlog);
    link->type->ready(link);
    while ((l = list_take(&waiting)))
        link->type->send(link, l);
}

/* ---- the end of a connection ----------------------------------------------------------------- */

void kit_link_drop(kit_link *link, int code, const char *format, ...)
{
    bool was_ready = link->state == LINK_READY;
    char words[NET_WORDS];
    int64_t pause;
    va_list args;

    if (link->state == LINK_CLOSED || link->state == LINK_PAUSED)
        return;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    if (link->type->keeps && link->type->keeps(link, code, words))
        return;
    link->last_code = code;
    pawl_text_clean(words);
    set_words(link, words);
    link->env->log(link->env, PAWL_LOG_WARNING, "%s %s",
                   was_ready ? "connection lost:" : "can't connect:", link->words);
    link->type->disconnect(link);
    link->state = LINK_PAUSED;
    pause = link->type->back_off ? link->type->back_off(link, was_ready)
                                 : kit_link_pause_ms(link, 1);
    link->failures++;
    link->env->timer_set(link->env, &link->timer,
                         link->env->now(link->env) + pause * PAWL_NS_PER_MS);
    kit_link_fail(link, &link->calls, PAWL_EUNKNOWN, link->words);
    link->type->dropped(link, was_ready || code == PAWL_ECONN ? 0 : code);
}

/* ---- open, close ----------------------------------------------------------------------------- */

void kit_link_hurry(kit_link *link)
{
    if (link->state == LINK_PAUSED)
        link->env->timer_set(link->env, &link->timer, link->env->now(link->env));
}

void kit_link_init(kit_link *link, const kit_link_type *type, pawl_env *env)
{
    link->type = type;
    link->env = env;
    link->limit_ms = env->timeout_ms;
    link->timer = (pawl_timer){.fire = timer_fired, .arg = link};
    list_init(&link->calls);
    list_init(&link->backlog);
}

void kit_link_open(kit_link *link)
{
    if (link->state != LINK_CLOSED)
        return;
    link->state = LINK_PAUSED;
    kit_link_hurry(link);
}

/* Failing a call may open the link again, for another maker: new calls must not fail. */
void kit_link_close(kit_link *link)
{
    struct list sent, waiting;

    if (!link->env || link->state == LINK_CLOSED)
        return;
    link->type->disconnect(link);
    link->state = LINK_CLOSED;
    link->env->timer_clear(link->env, &link->timer);
    list_take_all(&sent, &link->calls);
    list_take_all(&waiting, &link->backlog);
    kit_link_fail(link, &sent, PAWL_ECANCELED, "closing");
    kit_link_fail(link, &waiting, PAWL_ECANCELED, "closing");
}
