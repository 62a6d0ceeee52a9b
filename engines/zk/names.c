/* SPDX-License-Identifier: Apache-2.0
 *
 * names.c - converts names to paths, and parses the names of nodes.
 *
 * A name becomes one component of a path, so that no lock ever has another as a child. Plain names
 * stay unchanged. Written as %XX are '%', '/', control characters, bytes that are not UTF-8, and
 * the characters that ZooKeeper refuses (U+0080 to U+009F, U+D800 to U+F8FF, U+FFF0 and above);
 * also the dots of the names "." and "..", and the first letter of "zookeeper" at the root, where
 * ZooKeeper keeps nodes of its own. Each name has one form only: a text that decodes to a name, but
 * is not the encoded form of that name, is not one of our names.
 *
 * A node of a contender is named
 *
 *     _c_UUID-lock-N  _c_UUID-__WRIT__N  _c_UUID-__READ__N   as Curator does
 *     HEX__lock__N    HEX__rlock__N                          as kazoo does (flavor=kazoo)
 *     _c_UUID-lease-N  _c_UUID-wait-N                        permits; waiters for a latch
 *
 * with N the sequence that ZooKeeper appends: ten digits, or a minus and ten digits once the
 * parent's counter has wrapped around. The UUID is made of the client's id, the number of the
 * session and the sequence number of the acquire. So a waiter that got no answer to a create can
 * find the node again, and never mistakes a node of an earlier session for that node.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "zk.h"

/* ---- encoding -------------------------------------------------------------------------------- */

/* The length of the character at `s`, if ZooKeeper accepts that character unescaped; otherwise
 * 0. */
static size_t plain(const unsigned char *s)
{
    unsigned c;

    if (s[0] < 0x80)
        return s[0] >= 0x20 && s[0] != 0x7f && s[0] != '/' && s[0] != '%';
    if ((s[0] & 0xe0) == 0xc0 && (s[1] & 0xc0) == 0x80)
        return ((s[0] & 0x1fu) << 6 | (s[1] & 0x3fu)) >= 0xa0 ? 2 : 0;
    if ((s[0] & 0xf0) != 0xe0 || (s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80)
        return 0;
    c = (s[0] & 0xfu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    return c >= 0x800 && (c < 0xd800 || (c > 0xf8ff && c < 0xfff0)) ? 3 : 0;
}

void zk_encode(char ret[3 * PAWL_NAME_MAX + 1], const char *name, bool at_root)
{
    const unsigned char *at = (const unsigned char *)name;
    bool dots = !strcmp(name, ".") || !strcmp(name, "..");
    bool taken = at_root && !strcmp(name, "zookeeper");

    while (*at) {
        size_t n = dots || taken ? 0 : plain(at);

        taken = false;
        if (n) {
            memcpy(ret, at, n);
            ret += n;
            at += n;
        } else {
            ret += snprintf(ret, 4, "%%%02X", *at++);
        }
    }
    *ret = 0;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool zk_decode(char ret[PAWL_NAME_MAX + 1], const char *text, size_t length, bool at_root)
{
    char again[3 * PAWL_NAME_MAX + 1];
    size_t n = 0;

    for (size_t i = 0; i < length; i++) {
        bool escape = text[i] == '%' && i + 2 < length && hex(text[i + 1]) >= 0 &&
                      hex(text[i + 2]) >= 0;

        if (n == PAWL_NAME_MAX)
            return false;
        ret[n] = escape ? (char)(hex(text[i + 1]) * 16 + hex(text[i + 2])) : text[i];
        if (!ret[n++])
            return false;
        i += escape ? 2 : 0;
    }
    ret[n] = 0;
    if (!n)
        return false;
    zk_encode(again, ret, at_root);
    return strlen(again) == length && !memcmp(again, text, length);
}

const char *zk_path(zk *z, const char *name, const char *dir, const char *node)
{
    char encoded[3 * PAWL_NAME_MAX + 1];

    zk_encode(encoded, name, !strcmp(z->settings.base, "/"));
    snprintf(z->path, sizeof z->path, "%s%s%s%s%s%s", z->settings.base, encoded, dir ? "/" : "",
             dir ? dir : "", node ? "/" : "", node ? node : "");
    return z->path;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Does the name end with MARK and a sequence? The last MARK counts. */
static bool ends_with(jute_bytes name, const char *mark, int32_t *sequence)
{
    char digits[16];
    const char *at = NULL, *end = name.data + name.length, *found = name.data;
    char *stop;
    size_t n;
    long long value;

    while ((found = memmem(found, (size_t)(end - found), mark, strlen(mark)))) {
        found += strlen(mark);
        at = found;
    }
    n = at ? (size_t)(end - at) : 0;
    if (n < 10 || n > 11)
        return false;
    memcpy(digits, at, n);
    digits[n] = 0;
    if (digits[0] != '-' && (digits[0] < '0' || digits[0] > '9'))
        return false;
    value = strtoll(digits, &stop, 10);
    *sequence = (int32_t)value;
    return !*stop && value >= INT32_MIN && value <= INT32_MAX;
}

zk_child zk_child_read(bool kazoo, jute_bytes name)
{
    static const struct {
        const char *mark;
        enum zk_sort sort;
    } curators[] = {{"lock-", ZK_EXCLUSIVE}, {"__WRIT__", ZK_EXCLUSIVE}, {"__READ__", ZK_SHARED}},
      kazoos[] = {{"__lock__", ZK_EXCLUSIVE}, {"__rlock__", ZK_SHARED}};
    zk_child child = {ZK_OTHER, 0};

    if (!name.length)
        return child;
    for (size_t i = 0; i < (kazoo ? 2 : 3); i++)
        if (ends_with(name, kazoo ? kazoos[i].mark : curators[i].mark, &child.sequence)) {
            child.sort = kazoo ? kazoos[i].sort : curators[i].sort;
            return child;
        }
    if (ends_with(name, "lease-", &child.sequence))
        child.sort = ZK_LEASE;
    else if (ends_with(name, "-wait-", &child.sequence))
        child.sort = ZK_WAITER;
    return child;
}

void zk_node_name(char ret[ZK_NODE_MAX], const zk *z, enum zk_sort sort, int lock_kind,
                  uint64_t seq, uint16_t epoch)
{
    uint64_t c = z->env->client_id, s = seq & UINT64_C(0xffffffffffff);
    const char *mark = sort == ZK_LEASE    ? "lease-"
                       : sort == ZK_WAITER ? "wait-"
                       : sort == ZK_SHARED ? "__READ__"
                       : lock_kind == PAWL_WRITE ? "__WRIT__" : "lock-";

    if (z->settings.kazoo && lock_kind >= 0 && sort <= ZK_SHARED)
        snprintf(ret, ZK_NODE_MAX, "%016" PRIx64 "%04x%012" PRIx64 "%s", c, epoch, s,
                 sort == ZK_SHARED ? "__rlock__" : "__lock__");
    else
        snprintf(ret, ZK_NODE_MAX, "_c_%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04x-%012" PRIx64
                 "-%s", c >> 32, c >> 16 & 0xffff, c & 0xffff, epoch, s, mark);
}
