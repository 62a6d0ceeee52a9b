/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c - what the URL says.
 *
 *     zk://[user:password@]host[:port]{,host[:port]}[/chroot]
 *
 * Parameters: prefix, session, flavor, acl, tls, and with tls=on cafile, cert, key, verify. User
 * and password may also come from the program's options or the environment (env->user,
 * env->password); the URL's come first. No error repeats a part of the URL that may be a password.
 */
#include <stdlib.h>

#include "url.h"
#include "zk.h"

#define SERVERS_MAX 64

static int no_memory(pawl_error *err)
{
    return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
}

static int copy(char **ret, const char *text, pawl_error *err)
{
    *ret = strdup(text);
    return *ret ? 0 : no_memory(err);
}

static int decode(char **ret, const char *text, size_t length, const char *what, pawl_error *err)
{
    bool bad = false;

    *ret = pawl__url_decode(text, length, &bad);
    if (*ret)
        return 0;
    return bad ? pawl_error_set(err, PAWL_EINVAL,
                                "the URL's %s has a bad escape; write %%XX with hex digits", what)
               : no_memory(err);
}

static int read_credentials(zk_settings *s, const char *text, size_t length, pawl_error *err)
{
    const char *colon = memchr(text, ':', length);
    size_t user = colon ? (size_t)(colon - text) : length;
    int code = decode(&s->user, text, user, "user", err);

    if (!code && colon && user + 1 < length)
        code = decode(&s->password, colon + 1, length - user - 1, "password", err);
    return code;
}

static int read_port(uint16_t *ret, const char *text, size_t length, pawl_error *err)
{
    long value = 0;

    for (size_t i = 0; i < length && i < 6; i++)
        value = text[i] < '0' || text[i] > '9' ? 100000 : value * 10 + text[i] - '0';
    if (!length || length > 5 || value < 1 || value > 65535)
        return pawl_error_set(err, PAWL_EINVAL, "the URL's port must be 1 to 65535 (an IPv6 "
                                                "address goes in [])");
    *ret = (uint16_t)value;
    return 0;
}

/* host, host:port, [v6], [v6]:port. */
static int read_server(zk_server *s, const char *text, size_t length, pawl_error *err)
{
    const char *close = length && text[0] == '[' ? memchr(text, ']', length) : NULL;
    const char *host = close ? text + 1 : text, *end = text + length;
    const char *rest = close ? close + 1 : memchr(text, ':', length);
    size_t host_length = (size_t)((close ? close : rest ? rest : end) - host);
    int code;

    s->port = 2181;
    if (!host_length || host_length > 253)
        return pawl_error_set(err, PAWL_EINVAL, "the URL wants servers of 1 to 253 characters: "
                                                "zk://host1:2181,host2:2181/chroot");
    code = decode(&s->host, host, host_length, "host", err);
    if (!code && rest && rest < end)
        code = *rest == ':' ? read_port(&s->port, rest + 1, (size_t)(end - rest - 1), err)
                            : read_port(&s->port, "", 0, err);
    return code;
}

static int read_servers(zk_settings *s, const char *text, size_t length, pawl_error *err)
{
    size_t n = 1;
    int code = 0;

    for (size_t i = 0; i < length; i++)
        n += text[i] == ',';
    if (n > SERVERS_MAX)
        return pawl_error_set(err, PAWL_EINVAL, "at most %d servers", SERVERS_MAX);
    s->servers = calloc(n, sizeof *s->servers);
    if (!s->servers)
        return no_memory(err);
    while (!code && s->nservers < n) {
        const char *comma = memchr(text, ',', length);
        size_t part = comma ? (size_t)(comma - text) : length;

        code = read_server(&s->servers[s->nservers++], text, part, err);
        text += comma ? part + 1 : part;
        length -= comma ? part + 1 : part;
    }
    return code;
}

/* Neither "//" nor a part "." or ".." nor a control character: what ZooKeeper would refuse. */
static bool good_path(const char *path)
{
    for (const char *at = path; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return false;
        if (*at == '/' && (at[1] == '/' || (at[1] == '.' && (at[2] == '/' || !at[2])) ||
                           (at[1] == '.' && at[2] == '.' && (at[3] == '/' || !at[3]))))
            return false;
    }
    return true;
}

/* CHROOT "/" PREFIX. */
static int read_base(zk_settings *s, const char *chroot, const pawl_url *url, pawl_error *err)
{
    const char *prefix = pawl_url_param(url, "prefix");
    char *root;
    size_t length;
    int code = decode(&root, chroot, strlen(chroot), "chroot", err);

    if (code)
        return code;
    prefix = prefix ? prefix : "";
    length = strlen(root);
    while (length && root[length - 1] == '/')
        length--;
    if (length > ZK_CHROOT_MAX || strlen(prefix) > ZK_PREFIX_MAX)
        code = pawl_error_set(err, PAWL_EINVAL, "the chroot has more than %d bytes or the prefix "
                              "more than %d", ZK_CHROOT_MAX, ZK_PREFIX_MAX);
    else if (asprintf(&s->base, "%.*s/%s", (int)length, root, prefix) < 0)
        code = no_memory(err);
    else if (!good_path(s->base))
        code = pawl_error_set(err, PAWL_EINVAL, "chroot and prefix must make a path such as "
                              "/app/locks, without '//', '.', '..' and control characters");
    free(root);
    return code;
}

