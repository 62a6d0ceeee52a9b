/* SPDX-License-Identifier: Apache-2.0
 *
 * connect.c - from a host to a connection on which the greeting is out: LOCATING (which host? that
 * is the role's to say), then RESOLVING, then CONNECTING to one address after the other, then
 * SECURING (TLS), then GREETING.
 *
 * The attempt as a whole has env->timeout_ms (link->timer stands at link->attempt_ends), and each
 * address its share of what is left of it: one that does not answer must not keep us from the next.
 * While nobody makes a call nobody may turn the loop; the time of an attempt that was left alone
 * begins anew.
 */
#include <errno.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "redis.h"

#define LEFT_ALONE_MS 50 /* a timer that fires so late: nobody turned the loop */

static void connect_next(redis_link *link);

static void set_timer(redis_link *link, int64_t due)
{
    link->env->timer_set(link->env, &link->timer, due);
}

static void limit_attempt(redis_link *link)
{
    link->attempt_ends = link->env->now(link->env) + link->env->timeout_ms * PAWL_NS_PER_MS;
    set_timer(link, link->attempt_ends);
}

static void greet(redis_link *link)
{
    link->state = LINK_GREETING;
    if (redis_greet(link)) {
        redis_link_drop(link, PAWL_ENOMEM, "out of memory");
        return;
    }
    redis_link_flush(link);
}

/* A connection that failed, or one that was made: the next address, or the next state. */
void redis_link_advance(redis_link *link)
{
    char words[REDIS_WORDS] = "closed by the server";
    socklen_t length = sizeof (int);
    int error = 0, result;

    if (link->state == LINK_CONNECTING) {
        if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
            error = errno;
        if (error) {
            snprintf(link->words, sizeof link->words, "%s", strerror(error));
            redis_link_close_socket(link);
            connect_next(link);
            return;
        }
        net_tls_settings tls = redis_tls_settings(link->settings, link->host);

        link->state = LINK_SECURING;
        set_timer(link, link->attempt_ends);
        if (link->settings->tls &&
            !(link->tls = net_tls_new(link->redis->tls_context, &tls, link->fd))) {
            redis_link_drop(link, PAWL_ENOMEM, "can't set up TLS");
            return;
        }
    }
    result = link->tls ? net_tls_handshake(link->tls, words) : 0;
    if (result == NET_IO_AGAIN)
        redis_link_watch(link);
    else if (result)
        redis_link_drop(link, result == NET_IO_FAILED ? PAWL_EAUTH : PAWL_ECONN, "%s", words);
    else
        greet(link);
}

/* 0, or an errno. */
static int connect_to(redis_link *link, const struct sockaddr *to, socklen_t length)
{
    int error = net_connect(link->env, to, length, &link->fd, &link->poll);

    if (error)
        return error;
    link->poll->data = link;
    link->state = LINK_CONNECTING;
    redis_link_watch(link);
    return 0;
}

/* An equal part of the time for each address that is left. */
static void limit_address(redis_link *link)
{
    int64_t now = link->env->now(link->env), n = 0;

    for (const struct addrinfo *a = link->next_address; a; a = a->ai_next)
        n++;
    set_timer(link, now + (link->attempt_ends - now) / n);
}

static void connect_next(redis_link *link)
{
    while (link->next_address) {
        struct addrinfo *a = link->next_address;
        int error;

        limit_address(link);
        link->next_address = a->ai_next;
        error = connect_to(link, a->ai_addr, a->ai_addrlen);
        if (!error)
            return;
        snprintf(link->words, sizeof link->words, "%s", strerror(error));
        redis_link_close_socket(link);
    }
    redis_link_drop(link, PAWL_ECONN, "%.*s", REDIS_WORDS, link->words);
}

static void connect_unix(redis_link *link)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int error;

    snprintf(to.sun_path, sizeof to.sun_path, "%s", link->settings->path);
    error = connect_to(link, (struct sockaddr *)&to, sizeof to);
    if (error)
        redis_link_drop(link, PAWL_ECONN, "%s", strerror(error));
}

static void resolved(void *arg, int error, struct addrinfo *addresses)
{
    redis_link *link = arg;

    if (error) {
        redis_link_drop(link, PAWL_ECONN, "the name can't be resolved: %s", gai_strerror(error));
        return;
    }
    link->addresses = link->next_address = addresses;
    connect_next(link);
}

void redis_link_attempt(redis_link *link)
{
    link->state = LINK_LOCATING;
    limit_attempt(link);
    if (!link->role->locate || link->role->locate(link))
        redis_link_located(link);
}

void redis_link_located(redis_link *link)
{
    if (link->state != LINK_LOCATING)
        return;
    link->state = LINK_RESOLVING;
    if (link->settings->path) {
        connect_unix(link);
        return;
    }
    link->resolve.done = resolved;
    link->resolve.arg = link;
    if (net_resolve_start(&link->resolve, link->env, link->host, link->port))
        redis_link_drop(link, PAWL_ECONN, "no thread to resolve the name with");
}

bool redis_link_goes_on(redis_link *link)
{
    int64_t late = link->env->now(link->env) - link->timer.due;

    if (late > LEFT_ALONE_MS * PAWL_NS_PER_MS) {
        limit_attempt(link);
        return true;
    }
    if (link->state != LINK_CONNECTING || !link->next_address)
        return false;
    redis_link_close_socket(link);
    connect_next(link);
    return true;
}
