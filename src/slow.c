/* SPDX-License-Identifier: Apache-2.0
 *
 * slow.c - logs a warning, which names the holder, when a wait takes long (30 s by default).
 *
 * Each client has one timer and at most one INSPECT request, for any number of waits. States: no
 * wait (timer off); waits without a warning (timer set); the name of the longest wait is being
 * inspected (slow.name_state set, timer off). Everything is under the client's mutex. The warning
 * is for all threads of the process that wait for that name now: the answer marks their waits as
 * warned, and the timer is set for the next wait that has no warning yet. A client without a log
 * function has neither timer nor requests.
 */
#include "core.h"

#define PACE (1000 * PAWL_NS_PER_MS) /* at most one inspection in this time */

static void due(pawl_timer *timer);
static void told(struct request *r, int code);

void pawl__slow_init(pawl_client *client)
{
    client->slow.timer = (pawl_timer){.fire = due, .arg = client};
}

static bool waits(const struct hold *hold)
{
    return (hold->state == HOLD_WAITING || hold->state == HOLD_ACQUIRING) && !hold->finished &&
           !hold->try_once && !hold->warned;
}

void pawl__slow_watch(struct hold *hold)
{
    pawl_client *client = hold->client;
    struct slow *slow = &client->slow;

    if (!slow->timer.armed && !slow->name_state && waits(hold))
        pawl__timers_set(&client->timers, &slow->timer, hold->asked + slow->after_ns);
}

/* The wait without a warning that is the longest, or NULL. */
static struct hold *longest(pawl_client *client)
{
    struct hold *first = NULL;

    for (struct list *l = client->holds.all.next; l != &client->holds.all; l = l->next) {
        struct hold *hold = list_entry(l, struct hold, in_client);

        if (waits(hold) && (!first || hold->asked < first->asked))
            first = hold;
    }
    return first;
}

/* ---- asking for the holder ------------------------------------------------------------------- */

static int row(void *arg, const pawl_info *info)
{
    struct slow *slow = arg;
    const char *label = info->label && *info->label ? info->label : info->program;
    bool labelled = label && *label, hosted = info->host && *info->host;
    char process[57], age[28] = "";

    if (slow->attempt != slow->request.attempts)
        slow->holder[0] = '\0';
    slow->attempt = slow->request.attempts;
    if (info->role != PAWL_ROLE_HOLDER || slow->holder[0])
        return 0;
    if (info->pid)
        snprintf(process, sizeof process, "pid %lld", (long long)info->pid);
    else
        snprintf(process, sizeof process, "%.56s",
                 info->owner && *info->owner ? info->owner : "an unknown process");
    if (info->since_ms >= 0)
        snprintf(age, sizeof age, " for %lld s", (long long)info->since_ms / 1000);
    snprintf(slow->holder, sizeof slow->holder, "held by %s%s%s%s%s%s%s", process,
             labelled ? " (" : "", labelled ? SHOWN(label) : "", labelled ? ")" : "",
             hosted ? " on " : "", hosted ? SHOWN(info->host) : "", age);
    return 0;
}

static void inspect(pawl_client *client, struct hold *hold)
{
    struct slow *slow = &client->slow;
    struct request *r = &slow->request;

    slow->name_state = hold->name_state;
    slow->name_state->refs++;
    slow->asked = hold->asked;
    slow->attempt = 0;
    slow->holder[0] = '\0';
    pawl__exchange_init(r, client, PAWL_OP_INSPECT, 0, slow->name_state->name);
    r->finish = told;
    r->op.row = row;
    r->op.row_arg = slow;
    pawl__request_start(r, pawl__now(client) + client->env.timeout_ms * PAWL_NS_PER_MS);
}

/* ---- the warning ----------------------------------------------------------------------------- */

static void set_timer(pawl_client *client, int64_t earliest)
{
    struct hold *next = longest(client);
    int64_t at = next ? next->asked + client->slow.after_ns : 0;

    if (next)
        pawl__timers_set(&client->timers, &client->slow.timer, at > earliest ? at : earliest);
}

/* Mark the waits of the name. Returns their number. */
static int mark(struct name_state *name_state)
{
    int n = 0;

    for (struct list *l = name_state->holds.next; l != &name_state->holds; l = l->next) {
        struct hold *hold = list_entry(l, struct hold, in_name);

        if (waits(hold)) {
            hold->warned = true;
            n++;
        }
    }
    return n;
}

static void told(struct request *r, int code)
{
    pawl_client *client = r->client;
    struct slow *slow = &client->slow;
    struct name_state *name_state = slow->name_state;
    int64_t now = pawl__now(client);
    const char *words = slow->holder[0] ? slow->holder : "nobody holds it at this moment";
    int n = mark(name_state);

    if (code)
        words = r->err.text[0] ? r->err.text : pawl_strerror(code);
    if (n && client->state == CLIENT_OPEN)
        pawl__log(client, PAWL_LOG_WARNING, "waiting for '%s' for %lld s: %s%s",
                  SHOWN(name_state->name), (long long)((now - slow->asked) / 1000 / PAWL_NS_PER_MS),
                  code ? "can't ask who holds it: " : "", words);
    slow->name_state = NULL;
    pawl__name_put(client, name_state);
    if (client->state == CLIENT_OPEN)
        set_timer(client, now + PACE);
}

static void due(pawl_timer *timer)
{
    pawl_client *client = timer->arg;
    struct hold *hold = longest(client);
    int64_t now = pawl__now(client);

    if (hold && client->state == CLIENT_OPEN && hold->asked + client->slow.after_ns <= now)
        inspect(client, hold);
    else if (client->state == CLIENT_OPEN)
        set_timer(client, now + PACE);
}
