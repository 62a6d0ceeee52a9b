/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.h - checks that the EXAMINE ops of all networked engines share: which machine answers,
 * whether others can read or change the traffic, and how far the server's clock is off.
 */
#ifndef PAWL_EXAMINE_H
#define PAWL_EXAMINE_H

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "engine.h"
#include "net/net.h"

/* An address as 16 bytes, IPv4 as ::ffff:a.b.c.d. False: another family. */
static inline bool examine_bytes(const struct sockaddr *from, struct in6_addr *ret)
{
    if (from->sa_family == AF_INET6)
        *ret = ((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
    else if (from->sa_family == AF_INET) {
        *ret = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
        memcpy(ret->s6_addr + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    }
    return from->sa_family == AF_INET6 || from->sa_family == AF_INET;
}

enum examine_peer { EXAMINE_NOT_CONNECTED, EXAMINE_UNIX, EXAMINE_NETWORK };

/* The server's address. */
static inline enum examine_peer examine_peer(int fd, struct in6_addr *ret)
{
    struct sockaddr_storage peer = {0};
    socklen_t length = sizeof peer;

    if (getpeername(fd, (struct sockaddr *)&peer, &length))
        return EXAMINE_NOT_CONNECTED;
    return examine_bytes((const struct sockaddr *)&peer, ret) ? EXAMINE_NETWORK : EXAMINE_UNIX;
}

static inline void examine_text(const struct in6_addr *address, char text[INET6_ADDRSTRLEN])
{
    if (IN6_IS_ADDR_V4MAPPED(address))
        inet_ntop(AF_INET, address->s6_addr + 12, text, INET6_ADDRSTRLEN);
    else
        inet_ntop(AF_INET6, address, text, INET6_ADDRSTRLEN);
}

static inline bool examine_is_loopback(const struct in6_addr *address)
{
    return IN6_IS_ADDR_LOOPBACK(address) ||
           (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
}

/* Is this a loopback address, or the address of one of this machine's interfaces? */
static inline bool examine_is_own(const struct in6_addr *address)
{
    bool own = examine_is_loopback(address);
    struct ifaddrs *all;

    if (own || getifaddrs(&all))
        return own;
    for (const struct ifaddrs *i = all; i && !own; i = i->ifa_next) {
        struct in6_addr of;

        own = i->ifa_addr && examine_bytes(i->ifa_addr, &of) && !memcmp(&of, address, sizeof of);
    }
    freeifaddrs(all);
    return own;
}

/* Report the fact "machine", which tells a quorum whether some of its nodes share a machine (value
 * 1: this machine), and the findings about TLS. Traffic between loopback addresses needs no TLS. */
static inline void examine_network(pawl_op *op, const char *where, int fd, bool tls,
                                   enum net_verify verify)
{
    struct in6_addr peer = IN6ADDR_ANY_INIT;
    enum examine_peer by = examine_peer(fd, &peer);
    char text[INET6_ADDRSTRLEN];

    examine_text(&peer, text);
    if (by == EXAMINE_NETWORK)
        pawl_op_fact(op, "machine", where, text, examine_is_own(&peer));
    else if (by == EXAMINE_UNIX)
        pawl_op_fact(op, "machine", where, "a unix socket", 1);
    if (tls && verify != NET_VERIFY_FULL)
        pawl_op_found(op, PAWL_FINDING_WARNING, "tls-unverified", where,
                      verify == NET_VERIFY_NONE
                          ? "TLS is used, but the server's certificate is not verified"
                          : "TLS is used, but the certificate's host name is not verified",
                      "Whoever redirects the traffic can answer in the server's place, read the "
                      "password, and grant the same lock to everybody.",
                      "Verify certificate and host name: verify=full with cafile=FILE in the URL "
                      "(PostgreSQL: sslmode=verify-full).");
    else if (!tls && by == EXAMINE_NETWORK && !examine_is_loopback(&peer))
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
