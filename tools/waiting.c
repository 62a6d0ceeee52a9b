/* SPDX-License-Identifier: Apache-2.0
 *
 * waiting.c - who am I waiting for? One line on the terminal, refreshed every second.
 *
 * Only on a terminal: the output of a cron job stays empty. -v writes it once as a plain line.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "group.h"
#include "hold.h"

#define CLEAR_LINE "\r\033[K"

typedef struct holder {
    char text[400];
    uint64_t ahead;
    bool me_seen;
} holder;

/* "pid 4711 (make) on box for 12 s" from the first holder; the waiters before this process. */
static int row(void *arg, const pawl_info *info)
{
    holder *h = arg;
    char age[32] = "", pid[24] = "";
    const char *label = info->label && *info->label ? info->label : info->program;

    if (info->role == PAWL_ROLE_WAITER) {
        h->me_seen |= info->pid == getpid();
        h->ahead += !h->me_seen;
        return 0;
    }
    if (info->role != PAWL_ROLE_HOLDER || h->text[0])
        return 0;
    if (info->since_ms >= 0)
        duration_text(age, sizeof age, info->since_ms);
    if (info->pid)
        snprintf(pid, sizeof pid, " pid %lld", (long long)info->pid);
    snprintf(h->text, sizeof h->text, "%s%s%.80s%s%s%.80s%s%s", pid, label && *label ? " (" : "",
             label ? label : "", label && *label ? ")" : "", *info->host ? " on " : "", info->host,
             *age ? " for " : "", age);
    return 0;
}

/* The words, escaped. An engine that can't say who holds it leaves just the name. */
static void describe(hold *h, char *buf, size_t size, const char *prefix)
{
    char text[900], age[32], ahead[48] = "";
    holder who = {0};

    pawl_inspect(h->client, h->options->name, row, &who, NULL);
    if (who.ahead)
        snprintf(ahead, sizeof ahead, ", %llu ahead", (unsigned long long)who.ahead);
    duration_text(age, sizeof age, (boot_now() - h->waiting_since) / 1000000);
    snprintf(text, sizeof text, "%s '%s' after %s%s%s%s", prefix, h->options->name, age,
             who.text[0] ? ": held by" : "", who.text, ahead);
    text_copy(buf, size, text);
}

static size_t terminal_width(void)
{
    struct winsize size;

    return !ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col > 1 ? size.ws_col : 80u;
}

void waiting_line(task *t)
{
    hold *h = (hold *)t;
    char line[1024];
    size_t width = terminal_width() - 1; /* the last column would wrap */

    if (!isatty(STDERR_FILENO)) {
        if (h->tool->verbose && !h->line_shown)
            waiting_say(h, "waiting for");
        h->line_shown = true;
        return;
    }
    memcpy(line, "pawl: ", 6);
    describe(h, line + 6, sizeof line - 6, "waiting for");
    if (strlen(line) > width) {
        /* Not inside a character: continuation bytes go with what they continue. */
        while (width && ((unsigned char)line[width] & 0xc0) == 0x80)
            width--;
        line[width] = '\0';
    }
    fprintf(stderr, CLEAR_LINE "%s", line);
    fflush(stderr);
    h->line_shown = true;
}

void waiting_clear(hold *h)
{
    if (h->line_shown && isatty(STDERR_FILENO)) {
        fputs(CLEAR_LINE, stderr);
        fflush(stderr);
    }
    h->line_shown = false;
}

void waiting_say(hold *h, const char *prefix)
{
    char line[1024];

    describe(h, line, sizeof line, prefix);
    say("%s", line);
}
