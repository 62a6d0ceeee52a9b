/* SPDX-License-Identifier: Apache-2.0
 *
 * http.c - the URLs, and the headers of every response.
 *
 * Requests whose Host header is not a name of this server are refused: otherwise a page of another
 * site could, with a DNS name that resolves to 127.0.0.1, read the locks through a visitor's
 * browser (DNS rebinding). Scripts and styles come from this server alone
 * (Content-Security-Policy), and nothing that a lock's name or label contains is ever put into HTML
 * here: the page gets JSON.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../view.h"
#include "serve.h"

static const char *const headers[][2] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cache-Control", "no-store"},
};

void http_headers(struct MHD_Response *response, const char *type)
{
    MHD_add_response_header(response, "Content-Type", type);
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        MHD_add_response_header(response, headers[i][0], headers[i][1]);
}

static int queue(struct MHD_Connection *connection, unsigned status, const char *type,
                 struct MHD_Response *response)
{
    int result;

    if (!response)
        return MHD_NO;
    http_headers(response, type);
    if (status == 405)
        MHD_add_response_header(response, "Allow", "GET, HEAD");
    if (status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    result = (int)MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

int http_reply(struct MHD_Connection *connection, unsigned status, const char *type, char *data,
               size_t length)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(length, data, MHD_RESPMEM_MUST_FREE);

    if (!response)
        free(data);
    return queue(connection, status, type, response);
}

int http_json(struct MHD_Connection *connection, unsigned status, text *t)
{
    if (!text_close(t))
        return MHD_NO;
    return http_reply(connection, status, "application/json; charset=utf-8", t->data, t->length);
}

int http_message(struct MHD_Connection *connection, unsigned status, const char *format, ...)
{
    char words[1024];
    va_list args;
    text t;

    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    if (!text_open(&t))
        return MHD_NO;
    fputs("{\"message\":", t.out);
    json_string(t.out, words);
    fputs("}\n", t.out);
    return http_json(connection, status, &t);
}

/* ---- access checks --------------------------------------------------------------------------- */

bool http_host_ok(const board *b, const char *authority)
{
    size_t length = authority[0] == '[' ? strcspn(authority, "]") + 1 : strcspn(authority, ":/");

    if (length > strlen(authority))
        return false;
    for (size_t i = 0; i < b->nhosts; i++)
        if (strlen(b->hosts[i]) == length && !strncasecmp(b->hosts[i], authority, length))
            return true;
    return false;
}

/* ---- answers --------------------------------------------------------------------------------- */

static int health(board *b, struct MHD_Connection *connection)
{
    bool ok;
    char words[400] = "";

    pthread_mutex_lock(&b->mutex);
    /* A round may take a timeout or two; if it takes longer, the watcher hangs. */
    ok = b->ok && boot_ms() - b->taken < 3 * b->interval_ms + 4 * b->round_ms + 10000;
    if (!b->ok)
        snprintf(words, sizeof words, "the service does not answer: %s",
                 b->error[0] ? b->error : "not asked yet");
    else if (!ok)
        snprintf(words, sizeof words, "the data is %lld s old",
                 (long long)(boot_ms() - b->taken) / 1000);
    pthread_mutex_unlock(&b->mutex);
    return http_message(connection, ok ? 200 : 503, "%s", ok ? "ok" : words);
}

static int status(board *b, struct MHD_Connection *connection)
{
    text t;

    if (!text_open(&t))
        return MHD_NO;
    putc('{', t.out);
    pthread_mutex_lock(&b->mutex);
    put_state(t.out, b);
    fprintf(t.out, ",\"names\":%zu,\"watchers\":%u,\"round_ms\":%lld}\n", b->names, b->watchers,
            (long long)b->round_ms);
    pthread_mutex_unlock(&b->mutex);
    return http_json(connection, 200, &t);
}

typedef struct listing {
    FILE *out;
    const char *comma;
    int64_t now;
} listing;

