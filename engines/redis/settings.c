/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c - reads the URL.
 *
 *     redis://[[user]:password@]host[:port][/db]     rediss:// the same over TLS
 *     redis+unix://[[user]:password@]/path/of/socket
 *     redis+sentinel://[[user]:password@]host[:port],host[:port]/MASTER[/db]
 *     redis+cluster://[[user]:password@]host[:port],host[:port]
 *
 * Parameters: prefix, db, layout, semaphore, replicas; tls=1 for schemes without a TLS variant, and
 * for TLS cafile, cert, key, verify; sentinel_user and sentinel_password. User and password may
 * also come from the program's options or the environment (env->user, env->password); the URL takes
 * precedence. No error repeats a part of the URL that may be a password.
 */
#include <limits.h>
#include <stdlib.h>
#include <sys/un.h>

#include "redis.h"

static int read_number(const char *text, int64_t high, int64_t *ret)
{
    char *end;
    long long value = strtoll(text, &end, 10);

    if (*end || end == text || text[0] < '0' || text[0] > '9' || value > high)
        return PAWL_EINVAL;
    *ret = value;
    return 0;
}

static int read_db(redis_settings *s, const char *text, pawl_error *err)
{
    if (!text[0])
        return 0;
    if (read_number(text, INT_MAX, &s->db))
        return pawl_error_set(err, PAWL_EINVAL,
                              "the URL's database must be a number such as 0 (redis://host/0)");
    return 0;
}

static int read_tcp(redis_settings *s, const char *text, pawl_error *err)
{
    size_t length = strcspn(text, "/");
    int code;

    s->at.list = calloc(1, sizeof *s->at.list);
    if (!s->at.list)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    s->at.n = 1;
    code = net_read_address(&s->at.list[0], text, length, 6379, err);
    return code || !text[length] ? code : read_db(s, text + length + 1, err);
}

static int read_sentinel(redis_settings *s, const char *text, pawl_error *err)
{
    size_t length = strcspn(text, "/"), name;
    int code = net_read_addresses(&s->at, text, length, 26379, err);

    text += length + (text[length] == '/');
    name = strcspn(text, "/");
    if (!code && !name)
        return pawl_error_set(err, PAWL_EINVAL, "the name of the master is missing: write "
                                                "redis+sentinel://host:26379,host:26379/mymaster");
    if (!code)
        code = net_decode(&s->master, text, name, "name of the master", err);
    if (!code && strlen(s->master) > REDIS_MASTER_MAX)
        return pawl_error_set(err, PAWL_EINVAL, "the name of the master is longer than %d bytes",
                              REDIS_MASTER_MAX);
    return code || !text[name] ? code : read_db(s, text + name + 1, err);
}

static int read_cluster(redis_settings *s, const char *text, pawl_error *err)
{
    size_t length = strcspn(text, "/");
    int code = net_read_addresses(&s->at, text, length, 6379, err);

    if (!code && text[length] && text[length + 1])
        return pawl_error_set(err, PAWL_EINVAL, "a cluster has no databases and nothing else after "
                                                "its hosts: redis+cluster://host:6379,host:6379");
    return code;
}

static int read_unix(redis_settings *s, const char *text, pawl_error *err)
{
    int code;

    if (text[0] != '/')
        return pawl_error_set(err, PAWL_EINVAL, "redis+unix: wants the absolute path of a socket: "
                                                "redis+unix:///run/redis/redis.sock");
    code = net_decode(&s->path, text, strlen(text), "path", err);
    if (!code && strlen(s->path) >= sizeof ((struct sockaddr_un *)0)->sun_path)
        return pawl_error_set(err, PAWL_EINVAL, "the socket's path is longer than %zu bytes",
                              sizeof ((struct sockaddr_un *)0)->sun_path - 1);
    return code;
}

static int read_layout(redis_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *layout = pawl_url_param(url, "layout");
    const char *semaphore;

    s->redisson = layout && !strcmp(layout, "redisson");
    if (layout && !s->redisson && strcmp(layout, "pawl"))
        return pawl_error_set(err, PAWL_EINVAL, "layout=%.20s: give pawl (the default) or redisson",
                              layout);
    semaphore = s->redisson ? pawl_url_param(url, "semaphore") : NULL;
    s->plain_semaphore = semaphore && !strcmp(semaphore, "plain");
    if (semaphore && !s->plain_semaphore && strcmp(semaphore, "leased"))
        return pawl_error_set(err, PAWL_EINVAL, "semaphore=%.20s: give leased (the default: "
                              "RPermitExpirableSemaphore) or plain (RSemaphore)", semaphore);
    return 0;
}

