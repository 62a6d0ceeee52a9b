/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_top.c - pawl top: locks on a full screen, live.
 *
 * The main thread draws and waits in poll(2) for keys, signals and answers; the feed's thread talks
 * to the service. Signals are blocked in all threads and read from a descriptor. The only signal
 * handler is the one that gives the terminal back after a crash (screen.c).
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <wchar.h>

#include "screen.h"
#include "top.h"
#include "view.h"

#define DEFAULT_INTERVAL_MS 2000
#define LEAST_INTERVAL_MS 100
#define CLOCK_MS 1000 /* redraw: ages and the time of day change without answers, too */

/* ---- Keys ---------------------------------------------------------------------------------- */

static const char *chosen(const top *t)
{
    return t->mode == MODE_LOCK ? t->name : t->nshown ? t->shown[t->at]->info.name : NULL;
}

static void open_lock(top *t)
{
    const char *name = chosen(t);

    if (!name)
        return;
    snprintf(t->name, sizeof t->name, "%s", name);
    rows_free(&t->open);
    t->opened = 0;
    t->scroll = 0;
    t->mode = MODE_LOCK;
    t->next = 0;
}

static void close_lock(top *t)
{
    t->mode = MODE_LIST;
    t->next = 0;
}

static void begin_break(top *t)
{
    const char *name = chosen(t);

    if (!name || t->want_victim || t->want_break)
        return;
    snprintf(t->victim, sizeof t->victim, "%s", name);
    t->want_victim = true;
}

static void set_order(top *t, enum row_order order)
{
    t->order = order;
    t->at = t->first = 0; /* a new order is shown from the top */
    t->chosen[0] = '\0';
    top_arrange(t);
}

static void set_interval(top *t, int64_t ms)
{
    t->interval_ms = ms < LEAST_INTERVAL_MS ? LEAST_INTERVAL_MS : ms > 60000 ? 60000 : ms;
    t->next = top_now() + t->interval_ms;
}

/* Handle keys that work both in the list and in the view of one lock. Returns whether `key` was
 * such a key. */
static bool common_key(top *t, int key)
{
    int64_t page = (int64_t)top_page(t);

    switch (key) {
    case 'q':
        t->quit = STATUS_OK;
        return true;
    case '?':
    case 'h':
        t->before = t->mode;
        t->mode = MODE_HELP;
        return true;
    case 'b':
        begin_break(t);
        return true;
    case ' ':
        t->next = 0;
        return true;
    case '+':
    case '-':
        set_interval(t, key == '+' ? t->interval_ms * 2 : t->interval_ms / 2);
        return true;
    case KEY_IS_UP:
    case 'k':
    case KEY_IS_DOWN:
    case 'j':
        top_move(t, key == KEY_IS_UP || key == 'k' ? -1 : 1);
        return true;
    case KEY_IS_PAGE_UP:
    case KEY_IS_PAGE_DOWN:
        top_move(t, key == KEY_IS_PAGE_UP ? -page : page);
        return true;
    case KEY_IS_HOME:
    case KEY_IS_END:
        top_move(t, key == KEY_IS_HOME ? -INT32_MAX : INT32_MAX);
        return true;
    default:
        return false;
    }
}

static void list_key(top *t, int key)
{
    static const char orders[] = "nwlae"; /* as enum row_order */
    const char *order = key > 0 && key < 128 ? strchr(orders, key) : NULL;

    if (common_key(t, key))
        return;
    if (key == KEY_IS_ENTER) {
        open_lock(t);
    } else if (key == '/') {
        memcpy(t->old_filter, t->filter, sizeof t->filter);
        t->mode = MODE_FILTER;
    } else if (key == 's') {
        set_order(t, (t->order + 1) % ROW_ORDERS);
    } else if (key == 'r') {
        t->reversed = !t->reversed;
        set_order(t, t->order);
    } else if (order) {
        set_order(t, (enum row_order)(order - orders));
    } else if (key == KEY_IS_ESCAPE && *t->filter) {
        t->filter[0] = '\0';
        top_arrange(t);
    }
}

