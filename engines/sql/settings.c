/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c - the settings in the URL.
 *
 *     SCHEME://[user[:password]@][host[:port]{,host[:port]}][/database]
 *
 * The host may be a path with its slashes escaped (%2Frun%2Fpostgresql: the folder of the server's
 * socket; MySQL: the socket itself). Parameters: prefix, owner, host (a path that need not be
 * escaped), cleartext, pooler (PostgreSQL), and for TLS sslmode, cafile, cert, key, verify. User
 * and password may also come from the program's options or the environment (env->user,
 * env->password), else from the library's usual files. No error text repeats a part of the URL that
 * may be a password.
 */
#include <ctype.h>
#include <stdlib.h>

#include "sql.h"

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
        code = net_read_login(&s->login, text, (size_t)(at - text), err);
    text = at ? at + 1 : text;
    if (!code && text == slash)
        code = net_read_addresses(&s->hosts, "localhost", 9, driver->port, err);
    else if (!code)
        code = net_read_addresses(&s->hosts, text, (size_t)(slash - text), driver->port, err);
    if (!code && *slash && slash + 1 < end)
        code = net_decode(&s->db, slash + 1, (size_t)(end - slash - 1), "database", err);
    return code;
}

/* The client library would report a missing file only after connecting, or not at all. */
static int check_file(const char *key, const char *path, pawl_error *err)
{
    if (!path || !access(path, R_OK))
        return 0;
    return pawl_error_set(err, PAWL_EINVAL, "%s '%.100s': %s", key, path, strerror(errno));
}

/* ---- parameters ------------------------------------------------------------------------------ */

static int read_tls(sql_settings *s, const pawl_url *url, pawl_error *err)
{
    static const struct {
        const char *key, *value;
        enum sql_tls tls;
    } values[] = {{"sslmode", "disable", SQL_TLS_DISABLE}, {"sslmode", "prefer", SQL_TLS_PREFER},
                  {"sslmode", "require", SQL_TLS_REQUIRE}, {"sslmode", "verify-ca", SQL_TLS_CHAIN},
                  {"sslmode", "verify-full", SQL_TLS_FULL}, {"verify", "none", SQL_TLS_REQUIRE},
                  {"verify", "chain", SQL_TLS_CHAIN}, {"verify", "full", SQL_TLS_FULL}};
    const char *given[] = {pawl_url_param(url, "sslmode"), pawl_url_param(url, "verify")};
    const char *cafile = pawl_url_param(url, "cafile"), *cert = pawl_url_param(url, "cert");
    const char *key = pawl_url_param(url, "key");
    bool found = !given[0] && !given[1];

    s->tls = cafile ? SQL_TLS_FULL : cert ? SQL_TLS_REQUIRE : SQL_TLS_PREFER;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        const char *text = given[values[i].key[0] == 'v'];

        if (text && !strcmp(text, values[i].value)) {
            s->tls = values[i].tls;
            found = true;
        }
    }
    if (!found || (given[0] && given[1]))
        return pawl_error_set(err, PAWL_EINVAL, "give sslmode (disable, prefer, require, "
                              "verify-ca, verify-full) or verify (none, chain, full), one of them");
    if (!cert != !key)
        return pawl_error_set(err, PAWL_EINVAL, "cert and key go together: give both files");
    if (s->tls == SQL_TLS_DISABLE && (cafile || cert))
        return pawl_error_set(err, PAWL_EINVAL, "cafile, cert and key are for TLS, not for "
                              "sslmode=disable");
    if (check_file("cafile", cafile, err) || check_file("cert", cert, err) ||
        check_file("key", key, err))
        return PAWL_EINVAL;
    if ((cafile && net_copy(&s->files.cafile, cafile, err)) ||
        (cert && net_copy(&s->files.cert, cert, err)) || (key && net_copy(&s->files.key, key, err)))
        return PAWL_ENOMEM;
    return 0;
}

/* The prefix becomes part of statements, so only characters that never need quotes are allowed. */
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

static int read_cleartext(sql_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *text = pawl_url_param(url, "cleartext");

    s->cleartext = text && !strcmp(text, "yes");
    if (text && !s->cleartext && strcmp(text, "no"))
        return pawl_error_set(err, PAWL_EINVAL, "cleartext is no (the default) or yes: the "
                              "password may be sent so that whoever answers can read it");
    return 0;
}