static int read_sentinel_params(redis_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *user = pawl_url_param(url, "sentinel_user");
    const char *password = pawl_url_param(url, "sentinel_password");
    int code = user ? net_copy(&s->sentinel_login.user, user, err) : 0;

    if (!code && password)
        code = net_copy(&s->sentinel_login.password, password, err);
    if (!code && user && !password)
        return pawl_error_set(err, PAWL_EINVAL, "sentinel_user without sentinel_password");
    return code;
}

static int read_replicas(redis_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *replicas = pawl_url_param(url, "replicas");

    if (replicas && read_number(replicas, 100, &s->replicas))
        return pawl_error_set(err, PAWL_EINVAL, "replicas=%.20s: give how many replicas must have "
                              "a grant before it counts, 0 (the default) to 100", replicas);
    return 0;
}

static int read_hosts(redis_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *hosts = pawl_url_param(url, "hosts");

    if (hosts && !redis_hosts_valid(hosts))
        return pawl_error_set(err, PAWL_EINVAL, "hosts=%.60s: give networks (10.1.0.0/16) and "
                              "patterns (*.redis.example.com), with commas between them", hosts);
    return hosts ? net_copy(&s->hosts, hosts, err) : 0;
}

static int read_params(redis_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *prefix = pawl_url_param(url, "prefix");
    const char *db = s->service == REDIS_CLUSTER ? NULL : pawl_url_param(url, "db");
    int code = read_layout(s, url, err);

    if (!code && s->service != REDIS_ONE)
        code = net_read_tls_wanted(&s->tls, url, err);
    if (!code && s->service == REDIS_SENTINEL)
        code = read_sentinel_params(s, url, err);
    if (!code && s->service == REDIS_CLUSTER)
        code = read_hosts(s, url, err);
    if (!code)
        code = read_replicas(s, url, err);
    if (!code)
        code = net_copy(&s->prefix, prefix ? prefix : s->redisson ? "" : "pawl:", err);
    if (!code && strlen(s->prefix) > REDIS_PREFIX_MAX)
        return pawl_error_set(err, PAWL_EINVAL, "the prefix is longer than %d bytes",
                              REDIS_PREFIX_MAX);
    if (!code && db)
        code = read_db(s, db, err);
    if (!code && s->tls)
        code = net_read_tls(&s->tls_settings, url, err);
    return code;
}

static int add_login(redis_settings *s, const pawl_env *env, pawl_error *err)
{
    int code = net_add_login(&s->login, env, err);

    if (!code && s->login.user && !s->login.password)
        return pawl_error_set(err, PAWL_EINVAL, "a user without a password; put that in "
                                                "PAWL_PASSWORD or in the URL (user:password@)");
    return code;
}

static int read_rest(redis_settings *s, const pawl_url *url, const char *text, pawl_error *err)
{
    if (!strcmp(url->scheme, "redis+unix"))
        return read_unix(s, text, err);
    if (s->service == REDIS_SENTINEL)
        return read_sentinel(s, text, err);
    return s->service == REDIS_CLUSTER ? read_cluster(s, text, err) : read_tcp(s, text, err);
}

int redis_settings_read(redis_settings *s, const pawl_env *env, const pawl_url *url,
                        pawl_error *err)
{
    const char *text = url->rest, *at;
    bool is_unix = !strcmp(url->scheme, "redis+unix");
    int code = 0;

    s->tls = !strcmp(url->scheme, "rediss");
    if (!strcmp(url->scheme, "redis+sentinel"))
        s->service = REDIS_SENTINEL;
    else if (!strcmp(url->scheme, "redis+cluster"))
        s->service = REDIS_CLUSTER;
    if (strncmp(text, "//", 2))
        return pawl_error_set(err, PAWL_EINVAL, "write %s://%s", url->scheme,
                              is_unix ? "/path/of/socket" :
                              s->service == REDIS_SENTINEL ? "host:26379,host:26379/mymaster"
                                                           : "host:6379");
    text += 2;
    at = strrchr(text, '@'); /* a path may have an '@', too; in a password '@' should be %40 */
    if (at && is_unix && text[0] == '/')
        at = NULL;
    if (at) {
        code = net_read_login(&s->login, text, (size_t)(at - text), err);
        text = at + 1;
    }
    if (!code)
        code = read_rest(s, url, text, err);
    if (!code)
        code = read_params(s, url, err);
    if (!code)
        code = add_login(s, env, err);
    return code;
}

bool redis_is_host(const char *text)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f)
            return false;
    return text[0] != 0;
}

void redis_settings_free(redis_settings *s)
{
    net_addresses_free(&s->at);
    net_login_free(&s->login);
    net_login_free(&s->sentinel_login);
    net_tls_settings_free(&s->tls_settings);
    free(s->path);
    free(s->master);
    free(s->prefix);
    free(s->hosts);
    *s = (redis_settings){0};
}
