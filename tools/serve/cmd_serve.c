/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_serve.c - pawl serve: options, start, and the end by a signal.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "../await.h"
#include "../view.h"
#include "serve.h"

#define DEFAULT_LISTEN "127.0.0.1:7295"
#define MIN_INTERVAL_MS 250
#define MAX_INTERVAL_MS 60000
#define MIN_TOKEN 16

enum { OPT_LISTEN = OPT_OWN, OPT_HOST, OPT_INTERVAL, OPT_ALLOW_BREAK, OPT_TOKEN_FILE };

typedef struct serve_options {
    const char *listen, *token_file;
} serve_options;

static int set_option(const tool *t, board *b, serve_options *o, int c)
{
    if (c == OPT_LISTEN)
        o->listen = optarg;
    if (c == OPT_TOKEN_FILE)
        o->token_file = optarg;
    if (c == OPT_ALLOW_BREAK)
        b->allow_break = true;
    if (c == OPT_HOST && b->nhosts < sizeof b->hosts / sizeof b->hosts[0] - 1)
        b->hosts[b->nhosts++] = strdup(optarg);
    else if (c == OPT_HOST)
        return usage_error(t, "too many --host");
    if (c == OPT_INTERVAL &&
        (!duration_parse(optarg, &b->interval_ms) || b->interval_ms < MIN_INTERVAL_MS ||
         b->interval_ms > MAX_INTERVAL_MS))
        return usage_error(t, "'%s' is no interval; write a duration from 250ms to 1m", optarg);
    return 0;
}

static int parse(tool *t, board *b, serve_options *o, int argc, char **argv)
{
    static const struct option longs[] = {
        {"listen", required_argument, NULL, OPT_LISTEN},
        {"host", required_argument, NULL, OPT_HOST},
        {"interval", required_argument, NULL, OPT_INTERVAL},
        {"allow-break", no_argument, NULL, OPT_ALLOW_BREAK},
        {"token-file", required_argument, NULL, OPT_TOKEN_FILE},
        COMMON_LONG};
    int c;

    while ((c = option_next(t, argc, argv, COMMON_SHORT, longs)) != OPT_DONE)
        if (c == OPT_BAD || c == OPT_HELP)
            return c;
        else if (set_option(t, b, o, c))
            return OPT_BAD;
    if (optind < argc) {
        usage_error(t, "'%s' is too much", argv[optind]);
        return OPT_BAD;
    }
    if (o->token_file && !b->allow_break) {
        usage_error(t, "--token-file is of use with --allow-break only");
        return OPT_BAD;
    }
    return OPT_DONE;
}

/* Read the token: the first line of the file. */
static bool read_token(board *b, const char *path)
{
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(b->token, sizeof b->token, f);

    if (f)
        fclose(f);
    b->token[ok ? strcspn(b->token, "\r\n") : 0] = '\0';
    if (strlen(b->token) >= MIN_TOKEN)
        return true;
    say("'%s' must have a token of at least %d characters in its first line", path, MIN_TOKEN);
    return false;
}

static bool make_token(board *b)
{
    unsigned char bytes[16];

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) {
        say("no random numbers: %s", strerror(errno));
        return false;
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(b->token + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

/* Set the URL that people see: without password, user and parameters. */
static void name_service(board *b)
{
    const char *url = service_url(b->tool);

    if (url_has_password(url))
        snprintf(b->service, sizeof b->service, "%.*s", (int)strcspn(url, ":"), url);
    else
        snprintf(b->service, sizeof b->service, "%.*s", (int)strcspn(url, "?"), url);
}

static void wait_for_end(const signals *s)
{
    struct pollfd fd = {.fd = s->fd, .events = POLLIN};
    int n;

    for (;;) {
        poll(&fd, 1, -1);
        while ((n = signals_next(s)))
            if (n == SIGINT || n == SIGTERM || n == SIGHUP || n == SIGQUIT)
                return;
    }
}

static void stop(board *b)
{
    pthread_mutex_lock(&b->mutex);
    atomic_store(&b->stop, true);
    pthread_cond_broadcast(&b->news);
    pthread_mutex_unlock(&b->mutex);
}

static int serve(board *b, const serve_options *o, const signals *s)
{
    struct MHD_Daemon *daemon;
    pthread_t watcher;
    char url[128];

    if (watch_start(b, &watcher)) {
        say("can't start a thread");
        return STATUS_SYSTEM;
    }
    errno = 0;
    daemon = http_start(b, o->listen, url, sizeof url);
    if (daemon) {
        printf("serving %s at %s\n", b->service, url);
        if (b->allow_break && !o->token_file)
            printf("token %s\n", b->token);
        fflush(stdout);
        wait_for_end(s);
    } else if (errno) {
        say("can't listen on '%s': %s", o->listen, strerror(errno));
    }
    stop(b);
    if (daemon)
        http_stop(daemon);
    pthread_join(watcher, NULL);
    return daemon ? STATUS_OK : errno ? STATUS_SYSTEM : STATUS_USAGE;
}

static void end(board *b)
{
    if (b->client)
        pawl_close(b->client);
    table_free(b);
    past_free(b);
    for (size_t i = 0; i < DETAILS; i++)
        free(b->details[i].json);
    for (size_t i = 0; i < b->nhosts; i++)
        free(b->hosts[i]);
    explicit_bzero(b->token, sizeof b->token);
    free(b);
}

/* A wrong URL is an error at once. A service that is down is tried again later. */
static int open_service(board *b)
{
    pawl_client_options options = {.label = operator_name()};
    pawl_error err = {0};

    err.code = client_try(b->tool, &b->client, &options, &err);
    if (!err.code)
        return 0;
    if (status_of(err.code) == STATUS_SERVICE && err.code != PAWL_EAUTH) {
        snprintf(b->error, sizeof b->error, "%s", err.text);
        say("%s; retrying", err.text);
        return 0;
    }
    return failed(b->tool, "can't open the service", &err);
}

int view_serve(tool *t, int argc, char **argv)
{
    serve_options o = {.listen = DEFAULT_LISTEN};
    board *b = calloc(1, sizeof *b);
    signals s;
    int opt, status = STATUS_SYSTEM;

    if (!b)
        return STATUS_SYSTEM;
    *b = (board){.tool = t, .interval_ms = 2000,
                 .hosts = {strdup("localhost"), strdup("127.0.0.1"), strdup("[::1]")},
                 .nhosts = 3};
    opt = parse(t, b, &o, argc, argv);
    if (opt != OPT_DONE) {
        end(b);
        return opt == OPT_HELP ? STATUS_OK : STATUS_USAGE;
    }
    name_service(b);
    if (b->allow_break && !(o.token_file ? read_token(b, o.token_file) : make_token(b)))
        status = STATUS_USAGE;
    else if (signals_open(&s))
        say("no descriptor for signals: %s", strerror(errno));
    else {
        status = open_service(b);
        if (!status)
            status = serve(b, &o, &s);
        signals_close(&s);
    }
    end(b);
    return status;
}
