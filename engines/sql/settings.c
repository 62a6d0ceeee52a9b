/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c - what the URL says.
 *
 *     SCHEME://[user[:password]@][host[:port]{,host[:port]}][/database]
 *
 * The host may be a path with its slashes escaped (%2Frun%2Fpostgresql: where the server's socket
 * is; MySQL: the socket itself). Parameters: prefix, host (a path need not be escaped there), and
 * for TLS sslmode, cafile, cert, key, verify. User and password may also come from the program's
 * options or the environment (env->user, env->password), else from the library's usual files. No
 * error repeats a part of the URL that may be a password.
 */
#include <ctype.h>
#include <stdlib.h>

#include "sql.h"
#include "url.h"

static int no_memory(pawl_error *err)
{
    return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
}

/* Decode text[0..length) into *ret; nothing leaves it as it is. */
static int decode(char **ret, const char *text, size_t length, const char *what, pawl_error *err)
{
    bool bad = false;

    if (!length)
        return 0;
    *ret = pawl__url_decode(text, length, &bad);
    if (*ret)
        return 0;
    return bad ? pawl_error_set(err, PAWL_EINVAL,
                                "the URL's %s has a bad escape; write %%XX with hex digits", what)
               : no_memory(err);
}

static int copy(char **ret, const char *text, pawl_error *err)
{
    if (!text)
        return 0;
    free(*ret);
    *ret = strdup(text);
    return *ret ? 0 : no_memory(err);
}

/* user or user:password */
static int read_credentials(sql_settings *s, const char *text, size_t length, pawl_error *err)
{
    const char *colon = memchr(text, ':', length);
    size_t user = colon ? (size_t)(colon - text) : length;
    int code = decode(&s->user, text, user, "user", err);

    if (!code && colon)
        code = decode(&s->password, colon + 1, length - user - 1, "password", err);
    return code;
}

static int read_port(sql_host *s, const char *text, size_t length, pawl_error *err)
{
    unsigned long port = 0;

    for (size_t i = 0; i < length && port < 100000; i++)
        port = isdigit((unsigned char)text[i]) ? port * 10 + (unsigned char)text[i] - '0' : 100000;
    if (length && (port < 1 || port > 65535))
        return pawl_error_set(err, PAWL_EINVAL, "the URL's host must be followed by ':' and a port "
                                                "of 1 to 65535 (an IPv6 address goes in [])");
    if (length)
        s->port = (uint16_t)port;
    return 0;
}

/* host, host:port, [v6], [v6]:port */
static int read_address(sql_host *s, const char *text, size_t length, pawl_error *err)
{
    const char *close = length && text[0] == '[' ? memchr(text, ']', length) : NULL;
    const char *host = close ? text + 1 : text;
    const char *rest = close ? close + 1 : memchr(text, ':', length);
    size_t host_length = close ? (size_t)(close - host) : rest ? (size_t)(rest - host) : length;
    size_t left = rest ? length - (size_t)(rest - text) : 0;
    int code;

    if (length && text[0] == '[' && !close)
        return pawl_error_set(err, PAWL_EINVAL, "the URL's host begins with '[' but has no ']'");
    if (left && rest[0] != ':')
        return pawl_error_set(err, PAWL_EINVAL, "the URL's [host] must be followed by ':' and a "
                                                "port, or by nothing");
    code = decode(&s->name, host, host_length, "host", err);
    return code ? code : read_port(s, left ? rest + 1 : "", left ? left - 1 : 0, err);
}

static int read_addresses(sql_settings *s, uint16_t port, const char *text, size_t length,
                          pawl_error *err)
{
    const char *end = text + length, *comma;
    int code = 0;

    for (; !code; text = comma + 1) {
        comma = memchr(text, ',', (size_t)(end - text));
        if (s->nhosts == SQL_HOSTS_MAX)
            return pawl_error_set(err, PAWL_EINVAL, "the URL has more than %d hosts",
                                  SQL_HOSTS_MAX);
        s->hosts[s->nhosts].port = port;
        code = read_address(&s->hosts[s->nhosts++], text,
                            (size_t)((comma ? comma : end) - text), err);
        if (!comma)
            break;
    }
    return code;
}

static int read_rest(sql_settings *s, const sql_driver *driver, const char *text, pawl_error *err)
{
    const char *at, *slash, *end;
    int code = 0;

    if (strncmp(text, "//", 2))
        return pawl_error_set(err, PAWL_EINVAL, "write %s://user@host/database",
                              driver->scheme);
    text += 2;
    end = text + strlen(text);
    slash = strchr(text, '/');
    slash = slash ? slash : end;
    at = memrchr(text, '@', (size_t)(slash - text));
    if (at)
        code = read_credentials(s, text, (size_t)(at - text), err);
    text = at ? at + 1 : text;
    if (!code)
        code = read_addresses(s, driver->port, text, (size_t)(slash - text), err);
    if (!code && *slash)
        code = decode(&s->db, slash + 1, (size_t)(end - slash - 1), "database", err);
    return code;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static int read_tls(sql_settings *s, const pawl_url *url, pawl_error *err)
{
    static const struct {
        const char *key, *word;
        enum sql_tls tls;
    } words[] = {{"sslmode", "disable", SQL_TLS_DISABLE}, {"sslmode", "prefer", SQL_TLS_PREFER},
                 {"sslmode", "require", SQL_TLS_REQUIRE}, {"sslmode", "verify-ca", SQL_TLS_CHAIN},
                 {"sslmode", "verify-full", SQL_TLS_FULL}, {"verify", "none", SQL_TLS_REQUIRE},
                 {"verify", "chain", SQL_TLS_CHAIN}, {"verify", "full", SQL_TLS_FULL}};
    const char *given[] = {pawl_url_param(url, "sslmode"), pawl_url_param(url, "verify")};
    const char *cafile = pawl_url_param(url, "cafile"), *cert = pawl_url_param(url, "cert");
    const char *key = pawl_url_param(url, "key");
    bool found = !given[0] && !given[1];

    s->tls = cafile ? SQL_TLS_FULL : SQL_TLS_PREFER;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *text = given[words[i].key[0] == 'v'];

        if (text && !strcmp(text, words[i].word)) {
            s->tls = words[i].tls;
            found = true;
        }
    }
    if (!found || (given[0] && given[1]))
        return pawl_error_set(err, PAWL_EINVAL, "give sslmode (disable, prefer, require, "
                              "verify-ca, verify-full) or verify (none, chain, full), one of them");
    if (!cert != !key)
        return pawl_error_set(err, PAWL_EINVAL, "cert and key go together: give both files");
    if (copy(&s->cafile, cafile, err) || copy(&s->cert, cert, err) || copy(&s->key, key, err))
        return PAWL_ENOMEM;
    return 0;
}

