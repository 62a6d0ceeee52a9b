/* SPDX-License-Identifier: Apache-2.0
 *
 * waiting.c - who am I waiting for? One line on the terminal, refreshed every second.
 *
 * Only on a terminal: the output of a cron job stays empty. -v writes it once as a plain line. Who
 * waits without end for a server, and is not heard, is told once, and once more when the server
 * answers. In all other cases nothing is asked and nothing wakes up.
 *
 * A question to a service that is silent takes a timeout. So nothing is asked any more when the end
 * of the wait (-w) is that near.
 */
#include <string.h>
#include <unistd.h>

#include "group.h"
#include "hold.h"

#define ASK_MS 2500

typedef struct holder {
    const tool *tool;
    char text[400];
    uint64_t ahead;
    bool me_seen;
} holder;

/* "held by pid 4711 (make) on box for 12 s" */
static void first_holder(holder *h, const pawl_info *info)
{
    const char *label = info->label && *info->label ? info->label : info->program;
    const char *host = info->host ? info->host : "";
    char time[32] = "", pid[80] = "";

    if (left_over(info)) {
        snprintf(h->text, sizeof h->text, "kept by --at-least for another %s",
                 duration_text(time, sizeof time, info->lease_ms));
        return;
    }
    if (info->since_ms >= 0)
        duration_text(time, sizeof time, info->since_ms);
    if (info->pid)
        snprintf(pid, sizeof pid, " pid %lld", (long long)info->pid);
    else if (info->owner && *info->owner)
        snprintf(pid, sizeof pid, " %.70s", info->owner);
    snprintf(h->text, sizeof h->text, "held by%s%s%.80s%s%s%.80s%s%s",
             *pid ? pid : " an unknown process", label && *label ? " (" : "", label ? label : "",
             label && *label ? ")" : "", *host ? " on " : "", host, *time ? " for " : "", time);
}

/* The first holder, and how many wait before this process. */
static int row(void *arg, const pawl_info *info)
{
    holder *h = arg;

    if (info->role == PAWL_ROLE_WAITER) {
        h->me_seen |= info->pid == getpid();
        h->ahead += !h->me_seen;
    } else if (info->role == PAWL_ROLE_HOLDER && !h->text[0]) {
        first_holder(h, info);
    }
    return 0;
}

/* What is to be said of the wait. If the service can't tell who holds it, then why; if nobody does,
 * the last trouble that the library knows of. */
static void describe(hold *h, char *buf, size_t size, const char *prefix)
{
    char age[32], ahead[48] = "";
    holder who = {.tool = h->tool};
    pawl_error err = {0};

    err.code = pawl_inspect(h->client, h->options->name, row, &who, &err);
    h->silent = err.code && err.code != PAWL_ENOTSUP;
    if (h->silent)
        snprintf(who.text, sizeof who.text, "%s", err.text[0] ? err.text : pawl_strerror(err.code));
    else if (!who.text[0])
        last_warning(who.text, sizeof who.text);
    if (who.ahead)
        snprintf(ahead, sizeof ahead, ", %llu ahead", (unsigned long long)who.ahead);
    duration_text(age, sizeof age, (boot_now() - h->waiting_since) / 1000000);
    snprintf(buf, size, "%s '%s' after %s%s%s%s", prefix, h->options->name, age,
             who.text[0] ? ": " : "", who.text, ahead);
}

static bool ends_soon(const hold *h)
{
    return h->options->wait_ms > 0 &&
           h->waiting_since + (h->options->wait_ms - ASK_MS) * 1000000 < boot_now();
}

static void refresh(task *t)
{
    char line[900];

    if (ends_soon((hold *)t))
        return;
    describe((hold *)t, line, sizeof line, "waiting for");
    status_line(line);
}

/* Again only if the service did not answer: what comes later, the library warns of. */
static void say_once(task *t)
{
    hold *h = (hold *)t;
    bool silent = h->silent;
    char line[900];

    if (ends_soon(h))
        return;
    describe(h, line, sizeof line, "waiting for");
    if (!silent || !h->silent)
        say("%s", line);
    if (!h->silent)
        t->second = NULL;
}

/* Without -v: only that the service is silent, and that this is over. */
static void say_silence(task *t)
{
    hold *h = (hold *)t;
    bool silent = h->silent;
    char line[900];

    describe(h, line, sizeof line, "waiting for");
    if (h->silent && !silent)
        say("%s; trying on", line);
    else if (!h->silent && silent)
        say("the service of '%s' answers again", h->options->name);
    if (!h->silent)
        t->second = NULL;
}

void (*waiting_tick(const hold *h))(task *)
{
    if (!h->options->wait_ms)
        return NULL; /* one try is no wait */
    if (isatty(STDERR_FILENO))
        return refresh;
    if (h->tool->verbose)
        return say_once;
    return h->options->wait_ms < 0 && !service_is_here() ? say_silence : NULL;
}

void waiting_say(hold *h, const char *prefix)
{
    char line[900];

    describe(h, line, sizeof line, prefix);
    say("%s", line);
}