static void list_one(void *arg, sight *s)
{
    listing *l = arg;

    fputs(l->comma, l->out);
    put_sight(l->out, s, l->now);
    l->comma = ",\n";
}

static int locks(board *b, struct MHD_Connection *connection)
{
    listing l = {.comma = "", .now = boot_ms()};
    text t;

    if (!text_open(&t))
        return MHD_NO;
    l.out = t.out;
    putc('{', t.out);
    pthread_mutex_lock(&b->mutex);
    put_state(t.out, b);
    fputs(",\"locks\":[", t.out);
    table_each(b, list_one, &l);
    pthread_mutex_unlock(&b->mutex);
    fputs("]}\n", t.out);
    return http_json(connection, 200, &t);
}

/* Send the detail of a lock. If no round has inspected the lock yet, wait up to 10 s for one;
 * without a result "lock" is null. */
static int one_lock(board *b, struct MHD_Connection *connection, const char *name)
{
    struct timespec until;
    detail *d;
    text t;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 10;
    if (!text_open(&t))
        return MHD_NO;
    putc('{', t.out);
    pthread_mutex_lock(&b->mutex);
    d = detail_want(b, name);
    if (d)
        d->watchers++; /* the detail is not reused for another name */
    while (d && !d->json && b->ok && !atomic_load(&b->stop) &&
           !pthread_cond_timedwait(&b->news, &b->mutex, &until))
        ;
    put_state(t.out, b);
    fprintf(t.out, ",\"lock\":%s}\n", d && d->json ? d->json : "null");
    if (d)
        d->watchers--;
    pthread_mutex_unlock(&b->mutex);
    return http_json(connection, d ? 200 : 503, &t);
}

static int past_times(board *b, struct MHD_Connection *connection, const char *name)
{
    past *p;
    text t;

    if (!text_open(&t))
        return MHD_NO;
    putc('{', t.out);
    pthread_mutex_lock(&b->mutex);
    p = name ? past_of(b, name, false) : NULL;
    past_json(p ? &p->h : name ? NULL : &b->all, t.out, boot_ms());
    pthread_mutex_unlock(&b->mutex);
    fputs("}\n", t.out);
    return http_json(connection, 200, &t);
}

static int metrics(board *b, struct MHD_Connection *connection)
{
    const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept");
    bool open = accept && strstr(accept, "application/openmetrics-text");
    text t;

    if (!metrics_text(b, open, &t))
        return MHD_NO;
    return http_reply(connection, 200,
                      open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                           : "text/plain; version=0.0.4; charset=utf-8",
                      t.data, t.length);
}

static int page(struct MHD_Connection *connection, const char *url)
{
    if (!strcmp(url, "/lock"))
        url = "/";
    for (const asset *a = assets; a->url; a++)
        if (!strcmp(a->url, url))
            return queue(connection, 200, a->type,
                         MHD_create_response_from_buffer(a->length,
                                                         (void *)(uintptr_t)a->data,
                                                         MHD_RESPMEM_PERSISTENT));
    return http_message(connection, 404, "no such page");
}