/* One of two words; the first is the default. */
static int read_choice(bool *second, const pawl_url *url, const char *key, const char *a,
                       const char *b, pawl_error *err)
{
    const char *text = pawl_url_param(url, key);

    if (!text)
        return 0;
    *second = !strcmp(text, b);
    return *second || !strcmp(text, a)
               ? 0
               : pawl_error_set(err, PAWL_EINVAL, "%s=%.20s: give %s or %s", key, text, a, b);
}

static int read_session(zk_settings *s, const pawl_env *env, const pawl_url *url, pawl_error *err)
{
    const char *text = pawl_url_param(url, "session");
    char *end;

    s->session_ms = env->watchdog_ms;
    if (text) {
        s->session_ms = strtoll(text, &end, 10);
        if (*end || text[0] < '0' || text[0] > '9' || s->session_ms < 100 ||
            s->session_ms > 86400000)
            return pawl_error_set(err, PAWL_EINVAL, "session=%.20s: give milliseconds from 100 to "
                                  "86400000", text);
    }
    if (s->session_ms > 86400000)
        s->session_ms = 86400000;
    return 0;
}

static int read_tls(zk_settings *s, const pawl_url *url, pawl_error *err)
{
    static const char *const words[] = {"full", "chain", "none"};
    const char *cafile = pawl_url_param(url, "cafile"), *cert = pawl_url_param(url, "cert");
    const char *key = pawl_url_param(url, "key"), *verify = pawl_url_param(url, "verify");
    int code = 0, i = 0;

    while (verify && i < 3 && strcmp(verify, words[i]))
        i++;
    if (i == 3)
        return pawl_error_set(err, PAWL_EINVAL, "verify=%.20s: give full (the default: chain and "
                              "host name), chain, or none", verify);
    s->verify = (enum net_verify)i;
    if (!cert != !key)
        return pawl_error_set(err, PAWL_EINVAL, "cert and key go together: give both files");
    if (cafile)
        code = copy(&s->cafile, cafile, err);
    if (!code && cert)
        code = copy(&s->cert, cert, err);
    if (!code && key)
        code = copy(&s->key, key, err);
    return code;
}

static int add_environment(zk_settings *s, const pawl_env *env, pawl_error *err)
{
    int code = 0;

    if (!s->user && env->user && env->user[0])
        code = copy(&s->user, env->user, err);
    if (!code && !s->password && env->password && env->password[0])
        code = copy(&s->password, env->password, err);
    if (!code && !s->user != !s->password)
        return pawl_error_set(err, PAWL_EINVAL, "ZooKeeper wants user and password: in PAWL_USER "
                              "and PAWL_PASSWORD or in the URL (user:password@)");
    return code;
}

static int read_params(zk_settings *s, const pawl_env *env, const pawl_url *url, pawl_error *err)
{
    int code = add_environment(s, env, err);

    s->open_acl = !s->user;
    if (!code)
        code = read_choice(&s->kazoo, url, "flavor", "curator", "kazoo", err);
    if (!code)
        code = read_choice(&s->tls, url, "tls", "off", "on", err);
    if (!code)
        code = read_choice(&s->open_acl, url, "acl", "creator", "open", err);
    if (!code && !s->open_acl && !s->user)
        code = pawl_error_set(err, PAWL_EINVAL, "acl=creator wants a user and a password");
    if (!code)
        code = read_session(s, env, url, err);
    return code || !s->tls ? code : read_tls(s, url, err);
}

int zk_settings_read(zk_settings *s, const pawl_env *env, const pawl_url *url, pawl_error *err)
{
    const char *text = url->rest, *at;
    size_t length;
    int code = 0;

    if (strncmp(text, "//", 2))
        return pawl_error_set(err, PAWL_EINVAL, "write zk://host1:2181,host2:2181/chroot");
    text += 2;
    length = strcspn(text, "/");
    at = memrchr(text, '@', length);
    if (at) {
        code = read_credentials(s, text, (size_t)(at - text), err);
        length -= (size_t)(at + 1 - text);
        text = at + 1;
    }
    if (!code)
        code = read_servers(s, text, length, err);
    if (!code)
        code = read_base(s, text + length, url, err);
    if (!code)
        code = read_params(s, env, url, err);
    return code;
}

void zk_settings_free(zk_settings *s)
{
    for (size_t i = 0; i < s->nservers; i++)
        free(s->servers[i].host);
    free(s->servers);
    if (s->password)
        explicit_bzero(s->password, strlen(s->password));
    free(s->user);
    free(s->password);
    free(s->base);
    free(s->cafile);
    free(s->cert);
    free(s->key);
    *s = (zk_settings){0};
}
