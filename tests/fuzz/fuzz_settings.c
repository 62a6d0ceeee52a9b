/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_settings.c - any bytes as a URL, read by one of the networked engines. Compiled once per
 * engine: READS_REDIS, READS_ZK, READS_ETCD or READS_SQL says which.
 *
 * A refused URL must leave an error text that ends inside its buffer and does not show the
 * password. The settings can be freed after a failure, and freed twice.
 */
#include "core.h"
#include "fuzz.h"

#if defined(READS_REDIS)
#include "redis/redis.h"
typedef redis_settings settings;
#define settings_read redis_settings_read
#define settings_free redis_settings_free
static const char *const schemes[] = {"redis", "rediss", "redis+unix", "redis+sentinel",
                                      "redis+cluster"};
#elif defined(READS_ZK)
#include "zk/zk.h"
typedef zk_settings settings;
#define settings_read zk_settings_read
#define settings_free zk_settings_free
static const char *const schemes[] = {"zk"};
#elif defined(READS_ETCD)
#include "etcd/etcd.h"
typedef etcd_settings settings;
#define settings_read etcd_settings_read
#define settings_free etcd_settings_free
static const char *const schemes[] = {"etcd"};
#elif defined(READS_SQL)
#include "sql/sql.h"
typedef sql_settings settings;
#define settings_free sql_settings_free
static const char *const schemes[] = {"postgres", "mysql"};

static int settings_read(settings *s, const pawl_env *env, const pawl_url *url, pawl_error *err)
{
    static const sql_driver drivers[] = {{.scheme = "postgres", .port = 5432, .can_pool = true},
                                         {.scheme = "mysql", .port = 3306}};
    int code = sql_settings_read(s, &drivers[url->scheme[0] == 'm'], env, url, err);

    /* Both become part of statements. */
    for (const char *c = code ? "" : s->prefix; *c; c++)
        DEMAND(strchr("abcdefghijklmnopqrstuvwxyz0123456789_.", *c));
    DEMAND(code || !strpbrk(s->owner, "'\"\\`;@ "));
    return code;
}
#endif

static const char secret[] = "s3cret-of-the-environment";

/* The fuzzer may also write the secret into the URL; text of the URL may be shown. */
static bool shows_itself(const pawl_url *url)
{
    bool shows = strstr(url->rest, secret);

    for (size_t i = 0; i < url->nparams; i++)
        shows |= strstr(url->params[i].key, secret) || strstr(url->params[i].value, secret);
    return shows;
}

static void read_settings(const pawl_url *url)
{
    pawl_env env = {.user = "user", .password = secret, .timeout_ms = 1, .watchdog_ms = 1};
    settings s;
    pawl_error err = {0};

    memset(&s, 0, sizeof s);
    if (settings_read(&s, &env, url, &err)) {
        DEMAND(err.code && err.text[0] && memchr(err.text, 0, sizeof err.text));
        DEMAND(shows_itself(url) || !strstr(err.text, secret));
    }
    settings_free(&s);
    settings_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pawl_url url;
    char *text;
    int used;

    if (size < 1 || size > 4096)
        return 0;
    text = malloc(size + 32);
    DEMAND(text);
    used = snprintf(text, 32, "%s:", schemes[data[0] % (sizeof schemes / sizeof *schemes)]);
    memcpy(text + used, data + 1, size - 1);
    text[(size_t)used + size - 1] = 0;
    if (!pawl__url_parse(&url, text, NULL)) {
        read_settings(&url);
        pawl__url_free(&url);
    }
    free(text);
    return 0;
}
