/* SPDX-License-Identifier: Apache-2.0
 *
 * delay.c - a network with a delay, in user space, for kernels without netem:
 *
 *     bench_delay ROUND_TRIP_US PORT ...
 *
 * For each PORT of 127.0.0.1 the proxy listens on another port, and prints these ports on one line.
 * Everything that arrives is passed on half of the round trip later, in both directions, in order.
 * The proxy ends when its input ends.
 *
 * The proxy has one thread. Pieces wait in one list, oldest first, because all pieces wait equally
 * long. The proxy polls without sleeping while a piece is due within SPIN_NS: a sleep would add its
 * own lateness to every piece.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SOCKETS_MAX = 1024, PIECE_MAX = 64 * 1024, SPIN_NS = 60000 };

struct piece {
    struct piece *next;
    int64_t due;
    int to; /* the socket */
    size_t len; /* 0: the other side has closed */
    char data[];
};

/* By index in `fds`: entry 0 is the standard input, then the listeners, then connections. */
static struct pollfd fds[SOCKETS_MAX];
static int other[SOCKETS_MAX]; /* of a connection: the socket of its other side */
static bool ended[SOCKETS_MAX]; /* the end of what came from this socket was passed on */
static int targets[SOCKETS_MAX];
static int n;
static struct piece *first, **last = &first;
static int64_t delay_ns;

static _Noreturn void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void add(int fd, int peer, int target)
{
    if (n == SOCKETS_MAX) {
        fprintf(stderr, "bench_delay: too many connections\n");
        exit(1);
    }
    fds[n] = (struct pollfd){fd, POLLIN, 0};
    other[n] = peer;
    ended[n] = false;
    targets[n++] = target;
}

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void listen_for(int target)
{
    struct sockaddr_in at = loopback(0);
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 256) ||
        getsockname(fd, (struct sockaddr *)&at, &len))
        fail("listen");
    printf("%d ", ntohs(at.sin_port));
    add(fd, -1, target);
}

static void accept_one(int listener)
{
    struct sockaddr_in at = loopback(targets[listener]);
    int client = accept(fds[listener].fd, NULL, NULL), one = 1;
    int server = socket(AF_INET, SOCK_STREAM, 0);

    if (client < 0)
        return;
    if (server < 0 || connect(server, (struct sockaddr *)&at, sizeof at)) {
        close(client); /* the server is dead: the client meets a closed connection */
        close(server);
        return;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    add(client, server, 0);
    add(server, client, 0);
}

static void read_piece(struct pollfd *p, int to)
{
    struct piece *piece = malloc(sizeof *piece + PIECE_MAX);
    ssize_t got;

    if (!piece)
        fail("malloc");
    got = recv(p->fd, piece->data, PIECE_MAX, 0);
    if (got <= 0)
        p->events = 0; /* its end is a piece, too */
    *piece = (struct piece){NULL, now_ns() + delay_ns, to, got > 0 ? (size_t)got : 0};
    piece = realloc(piece, sizeof *piece + piece->len);
    *last = piece;
    last = &piece->next;
}

static int index_of(int fd)
{
    int i = 1;

    while (fds[i].fd != fd)
        i++;
    return i;
}

static void forget(int fd)
{
    int i = index_of(fd);

    close(fd);
    n--;
    fds[i] = fds[n];
    other[i] = other[n];
    ended[i] = ended[n];
    targets[i] = targets[n];
}

/* Both sockets are closed when both ends were passed on: until then no piece can meet a socket of
 * another connection that has the same number. */
static void deliver_end(int to)
{
    int from = other[index_of(to)];

    shutdown(to, SHUT_WR);
    ended[index_of(from)] = true;
    if (ended[index_of(to)]) {
        forget(to);
        forget(from);
    }
}

static void deliver(const struct piece *piece)
{
    size_t sent = 0;

    if (!piece->len)
        deliver_end(piece->to);
    while (sent < piece->len) {
        ssize_t put = send(piece->to, piece->data + sent, piece->len - sent, MSG_NOSIGNAL);

        if (put <= 0)
            return; /* the receiver is gone, and its own end comes */
        sent += (size_t)put;
    }
}

static void deliver_due(void)
{
    while (first && first->due <= now_ns()) {
        struct piece *piece = first;

        first = piece->next;
        if (!first)
            last = &first;
        deliver(piece);
        free(piece);
    }
}

static void look(void)
{
    int64_t left = first ? first->due - now_ns() : 1000000000;
    struct timespec patience = {0, left > SPIN_NS ? left - SPIN_NS : 0};

    if (ppoll(fds, (nfds_t)n, &patience, NULL) <= 0)
        return;
    for (int i = n - 1; i > 0; i--) {
        if (!fds[i].revents || !fds[i].events)
            continue;
        if (other[i] < 0)
            accept_one(i);
        else
            read_piece(&fds[i], other[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_delay ROUND_TRIP_US PORT ...\n");
        return 64;
    }
    delay_ns = atoll(argv[1]) * 1000 / 2;
    prctl(PR_SET_TIMERSLACK, 1);
    add(0, -1, 0);
    for (int i = 2; i < argc; i++)
        listen_for(atoi(argv[i]));
    puts("");
    fflush(stdout);
    while (!fds[0].revents) {
        look();
        deliver_due();
    }
    return 0;
}
