/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c - reads the URL.
 *
 *     zk://[user:password@]host[:port]{,host[:port]}[/chroot]
 *
 * Parameters: prefix, session, flavor, acl, tls, and with tls=1 cafile, cert, key, verify. User and
 * password may also come from the program's options or the environment (env->user, env->password);
 * the URL takes precedence. No error repeats a part of the URL that may be a password.
 */
#include <stdlib.h>

#include "zk.h"

/* ZooKeeper would refuse "//", a part "." or "..", and control characters. */
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

/* Read the base: CHROOT "/" PREFIX. */
static int read_base(zk_settings *s, const char *chroot, const pawl_url *url, pawl_error *err)
{
    const char *prefix = pawl_url_param(url, "prefix");
    char *root = NULL;
    size_t length;
    int code = net_decode(&root, chroot, strlen(chroot), "chroot", err);

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
        code = pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    else if (!good_path(s->base))
        code = pawl_error_set(err, PAWL_EINVAL, "chroot and prefix must make a path such as "
                              "/app/locks, without '//', '.', '..' and control characters");
    free(root);
    return code;
}

/* Read a parameter that is one of two words; the first is the default. */
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

static int read_params(zk_settings *s, const pawl_env *env, const pawl_url *url, pawl_error *err)
{
    int code = net_add_login_both(&s->login, env, "ZooKeeper", err);

    s->open_acl = !s->login.user;
    if (!code)
        code = read_choice(&s->kazoo, url, "flavor", "curator", "kazoo", err);
    if (!code)
        code = net_read_tls_wanted(&s->tls, url, err);
    if (!code)
        code = read_choice(&s->open_acl, url, "acl", "creator", "open", err);
    if (!code && !s->open_acl && !s->login.user)
        code = pawl_error_set(err, PAWL_EINVAL, "acl=creator wants a user and a password");
    if (!code)
        code = read_session(s, env, url, err);
    return code || !s->tls ? code : net_read_tls(&s->tls_settings, url, err);
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
        code = net_read_login(&s->login, text, (size_t)(at - text), err);
        length -= (size_t)(at + 1 - text);
        text = at + 1;
    }
    if (!code)
        code = net_read_addresses(&s->servers, text, length, 2181, err);
    if (!code)
        code = read_base(s, text + length, url, err);
    if (!code)
        code = read_params(s, env, url, err);
    return code;
}

void zk_settings_free(zk_settings *s)
{
    net_addresses_free(&s->servers);
    net_login_free(&s->login);
    net_tls_settings_free(&s->tls_settings);
    free(s->base);
    *s = (zk_settings){0};
}
