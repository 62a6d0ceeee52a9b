/* SPDX-License-Identifier: Apache-2.0
 *
 * relay.c - a relay between libpq and the server during authentication, without TLS.
 *
 * libpq before 16 sends the password in clear to every server that asks for the password in clear,
 * and has no setting against that. So libpq gets one end of a socket pair in place of its socket,
 * under the same number, as soon as the connection is made and before anything is sent. Pawl has
 * the other end and the real socket, passes libpq's output on to the server, and hands the server's
 * messages to libpq one at a time. A message that asks for the password in clear is never handed
 * over.
 *
 *     made --SSLRequest, the server says S--> over: TLS hides the rest
 *       |  --messages--> AuthenticationOk --> over
 *       +--AuthenticationCleartextPassword--> refused
 *
 * When the relay is over, libpq gets the real socket back, under the same number. The relay reads
 * no byte from the server beyond the message that it hands over, so no byte is left behind. All of
 * this happens on the thread that runs the loop, between two calls of libpq.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "postgres.h"
#include "sql/sql.h"

#define MESSAGE_MAX 8192 /* during authentication; a server's messages are below 1000 */
#define SSL_REQUEST "\0\0\0\x08\x04\xd2\x16\x2f"

struct pg_relay {
    int real, ours; /* the server's socket; Pawl's end of the pair */
    ino_t theirs;   /* libpq's end */
    bool asked_tls; /* the next byte answers an SSLRequest */
    bool over;
    size_t have;
    unsigned char message[MESSAGE_MAX];
};

pg_relay *pg_relay_new(int fd)
{
    pg_relay *r = calloc(1, sizeof *r);
    int pair[2];
    struct stat st;

    if (!r || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)) {
        free(r);
        return NULL;
    }
    r->ours = pair[1];
    r->real = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (r->real < 0 || fstat(pair[0], &st) || dup3(pair[0], fd, O_CLOEXEC) < 0) {
        close(pair[0]);
        pg_relay_free(r);
        return NULL;
    }
    r->theirs = st.st_ino;
    close(pair[0]);
    return r;
}

void pg_relay_free(pg_relay *r)
{
    if (!r)
        return;
    if (r->real >= 0)
        close(r->real);
    close(r->ours);
    free(r);
}

int pg_relay_socket(const pg_relay *r)
{
    return r->real;
}

bool pg_relay_is(const pg_relay *r, int fd)
{
    struct stat st;

    return !fstat(fd, &st) && st.st_ino == r->theirs;
}

bool pg_relay_over(const pg_relay *r)
{
    return r->over;
}

bool pg_relay_give_back(const pg_relay *r, int fd)
{
    return dup3(r->real, fd, O_CLOEXEC) >= 0;
}

bool pg_relay_out(pg_relay *r)
{
    char bytes[4096];
    ssize_t n;

    while ((n = recv(r->ours, bytes, sizeof bytes, 0)) > 0) {
        r->asked_tls |= n == 8 && !memcmp(bytes, SSL_REQUEST, 8);
        if (send(r->real, bytes, (size_t)n, MSG_NOSIGNAL) != n)
            return false; /* so few bytes always fit, unless the connection is broken */
    }
    return n < 0 && errno == EAGAIN;
}

/* Read until `want` bytes of the message are there. 1: done, 0: not yet, -1: the server has
 * closed. */
static int read_to(pg_relay *r, size_t want)
{
    while (r->have < want) {
        ssize_t n = recv(r->real, r->message + r->have, want - r->have, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 && errno == EAGAIN ? 0 : -1;
        r->have += (size_t)n;
    }
    return 1;
}

static uint32_t number_at(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Read a whole message, as read_to does; -2: a message that no server sends here. */
static int read_message(pg_relay *r)
{
    int code = read_to(r, 5);
    uint32_t length = code == 1 ? number_at(r->message + 1) : 0;

    if (code != 1)
        return code;
    if (length >= MESSAGE_MAX || length < (r->message[0] == 'R' ? 8 : 4))
        return -2;
    return read_to(r, 1 + length);
}

static enum pg_relay_result hand_over(pg_relay *r)
{
    size_t n = r->have;

    r->have = 0;
    return send(r->ours, r->message, n, MSG_NOSIGNAL) == (ssize_t)n ? PG_RELAY_FED : PG_RELAY_BAD;
}

enum pg_relay_result pg_relay_in(pg_relay *r)
{
    int code = r->asked_tls ? read_to(r, 1) : read_message(r);

    if (code == 0)
        return PG_RELAY_WAIT;
    if (code == -1) {
        shutdown(r->ours, SHUT_WR); /* libpq reports this */
        return PG_RELAY_FED;
    }
    if (code == -2)
        return PG_RELAY_BAD;
    if (r->asked_tls) {
        r->asked_tls = false;
        r->over = r->message[0] == 'S';
    } else if (r->message[0] == 'R') {
        if (number_at(r->message + 5) == 3)
            return PG_RELAY_CLEAR;
        r->over = number_at(r->message + 5) == 0;
    }
    return hand_over(r);
}
