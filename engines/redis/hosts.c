/* SPDX-License-Identifier: Apache-2.0
 *
 * hosts.c - which hosts, named by a node of a cluster, the client may connect to. The user's
 * password is sent to each host, so a broken or hostile node must not choose hosts freely.
 *
 * hosts=LIST in the URL: patterns with commas between them. A pattern is a network (10.1.0.0/16,
 * fd00::/8) or a glob that is compared with the host as the node wrote it (*.redis.example.com,
 * 10.1.*). Hosts of the URL are always allowed. Without hosts= every host is allowed, with two
 * exceptions. An address that is a different machine on each machine (loopback, link-local) is
 * allowed only if the naming node was itself reached at an address of the same sort. An address
 * that is no machine (unspecified, multicast) is never allowed.
 */
#include <arpa/inet.h>
#include <fnmatch.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "redis.h"

/* An address as IPv6; IPv4 is mapped. Every spelling counts that a connect would understand: also
 * 127.1, 0x7f000001 and fe80::1%eth0. False: the text is a name. */
static bool parse(const char *text, struct in6_addr *ret)
{
    char plain[INET6_ADDRSTRLEN];
    size_t length = strcspn(text, "%");
    struct in_addr v4;

    if (length < sizeof plain) {
        memcpy(plain, text, length);
        plain[length] = 0;
        if (inet_pton(AF_INET6, plain, ret) == 1)
            return true;
    }
    if (!inet_aton(text, &v4))
        return false;
    memset(ret, 0, sizeof *ret);
    ret->s6_addr[10] = ret->s6_addr[11] = 0xff;
    memcpy(&ret->s6_addr[12], &v4, 4);
    return true;
}

enum sort { ANY_SORT, LOOPBACK, LINK_LOCAL, NOBODY };

static enum sort sort_of(const struct in6_addr *a)
{
    const uint8_t *b = a->s6_addr;

    if (IN6_IS_ADDR_V4MAPPED(a))
        return b[12] == 127 ? LOOPBACK
             : b[12] == 169 && b[13] == 254 ? LINK_LOCAL
             : b[12] == 0 || b[12] >= 224 ? NOBODY : ANY_SORT;
    return IN6_IS_ADDR_LOOPBACK(a) ? LOOPBACK
         : IN6_IS_ADDR_LINKLOCAL(a) ? LINK_LOCAL
         : IN6_IS_ADDR_UNSPECIFIED(a) || IN6_IS_ADDR_MULTICAST(a) ? NOBODY : ANY_SORT;
}

/* The sort of the address at which the node was reached. */
static enum sort sort_of_peer(const redis_link *link)
{
    struct sockaddr_storage at = {0};
    socklen_t length = sizeof at;
    char text[INET6_ADDRSTRLEN] = "";
    struct in6_addr a;

    if (link->stream.fd < 0 || getpeername(link->stream.fd, (struct sockaddr *)&at, &length))
        return ANY_SORT;
    if (at.ss_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)&at)->sin_addr, text, sizeof text);
    else if (at.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&at)->sin6_addr, text, sizeof text);
    return parse(text, &a) ? sort_of(&a) : ANY_SORT;
}

/* "localhost", "localhost." and names below, which resolvers answer with a loopback address. */
static bool is_localhost(const char *host)
{
    static const char name[] = "localhost";
    size_t length = strlen(host), n = sizeof name - 1;

    length -= length > 0 && host[length - 1] == '.';
    return length >= n && !strncasecmp(host + length - n, name, n) &&
           (length == n || host[length - n - 1] == '.');
}

static bool usual(const redis_link *from, const char *host)
{
    struct in6_addr a;
    enum sort sort = is_localhost(host) ? LOOPBACK : parse(host, &a) ? sort_of(&a) : ANY_SORT;

    return sort == ANY_SORT || (sort != NOBODY && sort == sort_of_peer(from));
}

/* "10.1.0.0/16". False: the pattern is no network. */
static bool network(const char *pattern, struct in6_addr *base, unsigned *bits)
{
    const char *slash = strchr(pattern, '/');
    char text[INET6_ADDRSTRLEN], *end;
    unsigned long n;

    if (!slash || (size_t)(slash - pattern) >= sizeof text)
        return false;
    memcpy(text, pattern, (size_t)(slash - pattern));
    text[slash - pattern] = 0;
    n = strtoul(slash + 1, &end, 10);
    if (*end || end == slash + 1 || slash[1] < '0' || slash[1] > '9' || !parse(text, base))
        return false;
    if (!strchr(text, ':'))
        n += 96;
    *bits = (unsigned)n;
    return n <= 128;
}

static bool inside(const struct in6_addr *a, const struct in6_addr *base, unsigned bits)
{
    for (unsigned i = 0; i < bits; i++)
        if ((a->s6_addr[i / 8] ^ base->s6_addr[i / 8]) >> (7 - i % 8) & 1)
            return false;
    return true;
}

/* A glob of digits and dots, such as 10.1.*, matches addresses only: not 10.1.evil.example. */
static bool matches(const char *pattern, const char *host)
{
    struct in6_addr base, a;
    unsigned bits;

    if (network(pattern, &base, &bits))
        return parse(host, &a) && inside(&a, &base, bits);
    if (strpbrk(pattern, "*?[") && !pattern[strspn(pattern, "0123456789.*?[-]")] &&
        strpbrk(pattern, "0123456789") && !parse(host, &a))
        return false;
    return !fnmatch(pattern, host, FNM_CASEFOLD);
}

/* Copy the first pattern of a list. Returns the rest of the list, or NULL. */
static const char *next_pattern(const char *list, char pattern[NET_HOST_MAX])
{
    size_t length = strcspn(list, ",");

    snprintf(pattern, NET_HOST_MAX, "%.*s", (int)(length < NET_HOST_MAX ? length : 0), list);
    return list[length] ? list + length + 1 : NULL;
}

bool redis_hosts_valid(const char *list)
{
    char pattern[NET_HOST_MAX];
    struct in6_addr base;
    unsigned bits;

    while (list) {
        list = next_pattern(list, pattern);
        if (!pattern[0] || (strchr(pattern, '/') && !network(pattern, &base, &bits)))
            return false;
    }
    return true;
}

bool redis_may_follow(const redis_link *from, const char *host)
{
    const redis_settings *s = from->settings;
    const char *list = s->hosts;
    char pattern[NET_HOST_MAX];

    for (size_t i = 0; i < s->at.n; i++)
        if (!strcasecmp(s->at.list[i].host, host))
            return true;
    if (!list)
        return usual(from, host);
    while (list) {
        list = next_pattern(list, pattern);
        if (matches(pattern, host))
            return true;
    }
    return false;
}