/* It becomes part of statements, so it is only what needs no quotes anywhere. */
static int read_prefix(sql_settings *s, const char *text, pawl_error *err)
{
    const char *dot;
    bool good;

    text = text ? text : "distributed_lock";
    dot = strchr(text, '.');
    good = text[0] && strlen(text) <= SQL_PREFIX_MAX && (!dot || (dot > text && dot[1]));
    for (const char *c = text; *c && good; c++)
        good = islower((unsigned char)*c) || *c == '_' || c == dot ||
               (isdigit((unsigned char)*c) && c > text && c[-1] != '.');
    if (!good)
        return pawl_error_set(err, PAWL_EINVAL, "prefix names the table: a-z, 0-9 and _, not a "
                              "digit first, at most %d, and perhaps a schema and a dot before it",
                              SQL_PREFIX_MAX);
    strcpy(s->prefix, text);
    return 0;
}

static int read_pooler(sql_settings *s, const sql_driver *driver, const pawl_url *url,
                       pawl_error *err)
{
    const char *text = driver->can_pool ? pawl_url_param(url, "pooler") : NULL;

    s->pooled = text && !strcmp(text, "transaction");
    if (text && !s->pooled && strcmp(text, "session"))
        return pawl_error_set(err, PAWL_EINVAL, "pooler is session (the default) or transaction");
    return 0;
}

static int finish_host(sql_host *h, pawl_error *err)
{
    int code = h->name ? 0 : copy(&h->name, "localhost", err);

    if (code)
        return code;
    if (strlen(h->name) > 253)
        return pawl_error_set(err, PAWL_EINVAL, "the URL's host is longer than 253 bytes");
    if (h->name[0] == '/')
        snprintf(h->where, sizeof h->where, "%s", h->name);
    else
        snprintf(h->where, sizeof h->where, "%s:%u", h->name, h->port);
    return 0;
}

int sql_settings_read(sql_settings *s, const sql_driver *driver, const pawl_env *env,
                      const pawl_url *url, pawl_error *err)
{
    int code;

    code = read_rest(s, driver, url->rest, err);
    if (!code)
        code = copy(&s->hosts[0].name, pawl_url_param(url, "host"), err);
    if (!code && !s->user)
        code = copy(&s->user, env->user, err);
    if (!code && !s->password)
        code = copy(&s->password, env->password, err);
    if (!code)
        code = read_prefix(s, pawl_url_param(url, "prefix"), err);
    if (!code)
        code = read_tls(s, url, err);
    if (!code)
        code = read_pooler(s, driver, url, err);
    for (unsigned i = 0; i < s->nhosts && !code; i++)
        code = finish_host(&s->hosts[i], err);
    return code;
}

void sql_settings_free(sql_settings *s)
{
    if (s->password)
        explicit_bzero(s->password, strlen(s->password));
    free(s->password);
    free(s->user);
    for (unsigned i = 0; i < SQL_HOSTS_MAX; i++)
        free(s->hosts[i].name);
    free(s->db);
    free(s->cafile);
    free(s->cert);
    free(s->key);
    *s = (sql_settings){0};
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* What stands for the mark at `at`, or NULL: it is none. */
static const char *meaning(const sql *q, const char *at, const char *limit, size_t *length)
{
    if (*at == '@') {
        *length = 1;
        return q->settings.prefix;
    }
    if (!strncmp(at, "$CLIENT", 7)) {
        *length = 7;
        return q->client;
    }
    if (!strncmp(at, "$LIMIT", 6)) {
        *length = 6;
        return limit;
    }
    return NULL;
}

char *sql_expand(const sql *q, const char *text)
{
    size_t room = strlen(text) + 1, length, used = 0;
    char limit[24], *ret;

    snprintf(limit, sizeof limit, "%lld", (long long)(q->env->timeout_ms / 2 + 1));
    for (const char *c = text; *c; c++)
        if (*c == '@' || *c == '$')
            room += SQL_PREFIX_MAX;
    ret = malloc(room);
    if (!ret)
        return NULL;
    while (*text) {
        const char *word = meaning(q, text, limit, &length);

        if (word) {
            used += (size_t)snprintf(ret + used, room - used, "%s", word);
            text += length;
        } else {
            ret[used++] = *text++;
        }
    }
    ret[used] = 0;
    return ret;
}