static int get(board *b, struct MHD_Connection *connection, const char *url)
{
    const char *name = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "name");

    if (!strcmp(url, "/healthz"))
        return health(b, connection);
    if (!strcmp(url, "/metrics"))
        return metrics(b, connection);
    if (!strcmp(url, "/api/v1/status"))
        return status(b, connection);
    if (!strcmp(url, "/api/v1/locks"))
        return locks(b, connection);
    if (!strcmp(url, "/api/v1/history"))
        return past_times(b, connection, name);
    if (!strcmp(url, "/api/v1/events"))
        return http_events(b, connection, name);
    if (strcmp(url, "/api/v1/lock"))
        return page(connection, url);
    if (!name || !*name || strlen(name) > 255)
        return http_message(connection, 400, "give name, of 1 to 255 bytes");
    return one_lock(b, connection, name);
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **state)
{
    static int begun;
    board *b = arg;
    const char *host;
    int result;

    (void)version;
    (void)upload;
    if (!*state) { /* headers only so far; a body may follow, which no request needs */
        *state = &begun;
        return MHD_YES;
    }
    if (*upload_size) {
        *upload_size = 0;
        return MHD_YES;
    }
    host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    if (!host || !http_host_ok(b, host))
        result = http_message(connection, 421, "this server does not answer to the name '%.100s'; "
                              "start pawl serve with --host NAME to allow it", host ? host : "");
    else if (!strcmp(url, "/api/v1/break") && !strcmp(method, "POST"))
        result = http_break(b, connection);
    else if (!strcmp(method, "GET") || !strcmp(method, "HEAD"))
        result = get(b, connection, url);
    else
        result = http_message(connection, 405, "only GET is possible here");
    return result == MHD_YES ? MHD_YES : MHD_NO;
}

/* ---- starting -------------------------------------------------------------------------------- */

typedef union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} address;

/* "8080", "127.0.0.1:8080", "[::1]:8080". */
static bool parse_address(const char *listen, address *ret, char *host, size_t size)
{
    const char *colon = strrchr(listen, ':'), *port = colon ? colon + 1 : listen;
    size_t length = colon ? (size_t)(colon - listen) : 0;
    char *end;
    long number = strtol(port, &end, 10);

    memset(ret, 0, sizeof *ret);
    if (!*port || *port < '0' || *port > '9' || *end || number > 65535 || length >= size)
        return false;
    memcpy(host, listen, length);
    host[length] = '\0';
    if (!colon)
        snprintf(host, size, "127.0.0.1");
    if (host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = '\0';
        ret->v6.sin6_family = AF_INET6;
        ret->v6.sin6_port = htons((uint16_t)number);
        length = (size_t)inet_pton(AF_INET6, host + 1, &ret->v6.sin6_addr);
        host[strlen(host) + 1] = '\0';
        host[strlen(host)] = ']';
        return length == 1;
    }
    ret->v4.sin_family = AF_INET;
    ret->v4.sin_port = htons((uint16_t)number);
    return inet_pton(AF_INET, host, &ret->v4.sin_addr) == 1;
}

static bool is_loopback(const address *a)
{
    if (a->any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
    return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
}

struct MHD_Daemon *http_start(board *b, const char *listen, char *url, size_t size)
{
    address a;
    char host[64];
    struct MHD_Daemon *daemon;
    const union MHD_DaemonInfo *info;
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD;

    if (!parse_address(listen, &a, host, sizeof host)) {
        say("'%s' is no address to listen on; write 8080, 127.0.0.1:8080 or [::1]:8080", listen);
        errno = 0;
        return NULL;
    }
    if (a.any.sa_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    if (!is_loopback(&a))
        say("'%s' can be reached from other machines, which can read all names of locks; put a "
            "proxy with TLS and a login in front", listen);
    if (b->nhosts < sizeof b->hosts / sizeof b->hosts[0])
        b->hosts[b->nhosts++] = strdup(host);
    daemon = MHD_start_daemon(flags, 0, NULL, NULL, answer, b, MHD_OPTION_SOCK_ADDR, &a.any,
                              MHD_OPTION_CONNECTION_LIMIT, 200u, MHD_OPTION_CONNECTION_TIMEOUT,
                              30u, MHD_OPTION_THREAD_STACK_SIZE, (size_t)512 * 1024,
                              MHD_OPTION_END);
    info = daemon ? MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT) : NULL;
    snprintf(url, size, "http://%s:%u/", host, info ? (unsigned)info->port : 0);
    return daemon;
}

void http_stop(struct MHD_Daemon *daemon)
{
    MHD_stop_daemon(daemon);
}

const char *view_web_library(void)
{
    static char library[64];

    snprintf(library, sizeof library, "libmicrohttpd %s", MHD_get_version());
    return library;
}
