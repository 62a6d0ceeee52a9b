/* SPDX-License-Identifier: Apache-2.0
 *
 * socket.c - a socket that begins to connect, under a poll handle of the loop. A broken network is
 * detected by keepalive (15 s) and by data that stay unacknowledged (three times the timeout).
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "net.h"

static void set_options(int fd, int64_t timeout_ms)
{
    int on = 1, idle = 15, interval = 5, count = 3;
    unsigned limit = (unsigned)(timeout_ms < 600000 ? 3 * timeout_ms : 1800000);

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
}

int net_connect(pawl_env *env, const struct sockaddr *to, socklen_t length, int *fd,
                uv_poll_t **poll)
{
    *fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return errno;
    env->fork_guard_add(*fd);
    if (to->sa_family != AF_UNIX)
        set_options(*fd, env->timeout_ms);
    if (connect(*fd, to, length) && errno != EINPROGRESS)
        return errno;
    *poll = malloc(sizeof **poll);
    if (!*poll)
        return ENOMEM;
    if (uv_poll_init(env->loop, *poll, *fd)) {
        free(*poll);
        *poll = NULL;
        return ENOMEM;
    }
    return 0;
}