/* Edit typed text: append one whole character, or delete the last one. */
static void edit(char *text, size_t size, int key)
{
    size_t n = strlen(text);
    char more[16];
    mbstate_t state = {0};
    size_t length = key > 0 ? wcrtomb(more, (wchar_t)key, &state) : (size_t)-1;

    if (key == KEY_IS_BACK && n) {
        while (--n && ((unsigned char)text[n] & 0xc0) == 0x80)
            ;
        text[n] = '\0';
    } else if (key >= ' ' && length != (size_t)-1 && n + length < size) {
        memcpy(text + n, more, length);
        text[n + length] = '\0';
    }
}

static void filter_key(top *t, int key)
{
    if (key == KEY_IS_ENTER) {
        t->mode = MODE_LIST;
        return;
    }
    if (key == KEY_IS_ESCAPE) {
        memcpy(t->filter, t->old_filter, sizeof t->filter);
        t->mode = MODE_LIST;
    } else {
        edit(t->filter, sizeof t->filter, key);
    }
    top_arrange(t);
}

static void confirm_key(top *t, int key)
{
    if (key == 'y' || key == 'Y')
        t->want_break = true;
    else
        snprintf(t->notice, sizeof t->notice, "not broken");
    t->mode = t->before;
}

static void on_key(top *t, int key)
{
    if (key == KEY_IS_OTHER)
        return;
    t->notice[0] = '\0';
    switch (t->mode) {
    case MODE_LIST:
        list_key(t, key);
        break;
    case MODE_LOCK:
        if (!common_key(t, key) && (key == KEY_IS_ESCAPE || key == KEY_IS_BACK))
            close_lock(t);
        break;
    case MODE_FILTER:
        filter_key(t, key);
        break;
    case MODE_CONFIRM:
        confirm_key(t, key);
        break;
    case MODE_HELP:
        t->mode = t->before;
        break;
    }
}

/* ---- The loop ------------------------------------------------------------------------------ */

/* Block signals before any thread is made. A signal that the caller ignores (nohup) stays
 * ignored. Returns a descriptor, or -1 with errno. */
static int signals_fd(void)
{
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    struct sigaction action;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCONT);
    sigaddset(&set, SIGWINCH);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++)
        if (!sigaction(ending[i], NULL, &action) && action.sa_handler != SIG_IGN)
            sigaddset(&set, ending[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Returns whether the screen must be drawn anew. The terminal is taken again only after all signals
 * have been read: `kill %1` in a shell sends SIGTERM and SIGCONT to a stopped job. */
static bool read_signals(top *t, int fd)
{
    struct signalfd_siginfo info;
    bool again = false;

    while (read(fd, &info, sizeof info) == sizeof info) {
        int n = (int)info.ssi_signo;

        if (n != SIGTSTP && n != SIGCONT && n != SIGWINCH)
            t->quit = STATUS_SIGNAL + n;
        else if (n == SIGTSTP && t->quit < 0)
            screen_stop(SIGTSTP);
        again = true;
    }
    return again;
}

/* A process that was continued in the background (`bg`) stops again, as any program does that wants
 * the terminal. If the process can't be stopped because its shell is gone, the process exits. */
static void on_signals(top *t, int fd)
{
    bool again = read_signals(t, fd);

    while (again && t->quit < 0 && !screen_again()) {
        screen_stop(SIGTTOU);
        again = read_signals(t, fd);
        if (!again)
            t->quit = STATUS_SIGNAL + SIGHUP;
    }
}

static void loop(top *t, int signals)
{
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = signals, .events = POLLIN},
                           {.fd = t->feed.event, .events = POLLIN}};

    while (t->quit < 0) {
        int64_t left;
        int key;

        top_ask(t);
        top_draw(t);
        left = t->feed.busy ? CLOCK_MS : t->next - top_now();
        left = left > CLOCK_MS ? CLOCK_MS : left < 0 ? 0 : left;
        poll(fds, 3, (int)left);
        on_signals(t, signals);
        while (t->quit < 0 && (key = screen_key()) != KEY_NONE)
            on_key(t, key);
        if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL) && t->quit < 0)
            t->quit = STATUS_SIGNAL + SIGHUP; /* the terminal is gone */
        top_take(t);
    }
}

