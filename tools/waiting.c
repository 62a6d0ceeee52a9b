/* SPDX-License-Identifier: Apache-2.0
 *
 * waiting.c - shows the holder of the lock during a wait.
 *
 * On a terminal, one line is refreshed every second. Otherwise an ordinary line is printed once,
 * after --warn-after (30 seconds), or at once with -v. If a wait without a timeout meets a server
 * that does not answer, this is reported once, and once more when the server answers. In all other
 * cases the service is not asked, and no timer runs.
 *
 * A request to a service that does not answer takes a whole timeout. So the service is not asked
 * any more when the wait (-w) ends sooner than that.
 */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "run_hold.h"
#include "table.h"

#define ASK_MS 2500

typedef struct holder {
    const tool *tool;
    char text[480];
    char host[256];     /* the host of this process */
    uint64_t ahead, all; /* waiters before this process; all waiters */
    bool me_seen;
} holder;

/* ", since 14:03:22", or with the date if that was not today. */
static void since_text(char *buf, size_t size, int64_t ms)
{
    time_t now = time(NULL), then = now - (time_t)(ms / 1000);
    struct tm a, b;

    buf[0] = '\0';
    if (ms >= 0 && localtime_r(&now, &a) && localtime_r(&then, &b))
        strftime(buf, size,
                 a.tm_yday == b.tm_yday && a.tm_year == b.tm_year ? ", since %T"
                                                                  : ", since %F %T", &b);
}

/* "held by pid 4711 (make) on box for 12 s, since 14:03:22" */
static void first_holder(holder *h, const pawl_info *info)
{
    char text[400], time[48];

    if (left_over(info)) {
        snprintf(h->text, sizeof h->text, "kept by --at-least for another %s",
                 duration_text(time, sizeof time, info->lease_ms));
        return;
    }
    since_text(time, sizeof time, info->since_ms);
    snprintf(h->text, sizeof h->text, "held by %s%s", client_info_text(info, text, sizeof text),
             time);
}

/* A row of pawl_inspect: keep the first holder, and count the waiters before this process. */
static int row_told(void *arg, const pawl_info *info)
{
    holder *h = arg;

    if (info->role == PAWL_ROLE_WAITER) {
        h->me_seen |= info->pid == getpid() && !strcmp(info->host, h->host);
        h->ahead += !h->me_seen;
        h->all++;
    } else if (info->role == PAWL_ROLE_HOLDER && !h->text[0]) {
        first_holder(h, info);
    }
    return 0;
}

/* ", place 2 of 3"; if this process is not among the waiters: ", 3 waiting". */
static void place_text(const holder *h, char *buf, size_t size)
{
    buf[0] = '\0';
    if (h->me_seen)
        snprintf(buf, size, ", place %llu of %llu", (unsigned long long)h->ahead + 1,
                 (unsigned long long)h->all);
    else if (h->all)
        snprintf(buf, size, ", %llu waiting", (unsigned long long)h->all);
}

/* The library's text begins with "'NAME': ", and the line names the lock already. */
static const char *without_name(const pawl_error *err)
{
    const char *end = err->text[0] == '\'' ? strstr(err->text, "': ") : NULL;

    return end ? end + 3 : err->text[0] ? err->text : pawl_strerror(err->code);
}

/* Describe the wait. If the service can't name the holder, give the reason; if there is no holder,
 * give the last warning of the library. */
static void describe(hold *h, char *buf, size_t size, const char *prefix)
{
    char age[32], place[64];
    holder found = {.tool = h->tool};
    pawl_error err = {0};

    gethostname(found.host, sizeof found.host - 1);
    err.code = pawl_inspect(h->client, h->options->name, row_told, &found, &err);
    h->silent = err.code && err.code != PAWL_ENOTSUP;
    if (h->silent)
        snprintf(found.text, sizeof found.text, "%s", without_name(&err));
    else if (!found.text[0])
        last_warning(found.text, sizeof found.text);
    place_text(&found, place, sizeof place);
    duration_text(age, sizeof age, (boot_now() - h->waiting_since) / 1000000);
    snprintf(buf, size, "%s '%s' after %s%s%s%s", prefix, h->options->name, age, place,
             found.text[0] ? ": " : "", found.text);
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

/* With -v: print the holder once. If the service does not answer, say this once, and print the
 * holder as soon as the service answers. */
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

static void say_late(task *t)
{
    hold *h = (hold *)t;
    char line[900];

    t->second = NULL;
    if (ends_soon(h))
        return;
    describe(h, line, sizeof line, "still waiting for");
    say("%s", line);
}

/* Schedule the line of --warn-after, unless the wait ends before. */
static void late_next(hold *h)
{
    const run_options *o = h->options;
    int64_t waited = (boot_now() - h->waiting_since) / 1000000;
    bool ends_before = o->wait_ms > 0 && o->wait_ms <= o->warn_after_ms;

    h->call.task.second = o->warn_after_ms && !ends_before ? say_late : NULL;
    h->call.task.pause_ms = o->warn_after_ms > waited ? o->warn_after_ms - waited : 1;
}

/* Without -v: say only that the service does not answer, and later that it answers again. */
static void say_silence(task *t)
{
    hold *h = (hold *)t;
    bool silent = h->silent;
    char line[900];

    describe(h, line, sizeof line, "waiting for");
    if (h->silent && !silent)
        say("%s; retrying (-w limits the wait)", line);
    else if (!h->silent && silent)
        say("the service of '%s' answers again", h->options->name);
    if (!h->silent)
        late_next(h);
}

void waiting_begin(hold *h)
{
    task *t = &h->call.task;

    if (!h->options->wait_ms)
        return; /* a single try does not wait */
    if (isatty(STDERR_FILENO))
        t->second = refresh;
    else if (h->tool->verbose)
        t->second = say_once;
    else if (h->options->wait_ms < 0 && !service_is_here())
        t->second = say_silence;
    else
        late_next(h);
}

void waiting_say(hold *h, const char *prefix)
{
    char line[900];

    describe(h, line, sizeof line, prefix);
    say("%s", line);
}
