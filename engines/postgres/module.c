/* SPDX-License-Identifier: Apache-2.0
 *
 * module.c - the engine for PostgreSQL: with tables, or with the server's own locks (advisory.c).
 */
#include <libpq-fe.h>

#include "advisory.h"
#include "postgres.h"

/* An instance is a struct sql or a struct advisory, which begins with a struct sql. */
static bool is_advisory(const void *self)
{
    const sql *q = self;

    return q->driver == &advisory_driver;
}

static int engine_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    const char *layout = pawl_url_param(url, "layout");

    if (layout && !strcmp(layout, "advisory"))
        return advisory_open(self, env, url, err);
    if (layout && strcmp(layout, "pawl"))
        return pawl_error_set(err, PAWL_EINVAL, "layout is pawl (the default) or advisory");
    return sql_open(self, &pg_driver, env, url, err);
}

static void engine_close(void *self)
{
    if (is_advisory(self))
        advisory_close(self);
    else
        sql_close(self);
}

static void engine_submit(void *self, pawl_op *op)
{
    if (is_advisory(self))
        advisory_submit(self, op);
    else
        sql_submit(self, op);
}

static void engine_cancel(void *self, pawl_op *op)
{
    if (is_advisory(self))
        advisory_cancel(self, op);
    else
        sql_cancel(self, op);
}

static uint32_t engine_caps(void *self)
{
    return is_advisory(self) ? ADVISORY_CAPS : SQL_CAPS;
}

static int engine_identity(void *self, char *ret, size_t size)
{
    const sql_settings *s = &((const sql *)self)->settings;
    char more[SQL_PREFIX_MAX + 100];

    snprintf(more, sizeof more, "%.64s %s %s", s->db ? s->db : "",
             is_advisory(self) ? "advisory" : "table", s->prefix);
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
    .state_size = sizeof(advisory) > sizeof(sql) ? sizeof(advisory) : sizeof(sql),
    .open = engine_open,
    .close = engine_close,
    .submit = engine_submit,
    .cancel = engine_cancel,
    .caps_of = engine_caps,
    .identity = engine_identity,
    .libraries = engine_libraries,
};
