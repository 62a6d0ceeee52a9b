/* SPDX-License-Identifier: Apache-2.0
 *
 * module.c - the engine for PostgreSQL: with tables, or with the server's own locks (advisory.h).
 */
#include <libpq-fe.h>

#include "advisory.h"
#include "postgres.h"

#define DB_MAX 63 /* the server cuts longer names */

static int engine_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    advisory_key_init(env);
    return sql_layouts_open(self, &pg_driver, &advisory_layout, env, url, err);
}

/* The database of the URL, or libpq's default: PGDATABASE or the service file, else the user. */
static void find_database(const sql_settings *s, char *ret, size_t size)
{
    PQconninfoOption *defaults = s->db ? NULL : PQconndefaults();
    const char *db = s->db, *user = s->login.user;

    for (const PQconninfoOption *o = defaults; o && o->keyword; o++) {
        if (!strcmp(o->keyword, "dbname") && o->val && o->val[0])
            db = o->val;
        if (!strcmp(o->keyword, "user") && !user)
            user = o->val;
    }
    snprintf(ret, size, "%s", db ? db : user ? user : "");
    PQconninfoFree(defaults);
}

static int engine_identity(void *self, char *ret, size_t size)
{
    const sql *q = self;
    const sql_settings *s = &q->settings;
    char db[DB_MAX + 1], more[sizeof db + SQL_PREFIX_MAX + 20];

    find_database(s, db, sizeof db);
    snprintf(more, sizeof more, "%s %s %s", db, q->layout ? q->layout->name : "table", s->prefix);
    return net_identity(ret, size, "postgres", &s->hosts, more);
}

static const char *engine_libraries(void)
{
    static char text[32]; /* protected by the loader's mutex */

    snprintf(text, sizeof text, "libpq %d.%d", PQlibVersion() / 10000, PQlibVersion() % 10000);
    return text;
}

const pawl_engine pawl_engine_postgres = {
    .abi = PAWL_ENGINE_ABI,
    .caps = SQL_CAPS,
    .scheme = "postgres",
    .state_size = sizeof(sql_sessions),
    .open = engine_open,
    .close = sql_layouts_close,
    .submit = sql_layouts_submit,
    .cancel = sql_layouts_cancel,
    .caps_of = sql_layouts_caps,
    .identity = engine_identity,
    .unfinished = sql_layouts_unfinished,
    .libraries = engine_libraries,
};