/* ---- The command --------------------------------------------------------------------------- */

/* The URL for the screen, without parts that may be secret. */
static void set_service(top *t)
{
    const char *url = service_url(t->tool);
    const char *at = strrchr(url, '@');

    if (!url_has_password(url) && !at)
        snprintf(t->service, sizeof t->service, "%.*s", (int)strcspn(url, "?"), url);
    else if (at && !strchr(at, ';') && !strchr(at, ','))
        snprintf(t->service, sizeof t->service, "%.*s//%.*s", (int)strcspn(url, "/"), url,
                 (int)strcspn(at + 1, "?"), at + 1);
    else
        snprintf(t->service, sizeof t->service, "%.*s", (int)strcspn(url, ":/") + 1, url);
}

static int parse_options(tool *t, top *p, int argc, char **argv)
{
    static const struct option longs[] = {{"interval", required_argument, NULL, 'i'}, COMMON_LONG};
    int c;

    while ((c = option_next(t, argc, argv, COMMON_SHORT "i:", longs)) != OPT_DONE) {
        if (c == OPT_BAD || c == OPT_HELP)
            return c;
        if (!duration_parse(optarg, &p->interval_ms) || p->interval_ms < LEAST_INTERVAL_MS) {
            usage_error(t, "'%s' is no interval of 100ms or more; write for example 5s", optarg);
            return OPT_BAD;
        }
    }
    if (t->json) {
        usage_error(t, "a screen has no JSON; see 'pawl ls --json'");
        return OPT_BAD;
    }
    if (argc - optind > 1) {
        usage_error(t, "one PATTERN at a time, in quotes");
        return OPT_BAD;
    }
    return OPT_DONE;
}

static int run(top *t, int signals)
{
    const char *why = screen_open();

    if (why)
        return usage_error(t->tool, "%s", why);
    if (isatty(STDERR_FILENO))
        say_nothing(true);
    loop(t, signals);
    screen_close();
    say_nothing(false);
    return t->quit;
}

/* Don't let the user wait for an answer that does not come: exit without closing the client
 * then. */
static int finish(top *t, int status)
{
    bool closed = feed_close(&t->feed);

    if (!closed) {
        fflush(NULL);
        _exit(status);
    }
    rows_free(&t->all);
    rows_free(&t->open);
    rows_free(&t->shown_victim);
    free(t->shown);
    return status;
}

int view_top(tool *tl, int argc, char **argv)
{
    top t = {.tool = tl, .interval_ms = DEFAULT_INTERVAL_MS, .quit = -1, .order = BY_WAITERS,
             .columns = {{"NAME", CELL_NAME, false, 12, 0}, {"STATE", CELL_STATE, false, 0, 0},
                         {"WAIT", CELL_WAITERS, true, 0, 0}, {"OLDEST", CELL_WAIT, true, 0, 0},
                         {"SINCE", CELL_SINCE, true, 0, 0}, {"LEASE", CELL_LEASE, true, 0, 0},
                         {"TOKEN", CELL_TOKEN, true, 0, 0}, {"HOST", CELL_HOST, false, 6, 0},
                         {"HOLDER", CELL_HOLDER, false, 8, 0}}};
    int opt = parse_options(tl, &t, argc, argv), status, signals, error;
    pawl_client_options options = {.label = operator_name()};
    pawl_client *client;

    if (opt != OPT_DONE)
        return opt == OPT_HELP ? STATUS_OK : STATUS_USAGE;
    t.pattern = argv[optind] ? argv[optind] : "";
    text_locale(false);
    set_service(&t);
    screen_await();
    signals = signals_fd();
    status = client_open(tl, &client, &options);
    if (status)
        return status;
    error = signals < 0 ? errno : feed_open(&t.feed, client);
    if (error) {
        say("can't start: %s", strerror(error));
        pawl_close(client);
        return STATUS_SYSTEM;
    }
    status = finish(&t, run(&t, signals));
    close(signals);
    return status;
}