/* The owner's name becomes part of statements, in quotes. */
static int read_owner(sql_settings *s, const char *text, pawl_error *err)
{
    bool good = !text || (*text && strlen(text) <= SQL_PREFIX_MAX);

    for (const char *c = text; c && *c && good; c++)
        good = isalnum((unsigned char)*c) || strchr("_.-$", *c);
    if (!good)
        return pawl_error_set(err, PAWL_EINVAL, "owner is the user who made the tables: letters, "
                              "digits, _ . - $, at most %d", SQL_PREFIX_MAX);
    snprintf(s->owner, sizeof s->owner, "%s", text ? text : "");
    return 0;
}

/* host= of the URL: a name, or the path of a socket (PostgreSQL: of the socket's folder). */
static int read_path(sql_settings *s, const char *path, pawl_error *err)
{
    net_address *first = &s->hosts.list[0];
    int code = path ? net_copy(&first->host, path, err) : 0;

    if (!code && strlen(first->host) >= NET_HOST_MAX)
        return pawl_error_set(err, PAWL_EINVAL, "the host is longer than %d bytes",
                              NET_HOST_MAX - 1);
    if (!code && first->host[0] == '/')
        snprintf(first->where, sizeof first->where, "%s", first->host);
    else if (!code && path)
        snprintf(first->where, sizeof first->where, "%s:%u", first->host, first->port);
    return code;
}

int sql_settings_read(sql_settings *s, const sql_driver *driver, const pawl_env *env,
                      const pawl_url *url, pawl_error *err)
{
    int code;

    code = read_rest(s, driver, url->rest, err);
    if (!code)
        code = read_path(s, pawl_url_param(url, "host"), err);
    if (!code)
        code = net_add_login(&s->login, env, err);
    if (!code)
        code = read_prefix(s, pawl_url_param(url, "prefix"), err);
    if (!code)
        code = read_owner(s, pawl_url_param(url, "owner"), err);
    if (!code)
        code = read_tls(s, url, err);
    if (!code)
        code = read_cleartext(s, url, err);
    if (!code)
        code = read_pooler(s, driver, url, err);
    return code;
}

void sql_settings_free(sql_settings *s)
{
    net_addresses_free(&s->hosts);
    net_login_free(&s->login);
    net_tls_settings_free(&s->files);
    free(s->db);
    *s = (sql_settings){0};
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* The replacement of the mark at `at`, or NULL: no mark begins there. */
static const char *meaning(const sql *q, const char *at, size_t *length)
{
    const char *dot = strchr(q->settings.prefix, '.');
    const struct {
        const char *mark, *text;
    } marks[] = {{"@", q->place}, {"$TABLE", dot ? dot + 1 : q->settings.prefix},
                 {"$SCHEMA", q->schema}, {"$OWNER", q->settings.owner}, {"$CLIENT", q->client},
                 {"$ROWS", SQL_ROWS_TEXT}};

    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        *length = strlen(marks[i].mark);
        if (!strncmp(at, marks[i].mark, *length))
            return marks[i].text;
    }
    return NULL;
}

char *sql_expand(const sql *q, const char *text)
{
    size_t room = strlen(text) + 1, length, used = 0;
    char *ret;

    for (const char *c = text; *c; c++)
        if (*c == '@' || *c == '$')
            room += sizeof q->place;
    ret = malloc(room);
    if (!ret)
        return NULL;
    while (*text) {
        const char *word = meaning(q, text, &length);

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

int sql_set_schema(sql *q, const char *name, const char *quoted)
{
    const char *dot = strchr(q->settings.prefix, '.');

    if (dot)
        snprintf(q->schema, sizeof q->schema, "'%.*s'", (int)(dot - q->settings.prefix),
                 q->settings.prefix);
    else
        snprintf(q->schema, sizeof q->schema, "%s", quoted);
    snprintf(q->place, sizeof q->place, "%.*s%s%s", SQL_SCHEMA_MAX, dot ? "" : name,
             dot || !*name ? "" : ".", q->settings.prefix);
    for (int i = 0; i < SQL_STATEMENTS; i++) {
        free(q->texts[i]);
        q->texts[i] = NULL;
        if (q->driver->statements[i] && !(q->texts[i] = sql_expand(q, q->driver->statements[i])))
            return PAWL_ENOMEM;
    }
    return 0;
}
