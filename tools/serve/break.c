/* SPDX-License-Identifier: Apache-2.0
 *
 * break.c - POST /api/v1/break: the one request that changes something.
 *
 * A break needs --allow-break, the token that pawl serve printed or read, and the fencing token of
 * the hold that the operator saw: a lock that has changed hands in the meantime is not broken.
 * (Between the inspection and the break the lock may still change hands; engines have no break that
 * compares tokens.) Every break is reported on the standard error.
 */
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netdb.h>

#include "serve.h"

static const char *argument(struct MHD_Connection *connection, const char *key)
{
    return MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, key);
}

/* Compare two strings in a time that does not depend on where they differ. */
static bool equal_secret(const char *a, const char *b)
{
    size_t n = strlen(b), length = strlen(a);
    unsigned char differ = n != length;

    for (size_t i = 0; i < n; i++)
        differ |= (unsigned char)((i < length ? a[i] : 0) ^ b[i]);
    return !differ;
}

static bool has_token(const board *b, struct MHD_Connection *connection)
{
    const char *given =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");

    return given && !strncmp(given, "Bearer ", 7) && b->token[0] &&
           equal_secret(given + 7, b->token);
}

/* Check the Origin header, in which a browser names the site of the page that sends the request. */
static bool origin_ok(const board *b, struct MHD_Connection *connection)
{
    const char *origin = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Origin");
    const char *host = origin ? strstr(origin, "://") : NULL;

    return !origin || (host && http_host_ok(b, host + 3));
}

typedef struct victim {
    uint64_t holders, token;
    char client_info[200];
} victim;

static int see_holder(void *arg, const pawl_info *info)
{
    victim *v = arg;
    const char *label = info->label && *info->label ? info->label : info->program;

    if (info->role != PAWL_ROLE_SUMMARY)
        return 0;
    v->holders = info->holders;
    v->token = info->token;
    snprintf(v->client_info, sizeof v->client_info, "%.80s%spid %lld on %.80s", label ? label : "",
             label && *label ? ", " : "", (long long)info->pid, info->host ? info->host : "");
    return 0;
}

static int break_it(pawl_client *client, const char *name, pawl_error *err)
{
    pawl_lock *lock;
    int code = pawl_lock_new(&lock, client, name, NULL, err);

    if (code)
        return code;
    code = pawl_lock_break(lock, err);
    pawl_lock_free(lock);
    return code;
}

static void report(struct MHD_Connection *connection, const char *name, const victim *v)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char from[NI_MAXHOST] = "?";

    if (info && info->client_addr)
        getnameinfo(info->client_addr, info->client_addr->sa_family == AF_INET6 ? 28 : 16, from,
                    sizeof from, NULL, 0, NI_NUMERICHOST);
    say("broke '%s' (%s, token %llu), asked for by %s", name, v->client_info,
        (unsigned long long)v->token, from);
}

static int failure(struct MHD_Connection *connection, const pawl_error *err)
{
    const char *words = err->text[0] ? err->text : pawl_strerror(err->code);

    if (err->code == PAWL_ENOTHELD)
        return http_message(connection, 409, "nobody holds it");
    return http_message(connection, err->code == PAWL_EINVAL          ? 400
                                    : status_of(err->code) == STATUS_SERVICE ? 502
                                                                             : 409,
                        "%s", words);
}

static int break_named(board *b, struct MHD_Connection *connection, const char *name,
                       uint64_t expected)
{
    pawl_error err = {0};
    victim v = {0};

    err.code = pawl_inspect(b->client, name, see_holder, &v, &err);
    if (err.code)
        return failure(connection, &err);
    if (!v.holders)
        return http_message(connection, 409, "nobody holds it");
    if (v.token != expected)
        return http_message(connection, 409,
                            "another hold than the one shown: its token is %llu, not %llu",
                            (unsigned long long)v.token, (unsigned long long)expected);
    err.code = break_it(b->client, name, &err);
    if (err.code)
        return failure(connection, &err);
    report(connection, name, &v);
    pthread_mutex_lock(&b->mutex);
    b->breaks++;
    pthread_mutex_unlock(&b->mutex);
    return http_message(connection, 200, "broken; it was held by %s", v.client_info);
}

int http_break(board *b, struct MHD_Connection *connection)
{
    const char *name = argument(connection, "name");
    const char *expected = argument(connection, "holder_token");
    char *end;
    uint64_t token;
    bool opened;

    if (!b->allow_break)
        return http_message(connection, 403, "read-only; start pawl serve with --allow-break");
    if (!origin_ok(b, connection))
        return http_message(connection, 403, "a page of another site must not do this");
    if (!has_token(b, connection))
        return http_message(connection, 401, "the token is missing or wrong; send 'Authorization: "
                            "Bearer TOKEN' with the token of pawl serve");
    token = expected ? strtoull(expected, &end, 10) : 0;
    if (!name || !*name || !expected || !*expected || *end)
        return http_message(connection, 400, "give name and holder_token, the fencing token of the "
                            "hold to break");
    pthread_mutex_lock(&b->mutex);
    opened = b->client != NULL;
    pthread_mutex_unlock(&b->mutex);
    if (!opened)
        return http_message(connection, 502, "the service can't be reached");
    return break_named(b, connection, name, token);
}
