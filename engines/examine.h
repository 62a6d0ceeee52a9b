/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.h - checks that the EXAMINE ops of all networked engines share: which machine answers,
 * whether others can read or change the traffic, and how far the server's clock is off.
 */
#ifndef PAWL_EXAMINE_H
#define PAWL_EXAMINE_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "engine.h"
#include "net/net.h"

/* The server's address as text. "": a unix socket, or not connected. */
static inline const char *examine_peer(int fd, char text[INET6_ADDRSTRLEN])
{
    struct sockaddr_storage peer = {0};
    socklen_t length = sizeof peer;

    text[0] = 0;
    if (getpeername(fd, (struct sockaddr *)&peer, &length))
        return text;
    if (peer.ss_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)&peer)->sin_addr, text, INET6_ADDRSTRLEN);
    else if (peer.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&peer)->sin6_addr, text, INET6_ADDRSTRLEN);
    return text;
}

/* Report the fact "machine", which tells a quorum whether some of its nodes share a machine, and
 * the findings about TLS. Traffic that does not leave this machine needs no TLS. */
static inline void examine_network(pawl_op *op, const char *where, int fd, bool tls,
                                   enum net_verify verify)
{
    char peer[INET6_ADDRSTRLEN];

    examine_peer(fd, peer);
    if (peer[0])
        pawl_op_fact(op, "machine", where, peer, 0);
    if (tls && verify != NET_VERIFY_FULL)
        pawl_op_found(op, PAWL_FINDING_WARNING, "tls-unverified", where,
                      verify == NET_VERIFY_NONE
                          ? "TLS is used, but the server's certificate is not verified"
                          : "TLS is used, but the certificate's host name is not verified",
                      "Whoever redirects the traffic can answer in the server's place, read the "
                      "password, and grant the same lock to everybody.",
                      "Verify certificate and host name: verify=full with cafile=FILE in the URL "
                      "(PostgreSQL: sslmode=verify-full).");
    else if (!tls && peer[0] && strncmp(peer, "127.", 4) && strcmp(peer, "::1") &&
             strncmp(peer, "::ffff:127.", 11))
        pawl_op_found(op, PAWL_FINDING_WARNING, "tls-off", where,
                      "the connection leaves this machine without TLS",
                      "Others on the network can read the password and the names, and can change "
                      "answers: a forged grant looks like a real one.",
                      "Use TLS (rediss://, tls=1 or sslmode=verify-full; docs/security.md), or a "
                      "network that only the servers and their clients can reach.");
}

/* Report the fact "clock". server_ms is the server's Unix time, from the answer to a request that
 * was sent at `sent`; the answer arrived just now. */
static inline void examine_clock(pawl_op *op, pawl_env *env, const char *where, int64_t server_ms,
                                 int64_t sent)
{
    int64_t half = (env->now(env) - sent) / PAWL_NS_PER_MS / 2;
    int64_t offset = server_ms - (env->wall_ms(env) - half);
    char what[80];

    snprintf(what, sizeof what, "the server's clock is %lld ms %s this machine's",
             (long long)(offset < 0 ? -offset : offset), offset < 0 ? "behind" : "ahead of");
    pawl_op_fact(op, "clock", where, what, offset);
}

#endif
